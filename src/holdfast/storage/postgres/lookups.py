"""One look at a large scope: all that an answer needs, from one view of the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from psycopg import RawCursor
from psycopg.pq import Format
from psycopg.rows import tuple_row

from holdfast.core.filters import Filter
from holdfast.core.records import Scope
from holdfast.core.types import Kind
from holdfast.ports.feed import Candidates, IndexRow, Neighbours, Space, Wanted
from holdfast.storage.postgres.filter_sql import ALWAYS, json_path, passes, time_limits
from holdfast.storage.postgres.term_ids import MARKS, Numbers, asked_numbers, marks, space_of, word_numbers
from holdfast.storage.postgres.transactions import STATEMENTS, PostgresTransaction
from holdfast.storage.relational.feed import as_index_row
from holdfast.storage.relational.moves import known_model
from holdfast.storage.relational.scopes import Tally, context_query, key_range, read_context

#: So many records that are not ready yet are all candidates; with more, a scope is not searched here.
TAIL: Final = 1_000
#: Where no more pass a filter than this, all that pass are candidates.
_FEW: Final = 1_000
#: So many of the closest are looked at to see whether they pass a filter.
_LOOKED_AT: Final = 4_000
#: How many rows are asked for at a time where each is looked at.
_PAGE: Final = 5_000
#: So many records in all are looked up by single words, the rarest words first; the others count in pairs.
_POSTINGS: Final = 8_000
_PAIRED: Final = 5
#: Of a very long query, so many words are looked up.
_WORDS: Final = 64
#: Where records have many passages, so many times as many of these are asked for.
_MANY_PASSAGES: Final = 8
#: The most that an index of vectors goes through for one answer.
_SCANNED: Final = 40_000
_LAST_ID: Final = "\U0010ffff"


class _Passing(NamedTuple):
    """Records that pass a filter."""

    keys: list[int]
    is_all: bool
    share: float
    """About what part they are of the records that have the fields it asks for; of all, where it asks for none."""


class Lookup:
    """A scope within a transaction that reads."""

    def __init__(self, tx: PostgresTransaction, scope: Scope, kind: Kind, model: str) -> None:
        self._tx = tx
        self._kind = kind
        self.number = tx.number_of(scope.subject) or 0
        self.agent = scope.agent_id if "agent" in kind.scope else None
        agents = () if self.agent is None else (self.agent,)
        opened = read_context(tx, kind, context_query(scope.subject, kind, agents))
        self.tally = Tally(tx, self.number, kind, opened.counts)
        self.is_empty = opened.is_removed or not self.tally.memories
        self.scope = self.tally.scope
        self.code = known_model(tx, model)
        self._late: npt.NDArray[np.float64] = np.zeros(0)  # how many of those that are not ready hold each term

    # --- candidates ----------------------------------------------------------------------------------------------

    def candidates(self, space: Space, wanted: Wanted) -> Candidates:
        """What is not ready yet, what is close in meaning, and what is close in words."""
        if self.is_empty:
            return Candidates([], np.zeros(len(wanted.terms)))
        tail = self._tail()
        self._late = np.zeros(len(wanted.terms))
        for said in space.read(self._kind, tail) if tail else ():
            self._late += np.isin(wanted.terms, said.terms)
        if wanted.where is None:
            keys, holding = self._by_words(wanted, wanted.enough)
            near = self._near(space, wanted, wanted.enough)
            if len({*near}) < wanted.enough:  # few have vectors, or many passages: there are to be enough all the same
                keys += self._newest(wanted)
            return self._joined(tail, [*keys, *near], holding)
        passing = self._passing(wanted, _FEW)
        if passing.is_all and len(passing.keys) <= _FEW:
            return self._joined(tail, passing.keys, self._by_words(wanted, 0)[1])
        if not passing.is_all:
            room = int(wanted.enough * (1 + 2 * (1 - passing.share)) / passing.share)
            if room <= _LOOKED_AT:
                keys, holding = self._by_words(wanted, room)
                found = self._joined(tail, [*keys, *self._near(space, wanted, room)], holding)
                good = [row for row in found.rows if passes(row[1:5], row.metadata, self._kind, wanted.where)]
                if len(good) >= wanted.enough:
                    return Candidates(good, holding)
            passing = self._passing(wanted, None)  # what passes is rare, or is not what is close
        return self._among(space, wanted, passing.keys, tail)

    def _among(self, space: Space, wanted: Wanted, every: list[int], tail: Sequence[IndexRow]) -> Candidates:
        """The closest of all the records that pass a filter."""
        closest = self._near_among(space, wanted, every)
        if len({*closest}) < wanted.enough:
            closest += every[: wanted.enough]
        keys, holding = self._by_words(wanted, _POSTINGS)
        chosen = frozenset(every)
        return self._joined(tail, [*closest, *[key for key in keys if key in chosen][: wanted.enough]], holding)

    def _joined(self, tail: Sequence[IndexRow], keys: Iterable[int], holding: npt.NDArray[np.float64]) -> Candidates:
        found = {row.id: row for row in (*self._rows(keys), *tail)}
        return Candidates(list(found.values()), holding)

    def _rows(self, keys: Iterable[int]) -> list[IndexRow]:
        found = self._tx.rows("passages.rows", (self.scope, self.code, list(dict.fromkeys(keys))))
        return [as_index_row(row) for row in found if self.agent in (None, row[1])]

    def _tail(self) -> list[IndexRow]:
        """The live records that have no rows of their own yet, or no longer."""
        row = self._tx.one("passages.filled", (self.scope,))
        keys = key_range(self.number, self._kind, 0 if row is None else row[0])
        fresh = [as_index_row(found) for found in self._tx.rows("records.index_rows", (self.code, *keys))]
        stale = [found[0] for found in self._tx.rows("passages.stale", (self.scope, TAIL + 1))]
        return [row for row in fresh if self.agent in (None, row.agent_id)] + (self._rows(stale) if stale else [])

    # --- by words ------------------------------------------------------------------------------------------------

    def _by_words(self, wanted: Wanted, count: int) -> tuple[list[int], npt.NDArray[np.float64]]:
        """Records that hold the words, and how many hold each word (in the recycle bin too)."""
        holding = wanted.holding.copy()
        asked = _searches(word_numbers(space_of(self.scope, self.agent, "words"), wanted.terms), wanted)
        if not asked:
            return [], holding
        ones, others, weights, places = zip(*asked, strict=True)
        bindings = (list(ones), list(others), _POSTINGS, list(weights), wanted.records + 9.5, wanted.usual, count)
        seen = (wanted.now, wanted.include_archived, self.agent or "", *self._fields(wanted.where))
        keys = []
        for is_key, number, value in self._tx.rows("passages.holding", (self.scope, *bindings, *seen)):
            if is_key:
                keys.append(number)
            elif (place := places[number - 1]) is not None and not value >= _POSTINGS:
                holding[place] = value + self._late[place]
        return keys, np.where(np.isnan(holding), self._late, holding)

    # --- by meaning ----------------------------------------------------------------------------------------------

    def _near(self, space: Space, wanted: Wanted, count: int) -> list[int]:
        if wanted.vector is None or self.code is None:
            return []
        self._tune(count)
        seen = (wanted.now, wanted.include_archived, self.agent or "")
        asked = (self.scope, *seen, self._pointed(wanted.vector), count, *self._fields(wanted.where))
        found = self._ask("passages.near", space.dim, asked)
        self._tx.rows("passages.untune")
        if len(found) == count <= _LOOKED_AT and 2 * len({*found}) < count:  # of few records, many passages each
            return self._near(space, wanted, _MANY_PASSAGES * count)
        return found

    def _tune(self, count: int) -> None:
        """Let what follows look for about so many vectors, by their index."""
        self._tx.rows("passages.tune", (str(min(max(count, 40), 1_000)), str(max(_SCANNED, 4 * count))))

    def _near_among(self, space: Space, wanted: Wanted, keys: list[int]) -> list[int]:
        if wanted.vector is None or self.code is None:
            return []
        vector = self._pointed(wanted.vector)
        return self._ask("passages.near_among", space.dim, (self.scope, keys, vector, wanted.enough))

    def _pointed(self, vector: npt.NDArray[np.float32]) -> str:
        """A vector as SQL takes it, with the scope's marks, scaled so that it weighs as much as one that is stored."""
        own = vector / (np.linalg.norm(vector) or 1)
        return "[" + ",".join(f"{part:.6g}" for part in (*own.tolist(), *marks(self.scope, self.agent).tolist())) + "]"

    def _ask(self, name: str, dim: int, bindings: Sequence[Any]) -> list[int]:
        text = STATEMENTS[name].text.replace(b"{model}", b"%d" % (self.code or 0))
        cursor = RawCursor(self._tx.connection, row_factory=tuple_row)
        cursor.format = Format.BINARY
        return [row[0] for row in cursor.execute(text.replace(b"{dim}", b"%d" % (dim + MARKS)), bindings)]

    # --- by fields -----------------------------------------------------------------------------------------------

    def _fields(self, where: Filter | None) -> list[Numbers]:
        """Three sets of numbers, of each of which (unless it is empty) a record that passes has at least one."""
        groups = [] if where is None else asked_numbers(space_of(self.scope, self.agent, "fields"), where)
        return [*sorted(groups, key=len)[:3], [], [], []][:3]

    def _passing(self, wanted: Wanted, most: int | None) -> _Passing:
        """The records that pass the filter and are to be seen; ``most``: once there are more, some will do."""
        keys: list[int] = []
        looked = 0
        enough = None if most is None else 2 * most + 1
        narrowed = bool(self._fields(wanted.where)[0])
        for page in self._pages(wanted.where, wanted.now, wanted.include_archived, enough):
            keys += [row[0] for row in page if passes(row[2:6], row[6], self._kind, wanted.where)]
            # Keys are given in the order of time, so the last one tells how many there were, passed over or not.
            looked = len(page) if narrowed else self.tally.next - (page[-1][0] - key_range(self.number, self._kind)[0])
            more = len(page) == (enough if narrowed else _PAGE)
            if most is not None and more and (narrowed or len(keys) > most):
                return _Passing(keys, False, min(max(len(keys), 1) / max(looked, 1), 0.999))
        return _Passing(keys, True, 1.0)

    def _pages(
        self,
        where: Filter | None,
        now: int,
        include_archived: bool,  # noqa: FBT001
        most: int | None = None,
        before: str | None = None,
    ) -> Iterator[list[Any]]:
        """What a filter looks at: the records that have the fields it asks for (``most`` of them), where that is known,
        else all (older than ``before``), the newest first.
        """
        fields = self._fields(where)
        seen = (now, include_archived, self.agent or "")
        if fields[0]:
            yield self._tx.rows("passages.having", (self.scope, *fields, *seen, most))
            return
        last = before or _LAST_ID
        limits = (*time_limits(where), json_path(where)) if where is not None else (*ALWAYS, "")
        while page := self._tx.rows("passages.newest", (self.scope, last, *seen, _PAGE, *limits)):
            yield page
            last = page[-1][1]

    def _newest(self, wanted: Wanted) -> list[int]:
        seen = (wanted.now, wanted.include_archived, self.agent or "")
        found = self._tx.rows("passages.newest", (self.scope, _LAST_ID, *seen, wanted.enough, *ALWAYS, ""))
        return [row[0] for row in found]

    def select(
        self,
        top_k: int,
        now: int,
        where: Filter | None,
        include_archived: bool,  # noqa: FBT001
        before: str | None,
    ) -> list[str]:
        """Ids of records that pass the filter and are to be seen, newest first."""
        found: list[str] = []
        if self.is_empty or top_k < 1:
            return found
        narrowed = bool(self._fields(where)[0])
        for page in self._pages(where, now, include_archived, before=before):
            found += [row[1] for row in page if where is None or passes(row[2:6], row[6], self._kind, where)]
            if len(found) >= top_k and not narrowed:
                break
        if narrowed:
            late = [row for row in self._tail() if _is_seen(row, now, include_archived)]
            found += [row.id for row in late if passes(row[1:5], row.metadata, self._kind, where)]
            found = sorted((one for one in set(found) if before is None or one < before), reverse=True)
        return found[:top_k]

    # --- neighbours ----------------------------------------------------------------------------------------------

    def around(self, rows: Sequence[IndexRow], reach: int) -> Neighbours:
        """The records next to these in their sessions, whether or not they are ready yet."""
        centres = [(row.id, row.session_id) for row in rows if row.session_id is not None]
        if not centres:
            return Neighbours([], {})
        sides: dict[str, set[str]] = defaultdict(set)
        keys: dict[str, int] = {}
        asked = (self.scope, [one for one, _ in centres], [session for _, session in centres], self.agent or "", reach)
        self._tune(1)
        for centre, _, near, key in self._tx.rows("passages.around", asked):
            sides[centre].add(near)
            keys[near] = key
        late: dict[str | None, set[str]] = defaultdict(set)
        tail = {row.id: row for row in self._tail()}
        for row in tail.values():
            late[row.session_id].add(row.id)
        before: dict[str, str] = {}
        for centre, session in centres:
            line = sorted({centre} | sides[centre] | late[session])
            at = line.index(centre)
            before.update((after, first) for first, after in pairwise(line[max(at - reach, 0) : at + reach + 1]))
        near = {*before, *before.values()}
        found = self._rows(keys[one] for one in near & keys.keys() - tail.keys())
        return Neighbours([*found, *(tail[one] for one in near & tail.keys())], before)


