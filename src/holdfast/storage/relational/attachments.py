"""What is attached to records: facts, schemas and cold objects (``FactStore``, ``SchemaStore``, ``PackStore``)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.core.errors import NotFoundError
from holdfast.core.records import Fact, Scope, Subject, succession
from holdfast.core.values import to_json
from holdfast.ports.coordination import Lease
from holdfast.ports.objects import Pack
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.records import refuse_removed_agents
from holdfast.storage.relational.rows import read_alias


class SqlPacks:
    """The ``PackStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alias(self, subject: Subject) -> str:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            return _alias(tx, number)

    def open(
        self, subject: Subject, *, name: str, records: int, size: int, digest: bytes, now: int, alias: str | None = None
    ) -> int:
        with self._database.write() as tx:
            number = tx.number_for(subject) if alias is None else tx.number_of(subject)
            if alias is not None and _alias(tx, number) != alias:
                raise _erased()
            return tx.number("packs.open", (number, name, records, size, digest, now))

    def get(self, number: int) -> Pack | None:
        with self._database.read() as tx:
            pack = tx.find(Pack, "packs.get", (number,))
        return None if pack is None or pack.state == "leaving" else pack

    def unsettled(self, tenant: str) -> list[Pack]:
        with self._database.read() as tx:
            return tx.all(Pack, "packs.unsettled", (tenant,))

    def members(self, number: int) -> list[str]:
        with self._database.read() as tx:
            return tx.values("packs.members", (number,))

    def small(self, subject: Subject, *, below: int) -> Pack | None:
        with self._database.read() as tx:
            return tx.find(Pack, "packs.small", (subject, below))

    def oldest(self, limit: int) -> list[Pack]:
        with self._database.read() as tx:
            return tx.all(Pack, "packs.oldest", (limit,))

    def swap(self, old: int, new: int, *, members: int, lease: Lease | None = None) -> bool:
        with self._database.write() as tx:
            check_lease(tx, lease)
            _lock_subject(tx, old)
            whole = tx.number("packs.count_members", (old,)) == members
            if not whole or tx.value("packs.is_writing", (new,)) is None:
                return False
            tx.run("packs.move_members", (new, old))
            tx.run("packs.empty", (old,))
            tx.run("packs.set_state", ("leaving", old))
            return True

    def settle(self, number: int) -> str | None:
        with self._database.write() as tx:
            _lock_subject(tx, number)
            state: str | None = tx.value("packs.settle", (number,))
            if state == "leaving":
                tx.run("packs.empty", (number,))
        return state

    def leaving(self, number: int) -> list[Pack]:
        with self._database.read() as tx:
            pack = tx.find(Pack, "packs.get", (number,))
        return [pack] if pack is not None and pack.state == "leaving" else []

    def forget(self, number: int) -> None:
        with self._database.write() as tx:
            tx.run("packs.forget", (number,))


def _alias(tx: Transaction, number: int | None) -> str:
    alias = read_alias(tx, number)
    if alias is None:
        raise _erased()
    return alias


def _erased() -> NotFoundError:
    return NotFoundError("nothing is kept of that user, or not any more: they were erased meanwhile")


def _lock_subject(tx: Transaction, number: int) -> None:
    """Have the subject of a pack to itself."""
    pack = tx.find(Pack, "packs.get", (number,))
    if pack is not None:
        tx.number_of(pack.subject)


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
