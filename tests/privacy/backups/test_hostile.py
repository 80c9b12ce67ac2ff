"""Backups that somebody else can write to: nothing in them harms the store, and nothing comes back that was ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import Holdfast, UnauthenticatedError
from holdfast.core.values import json_problem
from homes import Homes


@pytest.fixture
def engine_name() -> str:
    return "sqlite"


def test_a_manifest_that_is_made_to_be_unreadable_stops_nothing(holdfast: Holdfast, home: Path) -> None:
    holdfast.manager("ann", "guide").add("Likes tea", "long_term")
    first = holdfast.backups.create()
    hostile = home / "backups" / "backups" / "20260101-000000-000-7c0c-84a9-64c178b14055"
    hostile.mkdir()
    (hostile / "manifest.json").write_bytes(b"[" * 200_000)
    second = holdfast.backups.create()
    listed = {one.id: one.problem for one in holdfast.backups.list()}
    assert listed.keys() == {first.id, second.id, hostile.name}
    assert listed[hostile.name] is not None
    assert holdfast.backups.rotate().damaged == [hostile.name]


def test_a_key_that_was_revoked_since_is_not_valid_again_in_a_restored_store(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        _, leaked = holdfast.access.create("leaked", rights=["admin"], tenant="*")
        _, kept = holdfast.access.create("kept", rights=["read"], tenant="*")
        backup = holdfast.backups.create()
        holdfast.access.revoke(holdfast.access.list()[0].id)
    for path in home.glob("holdfast.db*"):
        path.unlink()
    with Holdfast.open(home=home, clock=clock, new_store=True) as holdfast:
        holdfast.backups.restore(backup.id)
        assert holdfast.access.identify(kept).is_operator
        with pytest.raises(UnauthenticatedError):
            holdfast.access.identify(leaked)
    shutil.rmtree(home)


def test_the_place_of_a_mistake_is_told_and_what_is_right_costs_nothing_to_look_at() -> None:
    long = "k" * 100_000
    assert json_problem({long: [0] * 100_000}) is None
    assert json_problem({"a": {"b": [1, {2}]}}) == "a.b[1] is a set ({2})"
    assert len(str(json_problem({long: [{1}]}))) < 200
