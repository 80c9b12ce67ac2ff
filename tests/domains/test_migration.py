"""A store from before rules had selections is opened: its rules are what they were, and a policy can become one."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import cast

import pytest

import raw
from clocks import FakeClock
from databases import postgres_server
from homes import ENGINES, on_sqlite, settings_of
from retain import Retain
from retain.storage.copying.ends import open_source, open_target
from retain.storage.copying.transfer import transfer
from storage.older import take_back


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture
def url(engine_name: str, tmp_path: Path) -> str:
    """A store of the test's own, which nobody uses afterwards."""
    return f"sqlite:///{tmp_path}/retain.db" if engine_name == "sqlite" else postgres_server().new_database()


def numbers(retain: Retain) -> list[int]:
    return [number for (number,) in raw.rows(retain, "SELECT no FROM rules ORDER BY no")]


def test_rules_of_before_stay_and_their_numbers_are_not_given_again(
    url: str, home: Path, engine_name: str, clock: FakeClock
) -> None:
    with Retain.open(url, home=home, clock=clock) as retain:
        memory = retain.manager("alice", "agent")
        note = memory.add("a note", "long_term", {"source_type": "context"})["memory_id"]
        retain.policies.set("long_term", delete_after_days=100, confirm=True)
        retain.policies.set("entity", user_id="alice", keep_days=50)
        retain.manager("bob", "agent").add("another", "long_term")
        retain.policies.set("long_term", user_id="bob", keep_days=50)
        retain.erase_user("bob")
        before, given = retain.policies.list(), numbers(retain)
        take_back(retain, engine_name, 6)
        assert "selection" not in raw.columns(retain, "rules")

    with Retain.open(url, home=home, clock=clock) as retain:
        assert retain.policies.list() == before
        assert retain.explain(note)["rules"]["delete_after_days"] == 100
        retain.domains.configure("memory", {"auto_gc": True}, confirm=True)
        assert retain.explain(note)["rules"]["delete_by"] == "the memory domain's policy, version 1"
        assert numbers(retain)[-1] > max(given) + 1, "the number of the rule that went with bob is not given again"
        assert retain.sweep(dry_run=True, at="2030-01-01").counts["recycle"] == 1


@on_sqlite
def test_a_store_that_moves_to_a_server_goes_by_the_same_policy(home: Path, clock: FakeClock, engine_name: str) -> None:
    assert engine_name == "sqlite"
    with Retain.open(home=home, clock=clock) as retain:
        note = retain.manager("alice", "agent").add("a note", "long_term", {"source_type": "context"})["memory_id"]
        retain.domains.configure("memory", {"auto_gc": True, "keep_session_ids": ["s"]}, confirm=True)
        rules = retain.policies.list()
    url = postgres_server().new_database()
    settings = settings_of(home)
    with (
        closing(open_source(settings.url, settings)) as source,
        closing(open_target(url, settings)) as target,
    ):
        transfer(source, target, lambda _what, _total: nullcontext(lambda _count: None))
    with Retain.open(url, home=home, clock=clock) as retain:
        assert retain.policies.list() == rules
        assert not retain.domains.follow(), "nothing was to be done"
        clock.advance(days=30)
        assert retain.sweep().counts["recycle"] == 1
        assert retain.explain(note)["state"] == "recycled"
