"""PostgreSQL breaks off, restarts, crashes or runs out of connections, at any moment of any operation.

Between Holdfast and the server stands a relay that counts statements. Each operation is run once for every statement that
it sends, and is broken off there: before the server has the statement, or after the server has carried it out and nobody
heard of it. Whatever happens, the error says that the same call may succeed, the store is as it was or as it was to be,
and the same engine goes on.
"""

from __future__ import annotations

import itertools
import select
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.servers import PostgresServer, postgres

from clocks import FakeClock, Seconds
from holdfast import Holdfast, store
from holdfast.core.errors import StorageError, StoreAwayError, StoreBusyError
from holdfast.core.records import COUNT_BITS, LAST_KIND, Subject
from holdfast.memory.working import GRACE_SECONDS, WorkingStore
from holdfast.recall.embedders import open_embedder
from holdfast.storage.postgres import database as module
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.stores import stores_over
from storage.postgres_relay import COMMIT, Fuse, Relay, relayed

_tenants = itertools.count(1)
#: So many breaks of each sort (at a commit, after one, elsewhere) are tried of each operation. With 1,000, all of them are.
TRIES = 2
Picture = dict[str, list[tuple[Any, ...]]]

#: What a tenant has, in words that do not change from one try to the next.
LOOKS = {
    "records": "SELECT kind, state, version, agent_id, name, metadata, content, purge_at, profile IN (SELECT no FROM profiles)",
    "scopes": f"SELECT scope & {LAST_KIND}, memories, bytes",
    "sessions": "SELECT agent_id, session_id, state, messages, size",
    "history": "SELECT role, content, purge_at",
    "facts": "SELECT name, value, until",
    "audit": "SELECT (entry::jsonb -> 'action')::text, seq",
    "totals": "SELECT kind, state, cause, count",
    "short_messages": "SELECT role, content",
}
SHARED = {
    "holds": "SELECT user_id, agent_id, tag, released_at IS NULL FROM holds WHERE tenant = %s",
    "rules": "SELECT kind, user_id, agent_id, terms, version FROM rules WHERE tenant = %s AND version > 0",
    "registry": "SELECT sort, id, state FROM registry WHERE tenant = %s",
    "quotas": "SELECT user_id, kind, max_memories, max_bytes FROM quotas WHERE tenant = %s",
    "schemas": "SELECT collection, schema FROM schemas WHERE tenant = %s",
}


class Eye:
    """Looks at a store past Holdfast and past the relay."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    def rows(self, statement: str, *bindings: object) -> list[tuple[Any, ...]]:
        """What a statement gives, sorted."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True, options="-csearch_path=holdfast")
        try:
            return sorted(self._connection.execute(statement.encode(), bindings or None).fetchall(), key=repr)
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            return self.rows(statement, *bindings)  # the server was restarted

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def picture(self, tenant: str) -> Picture:
        """Everything of a tenant, as it lies in the tables."""
        whose = "subject IN (SELECT no FROM subjects WHERE subject LIKE %s)"
        seen = {
            table: self.rows(f"{select} FROM {table} WHERE {whose}", f"{tenant}/%") for table, select in LOOKS.items()
        }
        seen |= {table: self.rows(statement, tenant) for table, statement in SHARED.items()}
        return {table: found for table, found in seen.items() if found}

    def check_sound(self, holdfast: Holdfast) -> None:
        """What is counted is there, what is there has a profile, and the audit chain is whole."""
        live = "FROM records WHERE state IN ('active', 'archived')"
        counted = self.rows("SELECT scope, memories, bytes FROM scopes WHERE memories <> 0 OR bytes <> 0")
        assert counted == self.rows(f"SELECT key >> {COUNT_BITS}, count(*), sum(size)::bigint {live} GROUP BY 1")
        for table in ("records", "sessions"):
            assert self.rows(f"SELECT * FROM {table} WHERE profile NOT IN (SELECT no FROM profiles)") == []  # noqa: S608
        kept = "FROM history WHERE history.subject = sessions.subject AND key >> 24 = sessions.no AND purge_at IS NULL"
        wrong = f"SELECT subject, no FROM sessions WHERE state = 'active' AND messages <> (SELECT count(*) {kept})"  # noqa: S608
        assert self.rows(wrong) == []
        verdict = holdfast.audit.verify()
        assert verdict.ok, verdict.findings


