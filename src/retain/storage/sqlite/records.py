"""Records in SQLite: the ``RecordStore`` and the ``RecallFeed``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import apsw

from retain.core.content import pack, parse_json_object, to_json, unpack
from retain.core.errors import ConflictError
from retain.core.quotas import excess, prune_count, refuse
from retain.core.records import Encoding, Entry, Move, Record, Scope, Usage
from retain.core.types import LIVE, NEXT, TYPES, Kind, MemoryType, State
from retain.ports import Added, Changes, Cursor, IndexRow
from retain.storage.sqlite.database import Database, one, rows, value
from retain.storage.sqlite.scopes import SQL, Tally, ensure_subject, key_range, limits, subject_no

_KINDS: Final = {kind.code: kind for kind in TYPES.values()}
_STATES: Final = {state.value: state for state in State}


class SqliteRecords:
    """The ``RecordStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._models: dict[str | None, int | None] = {}

    def insert(self, subject: str, kind: Kind, entries: Sequence[Entry], *, prune: bool, now: int) -> Added:
        stored = [_row(entry) for entry in entries]
        size = sum(row[8] for row in stored)
        with self._database.write() as connection, _unique(kind.name):
            number = ensure_subject(connection, subject)
            tally = Tally(connection, number, kind)
            maximum = limits(connection, subject, kind)
            pruned = 0
            while problem := excess(tally.usage(maximum), len(stored), size):
                if not prune or not (moved := _prune(connection, tally, number, kind, now)):
                    raise refuse(kind.name, subject.split("/", 1)[1], problem)
                pruned += moved
            models: dict[str | None, int | None] = {}
            for row, (_, encoding) in zip(stored, entries, strict=True):
                if encoding.model not in models:
                    models[encoding.model] = self._models.get(encoding.model) or _model_code(connection, encoding.model)
                key = tally.new_key()
                connection.execute(SQL["insert"], (key, number, kind.code, *row[:9], models[encoding.model], *row[9:]))
            tally.count(len(stored), size)
            tally.save()
            added = Added(tally.usage(maximum), pruned)
        self._models.update(models)  # what has been committed stays as it is
        return added

    def get(self, subject: str, record_id: str) -> Record | None:
        with self._database.read() as connection:
            number = subject_no(connection, subject)
            row = None if number is None else one(connection, SQL["get"], (record_id, number))
            return None if row is None else _record(subject, row)

    def named(self, subject: str, kind: Kind, name: str, *, now: int) -> Record | None:
        with self._database.read() as connection:
            number = subject_no(connection, subject)
            if number is None:
                return None
            row = one(connection, SQL["get_named"], (number, kind.code, name, now))
            return None if row is None else _record(subject, row)

    def fetch(self, subject: str, record_ids: Sequence[str], *, now: int) -> dict[str, Record]:
        with self._database.read() as connection:
            number = subject_no(connection, subject)
            found = rows(connection, SQL["fetch"], (to_json(record_ids), number, now))
        records = {row[1]: _record(subject, row) for row in found}
        return {record_id: records[record_id] for record_id in record_ids if record_id in records}

    def replace(self, entry: Entry) -> bool:
        record = entry.record
        row = _row(entry)
        with self._database.write() as connection, _unique(record.kind):
            number = subject_no(connection, record.scope.subject)
            standing = one(connection, SQL["standing"], (record.id, number))
            if standing is None or standing[2] not in LIVE or standing[4] != record.version:
                return False
            kind = TYPES[record.kind]
            tally = Tally(connection, int(number or 0), kind)
            maximum = limits(connection, record.scope.subject, kind)
            grown = row[8] - standing[5]
            if grown > 0 and (problem := excess(tally.usage(maximum), 0, grown)):
                raise refuse(record.kind, record.scope.user_id, problem)
            model = _model_code(connection, entry.encoding.model)
            connection.execute(
                SQL["replace"],
                (record.name, record.updated_at, record.hidden_from, row[8], model, *row[9:], standing[0]),
            )
            tally.count(0, grown)
            tally.changed(record.id)
            tally.save()
            return True

    def transition(self, subject: str, moves: Sequence[Move], *, now: int) -> list[bool]:
        with self._database.write() as connection:
            number = subject_no(connection, subject)
            tallies: dict[int, Tally] = {}
            answers = []
            for move in moves:
                row = one(connection, SQL["standing"], (move.id, number))
                key, code, state, _, version, size = row or (0, 0, None, None, 0, 0)
                if (
                    number is None
                    or (state, version) != (move.source, move.version)
                    or move.target not in NEXT[move.source]
                ):
                    answers.append(False)
                    continue
                kind = _KINDS[code]
                if code not in tallies:
                    tallies[code] = Tally(connection, number, kind)
                if move.target in LIVE and move.source not in LIVE:
                    maximum = limits(connection, subject, kind)
                    if problem := excess(tallies[code].usage(maximum), 1, size):
                        raise refuse(kind.name, subject.split("/", 1)[1], problem)
                with _unique(kind.name):
                    _move(connection, tallies[code], move, key=key, size=size, now=now)
                answers.append(True)
            for tally in tallies.values():
                tally.save()
            return answers

    def usage(self, subject: str, kind: Kind) -> Usage:
        with self._database.read() as connection:
            tally = Tally(connection, subject_no(connection, subject) or 0, kind)
            return tally.usage(limits(connection, subject, kind))

    def set_quota(self, tenant: str, user_id: str | None, kind: Kind, maximum: dict[str, int | None]) -> None:
        who = (tenant, user_id or "", kind.code)
        with self._database.write() as connection:
            kept = one(connection, SQL["quota"], who) or (None, None)
            values = dict(zip(("max_memories", "max_bytes"), kept, strict=True))
            values.update({name: -1 if value is None else value for name, value in maximum.items()})
            connection.execute(SQL["put_quota"], (*who, values["max_memories"], values["max_bytes"]))


