"""Records as rows: how they are stored and read, and where they came from (the ``ProvenanceStore``).

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
from holdfast.core.records import TYPES, Record, Scope, State, Subject
from holdfast.core.values import agent_of, agent_source, is_packed, pack, parse_json_object, to_json, unpack
from holdfast.ports.records import Written
from holdfast.storage.relational.database import NOBODY, Database, Transaction
from holdfast.storage.relational.scopes import all_keys

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
