"""Batches: decisions carried out in transactions of about the same duration, under a lease, within a load."""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Final

from holdfast.core.decisions import BIN_REASON, NO_LIFE, Decision, RecordFacts, decide
from holdfast.core.errors import HoldfastError, ObjectDamagedError, ObjectMissingError, ObjectStoreError, StoreAwayError
from holdfast.core.packs import groups
from holdfast.core.records import BIN, HISTORY, TYPES, Archive, Cause, MemoryType, Move, Outcome, State, Subject
from holdfast.lifecycle.archive import Archives, Kept, Run, to_move
from holdfast.lifecycle.sweeping.due import SweepOrder
from holdfast.lifecycle.sweeping.plan import ACTIONS, Line, add_up
from holdfast.ports.stores import Tenant

_log = logging.getLogger("holdfast.sweep")
#: A transaction is to take about this long, whatever the machine.
_GOAL_SECONDS: Final = 0.06
_FIRST, _LEAST, _MOST = 250, 200, 2_000
#: Archives gather so many before they are made, so that what goes to cold storage is packed well.
_ARCHIVED: Final = 5_000
#: What is read and written to cold storage together has so many bytes at most. As much of it moves in one transaction
#: as takes about so long.
_ARCHIVED_SECONDS: Final = 0.1
_ARCHIVED_BYTES: Final = 8 * 1024 * 1024
_MESSAGES: Final = 2_000
Refresh = Callable[[Subject, list[str]], None]
_Group = list[tuple[Subject, list[Decision]]]
#: What became of each of a group's records, and how many seconds it took.
_Done = tuple[list[Kept], float]


