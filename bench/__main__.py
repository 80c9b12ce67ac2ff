"""``python -m bench``: measures and writes ``docs/benchmarks.md`` with its plots.

python -m bench                                # everything; 1,000,000 memories, most of an hour on an idle machine
python -m bench --users 10                     # a smaller store
python -m bench --check                        # are the targets met? a minute or two, writes nothing; make bench-check
HOLDFAST_LOCOMO=path/to/locomo10.json python -m bench # with LoCoMo, if you have it
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import (
    DOCS,
    check,
    corrections,
    deployment,
    erasure,
    footprint,
    lifecycle,
    report,
    round_trips,
    scale,
    speed,
    sweeps,
)
from bench.edges import console, service, start
from bench.langgraph import store, threads
from bench.recall import large_scope

_PARTS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "speed": lambda asked: report.write_speed(asked.docs, speed.measure(asked.users, asked.folder), asked.users),
    "lifecycle": lambda asked: report.write_lifecycle(
        asked.docs, [*lifecycle.measure(asked.users, asked.folder), *sweeps.measure(folder=asked.folder)], asked.users
    ),
    "archive": lambda asked: report.write_archive(asked.docs, footprint.measure_all(), asked.locomo),
    "quality": lambda asked: report.write_quality(asked.docs, asked.locomo),
    "deployment": lambda asked: report.write_deployment(asked.docs, deployment.measure(asked.users), asked.users),
    "large_scope": lambda asked: report.write_large_scope(
        asked.docs, large_scope.measure(), large_scope.measure_parts()
    ),
    "round_trips": lambda asked: report.write_round_trips(asked.docs, round_trips.measure()),
    "erasure": lambda asked: report.write_erasure(asked.docs, erasure.measure(asked.users, asked.folder), asked.users),
    "service": lambda asked: report.write_service(asked.docs, service.measure()),
    "console": lambda asked: report.write_console(asked.docs, [*console.measure(asked.users * 10)], asked.users * 10),
    "start": lambda asked: report.write_start(asked.docs, start.measure()),
    "langgraph_store": lambda asked: report.write_langgraph_store(asked.docs, store.measure()),
    "langgraph_threads": lambda asked: report.write_langgraph_threads(asked.docs, [*threads.measure()]),
    "corrections": lambda asked: report.write_corrections(asked.docs, corrections.measure()),
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--users", type=int, default=scale(100, 3), help="users with 10,000 memories each (default: 100)"
    )
    parser.add_argument(
        "--locomo", default=os.environ.get("HOLDFAST_LOCOMO"), help="locomo10.json, to measure recall with"
    )
    parser.add_argument("--folder", type=Path, help="where the store is made (default: the system's temporary folder)")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page is written (default: docs)")
    parser.add_argument("--only", choices=_PARTS, help="measure one; the page keeps the others")
    parser.add_argument("--check", action="store_true", help="only say whether the targets are met; exit code 1 if not")
    options = parser.parse_args()
    (options.docs / "img").mkdir(parents=True, exist_ok=True)
    if options.check:
        sys.exit(check.run())
    for name, write in _PARTS.items():
        if options.only in (None, name):
            write(options)


if __name__ == "__main__":
    main()
