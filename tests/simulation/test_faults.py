"""Faults that are put into the code on purpose, one at a time, are found by the walk or by the simulation."""

from __future__ import annotations

import pytest

import effort
from effort import soak
from simulation.faults import FAULTS, PAGE, SOURCE, Fault, find


def test_there_are_many_and_each_changes_the_code_as_it_is_now() -> None:
    assert len(FAULTS) >= 20
    for fault in FAULTS:
        text = (SOURCE / "holdfast" / fault.file).read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, fault.what
        if fault.file.endswith(".py"):
            compile(text.replace(fault.old, fault.new), fault.file, "exec")


def test_the_page_says_of_each_that_it_was_found() -> None:
    rows = PAGE.read_text(encoding="utf-8").partition("<!-- faults -->")[2].strip().splitlines()[2:-1]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [fault.what for fault in FAULTS], "make faults"
    assert [row for row in rows if "nobody" in row] == []


@soak
# to find one takes up to a minute: of all but the first, that is left to make soak and make faults
@pytest.mark.parametrize("fault", FAULTS[:: effort.every(len(FAULTS))], ids=lambda fault: fault.what)
def test_a_fault_in_the_code_is_found(fault: Fault) -> None:
    assert find(fault) is not None, f"nobody noticed that {fault.what}"
