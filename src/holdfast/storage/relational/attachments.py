"""What is attached to records: facts, schemas, cold objects, where they came from, and which texts are kept out.

The ``KeptOutStore``, ``FactStore``, ``SchemaStore``, ``PackStore`` and ``ProvenanceStore`` of the relational engines. A
record's own row says who wrote it and what it was derived from; the table of derivations says the latter the other way
round. It is read for one subject at a time: an id that is another user's leads nowhere, as one that is nobody's does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from holdfast.core.audit import Action, Event, current_actor
from holdfast.core.errors import NotFoundError
from holdfast.core.records import BIN, LIVE, Fact, Move, Outcome, Scope, State, Subject, succession
from holdfast.core.texts import hash_text
from holdfast.core.values import agent_of, agent_source, to_json
from holdfast.ports.coordination import Lease
from holdfast.ports.objects import Pack
from holdfast.ports.records import KeptText, Written
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import SqlStore, Transaction
from holdfast.storage.relational.moves import CurrentRow, MoveBatch, find_current, refuse_removed_agents
from holdfast.storage.relational.rows import KEPT_OUT_REASON, KINDS, FactsRow, all_keys, find_kept_out, read_alias

_EVERY_KEY: Final = (0, 2**63 - 1)


class SqlKeptOut(SqlStore):
    """The ``KeptOutStore`` of the relational engines."""

    def add(
        self,
        subject: Subject,
        record_id: str,
        *,
        now: int,
        note: Callable[[str, Sequence[KeptText]], None],
        agent: Scope | None = None,
    ) -> tuple[Outcome, list[str]]:
        with self._database.write(subject) as tx:
            number = tx.number_of(subject)
            refuse_removed_agents(tx, [agent])
            row = None if number is None else find_current(tx, record_id, number)
            if number is None or row is None or row.state not in LIVE:
                return Outcome.STALE, []
            hashes = [row.text_hash]
            if row.name is not None and KINDS[row.kind].has_facts:  # an entity is made as its name, and then told more
                hashes.append(hash_text(row.name))
            batch = MoveBatch(tx, subject, number, now=now)
            same = tx.all(CurrentRow, "records.live_of_text", (number, to_json(hashes)))
            moves = [_to_bin(one, "deleted by the user, and its text is kept out", now) for one in same]
            for one, move in zip(same, moves, strict=True):
                if (hold := batch.holds.covering(one)) is not None:
                    batch.refuse(move, KINDS[one.kind].name.value, hold=hold.id)
                    batch.save()
                    return Outcome.HELD, [one.id]
            batch.move_all(moves)
            alias, author = _alias(tx, number), current_actor(tx.author)
            texts = [KeptText(one, record_id, now, author) for one in tx.sign_texts(alias, hashes)]
            for text in texts:
                tx.run("kept_out.add", (number, *text))
            batch.save()
            append(tx, number, [Event(now, Action.KEPT_OUT, record_id, {"memories": len(same)})])
            note(alias, texts)
            return Outcome.DONE, [one.id for one in same]

    def adopt(self, subject: Subject, texts: Sequence[KeptText], *, now: int) -> int:
        with self._database.write(subject) as tx:
            number = tx.number_of(subject)
            return 0 if number is None else adopt_texts(tx, subject, number, texts, now=now)

    def list(self, subject: Subject) -> list[KeptText]:
        return self._ask_about(subject, KeptText, "kept_out.list")

    def lift(self, subject: Subject, memory_id: str, *, now: int) -> bool:
        with self._database.write(subject) as tx:
            number = tx.number_of(subject)
            if number is None or not tx.run("kept_out.lift", (number, memory_id)):
                return False
            append(tx, number, [Event(now, Action.LIFTED, memory_id, {})])
            return True

    def find(self, subject: Subject, hashes: Sequence[int]) -> set[int]:
        with self._database.read(subject) as tx:
            number = tx.number_of(subject)
            return set() if number is None else set(find_kept_out(tx, number, hashes))


def adopt_texts(tx: Transaction, subject: Subject, number: int, texts: Sequence[KeptText], *, now: int) -> int:
    """Keep texts out that were kept out before, and recycle the live records that have them; how many records."""
    for text in texts:
        tx.run("kept_out.add", (number, *text))
    hashes = tx.all(int, "records.live_hashes", (number,))
    kept = sorted(find_kept_out(tx, number, hashes))
    same = tx.all(CurrentRow, "records.live_of_text", (number, to_json(kept)))
    batch = MoveBatch(tx, subject, number, now=now, is_held=False)
    batch.move_all([_to_bin(one, KEPT_OUT_REASON, now) for one in same])
    batch.save()
    return len(same)


def _to_bin(row: CurrentRow, reason: str, now: int) -> Move:
    return Move(row.id, row.version, row.state, State.RECYCLED, reason, purge_at=now + BIN)


class SqlPacks(SqlStore):
    """The ``PackStore`` of the relational engines."""

    def alias(self, subject: Subject) -> str:
        with self._database.read(subject) as tx:
            return _alias(tx, tx.number_of(subject))

    def open(
        self, subject: Subject, *, name: str, records: int, size: int, digest: bytes, now: int, alias: str | None = None
    ) -> int:
        with self._database.write() as tx:
            number = tx.number_for(subject) if alias is None else tx.number_of(subject)
            if alias is not None and _alias(tx, number) != alias:
                raise _erased()
            return tx.number("packs.open", (number, name, records, size, digest, now))

    def get(self, subject: Subject, number: int) -> Pack | None:
        found = self._ask_about(subject, Pack, "packs.get", number)
        return next((pack for pack in found if pack.state != "leaving"), None)

    def leaving(self, subject: Subject, number: int) -> list[Pack]:
        return [pack for pack in self._ask_about(subject, Pack, "packs.get", number) if pack.state == "leaving"]

    def unsettled(self, tenant: str) -> list[Pack]:
        return self._database.ask(Pack, "packs.unsettled", (tenant,))

    def members(self, subject: Subject, number: int) -> list[str]:
        return self._ask_about(subject, str, "packs.members", number)

    def small(self, subject: Subject, *, below: int) -> Pack | None:
        return next(iter(self._ask_about(subject, Pack, "packs.small", below)), None)

    def oldest(self, limit: int) -> list[Pack]:
        return self._database.ask(Pack, "packs.oldest", (limit,))

    def swap(self, subject: Subject, old: int, new: int, *, members: int, lease: Lease | None = None) -> bool:
        with self._database.write() as tx:
            check_lease(tx, lease)
            whose = tx.number_of(subject)
            whole = whose is not None and tx.number("packs.count_members", (whose, old)) == members
            if not whole or tx.find(int, "packs.is_writing", (whose, new)) is None:
                return False
            tx.run("packs.move_members", (whose, old, new))
            tx.run("packs.empty", (whose, old))
            tx.run("packs.set_state", (whose, old, "leaving"))
            return True

    def settle(self, subject: Subject, number: int) -> str | None:
        with self._database.write() as tx:
            pack = (tx.number_of(subject), number)
            state = tx.find(str, "packs.settle", pack)
            if state == "leaving":
                tx.run("packs.empty", pack)
        return state

    def forget(self, subject: Subject, number: int) -> None:
        with self._database.write() as tx:
            tx.run("packs.forget", (tx.number_of(subject), number))


def _alias(tx: Transaction, number: int | None) -> str:
    alias = read_alias(tx, number)
    if alias is None:
        raise _erased()
    return alias


def _erased() -> NotFoundError:
    return NotFoundError("nothing is kept of that user, or not any more: they were erased meanwhile")


class SqlFacts(SqlStore):
    """The ``FactStore`` of the relational engines."""

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
            return sum(tx.run("facts.end_current", (at, number, fact_id)) for fact_id in fact_ids)

    def facts(self, subject: Subject, entity_ids: Sequence[str]) -> list[Fact]:
        found: dict[str, Fact] = {}
        with self._database.read() as tx:
            number = tx.number_of(subject)
            for statement in ("facts.of_source", "facts.of_target"):
                for entity_id in entity_ids:
                    found |= {row.id: parse_fact(row) for row in tx.all(Fact, statement, (number, entity_id))}
        return sorted(found.values(), key=lambda fact: (fact.since, fact.id))


def _row(fact: Fact) -> tuple[object, ...]:
    value = None if fact.target is not None else to_json(fact.value)
    return fact.id, fact.source, fact.name, fact.target, value, fact.since, fact.until, fact.recorded_at


def parse_fact(row: Fact) -> Fact:
    """A fact as callers know it, whose value was stored as JSON."""
    return row if row.value is None else row._replace(value=json.loads(row.value))


class SchemaRow(NamedTuple):
    """A collection's schema, as JSON text."""

    collection: str
    schema: str


