"""A subject's kind as a relational engine keeps it: one run of keys, and one row that counts what is in it.

Every change of records goes through a ``Tally``: it counts memories and bytes exactly, numbers the
transactions and lists the changed records, so that indexes in any process can follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.core.errors import StoreFullError
from holdfast.core.records import COUNT_BITS, KIND_BITS, Kind, Subject, Usage
from holdfast.storage.relational.database import Question, Transaction

#: Before everything, in an order of a moment and a key.
START: Final = (-(2**63), -(2**63))
#: The list of changes of a scope is cut to this many transactions now and then; an index further behind reloads.
_LISTED: Final = 256
#: A transaction that changes more records than this lists none of them; indexes reload.
_BULK: Final = 2_000


def key_range(subject: int, kind: Kind, start: int = 0) -> tuple[int, int]:
    """The first (from a count on) and the last key that records of a subject's kind can have."""
    scope = (subject << KIND_BITS | kind.code) << COUNT_BITS
    return scope | start, scope | ((1 << COUNT_BITS) - 1)


def all_keys(subject: int) -> tuple[int, int]:
    """The first and the last key that records of a subject can have."""
    return subject << KIND_BITS + COUNT_BITS, (subject + 1 << KIND_BITS + COUNT_BITS) - 1


def read_alias(tx: Transaction, subject: int | None) -> str | None:
    """The pseudonym of a subject, by its number."""
    alias: bytes | None = None if subject is None else tx.value("records.alias", (subject,))
    return None if alias is None else alias.hex()


class QuotaRow(NamedTuple):
    """A quota that was set. ``None`` is the default, -1 is no limit."""

    max_memories: int | None
    max_bytes: int | None
    user_id: str = ""


def limits(tx: Transaction, subject: Subject, kind: Kind) -> tuple[int | None, int | None]:
    """The quota in force: the user's own where set, else the tenant's, else the kind's default."""
    tenant, user_id = subject.tenant, subject.user_id
    found = tx.all(QuotaRow, "records.quotas", (tenant, user_id, kind.code))
    return _in_force(kind, sorted(found, key=lambda quota: quota.user_id))  # the tenant's, '', comes first


def _in_force(kind: Kind, quotas: Iterable[QuotaRow]) -> tuple[int | None, int | None]:
    memories: int = kind.max_memories
    size: int = kind.max_bytes
    for quota in quotas:
        memories = memories if quota.max_memories is None else quota.max_memories
        size = size if quota.max_bytes is None else quota.max_bytes
    return (None if memories < 0 else memories), (None if size < 0 else size)


class Counts(NamedTuple):
    """What the counting row of a scope says."""

    seq: int = 0
    floor: int = 0
    next: int = 0
    memories: int = 0
    bytes: int = 0


class WriteContext(NamedTuple):
    """What a write needs to know before it begins, at one look: much of a short write is asking."""

    number: int | None
    seq: int
    floor: int
    next: int
    memories: int
    bytes: int
    their_memories: int | None
    """The quota of the tenant."""
    their_bytes: int | None
    own_memories: int | None
    """The quota of the user."""
    own_bytes: int | None
    version: int
    """The version of the tenant's rules."""
    is_held: bool
    """Whether a hold stands that may cover something of the subject."""
    is_removed: bool
    """Whether one of the agents is in the recycle bin."""

    @property
    def counts(self) -> Counts:
        """The counting row of the scope."""
        return Counts(self.seq, self.floor, self.next, self.memories, self.bytes)

    def limits(self, kind: Kind) -> tuple[int | None, int | None]:
        """The quota in force."""
        quotas = ((self.their_memories, self.their_bytes), (self.own_memories, self.own_bytes))
        return _in_force(kind, (QuotaRow(*quota) for quota in quotas))


def context_query(subject: Subject, kind: Kind, agents: Iterable[str]) -> Question:
    """How all of it is asked for."""
    tenant, user_id = subject.tenant, subject.user_id
    return "records.opening", (subject, tenant, user_id, kind.code, to_json(sorted(set(agents))))


def read_context(tx: Transaction, asked: Question) -> WriteContext:
    """All of it as it is now."""
    return tx.first(WriteContext, *asked)


class Tally:
    """The counting row of one subject and kind, read, changed in memory, and written back in the same transaction."""

    def __init__(self, tx: Transaction, subject: int, kind: Kind, counts: Counts | None = None) -> None:
        self._tx = tx
        self.scope = subject << KIND_BITS | kind.code
        found = counts or tx.find(Counts, "records.scope", (self.scope,)) or Counts()
        self.seq, self.floor, self.next, self.memories, self.bytes = found
        self._changed: list[str] = []

    def new_key(self) -> int:
        """The key for one more record."""
        if self.next >> COUNT_BITS:
            raise StoreFullError("a user has had as many memories of a kind as a store can ever hold")
        key = self.scope << COUNT_BITS | self.next
        self.next += 1
        return key

    def count(self, memories: int, size: int) -> None:
        """Add to (or take from) what is counted."""
        self.memories += memories
        self.bytes += size

    def note_change(self, record_id: str) -> None:
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
                self._tx.later("records.log_change", (self.scope, self.seq, to_json(self._changed)))
            if self.seq % _LISTED == 0 and self._cut(self.seq - _LISTED):
                self.floor = self.seq - _LISTED
        self._tx.later("records.put_scope", (self.scope, *self.counts))

    def _cut(self, upto: int) -> int:
        """Drop what is listed up to a transaction; how much that was."""
        return self._tx.run("records.forget_changes", (self.scope, upto))

    @property
    def counts(self) -> Counts:
        """What the row says."""
        return Counts(self.seq, self.floor, self.next, self.memories, self.bytes)

    def usage(self, maximum: tuple[int | None, int | None]) -> Usage:
        """What is counted, against a quota."""
        return Usage(self.memories, self.bytes, *maximum)
