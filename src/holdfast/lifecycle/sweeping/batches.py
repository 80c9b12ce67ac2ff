"""Batches: decisions carried out in transactions of about the same duration, under a lease, within a load."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from holdfast.core.decisions import BIN_REASON, NO_LIFE, Decision, RecordFacts, decide
from holdfast.core.errors import ObjectDamagedError, ObjectMissingError, ObjectStoreError, StoreAwayError
from holdfast.core.records import BIN, HISTORY, TYPES, Archive, Cause, MemoryType, Move, Outcome, State, Subject
from holdfast.lifecycle.archive import Archives, Kept
from holdfast.lifecycle.sweeping.plan import ACTIONS, Line, add_up
from holdfast.ports.conversations import History
from holdfast.ports.coordination import Lease
from holdfast.ports.records import RecordStore

_log = logging.getLogger("holdfast.sweep")
#: A transaction is to take about this long, whatever the machine.
_GOAL_SECONDS: Final = 0.06
_LEAST, _MOST = 50, 2_000
#: Archives gather so many before they are made, so that what goes to cold storage is packed well.
_ARCHIVED: Final = 5_000
_MESSAGES: Final = 2_000
Progress = Callable[[int], None]


class Stores(NamedTuple):
    """Where a sweep carries things out."""

    records: RecordStore
    history: History
    archives: Archives
    erase_session: Callable[..., int]
    refresh: Callable[[Subject, list[str]], None]
    """Entities went: let those that are related to them tell what holds now."""


class Batches:
    """One sweep under way: gathers moves into transactions of about the same duration, and counts."""

    def __init__(
        self,
        stores: Stores,
        *,
        at: int,
        upto: int,
        now: int,
        lease: Callable[[], Lease | None],
        load: float,
        progress: Progress,
        note: Callable[[Decision], None],
    ) -> None:
        self._stores = stores
        self.at = at
        self.upto = upto
        """What cannot be undone is done as far as it was due at this moment."""
        self.now = now
        self.lease = lease
        self._load = min(1.0, max(0.01, load))
        self._progress = progress
        self._note = note
        self._batch = 250
        self._waiting: list[Decision] = []
        self._done: dict[tuple[str, State, str], list[int]] = defaultdict(lambda: [0, 0])
        self.held = 0
        self.stale = 0
        self.bytes_before = 0
        """What the records that were archived took in the store."""
        self.bytes_after = 0
        self.collected = 0
        """How many were taken by the memory domain's policy, which bounds what one sweep collects."""
        self.trouble: ObjectStoreError | None = None
        self.rules: int | None = None
        """The version of the rules that is swept by."""
        self._without_cold = False

    def note_held(self, count: int) -> None:
        """So many were due, and on hold."""
        self.held += count

    def lines(self) -> tuple[Line, ...]:
        """What was done so far."""
        return add_up(
            Line(kind, ACTIONS[target], BIN_REASON if target is State.DELETED else reason, records, size)
            for (kind, target, reason), (records, size) in self._done.items()
        )

    def take(self, decisions: Sequence[Decision]) -> None:
        """Carry decisions out, now or with the next ones. Those of one call can be carried out together."""
        if not decisions:
            return
        if self._waiting and _group(self._waiting[0]) != _group(decisions[0]):
            self.flush()
        archived = decisions[0].target is State.ARCHIVED
        start = 0
        while start < len(decisions):
            room = (_ARCHIVED if archived else self._batch) - len(self._waiting)
            self._waiting += decisions[start : start + room]
            start += room
            if len(self._waiting) >= (_ARCHIVED if archived else self._batch):
                self.flush()

    def drop(self) -> None:
        """Leave what is waiting: it was decided by rules that are no longer in force."""
        self._waiting = []
        self.held = 0

    def flush(self) -> None:
        """Carry out what is waiting."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        began = time.monotonic()
        if waiting[0].target is State.ARCHIVED:
            for subject, some in _by_subject(waiting):
                self._archive(subject, some)
            return
        store = self._stores.history if waiting[0].kind == HISTORY else self._stores.records
        grouped = _by_subject(waiting)
        batches = [(subject, [_as_move(decision, self.now) for decision in some]) for subject, some in grouped]
        outcomes = store.transition_all(batches, now=self.now, lease=self.lease(), rules=self.rules)
        for (subject, some), answers in zip(grouped, outcomes, strict=True):
            self._count(some, answers)
            gone = [decision.id for decision in some if decision.kind == MemoryType.ENTITY]
            if gone:
                self._stores.refresh(subject, gone)
        took = time.monotonic() - began
        self._batch = int(min(max(self._batch * min(2.0, _GOAL_SECONDS / max(took, 1e-4)), _LEAST), _MOST))
        self._rest(took)

    def _archive(self, subject: Subject, decisions: Sequence[Decision]) -> None:
        """Archive records of one subject; without cold storage, those that need it wait for the next sweep."""
        began = time.monotonic()
        cold = TYPES[MemoryType(decisions[0].kind)].archive is Archive.COLD
        kept = [Kept(Outcome.STALE) for _ in decisions]
        if not (cold and self._without_cold):
            with self.coping():
                kept = self._stores.archives.keep(
                    subject, decisions, now=self.now, lease=self.lease(), rules=self.rules
                )
        self._count(decisions, [one.outcome for one in kept])
        self.bytes_before += sum(one.before for one in kept)
        self.bytes_after += sum(one.after for one in kept)
        self._rest(time.monotonic() - began)

    @contextmanager
    def coping(self) -> Iterator[None]:
        """Where cold storage fails, go on without it; the sweep says so in the end."""
        try:
            yield
        except ObjectStoreError as problem:
            self.trouble = self.trouble or problem
            one_object = isinstance(problem, ObjectDamagedError | ObjectMissingError)
            self._without_cold = self._without_cold or not one_object

    def _rest(self, took: float) -> None:
        """Leave the machine to others for a while."""
        if self._load < 1.0:
            time.sleep(took * (1.0 / self._load - 1.0))

    def confirm(self, standings: Sequence[RecordFacts]) -> None:
        """What was claimed and lies nowhere else any more is gone."""
        gone: list[Decision] = []
        for standing in standings:
            if standing.kind == HISTORY and not self._erase_session(standing):
                continue
            if standing.elsewhere and standing.kind != HISTORY:
                continue
            decision = decide(standing, NO_LIFE, (), self.at)
            gone += [] if decision is None else [decision]
        self.take(gone)

    def _erase_session(self, standing: RecordFacts) -> bool:
        """Remove all that a claimed session holds; ``False`` while the server of its short-term window is away."""
        try:
            while self._stores.erase_session(standing.subject, standing.id, limit=_MESSAGES, lease=self.lease()):
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
                self._note(decision)
        self._progress(len(decisions))


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
    binned = decision.target is State.RECYCLED
    purge_at = now + BIN if binned else decision.due_at if decision.target is State.DELETING else None
    cause = Cause.RULE if binned else Cause.BIN
    return Move(
        decision.id,
        decision.version,
        decision.source,
        decision.target,
        decision.reason,
        cause,
        decision.rule if binned else None,
        purge_at=purge_at,
    )
