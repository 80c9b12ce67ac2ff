"""A store that moves from one engine to another keeps its policies."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import cast

import pytest

from clocks import FakeClock
from databases import postgres_server
from holdfast import Holdfast
from holdfast.storage.transfer.migrate import transfer
from holdfast.storage.transfer.stores import open_source, open_target
from homes import ENGINES, on_sqlite, settings_of


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@on_sqlite
def test_a_store_that_moves_to_a_server_goes_by_the_same_policy(home: Path, clock: FakeClock, engine_name: str) -> None:
    assert engine_name == "sqlite"
    with Holdfast.open(home=home, clock=clock) as holdfast:
        note = holdfast.manager("alice", "agent").add("a note", "long_term", {"source_type": "context"})["memory_id"]
        holdfast.domains.configure("memory", {"auto_gc": True, "keep_session_ids": ["s"]}, confirm=True)
        rules = holdfast.policies.list()
    url = postgres_server().new_database()
    settings = settings_of(home)
    with closing(open_source(settings.url, settings)) as source, closing(open_target(url, settings)) as target:
        transfer(source, target, lambda _what, _total: nullcontext(lambda _count: None))
    with Holdfast.open(url, home=home, clock=clock) as holdfast:
        assert holdfast.policies.list() == rules
        assert not holdfast.domains.follow(), "nothing was to be done"
        clock.advance(days=30)
        assert holdfast.sweep().counts["recycle"] == 1
        assert holdfast.explain(note)["state"] == "recycled"
