"""``python -m bench.side_by_side``: Holdfast beside its peers, and the page about it.

python -m bench.side_by_side                      # 1,000 and 10,000 facts; make bench
python -m bench.side_by_side --sizes 1000 --only Holdfast Chroma
python -m bench.side_by_side --growth             # Holdfast alone, at 100,000 facts and beside others; make bench-full
python -m bench.side_by_side --page               # write the page again, of what was measured before

Each system runs in a process of its own; the peers' Python is that of ``.venv-peers`` (``make peers``). What was
measured is kept in ``bench/data/side_by_side.json``; systems that did not run this time keep their figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench import DATA, DOCS, ROOT, scale
from bench.edges.start import ENVIRONMENT
from bench.servers import postgres
from bench.side_by_side import page
from bench.side_by_side.data import write_vectors
from bench.side_by_side.scenarios import LIMIT, SCENARIOS
from bench.side_by_side.systems import DATABASE, SYSTEMS

KEPT: Final = DATA / page.KEPT
PEERS: Final = Path(os.environ.get("HOLDFAST_PEERS", ROOT / ".venv-peers")) / "bin" / "python"
SIZES: Final = (1_000, scale(10_000, 2_000))
#: A user's facts where Holdfast is alone, and how many facts others have beside a user with the least of these.
GROWTH: Final = (*SIZES, scale(100_000, 4_000))
OTHERS: Final = (scale(10_000), scale(100_000), scale(1_000_000))
#: Others' facts are not measured, and may take this many seconds.
_PATIENCE: Final = 900


def run(name: str, size: int, vectors: Path, database: str, others: int = 0) -> dict[str, Any]:
    """What a system did with a user's facts, beside those of others; why not, if it could not be run at all."""
    python = sys.executable if name.startswith("Holdfast") else str(PEERS)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        asked = [name, str(size), folder, str(vectors), str(others)]
        command = [python, "-W", "ignore", "-m", "bench.side_by_side.scenarios", *asked]
        environment = {**ENVIRONMENT, DATABASE: database, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=environment
            )
            try:
                out, _ = process.communicate(timeout=(LIMIT + 5) * len(SCENARIOS) + (_PATIENCE if others else 0))
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
    for line in out.splitlines():
        with suppress(json.JSONDecodeError):
            found |= json.loads(line)
    if "fill" not in found:
        found["fill"] = {"failed": (said or ["it printed nothing"])[-1][:300]}
    return found


def main() -> None:
    """Measure, keep, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", help=f"facts of the user (default: {SIZES})")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, help="only these; the others keep their figures")
    parser.add_argument("--growth", action="store_true", help="Holdfast alone, at three sizes of a user and of a store")
    parser.add_argument("--others", type=int, nargs="+", help=f"with --growth, facts of others (default: {OTHERS})")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    (DOCS / "img").mkdir(parents=True, exist_ok=True)
    if not asked.page:
        _measure(asked, kept)
    page.write(DOCS, kept)


def _measure(asked: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Fill in what was asked for."""
    sizes = asked.sizes or (GROWTH if asked.growth else SIZES)
    systems = asked.only or (["Holdfast", "Holdfast (PostgreSQL)"] if asked.growth else list(SYSTEMS))
    stores = [(size, 0) for size in sizes]
    stores += [(min(sizes), others) for others in asked.others or OTHERS] if asked.growth else []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as vectors, postgres(durable=True) as server:
        write_vectors(Path(vectors), max(sizes))
        for size, others in stores:
            for name in systems:
                print(f"{name}, {size:,} facts{f' beside {others:,} of others' if others else ''} ...", flush=True)
                begun = time.monotonic()
                found = run(name, size, Path(vectors), server.new_database(), others)
                found["is_durable"] = server.durable
                key = f"{size} of {size + others}" if asked.growth else str(size)  # growth is a run of its own
                kept.setdefault(key, {})[name] = found
                KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")  # what is ended keeps this
                print(f"{page.summarize(found)}; {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
