"""Where records came from: the ``ProvenanceStore``, and what is noted for it as records are written.

A record's own row says who wrote it and what it was derived from. The table of derivations says the latter once more,
the other way round; its rows go with the record's. It is read for one subject at a time: an id that is another user's
leads nowhere, as one that is nobody's does, and nobody is told which it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.core.content import agent_of, agent_source, to_json
from holdfast.core.decisions import RecordFacts
from holdfast.core.holds import Held
from holdfast.core.records import State, Subject
from holdfast.ports.records import Written
from holdfast.storage.relational.database import Database, Names, Transaction
from holdfast.storage.relational.moves import KINDS
from holdfast.storage.relational.scopes import all_keys

SQL: Final = Names("records")
_EVERY_KEY: Final = (0, 2**63 - 1)
_KEY, _SUBJECT = 11, 12


class SqlProvenance:
    """The ``ProvenanceStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def derived(self, subject: Subject, source_ids: Sequence[str]) -> list[Written]:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            if number is None:
                return []
            found = tx.rows(SQL["derived"], (number, to_json(source_ids)))
        return [_written(subject, row) for row in found]

    def of_source(
        self, tenant: str, source: str, subject: Subject | None = None, *, after: int = 0, limit: int
    ) -> tuple[list[Written], int]:
        agent_id = agent_of(source)
        with self._database.read() as tx:
            first, last = _EVERY_KEY if subject is None else all_keys(tx.number_of(subject) or 0)
            where = (source, max(first - 1, after), last, tenant, limit)
            if agent_id is None:
                found = tx.rows(SQL["of_source"], where)
            else:
                found = tx.rows(SQL["of_agent"], (*where, agent_id))
        return [_written(Subject.parse(row[_SUBJECT]), row) for row in found], found[-1][_KEY] if found else after


def note_derivations(tx: Transaction, number: int, keyed: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Note what new records of a subject, by their keys, were derived from."""
    rows = [(number, source_id, key) for key, sources in keyed for source_id in sources]
    if rows:
        tx.run_many(SQL["derive"], rows)


def note_other_derivations(tx: Transaction, number: int, key: int, sources: Sequence[str]) -> None:
    """Note that a record was derived from these, and not from what it said before."""
    tx.run(SQL["underive"], (key,))
    note_derivations(tx, number, [(key, sources)])


def _written(subject: Subject, row: Sequence[Any]) -> Written:
    record_id, code, state, version, aged_from, purge_at, size, packed, agent_id, session_id, source = row[:_KEY]
    thing = Held(subject.user_id, agent_id, session_id, record_id, {})
    standing = RecordFacts(
        record_id,
        KINDS[code].name.value,
        subject,
        thing,
        State(state),
        version,
        aged_from,
        purge_at,
        size,
        packed is not None,
    )
    return Written(standing, source or agent_source(agent_id))
