"""Processes on one PostgreSQL: a nursery that has everything imported, and the children that it forks.

``python postgres_child.py`` is the nursery: it forks a child for every socket that it is handed on its standard input. A
child answers each line (a verb and its arguments) with a line, and ends when nobody is there any more to talk to.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

from clocks import FakeClock
from holdfast import Holdfast, engine
from holdfast.core.errors import AgentRemovedError, HoldfastError, QuotaExceededError, StoreBusyError
from holdfast.lifecycle.schedule.leadership import SWEEPER
from holdfast.recall.embedders import open_embedder
from holdfast.storage.postgres import database
from holdfast.storage.postgres.transactions import PostgresTransaction

START = datetime(2026, 1, 15, 12, tzinfo=UTC)


class Child:
    """One process with an engine of its own; its methods are the verbs."""

    def __init__(self) -> None:
        self.clock = FakeClock(START)
        self.holdfast: Holdfast

    # --- opening ---------------------------------------------------------------------------------------------------

    def open(self, url: str, home: str, tenant: str, ttl: float = 15.0) -> int:
        self.holdfast = Holdfast.open(url, home=home, tenant=tenant, clock=self.clock)
        self.holdfast.services.leadership.ttl = int(ttl * 1e6)  # nobody waits 15 seconds in a test
        return os.getpid()

    def at(self, minutes: float) -> None:
        self.clock.now = START + timedelta(minutes=minutes)

    # --- memories --------------------------------------------------------------------------------------------------

    def add(self, user: str, agent: str, count: int, kind: str = "long_term") -> dict[str, Any]:
        memory = self.holdfast.manager(user, agent)
        ids, refused = [], 0
        for n in range(count):
            try:
                ids.append(memory.add(f"memory {n} of {os.getpid()}", kind)["memory_id"])
            except QuotaExceededError:
                refused += 1
        return {"ids": ids, "refused": refused}

    def add_pruning(self, user: str, count: int) -> list[str]:
        memory = self.holdfast.manager(user, "guide", auto_prune=True)
        return [memory.add(f"memory {n}", "long_term")["memory_id"] for n in range(count)]

    def add_until_removed(self, user: str, agent: str) -> list[str]:
        memory = self.holdfast.manager(user, agent)
        ids: list[str] = []
        try:
            while True:
                ids.append(memory.add(f"trait {len(ids)}", "persona")["memory_id"])
        except AgentRemovedError:
            return ids

    def note(self, user: str, text: str) -> str:
        return str(self.holdfast.manager(user, "guide").add(text, "long_term")["memory_id"])

    def found(self, user: str, query: str) -> list[str]:
        return [hit["memory_id"] for hit in self.holdfast.manager(user, "guide").retrieve(query, top_k=50)]

    def delete(self, user: str, ids: list[str]) -> dict[str, str]:
        """How it went with each."""
        memory = self.holdfast.manager(user, "guide")
        return {one: self._code(partial(memory.delete, one)) for one in ids}

    def restore(self, user: str, ids: list[str]) -> dict[str, str]:
        memory = self.holdfast.manager(user, "guide")
        return {one: self._code(partial(memory.restore, one)) for one in ids}

    def live(self, user: str) -> list[str]:
        return [
            row["memory_id"] for row in self.holdfast.manager(user, "guide").list_memories("long_term", limit=1_000)
        ]

    # --- what holds for many -------------------------------------------------------------------------------------

    def hold(self, user: str) -> list[str]:
        """What there was when the hold had been set."""
        self.holdfast.holds.add(user_id=user, reason="a case", author="law")
        return self.live(user)

    def rule(self, days: float, scope: dict[str, Any]) -> None:
        self.holdfast.policies.set("long_term", delete_after_days=days, confirm=True, **scope)

    def rules(self, rounds: int, scope: dict[str, Any]) -> None:
        for n in range(rounds):
            self.rule(100 + n, scope)

    def remove_agent(self, agent: str) -> None:
        self.holdfast.agents.remove(agent)

    # --- sweeping ------------------------------------------------------------------------------------------------

    def sweep(self) -> dict[str, int]:
        report: Any = self.holdfast.sweep(confirm=True)
        return dict(report.counts)

    def sweep_and_stop(self) -> dict[str, int]:
        """Stand still after the first batch, outside of any transaction."""
        paused = threading.Event()

        def progress(_count: int) -> None:
            if not paused.is_set():
                paused.set()
                os.kill(os.getpid(), signal.SIGSTOP)

        report: Any = self.holdfast.sweep(confirm=True, progress=progress)
        return dict(report.counts)

    def sweep_and_stop_within(self) -> dict[str, int]:
        """Stand still in the middle of a batch's transaction."""

        def stop(name: str, count: int) -> None:
            if name == "records.move_all" and count:
                on_statement(lambda _name, _count: None)
                os.kill(os.getpid(), signal.SIGSTOP)

        # One group at a time: one that is stopped between statements that are sent together is not idle to the server.
        records: Any = self.holdfast.services.records
        records._database._database.writers = 1
        on_statement(stop)
        return self.sweep()

    def take_over(self) -> None:
        """Have the lease as soon as it can be had, and keep it."""
        leadership = self.holdfast.services.leadership
        for _ in range(6_000):
            if leadership.leases.acquire(SWEEPER, "an heir", now=time.time_ns() // 1_000, ttl=60_000_000) is not None:
                return
            time.sleep(0.01)
        raise StoreBusyError("nobody lets go of the lease")

    def give_back(self) -> None:
        """Let go of the lease that was taken over."""
        leases = self.holdfast.services.leadership.leases
        held = leases.current(SWEEPER, now=time.time_ns() // 1_000)
        if held is not None:
            leases.release(held)

    def run_due(self, minutes: float, dies_at: int | None = None) -> dict[str, Any]:
        """The slots that were run here, and with which statement that was done; unless it is killed before one of them."""
        self.at(minutes)
        finish = [0]

        def count(name: str, number: int) -> None:
            if name == "jobs.finish":
                finish[0] = number
            if number == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

        on_statement(count)
        ran = self.holdfast.schedule.run_due()
        return {"ran": [[row["name"], row["slot"], row["error"]] for row in ran], "finish": finish[0]}

    # --- everything at once --------------------------------------------------------------------------------------

    def mix(self, seed: int, rounds: int) -> dict[str, int]:
        """All sorts of things, in an order of chance; how often each ended how."""
        chance, ended = random.Random(seed), Counter[str]()
        for n in range(rounds):
            user, agent = f"user{chance.randrange(3)}", f"agent{chance.randrange(2)}"
            memory = self.holdfast.manager(user, agent, f"s{chance.randrange(2)}")
            name, act = chance.choice(self._acts(memory, chance, n))
            ended[f"{name}: {self._code(act)}"] += 1
        return dict(ended)

    def _acts(self, memory: Any, chance: random.Random, n: int) -> list[tuple[str, Callable[[], object]]]:
        def some_id() -> str:
            ids = [row["memory_id"] for row in memory.list_memories("long_term")]
            return str(chance.choice(ids)) if ids else "0" * 32

        user = {"user_id": memory.user_id}
        return [
            ("add", lambda: memory.add(f"memory {n}", "long_term")),
            ("add", lambda: memory.add_with_auto_prune(f"memory {n}", "long_term")),
            ("add_many", lambda: memory.add_many(["one", "two", "three"], "long_term")),
            ("persona", lambda: memory.add(f"trait {n}", "persona")),
            ("message", lambda: memory.short_term.add_message("user", f"message {n}")),
            ("delete", lambda: memory.delete(some_id())),
            ("update", lambda: memory.update(some_id(), f"changed {n}")),
            ("restore", lambda: self.holdfast.recycle.restore(user_id=memory.user_id)),
            ("retrieve", lambda: memory.retrieve("memory")),
            ("clear", lambda: memory.delete_user_memories(memory.user_id, "long_term")),
            ("rule", lambda: self.rule(30 + n, user)),
            ("rule for all", lambda: self.rule(60 + n, {})),
            ("quota", lambda: self.holdfast.quotas.set("long_term", 30 + n)),
            ("hold", lambda: self._hold_for_a_while(memory.user_id)),
            (
                "agent",
                lambda: (self.holdfast.agents.remove(memory.agent_id), self.holdfast.agents.restore(memory.agent_id)),
            ),
            ("sweep", self.sweep),
            ("seal", self.holdfast.audit.seal),
        ]

    def _hold_for_a_while(self, user: str) -> None:
        hold = self.holdfast.holds.add(user_id=user, reason="a case", author="law")
        self.holdfast.holds.release(hold.id, author="law")

    def _code(self, act: Callable[[], object]) -> str:
        try:
            act()
        except HoldfastError as problem:
            return problem.code
        return "done"


def on_statement(hear: Callable[[str, int], None]) -> None:
    """Have something called before each statement, with its name and its number from here on."""
    count = [0]
    carry_out = _EXECUTE

    def execute(self: PostgresTransaction, name: str, bindings: Any) -> Any:
        count[0] += 1
        hear(name, count[0])
        return carry_out(self, name, bindings)

    PostgresTransaction._execute = execute  # type: ignore[method-assign]


_EXECUTE = PostgresTransaction._execute


def live(line: socket.socket) -> None:
    """A child's life."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG: with the nursery, its children go
    child = Child()
    with line, line.makefile("rw", encoding="utf-8") as file:
        for told in file:
            verb, *arguments = json.loads(told)
            try:
                answer = {"said": getattr(child, verb)(*arguments)}
            except HoldfastError as problem:
                answer = {"code": problem.code, "message": str(problem), "retryable": problem.retryable}
            file.write(json.dumps(answer) + "\n")
            file.flush()


def nurse() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are gone at once
    database.STANDSTILL_MS = 1_000  # type: ignore[misc]
    opened = cache(open_embedder)
    opened("static").embed(["read it once, for all"])
    engine.open_embedder = opened  # type: ignore[attr-defined]
    with socket.socket(fileno=0) as desk:
        while True:
            word, descriptors, *_ = socket.recv_fds(desk, 1, 1)
            if not word:
                return
            if os.fork() == 0:
                desk.close()
                live(socket.socket(fileno=descriptors[0]))
                os._exit(0)
            os.close(descriptors[0])


if __name__ == "__main__":
    nurse()
