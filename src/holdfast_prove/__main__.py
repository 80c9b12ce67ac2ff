"""``python -m holdfast_prove [SYSTEM] [--adapter module:Class] [--server URL] [--json]``: try how a system forgets."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast_prove.adapter import SYSTEMS
from holdfast_prove.obligations import FAILS, Result, prove
from holdfast_prove.report import describe, show, to_dict

#: The exit code where an obligation fails.
FAILED = 3


def run(name: str, server: str | None = None, *, as_json: bool = False) -> dict[str, Any]:
    """Try a system in a folder that is removed afterwards; lines are written as soon as they are known."""
    if server is not None:
        os.environ["HOLDFAST_PROVE_POSTGRES"] = server
    about = describe(name)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-prove-") as folder:
        shown = sys.stdout if not as_json else io.StringIO()
        colours = shown.isatty() and "NO_COLOR" not in os.environ
        for line in show(about, _keep(prove(name, Path(folder)), results), colours=colours):
            shown.write(line + "\n")
            shown.flush()
    return {**about, "results": [to_dict(one) for one in results]}


def _keep(found: Iterable[Result], kept: list[Result]) -> Iterator[Result]:
    for one in found:
        kept.append(one)
        yield one


def exit_code(found: dict[str, Any]) -> int:
    """How the process ends."""
    return FAILED if any(one["outcome"] == FAILS for one in found["results"]) else 0


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_prove", description="Is what was deleted forgotten?")
    parser.add_argument("system", nargs="?", default="holdfast", help=", ".join(SYSTEMS))
    parser.add_argument("--adapter", metavar="module:Class", help="another system, by its adapter")
    parser.add_argument("--server", metavar="URL", help="the PostgreSQL server of systems that need one")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args()
    try:
        found = run(given.adapter or given.system, given.server, as_json=given.json)
    except (LookupError, ImportError, AttributeError) as problem:
        sys.exit(f"error: {problem}")
    if given.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    sys.exit(exit_code(found))


if __name__ == "__main__":
    main()
