"""Records as rows: their keys and counts, and how they are stored and read.

A subject's kind is one run of keys, and one row that counts what is in it. Every change of records goes through that
row: it counts memories and bytes exactly, numbers the transactions and lists the changed records, so that indexes in
any process can follow.

A record's own row says what it was derived from. The table of derivations says that once more, the other way round; its
rows go with the record's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from holdfast.core.clock import watch
from holdfast.core.decisions import Held, RecordFacts
from holdfast.core.errors import StoreFullError
from holdfast.core.records import (
    COUNT_BITS,
    HISTORY,
    KIND_BITS,
    LIVE,
    TYPES,
    Encoding,
    Entry,
    Kind,
    Record,
    Scope,
    State,
    Subject,
    Usage,
)
from holdfast.core.texts import hash_text
from holdfast.core.values import is_packed, list_as_json, pack, parse_json_object, to_json, unpack
from holdfast.ports.records import Content
from holdfast.storage.relational.database import NOBODY, Instead, Question, SqlStore, Transaction

#: Before everything, in an order of a moment and a key.
START: Final = (-(2**63), -(2**63))
#: Hidden for as long as anyone can remember.
_GONE: Final = 0
#: The list of changes of a scope is cut to this many transactions now and then; an index further behind reloads.
_LISTED: Final = 256
#: A transaction that changes more records than this lists none of them; indexes reload.
_BULK: Final = 2_000


def scope_number(subject: int, kind: Kind) -> int:
    """The number of a subject's kind, which the keys of its records begin with."""
    return subject << KIND_BITS | kind.code


def key_range(subject: int, kind: Kind, start: int = 0) -> tuple[int, int]:
    """The first (from a count on) and the last key that records of a subject's kind can have."""
    scope = scope_number(subject, kind) << COUNT_BITS
    return scope | start, scope | ((1 << COUNT_BITS) - 1)


def all_keys(subject: int) -> tuple[int, int]:
    """The first and the last key that records of a subject can have."""
    return subject << KIND_BITS + COUNT_BITS, (subject + 1 << KIND_BITS + COUNT_BITS) - 1


def read_alias(tx: Transaction, subject: int | None) -> str | None:
    """The pseudonym of a subject, by its number."""
    alias = None if subject is None else tx.find(bytes, "records.alias", (subject,))
    return None if alias is None else alias.hex()


def known_model(tx: Transaction, model: str) -> int | None:
    """The code of a model that has been seen before."""
    return tx.find(int, "records.model", (model,))


class NumberAlias(NamedTuple):
    """A subject's number, and its pseudonym."""

    number: int
    alias: bytes


def read_aliases(tx: Transaction, numbers: Iterable[int | None]) -> dict[int | None, str]:
    """The pseudonyms of subjects, by their numbers."""
    wanted = [str(number) for number in numbers if number is not None]
    return {row.number: row.alias.hex() for row in tx.all(NumberAlias, "records.aliases", (to_json(wanted),))}


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
    keeps_out: bool
    """Whether there are texts that are not to come back."""

    @property
    def counts(self) -> Counts:
        """The counting row of the scope."""
        return Counts._make(self[1:6])

    def after(self, number: int, counts: Counts) -> WriteContext:
        """The same for a subject's next write, once this one has counted."""
        return WriteContext._make((number, *counts, *self[6:]))

    def counts_after(self, instead: Instead) -> Counts:
        """What is counted once another record was found, or changed, instead of adding one."""
        return self.counts if instead.bytes is None else self.counts._replace(seq=self.seq + 1, bytes=instead.bytes)

    def limits(self, kind: Kind) -> tuple[int | None, int | None]:
        """The quota in force: the user's own where set, else the tenant's, else the kind's default; -1 is no limit."""
        _, _, _, _, _, _, their_memories, their_bytes, own_memories, own_bytes, *_ = self
        memories = kind.max_memories if their_memories is None else their_memories
        memories = memories if own_memories is None else own_memories
        size = kind.max_bytes if their_bytes is None else their_bytes
        size = size if own_bytes is None else own_bytes
        return (None if memories < 0 else memories), (None if size < 0 else size)


def context_query(subject: Subject, kind: Kind, agents: Iterable[str]) -> Question:
    """How all of it is asked for."""
    return "records.write_context", (subject, *subject.parts, kind.code, _list_agents(frozenset(agents)))


@lru_cache(maxsize=1_024)
def _list_agents(agents: frozenset[str]) -> str:
    return to_json(sorted(agents))


