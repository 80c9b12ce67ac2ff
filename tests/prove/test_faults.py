"""The forgetting kit finds each fault where it is, nothing where there is none, and is not fooled by an empty store."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_prove import OBLIGATIONS, prove
from holdfast_prove.obligations import FAILS, HOLDS, NOT_CLAIMED

#: A fault, and the one obligation that it breaks.
FAULTS = {
    "search": "search",
    "processes": "processes",
    "restart": "restart",
    "reindex": "reindex",
    "derived": "derived",
    "bytes log": "bytes",
    "bytes gzip": "bytes",
    "bytes vector": "bytes",
    "erased": "erased",
    "again": "again",
    "again wrongly": "again",
    "expiry": "expiry",
    "expiry early": "expiry",
    "correction": "correction",
    "hold": "hold",
    "hold erased": "hold",
    "others": "others",
    "restore": "restore",
    "restore erased": "restore",
    "restore nothing": "restore",
}


def run(name: str, folder: Path, fault: str = "none") -> dict[str, str]:
    return {one.obligation: one.outcome for one in prove(f"prove.notes:{name}", folder / f"fault-{fault}")}


def test_a_store_without_faults_keeps_every_obligation(tmp_path: Path) -> None:
    assert run("Notes", tmp_path) == dict.fromkeys(OBLIGATIONS, HOLDS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_exactly_there(fault: str, tmp_path: Path) -> None:
    results = run("Notes" if fault == "processes" else "Alone", tmp_path, fault)
    assert [name for name, outcome in results.items() if outcome == FAILS] == [FAULTS[fault]]
    assert list(results.values()).count(HOLDS) >= len(OBLIGATIONS) - 3


def test_a_verifier_that_believes_anything_is_found(tmp_path: Path) -> None:
    results = run("Forgiving", tmp_path)
    assert [name for name, outcome in results.items() if outcome == FAILS] == ["proof"]


def test_every_obligation_has_a_fault_that_breaks_it() -> None:
    assert {*FAULTS.values(), "proof"} == set(OBLIGATIONS)


def test_an_empty_store_passes_nothing(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="a record that was just added is not found by get and search"):
        run("Notes", tmp_path, "nothing is kept")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Nameless", "says nothing of its system yet: add returns None; it must return the id of the record, a text"),
        ("Rowed", r"search or get returns \('u\w+ keeps the spare key .*',\); they must return texts of records"),
        ("Wrong", "cannot be used: ZeroDivisionError"),
    ],
)
def test_a_mistake_of_the_adapter_is_not_put_down_to_its_system(name: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=complaint):
        run(name, tmp_path)


def test_a_search_that_cannot_see_the_twin_proves_nothing(tmp_path: Path) -> None:
    results = {one.obligation: one for one in prove("prove.notes:Alone", tmp_path / "fault-blind")}
    assert [name for name, one in results.items() if one.outcome == FAILS] == ["bytes", "erased"]
    assert "the twin is found nowhere" in results["bytes"].detail


def test_what_is_missing_is_not_claimed_and_never_failed(tmp_path: Path) -> None:
    results = run("Bare", tmp_path)
    assert [name for name, outcome in results.items() if outcome == HOLDS] == ["search", "bytes", "erased", "others"]
    assert set(results.values()) == {HOLDS, NOT_CLAIMED}


def test_an_adapter_without_one_of_the_six_methods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="yet: it lacks search, get, delete, erase_user, places"):
        next(prove("prove.notes:Unfinished", tmp_path))


def test_without_places_no_byte_is_claimed(tmp_path: Path) -> None:
    results = run("Alone", tmp_path, "no places")
    assert FAILS not in results.values()
    assert results["bytes"] == results["erased"] == NOT_CLAIMED


@pytest.mark.parametrize("fault", ["bytes log", "correction"])
def test_what_is_not_claimed_is_tried_told_and_never_failed(fault: str, tmp_path: Path) -> None:
    results = {one.obligation: one for one in prove("prove.notes:Modest", tmp_path / f"fault-{fault}")}
    assert {one.outcome for name, one in results.items() if name != "search"} == {NOT_CLAIMED}
    assert results["search"].outcome == HOLDS
    broken = results[FAULTS[fault]].detail
    assert broken
    assert broken != "it is so, though"
    assert results["others"].detail == "it is so, though"
