"""Erasure: it removes everything of a user from every place, and looks again before it says so.

The ledger is written first. Then the name is removed, in a transaction that no hold can come between. Every later step
can be repeated: after a crash, erasing again, the next sweep or opening the store goes on. A store that was restored
from an old copy is compared with the ledger before anyone can read. An erasure that was cut short before the name was
removed, and that a hold keeps by now, is deferred until the hold is released.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from holdfast.core import errors
from holdfast.core.records import MemoryType, Subject
from holdfast.lifecycle.holds import hold_to_dict
from holdfast.ports.subjects import ErasureTimes, Found, SubjectStore, Tombstone

if TYPE_CHECKING:
    from holdfast.lifecycle.session_parts import SessionParts
    from holdfast.ports.conversations import ShortTermStore
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.ledger import Erased, KeysAndLedger
    from holdfast.results.lifecycle import CertificateResult, ErasurePreviewResult, HoldResult

_log = logging.getLogger("holdfast.erasure")
#: Rows that go in one transaction: others wait no longer than for that.
_ROWS: Final = 2_000
_OBJECTS: Final = 1_000
_KEYS: Final = 500
#: Where a server does not answer, so long is spent on trying, and so long passes before the next try.
_PATIENCE_SECONDS: Final = 5.0
_REST_SECONDS: Final = 30.0
SHORT_TERM: Final = "short-term messages"
OBJECTS: Final = "cold objects"
KEY: Final = "data key"
SESSIONS: Final = "short-term sessions"
_READER: Final = "a reader still uses an older state of the store's file"
_PROGRESS: Final = {
    True: "The erasure has begun, and is carried out when the store is next opened or swept, or by erasing again",
    False: "The erasure has not begun, and nothing was erased: erase again",
    None: "It is not known whether the erasure has begun. If it has, it is carried out when the store is next opened "
    "or swept; erase again to be sure",
}


Progress = Callable[[int, str], None]
"""Hears how much more was done in which step."""


def ignore(_count: int, _step: str) -> None:
    """Progress that nobody hears of."""


def _place(part: str) -> str:
    """What a place is called that is a part of sessions."""
    return f"part {part}"


class PlaceCount(NamedTuple):
    """Where something of a user was: how much was found and removed there, and how much was left at the last look."""

    name: str
    found: int
    removed: int
    left: int


@dataclass(frozen=True, slots=True)
class Erasure:
    """The result of erasing a user."""

    alias: str | None
    """The pseudonym of the user in the ledger, the audit chain and the certificate; ``None`` if nothing was ever kept
    of such a user."""
    began_at: int
    ended_at: int | None
    """When the last look found nothing; ``None`` while something is still to be done."""
    places: tuple[PlaceCount, ...] = ()
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many memories there were of each kind."""
    waiting_for: tuple[str, ...] = ()
    """Why it is not finished, in words. The next sweep tries again, and so does erasing again."""
    entry: Erased | None = None
    """The entry of the ledger."""
    certificate: CertificateResult | None = None

    @property
    def pending(self) -> bool:
        """Whether something is still to be done. Even then nobody can find or read anything of the user."""
        return self.ended_at is None


@dataclass
class _Tally:
    """What one run has found and removed."""

    report: Progress = ignore
    places: dict[str, list[int]] = field(default_factory=dict)
    waiting_for: list[str] = field(default_factory=list)

    def add(self, name: str, found: int, left: int = 0) -> None:
        place = self.places.setdefault(name, [0, 0])
        place[0] += found
        place[1] += left

    def remove(self, name: str, found: int, *, is_counted: bool = False) -> None:
        """Count what was found and removed somewhere, unless it was counted before, and report it."""
        self.add(name, 0 if is_counted else found)
        self.report(found, name)

    def found(self, name: str) -> int:
        """How much of something was found."""
        return self.places.get(name, [0])[0]

    @contextmanager
    def note_errors(self) -> Iterator[None]:
        """Note that a server does not answer, and go on with the rest."""
        try:
            yield
        except (errors.ObjectStoreError, errors.StoreAwayError) as problem:
            if str(problem) not in self.waiting_for:
                self.waiting_for.append(str(problem))


class Beside(NamedTuple):
    """What is kept of a user beside the store and cold storage."""

    forget: Callable[[Subject], Mapping[str, int]] = lambda _subject: {}
    """Removes what this process has in memory of a subject; how much of what that was."""
    short_term: ShortTermStore | None = None
    """Short-term memory, where it is not in the store."""
    parts: Callable[[str], SessionParts] | None = None
    """What belongs to a tenant's sessions and lies elsewhere."""


