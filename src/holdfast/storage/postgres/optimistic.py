"""What a write that opens a scope is likely to find: the same as the last one left, if nobody else wrote there since.

Then it need not ask first. It says what it relies on, and the server does nothing if that is not so: the whole write is
one statement, and one round trip.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from holdfast.storage.relational.database import Question, Row, digest

#: Of so many scopes it is remembered what was left there.
_MOST: Final = 4_096


class _Left(NamedTuple):
    row: Row
    is_sure: bool
    """Whether the write before found what was left there, too: where others write as well, asking first is quicker."""


class Expectations:
    """The answers that questions were left with. Safe for many threads."""

    def __init__(self) -> None:
        self._left: OrderedDict[bytes, _Left] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, question: Question) -> Row | None:
        """What a write can rely on, if there is anything. It is for that write alone: another one asks."""
        with self._lock:
            left = self._left.get(key := digest(question))
            if left is None or not left.is_sure:
                return None
            del self._left[key]
            return left.row

    def give_back(self, question: Question, row: Row) -> None:
        """What a write took, and found to be so, without changing it."""
        with self._lock:
            self._left.setdefault(digest(question), _Left(row, is_sure=True))

    def leave(self, question: Question, found: Row | None, row: Row) -> None:
        """What the answer is now, after a write that found another one, or relied on it (``None``)."""
        with self._lock:
            before = self._left.pop(key := digest(question), None)
            self._left[key] = _Left(row, found is None or (before is not None and before.row == found))
            if len(self._left) > _MOST:
                self._left.popitem(last=False)


def as_record(row: Row) -> str:
    """A row of numbers and truths as PostgreSQL writes a record."""
    return "(" + ",".join("" if value is None else _written(value) for value in row) + ")"


def _written(value: object) -> str:
    return str(value)[0].lower() if isinstance(value, bool) else str(value)
