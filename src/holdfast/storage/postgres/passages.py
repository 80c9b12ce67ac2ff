"""Large scopes in PostgreSQL: made ready in batches, searched by vectors (pgvector), words and fields (a GIN index)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from holdfast.core.filters import Filter
from holdfast.core.records import Scope
from holdfast.core.types import Kind
from holdfast.ports.feed import Candidates, IndexRow, Neighbours, Said, Space, Wanted
from holdfast.storage.postgres.copy_format import Passage, copy_in
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.lookups import TAIL, Lookup
from holdfast.storage.postgres.nearness import LEAST, analyze, index_vectors
from holdfast.storage.postgres.term_ids import field_numbers, marks, space_of, word_numbers
from holdfast.storage.postgres.transactions import PostgresTransaction
from holdfast.storage.relational.feed import as_index_row
from holdfast.storage.relational.moves import KINDS, known_model, model_code
from holdfast.storage.relational.scopes import Tally, context_query, key_range, read_context

#: Records made ready in one transaction, while the user's writers wait. With an index of vectors, each takes longer.
_BATCH: Final = 500
#: A sample is of so many runs.
_RUNS: Final = 50
#: What was made for a scope is kept until it is so much smaller than a large one.
_SMALL: Final = 0.5


class PostgresPassages:
    """The ``LargeScopes`` of PostgreSQL. Vectors are indexed once there are ``indexed_from`` of a model."""

    def __init__(self, database: PostgresDatabase, most: int, *, indexed_from: int = LEAST) -> None:
        self._database = database
        self._most = most
        self._indexed_from = indexed_from

    @property
    def most(self) -> int:
        return self._most

    def standing(self, scope: Scope, kind: Kind) -> tuple[int, int]:
        with self._database.read() as tx:
            number = tx.number_of(scope.subject)
            if number is None:
                return 0, 0
            agents = () if _agent(scope, kind) is None else (scope.agent_id,)
            opened = read_context(tx, kind, context_query(scope.subject, kind, agents))
            if opened.is_removed:
                return 0, 0
            tally = Tally(tx, number, kind, opened.counts)
            waiting = tally.next - _filled(tx, tally.scope)
            if waiting <= TAIL:
                waiting += len(tx.rows("passages.stale", (tally.scope, TAIL + 1)))
            return tally.memories, waiting

    def fill(self, scope: Scope, kind: Kind, space: Space, *, limit: int) -> int:
        with self._database.write() as tx:
            number = tx.number_of(scope.subject)
            return 0 if number is None else _fill(tx, number, kind, space, min(limit, _BATCH))

    def sample(self, scope: Scope, kind: Kind, *, model: str, limit: int) -> tuple[list[IndexRow], float]:
        with self._database.read() as tx:
            look = Lookup(tx, scope, kind, model)
            if look.is_empty:
                return [], 1.0
            counts = look.tally.next
            run = max(1, limit // _RUNS) if counts > limit else limit
            starts = range(0, counts, max(run, counts // _RUNS) if counts > limit else limit)
            first, _ = key_range(look.number, kind)
            found = tx.rows("passages.sample", (look.scope, look.code, [first | start for start in starts], run))
            rows = [as_index_row(row) for row in found if look.agent in (None, row[1])]
            return rows, min(1.0, len(found) / max(look.tally.memories, 1))

    def candidates(self, scope: Scope, kind: Kind, space: Space, wanted: Wanted) -> Candidates:
        with self._database.read() as tx:
            look = Lookup(tx, scope, kind, space.model)
            return look.candidates(space, wanted)

    def around(self, scope: Scope, kind: Kind, rows: Sequence[IndexRow], *, model: str, reach: int) -> Neighbours:
        with self._database.read() as tx:
            look = Lookup(tx, scope, kind, model)
            return look.around(rows, reach)

    def select(
        self,
        scope: Scope,
        kind: Kind,
        top_k: int,
        *,
        now: int,
        where: Filter | None,
        include_archived: bool,
        before: str | None = None,
    ) -> list[str]:
        with self._database.read() as tx:
            look = Lookup(tx, scope, kind, "")
            return look.select(top_k, now, where, include_archived, before)

    def tend(self, tenant: str, space: Space, *, thorough: bool) -> int:
        done = 0
        with self._database.read() as tx:
            known = tx.rows("passages.fillings", (tenant,))
            if thorough:
                known += tx.rows("passages.large", (tenant, self._most))
        if not known:
            return 0
        for subject, number, memories in dict.fromkeys(known):
            kind = KINDS[number & 7]
            while memories > self._most and (made := self.fill(_whose(subject), kind, space, limit=_BATCH)):
                done += made
            if memories <= self._most:
                self._forget_small(subject, kind)
        with self._database.read() as tx:
            code = known_model(tx, space.model)
            vectors = 0 if code is None else tx.value("passages.embedded", (code, self._indexed_from))
        if code is not None and vectors >= self._indexed_from:
            index_vectors(self._database, code, space.dim)
        if done > _BATCH:
            analyze(self._database)
        return done

    def _forget_small(self, subject: str, kind: Kind) -> None:
        gone = _BATCH
        while gone == _BATCH:
            with self._database.write() as tx:
                number = tx.number_of(subject)
                tally = Tally(tx, number or 0, kind)
                if tally.memories > self._most * _SMALL:
                    return
                gone = tx.run("passages.forget_scope", (tally.scope, _BATCH))
                if gone < _BATCH:
                    tx.run("passages.forget_filling", (tally.scope,))
                else:
                    tx.run("passages.put_filled", (tally.scope, 0))


def _fill(tx: PostgresTransaction, number: int, kind: Kind, space: Space, limit: int) -> int:
    """Make rows for records that have changed, then for new ones in their order, and note how far that went."""
    tally = Tally(tx, number, kind)
    code = model_code(tx, space.model)
    stale = [row[0] for row in tx.rows("passages.stale", (tally.scope, limit))]
    changed = tx.rows("passages.to_fill_anew", (tally.scope, stale, code)) if stale else []
    filled = _filled(tx, tally.scope)
    room = limit - len(changed)
    fresh: list[Any] = []
    if room and filled < tally.next:
        first, last = key_range(number, kind, filled)
        fresh = tx.rows("passages.to_fill", (tally.scope, first, last, code, room))
        filled = tally.next if len(fresh) < room else (fresh[-1][0] - key_range(number, kind)[0]) + 1
        tx.run("passages.put_filled", (tally.scope, filled))
    rows = [*changed, *fresh]
    if not rows:
        return 0
    tx.run("passages.forget", (tally.scope, [row[0] for row in rows]))
    found = [as_index_row(row[1:]) for row in rows]
    to = _Whither(tally.scope, "agent" in kind.scope, code, space.dim)
    said = space.read(kind, found)
    made = (_passages(to, row[0], *pair) for row, pair in zip(rows, zip(found, said, strict=True), strict=True))
    copy_in(tx.connection, chain.from_iterable(made))
    return len(rows)


class _Whither(NamedTuple):
    """The scope that rows are made for, whether its records are each an agent's own, and of which vectors."""

    scope: int
    by_agent: bool
    model: int | None
    dim: int


