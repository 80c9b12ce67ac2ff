"""Faults that are put into the code on purpose, one at a time, are found by the walk or by the simulation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import effort
from effort import soak
from simulation.test_years import SEED

HERE: Final = Path(__file__).parent
SOURCE: Final = HERE.parents[1] / "src" / "holdfast"


class Fault(NamedTuple):
    """Words of the code that are replaced."""

    what: str
    file: str
    old: str
    new: str


FAULTS: Final = [Fault(**one) for one in tomllib.loads((HERE / "faults.toml").read_text())["fault"]]


def test_there_are_many_and_each_changes_the_code_as_it_is_now() -> None:
    assert len(FAULTS) >= 20
    for fault in FAULTS:
        text = (SOURCE / fault.file).read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, fault.what
        compile(text.replace(fault.old, fault.new), fault.file, "exec")


def looks(folder: Path, *tests: str, seed: int = 1) -> int:
    """How the tests end on the code in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), SEED: str(seed)}
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode


@soak
@pytest.mark.timeout(3_600)
# to find one takes up to a minute: of all but the first, that is left to make soak
@pytest.mark.parametrize("fault", FAULTS[:: effort.every(len(FAULTS))], ids=lambda fault: fault.what)
def test_a_fault_in_the_code_is_found(fault: Fault, tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "holdfast" / fault.file
    changed.write_text(changed.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")
    years = ("tests/simulation/test_years.py", "-k", "sqlite")
    found = looks(tmp_path, "tests/core/test_walk.py") or any(
        looks(tmp_path, *years, seed=seed) for seed in range(1, 9)
    )
    assert found, f"nobody noticed that {fault.what}"
