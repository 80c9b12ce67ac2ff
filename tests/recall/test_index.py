"""The recall index of one scope."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import times
from holdfast.core.filters import parse
from holdfast.core.records import TYPES, MemoryType
from holdfast.ports.feed import SEPARATOR, IndexRow, PackedRows, ProfileTimes
from holdfast.recall import index, passage_vectors, postings, ranking, session_links, terms
from holdfast.recall.arrays import Batch
from holdfast.recall.embedders.static import StaticEmbedder
from holdfast.recall.index import Hit, Query, ScopeIndex, SearchOptions
from holdfast.recall.passages import split
from holdfast.recall.vectors import Steps, to_steps
from recall import naive

EMBEDDER = StaticEmbedder()


def record_id(number: int) -> str:
    return f"{number:08x}-0000-7000-8000-000000000000"


def row(
    number: int,
    text: str,
    *,
    session: str | None = None,
    metadata: str = "{}",
    hidden_from: int | None = None,
    archived_from: int | None = None,
    embedded: bool = True,
) -> IndexRow:
    passages = split(text)
    vectors = to_steps(EMBEDDER.embed(passages)).tobytes() if embedded else None
    return IndexRow(
        record_id(number),
        "agent",
        session,
        number,
        number,
        hidden_from,
        archived_from,
        metadata,
        vectors,
        terms.encode(passages),
    )


def rows(*texts: str, session: str | None = None) -> list[IndexRow]:
    return [row(number, text, session=session) for number, text in enumerate(texts)]


def index_of(held: Iterable[IndexRow], kind: MemoryType = MemoryType.LONG_TERM) -> ScopeIndex:
    scope = ScopeIndex(TYPES[kind])
    scope.upsert(list(held))
    return scope


def indexed(*texts: str, session: str | None = None) -> ScopeIndex:
    return index_of(rows(*texts, session=session))


def ask(scope: ScopeIndex, query: str, top_k: int = 5, *, now: int = 0, **options: object) -> list[Hit]:
    asked = Query(to_steps(EMBEDDER.embed([query])[0]), terms.query_terms(query))
    return scope.rank(asked, SearchOptions(top_k, now, **options))  # type: ignore[arg-type]


def numbers(hits: Sequence[Hit]) -> list[int]:
    return [int(hit.id[:8], 16) for hit in hits]


# --- what is found ----------------------------------------------------------------------------------------------------


def test_of_three_memories_the_two_about_skiing_come_first() -> None:
    scope = indexed("User enjoys skiing", "User avoids advanced slopes", "User likes coffee with mountain view")
    assert numbers(ask(scope, "skiing preferences", 2)) == [0, 1]


def test_a_memory_is_found_by_what_it_means_without_a_common_word() -> None:
    scope = indexed("User likes French cuisine")
    assert numbers(ask(scope, "Paris trip planning")) == [0]


def test_an_index_is_gone_as_soon_as_nobody_has_it() -> None:
    scope = indexed("Ann likes tea", "Ann likes the window seat", session="trip")
    assert ask(scope, "what does Ann like?")
    seen = weakref.ref(scope)
    gc.disable()  # which comes when it comes: until then a replica would hold more than it may
    try:
        del scope
        assert seen() is None
    finally:
        gc.enable()


def test_an_empty_scope_answers_with_nothing() -> None:
    assert ask(indexed(), "anything") == []
    assert indexed().list_newest(SearchOptions(5, 0)) == []


def test_an_exact_match_scores_high_and_an_unrelated_memory_low_even_in_a_scope_of_one() -> None:
    scope = indexed("User likes French cuisine")
    assert ask(scope, "User likes French cuisine")[0].score > 0.9
    assert ask(scope, "kernel panic in the network driver")[0].score < 0.1


def test_the_same_match_scores_alike_in_a_small_scope_and_in_a_large_one() -> None:
    small = indexed("The spare key is with Mrs. Okafor")
    others = [f"Note {number} about something else entirely" for number in range(300)]
    large = indexed("The spare key is with Mrs. Okafor", *others)
    query = "who has the spare key?"
    assert ask(small, query)[0].score > 0.7
    assert abs(ask(small, query)[0].score - ask(large, query)[0].score) < 0.3


def test_scores_fall_from_hit_to_hit_and_stay_between_nought_and_one() -> None:
    scope = indexed("red wine", "white wine", "wine glasses", "beer", "train to Berlin", "")
    scores = [hit.score for hit in ask(scope, "white wine", 10)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 6
    assert all(0 <= score <= 1 for score in scores)


def test_of_equal_memories_the_newer_comes_first() -> None:
    scope = indexed("water the plants", "call the bank", "water the plants", "water the plants")
    assert numbers(ask(scope, "water the plants", 3)) == [3, 2, 0]


def test_of_many_equal_memories_the_newest_come_first_whatever_order_they_arrived_in() -> None:
    scope = indexed()
    for number in (*range(0, 60, 2), *range(59, 0, -2)):
        scope.upsert([row(number, "the same thing again")])
    assert numbers(ask(scope, "the same thing again", 4)) == [59, 58, 57, 56]
    assert [int(found[:8], 16) for found in scope.list_newest(SearchOptions(3, now=0))] == [59, 58, 57]


def test_the_passage_that_matched_is_named() -> None:
    filler = "The meeting went on about budgets and the usual matters of the quarter. " * 12
    scope = indexed(filler + "\nThe password of the guest network is heliotrope.\n" + filler)
    hit = ask(scope, "guest network password")[0]
    passages = split(filler + "\nThe password of the guest network is heliotrope.\n" + filler)
    assert "heliotrope" in passages[hit.passage]


def test_neighbours_in_a_session_lend_what_a_short_answer_leaves_out() -> None:
    chat = [
        "Where did you go hiking with your sister in the mountains last summer?",
        "We spent nine days on the trail around Mont Blanc",
        "The mountain huts on that hiking trail must have been lovely in summer",
        "The hiking trail was steep, and the mountains were still full of snow in summer",
        "My hiking boots fell apart on the third mountain pass",
        "Did you hike every mountain stage of the trail on foot?",
        "We hiked all the stages of the mountain trail, every summer day",
        "Next summer my sister wants to go hiking in the mountains again",
    ]
    apart = ask(indexed(*chat), "summer hiking trip with her sister", 8, explain=True)
    together = ask(indexed(*chat, session="s1"), "summer hiking trip with her sister", 8, explain=True)
    assert all(hit.parts["neighbours"] == 0 for hit in apart)
    lent = {number: hit.parts["neighbours"] for number, hit in zip(numbers(together), together, strict=True)}
    assert lent[1] > 0


def test_unrelated_records_of_one_session_lend_each_other_next_to_nothing() -> None:
    notes = ["Oven timer broke", "Lisbon flight at nine", "Invoice 77 is unpaid", "Learn the cello", "Buy oat milk"]
    hits = ask(indexed(*notes, session="s1"), "when is my flight to Lisbon?", 5, explain=True)
    assert max(hit.parts["neighbours"] for hit in hits) < 0.05


def test_an_explained_hit_shows_parts_that_add_up_to_its_evidence() -> None:
    scope = indexed("I flew to Oslo", "It was cold there", "The flight back was late", session="s1")
    for hit in ask(scope, "flight to Oslo", explain=True):
        parts = dict(hit.parts)
        assert sum(parts[name] for name in ("vector", "lexical", "neighbours")) == pytest.approx(
            parts["evidence"], abs=1e-4
        )
    assert ask(scope, "flight to Oslo")[0].parts == {}


def test_rows_that_are_packed_are_read_as_they_are_one_by_one() -> None:
    said = [terms.encode(passages) for passages in (["tea tea", ""], ["coffee"], [""], ["a b", "b c"])]
    packed = PackedRows(
        count=4,
        id=SEPARATOR.join(map(record_id, range(4))),
        agent_id=SEPARATOR.join("abca"),
        session_id=SEPARATOR.join(["s", "", "", "s"]),
        created_at="10,20,30,40",
        changed_after="0,5,0,0",
        aged_after="0,-7,0,1",
        profile="4,7,6,4",
        metadata=SEPARATOR.join(["{}"] * 4),
        vector_sizes="4,0,2,4",
        vectors=bytes(range(10)),
        term_sizes=",".join(str(len(one)) for one in said),
        terms=b"".join(said),
        text_hash="-9,0,7,7",
        profiles=[ProfileTimes(3, 40, None), ProfileTimes(2, None, 90)],
    )
    rows = list(packed)
    assert [(one.hidden_from, one.archived_from) for one in rows] == [(100, None), (None, 0), (None, 70), (131, None)]
    at_once, by_row = (Batch.read(TYPES[MemoryType.LONG_TERM], each) for each in (packed, rows))
    for one, other in zip((*at_once, *at_once.terms), (*by_row, *by_row.terms), strict=True):
        np.testing.assert_equal(one, other)


def test_parts_add_up_in_a_large_scope_of_long_texts_and_sessions() -> None:
    long = "The ferry to Oslo left the harbour in heavy rain. " * 60 + "An albatross followed it."
    texts = [long if at % 50 == 0 else f"Trip {at}: a night in Oslo, day {at % 9}" for at in range(400)]
    rows = [row(at, text, session=f"s{at % 7}") for at, text in enumerate(texts)]
    scope = ScopeIndex(TYPES[MemoryType.EPISODIC])
    scope.upsert(rows)
    scope.remove([record_id(at) for at in range(3, 400, 4)])
    hits = ask(scope, "albatross on the ferry to Oslo", 40, explain=True)
    assert any(hit.parts["neighbours"] for hit in hits)
    assert any(hit.passage for hit in hits)
    for hit in hits:
        *parts, evidence = hit.parts.values()
        assert sum(parts) == pytest.approx(evidence, abs=1e-4)


# --- what is not found ------------------------------------------------------------------------------------------------


def test_a_hidden_record_is_out_of_every_answer_from_its_moment_on_and_starves_none() -> None:
    scope = indexed()
    scope.upsert(row(number, "lunch with Ana", hidden_from=100) for number in range(20))
    scope.upsert([row(20, "lunch with Bo"), row(21, "dinner")])
    assert numbers(ask(scope, "lunch with Ana", 2, now=99)) == [19, 18]
    assert numbers(ask(scope, "lunch with Ana", 2, now=100)) == [20, 21]
    assert [int(found[:8], 16) for found in scope.list_newest(SearchOptions(9, now=100))] == [21, 20]


def test_archived_records_are_found_only_where_they_are_asked_for() -> None:
    scope = index_of([row(0, "booked a hotel in Rome", archived_from=0), row(1, "booked a train")], MemoryType.EPISODIC)
    assert numbers(ask(scope, "hotel in Rome")) == [1]
    assert numbers(ask(scope, "hotel in Rome", include_archived=True)) == [0, 1]


def test_a_record_counts_as_archived_from_its_moment_on_and_starves_none() -> None:
    scope = indexed()
    scope.upsert(row(number, "lunch with Ana", archived_from=100) for number in range(20))
    scope.upsert([row(20, "lunch with Bo"), row(21, "dinner")])
    assert numbers(ask(scope, "lunch with Ana", 2, now=99)) == [19, 18]
    assert numbers(ask(scope, "lunch with Ana", 2, now=100)) == [20, 21]
    assert numbers(ask(scope, "lunch with Ana", 2, now=100, include_archived=True)) == [19, 18]
    assert [int(found[:8], 16) for found in scope.list_newest(SearchOptions(9, now=100))] == [21, 20]
    assert len(scope.list_newest(SearchOptions(99, now=100, include_archived=True))) == 22


def test_a_filter_is_applied_before_the_best_are_chosen() -> None:
    scope = index_of([row(number, "ski holiday", metadata=json.dumps({"year": 2000 + number})) for number in range(30)])
    hits = ask(scope, "ski holiday", 3, where=parse({"year": {"lt": 2005}}))
    assert numbers(hits) == [4, 3, 2]
    assert ask(scope, "ski holiday", 3, where=parse({"year": 1999})) == []


def test_a_record_that_is_not_embedded_yet_is_found_by_its_words() -> None:
    scope = index_of([row(0, "the wifi password is heliotrope", embedded=False), row(1, "a boat trip on the lake")])
    hit = ask(scope, "wifi password", explain=True)[0]
    assert numbers([hit]) == [0]
    assert hit.parts["vector"] == 0
    assert hit.parts["lexical"] > 0


def test_a_scope_without_any_vectors_takes_them_once_they_come() -> None:
    scope = index_of([row(0, "green tea", embedded=False), row(1, "the stock market", embedded=False)])
    assert numbers(ask(scope, "green tea", 1)) == [0]
    scope.upsert([row(0, "green tea"), row(1, "the stock market")])
    assert ask(scope, "beverages", explain=True)[0].parts["vector"] != 0


def test_a_query_without_a_vector_goes_by_words_alone() -> None:
    scope = indexed("green tea", "the stock market")
    hits = scope.rank(Query(None, terms.query_terms("stock")), SearchOptions(1, 0))
    assert numbers(hits) == [1]


def test_a_query_without_a_word_or_a_vector_gives_the_newest() -> None:
    scope = indexed("one", "two", "three")
    assert numbers(scope.rank(Query(None, terms.query_terms("…")), SearchOptions(2, 0))) == [2, 1]
    assert numbers(ask(scope, "", 2)) == [2, 1]


def test_a_question_of_a_model_that_has_changed_is_answered_by_its_words() -> None:
    scope = indexed("green tea", "the stock market")
    asked = Query(to_steps(np.ones(3, np.float32)), terms.query_terms("stock"))
    assert numbers(scope.rank(asked, SearchOptions(1, 0))) == [1]


def test_a_record_whose_vectors_have_another_length_is_found_by_its_words() -> None:
    scope = indexed("keeps bees", "plays chess")
    scope.upsert([row(2, "collects antique barometers")._replace(vectors=b"\0" * 6)])
    assert numbers(ask(scope, "antique barometers"))[0] == 2
    assert numbers(ask(scope, "bees"))[0] == 0


# --- following changes --------------------------------------------------------------------------------------------------


def test_a_changed_record_is_found_by_its_new_text_only() -> None:
    scope = indexed("lives in Lisbon", "has a dog")
    scope.upsert([row(0, "lives in Toronto")])
    hits = ask(scope, "Lisbon", explain=True)
    assert all(hit.parts["lexical"] == 0 for hit in hits)
    assert numbers(ask(scope, "Toronto", 1)) == [0]
    assert len(scope) == 2


def test_a_removed_record_is_gone_at_once_and_removing_it_again_changes_nothing() -> None:
    scope = indexed("lives in Lisbon", "has a dog")
    scope.remove([record_id(0), record_id(7)])
    scope.remove([record_id(0)])
    assert numbers(ask(scope, "Lisbon")) == [1]
    assert record_id(0) not in scope
    assert record_id(1) in scope


def test_a_long_record_that_was_removed_changes_no_number_of_the_others() -> None:
    texts = ("User enjoys skiing", "User avoids advanced slopes", "User likes coffee with mountain view")
    scope = indexed(*texts, "The lift opens at nine. " * 200)
    assert len(split("The lift opens at nine. " * 200)) > 1
    scope.remove([record_id(len(texts))])
    for query in ("skiing preferences", "when does the lift open?", "coffee"):
        assert ask(scope, query, explain=True) == ask(indexed(*texts), query, explain=True)


def test_memory_is_given_back_when_most_records_are_removed() -> None:
    scope = indexed(*(f"note number {number} on some subject or other" for number in range(600)))
    before = scope.nbytes
    scope.remove([record_id(number) for number in range(580)])
    assert len(scope) == 20
    assert scope.nbytes < before / 4
    assert numbers(ask(scope, "note number 590", 1)) == [590]


# --- however it came to be ----------------------------------------------------------------------------------------------

DIM = 6
WORDS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
NOW = 50


@pytest.fixture(scope="module", autouse=True)
def small_thresholds() -> Iterator[None]:
    """Merges and renumbering happen in small indexes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "_TAIL", 12)
        patch.setattr(index, "_SLACK", 3)
        patch.setattr(session_links, "_FEW", 3)
        yield


