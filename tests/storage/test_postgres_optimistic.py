"""A write that expects to find what the last one left does not ask first; what has changed since is noticed all the same,
and a write whose answer was lost is done once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import psycopg
import pytest
from bench.servers import PostgresServer, postgres

from holdfast import Holdfast, store
from holdfast.core.errors import AgentRemovedError, InDoubtError, NotFoundError, QuotaExceededError
from holdfast.core.records import Subject
from holdfast.recall.embedders import open_embedder
from holdfast.results import AddResult
from holdfast.storage.postgres import database as module
from holdfast.storage.postgres.optimistic import Expectations, as_record
from storage.postgres_relay import COMMIT, Fuse, Relay, relayed

_tenants = itertools.count(1)
BEFORE = ["likes trains", "likes windows", "takes tea with milk"]


class Stage:
    """One database; this process reaches it through a relay, others do not."""

    def __init__(self, server: PostgresServer, direct: str, relay: Relay, url: str, home: Path) -> None:
        self.server, self.relay, self.direct, self._url, self._home = server, relay, direct, url, home

    @contextmanager
    def opened(self) -> Iterator[tuple[Holdfast, Holdfast]]:
        """Two engines for a tenant that nobody knows yet: ours, whose next add will not ask, and another's."""
        tenant = f"t{next(_tenants)}"
        with (
            Holdfast.open(self._url, home=self._home, tenant=tenant) as ours,
            Holdfast.open(self.direct, home=self._home, tenant=tenant) as others,
        ):
            for text in BEFORE:  # each finds what the one before it left
                add(ours, text)
            yield ours, others

    def statements(self, act: Callable[[], object]) -> list[bytes]:
        """What is sent to the server meanwhile."""
        with self.relay.burning(Fuse(at=0)):
            act()
            return self.relay.statements

    def log(self) -> str:
        """What the server has logged."""
        return (self.server.folder / "log").read_text(errors="replace")

    def restart(self) -> None:
        """Crash, and be back."""
        self.server.kill()
        self.server.start()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with postgres(durable=True) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "open_embedder", cache(open_embedder))
        direct = server.new_database()
        with relayed(server, direct) as (relay, url):
            yield Stage(server, direct, relay, url, tmp_path_factory.mktemp("home"))


def add(holdfast: Holdfast, text: str, kind: str = "long_term") -> AddResult:
    return holdfast.manager("ann", "guide").add(text, kind)


def texts(holdfast: Holdfast) -> list[str]:
    return sorted(row["content"] for row in holdfast.manager("ann", "guide").list_memories("long_term"))


def test_an_add_after_a_few_others_is_one_round_trip(stage: Stage) -> None:
    with stage.opened() as (ours, _):
        assert stage.statements(lambda: add(ours, "speaks Greek")) == [COMMIT]
        more = [f"likes the sea {number}" for number in range(4)]
        for text in more:  # by a statement that is prepared in the end
            add(ours, text)
        assert stage.statements(lambda: add(ours, "is never late")) == [COMMIT]
        assert texts(ours) == sorted([*BEFORE, *more, "speaks Greek", "is never late"])
        assert ours.manager("ann", "guide").count_memories() == 9


