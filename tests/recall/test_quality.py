"""Recall ranks well on every shape of text: the labelled sets of ``bench/data``, ranked in every way."""

from __future__ import annotations

import json

import pytest
from bench.quality import DATA, labelled

from holdfast import Holdfast

#: Questions are few, so that one answer more or less is worth so much.
NOISE = 0.02


@pytest.mark.parametrize("name", ["code", "languages", "lists", "long_messages", "preferences", "implied", "topics"])
def test_both_together_rank_at_least_as_well_as_the_better_of_the_two(name: str) -> None:
    figures = labelled(DATA / f"{name}.json").figures
    better = max(figures["vectors"].recall10, figures["words"].recall10)
    assert figures["both + neighbours"].recall10 >= better - NOISE
    assert figures["both"].recall10 >= better - NOISE


#: So much of what is right is among the first ten, at least: less, and recall does not work on such texts.
FLOORS = {"code": 0.9, "languages": 0.8, "lists": 0.8, "long_messages": 0.9, "preferences": 0.75}


@pytest.mark.parametrize("name", sorted(FLOORS))
def test_most_of_what_is_right_is_among_the_first_ten(name: str) -> None:
    assert labelled(DATA / f"{name}.json").figures["both + neighbours"].recall10 >= FLOORS[name]


def test_a_query_that_lists_many_words_of_what_it_wants_gets_it_among_the_first_five(holdfast: Holdfast) -> None:
    """It says nothing of short queries: "photography preferences" gets about half of the first five right."""
    asked = json.loads((DATA / "preferences.json").read_text(encoding="utf-8"))
    memory = holdfast.manager("user", "agent")
    texts = [entry["text"] for entry in asked["memories"]]
    ids = memory.add_many(texts)["memory_ids"]
    label = {memory_id: entry["id"] for memory_id, entry in zip(ids, asked["memories"], strict=True)}
    right = [
        label[found["memory_id"]] in query["relevant"]
        for query in asked["queries"]
        for found in memory.retrieve(query["text"], top_k=5)
    ]
    assert (len(texts), len(right)) == (200, 5 * 40)
    assert sum(right) / len(right) > 0.8
