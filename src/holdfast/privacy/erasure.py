"""Erasure: everything of a user goes, from every place, and it is looked for again before that is said.

The name goes first, in the same transaction that no hold can come between, and the ledger has it before that. What
follows can be repeated: a crash anywhere is made good by asking again, by the next sweep, or by opening the store. A
store that comes from before an erasure is held against the ledger before anyone can read. An erasure that was cut short
before the name was gone, and that a hold keeps by now, is put off until the hold is released.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from holdfast.core.errors import (
    HeldError,
    LedgerError,
    ObjectStoreError,
    StorageError,
    StoreAwayError,
    StoreReadOnlyError,
)
from holdfast.core.packs import pack_folder
from holdfast.core.records import MemoryType, Subject
from holdfast.ports.conversations import ShortTermStore
from holdfast.ports.objects import ObjectStore
from holdfast.ports.subjects import Found, SubjectStore, Tombstone
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.ledger import Erased, Ledger

_log = logging.getLogger("holdfast.erasure")
#: Rows that go in one transaction: others wait no longer than for that.
_ROWS: Final = 2_000
_OBJECTS: Final = 1_000
_KEYS: Final = 500
#: Where something is away, so long is spent on trying, and so long is it left alone after that.
_PATIENCE_SECONDS: Final = 5.0
_REST_SECONDS: Final = 30.0
SHORT_TERM: Final = "short-term messages"
OBJECTS: Final = "cold objects"
KEY: Final = "data key"


class Place(NamedTuple):
    """Where something of a user was: how much was found and removed there, and what a last look still found."""

    name: str
    found: int
    removed: int
    left: int


@dataclass(frozen=True, slots=True)
class Erasure:
    """What became of everything that was kept of a user."""

    alias: str | None
    """The pseudonym, under which the ledger, the audit chain and the certificate know of it; ``None`` if nothing was
    ever kept of such a user."""
    began_at: int
    ended_at: int | None
    """When the last look found nothing; ``None`` while something is still to be done."""
    places: tuple[Place, ...] = ()
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many memories there were of each kind."""
    waiting_for: tuple[str, ...] = ()
    """What keeps it from being done, in words. The next sweep tries again, and so does erasing again."""
    entry: Erased | None = None
    """The ledger's."""
    certificate: dict[str, Any] | None = None

    @property
    def pending(self) -> bool:
        """Whether something is still to be done. Nobody can find or read anything of it even so."""
        return self.ended_at is None


@dataclass
class _Tally:
    """What one run finds and removes."""

    places: dict[str, list[int]] = field(default_factory=dict)
    waiting_for: list[str] = field(default_factory=list)

    def add(self, name: str, found: int, left: int = 0) -> None:
        place = self.places.setdefault(name, [0, 0])
        place[0] += found
        place[1] += left

    @contextmanager
    def coping(self) -> Iterator[None]:
        """Where a server is away, the rest is done all the same."""
        try:
            yield
        except (ObjectStoreError, StoreAwayError) as problem:
            self.waiting_for.append(str(problem))


