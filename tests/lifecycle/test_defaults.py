"""A default that changes with a new version of Holdfast holds for everything in a store that an older one made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from clocks import FakeClock
from holdfast import Holdfast, installation
from holdfast.core import rules
from holdfast.core.records import HISTORY, Terms
from holdfast.core.rules import DEFAULTS
from holdfast.core.values import DAY
from holdfast.storage.relational import rules as stored_rules

SHORTER = {"episodic": Terms(archive_after=30 * DAY, delete_after=60 * DAY)}
LONGER = {"episodic": Terms(archive_after=180 * DAY, delete_after=730 * DAY)}


@contextmanager
def defaults(changed: dict[str, Terms], number: str = installation.VERSION) -> Iterator[None]:
    """A version of Holdfast that has other defaults."""
    with pytest.MonkeyPatch.context() as patch:
        changes = MappingProxyType({**DEFAULTS, **changed})
        for module in (rules, stored_rules):
            patch.setattr(module, "DEFAULTS", changes)
        for module in (installation, stored_rules):
            patch.setattr(module, "VERSION", number)
        yield


def seen(holdfast: Holdfast, user: str = "ann") -> list[str]:
    found = holdfast.manager(user, "guide").retrieve("the trip", memory_type="episodic", top_k=9)
    return sorted(one["content"] for one in found)


def due(holdfast: Holdfast, memory_id: str) -> str | None:
    """What ``explain`` and a plan say happens to a memory; they say the same."""
    plan = holdfast.sweep(dry_run=True)
    said = {one.id: one.target.value for one in plan.decisions}  # type: ignore[union-attr]
    told = holdfast.explain(memory_id, user_id="ann")
    overdue = told["next"] is not None and told["next"]["due"]
    assert overdue == (memory_id in said), (told["next"], said)
    return said.get(memory_id)


@pytest.fixture
def old(home: Path, clock: FakeClock) -> str:
    """An episode in a store that was made before the defaults changed; its id."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        return holdfast.manager("ann", "guide").episodic.record_episode("the trip to Rome", summary="the trip to Rome")


def test_a_shortened_default_holds_for_what_was_there_and_for_what_comes(
    home: Path, clock: FakeClock, old: str
) -> None:
    clock.advance(days=61)
    with defaults(SHORTER), Holdfast.open(home=home, clock=clock) as holdfast:
        assert seen(holdfast) == []
        assert due(holdfast, old) == "recycled"
        memory = holdfast.manager("ann", "guide")
        new = memory.episodic.record_episode("the trip to Oslo", summary="the trip to Oslo")
        assert seen(holdfast) == ["the trip to Oslo"]
        clock.advance(days=59)
        assert (seen(holdfast), due(holdfast, new)) == (["the trip to Oslo"], "archived")
        clock.advance(days=1)
        assert (seen(holdfast), due(holdfast, new)) == ([], "recycled")
        assert holdfast.sweep().counts["recycle"] == 2


def test_a_lengthened_default_brings_back_what_no_sweep_has_taken(home: Path, clock: FakeClock, old: str) -> None:
    clock.advance(days=366)
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert (seen(holdfast), due(holdfast, old)) == ([], "recycled")
    with defaults(LONGER), Holdfast.open(home=home, clock=clock) as holdfast:
        assert (seen(holdfast), due(holdfast, old)) == (["the trip to Rome"], "archived")


def test_rules_still_come_before_a_default_that_changed(home: Path, clock: FakeClock, old: str) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.policies.set("episodic", archive_after_days=100, delete_after_days=200, user_id="ann", confirm=True)
    clock.advance(days=61)
    with defaults(SHORTER), Holdfast.open(home=home, clock=clock) as holdfast:
        assert (seen(holdfast), due(holdfast, old)) == (["the trip to Rome"], None)
        holdfast.policies.remove("episodic", user_id="ann", confirm=True)
        assert (seen(holdfast), due(holdfast, old)) == ([], "recycled")


def test_conversations_follow_a_default_that_changed(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "guide", "trip").short_term.add_message("user", "hello")
    clock.advance(days=8)
    with defaults({HISTORY: Terms(delete_after=7 * DAY)}), Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.sessions.list("ann") == []
        assert holdfast.sweep().counts["recycle"] == 1


def test_every_tenant_follows_and_each_is_told_once(home: Path, clock: FakeClock, old: str) -> None:
    with Holdfast.open(home=home, clock=clock, tenant="other") as holdfast:
        holdfast.manager("ann", "guide").episodic.record_episode("the trip to Bonn", summary="the trip to Bonn")
    clock.advance(days=61)
    for _ in range(2):
        with defaults(SHORTER), Holdfast.open(home=home, clock=clock) as holdfast:
            for one in (holdfast, holdfast.of_tenant("other")):
                assert seen(one) == []
                (entry,) = [entry for entry in one.audit.tail(99) if entry["action"] == "defaults.changed"]
                assert entry["detail"] == {
                    "from": {
                        "episodic": {
                            "archive_after_days": 90,
                            "delete_after_days": 365,
                            "versions": 10,
                            "versions_days": 365,
                        }
                    },
                    "to": {"episodic": {"archive_after_days": 30, "delete_after_days": 60}},
                }
                assert one.audit.verify()
                listed = [rule for rule in one.policies.list() if rule["memory_type"] == "episodic"]
                assert listed[0]["delete_after_days"] == 60


def test_nothing_is_written_when_no_default_changed(home: Path, clock: FakeClock, old: str) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        before = holdfast.services.dues.rules_version("default")
        assert holdfast.services.rules.adopt_defaults(now=lambda: 0) == []
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.services.dues.rules_version("default") == before


def test_processes_of_two_versions_go_by_the_defaults_of_the_newer_one(home: Path, clock: FakeClock, old: str) -> None:
    with Holdfast.open(home=home, clock=clock) as running:
        clock.advance(days=61)
        assert seen(running) == ["the trip to Rome"]
        with defaults(SHORTER, "99.0.0"), Holdfast.open(home=home, clock=clock):
            pass

        assert (seen(running), due(running, old)) == ([], "recycled"), "it was open all the time"
        new = running.manager("ann", "guide").episodic.record_episode("the trip to Oslo", summary="the trip to Oslo")
        bob = running.manager("bob", "guide").episodic.record_episode("the trip to Kyiv", summary="the trip to Kyiv")
    with Holdfast.open(home=home, clock=clock) as older:
        clock.advance(days=60)
        assert (seen(older), seen(older, "bob")) == ([], [])
        assert due(older, new) == "recycled"
        assert bob in {one.id for one in older.sweep(dry_run=True).decisions}  # type: ignore[union-attr]