@dataclass(frozen=True)
class Operation:
    """What is there before, and what is done."""

    act: Callable[[Holdfast, FakeClock], object]
    prepare: Callable[[Holdfast, FakeClock], object] = lambda _holdfast, _clock: None
    whole: bool = True
    """One transaction: an error means that nothing was done. Otherwise the same call finishes what was begun."""


def memory(holdfast: Holdfast) -> Any:
    return holdfast.manager("ann", "guide", "trip")


def remember(holdfast: Holdfast, clock: FakeClock) -> None:
    memory(holdfast).add_many(["likes the window seat", "takes tea with milk", "speaks Greek"], "long_term")


def first(holdfast: Holdfast) -> str:
    return str(min(row["memory_id"] for row in memory(holdfast).list_memories("long_term")))


def forget_one(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    memory(holdfast).delete(first(holdfast))


def due(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    memory(holdfast).short_term.add_message("user", "hello")
    holdfast.policies.set("long_term", user_id="ann", delete_after_days=25, confirm=True)
    clock.advance(days=31)


def with_agent(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.agents.add("guide", "books trains")
    memory(holdfast).add("speaks like a friend", "persona")
    memory(holdfast).add("is never late", "persona")
    memory(holdfast).short_term.add_message("user", "hello")


def without_agent(holdfast: Holdfast, clock: FakeClock) -> None:
    with_agent(holdfast, clock)
    holdfast.agents.remove("guide")


def full(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    holdfast.quotas.set("long_term", max_memories=3, user_id="ann")


def due_purge(holdfast: Holdfast, clock: FakeClock) -> None:
    forget_one(holdfast, clock)
    clock.advance(days=16)


def held(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    holdfast.holds.add(user_id="ann", reason="a case", author="law")


OPERATIONS = {
    "add": Operation(lambda holdfast, _: memory(holdfast).add("likes trains", "long_term")),
    "add with a prune": Operation(
        lambda holdfast, _: memory(holdfast).add_with_auto_prune("likes trains", "long_term"), full
    ),
    "add_many": Operation(
        lambda holdfast, _: memory(holdfast).add_many([f"memory {n}" for n in range(4)], "long_term")
    ),
    "update": Operation(lambda holdfast, _: memory(holdfast).update(first(holdfast), "likes the aisle"), remember),
    "delete": Operation(lambda holdfast, _: memory(holdfast).delete(first(holdfast)), remember),
    "restore": Operation(
        lambda holdfast, _: [memory(holdfast).restore(row["memory_id"]) for row in holdfast.recycle.list()],
        forget_one,
        whole=False,
    ),
    "delete_user_memories": Operation(
        lambda holdfast, _: memory(holdfast).delete_user_memories("ann"), remember, whole=False
    ),
    "retrieve": Operation(lambda holdfast, _: memory(holdfast).retrieve("which seat?"), remember),
    "add_message": Operation(
        lambda holdfast, _: memory(holdfast).short_term.add_message("user", "good day"),
        lambda holdfast, _: memory(holdfast).short_term.add_message("user", "hello"),
        whole=False,
    ),
    "record_episode": Operation(
        lambda holdfast, _: memory(holdfast).episodic.record_episode("book a train", ["found it", "paid it"])
    ),
    "add of an entity": Operation(
        lambda holdfast, _: memory(holdfast).add("Rome is a city", "entity", {"name": "Rome"})
    ),
    "structured": Operation(lambda holdfast, _: memory(holdfast).structured.put("trips", {"city": "Rome"}, key="rome")),
    "sweep": Operation(lambda holdfast, _: holdfast.sweep(confirm=True), due, whole=False),
    "purge": Operation(lambda holdfast, _: holdfast.sweep(confirm=True), due_purge, whole=False),
    "hold": Operation(lambda holdfast, _: holdfast.holds.add(user_id="ann", reason="a case", author="law"), remember),
    "release of a hold": Operation(
        lambda holdfast, _: [holdfast.holds.release(hold.id, author="law") for hold in holdfast.holds.list()], held
    ),
    "rule": Operation(
        lambda holdfast, _: holdfast.policies.set("long_term", agent_id="guide", delete_after_days=25, confirm=True),
        remember,
        whole=False,
    ),
    "removal of an agent": Operation(lambda holdfast, _: holdfast.agents.remove("guide"), with_agent, whole=False),
    "return of an agent": Operation(lambda holdfast, _: holdfast.agents.restore("guide"), without_agent, whole=False),
    "quota": Operation(lambda holdfast, _: holdfast.quotas.set("long_term", max_memories=7, user_id="ann")),
    "seal": Operation(lambda holdfast, _: holdfast.audit.seal(), forget_one),
}


def prepare(operation: Operation, holdfast: Holdfast, clock: FakeClock) -> None:
    """Let there be what an operation needs, in a store that knows the time, so that the operation need not tell it."""
    operation.prepare(holdfast, clock)
    holdfast.trust.note_write()


class Stage:
    """One database, reached through a relay; every try has a tenant of its own in it."""

    def __init__(self, server: PostgresServer, direct: str, relay: Relay, url: str, home: Path) -> None:
        self.server, self.relay, self.url, self.home = server, relay, url, home
        self.eye = Eye(direct)
        self._ends: dict[str, Picture] = {}

    @contextmanager
    def opened(self) -> Iterator[tuple[Holdfast, FakeClock]]:
        """An engine for a tenant that nobody knows yet."""
        clock = FakeClock()
        with Holdfast.open(self.url, home=self.home, tenant=f"t{next(_tenants):06}", clock=clock) as holdfast:
            yield holdfast, clock

    def attempt(self, operation: Operation, fuse: Fuse, holdfast: Holdfast, clock: FakeClock) -> bool:
        """Do it with a fuse burning; whether it was done. An error must be one that allows another try."""
        with self.relay.burning(fuse):
            try:
                operation.act(holdfast, clock)
            except (StoreAwayError, StoreBusyError):
                return False
        return True

    def statements_of(self, name: str) -> list[bytes]:
        """What an operation sends to the server."""
        with self.opened() as (holdfast, clock):
            prepare(OPERATIONS[name], holdfast, clock)
            with self.relay.burning(Fuse(at=0)):
                OPERATIONS[name].act(holdfast, clock)
                return self.relay.statements

    def end_of(self, name: str) -> Picture:
        """What an operation leads to when nothing breaks."""
        if name not in self._ends:
            with self.opened() as (holdfast, clock):
                prepare(OPERATIONS[name], holdfast, clock)
                OPERATIONS[name].act(holdfast, clock)
                self._ends[name] = self.eye.picture(holdfast.tenant)
        return self._ends[name]

    def check_try(self, name: str, fuse: Fuse) -> bool | None:
        """Break an operation off once, and see to it that it was done, or was not and can be; ``None`` if it was over
        before the fuse had burnt.
        """
        operation = OPERATIONS[name]
        with self.opened() as (holdfast, clock):
            prepare(operation, holdfast, clock)
            before = self.eye.picture(holdfast.tenant)
            done = self.attempt(operation, fuse, holdfast, clock)
            if not done:
                if operation.whole:
                    assert self.eye.picture(holdfast.tenant) == before, "an error, and yet something was done"
                operation.act(holdfast, clock)
            assert self.eye.picture(holdfast.tenant) == self.end_of(name)
        return done if fuse.burnt.is_set() else None


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres(durable=True, settings={"wal_writer_delay": "10s", "checkpoint_timeout": "1h"}) as running:
        yield running


@pytest.fixture(scope="module")
def stage(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    direct = server.new_database()
    with relayed(server, direct) as (relay, url), pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "open_embedder", cache(open_embedder))  # so many engines, and it takes a while
        stage = Stage(server, direct, relay, url, tmp_path_factory.mktemp("home"))
        yield stage
        stage.eye.close()


def some(count: int) -> list[int]:
    """A few of many, spread over all of them."""
    return sorted({1 + (2 * n + 1) * count // (2 * TRIES) for n in range(TRIES)}) if count else []


def wait_for_calm(server: PostgresServer) -> None:
    """Until the last checkpoint is a while ago: of a commit right after one, a crash could have made another's."""
    calm = "SELECT clock_timestamp() - checkpoint_time > interval '5 seconds' FROM pg_control_checkpoint()"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        while connection.execute(calm).fetchone() != (True,):
            time.sleep(0.1)


def is_commit(statement: bytes) -> bool:
    return statement == COMMIT


def is_other(statement: bytes) -> bool:
    return statement != COMMIT


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_connection_that_breaks_at_any_statement_leaves_all_or_nothing(stage: Stage, name: str) -> None:
    statements = stage.statements_of(name)
    commits = some(sum(map(is_commit, statements)))
    for at in some(sum(map(is_other, statements))):
        stage.check_try(name, Fuse(at, wanted=is_other))
    undone = [stage.check_try(name, Fuse(at, wanted=is_commit)) for at in commits]
    wait_for_calm(stage.server)
    done = [stage.check_try(name, Fuse(at, after=True, wanted=is_commit)) for at in commits]

    others = (at for at in range(1, sum(map(is_commit, statements)) + 1) if at not in commits)
    failed = (not stage.check_try(name, Fuse(at, wanted=is_commit)) for at in others)
    assert False in undone or name == "retrieve" or any(failed), "a commit that the server never got is an error"
    assert all(done), "one of which only the answer was lost is none"


def crash(server: PostgresServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["add", "update", "delete", "sweep", "rule", "hold", "removal of an agent"])
def test_a_server_that_crashes_at_a_commit_and_is_back_leaves_all_or_nothing(
    stage: Stage, name: str, after: bool
) -> None:
    commits = sum(map(is_commit, stage.statements_of(name)))
    stage.end_of(name)

    done = stage.check_try(name, Fuse(commits, after, act=lambda: crash(stage.server), wanted=is_commit))

    assert done is after, "what the server had carried out is done, whoever heard of it"


def test_a_commit_that_a_crash_undid_is_not_taken_for_another_that_was_given_its_number(stage: Stage) -> None:
    with stage.opened() as (holdfast, _):
        memory(holdfast).add("before", "long_term")
        numbers: list[int] = []

        def crash_and_reuse() -> None:
            number = "SELECT backend_xid::text::bigint FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
            ((lost,),) = stage.eye.rows(number)
            stage.relay.open.clear()
            crash(stage.server)
            while (last := stage.eye.rows("SELECT pg_current_xact_id()::text::bigint")[0][0]) <= lost:
                numbers.append(last)
            stage.relay.open.set()

        with stage.relay.burning(Fuse(1, act=crash_and_reuse, wanted=is_commit)) as fuse:
            with pytest.raises(StoreAwayError) as problem:
                memory(holdfast).add("lost", "long_term")
            assert fuse.burnt.is_set()
        assert numbers, "the number was given again"
        assert "look whether it is there" in str(problem.value)
        assert memory(holdfast).count_memories("long_term") == 1


def test_a_pool_that_runs_dry_says_so_and_goes_on_when_a_connection_is_free(server: PostgresServer) -> None:
    with closing(PostgresDatabase(server.new_database(), busy_seconds=0.2, pool_size=1)) as database:
        with (
            database.write(),
            pytest.raises(StoreBusyError, match=r"no connection .* came free") as problem,
            database.read(),
        ):
            pass
        assert problem.value.retryable
        assert "HOLDFAST_POOL_SIZE" in str(problem.value)
        with database.read() as tx:
            assert tx.all(str, "dues.tenants") == []


def lock_subject(database: PostgresDatabase) -> int:
    with database.write() as tx:
        return tx.number_for(Subject("t", "u"))


def test_a_writer_that_waits_too_long_for_another_says_so(server: PostgresServer) -> None:
    url = server.new_database()
    with closing(PostgresDatabase(url)) as patient, closing(PostgresDatabase(url, busy_seconds=0.1)) as hasty:
        number = lock_subject(patient)
        with patient.write() as tx:
            assert tx.number_for(Subject("t", "u")) == number
            with pytest.raises(StoreBusyError, match=r"kept busy by other writers") as problem:
                lock_subject(hasty)
        assert problem.value.retryable
        assert lock_subject(hasty) == number


def test_a_server_that_stays_away_is_reported_and_used_again_when_it_is_back(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.2)  # so that even the pool has given up before the server is back
    with closing(PostgresDatabase(server.new_database(tcp=True), pool_size=4)) as database:
        server.stop()
        try:
            for _ in range(3):
                with pytest.raises(StoreAwayError, match=r"does not answer") as problem:
                    lock_subject(database)
                assert problem.value.retryable
                assert server.password not in f"{problem.value} {problem.value!r} {problem.value.__cause__!r}"
        finally:
            server.start()
        database._patience = 30.0  # a busy machine may take longer to connect than the pool was told to wait before
        assert lock_subject(database) == 1


def test_working_notes_are_read_and_added_while_the_server_is_away(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    with Holdfast.open(home=tmp_path, url=server.new_database(tcp=True)) as holdfast:
        clock = Seconds()
        subjects = stores_over(holdfast.database).subjects
        object.__setattr__(holdfast.services, "working", WorkingStore(subjects.erased_within, clocks=[clock]))
        memory = holdfast.manager("ann", "guide", "s")
        memory.working.add("on the way to Paris")
        server.stop()
        try:
            clock.advance(GRACE_SECONDS)
            memory.add("a window seat", "working")
            found = memory.retrieve("Paris", ["working"])
            assert sorted(one["content"] for one in found) == ["a window seat", "on the way to Paris"]
            clock.advance(1)
            with pytest.raises(StoreAwayError, match=r"gave no connection within 0\.5 s"):
                memory.retrieve("Paris", ["working"])
        finally:
            server.start()
        assert len(eventually(lambda: memory.retrieve("Paris", ["working"]))) == 2


def eventually(call: Callable[[], list[Any]]) -> list[Any]:
    """What a call gives once the server is back."""
    for _ in range(100):
        with suppress(StoreAwayError):
            return call()
    raise AssertionError("the server is back, and nobody notices")


def stand_still(database: PostgresDatabase) -> None:
    """Do nothing within a transaction until the server has had enough of it."""
    with database.write() as tx:
        tx.number_for(Subject("t", "u"))
        tx.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 1")
        assert select.select([tx.connection.fileno()], [], [], 60)[0], "the server said nothing"


def test_a_transaction_that_the_server_gave_up_changed_nothing_and_may_be_tried_again(server: PostgresServer) -> None:
    with closing(PostgresDatabase(server.new_database())) as database:
        with pytest.raises(
            StoreAwayError, match=r"idle-in-transaction timeout|server closed the connection"
        ) as problem:
            stand_still(database)
        assert problem.value.retryable
        with database.read() as tx:
            assert tx.number_of(Subject("t", "u")) is None


def overlook_an_error(database: PostgresDatabase) -> None:
    with database.write() as tx:
        tx.number_for(Subject("t", "u"))
        with suppress(psycopg.Error):
            tx.connection.execute("SELECT 1 / 0")


def test_a_failed_statement_that_was_overlooked_is_not_taken_for_a_commit(server: PostgresServer) -> None:
    with closing(PostgresDatabase(server.new_database())) as database:
        with pytest.raises(StorageError, match=r"answered ROLLBACK; nothing was changed"):
            overlook_an_error(database)
        with database.read() as tx:
            assert tx.number_of(Subject("t", "u")) is None


def test_after_all_of_it_the_store_is_sound(stage: Stage) -> None:
    with stage.opened() as (holdfast, _):
        stage.eye.check_sound(holdfast)