@dataclass(eq=False, repr=False)
class Batches:
    """One sweep under way: gathers moves into transactions of about the same duration, and counts."""

    tenant: Tenant
    archives: Archives
    erase_session: Callable[..., int]
    refresh: Refresh
    """Entities went: lets those that are related to them tell what holds now."""
    load: float
    order: SweepOrder
    held: int = 0
    stale: int = 0
    bytes_before: int = 0
    """What the records that were archived took in the store."""
    bytes_after: int = 0
    collected: int = 0
    """How many were taken by the memory domain's policy, which bounds what one sweep collects."""
    trouble: ObjectStoreError | None = None
    rules: int | None = None
    """The version of the rules that is swept by."""
    _batch: int = field(default_factory=lambda: _FIRST)
    _archived: int = field(default_factory=lambda: _FIRST)
    _waiting: list[Decision] = field(default_factory=list)
    _done: dict[tuple[str, State, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    _parts: list[Line] = field(default_factory=list)
    _without_cold: bool = False
    _running: deque[tuple[_Group, Future[_Done]]] = field(default_factory=deque)
    _pool: ThreadPoolExecutor | None = None

    @property
    def now(self) -> int:
        """When it is carried out."""
        return self.order.at if self.order.now is None else self.order.now

    def lines(self) -> tuple[Line, ...]:
        """What was done so far."""
        moved = [
            Line(kind, ACTIONS[target], BIN_REASON if target is State.DELETED else reason, records, size)
            for (kind, target, reason), (records, size) in self._done.items()
        ]
        return add_up([*moved, *self._parts])

    def note(self, line: Line) -> None:
        """Parts of memories were removed."""
        if line.records:
            self._parts.append(line)
            self.order.progress(line.records)

    def take(self, decisions: Sequence[Decision]) -> None:
        """Carry decisions out, now or with the next ones. Those of one call can be carried out together."""
        if not decisions:
            return
        if self._waiting and _group(self._waiting[0]) != _group(decisions[0]):
            self.flush()
        left = list(decisions)
        while left:
            most = _ARCHIVED if left[0].target is State.ARCHIVED else self._batch
            room = most - len(self._waiting)
            self._waiting, left = self._waiting + left[:room], left[room:]
            if len(self._waiting) >= most:
                self._send()

    def drop(self) -> None:
        """Leave what is waiting: it was decided by rules that are no longer in force."""
        self._waiting = []
        self.held = 0

    def flush(self) -> None:
        """Carry out what is waiting; nothing is under way afterwards."""
        self._send()
        self._finish()

    def end(self) -> None:
        """Wait for what is under way, if something has gone wrong; that is told, and nothing else."""
        with suppress(HoldfastError):
            self._finish()

    def _send(self) -> None:
        """Let what is waiting be carried out, in groups."""
        waiting, self._waiting = self._waiting, []
        if waiting and waiting[0].target is State.ARCHIVED:
            for group in self._groups(waiting):
                self._start(group, self._archive)
        elif waiting:
            self._start(_by_subject(waiting), self._transition)

    def _start(self, group: _Group, carry_out: Callable[[_Group], _Done]) -> None:
        """Carry a group out. Where the store can write for several users at the same time, that begins while the group
        before is under way: one is read and packed while the other waits. A subject is in one of them at most.
        """
        most = self.tenant.records.writers if self.load >= 1.0 else 1
        if most == 1:
            self._note(group, carry_out(group))
            return
        subjects = {subject for subject, _ in group}
        is_apart = all(subjects.isdisjoint(subject for subject, _ in other) for other, _ in self._running)
        self._finish(most - 1 if is_apart else 0)
        self._pool = self._pool or ThreadPoolExecutor(most, "holdfast-sweep")
        self._running.append((group, self._pool.submit(copy_context().run, carry_out, group)))

    def _finish(self, most: int = 0) -> None:
        """Wait until that many groups are under way, at most. If one fails, the others are ended before it is told."""
        while len(self._running) > most:
            group, future = self._running.popleft()
            try:
                self._note(group, future.result())
            except BaseException:
                self.end()
                raise
        if self._pool is not None and not self._running:
            self._pool.shutdown()
            self._pool = None

    def _note(self, group: _Group, done: _Done) -> None:
        """Count what became of a group."""
        kept, took = done
        self._count([decision for _, some in group for decision in some], [one.outcome for one in kept])
        self.bytes_before += sum(one.before for one in kept)
        self.bytes_after += sum(one.after for one in kept)
        self._rest(took)

    def _transition(self, group: _Group) -> _Done:
        """Move records or conversations; what became of each, and how long it took."""
        began = time.monotonic()
        is_talk = group[0][1][0].kind == HISTORY
        store = self.tenant.history if is_talk else self.tenant.records
        batches = [(subject, [_as_move(decision, self.now) for decision in some]) for subject, some in group]
        outcomes = store.transition_all(batches, now=self.now, lease=self.order.lease(), rules=self.rules)
        for subject, some in group:
            if gone := [decision.id for decision in some if decision.kind == MemoryType.ENTITY]:
                self.refresh(subject, gone)
        took = time.monotonic() - began
        self._batch = _adapt(self._batch, _GOAL_SECONDS, took)
        return [Kept(outcome) for answers in outcomes for outcome in answers], took

    def _groups(self, decisions: Sequence[Decision]) -> Iterator[_Group]:
        """What is read and written to cold storage together: a subject's records as far as it goes, and as much of
        several as is held in memory. How much of it moves in one transaction depends on the time that takes.
        """
        group: _Group = []
        count = size = 0
        for subject, theirs in _by_subject(decisions):
            for part in groups([decision.size for decision in theirs], _ARCHIVED_BYTES):
                some = theirs[part]
                more = sum(decision.size for decision in some)
                is_other = bool(group) and group[-1][0] == subject
                if group and (count + len(some) > _MOST or size + more > _ARCHIVED_BYTES or is_other):
                    yield group
                    group, count, size = [], 0, 0
                group.append((subject, some))
                count, size = count + len(some), size + more
        yield group

    def _archive(self, group: _Group) -> _Done:
        """Archive records; without cold storage, those that need it wait for the next sweep. What became of each, and
        how long it took.
        """
        began = time.monotonic()
        decisions = [decision for _, some in group for decision in some]
        cold = TYPES[MemoryType(decisions[0].kind)].archive is Archive.COLD
        kept = [Kept(Outcome.STALE) for _ in decisions]
        if not (cold and self._without_cold):
            how = (self._archived, self._note_time, self._note_trouble)
            run = Run(self.now, self.order.lease(), self.rules, *how)
            with self.coping():
                kept = [one for some in self.archives.keep(group, run) for one in some]
        return kept, time.monotonic() - began

    def _note_time(self, records: int, took: float) -> None:
        self._archived = _adapt(records, _ARCHIVED_SECONDS, took)

    @contextmanager
    def coping(self) -> Iterator[None]:
        """Where cold storage fails, go on without it; the sweep says so in the end."""
        try:
            yield
        except ObjectStoreError as problem:
            self._note_trouble(problem)

    def _note_trouble(self, problem: ObjectStoreError) -> None:
        self.trouble = self.trouble or problem
        one_object = isinstance(problem, ObjectDamagedError | ObjectMissingError)
        self._without_cold = self._without_cold or not one_object

    def _rest(self, took: float) -> None:
        """Leave the machine to others for a while."""
        load = min(1.0, max(0.01, self.load))
        if load < 1.0:
            time.sleep(took * (1.0 / load - 1.0))

    def confirm(self, records: Sequence[RecordFacts]) -> None:
        """What was claimed and lies nowhere else any more is gone."""
        gone = [
            decide(facts, NO_LIFE, (), self.order.at)
            for facts in records
            if (self._erase_session(facts) if facts.kind == HISTORY else not facts.elsewhere)
        ]
        self.take([decision for decision in gone if decision is not None])

    def _erase_session(self, facts: RecordFacts) -> bool:
        """Remove all that a claimed session holds; ``False`` while the server of its short-term window is away."""
        try:
            while self.erase_session(facts.subject, facts.id, limit=_MESSAGES, lease=self.order.lease()):
                self._rest(0.01)
        except StoreAwayError as problem:  # it stays claimed, and the next sweep goes on with it
            _log.warning("a session is not wholly deleted yet: %s", problem)
            return False
        return True

    def _count(self, decisions: Sequence[Decision], outcomes: Sequence[Outcome]) -> None:
        for decision, outcome in zip(decisions, outcomes, strict=True):
            if outcome is not Outcome.DONE:
                self.held += outcome is Outcome.HELD
                self.stale += outcome is not Outcome.HELD
            elif decision.target is not State.DELETING:
                total = self._done[decision.kind, decision.target, decision.reason]
                total[0] += 1
                total[1] += decision.size
                self.order.note(decision)
        self.order.progress(len(decisions))


def _adapt(size: int, goal: float, took: float) -> int:
    """How many are to be done at once, after so many took so long."""
    return int(min(max(size * min(2.0, goal / max(took, 1e-4)), _LEAST), _MOST))


def _group(decision: Decision) -> tuple[bool, bool, str]:
    """What can be carried out together."""
    archived = decision.target is State.ARCHIVED
    return decision.kind == HISTORY, archived, decision.kind if archived else ""


def _by_subject(decisions: Sequence[Decision]) -> list[tuple[Subject, list[Decision]]]:
    grouped: dict[Subject, list[Decision]] = defaultdict(list)
    for decision in decisions:
        grouped[decision.subject].append(decision)
    return list(grouped.items())


def _as_move(decision: Decision, now: int) -> Move:
    if decision.target is State.RECYCLED:
        return to_move(decision, Cause.RULE, decision.rule, purge_at=now + BIN)
    is_claim = decision.kind == HISTORY and decision.target is State.DELETING  # that of a record stays what it is
    return to_move(decision, Cause.BIN, purge_at=decision.due_at if is_claim else None)
