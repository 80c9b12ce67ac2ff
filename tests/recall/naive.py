"""What ``ScopeIndex.search`` promises, written as plainly as possible, to compare it with."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.core.filters import MISSING, Filter, matches, value_at
from holdfast.ports.feed import IndexRow
from holdfast.recall import terms

Vector = Sequence[float]


def search(
    rows: Sequence[IndexRow],
    query: Vector | None,
    query_terms: Sequence[int],
    *,
    now: int,
    where: Filter | None = None,
    include_archived: bool = False,
) -> list[tuple[str, float]]:
    """Every record that may be found, with its evidence, best first; of equals, the one that was changed last."""
    evidence = {row.id: lexical for row, lexical in zip(rows, _lexical(rows, query_terms), strict=True)}
    close, thread = _closeness(rows, query)
    for row in rows:
        evidence[row.id] += close[row.id]
    visible = {
        row.id
        for row in rows
        if (row.hidden_from is None or row.hidden_from > now)
        and (include_archived or row.archived_from is None or row.archived_from > now)
    }
    lending = {record_id: max(evidence[record_id] - 0.3, 0) if record_id in visible else 0.0 for record_id in evidence}
    final = {}
    for row in rows:
        words = _words(row)
        reach = thread * words / (words + 20) * 80 / (80 + words)
        squares = sum(
            (1 if abs(distance) == 1 else 0.5) * lending[neighbour] ** 2
            for distance in (-2, -1, 1, 2)
            if (neighbour := _neighbour(rows, row, distance)) is not None
        )
        final[row.id] = evidence[row.id] + reach * math.sqrt(squares)
    found = [row for row in rows if row.id in visible and (where is None or passes(row, where))]
    found.sort(key=lambda row: (final[row.id], row.updated_at, row.id), reverse=True)
    return [(row.id, final[row.id]) for row in found]


def passes(row: IndexRow, where: Filter) -> bool:
    """Whether a record of the kind ``long_term`` passes a filter."""

    def field(path: tuple[str, ...]) -> object:
        if path[0] == "metadata":
            return value_at(json.loads(row.metadata), path[1:])
        value: object = {"memory_type": "long_term"}.get(path[0]) or getattr(row, path[0])
        return MISSING if value is None else value

    return matches(where, field)


def _counts(row: IndexRow) -> Mapping[int, int]:
    said = terms.decode([row.terms])
    counts: Counter[int] = Counter()
    for term, times in zip(said.term.tolist(), said.times.tolist(), strict=True):
        counts[term] += times
    return counts


def _words(row: IndexRow) -> int:
    return sum(_counts(row).values())


def _lexical(rows: Sequence[IndexRow], query_terms: Sequence[int]) -> list[float]:
    counts = [_counts(row) for row in rows]
    words = sum(map(_words, rows))
    usual = 2 ** (round(math.log2(words / len(rows)) * 32) / 32) if words else 1.0
    weights = {}
    for term in query_terms:
        holding = sum(term in held for held in counts)
        weights[term] = math.log1p((len(rows) + 10 - holding - 1 + 0.5) / (holding + 1 + 0.5))
    result = []
    for held in counts:
        length = sum(held.values())
        matched = covered = 0.0
        for term, weight in weights.items():
            if term in held:
                matched += weight * held[term] * 2.2 / (held[term] + 1.2 * (0.25 + 0.75 * length / usual))
                covered += weight
        result.append(0.12 * matched * math.sqrt(covered / sum(weights.values())) if weights else 0.0)
    return result


def _closeness(rows: Sequence[IndexRow], query: Vector | None) -> tuple[dict[str, float], float]:
    """Each record's cosine with the query, and how far its sessions follow a thread."""
    dim = next((len(_vectors(row, 0)[0]) for row in rows if row.vectors is not None), len(query or ()))
    vectors = {row.id: _vectors(row, dim) for row in rows}
    embedded = [vector for row in rows for vector in vectors[row.id] if any(vector)]
    if not embedded:
        return dict.fromkeys(vectors, 0.0), 0.0
    total = [sum(column) for column in zip(*embedded, strict=True)]
    length = math.sqrt(_dot(total, total))
    share = len(embedded) / (len(embedded) + 10)
    if length < 1e-6:
        length, share = 1.0, 0.0
    direction = [part / length for part in total]
    removed = share * (2 - share)

    def cosine(a: Vector, b: Vector) -> float:
        own = math.prod(math.sqrt(max(1 - removed * _dot(x, direction) ** 2, 0.02)) for x in (a, b))
        return (_dot(a, b) - removed * _dot(a, direction) * _dot(b, direction)) / own

    alike = [
        cosine(vectors[row.id][0], vectors[before][0])
        for row in rows
        if (before := _neighbour(rows, row, -1)) is not None
    ]
    thread = min(max(sum(alike) / (len(alike) + 8) / 0.1, 0.0), 1.0)
    if query is None or not any(query):
        return dict.fromkeys(vectors, 0.0), thread
    return {row.id: max(cosine(vector, query) for vector in vectors[row.id]) for row in rows}, thread


def _vectors(row: IndexRow, dim: int) -> list[list[float]]:
    if row.vectors is None:
        return [[0.0] * dim]
    passages = int(terms.decode([row.terms]).passages[0])
    found: list[list[float]] = np.frombuffer(row.vectors, np.float16).reshape(passages, -1).astype(float).tolist()
    return found


def _neighbour(rows: Sequence[IndexRow], row: IndexRow, distance: int) -> str | None:
    if row.session_id is None:
        return None
    session = sorted(other.id for other in rows if other.session_id == row.session_id)
    place = session.index(row.id) + distance
    return session[place] if 0 <= place < len(session) else None


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))
