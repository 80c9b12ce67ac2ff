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
    words = _lexical(rows, query_terms)
    close, thread = _closeness(rows, query)
    weight = _word_weight(list(close.values()), list(words.values()))
    evidence = {row.id: close[row.id] + weight * words[row.id] for row in rows}
    share = len(rows) / (len(rows) + 100)
    outstanding = float(np.mean(list(evidence.values())) + 2.5 * np.std(list(evidence.values())))
    faint = round((share * outstanding + (1 - share) * 0.3) * 1024) / 1024
    visible = {
        row.id
        for row in rows
        if (row.hidden_from is None or row.hidden_from > now)
        and (include_archived or row.archived_from is None or row.archived_from > now)
    }
    lending = {each: max(found - faint, 0) * 1.5 if each in visible else 0.0 for each, found in evidence.items()}
    final = {}
    for row in rows:
        length = sum(map(sum, (passage.values() for passage in _counts(row))))
        reach = thread * length / (length + 20) * 160 / (160 + length)
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


def _counts(row: IndexRow) -> list[Counter[int]]:
    """How often each passage has each term."""
    said = terms.decode(row.terms)
    counts: list[Counter[int]] = [Counter() for _ in range(int(said.passages[0]))]
    for passage, term, times in zip(said.passage.tolist(), said.term.tolist(), said.times.tolist(), strict=True):
        counts[passage][term] += times
    return counts


def _lexical(rows: Sequence[IndexRow], query_terms: Sequence[int]) -> dict[str, float]:
    """What words say of each record: half by all of it, half by its best passage."""
    passages = {row.id: _counts(row) for row in rows}
    wholes = {each: sum(counts, Counter[int]()) for each, counts in passages.items()}
    weights = {}
    for term in query_terms:
        holding = sum(term in held for held in wholes.values())
        weights[term] = math.log1p((len(rows) + 10 - holding - 1 + 0.5) / (holding + 1 + 0.5))
    of_wholes = _bm25(list(wholes.values()), weights)
    of_passages = iter(_bm25([counts for row in rows for counts in passages[row.id]], weights))
    best = [max(next(of_passages) for _ in passages[row.id]) for row in rows]
    return {row.id: (whole + part) / 2 for row, whole, part in zip(rows, of_wholes, best, strict=True)}


def _bm25(texts: Sequence[Counter[int]], weights: Mapping[int, float]) -> list[float]:
    words = sum(sum(held.values()) for held in texts)
    usual = 2 ** (round(math.log2(words / len(texts)) * 32) / 32) if words else 1.0
    result = []
    for held in texts:
        length = sum(held.values())
        matched = covered = 0.0
        for term, weight in weights.items():
            if term in held:
                matched += weight * held[term] * 2.2 / (held[term] + 1.2 * (0.25 + 0.75 * length / usual))
                covered += weight
        result.append(matched * math.sqrt(covered / sum(weights.values())) if weights else 0.0)
    return result


def _word_weight(close: Sequence[float], words: Sequence[float]) -> float:
    spreads = float(np.std(close)), float(np.std(words))
    if min(spreads) < 1e-9:
        return 0.12
    out = (max(close) - float(np.mean(close))) / spreads[0]
    weight = 0.6 * spreads[0] / spreads[1] * math.sqrt(2 * math.log(len(close))) / out
    share = len(close) / (len(close) + 100)
    return _step(weight**share * 0.12 ** (1 - share))


def _step(value: float) -> float:
    return float(2 ** (round(math.log2(value) * 64) / 64)) if value > 0 else 0.0


def _closeness(rows: Sequence[IndexRow], query: Vector | None) -> tuple[dict[str, float], float]:
    """Each record's cosine with the query, and how far its sessions follow a thread."""
    dim = next((len(_steps(row, 0)[0]) for row in rows if row.vectors is not None), len(query or ()))
    vectors = {row.id: [_unit(one) for one in _steps(row, dim)] for row in rows}
    embedded = [steps for row in rows for steps in _steps(row, dim) if any(steps)]
    if not embedded:
        return dict.fromkeys(vectors, 0.0), 0.0
    query = None if query is None else _unit(query)
    total = [sum(column) for column in zip(*embedded, strict=True)]
    largest = max(map(abs, total)) or 1
    direction = _unit([round(part * (127 / largest)) for part in total])
    share = len(embedded) / (len(embedded) + 10)
    removed = round(share * (2 - share) * 4096) / 4096 if any(total) else 0.0

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
    cosines = {row.id: [cosine(vector, query) for vector in vectors[row.id]] for row in rows}
    free = sum(map(len, cosines.values())) - len(rows)
    inside = sum((each - sum(some) / len(some)) ** 2 for some in cosines.values() for each in some)
    spread = _step(math.sqrt(inside / free)) if free else 0.0

    def closeness(row: IndexRow) -> float:
        some = vectors[row.id]
        if len(some) == 1:
            return cosines[row.id][0]
        whole = [sum(column) for column in zip(*some, strict=True)]
        own = math.sqrt(max(_dot(whole, whole) - removed * _dot(whole, direction) ** 2, 0.02))
        query_own = math.sqrt(max(1 - removed * _dot(query, direction) ** 2, 0.02))
        mean = (_dot(whole, query) - removed * _dot(whole, direction) * _dot(query, direction)) / own / query_own
        return (max(cosines[row.id]) - spread * math.sqrt(2 * math.log(len(some))) + mean) / 2

    return {row.id: closeness(row) for row in rows}, thread


def _unit(vector: Vector) -> list[float]:
    length = math.sqrt(_dot(vector, vector)) or 1.0
    return [part / length for part in vector]


def _steps(row: IndexRow, dim: int) -> list[list[float]]:
    if row.vectors is None:
        return [[0.0] * dim]
    passages = int(terms.decode(row.terms).passages[0])
    found: list[list[float]] = np.frombuffer(row.vectors, np.int8).reshape(passages, -1).astype(float).tolist()
    return found


def _neighbour(rows: Sequence[IndexRow], row: IndexRow, distance: int) -> str | None:
    if row.session_id is None:
        return None
    session = sorted(other.id for other in rows if other.session_id == row.session_id)
    place = session.index(row.id) + distance
    return session[place] if 0 <= place < len(session) else None


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))
