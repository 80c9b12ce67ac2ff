"""Puts faults into the code, one at a time, and sees what notices: ``make faults`` writes a table of docs/promises.md.

A fault is found if the walk through the core fails on the changed code, or if a seed of the simulation does that the
code as it is lives through. With numbers, only these faults are tried, and nothing is written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
SOURCE: Final = HERE.parents[1] / "src"
PAGE: Final = HERE.parents[1] / "docs" / "promises.md"
WALK: Final = ("tests/core/test_walk.py",)
SEEDS: Final = range(1, 9)


class Fault(NamedTuple):
    """Words of the code that are replaced."""

    what: str
    file: str
    old: str
    new: str
    engine: str = "sqlite"
    """Whose years it is looked for in."""


class Finding(NamedTuple):
    """What noticed a fault."""

    by: str
    after: str
    seconds: float


FAULTS: Final = [Fault(**one) for one in tomllib.loads((HERE / "faults.toml").read_text())["fault"]]


def look(source: Path, *tests: str, seed: int = 1) -> str:
    """What tests say is wrong with the code in a folder; nothing if they pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", *tests]
    environment = {**os.environ, "PYTHONPATH": str(source), "HOLDFAST_SEED": str(seed)}
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.search(r"wrong after (\d+ steps: \w+)", done.stdout)
    return found[1] if found else "it failed"


def look_at_years(source: Path, engine: str, seed: int) -> str:
    """What is wrong in the years of a seed."""
    return look(source, "tests/simulation/test_years.py", "-k", f"everything and {engine}", seed=seed)


@cache
def is_lived_through(engine: str, seed: int) -> bool:
    """Whether the code as it is passes a seed."""
    return look_at_years(SOURCE, engine, seed) == ""


def find(fault: Fault) -> Finding | None:
    """Put a fault into a copy of the code, and look for it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        changed = source / "holdfast" / fault.file
        changed.write_text(changed.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")
        if look(source, *WALK):
            return Finding("the walk", "", time.monotonic() - began)
        for seed in SEEDS:
            seen = look_at_years(source, fault.engine, seed)
            if seen and is_lived_through(fault.engine, seed):
                return Finding(f"seed {seed} on {fault.engine}", seen, time.monotonic() - began)
    return None


def main() -> None:
    """Look for every fault, and write a line for each."""
    asked = [FAULTS[int(number)] for number in sys.argv[1:]] or FAULTS
    assert not look(SOURCE, *WALK), "the walk fails on the code as it is"
    rows, missed = ["| fault | found by | after |", "|---|---|---|"], 0
    for fault in asked:
        finding = find(fault)
        missed += finding is None
        by, after, seconds = finding or Finding("**nobody**", "", 0)
        rows.append(f"| {fault.what} | {by} | {after} |")
        sys.stdout.write(f"{rows[-1]} {seconds:.0f} s\n")
        sys.stdout.flush()
    if asked is FAULTS:
        fill_page(rows)
    sys.exit(f"{missed} of {len(asked)} were not found" if missed else 0)


def fill_page(rows: list[str]) -> None:
    """Write the table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- faults -->\n")
    PAGE.write_text("\n".join([f"{before}<!-- faults -->", *rows, "<!-- end -->"]) + rest.partition("<!-- end -->")[2])


if __name__ == "__main__":
    main()
