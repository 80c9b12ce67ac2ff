"""Facts of entities and schemas of collections in a relational engine: the ``FactStore`` and the ``SchemaStore``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.core.records import Fact, Scope, Subject, succession
from holdfast.storage.relational.database import Database
from holdfast.storage.relational.records import refuse_removed_agents


class SqlFacts:
    """The ``FactStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self, subject: Subject, facts: Sequence[Fact], *, replacing: bool, agent: Scope | None = None
    ) -> list[str]:
        added: list[str] = []
        with self._database.write() as tx:
            number = tx.number_for(subject)
            refuse_removed_agents(tx, [agent])
            known: dict[tuple[str, str], dict[str, Fact]] = {}
            for source in dict.fromkeys(fact.source for fact in facts):
                for row in tx.all(Fact, "facts.of_source", (number, source)):
                    known.setdefault((source, row.name), {})[row.id] = parse_fact(row)
            for fact in facts:
                same = known.setdefault((fact.source, fact.name), {})
                ended, new = succession(list(same.values()), fact, replacing=replacing)
                for old in ended:
                    tx.run("facts.end", (old.until, number, old.id))
                for one in new:
                    tx.run("facts.add", (number, *_row(one)))
                    added.append(one.id)
                same.update((one.id, one) for one in (*ended, *new))
        return added

    def end(self, subject: Subject, fact_ids: Sequence[str], *, at: int, agent: Scope | None = None) -> int:
        with self._database.write() as tx:
            number = tx.number_of(subject)
            refuse_removed_agents(tx, [agent])
            ended = 0
            for fact_id in fact_ids:
                ended += tx.run("facts.end_current", (at, number, fact_id))
            return ended

    def facts(self, subject: Subject, entity_ids: Sequence[str]) -> list[Fact]:
        found: dict[str, Fact] = {}
        with self._database.read() as tx:
            number = tx.number_of(subject)
            for entity_id in entity_ids:
                for statement in ("of_source", "of_target"):
                    for row in tx.all(Fact, f"facts.{statement}", (number, entity_id)):
                        found[row.id] = parse_fact(row)
        return sorted(found.values(), key=lambda fact: (fact.since, fact.id))


def _row(fact: Fact) -> tuple[object, ...]:
    value = None if fact.target is not None else to_json(fact.value)
    return fact.id, fact.source, fact.name, fact.target, value, fact.since, fact.until, fact.recorded_at


def parse_fact(row: Fact) -> Fact:
    """A fact as callers know it, whose value was stored as JSON."""
    return row if row.value is None else row._replace(value=json.loads(row.value))


class SqlSchemas:
    """The ``SchemaStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, tenant: str, collection: str, schema: str | None) -> None:
        with self._database.write() as tx:
            if schema is None:
                tx.run("facts.remove_schema", (tenant, collection))
            else:
                tx.run("facts.put_schema", (tenant, collection, schema))

    def get(self, tenant: str, collection: str) -> str | None:
        with self._database.read() as tx:
            schema: str | None = tx.value("facts.schema", (tenant, collection))
        return schema
