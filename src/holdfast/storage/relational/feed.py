"""What recall reads in a relational engine: the ``RecallFeed`` that indexes follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from itertools import chain, islice
from threading import Thread
from typing import Final, Generic, NamedTuple

from holdfast.core.clock import current_deadline
from holdfast.core.errors import HoldfastError
from holdfast.core.records import Encoding, Kind, MemoryType, Record, Scope, Subject
from holdfast.core.values import to_json, unpack
from holdfast.ports.feed import Changes, Cursor, IndexRow, PackedRows, PageT, ProfileTimes
from holdfast.storage.relational import moves as record_moves
from holdfast.storage.relational import rows as record_rows
from holdfast.storage.relational.database import Question, SqlStore, Transaction
from holdfast.storage.relational.rows import Counts, WriteContext, known_model

#: Rows of a whole scope are read about this many at a time (what is read then fits into the processor's cache), ...
_PAGE: Final = 1_000
#: ... out of at most so many keys.
_WIDEST: Final = 64 * _PAGE
#: From so many records on it pays to read them by two threads.
_MANY: Final = 4 * _PAGE
#: So many pages are made arrays of at once.
_TOGETHER: Final = 16


class CursorRow(NamedTuple):
    """How far a scope has come."""

    number: int
    seq: int
    next: int
    rules: int
    is_removed: bool


class PlacedCursor(NamedTuple):
    """How far one of several scopes has come."""

    place: int
    number: int
    seq: int
    next: int
    rules: int
    is_removed: bool


class SqlFeed(SqlStore):
    """The ``RecallFeed`` of the relational engines."""

    def changes(
        self,
        scope: Scope,
        kind: Kind,
        since: Cursor | None,
        *,
        model: str,
        read: Callable[[list[IndexRow] | PackedRows], PageT],
        ended: bool = False,
    ) -> Changes[PageT]:
        if since is not None and len(since) == len(CursorRow._fields):
            place = record_rows.scope_number(since[0], kind)
            asked = (since[0], scope.subject, place, scope.tenant, _agent(scope, kind) or "")
            found = self._database.ask(CursorRow, "records.cursor", asked)
            if found == [since]:  # nothing has changed, nearly always
                return Changes(since, False, [], [])
            if found and not found[0].is_removed and (found[0].number, found[0].rules, 0) == (since[0], *since[3:]):
                with self._database.read(scope.subject) as tx:
                    counts = tx.find(Counts, "records.scope", (place,)) or Counts()
                    if counts.floor <= since[1]:
                        live, gone = _read_changes(tx, scope, kind, since, known_model(tx, model), ended=ended)
                        cursor = (since[0], counts.seq, counts.next, *since[3:])
                        return Changes(cursor, False, [read(live)] if live else [], gone)
        return self._read_all(scope, kind, since, model, read, ended=ended)

    def _read_all(
        self,
        scope: Scope,
        kind: Kind,
        since: Cursor | None,
        model: str,
        read: Callable[[list[IndexRow] | PackedRows], PageT],
        *,
        ended: bool,
    ) -> Changes[PageT]:
        """All that there is in a scope."""
        agent = _agent(scope, kind)
        with self._database.read(scope.subject) as tx:
            number = tx.number_of(scope.subject)
            if number is None:
                return Changes((0, 0, 0), since != (0, 0, 0), [], [])
            query = record_rows.context_query(scope.subject, kind, () if agent is None else (agent,))
            (context,) = tx.all(WriteContext, *query)
            cursor = (number, context.seq, context.next, context.version, int(context.is_removed))
            if context.is_removed:
                return Changes(cursor, True, [], [])
            reading = _Reading(known_model(tx, model), agent, record_rows.key_range(number, kind), read)
            if ended:
                names = ("records.index_rows", "versions.index_rows")
                stored = chain.from_iterable(tx.each(IndexRow, name, (reading.model, *reading.keys)) for name in names)
                return Changes(cursor, True, [read(page) for page in _pages(stored, agent)], [])
            return Changes(cursor, True, self._read_scope(tx, scope, query, context, reading), [])

    def _read_scope(
        self, tx: Transaction, scope: Scope, query: Question, context: WriteContext, reading: _Reading[PageT]
    ) -> list[PageT]:
        """All pages of a scope."""
        pages, count = [], 0
        with closing(self._fetch(tx, scope, query, context, reading)) as fetched:
            while found := list(islice(fetched, _TOGETHER)):
                packed = PackedRows.join(found)
                profiles = tx.all(ProfileTimes, "records.profile_times", (to_json(packed.profile_numbers),))
                pages.append(reading.read(replace(packed, profiles=profiles)))
                count += packed.count
        return pages if count == context.memories else [*pages, *reading.others(tx)]

    def _fetch(
        self, tx: Transaction, scope: Scope, query: Question, context: WriteContext, reading: _Reading[PageT]
    ) -> Generator[PackedRows]:
        """The records of a scope that have terms. Of many, a second reader fetches one half meanwhile, if it sees the
        scope as it is here. It does nothing else: two threads that both run Python wait for each other.
        """
        first, end = reading.keys[0], reading.keys[0] + context.next
        if not tx.is_alone or context.memories < _MANY:
            yield from reading.packed(tx, first, end)
            return
        middle = (first + end) // 2
        rest: deque[PackedRows] | None = None
        deadline = current_deadline()

        def fetch_rest() -> None:
            nonlocal rest
            until = nullcontext() if deadline is None else deadline.apply()
            with suppress(HoldfastError), until, self._database.read(scope.subject) as other:
                if other.all(WriteContext, *query) == [context]:
                    rest = deque(reading.packed(other, middle, end))

        helper = Thread(target=fetch_rest)
        helper.start()
        try:
            yield from reading.packed(tx, first, middle)
        finally:
            helper.join()
        if rest is None:
            yield from reading.packed(tx, middle, end)
        while rest:
            yield rest.popleft()

    def unchanged(self, scope: Scope, cursors: Sequence[tuple[Kind, Cursor]]) -> dict[MemoryType, Cursor]:
        known = {record_rows.scope_number(since[0], kind): (kind, since) for kind, since in cursors if since[0]}
        if not known:
            return {}
        places = to_json([[place, _agent(scope, kind) or ""] for place, (kind, _) in known.items()])
        asked = (max(since[0] for _, since in known.values()), scope.subject, places, scope.tenant)
        found = self._database.ask(PlacedCursor, "records.cursors", asked)
        same = [known[place] for place, *cursor in found if known[place][1] == tuple(cursor)]
        return {kind.name: since for kind, since in same}

    def unembedded(self, subject: Subject, kind: Kind, *, model: str, limit: int) -> list[Record]:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            code = known_model(tx, model)
            found = tx.all(
                record_rows.RecordRow, "records.unembedded", (*record_rows.key_range(number, kind), code, limit)
            )
            return [record_rows.as_record(subject, row) for row in found]

    def embed(self, subject: Subject, kind: Kind, encodings: Iterable[tuple[str, int, Encoding]]) -> int:
        with self._database.write() as tx:
            number = tx.number_of(subject)
            if number is None:  # erased meanwhile
                return 0
            counter = record_rows.ScopeCounter(tx, number, kind)
            written = 0
            for record_id, version, encoding in encodings:
                row = record_moves.find_current(tx, record_id, number)
                if row is not None and row.version == version:
                    model = record_moves.model_code(tx, encoding.model)
                    tx.run("records.embed", (model, encoding.vectors, encoding.terms, row.key, version))
                    counter.note_change(record_id)
                    written += 1
            counter.save()
            return written

    def adopt(self, model: str) -> None:
        if not self.is_current(model):
            with self._database.alone("models") as tx:
                code = record_moves.model_code(tx, model)
                tx.run("records.adopt_model", (code,))

    def is_current(self, model: str) -> bool:
        return self._database.ask(str, "records.current_model") == [model]

    def subjects(self, tenant: str) -> Iterator[Subject]:
        return iter(self._database.ask(Subject, "records.subjects_of_tenant", (tenant,)))


def _read_changes(
    tx: Transaction, scope: Scope, kind: Kind, since: Cursor, model: int | None, *, ended: bool
) -> tuple[list[IndexRow], list[str]]:
    """What is new or changed since then in a scope, and the ids of what is gone."""
    number, agent = since[0], _agent(scope, kind)
    live = _readable(
        tx.all(IndexRow, "records.index_rows", (model, *record_rows.key_range(number, kind, since[2]))), agent
    )
    there = {row.id for row in live}
    gone = []
    for record_id in tx.all(str, "records.changed_ids", (record_rows.scope_number(number, kind), since[1])):
        one = tx.find(IndexRow, "records.index_row", (model, record_id, number))
        if one is None:
            gone.append(record_id)
        elif record_id not in there:
            live += _readable([one], agent)
    if ended:
        theirs = (model, to_json([row.id for row in live]), number)
        live += _readable(tx.all(IndexRow, "versions.index_rows_of", theirs), agent)
    return live, gone


def _agent(scope: Scope, kind: Kind) -> str | None:
    """The agent whose records of a kind are meant; ``None`` where they are of all agents."""
    return scope.agent_id if "agent" in kind.scope else None


class _Reading(NamedTuple, Generic[PageT]):
    """How a whole scope is read."""

    model: int | None
    agent: str | None
    keys: tuple[int, int]
    read: Callable[[list[IndexRow] | PackedRows], PageT]

    def packed(self, tx: Transaction, start: int, end: int) -> Iterator[PackedRows]:
        """The records with terms of a range of keys, in pages."""
        width = _PAGE
        while start < end:
            last = min(start + width, end) - 1
            page = tx.find(PackedRows, "records.index_page", (self.model, start, last, self.agent))
            start = last + 1
            found = 0 if page is None else page.count
            if page is not None and found:
                yield page
            width = _PAGE if found >= _PAGE // 2 else min(2 * width, _WIDEST)  # many keys have no record any more

    def others(self, tx: Transaction) -> list[PageT]:
        """The records without terms, which are archived."""
        rows = tx.each(IndexRow, "records.index_rows_without_terms", (self.model, *self.keys))
        return [self.read(page) for page in _pages(rows, self.agent)]


def _pages(stored: Iterator[IndexRow], agent: str | None) -> Iterator[list[IndexRow]]:
    """Stored rows as recall reads them, those of one agent if one is given, in pages."""
    while page := list(islice(stored, _PAGE)):
        if readable := _readable(page, agent):
            yield readable


def _readable(rows: list[IndexRow], agent: str | None) -> list[IndexRow]:
    """Rows as recall reads them, those of one agent if one is given: a text is stored as it may be compressed."""
    if agent is not None:
        rows = [row for row in rows if row.agent_id == agent]
    for place, row in enumerate(rows):
        if row.text is not None:
            rows[place] = row._replace(text=unpack(row.text))
    return rows