class Eraser:
    """Erases users of a store.

    ``forget`` lets go of what this process has in memory of a subject, and says how much of what that was;
    ``short_term`` is short-term memory that is kept elsewhere than in the store.
    """

    def __init__(
        self,
        subjects: SubjectStore,
        ledger: Ledger,
        keyring: Keyring,
        objects: Callable[[], ObjectStore],
        *,
        now: Callable[[], int],
        forget: Callable[[Subject], Mapping[str, int]] = lambda _subject: {},
        short_term: ShortTermStore | None = None,
        certify: Callable[[Erasure], dict[str, Any]] | None = None,
    ) -> None:
        self._subjects = subjects
        self._ledger = ledger
        self._keyring = keyring
        self._objects = objects
        self._now = now
        self._forget = forget
        self._short_term = short_term
        self._certify = certify
        self._rest_until = 0.0

    def erase(self, subject: Subject, prepare: Callable[[], None] = lambda: None) -> Erasure:
        """Erase a subject, wherever anything of it is. ``HeldError``, audited, while a hold stands on anything of it.

        One of whom nothing was ever kept is answered for as well. Erasing again goes on with what was not finished.
        ``prepare`` makes what it takes; a ``StorageError``, of that or of what follows, says whether it has begun.
        """
        now = self._now()
        begun: list[str] = []
        with self._saying_how_far(begun):
            prepare()
            try:
                tombstone, found = self._detach(subject, now=now, begun=begun)
            except HeldError as problem:
                if any(name == subject for _, name in self._subjects.having(self._ledger.deferred())):
                    raise HeldError(f"{problem}. Its erasure had begun before the hold, and goes on after it") from None
                raise
            unfinished = [one for one in self._subjects.tombstones() if one.is_of(subject) and one != tombstone]
            begun += [one.alias for one in unfinished]
            erasures = [self._finish(one, self._subjects.found(one)) for one in unfinished]
            if tombstone is not None:
                return self._finish(tombstone, found)
            return erasures[-1] if erasures else self._nobody(subject, found, now)

    @contextmanager
    def _saying_how_far(self, begun: Sequence[str]) -> Iterator[None]:
        """What a store or a disk has against an erasure says also whether it has begun: then it goes on by itself."""
        try:
            yield
        except StorageError as problem:
            raise type(problem)(f"{problem}. {self._describe_progress(begun)}") from problem

    def _describe_progress(self, begun: Sequence[str]) -> str:
        try:
            written = any(self._ledger.find(alias) is not None for alias in begun)
        except StorageError:
            return (
                "Whether the erasure has begun cannot be told just now: if it has, it is carried out when the store is "
                "next opened or swept; erase again to be sure"
            )
        if written:
            return (
                "The erasure has begun, and is carried out when the store is next opened or swept, or by erasing again"
            )
        return "The erasure has not begun, and nothing was erased: erase again"

    def check(self, subject: Subject) -> None:
        """Raise the ``HeldError`` with which erasing a subject would be refused just now; nothing is changed."""
        self._subjects.check(subject)

    def go_on(self) -> int:
        """Go on with every erasure that was cut short, wherever that was; how many are finished now.

        A state store that is away, or a ledger that is not the right one, is a warning: the rest of a sweep is done.
        """
        done = 0
        try:
            done = self.replay()
        except (ObjectStoreError, LedgerError) as problem:
            _log.warning("the store cannot be held against the ledger of erasures just now: %s", problem)
        self._subjects.forget_marks()
        return done + self.finish_unfinished()

    def finish_unfinished(self) -> int:
        """Go on with every erasure that is not finished; how many are now.

        What is still away is tried again some time later: whoever opens the store or sweeps does not wait for it long.
        """
        began, done = time.monotonic(), 0
        if began < self._rest_until:
            return 0
        for tombstone in self._subjects.tombstones():
            erasure = self._finish(tombstone, self._subjects.found(tombstone))
            done += not erasure.pending
            for reason in erasure.waiting_for:
                _log.warning("the erasure of %s is not finished: %s", erasure.alias, reason)
            if erasure.pending:
                self._rest_until = time.monotonic() + _REST_SECONDS
                if time.monotonic() - began > _PATIENCE_SECONDS:
                    break
        return done

    # --- the ledger --------------------------------------------------------------------------------------------------

    def replay(self) -> int:
        """Hold the store against the ledger: whoever is in it and is there (again) is erased; how many there were.

        One who was erased for good, and comes from an old copy, is erased whatever that copy holds. One whose erasure
        was cut short before the name was gone is kept by a hold, and tried again each time until that is released.
        ``LedgerError`` if this is not the ledger that the store was held against before.
        """
        seen, seen_hash = self._subjects.ledger_seen() or (0, "")
        last = self._ledger.last()
        if last < seen:
            raise LedgerError(
                f"the store has been held against {seen} entries of the ledger of erasures, and the one in "
                f"{self._ledger.url} has {last}; name the right one in HOLDFAST_STATE_URL, or bring it back from a copy"
            )
        if seen and next(self._ledger.entries(after=seen - 1)).hash != seen_hash:
            raise LedgerError(
                f"the ledger of erasures in {self._ledger.url} is not the one that the store was held against before: "
                f"entry {seen} is another; name the right one in HOLDFAST_STATE_URL"
            )
        entries = list(self._ledger.entries(after=seen)) if last > seen else []
        for entry in entries:
            self._ledger.mend(entry)
        keys = list(dict.fromkeys([*(entry.key for entry in entries), *self._ledger.deferred()]))
        count = 0
        for start in range(0, len(keys), _KEYS):
            for alias, subject in self._subjects.having(keys[start : start + _KEYS]):
                count += self._erase_again(subject, alias)
        if entries:
            with suppress(StoreReadOnlyError):  # nobody of them is there: all the same, it need not be looked up again
                self._subjects.see_ledger(entries[-1].no, entries[-1].hash)
        return count

    def _erase_again(self, subject: Subject, alias: str) -> bool:
        """Erase whoever is in the ledger and is there; whether there was something to do that no hold forbids."""
        even_held = self._ledger.is_carried_out(alias)
        try:
            tombstone, found = self._detach(subject, alias, now=self._now(), even_held=even_held)
        except HeldError:  # whose words name the user, beside the pseudonym
            _log.warning("the erasure of %s has begun, and waits for a hold to be released: holdfast hold list", alias)
            return False
        except StoreReadOnlyError as problem:
            raise StoreReadOnlyError(
                f"the user with the pseudonym {alias} was erased and is in this store, which comes from before that; "
                f"it cannot be written, so nobody may read it: {problem}"
            ) from problem
        if tombstone is not None:
            self._finish(tombstone, found)
        return tombstone is not None

    def _detach(
        self,
        subject: Subject,
        alias: str | None = None,
        *,
        now: int,
        even_held: bool = False,
        begun: list[str] | None = None,
    ) -> tuple[Tombstone | None, Found]:
        """Take the name away. ``begun`` is given the pseudonym before that is written down."""

        def begin(alias: str) -> None:
            if begun is not None:
                begun.append(alias)
            self._ledger.begin(alias, at=now)

        return self._subjects.detach(
            subject, alias=alias, even_held=even_held, now=now, begin=begin, defer=self._ledger.defer
        )

    def _note(self) -> None:
        """The store agrees with the entries that follow what it has been held against, as far as they are done."""
        seen = self._subjects.ledger_seen() or (0, "")
        with suppress(ObjectStoreError, LedgerError):  # whoever opens the store next looks again
            for entry in self._ledger.entries(after=seen[0]):
                if not self._ledger.is_carried_out(entry.key) or self._subjects.having([entry.key]):
                    break
                self._subjects.see_ledger(entry.no, entry.hash)

    # --- one of them -------------------------------------------------------------------------------------------------

    def _finish(self, tombstone: Tombstone, found: Found) -> Erasure:
        """Do what is left to do, look again, and say what became of it."""
        tally = _Tally()
        entry = None
        with tally.coping():
            entry = self._ledger.begin(tombstone.alias, at=self._now())  # the one that is there, but for what was lost
            self._ledger.carry_out(entry)
        working = self._end_by_name(tombstone, tally)
        with tally.coping():
            self._remove_objects(tombstone, tally)
        if entry is not None:  # who writes to cold storage meanwhile makes no other key, since the ledger says so
            with tally.coping():
                tally.add(KEY, self._keyring.destroy(tombstone.alias))
        while self._subjects.remove(tombstone, limit=_ROWS) == _ROWS:
            pass
        if not self._subjects.scrub():
            tally.waiting_for.append("a reader keeps an older view of the store's file; it ends when that is closed")
        with tally.coping():
            self._look_again(tombstone, found, tally)
        erasure = self._told(tombstone, found, tally, entry, working)
        if erasure.pending:
            return erasure
        certificate = None if self._certify is None else self._certify(erasure)  # a crash after this issues it again
        self._subjects.bury(tombstone)
        self._note()
        return replace(erasure, certificate=certificate or None)

    def _end_by_name(self, tombstone: Tombstone, tally: _Tally) -> int:
        """What is found by the name alone, in this process and elsewhere, before the name is forgotten."""
        if tombstone.subject is None:
            return 0
        held = self._forget(tombstone.subject)
        for name, count in held.items():
            tally.add(name, count)
        with tally.coping():
            if self._short_term is not None:
                tally.add(
                    "short-term sessions",
                    self._short_term.end_user(tombstone.subject.tenant, tombstone.subject.user_id),
                )
            self._subjects.forget_name(tombstone)
        return held.get(MemoryType.WORKING.value, 0)

    def _remove_objects(self, tombstone: Tombstone, tally: _Tally) -> None:
        noted = self._subjects.objects(tombstone)
        names = sorted({*noted, *self._objects().names(pack_folder(tombstone.alias))})
        for start in range(0, len(names), _OBJECTS):
            self._objects().delete(names[start : start + _OBJECTS])
        tally.add(OBJECTS, len(names))
        self._subjects.forget_objects(tombstone)

    def _look_again(self, tombstone: Tombstone, found: Found, tally: _Tally) -> None:
        """Look for what was removed, in every place, and for the key."""
        left = self._subjects.left(tombstone)
        for name, count in found.rows.items():
            tally.add(name, count, left.get(name, 0))
        still = sum(1 for _ in self._objects().names(pack_folder(tombstone.alias)))
        tally.add(OBJECTS, 0, still)
        tally.add(KEY, 0, int(self._keyring.has(tombstone.alias)))
        there = [f"{name}: {left}" for name, (_, left) in tally.places.items() if left]
        if there and not tally.waiting_for:
            tally.waiting_for.append(f"something was written meanwhile, and is there still ({', '.join(there)})")

    def _told(self, tombstone: Tombstone, found: Found, tally: _Tally, entry: Erased | None, working: int) -> Erasure:
        now = self._now()
        short = found.rows.get(SHORT_TERM, 0) + tally.places.get("short-term sessions", [0])[0]
        kinds = {kind.value: found.kinds.get(kind.value, 0) for kind in MemoryType}
        kinds |= {MemoryType.WORKING.value: working, MemoryType.SHORT_TERM.value: short}
        return Erasure(
            tombstone.alias,
            now if entry is None else entry.at,
            None if tally.waiting_for else now,
            tuple(Place(name, there, there - left, left) for name, (there, left) in sorted(tally.places.items())),
            kinds,
            tuple(tally.waiting_for),
            entry,
        )

    def _nobody(self, subject: Subject, found: Found, now: int) -> Erasure:
        """Nothing was ever kept of a user; but something may name them, or be in memory."""
        held = self._forget(subject)
        elsewhere = 0
        if self._short_term is not None:
            elsewhere = self._short_term.end_user(subject.tenant, subject.user_id)
        counts = {**found.rows, **held, "short-term sessions": elsewhere}
        kinds = {kind.value: held.get(kind.value, 0) for kind in MemoryType}
        kinds[MemoryType.SHORT_TERM.value] = elsewhere
        places = tuple(Place(name, count, count, 0) for name, count in sorted(counts.items()))
        if any(counts.values()) and not self._subjects.scrub():
            _log.warning("a reader keeps an older view of the store's file; what was removed is in it until that ends")
        return Erasure(None, now, now, places, kinds)
