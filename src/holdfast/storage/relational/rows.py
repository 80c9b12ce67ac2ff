"""Records as rows: their keys and counts, how they are stored and read, and where they came from.

A subject's kind is one run of keys, and one row that counts what is in it. Every change of records goes through that
row: it counts memories and bytes exactly, numbers the transactions and lists the changed records, so that indexes in
any process can follow.

A record's own row says who wrote it and what it was derived from. The table of derivations says the latter once more,
the other way round; its rows go with the record's. It is read for one subject at a time: an id that is another user's
leads nowhere, as one that is nobody's does, and nobody is told which it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.core.clock import check_deadline
from holdfast.core.decisions import Held, RecordFacts
from holdfast.core.errors import StoreFullError
from holdfast.core.records import COUNT_BITS, KIND_BITS, TYPES, Kind, Record, Scope, State, Subject, Usage
from holdfast.core.values import agent_of, agent_source, is_packed, pack, parse_json_object, to_json, unpack
from holdfast.ports.records import Written
from holdfast.storage.relational.database import NOBODY, Database, Question, Transaction

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
    return "records.write_context", (subject, tenant, user_id, kind.code, to_json(sorted(set(agents))))


def read_context(tx: Transaction, asked: Question) -> WriteContext:
    """All of it as it is now."""
    return tx.first(WriteContext, *asked)


class ScopeCounter:
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


KINDS: Final = {kind.code: kind for kind in TYPES.values()}
STATES: Final = {state.value: state for state in State}
_EVERY_KEY: Final = (0, 2**63 - 1)


class RecordRow(NamedTuple):
    """A record, as it is stored."""

    kind: int
    id: str
    state: str
    version: int
    agent_id: str
    session_id: str | None
    name: str | None
    created_at: int
    updated_at: int
    dated_at: int
    aged_from: int
    metadata: str
    content: str | bytes
    body: str | bytes | None
    previous: str | None
    archive_at: int | None
    hidden_from: int | None
    moved_at: int | None
    purge_at: int | None
    reason: str | None
    pack: int | None
    source: str | None
    derived_from: str | None
    bundle: str | None
    key: int = 0
    subject: Subject = NOBODY


class Stored(NamedTuple):
    """What a record's own text and data become in its row, in the order in which they are written."""

    metadata: str
    content: str | bytes
    body: str | bytes | None
    size: int
    """Bytes of the content and the body, before any compression."""


def to_stored(content: str, metadata: dict[str, Any], body: dict[str, Any] | None) -> Stored:
    """The stored form of a record's text and data."""
    text = None if body is None else to_json(body)
    size = len(content.encode()) + (0 if text is None else len(text.encode()))
    return Stored(to_json(metadata), pack(content), None if text is None else pack(text), size)


def as_record(subject: Subject, row: RecordRow) -> Record:
    """A stored record as callers know it; whoever reads many stops at the deadline."""
    check_deadline()
    tenant, user_id = subject.tenant, subject.user_id
    return Record(
        id=row.id,
        kind=KINDS[row.kind].name,
        scope=Scope(tenant, user_id, row.agent_id, row.session_id),
        content=unpack(row.content),
        created_at=row.created_at,
        updated_at=row.updated_at,
        dated_at=row.dated_at,
        metadata=parse_json_object(row.metadata),
        body=None if row.body is None else parse_json_object(unpack(row.body)),
        state=STATES[row.state],
        version=row.version,
        aged_from=row.aged_from,
        compressed=is_packed(row.content),
        name=row.name,
        previous=None if row.previous is None else STATES[row.previous],
        archive_at=row.archive_at,
        hidden_from=row.hidden_from,
        moved_at=row.moved_at,
        purge_at=row.purge_at,
        reason=row.reason,
        pack=row.pack,
        source=row.source,
        derived_from=tuple(json.loads(row.derived_from)) if row.derived_from else (),
        bundle=row.bundle,
    )


class FactsRow(NamedTuple):
    """What is decided by of a record, and who wrote it."""

    id: str
    kind: int
    state: str
    version: int
    aged_from: int
    purge_at: int | None
    size: int
    pack: int | None
    agent_id: str
    session_id: str | None
    source: str | None
    key: int
    subject: Subject = NOBODY

    def facts(self, subject: Subject) -> RecordFacts:
        """What is decided by; of a record in the recycle bin, without its metadata."""
        return RecordFacts(
            self.id,
            KINDS[self.kind].name.value,
            subject,
            Held(subject.user_id, self.agent_id, self.session_id, self.id, {}),
            STATES[self.state],
            self.version,
            self.aged_from,
            self.purge_at,
            self.size,
            self.pack is not None,
        )


class SqlProvenance:
    """The ``ProvenanceStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def derived(self, subject: Subject, source_ids: Sequence[str]) -> list[Written]:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            if number is None:
                return []
            found = tx.all(FactsRow, "records.derived", (number, to_json(source_ids)))
        return [_written(subject, row) for row in found]

    def of_source(
        self, tenant: str, source: str, subject: Subject | None = None, *, after: int = 0, limit: int
    ) -> tuple[list[Written], int]:
        agent_id = agent_of(source)
        with self._database.read() as tx:
            first, last = _EVERY_KEY if subject is None else all_keys(tx.number_of(subject) or 0)
            where = (source, max(first - 1, after), last, tenant, limit)
            if agent_id is None:
                found = tx.all(FactsRow, "records.of_source", where)
            else:
                found = tx.all(FactsRow, "records.of_agent", (*where, agent_id))
        return [_written(row.subject, row) for row in found], found[-1].key if found else after


def note_derivations(tx: Transaction, number: int, keyed: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Note what new records of a subject, by their keys, were derived from."""
    rows = [(number, source_id, key) for key, sources in keyed for source_id in sources]
    if rows:
        tx.run_many("records.derive", rows)


def note_other_derivations(tx: Transaction, number: int, key: int, sources: Sequence[str]) -> None:
    """Note that a record was derived from these, and not from what it said before."""
    tx.run("records.underive", (key,))
    note_derivations(tx, number, [(key, sources)])


def _written(subject: Subject, row: FactsRow) -> Written:
    return Written(row.facts(subject), row.source or agent_source(row.agent_id))
