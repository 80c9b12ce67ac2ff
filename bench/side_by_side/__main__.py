"""``python -m bench.side_by_side``: Holdfast beside its peers, and the page about it.

python -m bench.side_by_side                      # 1,000 and 10,000 facts; make bench
python -m bench.side_by_side --sizes 1000 --only Holdfast Chroma
python -m bench.side_by_side --growth             # Holdfast alone at 1,000, 10,000 and 100,000; make bench-full

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
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.servers import postgres
from bench.side_by_side import page
from bench.side_by_side.data import write_vectors
from bench.side_by_side.scenarios import LIMIT, SCENARIOS
from bench.side_by_side.systems import DATABASE, SYSTEMS

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "bench" / "data" / "side_by_side.json"
PEERS: Final = Path(os.environ.get("HOLDFAST_PEERS", ROOT / ".venv-peers")) / "bin" / "python"
SIZES: Final = (1_000, 10_000)
GROWTH: Final = (1_000, 10_000, 100_000)


def run(name: str, size: int, vectors: Path, database: str) -> dict[str, Any]:
    """What a system did with a store of some size; why not, if it could not be run at all."""
    python = sys.executable if name.startswith("Holdfast") else str(PEERS)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        command = [python, "-W", "ignore", "-m", "bench.side_by_side.scenarios", name, str(size), folder, str(vectors)]
        environment = {**os.environ, DATABASE: database, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=environment
            )
            try:
                out, _ = process.communicate(timeout=(LIMIT + 5) * len(SCENARIOS))
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
    parser.add_argument("--growth", action="store_true", help="Holdfast alone, at three sizes")
    asked = parser.parse_args()
    sizes = asked.sizes or (GROWTH if asked.growth else SIZES)
    systems = asked.only or (["Holdfast", "Holdfast (PostgreSQL)"] if asked.growth else list(SYSTEMS))
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as vectors, postgres() as server:
        write_vectors(Path(vectors), max(sizes))
        for size in sizes:
            for name in systems:
                print(f"{name}, {size:,} facts ...", flush=True)
                found = run(name, size, Path(vectors), server.new_database())
                kept.setdefault(str(size), {})[name] = found
                print(page.summarize(found), flush=True)
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    page.write(ROOT / "docs", kept)


if __name__ == "__main__":
    main()
