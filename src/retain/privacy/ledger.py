"""The ledger: every erasure, in the order in which they began, outside of the data and of every backup.

An entry names the key that was destroyed, which is the pseudonym of whoever was erased, and nothing of the person. Each
goes on from the hash of the one before it; none is ever changed or removed. A store that was restored from a backup is
held against it before anyone can read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from retain.core.content import to_json
from retain.core.errors import ConflictError, LedgerError, ObjectMissingError
from retain.ports import ObjectStore

FOLDER: Final = "ledger/"
_NAME: Final = re.compile(r"ledger/(\d{12})\.json")
_GENESIS: Final = "0" * 64
_TRIES: Final = 1_000


class Erased(NamedTuple):
    """An entry: who was erased, under which pseudonym, and when that began."""

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
        """Write down that whoever has a key is being erased; the entry that is there, if that was written before."""
        self._objects.prepare()
        known = self.find(key)
        if known is not None:
            return known
        for _ in range(_TRIES):
            last = self.last()
            entry = _entry(last + 1, key, at, self._read(last).hash if last else _GENESIS)
            with suppress(ConflictError):  # another has written that one
                self._objects.put(_name(entry.no), _text(entry), absent=True)
                self._objects.put(_mark(key), b"%d\n" % entry.no)
                return entry
        raise LedgerError("the ledger is written by so many others that no entry could be added; try again")

    def find(self, key: str) -> Erased | None:
        """The entry of a key, if whoever had it was erased. A crash may leave an entry that is not found by its key;
        then it is there twice, which changes nothing.
        """
        try:
            return self._read(int(self._objects.get(_mark(key))))
        except ObjectMissingError:
            return None

    def last(self) -> int:
        """The number of the last entry; 0 if there is none."""
        return max((number for number, _ in self._names()), default=0)

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
        numbers = sorted(number for number, _ in self._names())
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
                raise LedgerError(f"entry {number} of the ledger does not go on from the one before: one was changed")
            previous = entry.hash
            yield entry

    def _names(self) -> Iterator[tuple[int, str]]:
        for name in self._objects.names(FOLDER):
            found = _NAME.fullmatch(name)
            if found:
                yield int(found[1]), name

    def _read(self, number: int) -> Erased:
        data = self._objects.get(_name(number))
        try:
            kept: dict[str, Any] = json.loads(data)
            entry = _entry(int(kept["no"]), str(kept["key"]), int(kept["at"]), str(kept["previous"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise LedgerError(f"entry {number} of the ledger is damaged: {problem}") from problem
        if entry.no != number or data != _text(entry):
            raise LedgerError(f"entry {number} of the ledger was changed")
        return entry


def _entry(no: int, key: str, at: int, previous: str) -> Erased:
    hashed = hashlib.sha256(to_json(["retain-ledger 1", no, key, at, previous]).encode()).hexdigest()
    return Erased(no, key, at, previous, hashed)


def _text(entry: Erased) -> bytes:
    return to_json({"retain_ledger": 1, **entry._asdict()}).encode() + b"\n"


def _name(number: int) -> str:
    return f"{FOLDER}{number:012}.json"


def _mark(key: str) -> str:
    return f"erased/{key[:2]}/{key}"
