"""What a part of a scope needs to know of the whole, so that its records rank as they would among all."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.types import TYPES, MemoryType
from holdfast.ports.feed import IndexRow
from holdfast.recall import terms
from holdfast.recall.index import ScopeIndex, Whole
from holdfast.recall.large import _Known, _runs, read_rows

WORDS = ("ferry", "piano", "garlic", "ankle", "report", "choir", "tent", "soup", "May", "Lisbon")


def rows(count: int) -> list[IndexRow]:
    """Records of sessions of six, with vectors that have something in common."""
    rng = np.random.default_rng(3)
    found = []
    for n in range(count):
        passages = [" ".join(rng.choice(WORDS, rng.integers(1, 30))) for _ in range(1 + n % 3)]
        vectors = rng.normal(size=(len(passages), 16)) + 1.5
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found.append(
            IndexRow(
                f"{n:04}",
                "agent",
                f"session {n // 6}",
                n,
                n,
                None,
                None,
                "{}",
                vectors.astype(np.float16).tobytes(),
                terms.encode(passages),
            )
        )
    return found


def test_a_part_of_a_scope_ranks_as_it_would_among_all() -> None:
    every = rows(120)
    whole = ScopeIndex(MemoryType.LONG_TERM, every)
    query = np.random.default_rng(4).normal(size=16).astype(np.float32)
    query /= np.linalg.norm(query)
    asked = terms.query_terms("a piano and a choir in Lisbon")
    holding = np.array([sum(int(term) in terms.decode([row.terms]).term for row in every) for term in asked], float)
    expected = {hit.id: hit for hit in whole.search(query, asked, top_k=120, now=0, explain=True)}
    part = [row for row in every if row.session_id in {"session 2", "session 9", "session 17"}]
    index = ScopeIndex(MemoryType.LONG_TERM, part)
    found = index.search(query, asked, top_k=50, now=0, explain=True, whole=Whole(whole.survey(), len(every), holding))
    assert len(found) == len(part)
    for hit in found:
        assert hit.parts == pytest.approx(expected[hit.id].parts, abs=1e-4)
        assert hit.passage == expected[hit.id].passage
    alone = index.search(query, asked, top_k=50, now=0, explain=True)
    assert {hit.id: hit.score for hit in alone} != pytest.approx(
        {hit.id: expected[hit.id].score for hit in alone}, abs=1e-4
    )


def test_nothing_borrows_across_a_gap() -> None:
    every = {row.id: row for row in rows(6)}
    before = {"0001": "0000", "0002": "0001", "0005": "0004"}
    assert _runs(every, before) == {
        "0000": "0000",
        "0001": "0000",
        "0002": "0000",
        "0003": "0003",
        "0004": "0004",
        "0005": "0004",
    }
    del every["0001"]
    assert _runs(every, before)["0002"] == "0002", "what stood between them is not here"


def test_terms_are_read_as_they_were_written() -> None:
    blobs = [terms.encode(["one two two", "three"]), terms.encode([""]), terms.encode(["one"])]
    (row,) = rows(1)
    said = read_rows(TYPES[MemoryType.LONG_TERM], [row._replace(terms=blob) for blob in blobs])
    assert [one.length for one in said] == [4, 0, 1]
    assert [one.passages for one in said] == [2, 1, 1]
    assert [len(one.terms) for one in said] == [3, 0, 1]
    assert set(said[2].terms) <= set(said[0].terms)


def test_a_sample_tells_of_common_words_and_leaves_rare_ones_to_be_counted() -> None:
    survey = ScopeIndex(MemoryType.LONG_TERM, rows(30)).survey()
    numbers = np.array([5, 9], np.uint32)
    known = _Known(survey, "m", 1_000, 1_000.0, 0.1, numbers, np.array([40, 2]), 0.0)
    told = known.holding(np.array([5, 7, 9], np.uint32))
    assert told[0] == pytest.approx(400)
    assert np.isnan(told[1:]).all()
    all_of_it = _Known(survey, "m", 100, 100.0, 1.0, numbers, np.array([40, 2]), 0.0)
    assert all_of_it.holding(np.array([5, 7, 9], np.uint32)).tolist() == [40, 0, 2]