@st.composite
def made_up_rows(draw: st.DrawFn) -> IndexRow:
    passages = draw(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=1, max_size=3))
    seed = draw(st.integers(0, 40))
    vectors = np.random.default_rng(seed).normal(0.2, 1, (len(passages), DIM))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    blob = None if seed % 8 == 0 else to_steps(vectors).tobytes()
    number = draw(st.integers(0, 25))
    return IndexRow(
        record_id(number),
        draw(st.sampled_from(["a", "b"])),
        draw(st.sampled_from([None, "s", "t"])),
        number,
        number,
        draw(st.sampled_from([None, NOW, NOW + 1])),
        draw(st.sampled_from([None, 0, NOW, NOW + 1])),
        draw(st.sampled_from(["{}", '{"n": 1}', '{"n": 2}'])),
        blob,
        terms.encode([" ".join(words) for words in passages]),
    )


History = list[tuple[list[IndexRow], list[int]]]
STEPS = st.lists(
    st.tuples(st.lists(made_up_rows(), max_size=8), st.lists(st.integers(0, 25), max_size=6)), min_size=1, max_size=6
)
QUERY_WORDS = st.lists(st.sampled_from((*WORDS, "yak")), max_size=3)


def followed(steps: History, *, asked_between: bool) -> tuple[ScopeIndex, dict[str, IndexRow]]:
    """An index that went through the steps, and the records that are there at the end."""
    scope = index_of([])
    there: dict[str, IndexRow] = {}
    for added, removed in steps:
        scope.upsert(added)
        there.update((new.id, new) for new in added)
        if asked_between:
            ask_something(scope)
        scope.remove([record_id(number) for number in removed])
        for number in removed:
            there.pop(record_id(number), None)
        if asked_between:
            ask_something(scope)
    return scope, there


