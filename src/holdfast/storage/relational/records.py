"""Records in a relational engine: the ``RecordStore``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdfast.core.content import is_packed, pack, parse_json_object, to_json, unpack
from holdfast.core.decisions import RecordFacts
from holdfast.core.errors import HeldError, QuotaExceededError, StaleError, StorageError
from holdfast.core.holds import Held, Hold, excess, prune_count, refuse, standing
from holdfast.core.records import (
    LIVE,
    TYPES,
    Cause,
    Encoding,
    Entry,
    Kind,
    Move,
    Outcome,
    Record,
    Scope,
    State,
    Subject,
    Usage,
)
from holdfast.core.rules import BIN, Labels, labels_of
from holdfast.core.times import check_deadline
from holdfast.ports.records import Added
from holdfast.ports.registry import removed_agent
from holdfast.ports.work import Lease
from holdfast.storage.relational.database import AgainError, Database, Transaction
from holdfast.storage.relational.jobs import check_lease
from holdfast.storage.relational.moves import (
    KINDS,
    Mover,
    held_of,
    is_removed,
    model_code,
    standing_holds,
    unique,
)
from holdfast.storage.relational.provenance import note_derivations, note_other_derivations
from holdfast.storage.relational.rules import SQL as RULES
from holdfast.storage.relational.rules import Profiles, check_rules
from holdfast.storage.relational.scopes import (
    SQL,
    START,
    Tally,
    all_keys,
    context_query,
    key_range,
    limits,
    read_context,
)

_STATES: Final = {state.value: state for state in State}
#: Hidden for as long as anyone can remember.
GONE: Final = 0
#: Where a stored row has its size.
_SIZE: Final = 8
#: Where a row that was read has what is not the record's own.
EXTRA: Final = 24
#: Where a standing row has what the record was derived from.
_DERIVED_FROM: Final = 10


class SqlRecords:
    """The ``RecordStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._models: dict[str | None, int | None] = {}
        self._profiles = Profiles()

    def insert(self, subject: Subject, kind: Kind, entries: Sequence[Entry], *, prune: bool, now: int) -> Added:
        try:
            return self._insert_surely(subject, kind, entries, prune=prune, now=now)
        except _KeptError as kept:  # nothing of it was done, but that it was refused is written down
            with self._database.write(subject) as tx:
                mover = Mover(tx, subject, tx.number_for(subject), now=now, is_held=False)
                mover.refuse(kept.move, kind.name.value, hold=kept.hold.id)
                mover.save()
            raise refuse(kind.name, subject.user_id, kept.problem, hold=kept.hold) from None

    def _insert_surely(self, subject: Subject, kind: Kind, entries: Sequence[Entry], *, prune: bool, now: int) -> Added:
        before: list[str] = []
        try:
            return self._insert(subject, kind, entries, prune=prune, now=now, pruned=before)
        except AgainError as unsure:
            try:
                return self._insert(subject, kind, entries, prune=prune, now=now, pruned=[], before=before)
            except StorageError as problem:
                raise unsure.doubt or problem from problem

    def _insert(
        self,
        subject: Subject,
        kind: Kind,
        entries: Sequence[Entry],
        *,
        prune: bool,
        now: int,
        pruned: list[str],
        before: Sequence[str] | None = None,
    ) -> Added:
        """The same, at one attempt; ``pruned`` is filled. ``before`` has what an attempt pruned that may have been made
        already.
        """
        stored = [_row(entry) for entry in entries]
        size = sum(row[_SIZE] for row in stored)
        asked = context_query(subject, kind, (entry.record.scope.agent_id for entry in entries))
        with self._database.write(subject, asked if before is None else None) as tx, unique(kind.name):
            number = tx.number_for(subject)
            opened = read_context(tx, kind, asked)
            mover = Mover(tx, subject, number, now=now, is_held=opened.is_held)
            tally = mover.tally(kind, opened.counts)
            maximum = opened.limits
            if before is not None and tx.one(SQL["standing"], (entries[0].record.id, number, False)) is not None:
                return Added(tally.usage(maximum), len(before), tuple(before))  # only the answer was lost
            if opened.is_removed:
                refuse_removed_agents(tx, (entry.record.scope for entry in entries))
            for entry in entries:
                mover.make_way(kind, entry.record.name)
            if excess(tally.usage(maximum), len(stored), size):
                _recycle_expired(tx, mover, number, kind, now)
            while problem := excess(tally.usage(maximum), len(stored), size):
                moved, kept = _prune(tx, mover, number, kind, now) if prune else ([], None)
                if kept is not None and not moved:
                    raise _KeptError(problem, *kept)
                if not moved:
                    raise refuse(kind.name, subject.user_id, problem, pruned=prune)
                pruned += moved
            models: dict[str | None, int | None] = {}
            profiles: dict[tuple[Scope, str | None, Labels | None], int] = {}
            book = self._profiles.book(tx, subject.tenant, opened.version)
            rows: list[tuple[Any, ...]] = []
            for row, (record, encoding) in zip(stored, entries, strict=True):
                if encoding.model not in models:
                    models[encoding.model] = self._models.get(encoding.model) or model_code(tx, encoding.model)
                labels = labels_of(record.metadata) if book.is_selective else None
                whose = (record.scope, record.id if record.id in book.singled else None, labels)
                if whose not in profiles:
                    profiles[whose] = self._profiles.find(tx, kind.name.value, *whose, book=book)
                first = (tally.new_key(), number, kind.code, profiles[whose])
                rows.append((*first, *row[:9], models[encoding.model], *row[9:]))
            if len(rows) == 1 and entries[0].record.name is None:  # nothing can be in its way
                tx.later(SQL["insert"], rows[0])
            else:
                tx.run_many(SQL["insert"], rows)
            keys = (row[0] for row in rows)
            sources = [entry.record.derived_from for entry in entries]
            note_derivations(tx, number, zip(keys, sources, strict=True))
            tally.count(len(stored), size)
            mover.save()
            tx.expect((number, *tally.counts, *opened.others))
            tx.then(partial(self._models.update, models))  # what has been committed stays as it is
            return Added(tally.usage(maximum), len(pruned), tuple(pruned))

    def get(self, subject: Subject, record_id: str) -> Record | None:
        with self._database.read(subject) as tx:
            number = tx.number_of(subject)
            row = None if number is None else tx.one(SQL["get"], (record_id, number))
            return None if row is None else _seen(tx, as_record(subject, row))

    def find(self, tenant: str, record_id: str) -> Record | None:
        with self._database.read() as tx:
            row = tx.one(SQL["find"], (record_id, tenant))
        return None if row is None else as_record(Subject.parse(row[EXTRA]), row)

    def named(self, subject: Subject, kind: Kind, name: str, *, now: int) -> Record | None:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            if number is None:
                return None
            row = tx.one(SQL["get_named"], (number, kind.code, name, now))
            return None if row is None else as_record(subject, row)

    def fetch(self, subject: Subject, record_ids: Sequence[str], *, now: int) -> dict[str, Record]:
        asked = (to_json(record_ids), subject, now, subject.tenant)
        found = self._database.ask(SQL["fetch"], asked)
        records = {row[1]: as_record(subject, row) for row in found if not row[EXTRA]}
        return {record_id: records[record_id] for record_id in record_ids if record_id in records}

    def entries(self, subject: Subject, record_ids: Sequence[str]) -> dict[str, Entry]:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            found = tx.rows(SQL["entries"], (to_json(record_ids), number))
        return {row[1]: Entry(as_record(subject, row), Encoding(*row[EXTRA:])) for row in found}

    def binned(
        self, tenant: str, subject: Subject | None = None, *, after: tuple[int, int] = START, limit: int
    ) -> tuple[list[Record], tuple[int, int]]:
        with self._database.read() as tx:
            if subject is None:
                found = tx.rows(SQL["bin_of_tenant"], (*after, limit, tenant))
            else:
                keys = all_keys(tx.number_of(subject) or 0)
                found = tx.rows(SQL["bin_of_subject"], (*after, limit, *keys))
        last = (found[-1][18], found[-1][EXTRA + 1]) if found else after
        return [as_record(Subject.parse(row[EXTRA]), row) for row in found], last

    def bundled(self, tenant: str, bundle: str, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        with self._database.read() as tx:
            found = tx.rows(SQL["bundled"], (bundle, after, tenant, limit))
        return [as_record(Subject.parse(row[EXTRA]), row) for row in found], found[-1][EXTRA + 1] if found else after

    def live(self, subject: Subject, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[RecordFacts], int]:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            first, last = key_range(number, kind)
            found = tx.rows(SQL["live_ids"], (max(first, after + 1), last, limit))
        return [_standing(subject, kind, row) for row in found], found[-1][8] if found else after

    def replace(self, entry: Entry, *, back: Move | None = None) -> bool:
        record = entry.record
        row = _row(entry)
        with self._database.write(record.scope.subject) as tx, unique(record.kind):
            number = tx.number_of(record.scope.subject)
            standing = tx.one(SQL["standing"], (record.id, number, True))
            if standing is None or standing[2] not in LIVE or standing[3] != record.version:
                return False
            if (standing[8] is None) != (back is None):
                return False  # what lies in the object store is brought back before it is changed
            _check_stays_held(tx, record, standing[7])
            if back is not None and number is not None:
                _bring_back(tx, record, number, back)
                standing = tx.one(SQL["standing"], (record.id, number, True)) or standing
            kind = TYPES[record.kind]
            tally = Tally(tx, int(number or 0), kind)
            maximum = limits(tx, record.scope.subject, kind)
            grown = row[_SIZE] - standing[4]
            if grown > 0 and (problem := excess(tally.usage(maximum), 0, grown)):
                raise refuse(record.kind, record.scope.user_id, problem)
            model = model_code(tx, entry.encoding.model)
            tx.run(SQL["replace"], (record.name, record.updated_at, row[_SIZE], model, *row[9:], standing[0]))
            if labels_of(record.metadata) != labels_of(json.loads(standing[7])):
                self._relabel(tx, record, standing[0])
            if row[-1] != standing[_DERIVED_FROM]:
                note_other_derivations(tx, int(number or 0), standing[0], record.derived_from)
            tally.count(0, grown)
            tally.changed(record.id)
            tally.save()
            return True

    def _relabel(self, tx: Transaction, record: Record, key: int) -> None:
        """Let other rules apply to a record whose labels have changed."""
        book = self._profiles.book(tx, record.scope.tenant)
        if book.is_selective:
            labels = labels_of(record.metadata)
            profile = self._profiles.find(tx, record.kind.value, record.scope, record.id, labels, book=book)
            tx.run(RULES["assign_record"], (profile, key))

    def transition(self, subject: Subject, moves: Sequence[Move], *, now: int) -> list[Outcome]:
        return self.transition_all([(subject, moves)], now=now)[0]

    def transition_all(
        self,
        batches: Sequence[tuple[Subject, Sequence[Move]]],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[list[Outcome]]:
        outcomes: list[list[Outcome]] = []
        for group in self._database.groups(batches):
            with self._database.write() as tx:
                check_lease(tx, lease)
                outcomes += [_transition(tx, subject, moves, now, rules) for subject, moves in group]
        return outcomes

    def usage(self, subject: Subject, kind: Kind) -> Usage:
        with self._database.read() as tx:
            tally = Tally(tx, tx.number_of(subject) or 0, kind)
            return tally.usage(limits(tx, subject, kind))

    def set_quota(self, tenant: str, user_id: str | None, kind: Kind, maximum: dict[str, int | None]) -> None:
        who = (tenant, user_id or "", kind.code)
        with self._database.govern(tenant) as tx:
            kept = tx.one(SQL["quota"], who) or (None, None)
            values = dict(zip(("max_memories", "max_bytes"), kept, strict=True))
            values.update({name: -1 if value is None else value for name, value in maximum.items()})
            tx.run(SQL["put_quota"], (*who, values["max_memories"], values["max_bytes"]))


def _transition(tx: Transaction, subject: Subject, moves: Sequence[Move], now: int, rules: int | None) -> list[Outcome]:
    number = tx.number_of(subject)
    check_rules(tx, subject, rules)
    if number is None:
        return [Outcome.STALE for _ in moves]
    mover = Mover(tx, subject, number, now=now)
    outcomes = mover.move_all(moves)
    mover.save()
    return outcomes


class _KeptError(Exception):
    """A prune found nothing that it may take, and a hold is why."""

    def __init__(self, problem: str, move: Move, hold: Hold) -> None:
        self.problem, self.move, self.hold = problem, move, hold


def _prune(
    tx: Transaction, mover: Mover, subject: int, kind: Kind, now: int
) -> tuple[list[str], tuple[Move, Hold] | None]:
    """Recycle the oldest tenth of a scope's live records that nothing keeps; those that went, and the oldest that a
    hold kept from it.
    """
    most = prune_count(mover.tally(kind).memories)
    reason = "pruned: the quota was reached"
    moved: list[str] = []
    kept: tuple[Move, Hold] | None = None
    found = tx.rows(SQL["oldest"], (*key_range(subject, kind), now, -1 if mover.holds else most))
    for _, record_id, _, state, version, *whose, metadata in found:
        if len(moved) == most:
            break
        move = Move(record_id, version, _STATES[state], State.RECYCLED, reason, Cause.PRUNE, purge_at=now + BIN)
        thing = held_of(mover.subject, whose[0], whose[1], record_id, metadata) if mover.holds else None
        if thing is not None and (hold := standing(thing, mover.holds)) is not None:
            kept = kept or (move, hold)
        elif mover.move(move) is Outcome.DONE:
            moved.append(record_id)
    return moved, kept


def _bring_back(tx: Transaction, record: Record, number: int, back: Move) -> None:
    """Bring a record back from cold storage within the transaction that changes it."""
    mover = Mover(tx, record.scope.subject, number, now=record.updated_at)
    outcome = mover.move(back)
    if outcome is Outcome.FULL:
        raise QuotaExceededError(
            f"memory {record.id} cannot be brought back from cold storage and changed: the quota for {record.kind} "
            f"memories of user {record.scope.user_id!r} has no room for it; delete old memories or upgrade the quota "
            "first"
        )
    if outcome is not Outcome.DONE:
        raise StaleError(f"memory {record.id} was changed by another writer meanwhile; try again")
    mover.save()


def _check_stays_held(tx: Transaction, record: Record, metadata: str) -> None:
    """``HeldError`` if a change of its metadata would take a record out of a hold that it is under."""
    scope = record.scope
    for hold in standing_holds(tx, scope.subject):
        was = held_of(scope.subject, scope.agent_id, scope.session_id, record.id, metadata)
        if hold.covers(was) and not hold.covers(was._replace(metadata=record.metadata)):
            raise HeldError(
                f"memory {record.id} is kept by hold {hold.id} for its tag {hold.tag!r}, and was not changed: "
                f"leave the tag in its metadata, or release the hold first: holdfast hold release {hold.id}"
            )


def _recycle_expired(tx: Transaction, mover: Mover, subject: int, kind: Kind, now: int) -> None:
    """Recycle what is past its time and no sweep has come for yet: it is not to keep what is new from its place."""
    reason = "its time was over, and its place was wanted"
    for record_id, state, version in tx.rows(SQL["expired"], (*key_range(subject, kind), now)):
        mover.move(Move(record_id, version, _STATES[state], State.RECYCLED, reason, Cause.RULE, purge_at=now + BIN))


def _seen(tx: Transaction, record: Record) -> Record:
    """A record as it is to be seen: what is a removed agent's own is not, even before it has followed the agent."""
    own = "agent" in TYPES[record.kind].scope and record.state in LIVE
    if own and is_removed(tx, record.scope.tenant, record.scope.agent_id):
        return replace(record, hidden_from=GONE)
    return record


def refuse_removed_agents(tx: Transaction, scopes: Iterable[Scope]) -> None:
    """Raise ``AgentRemovedError`` where an agent is in the recycle bin."""
    for tenant, agent_id in {(scope.tenant, scope.agent_id) for scope in scopes}:
        removed = tx.one(SQL["removed_agent"], (tenant, agent_id))
        if removed is not None:
            raise removed_agent(agent_id, removed[0] or 0)


def _standing(subject: Subject, kind: Kind, row: Sequence[Any]) -> RecordFacts:
    record_id, state, version, aged_from, size, agent_id, session_id, packed, _ = row
    thing = Held(subject.user_id, agent_id, session_id, record_id, {})
    return RecordFacts(
        record_id, kind.name.value, subject, thing, _STATES[state], version, aged_from, None, size, packed is not None
    )


def _row(entry: Entry) -> tuple[Any, ...]:
    """The stored form of a record: what comes before and, from the ninth place on, after the model's code."""
    record, encoding = entry
    body = None if record.body is None else to_json(record.body)
    size = len(record.content.encode()) + (0 if body is None else len(body.encode()))
    return (
        record.id,
        record.scope.agent_id,
        record.scope.session_id,
        record.name,
        record.created_at,
        record.updated_at,
        record.dated_at,
        record.dated_at if record.aged_from is None else record.aged_from,
        size,
        encoding.vectors,
        encoding.terms,
        to_json(record.metadata),
        pack(record.content),
        None if body is None else pack(body),
        record.source,
        to_json(record.derived_from) if record.derived_from else None,
    )


def as_record(subject: Subject, row: Sequence[Any]) -> Record:
    """A stored record as callers know it; whoever reads many stops at the deadline."""
    check_deadline()
    tenant, user_id = subject.tenant, subject.user_id
    return Record(
        id=row[1],
        kind=KINDS[row[0]].name,
        scope=Scope(tenant, user_id, row[4], row[5]),
        content=unpack(row[12]),
        created_at=row[7],
        updated_at=row[8],
        dated_at=row[9],
        metadata=parse_json_object(row[11]),
        body=None if row[13] is None else parse_json_object(unpack(row[13])),
        state=_STATES[row[2]],
        version=row[3],
        aged_from=row[10],
        compressed=is_packed(row[12]),
        name=row[6],
        previous=None if row[14] is None else _STATES[row[14]],
        archive_at=row[15],
        hidden_from=row[16],
        moved_at=row[17],
        purge_at=row[18],
        reason=row[19],
        pack=row[20],
        source=row[21],
        derived_from=tuple(json.loads(row[22])) if row[22] else (),
        bundle=row[23],
    )
