"""Work that nobody waits for any more stops: each loop over a user's data looks whether there is time for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from clocks import Counted
from holdfast import Holdfast
from holdfast.core.clock import Deadline
from holdfast.core.errors import RequestTimeoutError
from holdfast.core.records import Subject
from holdfast.storage.relational.database import Database

#: So many records and messages are gone through by each verb.
COUNT = 40
_FILTER = {"any": [{"tags": {"none": ["a"]}}, {"place": {"nin": ["b", "c"]}}]}


@pytest.fixture
def filled(holdfast: Holdfast) -> Holdfast:
    memory = holdfast.manager("alice", "agent", "session")
    for number in range(COUNT):
        about = {"tags": [f"t{number}", "b"], "place": f"p{number}"}
        memory.add(f"Fact {number} of tea", metadata=about)
        memory.structured.put("facts", {**about, "text": f"Fact {number} of tea"})
        memory.short_term.add_message("user", f"Message {number} of tea")
    return holdfast


VERBS: dict[str, Callable[[Holdfast], Any]] = {
    "retrieve": lambda holdfast: holdfast.manager("alice", "agent").retrieve("tea", top_k=COUNT, filters=_FILTER),
    "retrieve several kinds": lambda holdfast: holdfast.manager("alice", "agent", "session").retrieve(
        "tea", ["structured", "long_term"], top_k=COUNT
    ),
    "list": lambda holdfast: holdfast.manager("alice", "agent").list_memories(filters=_FILTER, limit=COUNT),
    "find": lambda holdfast: holdfast.manager("alice", "agent").structured.find("facts", _FILTER, order_by="place"),
    "conversation": lambda holdfast: holdfast.manager(
        "alice", "agent", "session"
    ).short_term.get_conversation_history(),
    "export": lambda holdfast: holdfast.export_user("alice"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_stops_in_the_midst_of_what_it_goes_through(filled: Holdfast, verb: str) -> None:
    VERBS[verb](filled)  # what is read once and remembered has been read
    whole = Counted()
    with whole.apply():
        VERBS[verb](filled)
    assert whole.looks >= COUNT, "each record is a look at the deadline"
    late = Counted(whole.looks // 2)
    with late.apply(), pytest.raises(RequestTimeoutError):
        VERBS[verb](filled)
    assert late.looks <= whole.looks // 2 + 3, "nothing was gone through after that"
    assert VERBS[verb](filled), "and what was being looked at is as it was"


def test_a_write_is_not_begun_late_and_not_broken_off(filled: Holdfast) -> None:
    memory = filled.manager("alice", "agent")
    late, begun = Deadline(), Deadline()
    late.expire()
    with late.apply(), pytest.raises(RequestTimeoutError):
        memory.add("Too late")
    with begun.apply():
        memory.add("In time")
        begun.expire()
        memory.add("And with it")
    said = [one["content"] for one in memory.list_memories(limit=3)]
    assert said == ["And with it", "In time", f"Fact {COUNT - 1} of tea"]


# --- statements -------------------------------------------------------------------------------------------------------

_LONG = {
    "sqlite": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000000000) SELECT max(x) FROM n",
    "postgres": "SELECT pg_sleep(300)",
}


def test_a_statement_that_runs_is_stopped_where_it_runs(database: Database, engine_name: str) -> None:
    deadline = Deadline()
    timer = threading.Timer(0.2, deadline.expire)

    def ask() -> None:
        with database.read() as tx:
            timer.start()
            tx.connection.execute(_LONG[engine_name]).fetchall()  # type: ignore[attr-defined]

    with deadline.apply(), pytest.raises(RequestTimeoutError):
        ask()
    with database.read() as tx:  # others go on
        if engine_name == "postgres":
            running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(300)'"
            assert tx.connection.execute(running).fetchone() == (0,)  # type: ignore[attr-defined]
        assert tx.all(str, "records.subjects_of_tenant", ("default",)) == []
    timer.join()


def test_whoever_waits_for_another_writer_stops_waiting(holdfast: Holdfast) -> None:
    database, deadline, waiting = holdfast.database, Deadline(), threading.Event()
    holdfast.manager("alice", "agent").add("Likes tea")
    outcome: list[BaseException] = []

    def wait() -> None:
        waiting.set()
        try:
            with deadline.apply(), database.write(Subject("default", "alice")) as tx:
                tx.number_of(Subject("default", "alice"))
        except RequestTimeoutError as problem:
            outcome.append(problem)

    thread = threading.Thread(target=wait)
    with database.write(Subject("default", "alice")) as tx:
        tx.number_of(Subject("default", "alice"))
        thread.start()
        waiting.wait()
        threading.Event().wait(0.2)
        deadline.expire()
        thread.join(30)
        assert not thread.is_alive(), "it gave up while the other still had the turn"
    assert [type(one) for one in outcome] == [RequestTimeoutError]
