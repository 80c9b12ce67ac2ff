"""The ledger: every erasure, in the order in which they began, outside of the data and of every backup.

An entry has the key that was destroyed, which is the pseudonym of the user, and nothing else of the user. Each entry
has the hash of the one before it; none is ever changed or removed. A store that was restored from an old copy is
compared with the ledger before anyone can read.

Beside the entries lies how far each erasure came. One that has begun has a mark (``erased/``), and the mark says so
once the name was removed, which nothing undoes. One that was cut short before that, and that a hold keeps by now, is
deferred (``deferred/``): the user is not erased until it goes on, under an entry of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.errors import ConflictError, LedgerError, ObjectMissingError
from holdfast.core.values import to_json

if TYPE_CHECKING:
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.keys.keyring import Keyring
    from holdfast.privacy.keys.signatures import SigningKeys

FOLDER: Final = "ledger/"
DEFERRED: Final = "deferred/"
_DONE: Final = b"done"
_CLEARED: Final = b"cleared"
_NAME: Final = re.compile(r"ledger/(\d{12})\.json")
_GENESIS: Final = "0" * 64
_TRIES: Final = 1_000


class Erased(NamedTuple):
    """An entry: the pseudonym of a user who was erased, and when that began."""

    no: int
    key: str
    at: int
    previous: str
    hash: str


class Ledger:
    """Erasures in an object store, one object each."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    @property
    def url(self) -> str:
        """Where it is, as it may be shown."""
        return self._objects.url

    def begin(self, key: str, *, at: int) -> Erased:
        """Write that the user of a key is being erased; the entry that is there, if it was written before."""
        self._objects.prepare()
        known = self.find(key)
        if known is not None:
            return known
        for _ in range(_TRIES):
            last = self.last()
            entry = _make_entry(last + 1, key, at, self._read(last).hash if last else _GENESIS)
            with suppress(ConflictError):  # another has written that one
                self._objects.put(_name(entry.no), _text(entry), absent=True)
                self._objects.put(_mark(key), b"%d\n" % entry.no)
                if self._find(_deferral(key)) is not None:
                    self._objects.delete([_deferral(key)])
                return entry
        raise LedgerError("many processes write the ledger, and no entry could be added; try again")

    def mend(self, entry: Erased) -> None:
        """Write the mark of an entry, if a crash came between the two."""
        if self._read_mark(entry.key) is None:
            with suppress(ConflictError):
                self._objects.put(_mark(entry.key), b"%d\n" % entry.no, absent=True)

    def find(self, key: str) -> Erased | None:
        """The entry of a key, if its user was erased, or is being erased. After a crash an entry may not be found by
        its key until ``mend`` is called; then there may be two, which changes nothing.
        """
        mark = self._read_mark(key)
        return None if mark is None or self._find(_deferral(key)) is not None else self._read(int(mark[0]))

    def carry_out(self, entry: Erased, *, is_cleared: bool = True) -> None:
        """Write that the name was removed: from here on no hold, of whatever copy of the store, keeps anything.

        ``is_cleared``: nothing is left in parts of sessions either. What is there later was written by someone who came
        back, and does not go with an old copy of the store.
        """
        words = (b"%d" % entry.no, _DONE, *([_CLEARED] if is_cleared else []))
        self._objects.put(_mark(entry.key), b" ".join(words) + b"\n")

    def is_cleared(self, key: str) -> bool:
        """Whether nothing was left in parts of sessions."""
        return _CLEARED in (self._read_mark(key) or [])

    def is_carried_out(self, key: str) -> bool:
        """Whether the name of the user of a key was removed. The key is not destroyed before."""
        return _DONE in (self._read_mark(key) or [])

    def defer(self, key: str) -> None:
        """Defer an erasure that has begun and was not carried out. Its user goes on as before."""
        if self._read_mark(key) is not None and not self.is_carried_out(key):
            self._objects.put(_deferral(key), b"")

    def list_deferred(self) -> list[str]:
        """The keys of users whose erasure is deferred."""
        return sorted(name.removeprefix(DEFERRED) for name in self._objects.names(DEFERRED))

    def list_erased(self, *, after: int) -> set[str]:
        """The keys of all users who were erased, or are being erased, by the entries after a number."""
        if self.last() <= after:
            return set()
        return {entry.key for entry in self.entries(after=after)}.difference(self.list_deferred())

    def last(self) -> int:
        """The number of the last entry; 0 if there is none."""
        return max(self._numbers(), default=0)

    def head(self) -> tuple[int, str]:
        """The number and the hash of the last entry."""
        last = self.last()
        return last, self.hash_of(last)

    def hash_of(self, number: int) -> str:
        """The hash of an entry; empty, if there is none of that number."""
        try:
            return self._read(number).hash if number else ""
        except ObjectMissingError:
            return ""

    def entries(self, after: int = 0) -> Iterator[Erased]:
        """The entries after a number, in their order; ``LedgerError`` where one was changed, or is missing."""
        numbers = sorted(self._numbers())
        if numbers != list(range(1, len(numbers) + 1)):
            gap = next(place for place, number in enumerate(numbers, 1) if place != number)
            raise LedgerError(f"entry {gap} of the ledger is missing; bring it back from a copy of {self._objects.url}")
        previous = _GENESIS
        for number in numbers:
            if number == after and after:
                previous = self._read(number).hash
            if number <= after:
                continue
            entry = self._read(number)
            if entry.previous != previous:
                raise LedgerError(f"entry {number} of the ledger does not continue the one before: one was changed")
            previous = entry.hash
            yield entry

    def _numbers(self) -> Iterator[int]:
        return (int(found[1]) for name in self._objects.names(FOLDER) if (found := _NAME.fullmatch(name)))

    def _read_mark(self, key: str) -> list[bytes] | None:
        found = self._find(_mark(key))
        return None if found is None else found.split()

    def _find(self, name: str) -> bytes | None:
        with suppress(ObjectMissingError):
            return self._objects.get(name)
        return None

    def _read(self, number: int) -> Erased:
        data = self._objects.get(_name(number))
        try:
            content: dict[str, Any] = json.loads(data)
            entry = _make_entry(int(content["no"]), str(content["key"]), int(content["at"]), str(content["previous"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise LedgerError(f"entry {number} of the ledger is damaged: {problem}") from problem
        if entry.no != number or data != _text(entry):
            raise LedgerError(f"entry {number} of the ledger was changed")
        return entry


class KeysAndLedger(NamedTuple):
    """What lies in the state store: data keys, signing keys, and the ledger of erasures."""

    keyring: Keyring
    signing: SigningKeys
    ledger: Ledger


def _make_entry(no: int, key: str, at: int, previous: str) -> Erased:
    hashed = hashlib.sha256(to_json(["holdfast-ledger 1", no, key, at, previous]).encode()).hexdigest()
    return Erased(no, key, at, previous, hashed)


def _text(entry: Erased) -> bytes:
    return to_json({"holdfast_ledger": 1, **entry._asdict()}).encode() + b"\n"


def _name(number: int) -> str:
    return f"{FOLDER}{number:012}.json"


def _mark(key: str) -> str:
    return f"erased/{key[:2]}/{key}"


def _deferral(key: str) -> str:
    return f"{DEFERRED}{key}"
