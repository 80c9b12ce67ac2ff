"""Many processes on one PostgreSQL: quotas, sweeps, holds, rules, indexes and leadership hold across all of them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from bench.servers import PostgresServer, postgres

from clocks import FakeClock, wait_until
from effort import soak, times
from holdfast import Holdfast
from holdfast.core.chain import parse_entries
from holdfast.core.records import COUNT_BITS, Scope
from holdfast.lifecycle.schedule.leadership import LEASE_TTL
from holdfast.storage.postgres.database import STANDSTILL_MS
from storage.postgres_child import START

SCRIPT = Path(__file__).with_name("postgres_child.py")
SECONDS = 120
_tenants = itertools.count(1)


class Nursery:
    """Where children come from."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(["tests", *sys.path])
            environment = {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}
            self._process = subprocess.Popen([sys.executable, str(SCRIPT)], stdin=theirs.fileno(), env=environment)
        self._desk = ours

    def child(self) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._desk, [b"c"], [theirs.fileno()])
        return Child(ours)

    def end(self) -> None:
        self._desk.close()
        self._process.wait(SECONDS)


class Child:
    """A process that does as it is told."""

    def __init__(self, line: socket.socket) -> None:
        line.settimeout(SECONDS)
        self._line = line
        self._file = line.makefile("rw", encoding="utf-8")
        self.pid = 0

    def tell(self, verb: str, *arguments: object) -> None:
        self._file.write(json.dumps([verb, *arguments]) + "\n")
        self._file.flush()

    def hear(self) -> dict[str, Any] | None:
        """The answer; ``None`` if the process was killed instead."""
        try:
            line = self._file.readline()
        except ConnectionError:
            line = ""
        return json.loads(line) if line.endswith("\n") else None

    def ask(self, verb: str, *arguments: object) -> Any:
        """Tell it something that it has to do without an error."""
        self.tell(verb, *arguments)
        answer = self.hear()
        assert answer is not None, "the child is gone"
        assert "said" in answer, answer
        return answer["said"]

    def end(self) -> None:
        with suppress(ProcessLookupError):
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)  # it may stand still
        self.pid = 0
        with suppress(OSError):
            self._file.close()
        self._line.close()


def together(children: Sequence[Child], *told: Sequence[object]) -> list[Any]:
    """Let all do something at once (each its own, if there are as many words); what they say, errors included."""
    for child, words in zip(children, told if len(told) > 1 else list(told) * len(children), strict=True):
        child.tell(str(words[0]), *words[1:])
    answers = [child.hear() for child in children]
    assert None not in answers, "a child is gone"
    return [answer.get("said", answer) for answer in answers if answer is not None]


