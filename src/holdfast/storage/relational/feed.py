"""What indexes follow in a relational engine: the ``RecallFeed``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from holdfast.core.content import unpack
from holdfast.core.records import Encoding, Kind, Record, Scope, Subject
from holdfast.ports.feed import Changes, Cursor, IndexRow, PageT
from holdfast.storage.relational.database import Database, Row
from holdfast.storage.relational.moves import known_model, model_code
from holdfast.storage.relational.records import as_record
from holdfast.storage.relational.scopes import SQL, Tally, context_query, key_range, read_context

#: The numbers that a cursor has.
_CURSOR: Final = 5
#: Rows of a whole scope are read this many at a time.
_PAGE: Final = 2_000


class SqlFeed:
    """The ``RecallFeed`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changes(
        self, scope: Scope, kind: Kind, since: Cursor | None, *, model: str, read: Callable[[list[IndexRow]], PageT]
    ) -> Changes[PageT]:
        agent = scope.agent_id if "agent" in kind.scope else None
        if since is not None and len(since) == _CURSOR:  # nothing has changed, nearly always
            found = self._database.ask(SQL["cursor"], (scope.subject, kind.code, scope.tenant, agent or ""))
            if found and found[0][:_CURSOR] == since:
                return Changes(since, False, [], [])
        with self._database.read(scope.subject) as tx:
            number = tx.number_of(scope.subject)
            if number is None:
                return Changes((0, 0, 0), since != (0, 0, 0), [], [])
            opened = read_context(tx, kind, context_query(scope.subject, kind, () if agent is None else (agent,)))
            tally = Tally(tx, number, kind, opened.counts)
            removed, rules = opened.is_removed, opened.version
            cursor = (number, tally.seq, tally.next, rules, int(removed))
            if since == cursor:
                return Changes(cursor, False, [], [])
            if removed:
                return Changes(cursor, True, [], [])
            code = known_model(tx, model)
            if since is None or (since[0], *since[3:]) != (number, rules, 0) or since[1] < tally.floor:
                stored = tx.stream(SQL["index_rows"], (code, *key_range(number, kind)))
                return Changes(cursor, True, [read(page) for page in _pages(stored, agent)], [])
            new = tx.rows(SQL["index_rows"], (code, *key_range(number, kind, since[2])))
            live = _as_index_rows(new, agent)
            ids = [row[0] for row in tx.rows(SQL["changed_ids"], (tally.scope, since[1]))]
            there = {row.id for row in live}
            gone = []
            for record_id in ids:
                row = tx.one(SQL["index_row"], (code, record_id, number))
                if row is None:
                    gone.append(record_id)
                elif record_id not in there:
                    live += _as_index_rows([row], agent)
            return Changes(cursor, False, [read(live)], gone)

    def unembedded(self, subject: Subject, kind: Kind, *, model: str, limit: int) -> list[Record]:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            if number is None:
                return []
            code = known_model(tx, model)
            found = tx.rows(SQL["unembedded"], (*key_range(number, kind), code, limit))
            return [as_record(subject, row) for row in found]

    def embed(self, subject: Subject, kind: Kind, encodings: Iterable[tuple[str, int, Encoding]]) -> int:
        with self._database.write() as tx:
            number = tx.number_of(subject)
            if number is None:  # erased meanwhile
                return 0
            tally = Tally(tx, number, kind)
            written = 0
            for record_id, version, encoding in encodings:
                row = tx.one(SQL["standing"], (record_id, number, False))
                if row is not None and row[3] == version:
                    model = model_code(tx, encoding.model)
                    tx.run(SQL["embed"], (model, encoding.vectors, encoding.terms, row[0], version))
                    tally.changed(record_id)
                    written += 1
            tally.save()
            return written

    def adopt(self, model: str) -> None:
        if not self.is_current(model):
            with self._database.alone("models") as tx:
                code = model_code(tx, model)
                tx.run(SQL["adopt_model"], (code,))

    def is_current(self, model: str) -> bool:
        with self._database.read() as tx:
            return tx.one(SQL["current_model"]) == (model,)

    def subjects(self, tenant: str) -> Iterator[Subject]:
        with self._database.read() as tx:
            found = tx.rows(SQL["subjects_of_tenant"], (tenant,))
        return (Subject.parse(row[0]) for row in found)


def _pages(stored: Iterator[Row], agent: str | None) -> Iterator[list[IndexRow]]:
    """Stored rows as recall reads them, those of one agent if one is given, in pages."""
    while page := list(islice(stored, _PAGE)):
        yield _as_index_rows(page, agent)


def _as_index_rows(rows: Iterable[Row], agent: str | None) -> list[IndexRow]:
    """Stored rows have the columns of ``IndexRow``, in their order; but a text may be compressed."""
    if agent is not None:
        rows = [row for row in rows if row[1] == agent]
    # ``IndexRow._make`` does the same, but is a call of Python for each of a hundred thousand rows
    found: list[IndexRow] = list(map(partial(tuple.__new__, IndexRow), rows))
    for place, row in enumerate(found):
        if row.text is not None:
            found[place] = row._replace(text=unpack(row.text))
    return found