def ask_something(scope: ScopeIndex) -> None:
    """So that all is known of what the index holds now."""
    scope.rank(Query(vector(1), terms.query_terms("ant bee")), SearchOptions(3, NOW, parse({"n": 1})))


def vector(seed: int) -> Steps:
    return to_steps(np.random.default_rng(seed).normal(size=DIM))


@settings(max_examples=times(30), deadline=None, derandomize=True)
@given(
    steps=STEPS, words=QUERY_WORDS, seed=st.integers(0, 30), include_archived=st.booleans(), asked_between=st.booleans()
)
def test_an_index_ranks_as_its_promise_says_whatever_it_went_through(
    steps: History, words: list[str], seed: int, include_archived: bool, asked_between: bool
) -> None:
    scope, there = followed(steps, asked_between=asked_between)
    query = None if seed == 0 else vector(seed)
    query_terms = terms.query_terms(" ".join(words))
    where = parse({"n": [1, 2], "agent_id": "a"}) if seed % 3 == 1 else None
    expected = (
        naive.search(
            list(there.values()),
            None if query is None else query.tolist(),
            query_terms.tolist(),
            now=NOW,
            where=where,
            include_archived=include_archived,
        )
        if there
        else []
    )
    options = SearchOptions(99, NOW, where, include_archived, explain=True)
    hits = scope.rank(Query(query, query_terms), options)
    evidence = dict(expected)
    assert {hit.id for hit in hits} == set(evidence)
    for hit in hits:
        assert hit.parts["evidence"] == pytest.approx(evidence[hit.id], abs=1e-4)
    for better, worse in pairwise(hits):
        assert evidence[better.id] > evidence[worse.id] - 1e-4
        assert better.score > worse.score or better.score == 0 or better.id > worse.id
    best = scope.rank(Query(query, query_terms), options._replace(top_k=3))
    assert [hit.id for hit in best] == [hit.id for hit in hits[:3]]