def read_context(tx: Transaction, subject: Subject, kind: Kind) -> WriteContext:
    """All of it as it is now, in the midst of a transaction; no agent is asked for."""
    (context,) = tx.all(WriteContext, *context_query(subject, kind, ()))
    return context


class ScopeCounter:
    """The counting row of one subject and kind, read, changed in memory, and written back in the same transaction."""

    def __init__(self, tx: Transaction, subject: int, kind: Kind, counts: Counts | None = None) -> None:
        self._tx = tx
        self.scope = scope_number(subject, kind)
        self.counts = counts or tx.find(Counts, "records.scope", (self.scope,)) or Counts()
        """What the row says."""
        self.seq, self.floor, self.next, self.memories, self.bytes = self.counts
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
        for statement in self.changes():
            self._tx.later(*statement)

    def changes(self) -> Iterator[Question]:
        """What writes the row and the list of changes, once."""
        self.seq += 1
        if len(self._changed) > _BULK:
            self._cut(self.seq)
            self.floor = self.seq
        else:
            if self._changed:
                yield "records.log_change", (self.scope, self.seq, to_json(self._changed))
            if self.seq % _LISTED == 0 and self._cut(self.seq - _LISTED):
                self.floor = self.seq - _LISTED
        self.counts = Counts(self.seq, self.floor, self.next, self.memories, self.bytes)
        yield "records.put_scope", (self.scope, *self.counts)

    def _cut(self, upto: int) -> int:
        """Drop what is listed up to a transaction; how much that was."""
        return self._tx.run("records.forget_changes", (self.scope, upto))

    def usage(self, maximum: tuple[int | None, int | None]) -> Usage:
        """What is counted, against a quota."""
        return Usage(self.memories, self.bytes, *maximum)


KINDS: Final = {kind.code: kind for kind in TYPES.values()}
STATES: Final = {state.value: state for state in State}
_KIND_NAMES: Final[dict[int | None, str]] = {None: HISTORY}
_KIND_NAMES.update({code: kind.name.value for code, kind in KINDS.items()})


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
    ttl: int | None
    revision: int
    key: int = 0
    subject: Subject = NOBODY


class CurrentRow(NamedTuple):
    """A record as a move finds it; its metadata only where there are holds to ask."""

    key: int
    kind: int
    state: State
    version: int
    size: int
    agent_id: str
    session_id: str | None
    metadata: str
    pack: int | None
    name: str | None
    derived_from: str | None
    id: str
    ttl: int | None
    revision: int
    text_hash: int
    most_versions: int | None
    """How many ended versions its rules keep; ``None``: all."""
    is_over: bool = False
    """Whether its time is over, where that was asked."""
    has_twins: bool = True
    """Whether others may have its text."""


class EncodingRow(NamedTuple):
    """What a record is found by."""

    id: str
    model: str | None
    vectors: bytes | None
    terms: bytes


class ContentRow(NamedTuple):
    """What of a record goes to cold storage, as it is stored."""

    id: str
    metadata: str
    content: str | bytes
    body: str | bytes | None
    model: str | None
    vectors: bytes | None
    terms: bytes

    def value(self) -> Content:
        """The same as callers know it."""
        text, body = unpack(self.content), None if self.body is None else unpack(self.body)
        stored = (self.metadata, self.content, self.body, self.vectors, self.terms)
        size = sum([len(one.encode() if isinstance(one, str) else one) for one in stored if one is not None])
        encoding = Encoding(self.model, self.vectors, self.terms)
        return Content(self.id, self.metadata, text, body, encoding, size)


class Stored(NamedTuple):
    """What a record's own text and data become in its row, in the order in which they are written."""

    metadata: str
    content: str | bytes
    body: str | bytes | None
    size: int
    """Bytes of the content and the body, before any compression."""
    text_hash: int


def to_stored(
    content: str, metadata: dict[str, Any], body: dict[str, Any] | None, text_hash: int | None = None
) -> Stored:
    """The stored form of a record's text and data, with the hash of the text, if that is not given."""
    text = None if body is None else to_json(body)
    size = len(content.encode()) + (0 if text is None else len(text.encode()))
    noted = to_json(metadata) if metadata else "{}"
    hashed = hash_text(content) if text_hash is None else text_hash
    return Stored(noted, pack(content), None if text is None else pack(text), size, hashed)


def as_record(subject: Subject, row: RecordRow) -> Record:
    """A stored record as callers know it."""
    return as_records(subject, (row,))[0]


