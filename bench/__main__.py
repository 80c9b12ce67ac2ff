"""``python -m bench``: measures and writes ``docs/benchmarks.md`` with its plots.

python -m bench                                # everything; 1,000,000 memories, several minutes
python -m bench --users 10                     # a smaller store
python -m bench --check                        # are the targets met? a minute or two, writes nothing; make bench-check
HOLDFAST_LOCOMO=path/to/locomo10.json make bench # with LoCoMo, if you have it
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench import (
    check,
    deployment,
    erasure,
    footprint,
    langgraph_store,
    large_scope,
    lifecycle,
    report,
    round_trips,
    service,
    speed,
    start,
)

_PARTS = (
    "speed", "lifecycle", "archive", "quality", "deployment", "large_scope", "round_trips", "erasure", "service",
    "start", "langgraph_store",
)  # fmt: skip


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=100, help="users with 10,000 memories each (default: 100)")
    parser.add_argument(
        "--locomo", default=os.environ.get("HOLDFAST_LOCOMO"), help="locomo10.json, to measure recall with"
    )
    parser.add_argument("--folder", type=Path, help="where the store is made (default: the system's temporary folder)")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the page is written (default: docs)")
    parser.add_argument("--only", choices=_PARTS, help="measure one; the page keeps the others")
    parser.add_argument("--check", action="store_true", help="only say whether the targets are met; exit code 1 if not")
    options = parser.parse_args()
    if options.check:
        sys.exit(check.run())
    if options.only in (None, "speed"):
        report.write_speed(options.docs, speed.measure(options.users, options.folder), options.users)
    if options.only in (None, "lifecycle"):
        figures = lifecycle.measure(options.users, options.folder)
        report.write_lifecycle(options.docs, figures, options.users)
    if options.only in (None, "archive"):
        report.write_archive(options.docs, footprint.measure_all(), options.locomo)
    if options.only in (None, "quality"):
        report.write_quality(options.docs, options.locomo)
    if options.only in (None, "deployment"):
        report.write_deployment(options.docs, deployment.measure(options.users), options.users)
    if options.only in (None, "large_scope"):
        report.write_large_scope(options.docs, large_scope.measure(), large_scope.measure_parts())
    if options.only in (None, "round_trips"):
        report.write_round_trips(options.docs, round_trips.measure())
    if options.only in (None, "erasure"):
        report.write_erasure(options.docs, erasure.measure(options.users, options.folder), options.users)
    if options.only in (None, "service"):
        report.write_service(options.docs, service.measure())
    if options.only in (None, "start"):
        report.write_start(options.docs, start.measure())
    if options.only in (None, "langgraph_store"):
        report.write_langgraph_store(options.docs, langgraph_store.measure())


if __name__ == "__main__":
    main()
