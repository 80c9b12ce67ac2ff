"""Working memory: what an agent has in mind during a task, in process memory only. No verb writes to the store.

Any process may erase a user, and the others are not told. So the store keeps a mark of each erasure for some days, and
whoever reads notes that are older than ``LEASE_SECONDS`` relies on a look at those marks that is no older than that.
One look, by one query, serves all notes of the process; an erased user's notes go before anyone reads them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.decisions import excess, prune_count, refuse
from holdfast.core.errors import StoreAwayError, StoreBusyError
from holdfast.core.records import TYPES, MemoryType, Message, Scope, Subject, Usage
from holdfast.core.values import check_content, check_metadata
from holdfast.ports.coordination import begin_steps
from holdfast.ports.subjects import MARK_DAYS, ErasureMark

if TYPE_CHECKING:
    from holdfast.memory.services import Services

_log = logging.getLogger("holdfast.erasure")
#: For so long nobody asks the store again whether a user was erased.
LEASE_SECONDS: Final = 10.0
#: So long may notes be read while the store does not answer, counted from the last time that it did.
GRACE_SECONDS: Final = 60.0
#: A store that did not answer is asked again after this time.
_RETRY_SECONDS: Final = 5.0
#: A mark may become visible so long after the time that it carries.
_SLACK_SECONDS: Final = 60.0
_MARKS_SECONDS: Final = MARK_DAYS * 86_400.0

Instant = tuple[float, ...]
"""A moment on each of the clocks."""


def seconds_between(start: Instant, end: Instant) -> float:
    """Seconds between two moments by the clock on which most have passed: one may stand still, another be set back."""
    return max(after - before for before, after in zip(start, end, strict=True))


@dataclass
class _Notes:
    """The notes of one scope."""

    items: dict[str, Message] = field(default_factory=dict)
    made: dict[str, Instant] = field(default_factory=dict)
    size: int = 0

    def usage(self) -> Usage:
        kind = TYPES[MemoryType.WORKING]
        return Usage(len(self.items), self.size, kind.max_memories, kind.max_bytes)

    def put(self, item: Message, made: Instant) -> None:
        self.take(item.id)
        self.items[item.id] = item
        self.made[item.id] = made
        self.size += _size(item)

    def take(self, item_id: str) -> bool:
        item, _ = self.items.pop(item_id, None), self.made.pop(item_id, None)
        self.size -= 0 if item is None else _size(item)
        return item is not None

    def age(self, now: Instant) -> float:
        """How old the oldest note is."""
        return max((seconds_between(made, now) for made in self.made.values()), default=0.0)

    def take_older(self, age: float, now: Instant) -> int:
        """Take the notes away that are at least so old; how many."""
        old = [item_id for item_id, made in self.made.items() if seconds_between(made, now) >= age]
        return sum(map(self.take, old))


#: Those of a scope that has none; nothing is put into it.
_NO_NOTES: Final = _Notes()


class WorkingStore:
    """Notes of each scope, in their order; none of them is ever written down.

    ``erased`` gives the marks of the erasures of the last so many seconds; ``StoreAwayError`` where the store does not
    answer. ``forget`` is told of each erased subject whose notes were dropped. ``clocks`` count seconds from any start.
    """

    def __init__(
        self,
        erased: Callable[[float], Sequence[ErasureMark]] = lambda _seconds: (),
        forget: Callable[[Subject], None] = lambda _subject: None,
        clocks: Sequence[Callable[[], float]] = (time.monotonic, time.time),
    ) -> None:
        self.clocks, self._erased, self._forget = clocks, erased, forget
        self._scopes: dict[Scope, _Notes] = {}
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._asked = self._now()
        """When the store last answered; there are no notes from before that."""
        self._away: Instant | None = None
        """When it last did not, if it has not answered since."""

    def put(self, scope: Scope, items: Sequence[Message], *, prune: bool) -> tuple[Usage, int]:
        """Add items, or none of them where they exceed the quota; what is there then, and how many old ones went."""
        size = sum(map(_size, items))
        now = self._now()
        with self._lock:
            notes = self._scopes.setdefault(scope, _Notes())
            pruned = 0
            while problem := excess(notes.usage(), len(items), size):
                if not prune or not notes.items:
                    raise refuse(MemoryType.WORKING, scope.user_id, problem)
                for item_id in list(notes.items)[: prune_count(len(notes.items))]:
                    notes.take(item_id)
                    pruned += 1
            for item in items:
                notes.put(item, now)
            return notes.usage(), pruned

    def replace(self, scope: Scope, item: Message) -> bool:
        """Put an item in the place of the one with its id; whether that was there."""
        self._check(scope)
        with self._lock:
            notes = self._notes(scope)
            if item.id not in notes.items:
                return False
            grown = _size(item) - _size(notes.items[item.id])
            if grown > 0 and (problem := excess(notes.usage(), 0, grown)):
                raise refuse(MemoryType.WORKING, scope.user_id, problem)
            notes.size += grown
            notes.items[item.id] = item
            return True

    def items(self, scope: Scope) -> list[Message]:
        """All items of a scope."""
        self._check(scope)
        with self._lock:
            return list(self._notes(scope).items.values())

    def get(self, scope: Scope, item_id: str) -> Message | None:
        """One item."""
        self._check(scope)
        with self._lock:
            return self._notes(scope).items.get(item_id)

    def remove(self, scope: Scope, item_id: str) -> bool:
        """Take one item away; whether it was there."""
        self._check(scope)
        with self._lock:
            return self._notes(scope).take(item_id)

    def forget(self) -> None:
        """Take everything away."""
        with self._lock:
            self._scopes.clear()

    def of_user(self, subject: Subject) -> list[tuple[Scope, list[Message]]]:
        """All items of a subject, by their scopes."""
        with self._lock:
            theirs = [scope for scope in self._scopes if scope.subject == subject]
        return [(scope, self.items(scope)) for scope in theirs]

    def clear_user(self, subject: Subject) -> int:
        """Take all items of a subject away, whatever the agent and the session; how many there were."""
        with self._lock:
            theirs = [scope for scope in self._scopes if scope.subject == subject]
            return sum(len(self._scopes.pop(scope).items) for scope in theirs)

    def clear(self, scope: Scope) -> int:
        """Take all items of a scope away; how many there were."""
        with self._lock:
            return len(self._scopes.pop(scope, _NO_NOTES).items)

    def _notes(self, scope: Scope) -> _Notes:
        return self._scopes.get(scope, _NO_NOTES)

    # --- erasures elsewhere ------------------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return tuple(clock() for clock in self.clocks)

    def _check(self, scope: Scope) -> None:
        """Let no note of a scope be read that has not been held against the erasures of the last seconds."""
        if (unchecked := self._unchecked_seconds(scope)) <= LEASE_SECONDS:
            return
        away, in_grace = self._away, unchecked <= GRACE_SECONDS
        if away is not None and in_grace and seconds_between(away, self._now()) < _RETRY_SECONDS:
            return
        if not self._asking.acquire(blocking=away is None or not in_grace):
            return  # another thread asks a store that was away a moment ago
        try:
            if (unchecked := self._unchecked_seconds(scope)) > LEASE_SECONDS:
                self._ask(unchecked)
        finally:
            self._asking.release()

    def _unchecked_seconds(self, scope: Scope) -> float:
        """For how long notes of a scope have lain here since the last look at erasures."""
        now = self._now()
        since_asked = seconds_between(self._asked, now)
        if since_asked <= LEASE_SECONDS:
            return 0.0
        with self._lock:
            return min(since_asked, self._notes(scope).age(now))

    def _ask(self, unchecked: float) -> None:
        start = self._now()
        seconds = seconds_between(self._asked, start)
        try:
            marks = self._erased(min(seconds + _SLACK_SECONDS, _MARKS_SECONDS))
        except (StoreAwayError, StoreBusyError) as problem:
            self._away = self._now()
            if unchecked > GRACE_SECONDS:
                raise
            _log.warning("working memory is read although the store cannot be asked who was erased: %s", problem)
            return
        self._drop(marks, unknown=seconds >= _MARKS_SECONDS)
        self._asked, self._away = start, None

    def _drop(self, marks: Sequence[ErasureMark], *, unknown: bool) -> None:
        """Drop what is older than its user's erasure; with ``unknown``, all that may be older than a forgotten mark."""
        now = self._now()
        with self._lock:
            subjects = {scope.subject for scope in self._scopes}
            ages = {
                subject: min(theirs)
                for subject in subjects
                if (theirs := [mark.age_seconds for mark in marks if mark.is_of(subject)])
            }
            if unknown:
                ages = {subject: min(ages.get(subject, _MARKS_SECONDS), _MARKS_SECONDS) for subject in subjects}
            dropped = {
                scope.subject
                for scope, notes in self._scopes.items()
                if scope.subject in ages and notes.take_older(ages[scope.subject], now)
            }
            self._scopes = {scope: notes for scope, notes in self._scopes.items() if notes.items}
        for subject in dropped:
            self._forget(subject)