def test_a_delete_is_two_round_trips_and_a_correction_or_an_update_three(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        memory = ours.manager("ann", "guide")
        ids = memory.add_many([f"likes the sea {number}" for number in range(12)])["memory_ids"]
        for known in ids[:3]:  # the driver has the statements prepared then
            memory.correct(known, f"likes the lake {known}")
            memory.update(known, f"likes the river {known}")
            memory.delete(known)
        assert len(stage.statements(lambda: memory.get(ids[4]))) == 1
        assert len(stage.statements(lambda: memory.correct(ids[4], "likes the hills"))) == 3
        assert len(stage.statements(lambda: memory.update(ids[5], "likes the woods"))) == 3
        assert len(stage.statements(lambda: memory.delete(ids[6]))) == 2
        there = set(texts(others))
        assert {"likes the hills", "likes the woods"} <= there
        assert not there & {"likes the sea 4", "likes the sea 5", "likes the sea 6"}
        assert others.manager("ann", "guide").explain(ids[6])["state"] == "recycled"


def test_a_delete_that_knows_a_user_by_an_old_number_finds_the_new_one(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        memory = ours.manager("ann", "guide")
        old = memory.add("speaks Greek")["memory_id"]
        memory.delete(memory.add("is never late")["memory_id"])
        others.erase_user("ann")
        new = others.manager("ann", "guide").add("came back")["memory_id"]
        with pytest.raises(NotFoundError):
            memory.delete(old)
        assert memory.delete(new)["operation"] == "recycle"
        assert texts(others) == []
        assert others.quotas.get("long_term", user_id="ann").memories == 0


def prepare(holdfast: Holdfast) -> None:
    """Add until the driver has the statement prepared, which is a round trip once."""
    for text in BEFORE:
        add(holdfast, text)
        holdfast.manager("ann", "guide").add(text, key=text)


def put(holdfast: Holdfast, text: str, **more: object) -> AddResult:
    return holdfast.manager("ann", "guide").add(text, key="home", **more)  # type: ignore[arg-type]


def versions(holdfast: Holdfast) -> list[str]:
    return [one["content"] for one in holdfast.manager("ann", "guide").history(key="home")]


def test_an_add_under_a_key_is_one_round_trip_whether_or_not_one_is_there(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        prepare(ours)
        assert stage.statements(lambda: put(ours, "lives in Paris")) == [COMMIT]
        assert stage.statements(lambda: put(ours, "lives in Lyon", metadata={"seen": 1})) == [COMMIT]
        told = put(ours, "lives in Nantes, by the river")
        assert (told["operation"], told["version"]) == ("corrected", 3)
        assert versions(others) == ["lives in Paris", "lives in Lyon", "lives in Nantes, by the river"]
        usage = others.quotas.get("long_term", user_id="ann")
        assert usage.memories == 3 * len(BEFORE) + 1
        assert usage.bytes == 3 * sum(map(len, BEFORE)) + len("lives in Nantes, by the river")
        assert stage.statements(lambda: add(ours, "speaks Greek")) == [COMMIT], "the next one relies on what that left"
        found = others.manager("ann", "guide").retrieve("where does she live")
        assert "lives in Nantes, by the river" in [one["content"] for one in found]


def test_an_add_without_repeats_is_one_round_trip_whether_or_not_it_is_there(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        prepare(ours)
        memory = ours.manager("ann", "guide")
        assert stage.statements(lambda: memory.add("speaks Greek", dedupe=True)) == [COMMIT]
        assert stage.statements(lambda: memory.add("Speaks Greek.", dedupe=True)) == [COMMIT]
        known = memory.add("speaks greek", dedupe=True)
        assert known["operation"] == "exists"
        assert others.manager("ann", "guide").get(known["memory_id"])["content"] == "speaks Greek"
        memory.correct(known["memory_id"], "speaks Greek and Latin")
        for text in ("one", "two"):
            add(ours, text)
        again = memory.add("speaks Greek", dedupe=True)
        assert (again["operation"], again["corrected_to"]) == ("exists", "speaks Greek and Latin")
        assert again["quota_remaining"] == others.quotas.get("long_term", user_id="ann").remaining


def test_a_correction_that_takes_more_than_one_statement_asks_first(stage: Stage) -> None:
    with stage.opened() as (ours, _):
        memory = ours.manager("ann", "guide")
        twin = memory.add("lives in Paris")["memory_id"]
        put(ours, "lives in Paris")
        sent = stage.statements(lambda: put(ours, "lives in Lyon"))
        assert len(sent) > 1
        assert memory.get(twin)["content"] == "lives in Lyon", "what said the same was corrected, too"
        put(ours, "lives in Rome", derived_from=[twin])
        put(ours, "lives in Bonn")
        assert memory.derived(twin) == [], "it is derived from nothing any more"
        memory.delete(twin)
        for number in range(30):
            put(ours, f"lives at number {number}")
        assert len(versions(ours)) == 11
        with psycopg.connect(stage.direct) as connection:
            counted = "SELECT count(*) FROM holdfast.versions JOIN holdfast.subjects ON no = versions.subject"
            (kept,) = connection.execute(
                counted + " WHERE subjects.subject = %s", (f"{ours.tenant}/ann",)
            ).fetchone() or (0,)
        assert kept <= 14 + 4, "those that nobody sees do not pile up"


def test_a_key_of_another_agent_says_who_corrected_it(stage: Stage) -> None:
    with stage.opened() as (ours, _):
        put(ours, "lives in Paris")
        clerk = ours.manager("ann", "clerk")
        for text in ("one", "two", "three"):
            clerk.add(text)
        clerk.add("lives in Lyon", key="home")
        assert [one["source"] for one in clerk.history(key="home")] == ["agent:guide", "agent:clerk"]
        put(ours, "lives in Nantes")
        assert clerk.history(key="home")[-1]["source"] == "agent:guide"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_correction_whose_answer_was_lost_is_done_once(stage: Stage, after: bool) -> None:
    with stage.opened() as (ours, _):
        put(ours, "lives in Paris")
        with stage.relay.burning(Fuse(1, after)) as fuse:
            told = put(ours, "lives in Lyon")
            assert fuse.burnt.is_set()
        assert (told["operation"], told["version"]) == ("corrected", 2)
        assert versions(ours) == ["lives in Paris", "lives in Lyon"]


def test_an_add_that_is_refused_by_the_server_is_done_after_asking(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        add(others, "speaks Greek")

        sent = stage.statements(lambda: add(ours, "is never late"))

        assert len(sent) > 2, "it relied on what was not so, and asked"
        assert texts(ours) == texts(others) == sorted([*BEFORE, "speaks Greek", "is never late"])
        assert others.manager("ann", "guide").count_memories() == 5


def test_an_add_that_waited_for_another_sees_what_that_one_did(stage: Stage) -> None:
    with stage.opened() as (ours, _), psycopg.connect(stage.direct) as other:
        whose = f"{ours.tenant}/ann"
        other.execute("SET search_path = holdfast")
        other.execute("SELECT subject_lock(0, %s)", (whose,))
        other.execute(
            "UPDATE scopes SET seq = seq + 1, next = next + 1 WHERE subject = (SELECT no FROM subjects WHERE subject = %s)",
            (whose,),
        )
        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(add, ours, "speaks Greek")
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while other.execute(waiting).fetchone() != (1,):
                time.sleep(0.01)
            other.commit()
            adding.result(60)

        assert texts(ours) == sorted([*BEFORE, "speaks Greek"])
        counted = "SELECT next FROM scopes JOIN subjects ON no = scopes.subject WHERE subjects.subject = %s"
        assert other.execute(counted, (whose,)).fetchall() == [(5,)]


def test_the_servers_log_has_nothing_of_what_was_added(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        before = stage.log()
        for turn in range(4):  # each of them finds that the other has written
            add(others, f"hepatitis {turn}")
            add(ours, f"hepatitis {turn}")
        others.quotas.set("long_term", max_memories=1, user_id="ann")
        with pytest.raises(QuotaExceededError):
            add(ours, "hepatitis")
        said = stage.log()[len(before) :]
        assert "hepatitis" not in said
        assert b"hepatitis".hex() not in said
        assert "ERROR" not in said


def test_where_others_write_too_nobody_relies_on_anything(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        add(others, "note 0")
        add(ours, "note 1")
        for turn in range(2, 8, 2):
            add(others, f"note {turn}")
            sent = stage.statements(lambda turn=turn: add(ours, f"note {turn + 1}"))  # type: ignore[misc]
            assert len(sent) == 2, "one to ask, one to write"
        assert ours.manager("ann", "guide").count_memories() == 11


def test_a_quota_that_was_lowered_is_kept_to(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        others.quotas.set("long_term", max_memories=3, user_id="ann")
        with pytest.raises(QuotaExceededError):
            add(ours, "one too many")
        assert texts(ours) == BEFORE


def test_an_agent_that_was_removed_adds_nothing(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        for text in ("speaks like a friend", "is polite", "is brief"):
            add(ours, text, "persona")
        others.agents.add("guide", "books trains")
        others.agents.remove("guide")
        with pytest.raises(AgentRemovedError):
            add(ours, "is never late", "persona")


def test_a_rule_that_was_changed_holds_for_what_is_added(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        others.policies.set("long_term", user_id="ann", delete_after_days=40, archive_after_days="never", confirm=True)
        add(ours, "likes the window seat")
        plan = others.sweep(dry_run=True, at=datetime.now(UTC) + timedelta(days=41))
        assert plan.counts["recycle"] == len(BEFORE) + 1


def test_an_add_at_the_quota_prunes_what_is_there(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        others.quotas.set("long_term", max_memories=5, user_id="ann")
        for text in ("one", "two"):
            add(ours, text)
        pruned = ours.manager("ann", "guide").add_with_auto_prune("three")
        assert pruned["pruned"] == 1
        assert texts(ours) == sorted([*BEFORE[1:], "one", "two", "three"])


def test_one_that_pruned_says_so_though_its_answer_was_lost(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        others.quotas.set("long_term", max_memories=5, user_id="ann")
        for text in ("one", "two"):
            add(ours, text)
        with stage.relay.burning(Fuse(1, after=True, wanted=lambda statement: statement == COMMIT)) as fuse:
            pruned = ours.manager("ann", "guide").add_with_auto_prune("three")
            assert fuse.burnt.is_set()
        assert (pruned["operation"], pruned["pruned"]) == ("add_with_prune", 1)
        assert texts(ours) == sorted([*BEFORE[1:], "one", "two", "three"])


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_servers_default_of_isolation_changes_nothing(stage: Stage, level: str) -> None:
    with psycopg.connect(stage.direct, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{level}'".encode())
    try:
        with stage.opened() as (ours, others), ThreadPoolExecutor(4) as pool:
            told = [pool.submit(add, one, f"note {n}") for n in range(20) for one in (ours, others)]
            for one in told:
                one.result(60)
            assert ours.manager("ann", "guide").count_memories() == len(BEFORE) + 40
    finally:
        with psycopg.connect(stage.direct, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_isolation'.encode())


def test_a_user_who_was_erased_and_came_back_is_another(stage: Stage) -> None:
    with stage.opened() as (ours, others):
        others.erase_user("ann")
        add(ours, "here again")
        assert texts(ours) == texts(others) == ["here again"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("crashing", [False, True], ids=["a connection", "a server"])
def test_one_whose_answer_was_lost_is_done_once(stage: Stage, crashing: bool, after: bool) -> None:
    with stage.opened() as (ours, _):
        with stage.relay.burning(Fuse(1, after, act=stage.restart if crashing else lambda: None)) as fuse:
            added = add(ours, "speaks Greek")
            assert fuse.burnt.is_set()

        assert texts(ours) == sorted([*BEFORE, "speaks Greek"])
        assert ours.manager("ann", "guide").get(added["memory_id"])["content"] == "speaks Greek"
        assert ours.manager("ann", "guide").count_memories() == 4
        with psycopg.connect(stage.direct, autocommit=True) as connection:
            counted = "SELECT memories, next FROM holdfast.scopes JOIN holdfast.subjects ON no = scopes.subject"
            found = connection.execute(counted + " WHERE subjects.subject = %s", (f"{ours.tenant}/ann",)).fetchall()
        assert found == [(4, 4)]


def test_one_whose_answer_was_lost_is_in_doubt_while_nobody_answers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage.opened() as (ours, _):
        monkeypatch.setattr(ours.database, "_patience", 0.2)
        with stage.relay.burning(Fuse(1, after=True, act=stage.server.stop)), pytest.raises(InDoubtError) as problem:
            add(ours, "speaks Greek")
        assert not problem.value.retryable, "whoever tries again without looking may have it twice"
        stage.server.start()
        monkeypatch.setattr(ours.database, "_patience", module._PATIENCE)
        assert "look whether it is there" in str(problem.value)
        assert "speaks Greek" in texts(ours)


def test_what_was_left_is_relied_on_once_it_has_been_found_again() -> None:
    question = ("records.write_context", (Subject("t", "u"), "t", "u", 3, "[]"))
    expectations = Expectations()
    assert expectations.take(question) is None
    expectations.leave(question, (1, 0), (1, 1))
    assert expectations.take(question) is None, "nobody knows yet whether others write here"
    expectations.leave(question, (1, 1), (1, 2))
    assert expectations.take(question) == (1, 2)
    assert expectations.take(question) is None, "it is for one write alone"
    expectations.leave(question, None, (1, 3))
    assert expectations.take(question) == (1, 3)
    expectations.leave(question, (1, 9), (1, 10))
    assert expectations.take(question) is None, "another has written here"


def test_nothing_names_whom_a_write_was_for() -> None:
    expectations = Expectations()
    expectations.leave(("records.write_context", (Subject("t", "ann"), "t", "ann", 3, '["guide"]')), None, (1, 1))
    assert "ann" not in repr(vars(expectations))


def test_of_many_scopes_those_that_were_written_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.storage.postgres.optimistic._MOST", 2)
    expectations = Expectations()
    for number in range(3):
        expectations.leave(("question", (number,)), None, (number,))
    assert [expectations.take(("question", (number,))) for number in range(3)] == [None, (1,), (2,)]


def test_a_row_is_written_as_postgresql_writes_it(stage: Stage) -> None:
    row = (1, None, True, False, -5, 2**40, 0)
    with psycopg.connect(stage.direct) as connection:
        found = connection.execute("SELECT ROW(%s::int, NULL, %s, %s, %s::int, %s::bigint, %s::int)::text", (
            1, True, False, -5, 2**40, 0,
        )).fetchone()  # fmt: skip
    assert found == (as_record(row),)