@dataclass(eq=False)
class Eraser:
    """Erases users of a store."""

    _subjects: SubjectStore
    _state: KeysAndLedger
    _objects: Callable[[], ObjectStore]
    _beside: Beside
    _now: Callable[[], int]
    _certify: Callable[[Erasure], CertificateResult | None]
    _rest_until: float = 0.0

    def __post_init__(self) -> None:
        self._keyring, _, self._ledger = self._state
        self._forget, self._short_term, self._parts = self._beside

    def erase(
        self, subject: Subject, prepare: Callable[[], None] = lambda: None, progress: Progress = ignore
    ) -> Erasure:
        """Erase a subject in every place. ``HeldError``, audited, while a hold covers anything of it.

        A user of whom nothing was ever kept is answered for as well. Erasing again goes on with what was not finished.
        ``prepare`` is called first; a ``StorageError``, of that or of what follows, says whether the erasure has begun.
        ``progress`` hears of each step when it is reached, and of what was removed in it.
        """
        now = self._now()
        begun: list[str] = []
        progress(0, "the ledger, and out of recall")
        with self._explain_progress(begun):
            prepare()
            try:
                begin, defer = partial(self._begin, begun, now), self._ledger.defer
                beside: dict[str, int] = {}
                with suppress(errors.StoreAwayError):  # it is counted when it is back
                    beside = self._count_parts(subject)
                tombstone, found = self._subjects.detach(subject, now=now, begin=begin, defer=defer, beside=beside)
            except errors.HeldError as problem:
                if any(name == subject for _, name in self._subjects.having(self._ledger.list_deferred())):
                    raise errors.HeldError(f"{problem}. Its erasure had begun before, and goes on after it") from None
                raise
            unfinished = [one for one in self._subjects.tombstones() if one.is_of(subject) and one != tombstone]
            begun += [one.alias for one in unfinished]
            erasures = [self._finish(one, self._subjects.found(one), progress) for one in unfinished]
            if tombstone is not None:
                self._subjects.note_times(tombstone.alias, ErasureTimes(hidden_at=self._now()))
                return self._finish(tombstone, found, progress)
            return erasures[-1] if erasures else self._nobody(subject, found)

    @contextmanager
    def _explain_progress(self, begun: Sequence[str]) -> Iterator[None]:
        """Let an error of a store or a disk also say whether the erasure has begun: then it goes on by itself."""
        try:
            yield
        except errors.StorageError as problem:
            has_begun = None
            with suppress(errors.StorageError):
                has_begun = any(self._ledger.find(alias) is not None for alias in begun)
            raise type(problem)(f"{problem}. {_PROGRESS[has_begun]}") from problem

    def _begin(self, begun: list[str], now: int, alias: str) -> None:
        """Write the ledger. The pseudonym is added to ``begun`` before."""
        begun.append(alias)
        self._ledger.begin(alias, at=now)

    def check(self, subject: Subject) -> None:
        """Raise the ``HeldError`` that erasing a subject would raise now; nothing is changed."""
        self._subjects.check(subject)

    def preview(self, subject: Subject, progress: Progress = ignore) -> ErasurePreviewResult:
        """What erasing a subject would remove from where, and what would refuse or delay it; nothing is changed.

        ``progress`` hears of each step, and of what was found in it.
        """
        tally, places = _Tally(), dict[str, int]()
        found, holds = self._subjects.survey(subject, progress)
        with tally.note_errors():
            places = self._count_parts(subject)
            progress(sum(places.values()), "what belongs to sessions elsewhere")
        with tally.note_errors():
            if self._short_term is not None:
                windows = self._short_term.windows(subject.tenant, subject.user_id, known=())
                places[SHORT_TERM] = sum(len(window.messages) for window in windows)
        return {
            "user_id": subject.user_id,
            "is_known": found is not None,
            "memories": {} if found is None else {kind: count for kind, count in found.kinds.items() if count},
            "places": [
                {"name": name, "found": count}
                for name, count in {**({} if found is None else found.rows), **places}.items()
                if count
            ],
            "is_refused": bool(holds),
            "holds": [cast("HoldResult", hold_to_dict(hold)) for hold in holds],
            "waiting_for": tally.waiting_for,
        }

    def go_on(self) -> int:
        """Go on with every erasure that was cut short; how many are finished now.

        A state store that does not answer, or a wrong ledger, is a warning only: the rest of a sweep is done.
        """
        done = 0
        try:
            done = self.replay()
        except (errors.ObjectStoreError, errors.LedgerError) as problem:
            _log.warning("the store cannot be compared with the ledger of erasures now: %s", problem)
        self._subjects.forget_marks()
        return done + self.finish_unfinished()

    def finish_unfinished(self) -> int:
        """Go on with every erasure that is not finished; how many are finished now.

        A server that does not answer is tried again some time later, so that opening the store and sweeping do not
        wait long.
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
        """Compare the store with the ledger, and erase again each user who is in both; how many there were.

        A user who was erased, and is back from an old copy, is erased whatever holds that copy has. An erasure that was
        cut short before the name was removed respects holds, and is tried again each time. ``LedgerError`` if this is
        not the ledger that the store was compared with before.
        """
        seen, seen_hash = self._subjects.ledger_seen() or (0, "")
        last = self._ledger.last()
        if last < seen:
            raise errors.LedgerError(
                f"the store was compared with {seen} entries of the ledger of erasures, and the one in "
                f"{self._ledger.url} has {last}; name the right one in HOLDFAST_STATE_URL, or bring it back from a copy"
            )
        if seen and next(self._ledger.entries(after=seen - 1)).hash != seen_hash:
            raise errors.LedgerError(
                f"the ledger of erasures in {self._ledger.url} is not the one that the store was compared with before: "
                f"entry {seen} is another; name the right one in HOLDFAST_STATE_URL"
            )
        entries = list(self._ledger.entries(after=seen)) if last > seen else []
        for entry in entries:
            self._ledger.mend(entry)
        keys = list(dict.fromkeys([*(entry.key for entry in entries), *self._ledger.list_deferred()]))
        count = 0
        for start in range(0, len(keys), _KEYS):
            for alias, subject in self._subjects.having(keys[start : start + _KEYS]):
                count += self._erase_again(subject, alias)
        if entries:
            with suppress(errors.StoreReadOnlyError):  # none of them is there; the next opening looks again
                self._subjects.see_ledger(entries[-1].no, entries[-1].hash)
        return count

    def _erase_again(self, subject: Subject, alias: str) -> bool:
        """Erase a user who is in the ledger and in the store; whether there was something to do."""
        even_held, now = self._ledger.is_carried_out(alias), self._now()
        begin = partial(self._begin, [], now)
        try:
            tombstone, found = self._subjects.detach(
                subject, alias=alias, even_held=even_held, now=now, begin=begin, defer=self._ledger.defer
            )
        except errors.HeldError:  # its message names the user, which a log must not
            _log.warning("the erasure of %s has begun, and waits for a hold to be released: holdfast hold list", alias)
            return False
        except errors.StoreReadOnlyError as problem:
            raise errors.StoreReadOnlyError(
                f"the user with the pseudonym {alias} was erased and is in this store, which is an older copy; "
                f"it cannot be written, so nobody may read it: {problem}"
            ) from problem
        if tombstone is not None:
            self._finish(tombstone, found)
        return tombstone is not None

    def _note_seen(self) -> None:
        """Note how far the store agrees with the ledger: up to the first erasure that is not carried out here."""
        seen = self._subjects.ledger_seen() or (0, "")
        with suppress(errors.ObjectStoreError, errors.LedgerError):  # the next opening looks again
            for entry in self._ledger.entries(after=seen[0]):
                if not self._ledger.is_carried_out(entry.key) or self._subjects.having([entry.key]):
                    break
                self._subjects.see_ledger(entry.no, entry.hash)

    # --- one of them -------------------------------------------------------------------------------------------------

    def _finish(self, tombstone: Tombstone, found: Found, report: Progress = ignore) -> Erasure:
        """Do what is left to do, and look again."""
        tally, entry, subject = _Tally(report), None, tombstone.subject
        is_cleared = subject is None or not self._has_parts(subject)
        with tally.note_errors():
            entry = self._ledger.begin(tombstone.alias, at=self._now())  # the entry that is there, unless it was lost
            is_cleared = is_cleared or self._ledger.is_cleared(tombstone.alias)
            self._ledger.carry_out(entry, is_cleared=is_cleared)
        parts = None if is_cleared else subject
        with tally.note_errors():
            if subject is not None:  # before the name is forgotten
                self._end_by_name(subject, tally)
        with tally.note_errors():
            self._erase_parts(parts, tally, found)
            if is_cleared:
                self._subjects.forget_name(tombstone)
        with tally.note_errors():
            self._remove_objects(tombstone, tally)
        if entry is not None:  # from now on nobody makes another key, since the ledger has the entry
            with tally.note_errors():
                tally.remove(KEY, self._keyring.destroy(tombstone.alias))
        self._remove_rows(tombstone, tally)
        with tally.note_errors():
            self._look_again(tombstone, found, tally, parts)
        with tally.note_errors():
            if parts is not None and entry is not None and not tally.waiting_for:
                self._ledger.carry_out(entry)
                self._subjects.forget_name(tombstone)
        erasure = self._result(tombstone.alias, found, tally, entry)
        if erasure.pending:
            return erasure
        report(0, "the certificate")
        certified = replace(erasure, certificate=self._certify(erasure))  # after a crash here another one is issued
        asked_at = None if entry is None else entry.at
        self._subjects.note_times(
            tombstone.alias, ErasureTimes(asked_at, erasure.began_at, erasure.ended_at, self._now())
        )
        self._subjects.bury(tombstone)
        self._note_seen()
        return certified

    def _remove_rows(self, tombstone: Tombstone, tally: _Tally) -> None:
        """Remove the rows, and what is left of their bytes in files."""
        while removed := self._subjects.remove(tombstone, limit=_ROWS):
            tally.report(removed, "rows of the store")
            if removed < _ROWS:
                break
        tally.report(0, "bytes in files")
        if not self._subjects.scrub():
            tally.waiting_for.append(f"{_READER}; it is finished when that reader closes")

    def _end_by_name(self, subject: Subject, tally: _Tally) -> None:
        """Remove what is found by the name only, in this process and on servers."""
        for name, count in self._forget(subject).items():
            tally.add(name, count)
            tally.report(count, f"{name} memory, in this process")
        if self._short_term is not None:
            tally.remove(SESSIONS, self._short_term.end_user(subject.tenant, subject.user_id))

    def _has_parts(self, subject: Subject) -> bool:
        return self._parts is not None and bool(self._parts(subject.tenant).list())

    def _count_parts(self, subject: Subject | None) -> dict[str, int]:
        """How much parts of sessions hold of a subject, by what the places are called."""
        if subject is None or self._parts is None:
            return {}
        counts = self._parts(subject.tenant).ask(lambda part: part.count(subject.user_id))
        return {_place(name): count for name, count in counts.items()}

    def _erase_parts(self, subject: Subject | None, tally: _Tally, found: Found) -> None:
        """Remove what parts of sessions hold; what was counted with the rows is not counted again."""
        if subject is None or self._parts is None:
            return
        for name, count in self._parts(subject.tenant).ask(lambda part: part.erase(subject.user_id)).items():
            tally.remove(_place(name), count, is_counted=_place(name) in found.rows)

    def _remove_objects(self, tombstone: Tombstone, tally: _Tally) -> None:
        names = sorted({*self._subjects.objects(tombstone), *self._packs_of(tombstone)})
        for start in range(0, len(names), _OBJECTS):
            self._objects().delete(names[start : start + _OBJECTS])
        tally.remove(OBJECTS, len(names))
        self._subjects.forget_objects(tombstone)

    def _packs_of(self, tombstone: Tombstone) -> Iterator[str]:
        from holdfast.core.packs import pack_folder

        return self._objects().names(pack_folder(tombstone.alias))

    def _look_again(self, tombstone: Tombstone, found: Found, tally: _Tally, parts: Subject | None) -> None:
        """Look again in every place, and for the key."""
        tally.report(0, "a last look in every place")
        beside = self._count_parts(parts)
        left = self._subjects.left(tombstone) | beside
        for name in {**found.rows, **beside}:
            tally.add(name, found.rows.get(name, 0), left.get(name, 0))
        tally.add(OBJECTS, 0, sum(1 for _ in self._packs_of(tombstone)))
        tally.add(KEY, 0, int(self._keyring.has(tombstone.alias)))
        there = [f"{name}: {left}" for name, (_, left) in tally.places.items() if left]
        if there and not tally.waiting_for:
            tally.waiting_for.append(f"something was written meanwhile, and is still there ({', '.join(there)})")

    def _result(self, alias: str | None, found: Found, tally: _Tally, entry: Erased | None) -> Erasure:
        now = self._now()
        kinds = {kind.value: found.kinds.get(kind.value, 0) for kind in MemoryType}
        kinds[MemoryType.WORKING.value] = tally.found(MemoryType.WORKING.value)
        kinds[MemoryType.SHORT_TERM.value] = found.rows.get(SHORT_TERM, 0) + tally.found(SESSIONS)
        return Erasure(
            alias,
            now if entry is None else entry.at,
            None if tally.waiting_for else now,
            tuple(PlaceCount(name, there, there - left, left) for name, (there, left) in sorted(tally.places.items())),
            kinds,
            tuple(tally.waiting_for),
            entry,
        )

    def _nobody(self, subject: Subject, found: Found) -> Erasure:
        """The result for a user of whom nothing was ever kept. Something may still name them, or be in memory."""
        tally = _Tally()
        self._end_by_name(subject, tally)
        self._erase_parts(subject, tally, found)
        for name, count in found.rows.items():
            tally.add(name, count)
        if any(map(tally.found, tally.places)) and not self._subjects.scrub():
            _log.warning("%s; removed bytes stay there until it closes", _READER)
        return self._result(None, found, tally, None)
