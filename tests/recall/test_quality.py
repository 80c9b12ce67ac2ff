"""Recall ranks well on every shape of text: the labelled sets of ``bench/data/sets``, ranked in every way."""

from __future__ import annotations

import json
from functools import cache
from statistics import mean
from typing import Any

import pytest
from bench.recall.quality import DATA, PARTS, PRODUCT, Scores, Table, common_threshold, compare, measure
from bench.recall.sets import read_set

from holdfast import Holdfast

#: Questions are few, so that one answer more or less is worth so much.
NOISE = 0.02
SETS = sorted(path.stem for path in DATA.glob("*.json"))


@cache
def table(name: str) -> Table:
    return measure(read_set(DATA / f"{name}.json"))


@cache
def written(name: str, part: str) -> list[Any]:
    """The messages or the questions of a set, as they are written."""
    conversations = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))["conversations"]
    return [one for conversation in conversations for one in conversation[part]]


@pytest.mark.parametrize("name", SETS)
def test_both_together_rank_at_least_as_well_as_the_better_of_the_two(name: str) -> None:
    figures = table(name).figures
    better = max(figures["vectors"].recall10, figures["words"].recall10)
    assert figures["both + neighbours"].recall10 >= better - NOISE
    assert figures["both"].recall10 >= better - NOISE


#: So much of what is right is among the first ten, at least: less, and recall does not work on such texts.
FLOORS = {"code": 0.9, "languages": 0.8, "lists": 0.8, "long_answers": 0.9, "long_messages": 0.9, "preferences": 0.75}


@pytest.mark.parametrize("name", sorted(FLOORS))
def test_most_of_what_is_right_is_among_the_first_ten(name: str) -> None:
    assert table(name).figures["both + neighbours"].recall10 >= FLOORS[name]


# --- the sets and the measures ----------------------------------------------------------------------------------------


def test_long_questions_ask_mostly_for_short_turns_among_long_answers() -> None:
    memories, queries = written("long_answers", "messages"), written("long_answers", "questions")
    role = {memory["id"]: memory["metadata"]["role"] for memory in memories}
    words = {memory["id"]: len(memory["text"].split()) for memory in memories}
    assert len(memories) >= 240
    assert len(queries) >= 70
    assert all(150 <= words[one] <= 400 if role[one] == "assistant" else words[one] <= 25 for one in words)
    assert all(20 <= len(query["text"].split()) <= 45 for query in queries)
    assert 0.75 <= mean(role[query["gold"][0]] == "user" for query in queries) <= 0.8


def test_scores_tell_own_questions_from_foreign_ones() -> None:
    scores = Scores(own=[0.9, 0.5], foreign=[0.5, 0.1])
    assert scores.auc == 0.875
    assert scores.kept(scores.threshold(0.5)) == (1.0, 0.5)
    assert scores.kept(scores.threshold(0.1)) == (0.5, 0.0)
    sets = [table("other_words"), table("long_answers"), table("lists")]
    assert [one.scores is None for one in sets] == [False, False, True]
    threshold = common_threshold(sets)
    assert all(one.scores.kept(threshold)[1] <= 0.1 for one in sets if one.scores is not None)


def test_the_product_is_compared_with_its_better_part_question_by_question() -> None:
    vectors, words = PARTS
    gain = compare({vectors: [0.0, 1.0] * 20, words: [0.0, 0.0, 0.0, 1.0] * 10, PRODUCT: [1.0] * 40})
    assert (gain.part, gain.mean) == (vectors, 0.5)
    assert 0.3 < gain.low < 0.5 < gain.high < 0.7


# --- through the product ----------------------------------------------------------------------------------------------


def test_a_query_that_lists_many_words_of_what_it_wants_gets_it_among_the_first_five(holdfast: Holdfast) -> None:
    """It says nothing of short queries: "photography preferences" gets about half of the first five right."""
    messages, questions = written("preferences", "messages"), written("preferences", "questions")
    memory = holdfast.manager("user", "agent")
    texts = [entry["text"] for entry in messages]
    ids = memory.add_many(texts)["memory_ids"]
    label = {memory_id: entry["id"] for memory_id, entry in zip(ids, messages, strict=True)}
    right = [
        label[found["memory_id"]] in query["gold"]
        for query in questions
        for found in memory.retrieve(query["text"], top_k=5)
    ]
    assert (len(texts), len(right)) == (200, 5 * 40)
    assert sum(right) / len(right) > 0.8