class SqlSchemas(SqlStore):
    """The ``SchemaStore`` of the relational engines."""

    def put(self, tenant: str, collection: str, schema: str | None) -> None:
        if schema is None:
            self._change("facts.remove_schema", tenant, collection)
        else:
            self._change("facts.put_schema", tenant, collection, schema)

    def find(self, tenant: str, collections: Sequence[str]) -> dict[str, str]:
        return dict(self._database.ask(SchemaRow, "facts.schemas", (tenant, to_json(collections))))


class SqlProvenance(SqlStore):
    """The ``ProvenanceStore`` of the relational engines."""

    def derived(self, subject: Subject, source_ids: Sequence[str]) -> list[Written]:
        found = self._ask_about(subject, FactsRow, "records.derived", to_json(source_ids))
        return [_to_written(subject, row) for row in found]

    def of_source(
        self, tenant: str, source: str, subject: Subject | None = None, *, after: int = 0, limit: int
    ) -> tuple[list[Written], int]:
        agent_id = agent_of(source)
        with self._database.read() as tx:
            first, last = _EVERY_KEY if subject is None else all_keys(tx.number_of(subject) or 0)
            statement, own = ("records.of_source", ()) if agent_id is None else ("records.of_agent", (agent_id,))
            found = tx.all(FactsRow, statement, (source, max(first - 1, after), last, tenant, limit, *own))
        return [_to_written(row.subject, row) for row in found], found[-1].key if found else after


def _to_written(subject: Subject, row: FactsRow) -> Written:
    return Written(row.facts(subject), row.source or agent_source(row.agent_id))