def _size(item: Message) -> int:
    return len(item.content.encode())


class Working:
    """``memory.working``: the task's notes."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services, self._scope = services, scope

    def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Note a text for the duration of the task; its id."""
        return self.put([content], metadata, prune=False)[0][0]

    def put(
        self, contents: list[str], metadata: Mapping[str, Any] | None, *, prune: bool
    ) -> tuple[list[str], Usage, int]:
        """Note some contents, all or none; their ids, what is there then, and how many old ones went."""
        self._scope.check_one()
        now = self._services.now()
        checked = [check_content(content, max_bytes=self._services.max_content_bytes) for content in contents]
        ids = self._services.new_ids(now, len(checked))
        kept = check_metadata(metadata)
        begin_steps()  # no transaction undoes a note
        items = [Message(item_id, "note", content, now, kept) for item_id, content in zip(ids, checked, strict=True)]
        usage, pruned = self._services.working.put(self._scope, items, prune=prune)
        return ids, usage, pruned

    def items(self) -> list[Message]:
        """Everything noted during this task, oldest first."""
        self._services.check()
        return self._services.working.items(self._scope)

    def get(self, item_id: str) -> Message | None:
        """One note."""
        return self._services.working.get(self._scope, item_id) if isinstance(item_id, str) else None

    def update(self, item: Message) -> bool:
        """Change a note; whether it was there."""
        return self._services.working.replace(self._scope, item)

    def delete(self, item_id: str) -> bool:
        """Drop a note; whether it was there."""
        return isinstance(item_id, str) and self._services.working.remove(self._scope, item_id)

    def clear(self) -> int:
        """Drop every note; how many there were."""
        dropped = self._services.working.clear(self._scope)
        self._services.recall.drop(self._scope, TYPES[MemoryType.WORKING])
        return dropped