def _passages(to: _Whither, key: int, row: IndexRow, said: Said) -> list[Passage]:
    """The rows of a record: what is of all of it stands in the first."""
    subject, agent = to.scope >> 3, row.agent_id if to.by_agent else None
    words = word_numbers(space_of(to.scope, agent, "words"), said.terms)
    fields = field_numbers(space_of(to.scope, agent, "fields"), row.agent_id, row.session_id, row.metadata)
    length = float(said.length)
    first = Passage(subject, key, 0, length, to.scope, None, row.session_id, row.id, words + fields, None)
    if said.vectors is None or len(said.vectors) != 2 * to.dim * said.passages:
        return [first]
    own = np.frombuffer(said.vectors, np.float16).reshape(said.passages, to.dim)
    marked = np.hstack([own, np.tile(marks(to.scope, agent).astype(np.float16), (said.passages, 1))])
    others = range(1, said.passages)
    rest = [Passage(subject, key, n, None, to.scope, to.model, None, None, fields, marked[n]) for n in others]
    return [first._replace(model=to.model, vector=marked[0]), *rest]


def _filled(tx: PostgresTransaction, scope: int) -> int:
    row = tx.one("passages.filled", (scope,))
    return 0 if row is None else int(row[0])


def _agent(scope: Scope, kind: Kind) -> str | None:
    return scope.agent_id if "agent" in kind.scope else None


def _whose(subject: str) -> Scope:
    tenant, user_id = subject.split("/", 1)
    return Scope(tenant, user_id, "")
