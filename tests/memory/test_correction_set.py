"""A set of corrections: stated, restated, corrected, fed again and corrected back, by key, by id and by conversation; what is
no longer so surfaces nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, cycle
from typing import Any

import pytest

from effort import everywhere, soak, times
from holdfast import Holdfast, MemoryManager
from holdfast.core.texts import normalize_text

PEOPLE = ("Ann", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gil", "Hana", "Ivo", "Jo")
FACTS = {
    "lives in {}": ("Where does {} live?", ("Paris", "Lyon", "Nice")),
    "works for {}": ("Who does {} work for?", ("Acme", "Globex", "Initech")),
    "drives a {}": ("What does {} drive?", ("Fiat", "Saab", "Volvo")),
    "is allergic to {}": ("What is {} allergic to?", ("nuts", "milk", "wheat")),
    "takes the {} train": ("Which train does {} take?", ("early", "noon", "late")),
    "pays with {}": ("How does {} pay?", ("cash", "a card", "cheques")),
    "speaks {}": ("Which language does {} speak?", ("Danish", "Greek", "Polish")),
    "plays the {}": ("What does {} play?", ("oboe", "harp", "drums")),
    "keeps a {}": ("Which pet does {} keep?", ("cat", "parrot", "rabbit")),
    "reads the {}": ("Which paper does {} read?", ("Times", "Globe", "Herald")),
}


class Story:
    """One fact of a person, said in one way; what its values are, and which of them is so."""

    def __init__(self, holdfast: Holdfast, person: str, fact: str, asked: str, values: tuple[str, ...]) -> None:
        self.memory = holdfast.manager(person, "guide", "talk")
        self._reader = holdfast.manager(person, "guide")
        self.question = asked.format(person)
        self.said = [f"{person} {fact.format(value)}." for value in values]
        self.stem = f"{person} {fact.split(' {}', maxsplit=1)[0]}"
        self.known = ""

    def state(self, text: str) -> None:
        raise NotImplementedError

    def correct(self, text: str) -> str:
        """Let the fact be another; the operation that did it."""
        raise NotImplementedError

    def hear(self, text: str) -> dict[str, Any]:
        """What becomes of what the user says in a conversation."""
        talk = [{"role": "user", "content": f"By the way: {text}"}]
        facts = self.memory.remember(talk, lambda heard: [heard[-1]["content"].removeprefix("By the way: ")])
        return dict(facts[0])

    def surfaced(self) -> list[str]:
        """What is not so, and can be read all the same, in another session than the one in which it was said."""
        shown = self._reader.retrieve(self.question, "all", top_k=50)
        kept = self._reader.list_memories(limit=1_000)
        texts = {normalize_text(one["content"]) for one in (*shown, *kept)}
        assert normalize_text(self.known) in texts, self.question
        block = normalize_text(self._reader.context(self.question).text)
        wrong = [normalize_text(one) for one in self.said if one != self.known]
        return [one for one in wrong if one in texts or one in block]


class ByKey(Story):
    """Each time under the same key."""

    def state(self, text: str) -> None:
        self.memory.add(text, key=self.stem)

    def correct(self, text: str) -> str:
        return self.memory.add(text, key=self.stem)["operation"]


class ById(Story):
    """Restated as one more memory; what recall shows of it is corrected."""

    def state(self, text: str) -> None:
        self.memory.add(text)

    def correct(self, text: str) -> str:
        found = self.memory.retrieve(self.question, top_k=50)
        (shown,) = [one for one in found if normalize_text(one["content"]) == normalize_text(self.known)]
        return self.memory.correct(shown["memory_id"], text, reason="it is no longer so")["operation"]


class ByConversation(Story):
    """What an extractor finds is added; what is proposed is corrected."""

    leaves = cycle((True, False))

    def state(self, text: str) -> None:
        self.hear(text)

    def correct(self, text: str) -> str:
        fact = self.hear(text)
        if "corrected_to" in fact:  # it was so before, and is again
            assert fact["operation"] == "exists"
            return self.memory.correct(fact["memory_id"], text)["operation"]
        (old,) = [one for one in fact["similar"] if one["content"].startswith(self.stem)]
        assert old["content"] == self.known
        done = self.memory.correct(old["memory_id"], text)["operation"]
        if next(self.leaves):  # as one more memory of the same text, which is shown once
            return done
        self.memory.delete(fact["memory_id"])
        return done


def _feeders(other: MemoryManager) -> Iterator[Callable[[Story, str], None]]:
    """Ways to say again what is no longer so; each says what is so instead."""

    def add(story: Story, text: str) -> None:
        again = other.add(text.upper(), dedupe=True)
        assert (again["operation"], again.get("corrected_to")) == ("exists", story.known)

    def add_many(story: Story, text: str) -> None:
        again = other.add_many([f"  {text}", text], dedupe=True)
        assert (again["existing"], again["corrected"]) == (2, 2)

    def talk(story: Story, text: str) -> None:
        assert story.hear(text)["corrected_to"] == story.known

    return cycle((add, add_many, talk))


@everywhere
@soak
@pytest.mark.parametrize("way", [ByKey, ById, ByConversation])
def test_no_old_value_surfaces(holdfast: Holdfast, engine_name: str, way: type[Story]) -> None:
    """Three corrections of each fact: thirty-four facts in each way are more than three hundred."""
    corrected, surfaced = count(), []
    stories = [(person, fact, *told) for fact, told in FACTS.items() for person in PEOPLE]
    for person, fact, asked, values in stories[: times(34, engine_name)]:
        feeders = _feeders(holdfast.manager(person, "importer"))
        story = way(holdfast, person, fact, asked, values)
        first, second, third = story.said
        story.state(first)
        story.state(first.replace(" ", "  "))
        story.known = first
        for value in (second, third, first):
            assert story.correct(value) == "corrected"
            next(corrected)
            story.known = value
            for old in story.said:
                if old != value and (old != third or value == first):
                    next(feeders)(story, old)
            surfaced += story.surfaced()
    assert surfaced == []
    assert next(corrected) == 3 * min(times(34, engine_name), len(stories))
