"""What the peers find for the questions of a set, each in a process of its own, with the vectors that Holdfast has.

The process is ``python -m bench.recall.peers NAME SET FOLDER VECTORS SECONDS`` of the peers' Python. It prints a list
of ids for each question.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench.recall.sets import Collection, RecallSet, read_set
from bench.side_by_side.data import Fact
from bench.side_by_side.systems import DATABASE, SYSTEMS, System

ROOT: Final = Path(__file__).parents[2]
PEERS: Final = Path(os.environ.get("HOLDFAST_PEERS", ROOT / ".venv-peers")) / "bin" / "python"
#: The peers that can search among the memories of one user.
NAMES: Final = tuple(name for name in SYSTEMS if not name.startswith(("Holdfast", "floor")))
#: How many seconds of a processor a peer may take, so that it is not stopped because others are busy; and by the clock,
#: how many times that.
LIMIT: Final = 300
_PATIENCE: Final = 4
_BATCH: Final = 500
_ONLY_WITH_EXTENSIONS: Final = "LangGraph SqliteStore"


def run_all(path: Path, asked: RecallSet, names: Sequence[str]) -> Iterator[tuple[str, list[list[str]] | str]]:
    """What each peer finds, question by question; or why it does not."""
    if not names:
        return
    from bench.servers import postgres
    from holdfast.recall.embedders.static import StaticEmbedder

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as vectors, postgres() as server:
        texts = [text for one in asked.collections for text in one.texts]
        np.save(Path(vectors) / "vectors.npy", StaticEmbedder().embed(texts))
        (Path(vectors) / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        for name in names:
            yield name, run(name, path, Path(vectors), server.new_database())


def run(name: str, path: Path, vectors: Path, database: str, limit: int = LIMIT) -> list[list[str]] | str:
    """What one peer finds, or why it does not."""
    environment = {**os.environ, DATABASE: database, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        command = [str(PEERS), "-W", "ignore", "-m", "bench.recall.peers", name, str(path.resolve()), folder]
        try:
            done = subprocess.run(
                [*command, str(vectors), str(limit)],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
                env=environment,
                timeout=_PATIENCE * limit,
            )
        except subprocess.TimeoutExpired:
            return f"stopped after {_PATIENCE * limit} seconds"
        except OSError as problem:
            return f"failed: {PEERS}: {problem.strerror}; run: make peers"
    if done.returncode == -signal.SIGXCPU:
        return f"stopped after {limit} seconds of a processor"
    if done.returncode:
        return f"failed: {(done.stderr.strip().splitlines() or ['it printed nothing'])[-1][:300]}"
    found: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- in the peer's process --------------------------------------------------------------------------------------------


def find(system: System, collection: Collection, user: str) -> list[list[str]]:
    """Store a user's memories, ask all questions, and give the ids of what is found."""
    batch: dict[str, Fact] = {}
    for memory in collection.memories:
        if memory.text in batch or len(batch) == _BATCH:  # some refuse a batch that says the same twice
            system.add_many(user, list(batch.values()))
            batch = {}
        batch[memory.text] = Fact(memory.text, "")
    system.add_many(user, list(batch.values()))
    return [_name(system.recall(user, question.text), collection) for question in collection.questions]


def _name(texts: Sequence[str], collection: Collection) -> list[str]:
    """The ids of texts; of memories with the same text, the first is meant first."""
    ids: dict[str, list[str]] = defaultdict(list)
    for memory in collection.memories:
        ids[memory.text].append(memory.id)
    return [ids[text].pop(0) for text in texts if ids[text]]


def main() -> None:
    """Print what a peer finds."""
    name, path, folder, vectors, seconds = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    if name == _ONLY_WITH_EXTENSIONS and not hasattr(sqlite3.Connection, "enable_load_extension"):
        sys.exit("Python's sqlite3 loads no extensions here, so it has no vectors to search by")
    texts = json.loads((Path(vectors) / "texts.json").read_text(encoding="utf-8"))
    places = {text.strip(): place for place, text in enumerate(texts)}  # some ask without the spaces around it
    matrix = np.load(Path(vectors) / "vectors.npy")
    system = SYSTEMS[name](Path(folder), lambda some: matrix[[places[text.strip()] for text in some]])
    try:
        asked = read_set(Path(path))
        found = [ids for number, one in enumerate(asked.collections) for ids in find(system, one, f"user-{number}")]
    finally:
        system.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