@contextmanager
def samples_of_a_few() -> Iterator[None]:
    """The common direction comes from a few vectors, as in a large scope, and most changes leave it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passage_vectors, "_SAMPLE", 5)
        patch.setattr(ranking, "_SHARES", 2)
        yield


@settings(max_examples=times(30), deadline=None, derandomize=True)
@given(steps=STEPS, words=QUERY_WORDS, seed=st.integers(0, 30), asked_between=st.booleans())
def test_an_index_answers_as_if_it_had_been_built_from_what_it_holds(
    steps: History, words: list[str], seed: int, asked_between: bool
) -> None:
    query = Query(vector(seed), terms.query_terms(" ".join(words)))
    options = SearchOptions(8, NOW, include_archived=True, explain=True)
    with samples_of_a_few():
        scope, there = followed(steps, asked_between=asked_between)
        fresh = index_of(there.values())
        answers = [each.rank(query, options) for each in (scope, fresh)]
    assert len(scope) == len(fresh) == len(there)
    assert scope.list_newest(SearchOptions(99, now=NOW, where=parse({"n": 1}))) == fresh.list_newest(
        SearchOptions(99, now=NOW, where=parse({"n": 1}))
    )
    assert answers[0] == answers[1]
    assert all(np.isfinite(hit.score) for hit in answers[0])


@samples_of_a_few()
def test_neighbours_lend_as_much_after_many_small_changes_as_in_an_index_that_is_built_anew() -> None:
    draw = np.random.default_rng(7)
    topics = draw.normal(size=(4, 32))
    held: dict[int, IndexRow] = {}
    scope = index_of([])
    lent: set[float] = set()
    for step in range(120):
        number = int(draw.integers(0, 60))
        if held.pop(number, None) and draw.random() < 0.5:
            scope.remove([record_id(number)])
        else:
            session = int(draw.integers(0, 4))
            steps = to_steps(0.5 * topics[session] + draw.normal(size=32)).tobytes()
            text = " ".join(draw.choice(WORDS, 12))
            held[number] = row(number, text, session=f"s{session}")._replace(vectors=steps)
            scope.upsert([held[number]])
        query = Query(to_steps(draw.normal(size=32)), terms.query_terms("ant bee"))
        found = scope.rank(query, SearchOptions(9, NOW, explain=True))
        if step % 4 == 0:
            assert found == index_of(held.values()).rank(query, SearchOptions(9, NOW, explain=True))
        lent.update(hit.parts["neighbours"] for hit in found)
    assert len(lent) > 50