def as_records(subject: Subject, rows: Iterable[RecordRow]) -> list[Record]:
    """Stored records as callers know them; whoever reads many stops at the deadline. Each recall does this, so that it
    is one loop.
    """
    tenant, user_id = subject.parts
    scopes: dict[tuple[str, str | None], Scope] = {}
    records = []
    for row in watch(rows):
        content, place = row.content, (row.agent_id, row.session_id)
        scope = scopes[place] = scopes.get(place) or Scope(tenant, user_id, *place)
        record = Record(
            row.id,
            KINDS[row.kind].name,
            scope,
            content if isinstance(content, str) else unpack(content),
            row.created_at,
            row.updated_at,
            row.dated_at,
            parse_json_object(row.metadata),
            None if row.body is None else parse_json_object(unpack(row.body)),
            row.name,
            STATES[row.state],
            None if row.previous is None else STATES[row.previous],
            *(row.version, row.aged_from, row.archive_at, row.hidden_from, row.moved_at, row.purge_at, row.reason),
            row.pack,
            not isinstance(content, str) and is_packed(content),
            row.source,
            tuple(json.loads(row.derived_from)) if row.derived_from else (),
            *(row.bundle, row.ttl, row.revision),
        )
        records.append(record)
    return records


class TotalRow(NamedTuple):
    """How many records moved, and why."""

    kind: str
    state: str
    cause: str
    records: int


class FactsRow(NamedTuple):
    """What is decided by of a record, and who wrote it; without a kind, of a conversation."""

    id: str
    kind: int | None
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
    metadata: str = "{}"

    def facts(self, subject: Subject | None = None) -> RecordFacts:
        """What is decided by; of a record in the recycle bin, without its metadata."""
        whose = subject or self.subject
        metadata = json.loads(self.metadata) if self.metadata != "{}" else {}
        thing = Held(whose.user_id, self.agent_id, self.session_id, self.id, metadata)
        when = (self.version, self.aged_from, self.purge_at)
        kind, state, is_cold = kind_name(self.kind), STATES[self.state], self.pack is not None
        return RecordFacts(self.id, kind, whose, thing, state, *when, self.size, is_cold)


def kind_name(code: int | None) -> str:
    """The name of a kind; without a code, a conversation is meant."""
    return _KIND_NAMES[code]


#: Why a record is in the recycle bin that came back from a backup.
KEPT_OUT_REASON: Final = "its text is kept out"


class KeptRow(NamedTuple):
    """A fingerprint that is kept out, and the memory that was deleted for it."""

    print: str
    memory_id: str


def find_kept_out(tx: Transaction, number: int, hashes: Iterable[int]) -> dict[int, str]:
    """Those hashes of texts that a subject keeps out, with the ids of the memories that were deleted for it."""
    wanted = sorted(set(hashes))
    if not wanted or tx.find(int, "kept_out.any", (number,)) is None:
        return {}
    prints = tx.sign_texts(read_alias(tx, number) or "", wanted)
    found = {row.print: row.memory_id for row in tx.all(KeptRow, "kept_out.matching", (number, to_json(prints)))}
    return {one: found[signed] for one, signed in zip(wanted, prints, strict=True) if signed in found}


class SameRow(NamedTuple):
    """A record that has a text, or had it before it was corrected."""

    id: str
    text_hash: int
    is_current: bool
    key: int


def find_same(
    tx: Transaction, number: int, kind: Kind, hashes: Mapping[str, int], agent: str | None, *, now: int
) -> tuple[dict[str, str], frozenset[str]]:
    """The records that have or had the texts of new ones, and new ones that others repeat, by the ids of those that are
    not to be added; which of these are texts of before.
    """
    asked = (number, now, to_json(sorted(set(hashes.values()))), kind.code, agent)
    rows = {row.text_hash: row for row in tx.all(SameRow, "records.of_text", asked)}
    there = {text_hash: row.id for text_hash, row in rows.items()}
    pairs = ((record_id, there.setdefault(text_hash, record_id)) for record_id, text_hash in hashes.items())
    found = {record_id: same for record_id, same in pairs if same != record_id}
    ended = {text_hash for text_hash, row in rows.items() if not row.is_current}
    return found, frozenset(record_id for record_id in found if hashes[record_id] in ended)


