"""What is attached to records: facts, schemas, cold objects, ended versions, where they came from, and kept-out texts.

A version ends where a record is changed, by a copy of its row, in the same transaction; it refers to the record, and
goes with it. A record's own row says who wrote it and what it was derived from; the table of derivations says the
latter the other way round. It is read for one subject at a time: an id that is another user's leads nowhere, as one
that is nobody's does.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import compress, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action, Event, acting_as, current_actor
from holdfast.core.decisions import Held
from holdfast.core.errors import NotFoundError
from holdfast.core.records import (
    BIN,
    LIVE,
    Entry,
    Fact,
    Kind,
    Move,
    Outcome,
    Scope,
    State,
    Subject,
    Version,
    succession,
)
from holdfast.core.texts import hash_text
from holdfast.core.values import SECOND, agent_of, agent_source, parse_json_object, to_json, unpack
from holdfast.ports.coordination import Lease
from holdfast.ports.objects import NewPack, Pack, PackKey, PackPlan, Swap
from holdfast.ports.records import KeptText, Written
from holdfast.ports.rules import Census
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import R, RowType, SqlStore, Transaction
from holdfast.storage.relational.moves import MoveBatch, find_current, model_code, refuse_removed_agents
from holdfast.storage.relational.rows import (
    KEPT_OUT_REASON,
    KINDS,
    CurrentRow,
    FactsRow,
    all_keys,
    find_kept_out,
    read_alias,
    read_aliases,
    to_stored,
)
from holdfast.storage.relational.rules import Holds

_PAGE: Final = 1_000


class VersionRow(NamedTuple):
    """A version that has ended, as it is stored."""

    id: str
    version: int
    started_at: int
    ended_at: int
    actor: str
    reason: str | None
    metadata: str
    content: str | bytes
    source: str | None
    derived_from: str | None

    def value(self) -> Version:
        """The version as callers know it."""
        sources = tuple(json.loads(self.derived_from)) if self.derived_from else ()
        data = (unpack(self.content), parse_json_object(self.metadata), self.source, sources)
        return Version(self.id, self.version, self.started_at, self.ended_at, self.actor, self.reason, *data)


class DueRow(NamedTuple):
    """A version that is past its time, and the record that it is of."""

    key: int
    version: int
    ended_at: int
    size: int
    id: str
    subject: Subject
    agent_id: str
    session_id: str | None
    metadata: str
    profile: int
    revision: int


class SqlVersions(SqlStore):
    """The ``VersionStore`` of the relational engines."""

    def ended(self, subject: Subject, record_id: str, *, now: int | None = None) -> list[Version]:
        found = self._ask_about(subject, VersionRow, "versions.of_record", now, record_id)
        return [row.value() for row in found]

    def at(self, subject: Subject, record_ids: Sequence[str], *, at: int, now: int) -> list[Version]:
        if not record_ids:
            return []
        found = self._ask_about(subject, VersionRow, "versions.at", now, to_json(record_ids), at)
        return [row.value() for row in found]

    def complete(self, entry: Entry, version: int) -> None:
        record, (model, vectors, terms) = entry
        stored = to_stored(record.content, record.metadata, None)
        with self._database.write(record.scope.subject) as tx:
            number = tx.number_of(record.scope.subject)
            found_by = (model_code(tx, model), vectors, terms)
            own = (stored.size, stored.text_hash, *found_by, stored.metadata, stored.content)
            tx.run("versions.complete", (number, record.id, version, *own))

    def census(self, tenant: str, now: int) -> list[Census]:
        totals: dict[Subject, list[int]] = {}
        with self._database.read() as tx:
            holds = cache(partial(Holds, tx))
            for page in _due(tx.all, tenant, now):
                for row in page:
                    if _is_held(holds(row.subject), row):
                        continue
                    amounts = (1, row.size, zlib.crc32(f"{row.id}@{row.version}".encode()), row.ended_at // SECOND)
                    total = totals.get(row.subject, [0, 0, 0, 0])
                    totals[row.subject] = [so_far + more for so_far, more in zip(total, amounts, strict=True)]
        return [Census("version", subject, *total) for subject, total in sorted(totals.items())]

    def newly_due(
        self, profile: int, versions: int | None, versions_for: int | None, *, now: int
    ) -> Iterator[tuple[Held, int]]:
        asked = (profile, now, versions, versions_for)
        for page in _pages(self._database.ask, "versions.newly_due", asked, "revision"):
            for row in page:
                where = (row.subject.user_id, row.agent_id, row.session_id, row.id)
                yield Held(*where, parse_json_object(row.metadata)), row.size

    def trim(self, tenant: str, *, upto: int, now: int, lease: Lease | None = None) -> tuple[int, int]:
        gone = size = 0
        for page in _due(self._database.ask, tenant, upto):
            page.sort(key=lambda row: row.key)  # which begins with the subject's number
            theirs = [(subject, list(mine)) for subject, mine in groupby(page, key=lambda row: row.subject)]
            for group in self._database.groups(theirs):
                with self._database.write() as tx:
                    check_lease(tx, lease)
                    for subject, mine in group:
                        sizes = _erase(tx, subject, mine, upto=upto, now=now)
                        gone, size = gone + len(sizes), size + sum(sizes)
        return gone, size


def _due(ask: Callable[..., list[Any]], tenant: str, now: int) -> Iterator[list[DueRow]]:
    """The versions that rules keep no longer, in pages: what ended too long ago, and what too many came after."""
    (shortest,) = ask(int, "versions.shortest", (tenant,))
    if shortest is not None:
        yield from _pages(ask, "versions.too_old", (now - shortest, now, tenant), "ended_at")
    yield from _pages(ask, "versions.too_many", (tenant, now), "profile", "revision")


def _pages(
    ask: Callable[..., list[Any]], statement: str, asked: tuple[object, ...], *order: str
) -> Iterator[list[DueRow]]:
    """What a statement gives, in the order of these columns, and of the versions of a record."""
    place = attrgetter(*order, "key", "version")
    after: tuple[int, ...] = (-(2**63),) * (len(order) + 2)
    while found := ask(DueRow, statement, (*asked, *after, _PAGE)):
        after = place(found[-1])
        yield found


def _erase(tx: Transaction, subject: Subject, found: list[DueRow], *, upto: int, now: int) -> list[int]:
    """Delete versions of one subject, but for those that a hold or, by now, a rule keeps; the sizes of what went."""
    number = tx.number_of(subject)
    if number is None:  # erased meanwhile
        return []
    holds = Holds(tx, subject)
    free = [row for row in found if not _is_held(holds, row)]
    gone = [row for row in free if tx.run("versions.erase", (row.key, upto, row.version))]
    numbers: dict[str, list[int]] = {}
    for row in gone:
        numbers.setdefault(row.id, []).append(row.version)
    append(tx, number, [Event(now, Action.VERSIONS_DELETED, one, {"versions": some}) for one, some in numbers.items()])
    return [row.size for row in gone]


def _is_held(holds: Holds, row: DueRow) -> bool:
    return holds.find(row.agent_id, row.session_id, row.id, row.metadata) is not None


def is_long(row: CurrentRow) -> bool:
    """Whether versions of a record are to be deleted as one more ends. Nobody sees those that are too many, so that it
    is done now and then, for several of them.
    """
    if row.most_versions is None or row.revision <= row.most_versions:
        return False
    return (row.revision - row.most_versions) % max(1, row.most_versions // 2) == 0


def trim(batch: MoveBatch, row: CurrentRow) -> None:
    """Delete the versions of a record that are too many by their number; what is past its time waits for a sweep."""
    gone = batch.tx.all(int, "versions.trim", (row.key, 0))
    detail = {"versions": sorted(gone), "reason": "newer versions took their place"}
    with acting_as(batch.tx.author):  # who corrected it, and may be the user, is named in the history
        append(batch.tx, batch.number, [Event(batch.now, Action.VERSIONS_DELETED, row.id, detail)] if gone else [])


class RewrittenRow(NamedTuple):
    """A record whose version before the current one ended at a moment."""

    name: str
    id: str
    revision: int


def find_rewritten(tx: Transaction, number: int, kind: Kind, names: Sequence[str], at: int) -> list[RewrittenRow]:
    """The live records of these names whose versions before the current ones ended at a moment."""
    return tx.all(RewrittenRow, "versions.rewritten", (number, kind.code, to_json(names), at))


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

    def source(self, subject: Subject, memory_id: str) -> str:
        with self._database.read(subject) as tx:
            number = tx.number_of(subject)
            row = None if number is None else find_current(tx, memory_id, number)
            found = {} if row is None or number is None else find_kept_out(tx, number, [row.text_hash])
            return next(iter(found.values()), memory_id)

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

    def plans(self, wanted: Sequence[tuple[Subject, int | None]], *, below: int = 0) -> list[PackPlan | None]:
        with self._database.read() as tx:
            numbers = tx.numbers_of([subject for subject, _ in wanted])
            asked = [
                ("packs.small", (number, below)) if no is None else ("packs.get", (number, no))
                for number, (_, no) in zip(numbers, wanted, strict=True)
            ]
            tx.ask_ahead(asked)
            known = read_aliases(tx, numbers)
            aliases = [known.get(number) for number in numbers]
            packs = [next((pack for pack in tx.all(Pack, *one) if pack.state != "leaving"), None) for one in asked]
            members = [
                None if pack is None else ("packs.members", (number, pack.number))
                for number, pack in zip(numbers, packs, strict=True)
            ]
            tx.ask_ahead(one for one in members if one is not None)
            listed = [frozenset(() if one is None else tx.all(str, *one)) for one in members]
        found = zip(aliases, packs, listed, strict=True)
        return [None if alias is None else PackPlan(alias, pack, inside) for alias, pack, inside in found]

    def open(self, new: Sequence[NewPack], *, now: int) -> list[int | None]:
        with self._database.write() as tx:
            for pack in new:
                if pack.alias is None:
                    tx.number_for(pack.subject)
            numbers = tx.numbers_of([pack.subject for pack in new])
            aliases = read_aliases(tx, numbers)
            asked = [
                ("packs.open", (number, *pack[2:], now))
                if (alias := aliases.get(number)) is not None and pack.alias in (None, alias)
                else None
                for number, pack in zip(numbers, new, strict=True)
            ]
            tx.ask_ahead(one for one in asked if one is not None)
            return [None if one is None else tx.number(*one) for one in asked]

    def get(self, subject: Subject, number: int) -> Pack | None:
        found = self._ask_about(subject, Pack, "packs.get", number)
        return next((pack for pack in found if pack.state != "leaving"), None)

    def leaving(self, packs: Sequence[PackKey]) -> list[Pack]:
        with self._database.read() as tx:
            found = _ask_each(tx, Pack, "packs.get", packs)
        return [pack for rows in found for pack in rows if pack.state == "leaving"]

    def are_open(self, packs: Sequence[PackKey]) -> list[bool]:
        with self._database.read() as tx:
            return [bool(rows) for rows in _ask_each(tx, int, "packs.is_writing", packs)]

    def unsettled(self, tenant: str) -> list[Pack]:
        return self._database.ask(Pack, "packs.unsettled", (tenant,))

    def members(self, subject: Subject, number: int) -> list[str]:
        return self._ask_about(subject, str, "packs.members", number)

    def oldest(self, limit: int) -> list[Pack]:
        return self._database.ask(Pack, "packs.oldest", (limit,))

    def swap(self, swaps: Sequence[Swap], *, lease: Lease | None = None) -> list[bool]:
        with self._database.write() as tx:
            check_lease(tx, lease)
            members = _ask_each(tx, int, "packs.count_members", [(one.subject, one.old) for one in swaps])
            written = _ask_each(tx, int, "packs.is_writing", [(one.subject, one.new) for one in swaps])
            numbers = tx.numbers_of([one.subject for one in swaps])
            asked = zip(swaps, members, written, strict=True)
            can = [count == [one.members] and bool(is_writing) for one, count, is_writing in asked]
            for whose, one in compress(zip(numbers, swaps, strict=True), can):
                tx.later("packs.move_members", (whose, one.old, one.new))
                tx.later("packs.empty", (whose, one.old))
                tx.later("packs.set_state", (whose, one.old, "leaving"))
            return can

    def settle(self, packs: Sequence[PackKey]) -> list[str | None]:
        with self._database.write() as tx:
            states = [next(iter(rows), None) for rows in _ask_each(tx, str, "packs.settle", packs)]
            for (subject, number), state in zip(packs, states, strict=True):
                if state == "leaving":
                    tx.later("packs.empty", (tx.number_of(subject), number))
        return states

    def forget(self, packs: Sequence[PackKey]) -> None:
        with self._database.write() as tx:
            for (_, pack), number in zip(packs, tx.numbers_of([subject for subject, _ in packs]), strict=True):
                tx.later("packs.forget", (number, pack))


def _ask_each(tx: Transaction, row: RowType[R], statement: str, packs: Sequence[PackKey]) -> list[list[R]]:
    """What a statement says of each of some packs."""
    numbers = tx.numbers_of([subject for subject, _ in packs])
    asked = [(statement, (whose, number)) for whose, (_, number) in zip(numbers, packs, strict=True)]
    tx.ask_ahead(asked)
    return [tx.all(row, *one) for one in asked]


def _alias(tx: Transaction, number: int | None) -> str:
    alias = read_alias(tx, number)
    if alias is None:
        raise NotFoundError("nothing is kept of that user, or not any more: they were erased meanwhile")
    return alias


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
