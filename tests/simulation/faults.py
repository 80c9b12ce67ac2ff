"""Puts faults into the code, one at a time, and sees what notices: ``make faults`` prints a table.

A fault is found if the walk through the core fails on the changed code, or if a seed of the simulation does that the
code as it is lives through.
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
WALK: Final = ("tests/core/test_walk.py",)
YEARS: Final = ("tests/simulation/test_years.py", "-k", "everything and sqlite")
SEEDS: Final = range(1, 9)


class Fault(NamedTuple):
    """Words of the code that are replaced."""

    what: str
    file: str
    old: str
    new: str


class Finding(NamedTuple):
    """What noticed a fault."""

    by: str
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


@cache
def is_lived_through(seed: int) -> bool:
    """Whether the code as it is passes a seed."""
    return look(SOURCE, *YEARS, seed=seed) == ""


def find(fault: Fault) -> Finding | None:
    """Put a fault into a copy of the code, and look for it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        changed = source / "holdfast" / fault.file
        changed.write_text(changed.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")
        if look(source, *WALK):
            return Finding("the walk", time.monotonic() - began)
        for seed in SEEDS:
            seen = look(source, *YEARS, seed=seed)
            if seen and is_lived_through(seed):
                return Finding(f"seed {seed}, after {seen}", time.monotonic() - began)
    return None


def main() -> None:
    """Look for every fault; a line for each."""
    assert not look(SOURCE, *WALK), "the walk fails on the code as it is"
    missed = 0
    sys.stdout.write("| fault | found by | seconds |\n|---|---|---|\n")
    for fault in FAULTS:
        finding = find(fault)
        missed += finding is None
        by, seconds = finding or Finding("nobody", 0)
        sys.stdout.write(f"| {fault.what} | {by} | {seconds:.0f} |\n")
        sys.stdout.flush()
    sys.exit(f"{missed} of {len(FAULTS)} were not found" if missed else 0)


if __name__ == "__main__":
    main()
