"""Recall of every kind at once: what has nothing to say stays away, and of equals the newer comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import MemoryManager, MemoryType
from holdfast.core.errors import InvalidInputError
from holdfast.recall.ranking import FLOOR


def kinds_of(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return [result["memory_type"] for result in results]


@pytest.fixture
def filled(memory: MemoryManager) -> MemoryManager:
    """Something about trains in each kind but two, which have something about gardens."""
    memory.add("Compare the night trains to Vienna", "working")
    memory.short_term.add_message("user", "Which night train goes to Vienna?")
    memory.add("User loves night trains", "long_term")
    memory.add("You book night trains before you book flights", "persona")
    memory.episodic.record_episode("Book a night train to Vienna", ["found a sleeper", "booked it"])
    memory.entity.add("Grandmother", "person", {"garden": "roses and tulips"})
    memory.structured.put("plants", {"tulips": 12, "roses": 7})
    return memory


def test_all_asks_every_kind_and_leaves_out_what_is_unrelated(filled: MemoryManager) -> None:
    found = filled.retrieve("night trains to Vienna", "all", top_k=10)
    assert set(kinds_of(found)) == {"working", "short_term", "long_term", "persona", "episodic"}
    assert found[0]["memory_type"] == "working"
    assert set(kinds_of(filled.retrieve("tulips and roses", "all"))) == {"entity", "structured"}, (
        "no working note either"
    )
    assert filled.retrieve("quantum chromodynamics", "all") == []


def test_with_all_only_notes_that_are_related_come_first(memory: MemoryManager) -> None:
    memory.add_many(["Compare the night trains to Vienna", "Water the tulips"], "working")
    memory.add_many(["Ann loves the night trains to Vienna", "Ann plays chess"])
    query = "Which night trains go to Vienna?"
    found = [(one["memory_type"], one["score"] >= FLOOR) for one in memory.retrieve(query, "all", top_k=10)]
    assert found[:2] == [("working", True), ("long_term", True)]
    assert ("working", False) in found[2:]
    named = memory.retrieve(query, ["working", "long_term"], top_k=10)
    assert kinds_of(named) == ["working", "working", "long_term", "long_term"]


def test_kinds_that_are_named_each_keep_their_best_match_however_little_it_says(filled: MemoryManager) -> None:
    found = filled.retrieve("tulips and roses", list(MemoryType), top_k=7)
    assert sorted(kinds_of(found)) == sorted(MemoryType)
    assert found[0]["memory_type"] == "working"
    assert found[0]["score"] < FLOOR


def test_all_means_what_a_list_of_every_kind_means_but_for_the_floor(filled: MemoryManager) -> None:
    query = "night trains to Vienna"
    listed = filled.retrieve(query, list(MemoryType), top_k=7, explain=True)
    assert filled.retrieve(query, "all", top_k=7, explain=True) == [one for one in listed if one["score"] >= FLOOR]
    assert filled.retrieve(query, "all", filters={"memory_type": "persona"})[0]["memory_type"] == "persona"


def test_all_is_no_kind_elsewhere_and_excludes_another_kind(memory: MemoryManager) -> None:
    for wrong in (
        lambda: memory.add("x", "all"),
        lambda: memory.retrieve("x", ["all"]),
        lambda: memory.retrieve("x", "all", memory_type="persona"),
    ):
        with pytest.raises(InvalidInputError):
            wrong()


@pytest.mark.parametrize("kinds", [None, "all", ["persona", "long_term"]])
def test_of_equals_the_newer_comes_first(
    memory: MemoryManager, clock: FakeClock, kinds: str | list[str] | None
) -> None:
    def order() -> list[str]:
        found = memory.retrieve("in Oslo", kinds)
        assert found[0]["score"] == found[1]["score"], "the same words"
        return [one["memory_id"] for one in found]

    first = memory.add("Ann lives in Oslo", "long_term" if kinds is None else "persona")["memory_id"]
    clock.advance(days=1)
    second = memory.add("in Oslo lives Ann", "long_term")["memory_id"]
    assert order() == [second, first]
    clock.advance(days=1)
    memory.update(first, "lives Ann in Oslo")
    assert order() == [first, second], "what was said last is newer"