class Stage:
    """A database, and the processes on it; every test has a tenant of its own there."""

    def __init__(self, server: PostgresServer, nursery: Nursery, url: str, home: Path) -> None:
        self.server, self.nursery, self.url, self.home = server, nursery, url, home
        self._stack = ExitStack()
        self.tenant = "nobody"
        with self.opened():
            pass

    def child(self, ttl: float = 15.0) -> Child:
        """A new process, with this test's tenant open."""
        child = self.nursery.child()
        self._stack.callback(child.end)
        child.pid = child.ask("open", self.url, str(self.home), self.tenant, ttl)
        return child

    def crew(self, count: int, url: str | None = None) -> list[Child]:
        """Several, which open the store at once."""
        children = [self.nursery.child() for _ in range(count)]
        for child in children:
            self._stack.callback(child.end)
        opened = together(children, ("open", url or self.url, str(self.home), self.tenant))
        for child, pid in zip(children, opened, strict=True):
            assert isinstance(pid, int), pid
            child.pid = pid
        return children

    @contextmanager
    def begun(self) -> Iterator[None]:
        self.tenant = f"t{next(_tenants):04}"
        with self._stack:
            yield
            self._stack.close()
            self.check_sound()

    @contextmanager
    def opened(self, clock: FakeClock | None = None) -> Iterator[Holdfast]:
        """The engine of this process."""
        with Holdfast.open(self.url, home=self.home, tenant=self.tenant, clock=clock or FakeClock(START)) as holdfast:
            yield holdfast

    def rows(self, statement: str, *bindings: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, options="-csearch_path=holdfast") as connection:
            return connection.execute(statement.encode(), bindings or None).fetchall()

    def states(self, user: str = "%") -> dict[str, str]:
        """The records of this test's tenant, and their states."""
        found = "SELECT id, state FROM records JOIN subjects ON no = records.subject WHERE subjects.subject LIKE %s"
        return dict(self.rows(found, f"{self.tenant}/{user}"))

    def moves(self, action: str) -> Counter[str]:
        """How often the audit chain says that something happened to each record."""
        found = (
            "SELECT entry::text, hash FROM audit JOIN subjects ON subjects.no = audit.subject "
            "WHERE subjects.subject LIKE %s AND entry::jsonb ->> 'action' = %s"
        )
        entries = self.rows(found, f"{self.tenant}/%", action)
        return Counter(str(one.item) for row in entries for one in parse_entries(row[0].encode(), row[1]))

    def check_sound(self) -> None:
        """What is counted is there, every chain is whole, and nobody ever ran into a deadlock."""
        counted = self.rows("SELECT scope, memories, bytes FROM scopes WHERE memories <> 0 OR bytes <> 0 ORDER BY 1")
        live = "FROM records WHERE state IN ('active', 'archived') GROUP BY 1 ORDER BY 1"
        assert counted == self.rows(f"SELECT key >> {COUNT_BITS}, count(*), sum(size)::bigint {live}")
        with self.opened() as holdfast:
            verdict = holdfast.audit.verify()
            assert verdict.ok, verdict.findings
        assert "deadlock detected" not in (self.server.folder / "log").read_text(errors="replace")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres(durable=True) as running:
        yield running


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.end()


