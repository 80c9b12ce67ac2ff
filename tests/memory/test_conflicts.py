"""Pairs of memories that are about the same thing and differ are shown, with why."""

from __future__ import annotations

import pytest

from clocks import FakeClock
from holdfast import InvalidKindError, MemoryManager
from holdfast.memory.conflicts import compare_texts

NOISE = [
    "The car is red",
    "Skiing was great",
    "Her sister plays the piano",
    "He reads crime novels",
    "Two cats at home",
]


@pytest.mark.parametrize(
    ("older", "newer", "why"),
    [
        ("The user lives in Paris.", "The user lives in Lyon", "They say the same, but for 'paris' and 'lyon'."),
        ("Her budget is 500 euros", "Her budget is 800 euros.", "They give different numbers: '500' and '800'."),
        ("Ann is allergic to nuts", "Ann isn't allergic to nuts", 'One of them denies what the other says ("isn\'t").'),
        ("Bob likes beer", "Bob stopped liking beer", "The newer one says that something changed ('stopped')."),
    ],
)
def test_what_differs_is_named(older: str, newer: str, why: str) -> None:
    assert compare_texts(older, newer) == why


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ann likes tea", "ann likes TEA!"),
        ("Ann likes tea", "Ann likes tea and coffee"),
        ("Ann was born in May", "Ann plays chess on Fridays with Bob"),
        ("?", "!"),
    ],
)
def test_what_does_not_differ_or_is_about_something_else_is_no_pair(one: str, other: str) -> None:
    assert compare_texts(one, other) is None
    assert compare_texts(other, one) is None


def test_pairs_are_listed_and_nothing_is_changed(memory: MemoryManager, clock: FakeClock) -> None:
    memory.add_many(NOISE)
    paris = memory.add("The user lives in Paris")["memory_id"]
    clock.advance(days=1)
    lyon = memory.add("The user lives in Lyon")["memory_id"]
    before = memory.list_memories()

    (found,) = memory.conflicts()

    assert (found["older"]["memory_id"], found["newer"]["memory_id"]) == (paris, lyon)
    assert found["why"] == "They say the same, but for 'paris' and 'lyon'."
    assert 0.5 <= found["score"] <= 1
    assert memory.list_memories() == before
    memory.delete(paris)
    assert memory.conflicts() == []


def test_documents_are_compared_by_their_fields(memory: MemoryManager) -> None:
    for city in ("Paris", "Lyon"):
        memory.add({"name": "Ann Lee", "city": city, "job": "pilot"}, "structured", {"collection": "people"})
        memory.structured.put("profiles", {"name": "Bob Ray", "city": city, "job": "cook"}, key=city)
    memory.add({"name": "Eve Fox", "city": "Rome", "job": "chemist"}, "structured", {"collection": "people"})

    (found,) = memory.conflicts("structured")

    assert found["why"] == 'The field \'city\' is "Paris" in the older one, and "Lyon" in the newer.'


def test_other_kinds_are_not_compared(memory: MemoryManager) -> None:
    for kind in ("working", "short_term", "episodic", "entity"):
        with pytest.raises(InvalidKindError, match="long_term, persona or structured"):
            memory.conflicts(kind)