def _is_seen(row: IndexRow, now: int, include_archived: bool) -> bool:  # noqa: FBT001
    hidden = row.hidden_from is not None and row.hidden_from <= now
    archived = row.archived_from is not None and row.archived_from <= now
    return not hidden and (include_archived or not archived)


def _searches(numbers: Numbers, wanted: Wanted) -> list[tuple[int, int, float | None, int | None]]:
    """What to look up: numbers (one, or two that must be there together), a weight if it is known, and which term."""
    order = sorted(range(len(numbers)), key=lambda at: np.nan_to_num(wanted.holding[at]))
    weights = np.log1p(np.maximum(wanted.records + 9.5 - wanted.holding, 0) / (wanted.holding + 1.5))
    asked: list[tuple[int, int, float | None, int | None]] = []
    rest: list[int] = []
    budget = float(_POSTINGS)
    for at in order[:_WORDS]:
        rare = bool(np.isnan(wanted.holding[at]))
        budget -= 0 if rare else wanted.holding[at]
        if budget >= 0 or not asked:
            asked.append((numbers[at], numbers[at], None if rare else float(weights[at]), at))
        else:
            rest.append(at)
    rest = rest[:_PAIRED]
    for place, one in enumerate(rest):
        for other in rest[place + 1 :]:
            weight = float(weights[one] + weights[other]) / max(len(rest) - 1, 1)
            asked.append((numbers[one], numbers[other], weight, None))
    return asked