@pytest.fixture(scope="module")
def whole_stage(server: PostgresServer, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(server, nursery, server.new_database(), tmp_path_factory.mktemp("home"))


@pytest.fixture
def stage(whole_stage: Stage) -> Iterator[Stage]:
    with whole_stage.begun():
        yield whole_stage


# --- opening, and what is used for the first time ----------------------------------------------------------------------


def test_eight_processes_that_open_an_empty_database_make_it_once(stage: Stage) -> None:
    url = stage.server.new_database()
    crew = stage.crew(8, url)
    said = together(crew, ("add", "ann", "guide", 3))
    with psycopg.connect(url, options="-csearch_path=holdfast") as connection:
        assert connection.execute("SELECT count(*) FROM schema_version").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM records").fetchall() == [(24,)]
        for once in ("subjects", "subject_locks", "models", "profiles", "scopes"):
            found = connection.execute(f"SELECT count(*) FROM {once}".encode())  # noqa: S608
            assert found.fetchall() == [(1,)], once
    assert sum(len(one["ids"]) for one in said) == 24


# --- quotas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [2, 8])
def test_exactly_the_quota_is_held_however_many_add_at_once(stage: Stage, processes: int) -> None:
    with stage.opened() as holdfast:
        holdfast.quotas.set("long_term", max_memories=40)
    said = together(stage.crew(processes), ("add", "ann", "guide", 80 // processes))
    assert sum(len(one["ids"]) for one in said) == 40
    assert sum(one["refused"] for one in said) == 40
    assert len(stage.states()) == 40


def test_prunes_at_once_keep_to_the_quota_and_lose_nothing(stage: Stage) -> None:
    with stage.opened() as holdfast:
        holdfast.quotas.set("long_term", max_memories=20)
    said = together(stage.crew(8), ("add_pruning", "ann", 8))
    states = stage.states()
    assert set(itertools.chain(*said)) == states.keys()
    counts = Counter(states.values())
    assert counts["active"] <= 20
    assert counts["recycled"] == 64 - counts["active"]
    assert stage.moves("recycled") == Counter({one: 1 for one, state in states.items() if state == "recycled"})


# --- indexes -----------------------------------------------------------------------------------------------------------


def test_what_one_process_writes_or_deletes_the_next_recall_of_another_knows(stage: Stage) -> None:
    one, other = stage.crew(2)
    for n in range(12):
        memory_id = one.ask("note", "ann", f"the {n}th harbour is wide")
        assert memory_id in other.ask("found", "ann", "harbour")
        assert one.ask("delete", "ann", [memory_id]) == {memory_id: "done"}
        assert memory_id not in other.ask("found", "ann", "harbour")
        assert other.ask("restore", "ann", [memory_id]) == {memory_id: "done"}
        assert memory_id in one.ask("found", "ann", "harbour")
        one, other = other, one


# --- moves -------------------------------------------------------------------------------------------------------------


def fill(stage: Stage, users: int, each: int, days: float = 25) -> None:
    """Memories that are due once the clock stands at 30 days."""
    with stage.opened() as holdfast:
        holdfast.policies.set("long_term", delete_after_days=days, confirm=True)
        for n in range(users):
            holdfast.manager(f"user{n}", "guide").add_many([f"memory {i}" for i in range(each)], "long_term")


def test_sweeps_at_once_move_each_record_once(stage: Stage) -> None:
    fill(stage, users=8, each=30)
    crew = stage.crew(8)
    together(crew, ("at", 30 * 1_440))
    said = together(crew, ("sweep",))
    swept = [one for one in said if one.get("code") != "lease_lost"]
    assert swept, "somebody swept"
    assert sum(one.get("recycle", 0) for one in swept) == 240
    assert set(stage.states().values()) == {"recycled"}
    assert stage.moves("recycled") == Counter(dict.fromkeys(stage.states(), 1))


def test_what_is_restored_while_the_bin_is_emptied_is_there_whole_or_gone_whole(stage: Stage) -> None:
    with stage.opened() as holdfast:
        memory = holdfast.manager("ann", "guide")
        ids = memory.add_many([f"memory {n}" for n in range(60)], "long_term")["memory_ids"]
        memory.delete_user_memories("ann")
    restorer, sweeper = stage.crew(2)
    restorer.ask("at", 15 * 1_440 - 1)
    sweeper.ask("at", 15 * 1_440)
    restored, purged = together([restorer, sweeper], ("restore", "ann", ids), ("sweep",))
    back = {one for one, ending in restored.items() if ending == "done"}
    assert set(restored.values()) <= {"done", "not_found", "conflict", "stale"}
    assert stage.states() == dict.fromkeys(back, "active")
    assert purged.get("delete", 0) == 60 - len(back)
    assert set(restorer.ask("live", "ann")) == back


def test_nothing_goes_once_a_hold_stands(stage: Stage) -> None:
    fill(stage, users=1, each=120)
    ids = sorted(stage.states())
    holder, deleter, sweeper = stage.crew(3)
    sweeper.ask("at", 30 * 1_440)
    held, deleted, _ = together([holder, deleter, sweeper], ("hold", "user0"), ("delete", "user0", ids), ("sweep",))
    live = {one for one, state in stage.states().items() if state == "active"}
    assert live == set(held), "what was there when the hold had been set is there"
    assert all(deleted[one] in {"held", "stale"} for one in live)


def test_every_record_has_the_profile_that_the_rules_give_it_whenever_they_changed(stage: Stage) -> None:
    crew = stage.crew(8)
    user, agent = {"user_id": "ann"}, {"agent_id": "guide"}
    said = together(
        crew,
        *[("add", "ann", "guide", 20), ("add", "ann", "clerk", 20), ("add", "bob", "guide", 20)],
        *[("rules", 4, user), ("rules", 4, agent), ("rules", 4, {})],
        *[("rules", 4, {**user, **agent}), ("add", "ann", "guide", 20)],
    )
    assert all(one is None or "ids" in one for one in said), said
    check_profiles(stage)


def check_profiles(stage: Stage) -> None:
    """Each record lives as long as the rules say that it does."""
    found = stage.rows(
        "SELECT records.id, subjects.subject, agent_id, profiles.kind, archive_after, delete_after, keep_for "
        "FROM records "
        "JOIN subjects ON subjects.no = records.subject JOIN profiles ON profiles.no = records.profile "
        "WHERE subjects.subject LIKE %s",
        f"{stage.tenant}/%",
    )
    assert found
    with stage.opened() as holdfast:
        for memory_id, subject, agent_id, kind, *life in found:
            scope = Scope(stage.tenant, subject.split("/")[1], agent_id)
            assert life == list(holdfast.services.rules.life(kind, scope, memory_id)[:3]), (memory_id, scope)


def test_nothing_of_a_removed_agent_is_left_behind_by_those_who_were_adding(stage: Stage) -> None:
    crew = stage.crew(4)
    with stage.opened() as holdfast:
        holdfast.agents.add("guide")
    for n, child in enumerate(crew[1:]):
        child.tell("add_until_removed", f"user{n}", "guide")
    crew[0].ask("remove_agent", "guide")
    answers = [child.hear() for child in crew[1:]]
    ids = {one for answer in answers for one in (answer or {})["said"]}
    assert stage.states() == dict.fromkeys(ids, "recycled")
    with stage.opened() as holdfast:
        holdfast.agents.restore("guide")
    assert stage.states() == dict.fromkeys(ids, "active")


@soak
def test_a_mixed_load_of_eight_processes_ends_without_a_deadlock_and_in_order(stage: Stage) -> None:
    said = together(stage.crew(8), *[("mix", seed, times(25)) for seed in range(8)])
    ended = Counter[str]()
    for one in said:
        ended.update(one)
    allowed = {"done", "conflict", "stale", "held", "agent_removed", "quota_exceeded", "lease_lost", "not_found"}
    allowed |= {"rules_changed", "invalid_scope"}
    assert {key.split(": ")[1] for key in ended} <= allowed, ended
    with stage.opened() as holdfast:
        holdfast.sweep(confirm=True)
    check_profiles(stage)


# --- leadership --------------------------------------------------------------------------------------------------------


@soak
def test_a_leader_is_killed_fifty_times_and_every_slot_is_done_once(stage: Stage) -> None:
    rounds, life = 50, 60
    clock = FakeClock(START)
    with stage.opened(clock) as holdfast:
        holdfast.policies.set("long_term", delete_after_days=life / 1_440, confirm=True)
        memory = [holdfast.manager(f"user{n}", "guide") for n in range(2)]
        for n in range(rounds + 1):
            for mine in memory:
                mine.add_many([f"memory {n}.{i}" for i in range(2)], "long_term")
            clock.advance(minutes=1)
    heirs = stage.crew(2)
    for heir in heirs:
        heir.ask("run_due", life - 1)  # whatever was due before
    measured = heirs[0].ask("run_due", life)
    assert [name for name, *_ in measured["ran"]] == ["minutely"]
    killed = 0
    for n in range(1, rounds + 1):
        leader = stage.child()
        leader.tell("run_due", life + n, 1 + n * measured["finish"] // (rounds + 1))
        killed += leader.hear() is None
        leader.end()
        ran = [one for answer in together(heirs, ("run_due", life + n)) for one in answer["ran"]]
        slot = f"{(START.hour + (life + n) // 60):02}:{(life + n) % 60:02}:00"
        assert [name for name, *_ in ran] == ["minutely"], "one of the heirs, and only one, took over"
        assert slot in ran[0][1]
        assert ran[0][2] is None
    assert killed == rounds
    assert set(stage.states().values()) == {"recycled"}
    assert stage.moves("recycled") == Counter(dict.fromkeys(stage.states(), 1))


def wait_until_stopped(child: Child) -> None:
    process = psutil.Process(child.pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)


@pytest.mark.parametrize("verb", ["sweep_and_stop", "sweep_and_stop_within"])
def test_a_leader_that_stood_still_finds_its_lease_lost_and_changes_nothing(stage: Stage, verb: str) -> None:
    fill(stage, users=4, each=100)
    leader, heir = stage.child(ttl=0.5), stage.child()
    for child in (leader, heir):
        child.ask("at", 30 * 1_440)
    leader.tell(verb)
    wait_until_stopped(leader)
    heir.ask("take_over")
    before = stage.states()
    assert "active" in before.values(), "there is still something to be done"

    os.kill(leader.pid, signal.SIGCONT)
    answer = leader.hear()
    assert answer is not None
    assert answer["code"] == ("lease_lost" if verb == "sweep_and_stop" else "store_away"), answer
    assert answer["retryable"]
    assert stage.states() == before

    heir.ask("give_back")
    assert heir.ask("sweep")["recycle"] == Counter(before.values())["active"]
    assert stage.moves("recycled") == Counter(dict.fromkeys(before, 1))


def test_a_transaction_that_stands_still_is_given_up_before_its_lease_is_over() -> None:
    assert STANDSTILL_MS * 1_000 < LEASE_TTL