class SqliteFeed:
    """The ``RecallFeed`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changes(self, scope: Scope, kind: Kind, since: Cursor | None, *, model: str) -> Changes:
        with self._database.read() as connection:
            number = subject_no(connection, scope.subject)
            if number is None:
                return Changes((0, 0, 0), since != (0, 0, 0), [], [])
            tally = Tally(connection, number, kind)
            cursor = (number, tally.seq, tally.next)
            if since == cursor:
                return Changes(cursor, False, [], [])
            agent = scope.agent_id if "agent" in kind.scope else None
            code = _known_model(connection, model)
            reload = since is None or since[0] != number or since[1] < tally.floor
            start = 0 if reload or since is None else since[2]
            new = rows(connection, SQL["index_rows"], (code, *key_range(number, kind, start)))
            live = [IndexRow(*row) for row in new if agent is None or row[1] == agent]
            if reload or since is None:
                return Changes(cursor, True, live, [])
            ids = [row[0] for row in rows(connection, SQL["changed_ids"], (tally.scope, since[1]))]
            there = {row.id for row in live}
            gone = []
            for record_id in ids:
                row = one(connection, SQL["index_row"], (code, record_id, number))
                if row is None:
                    gone.append(record_id)
                elif record_id not in there and agent in (None, row[1]):
                    live.append(IndexRow(*row))
            return Changes(cursor, False, live, gone)

    def unembedded(self, subject: str, kind: Kind, *, model: str, limit: int) -> list[Record]:
        with self._database.read() as connection:
            number = subject_no(connection, subject)
            if number is None:
                return []
            code = _known_model(connection, model)
            found = rows(connection, SQL["unembedded"], (*key_range(number, kind), code, limit))
            return [_record(subject, row) for row in found]

    def embed(self, subject: str, kind: Kind, encodings: Iterable[tuple[str, int, Encoding]]) -> int:
        with self._database.write() as connection:
            number = ensure_subject(connection, subject)
            tally = Tally(connection, number, kind)
            written = 0
            for record_id, version, encoding in encodings:
                row = one(connection, SQL["standing"], (record_id, number))
                if row is not None and row[4] == version:
                    model = _model_code(connection, encoding.model)
                    connection.execute(SQL["embed"], (model, encoding.vectors, encoding.terms, row[0], version))
                    tally.changed(record_id)
                    written += 1
            tally.save()
            return written

    def adopt(self, model: str) -> None:
        if not self.is_current(model):
            with self._database.write() as connection:
                code = _model_code(connection, model)
                connection.execute(SQL["adopt_model"], (code,))

    def is_current(self, model: str) -> bool:
        with self._database.read() as connection:
            return one(connection, SQL["current_model"]) == (model,)

    def subjects(self, tenant: str) -> Iterator[str]:
        with self._database.read() as connection:
            found = rows(connection, SQL["subjects_of_tenant"], {"tenant": tenant})
        return (row[0] for row in found)


def _move(connection: apsw.Connection, tally: Tally, move: Move, *, key: int, size: int, now: int) -> None:
    """Carry out a move that has been checked: the one place where a stored record changes its state."""
    connection.execute(SQL["move"], (move.target, now, move.reason, key))
    entering = (move.target in LIVE) - (move.source in LIVE)
    tally.count(entering, entering * size)
    tally.changed(move.id)


def _prune(connection: apsw.Connection, tally: Tally, subject: int, kind: Kind, now: int) -> int:
    """Recycle the oldest tenth of a scope's live records; how many went."""
    oldest = rows(connection, SQL["oldest"], (*key_range(subject, kind), prune_count(tally.memories)))
    for key, record_id, size, state, version in oldest:
        move = Move(record_id, version, _STATES[state], State.RECYCLED, "pruned: the quota was reached")
        _move(connection, tally, move, key=key, size=size, now=now)
    return len(oldest)


def _known_model(connection: apsw.Connection, model: str) -> int | None:
    row = one(connection, SQL["model"], (model,))
    return None if row is None else int(row[0])


def _model_code(connection: apsw.Connection, model: str | None) -> int | None:
    if model is None:
        return None
    code = _known_model(connection, model)
    return code if code is not None else value(connection, SQL["new_model"], (model,))


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
        record.hidden_from,
        size,
        encoding.vectors,
        encoding.terms,
        to_json(record.metadata),
        pack(record.content),
        None if body is None else pack(body),
    )


def _record(subject: str, row: Sequence[Any]) -> Record:
    tenant, user_id = subject.split("/", 1)
    return Record(
        id=row[1],
        kind=_KINDS[row[0]].name,
        scope=Scope(tenant, user_id, row[4], row[5]),
        content=unpack(row[12]),
        created_at=row[7],
        updated_at=row[8],
        dated_at=row[9],
        metadata=parse_json_object(row[11]),
        body=None if row[13] is None else parse_json_object(unpack(row[13])),
        state=_STATES[row[2]],
        version=row[3],
        hidden_from=row[10],
        compressed=isinstance(row[12], bytes),
        name=row[6],
        previous=None if row[14] is None else _STATES[row[14]],
    )


@contextmanager
def _unique(kind: MemoryType) -> Iterator[None]:
    """A second record of the same id or name is a conflict, not a failure of the store."""
    try:
        yield
    except apsw.ConstraintError as problem:
        if getattr(problem, "extendedresult", None) != apsw.SQLITE_CONSTRAINT_UNIQUE:
            raise
        raise ConflictError(f"another {kind} memory has this id, or goes by this name already") from problem
