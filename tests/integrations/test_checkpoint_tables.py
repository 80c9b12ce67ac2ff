"""LangGraph's threads, moved, brought back and thinned in its own tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base.id import UUID
from langgraph.types import Command

from effort import soak, times
from holdfast.core.errors import (
    ConflictError,
    NotAStoreError,
    StorageError,
    StoreReadOnlyError,
    StoreTooNewError,
    StoreUnavailableError,
)
from holdfast.integrations.langgraph.checkpoints import CheckpointTables, Thread, read_time
from holdfast.integrations.langgraph.databases import open_database
from holdfast.integrations.langgraph.parts import ThreadPart
from integrations.graphs import (
    PLACES,
    Place,
    config_of,
    look,
    open_threads,
    random_graph,
    recycle,
    say,
    stored_bytes,
    talk,
)


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with PLACES[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def tables(place: Place) -> Iterator[ThreadPart]:
    yield from _open(place)


def _open(place: Place) -> Iterator[ThreadPart]:
    with closing(open_threads(place)) as tables:
        yield tables


def survey(tables: CheckpointTables) -> dict[str, Thread]:
    return {thread.thread_id: thread for thread in tables.note_changes()}


def shown(tables: ThreadPart, **which: Any) -> list[str]:
    return [session.session_id for page in tables.sessions(**which) for session in page]


def test_a_survey_knows_whose_a_thread_is_and_when_it_was_active(place: Place, tables: ThreadPart) -> None:
    graph = talk(place.saver)
    say(graph, config_of("first"), "hello")
    say(graph, config_of("second", user_id=None), "hello")
    made = {
        name: graph.get_state(config_of(name)).config["configurable"]["checkpoint_id"] for name in ("first", "second")
    }

    found = survey(tables)

    assert found["first"] == Thread("first", made["first"], "ann", "helper", read_time(made["first"]))
    assert found["second"].user_id is None
    assert tables.note_changes() == []


def test_a_later_survey_finds_what_changed_and_forgets_what_went(place: Place, tables: ThreadPart) -> None:
    graph = talk(place.saver)
    for name in ("first", "second", "third"):
        say(graph, config_of(name), "hello")
    survey(tables)
    say(graph, config_of("second"), "again")
    place.saver.delete_thread("third")

    assert list(survey(tables)) == ["second"]
    assert shown(tables) == ["first", "second"]


def test_only_threads_that_were_idle_at_a_moment_are_idle(place: Place, tables: ThreadPart) -> None:
    graph = talk(place.saver)
    say(graph, config_of("first"), "hello")
    say(graph, config_of("second"), "hello")
    found = survey(tables)
    first = found["first"].active_at
    assert first is not None
    assert shown(tables, idle_since=first) == ["first"]
    assert shown(tables, idle_since=first - 1) == []
    assert shown(tables, user_id="ann", agent_id="helper", session_id="second") == ["second"]
    assert shown(tables, user_id="bob") == shown(tables, agent_id="another") == shown(tables, session_id="third") == []


def test_a_thread_comes_back_from_the_bin_as_it_was_and_resumes(place: Place, tables: ThreadPart) -> None:
    graph = talk(place.saver, ask=True, fan_out=2)
    for name in ("moved", "untouched"):
        say(graph, config_of(name), "hello")
    before = look(graph, config_of("moved"))

    assert recycle(tables, "bin", survey(tables)["moved"]) == {}
    assert graph.get_state(config_of("moved")).values == {}
    assert (list(tables.binned(7)), list(tables.binned(8))) == ([], ["bin"])
    assert tables.restore(["bin"]) == set()

    assert look(graph, config_of("moved")) == before
    for name in ("moved", "untouched"):
        graph.invoke(Command(resume="yes"), config_of(name))
    assert look(graph, config_of("moved")) == look(graph, config_of("untouched"))
    assert tables.binned(8) == {}


def test_a_thread_that_was_active_after_it_was_planned_stays(place: Place, tables: ThreadPart) -> None:
    graph = talk(place.saver)
    say(graph, config_of("busy"), "hello")
    planned = survey(tables)["busy"]
    say(graph, config_of("busy"), "again")
    before = look(graph, config_of("busy"))

    assert recycle(tables, "bin", planned) == {"bin": survey(tables)["busy"].active_at}
    assert look(graph, config_of("busy")) == before


def test_a_thread_that_was_begun_anew_stays_as_it_is_and_so_does_the_one_in_the_bin(
    place: Place, tables: ThreadPart
) -> None:
    graph = talk(place.saver)
    say(graph, config_of("again"), "hello")
    old = look(graph, config_of("again"))
    recycle(tables, "bin", survey(tables)["again"])
    say(graph, config_of("again"), "anew")
    new = look(graph, config_of("again"))

    assert tables.restore(["bin"]) == tables.taken(["bin"]) == {"bin"}
    assert look(graph, config_of("again")) == new
    place.saver.delete_thread("again")
    assert tables.restore(["bin", "another"]) == set()
    assert look(graph, config_of("again")) == old


def test_a_thread_can_be_in_the_bin_twice(place: Place, tables: ThreadPart) -> None:
    graph = talk(place.saver)
    seen = []
    for bin_id in ("one", "two"):
        say(graph, config_of("thread"), bin_id)
        seen.append(look(graph, config_of("thread")))
        recycle(tables, bin_id, survey(tables)["thread"])

    assert tables.restore(["one", "two"]) == {"two"}
    assert look(graph, config_of("thread")) == seen[0]
    place.saver.delete_thread("thread")
    assert tables.restore(["two"]) == set()
    assert look(graph, config_of("thread")) == seen[1]
    assert recycle(tables, "two", _thread(tables, "thread")) == {}
    assert tables.purge(["two"]) > 0
    assert tables.binned(8) == {}


def test_a_run_whose_thread_is_recycled_at_any_moment_fails_and_leaves_no_half_of_a_thread(
    place: Place, tables: ThreadPart
) -> None:
    graph = talk(place.saver, fan_out=2)
    failed = 0
    for moment in range(1, 12):
        config = config_of(f"thread {moment}")
        say(graph, config, "hello")
        before = look(graph, config)[4]

        def recycle_it(name: str = f"thread {moment}") -> None:
            while recycle(tables, name, _thread(tables, name)):
                pass  # what runs beside this made another checkpoint meanwhile

        with _before_call(place.saver, moment, recycle_it) as calls:
            try:
                say(graph, config, "late")
            except (sqlite3.Error, psycopg.Error) as problem:
                failed += "recycle bin of Holdfast" in str(problem)
        if len(calls) < moment:
            break
        _end_transaction(place)
        assert graph.get_state(config).values == {}
        assert tables.restore([f"thread {moment}"]) == set()
        assert look(graph, config)[4][-len(before) :] == before
        assert say(graph, config, "again")["said"][-2] == "again"
    assert failed >= 3
    assert len(calls) < moment, "no run was left alone"


@contextmanager
def _before_call(saver: Any, number: int, happen: Callable[[], None]) -> Iterator[list[str]]:
    """Let something happen before a run's call to a saver; the calls that there were."""
    calls: list[str] = []
    for method in ("put", "put_writes"):
        called = getattr(saver, method)

        def call(*args: Any, real: Any = called, name: str = method, **kwargs: Any) -> Any:
            calls.append(name)
            if len(calls) == number:
                happen()
            return real(*args, **kwargs)

        setattr(saver, method, call)
    yield calls
    del saver.put, saver.put_writes


