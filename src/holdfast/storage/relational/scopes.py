"""A subject's kind as a relational engine keeps it: one run of keys, and one row that counts what is in it.

Every change of records goes through a ``Tally``: it counts memories and bytes exactly, numbers the
transactions and lists the changed records, so that indexes in any process can follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.core.content import to_json
from holdfast.core.errors import StoreFullError
from holdfast.core.records import Kind, Subject, Usage
from holdfast.storage.relational.database import Names, Question, Row, Transaction

SQL: Final = Names("records")
#: Before everything, in an order of a moment and a key.
START: Final = (-(2**63), -(2**63))
_KIND_BITS: Final = 3
_COUNT_BITS: Final = 29
#: The list of changes of a scope is cut to this many transactions now and then; an index further behind reloads.
_LISTED: Final = 256
#: A transaction that changes more records than this lists none of them; indexes reload.
_BULK: Final = 2_000


def key_range(subject: int, kind: Kind, start: int = 0) -> tuple[int, int]:
    """The first (from a count on) and the last key that records of a subject's kind can have."""
    scope = (subject << _KIND_BITS | kind.code) << _COUNT_BITS
    return scope | start, scope | ((1 << _COUNT_BITS) - 1)


def all_keys(subject: int) -> tuple[int, int]:
    """The first and the last key that records of a subject can have."""
    return subject << _KIND_BITS + _COUNT_BITS, (subject + 1 << _KIND_BITS + _COUNT_BITS) - 1


def limits(tx: Transaction, subject: Subject, kind: Kind) -> tuple[int | None, int | None]:
    """The quota in force: the user's own where set, else the tenant's, else the kind's default."""
    tenant, user_id = subject.tenant, subject.user_id
    found = sorted(tx.rows(SQL["quotas"], (tenant, user_id, kind.code)))  # '' comes first
    return _in_force(kind, [(most, most_bytes) for _, most, most_bytes in found])


def _in_force(kind: Kind, given: Iterable[tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    memories: int = kind.max_memories
    size: int = kind.max_bytes
    for most, most_bytes in given:
        memories = memories if most is None else most
        size = size if most_bytes is None else most_bytes
    return (None if memories < 0 else memories), (None if size < 0 else size)


class WriteContext(NamedTuple):
    """What a write needs to know before it begins, at one look: much of a short write is asking."""

    counts: tuple[int, int, int, int, int]
    limits: tuple[int | None, int | None]
    version: int
    """The version of the tenant's rules."""
    is_held: bool
    """Whether a hold stands that may cover something of the subject."""
    is_removed: bool
    """Whether one of the agents is in the recycle bin."""
    others: Row
    """What was answered, but for the counts."""


def context_query(subject: Subject, kind: Kind, agents: Iterable[str]) -> Question:
    """How all of it is asked for."""
    tenant, user_id = subject.tenant, subject.user_id
    return SQL["opening"], (subject, tenant, user_id, kind.code, to_json(sorted(set(agents))))


def read_context(tx: Transaction, kind: Kind, asked: Question) -> WriteContext:
    """All of it as it is now."""
    row = tx.first(*asked) or ()
    limits = _in_force(kind, [(row[6], row[7]), (row[8], row[9])])
    return WriteContext(
        (row[1], row[2], row[3], row[4], row[5]), limits, row[10], bool(row[11]), bool(row[12]), row[6:]
    )


class Tally:
    """The counting row of one subject and kind, read, changed in memory, and written back in the same transaction."""

    def __init__(
        self, tx: Transaction, subject: int, kind: Kind, counts: tuple[int, int, int, int, int] | None = None
    ) -> None:
        self._tx = tx
        self.scope = subject << _KIND_BITS | kind.code
        row: tuple[int, ...] = counts or tx.one(SQL["scope"], (self.scope,)) or (0, 0, 0, 0, 0)
        self.seq, self.floor, self.next, self.memories, self.bytes = row
        self._changed: list[str] = []

    def new_key(self) -> int:
        """The key for one more record."""
        if self.next >> _COUNT_BITS:
            raise StoreFullError("a user has had as many memories of a kind as a store can ever hold")
        key = self.scope << _COUNT_BITS | self.next
        self.next += 1
        return key

    def count(self, memories: int, size: int) -> None:
        """Add to (or take from) what is counted."""
        self.memories += memories
        self.bytes += size

    def changed(self, record_id: str) -> None:
        """List a record that was there before as changed."""
        self._changed.append(record_id)

    def save(self) -> None:
        """Write the row and the list of changes."""
        self.seq += 1
        if len(self._changed) > _BULK:
            self._cut(self.seq)
            self.floor = self.seq
        else:
            if self._changed:
                self._tx.later(SQL["log_change"], (self.scope, self.seq, to_json(self._changed)))
            if self.seq % _LISTED == 0 and self._cut(self.seq - _LISTED):
                self.floor = self.seq - _LISTED
        row = (self.scope, self.seq, self.floor, self.next, self.memories, self.bytes)
        self._tx.later(SQL["put_scope"], row)

    def _cut(self, upto: int) -> int:
        """Drop what is listed up to a transaction; how much that was."""
        return self._tx.run(SQL["forget_changes"], (self.scope, upto))

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """What the row says."""
        return self.seq, self.floor, self.next, self.memories, self.bytes

    def usage(self, maximum: tuple[int | None, int | None]) -> Usage:
        """What is counted, against a quota."""
        return Usage(self.memories, self.bytes, *maximum)
