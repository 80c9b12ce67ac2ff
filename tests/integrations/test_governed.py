"""``Governed``: a saver whose threads are gone at the instant their time is over, and otherwise the saver it wraps."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from clocks import FakeClock
from holdfast import HeldError, Holdfast
from holdfast.core.errors import InvalidInputError
from holdfast.integrations.langgraph.governed import Governed
from holdfast.integrations.langgraph.threads import Threads
from integrations.graphs import PLACES, Place, config_of, langgraph_time, look, say, talk


@dataclass
class World:
    """An application whose saver is governed."""

    holdfast: Holdfast
    place: Place
    clock: FakeClock

    def __post_init__(self) -> None:
        self.threads = Threads(self.place.url, schema=self.place.schema, engine=self.holdfast)
        self.saver = Governed(self.place.saver, self.threads)
        self.graph = talk(self.saver)
        self.plain = talk(self.place.saver)

    def values(self, thread_id: str) -> Any:
        return self.graph.get_state(config_of(thread_id)).values

    def binned(self) -> list[Any]:
        return [item["session_id"] for item in self.holdfast.recycle.list() if item["type"] == "session"]


@pytest.fixture(params=sorted(PLACES))
def world(request: pytest.FixtureRequest, holdfast: Holdfast, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    with PLACES[request.param](tmp_path) as place, langgraph_time(clock):
        yield World(holdfast, place, clock)


def test_a_thread_past_its_time_is_gone_at_that_instant_and_a_run_begins_anew(world: World) -> None:
    say(world.graph, config_of("thread"), "the old one")
    world.clock.advance(days=29)
    assert world.values("thread")["said"][0] == "the old one"
    assert len(list(world.saver.list(None))) > 1

    world.clock.advance(days=1, seconds=1)

    assert world.values("thread") == {}
    assert list(world.saver.list(None)) == list(world.saver.list(config_of("thread"))) == []
    assert world.plain.get_state(config_of("thread")).values != {}, "without it, the next sweep takes it"
    assert say(world.graph, config_of("thread"), "the new one")["said"][0] == "the new one"
    assert world.binned() == ["thread"]
    world.clock.advance(days=1)
    world.saver.delete_thread("thread")
    assert world.holdfast.recycle.restore(session_id="thread") == 1
    assert world.values("thread")["said"][0] == "the new one", "of two in the bin, the last that went comes back"
    assert say(world.graph, config_of("thread"), "more")["said"][-2] == "more"


def test_what_was_said_in_the_session_keeps_its_thread(world: World) -> None:
    say(world.graph, config_of("thread"), "hello")
    world.clock.advance(days=20)
    world.holdfast.manager("ann", "helper", "thread").short_term.add_message("user", "again")
    world.clock.advance(days=20)
    assert world.values("thread") != {}


def test_a_thread_past_its_time_under_a_hold_is_out_of_sight_and_kept(world: World) -> None:
    say(world.graph, config_of("thread"), "the old one")
    world.holdfast.holds.add(session_id="thread", reason="a dispute")
    world.clock.advance(days=31)
    assert world.values("thread") == {}
    with pytest.raises(HeldError, match="begin one with another id"):
        say(world.graph, config_of("thread"), "the new one")
    assert world.plain.get_state(config_of("thread")).values["said"][0] == "the old one"


def test_deleting_a_thread_sends_it_to_the_bin_unless_a_hold_keeps_it(world: World) -> None:
    for name in ("deleted", "held"):
        say(world.graph, config_of(name), "hello")
    before = look(world.graph, config_of("deleted"))
    world.holdfast.holds.add(session_id="held", reason="a dispute")
    world.saver.delete_thread("deleted")
    world.saver.prune(["deleted"], strategy="delete")
    for delete in (world.saver.delete_thread, lambda name: world.saver.prune([name], strategy="delete")):
        with pytest.raises(HeldError):
            delete("held")
    assert (world.values("deleted"), world.binned()) == ({}, ["deleted"])
    assert world.values("held") != {}
    world.holdfast.recycle.restore(session_id="deleted")
    assert look(world.graph, config_of("deleted")) == before


def test_a_thread_without_an_owner_is_deleted_by_the_saver(world: World) -> None:
    config = config_of("nobodys", user_id=None)
    say(world.graph, config, "hello")
    world.saver.delete_thread("nobodys")
    assert (world.values("nobodys"), world.binned()) == ({}, [])


def test_pruning_keeps_the_latest_state_also_of_delta_channels_unless_a_hold_keeps_all(world: World) -> None:
    for number in range(6):
        for name in ("pruned", "held"):
            say(world.graph, config_of(name), f"text {number}")
    before = {name: look(world.graph, config_of(name)) for name in ("pruned", "held")}
    world.holdfast.holds.add(session_id="held", reason="a dispute")
    with pytest.raises(HeldError, match="1 of these threads"):
        world.saver.prune(["pruned", "held"])
    pruned = look(world.graph, config_of("pruned"))
    assert pruned[:4] == before["pruned"][:4]
    assert len(pruned[4]) < len(before["pruned"][4])
    assert world.threads.restore("pruned") > 0
    assert look(world.graph, config_of("pruned")) == before["pruned"], "it was in the bin"
    assert look(world.graph, config_of("held")) == before["held"]
    with pytest.raises(InvalidInputError, match="strategy"):
        world.saver.prune(["pruned"], strategy="keep_all")
    with pytest.raises(InvalidInputError, match="list of ids"):
        world.saver.prune("pruned")


def test_a_list_stops_at_its_limit_and_leaves_out_what_is_past_its_time(world: World) -> None:
    say(world.graph, config_of("old"), "hello")
    world.clock.advance(days=20)
    say(world.graph, config_of("new"), "hello")
    world.clock.advance(days=20)
    found = list(world.saver.list(None, limit=2))
    assert [one.config["configurable"]["thread_id"] for one in found] == ["new", "new"]
    assert {one.config["configurable"]["thread_id"] for one in world.saver.list(None)} == {"new"}


# --- LangGraph's own conformance --------------------------------------------------------------------------------------


@asynccontextmanager
async def async_saver(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """The saver for asyncio of a place."""
    async with AsyncExitStack() as stack:
        if place.url.startswith("sqlite"):
            path = place.url.removeprefix("sqlite:///")
            yield await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
        else:
            connection = await stack.enter_async_context(
                await AsyncConnection.connect(place.url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
            )
            await connection.execute(f'SET search_path TO "{place.schema}"'.encode())
            yield AsyncPostgresSaver(connection)


@pytest.mark.parametrize("engine_name", sorted(PLACES))
def test_a_governed_saver_passes_what_langgraph_asks_of_savers(engine_name: str, home: Path, tmp_path: Path) -> None:
    with PLACES[engine_name](tmp_path) as place, Holdfast.open(home=home) as holdfast:
        threads = Threads(place.url, schema=place.schema, unowned_as="anyone", engine=holdfast)

        @checkpointer_test(name=f"Governed on {engine_name}")
        async def governed() -> AsyncIterator[BaseCheckpointSaver[Any]]:
            async with async_saver(place) as saver:
                yield Governed(saver, threads)

        report = asyncio.run(validate(governed))

        assert report.passed_all_base()
        results = {name: result for name, result in report.results.items() if result.detected}
        assert [failure for result in results.values() for failure in result.failures] == []
        counts = {name: result.tests_passed for name, result in results.items()}
        assert counts.pop("prune") == 8, "also on SQLite, whose saver has none"
        assert sum(counts.values()) == 58
        assert holdfast.recycle.list() != [], "what was deleted is in the bin"


def test_a_governed_saver_works_for_asyncio(tmp_path: Path, holdfast: Holdfast, clock: FakeClock) -> None:
    with PLACES["sqlite"](tmp_path) as place, langgraph_time(clock):
        threads = Threads(place.url, engine=holdfast)

        async def run() -> None:
            async with async_saver(place) as saver:
                graph = talk(Governed(saver, threads))
                await graph.ainvoke({"said": ["hello"], "noted": [], "last": {}}, config_of("thread"))
                assert (await graph.aget_state(config_of("thread"))).values != {}
                clock.advance(days=31)
                assert (await graph.aget_state(config_of("thread"))).values == {}
                assert [found async for found in graph.checkpointer.alist(None, limit=3)] == []
                await graph.ainvoke({"said": ["anew"], "noted": [], "last": {}}, config_of("thread"))
                assert (await graph.aget_state(config_of("thread"))).values["said"][0] == "anew"

        asyncio.run(run())


def test_a_governed_saver_is_a_saver_in_every_other_way(tmp_path: Path, holdfast: Holdfast) -> None:
    with PLACES["sqlite"](tmp_path) as place:
        saver = Governed(place.saver, Threads(place.url, engine=holdfast))
        assert saver.config_specs == place.saver.config_specs
        assert saver.serde is place.saver.serde
        assert isinstance(saver.with_allowlist([("here", "Thing")]), Governed)
        assert saver.get_next_version(None, None).startswith("0" * 20)
        with pytest.raises((NotImplementedError, sqlite3.Error)):
            saver.copy_thread("one", "other")