def _end_transaction(place: Place) -> None:
    """A connection of sqlite3 stays in the transaction of a statement that failed."""
    connection = getattr(place.saver, "conn")  # noqa: B009
    if isinstance(connection, sqlite3.Connection):
        connection.rollback()


def test_a_thinned_thread_resumes_and_its_last_states_are_as_they_were(place: Place, tables: ThreadPart) -> None:
    graph = talk(place.saver)
    for number in range(9):
        for name in ("thinned", "untouched"):
            say(graph, config_of(name), f"hello {number}")
    rows, size = tables.count("ann"), tables.sizes(["thinned"])["thinned"]

    before = list(place.saver.list({"configurable": {"thread_id": "thinned"}}))

    removed = tables.thin("thinned", "past", keep_last=2, now=7)

    assert removed > rows / 4
    assert tables.count("ann") == rows + 1, "they are in the bin"
    assert tables.counts()[-2:] == (0, 1)
    assert tables.sizes(["thinned"])["thinned"] < size / 2
    kept, whole = look(graph, config_of("thinned")), look(graph, config_of("untouched"))
    assert kept[:4] == whole[:4]
    assert 2 <= len(kept[4]) < 10
    assert kept[4] == whole[4][: len(kept[4])]
    removed += tables.thin("thinned", "later past", keep_last=1, now=8)
    assert (tables.restore_earlier("thinned"), tables.restore_earlier("thinned")) == (removed, 0)
    assert list(place.saver.list({"configurable": {"thread_id": "thinned"}})) == before
    tables.thin("thinned", "past", keep_last=2, now=9)
    for name in ("thinned", "untouched"):
        say(graph, config_of(name), "more")
    assert look(graph, config_of("thinned"))[:4] == look(graph, config_of("untouched"))[:4]
    place.saver.delete_thread("thinned")
    say(graph, config_of("thinned"), "anew")
    with pytest.raises(ConflictError, match="restore that first"):
        tables.restore_earlier("thinned")
    assert list(tables.binned(10)) == ["past"]