def note_derivations(tx: Transaction, number: int, keyed: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Note what new records of a subject, by their keys, were derived from."""
    rows = [(number, source_id, key) for key, sources in keyed for source_id in sources]
    if rows:
        tx.run_many("records.derive", rows)


def note_other_derivations(tx: Transaction, number: int, key: int, sources: Sequence[str]) -> None:
    """Note that a record was derived from these, and not from what it said before."""
    tx.run("records.underive", (key,))
    note_derivations(tx, number, [(key, sources)])


class SqlRecordReader(SqlStore):
    """The ``RecordReader``, ``GroupReader`` and ``RecordBin`` of the relational engines."""

    def get(self, subject: Subject, record_id: str) -> Record | None:
        found = self._ask_known(subject, RecordRow, "records.get", record_id)
        return self._hide_removed(as_record(subject, found[0])) if found else None

    def _hide_removed(self, record: Record) -> Record:
        """A record; hidden, if it is a removed agent's own, even before it has followed the agent."""
        whose = (record.scope.tenant, record.scope.agent_id)
        own = "agent" in TYPES[record.kind].scope and record.state in LIVE
        is_removed = own and self._find(int, "records.removed_agent", *whose) is not None
        return replace(record, hidden_from=_GONE) if is_removed else record

    def find(self, tenant: str, record_id: str) -> Record | None:
        found = self._database.ask(RecordRow, "records.find", (record_id, tenant))
        return next((as_record(row.subject, row) for row in found), None)

    def named(self, subject: Subject, kind: Kind, name: str, *, now: int) -> Record | None:
        return self.find_named(subject, kind, [name], now=now).get(name)

    def find_named(self, subject: Subject, kind: Kind, names: Sequence[str], *, now: int) -> dict[str, Record]:
        is_one = len(names) == 1  # which is usual, and looked up faster
        statement = "records.get_named" if is_one else "records.get_all_named"
        asked = (kind.code, names[0] if is_one else to_json(names), now)
        found = self._ask_known(subject, RecordRow, statement, *asked)
        return {str(row.name): as_record(subject, row) for row in found}

    def fetch(self, subject: Subject, record_ids: Sequence[str], *, now: int) -> dict[str, Record]:
        if not record_ids:
            return {}
        asked = (list_as_json(record_ids), now, subject.tenant)
        found = self._ask_known(subject, RecordRow, "records.fetch", *asked)
        records = {record.id: record for record in as_records(subject, found)}
        return {record_id: records[record_id] for record_id in record_ids if record_id in records}

    def entries(self, subject: Subject, record_ids: Sequence[str]) -> dict[str, Entry]:
        return self.entries_of([(subject, record_ids)])[0]

    def entries_of(self, wanted: Sequence[tuple[Subject, Sequence[str]]]) -> list[dict[str, Entry]]:
        with self._database.read() as tx:
            numbers = tx.numbers_of([subject for subject, _ in wanted])
            asked = [(to_json(ids), number) for (_, ids), number in zip(wanted, numbers, strict=True)]
            tx.ask_ahead((name, one) for one in asked for name in ("records.entries", "records.encodings"))
            found = [tx.all(RecordRow, "records.entries", one) for one in asked]
            encodings = [tx.all(EncodingRow, "records.encodings", one) for one in asked]
        entries = []
        for (subject, _), rows, encoded in zip(wanted, found, encodings, strict=True):
            known = {row.id: Encoding(row.model, row.vectors, row.terms) for row in encoded}
            entries.append({row.id: Entry(as_record(subject, row), known[row.id]) for row in rows})
        return entries

    def contents_of(self, wanted: Sequence[tuple[Subject, Sequence[str]]]) -> list[dict[str, Content]]:
        with self._database.read() as tx:
            numbers = tx.numbers_of([subject for subject, _ in wanted])
            asked = [(to_json(ids), number) for (_, ids), number in zip(wanted, numbers, strict=True)]
            tx.ask_ahead(("records.contents", one) for one in asked)
            found = [tx.all(ContentRow, "records.contents", one) for one in asked]
        return [{row.id: row.value() for row in rows} for rows in found]

    def binned(
        self, tenant: str, subject: Subject | None = None, *, after: tuple[int, int] = START, limit: int
    ) -> tuple[list[Record], tuple[int, int]]:
        with self._database.read() as tx:
            if subject is None:
                found = tx.all(RecordRow, "records.bin_of_tenant", (*after, limit, tenant))
            else:
                keys = all_keys(tx.number_of(subject) or 0)
                found = tx.all(RecordRow, "records.bin_of_subject", (*after, limit, *keys))
        last = (found[-1].purge_at or 0, found[-1].key) if found else after
        return [as_record(row.subject, row) for row in found], last

    def bundled(self, tenant: str, bundle: str, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        found = self._database.ask(RecordRow, "records.bundled", (bundle, after, tenant, limit))
        return [as_record(row.subject, row) for row in found], found[-1].key if found else after

    def live(self, subject: Subject, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[RecordFacts], int]:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            first, last = key_range(number, kind)
            found = tx.all(FactsRow, "records.live_ids", (max(first, after + 1), last, limit))
        return [row.facts(subject) for row in found], found[-1].key if found else after
