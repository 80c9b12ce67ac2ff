"""Facts of entities in SQLite: the ``FactStore``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from retain.core.content import to_json
from retain.core.facts import succession
from retain.core.records import Fact
from retain.storage.sql import statements
from retain.storage.sqlite.database import Database
from retain.storage.sqlite.scopes import ensure_subject, subject_no

SQL: Final = statements("retain.storage.sqlite", "facts.sql")


class SqliteFacts:
    """The ``FactStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, subject: str, facts: Sequence[Fact], *, replacing: bool) -> list[str]:
        added: list[str] = []
        with self._database.write() as connection:
            number = ensure_subject(connection, subject)
            for fact in facts:
                known = [_fact(row) for row in connection.execute(SQL["of_source"], (number, fact.source))]
                ended, new = succession(known, fact, replacing=replacing)
                for old in ended:
                    connection.execute(SQL["end"], (old.until, number, old.id))
                for one in new:
                    connection.execute(SQL["add"], (number, *_row(one)))
                    added.append(one.id)
        return added

    def end(self, subject: str, fact_ids: Sequence[str], *, at: int) -> int:
        with self._database.write() as connection:
            number = subject_no(connection, subject)
            ended = 0
            for fact_id in fact_ids:
                connection.execute(SQL["end_current"], (at, number, fact_id))
                ended += connection.changes()
            return ended

    def facts(self, subject: str, entity_ids: Sequence[str]) -> list[Fact]:
        found: dict[str, Fact] = {}
        with self._database.read() as connection:
            number = subject_no(connection, subject)
            for entity_id in entity_ids:
                for statement in ("of_source", "of_target"):
                    for row in connection.execute(SQL[statement], (number, entity_id)):
                        found[row[0]] = _fact(row)
        return sorted(found.values(), key=lambda fact: (fact.since, fact.id))


def _row(fact: Fact) -> tuple[object, ...]:
    value = None if fact.target is not None else to_json(fact.value)
    return fact.id, fact.source, fact.name, fact.target, value, fact.since, fact.until, fact.recorded_at


def _fact(row: Sequence[Any]) -> Fact:
    return Fact(row[0], row[1], row[2], row[3], None if row[4] is None else json.loads(row[4]), *row[5:])