def test_erasing_a_user_leaves_no_byte_of_them(place: Place, tables: ThreadPart, tmp_path: Path) -> None:
    graph = talk(place.saver)
    for name, user in (("live", "ann"), ("binned", "ann"), ("bobs", "bob")):
        say(graph, config_of(name, user), f"a secret of {user}")
    bobs = look(graph, config_of("bobs", "bob"))
    recycle(tables, "bin", survey(tables)["binned"])

    assert tables.erase("ann") > 0

    assert tables.count("ann") == 0
    assert look(graph, config_of("bobs", "bob")) == bobs
    assert b"secret of bob" in stored_bytes(place, tmp_path)
    assert b"secret of ann" not in stored_bytes(place, tmp_path)


@soak
@pytest.mark.parametrize("engine_name", sorted(PLACES))
def test_threads_that_are_moved_and_thinned_at_random_go_on_like_their_twins(engine_name: str, tmp_path: Path) -> None:
    with PLACES[engine_name](tmp_path) as place, closing(open_threads(place)) as tables:

        @settings(max_examples=times(12, engine_name), deadline=None)
        @given(
            kinds=st.lists(st.sampled_from(["note", "fan", "stop", "ask", "own"]), min_size=1, max_size=4),
            frequency=st.integers(1, 5),
            steps=st.lists(
                st.tuples(st.sampled_from(["say", "say", "fork", "recycle", "thin", "restore"]), st.integers(1, 4)),
                min_size=2,
                max_size=8,
            ),
        )
        def check(kinds: list[str], frequency: int, steps: list[tuple[str, int]]) -> None:
            pair = _Twins(random_graph(place.saver, kinds, frequency), tables)
            pair.run("say", 1)
            for step, amount in steps:
                pair.run(step, amount)
                pair.compare()

        check()


class _Twins:
    """A thread that is moved and thinned, and another that runs as it does and is left alone."""

    _number = count()

    def __init__(self, graph: Any, tables: ThreadPart) -> None:
        self._graph, self._tables = graph, tables
        number = next(self._number)
        self._moved, self._twin = f"moved {number}", f"twin {number}"
        self._runs = 0
        self._is_thinned = False

    def run(self, step: str, amount: int) -> None:
        """Do something with the thread, and with its twin if it is a run."""
        if step == "recycle":
            before = self._tuples()
            assert recycle(self._tables, "bin", _thread(self._tables, self._moved)) == {}
            assert self._tuples() == []
            assert self._tables.restore(["bin"]) == set()
            assert self._tuples() == before
        elif step == "thin":
            self._tables.thin(self._moved, f"{self._moved}, {next(self._number)}", keep_last=amount, now=7)
            self._is_thinned = True
        elif step == "restore":
            self._tables.restore_earlier(self._moved)
            self._is_thinned = False
        else:
            self._runs += 1
            for name in (self._moved, self._twin):
                self._go_on(config_of(name), step)

    def _go_on(self, config: Any, step: str) -> None:
        state = self._graph.get_state(config)
        if step == "fork" and not self._is_thinned and state.parent_config:  # from the checkpoint before the last one
            self._graph.update_state(state.parent_config, {"said": [f"forked {self._runs}"]})
        elif state.interrupts:
            self._graph.invoke(Command(resume=f"answer {self._runs}"), config)
        else:
            self._graph.invoke({"said": [f"text {self._runs}"], "noted": [], "total": 1, "last": {}}, config)

    def _tuples(self) -> list[Any]:
        """All that the saver has of the thread, in every namespace."""
        return list(self._graph.checkpointer.list({"configurable": {"thread_id": self._moved}}))

    def compare(self) -> None:
        """Whatever can be seen of the one can be seen of the other."""
        one, other = look(self._graph, config_of(self._moved)), look(self._graph, config_of(self._twin))
        assert one[:4] == other[:4]
        if not self._is_thinned:
            assert one[4] == other[4]
            return
        rest = iter(other[4])  # thinning leaves out what is old, and branches that the head does not come from
        assert all(any(seen == then for then in rest) for seen in one[4]), (one[4], other[4])


def _thread(tables: CheckpointTables, name: str) -> Thread:
    return tables.find([name])[name]


def test_a_database_without_the_tables_is_refused_by_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE checkpoints (thread_id TEXT)")
    with (
        closing(open_database(str(file))) as database,
        pytest.raises(NotAStoreError, match="no column 'checkpoint' in table"),
    ):
        CheckpointTables(database).prepare()
    with pytest.raises(StoreUnavailableError, match="there is no SQLite file"):
        open_database(str(tmp_path / "missing.db"))
    (tmp_path / "notes.txt").write_text("these are notes, and more than a hundred bytes of them" * 3)
    with pytest.raises(NotAStoreError, match=r"notes.txt is no database; name the one that LangGraph's saver writes"):
        open_database(str(tmp_path / "notes.txt"))


def test_a_schema_without_the_tables_is_named(tmp_path: Path) -> None:
    with (
        PLACES["postgres"](tmp_path) as place,
        closing(open_database(place.url, "elsewhere")) as database,
        pytest.raises(NotAStoreError, match="schema 'elsewhere' has no table 'checkpoints'"),
    ):
        CheckpointTables(database).prepare()


def test_tables_of_a_version_that_is_not_known_are_left_alone(tmp_path: Path) -> None:
    with PLACES["postgres"](tmp_path) as place, psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f'INSERT INTO "{place.schema}".checkpoint_migrations VALUES (99)'.encode())  # noqa: S608
        with (
            closing(open_database(place.url, place.schema)) as database,
            pytest.raises(StoreTooNewError, match="version 99"),
        ):
            CheckpointTables(database).prepare()
        found = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename LIKE 'holdfast%%'", (place.schema,)
        )
        assert found.fetchone() == (0,)


def test_a_role_without_rights_is_told_what_it_needs(tmp_path: Path) -> None:
    with PLACES["postgres"](tmp_path) as place, psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS onlooker")
        connection.execute("CREATE ROLE onlooker LOGIN")
        connection.execute(f'GRANT USAGE ON SCHEMA "{place.schema}" TO onlooker'.encode())
        connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{place.schema}" TO onlooker'.encode())
        url = place.url.replace("holdfast@", "onlooker@")
        assert url != place.url
        with (
            closing(open_database(url, place.schema)) as database,
            pytest.raises(StoreReadOnlyError, match="owner of LangGraph's tables"),
        ):
            CheckpointTables(database).prepare()
        connection.execute("DROP OWNED BY onlooker")
        connection.execute("DROP ROLE onlooker")


def test_a_column_that_langgraph_adds_later_is_moved_too(tmp_path: Path) -> None:
    with PLACES["sqlite"](tmp_path) as place:
        graph = talk(place.saver)
        say(graph, config_of("thread"), "hello")
        for _ in _open(place):
            pass
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as connection:
            connection.execute("ALTER TABLE checkpoints ADD COLUMN colour TEXT DEFAULT 'red'")
            connection.execute("UPDATE checkpoints SET colour = 'blue'")
            connection.commit()
            for tables in _open(place):
                recycle(tables, "bin", _thread(tables, "thread"))
                assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)
                tables.restore(["bin"])
            assert connection.execute("SELECT DISTINCT colour FROM checkpoints").fetchall() == [("blue",)]


def test_an_id_that_is_no_uuid_of_version_6_tells_no_time() -> None:
    assert read_time("mine") is None
    assert read_time("1ef4f797-8335-4428-8001-8a1503f9b875") is None
    text = "1ef4f797-8335-6428-8001-8a1503f9b875"
    assert read_time(text) == (UUID(text).time - 0x01B21DD213814000) // 10


def test_a_failed_statement_says_which_database_it_was(place: Place) -> None:
    with (
        closing(open_database(place.url, place.schema)) as database,
        pytest.raises(StorageError, match=database.place.split()[0]),
    ):
        database.run("DELETE FROM @nothing")
