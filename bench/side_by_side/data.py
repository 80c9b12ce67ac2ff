"""What every system is given: short facts about a user, each with a topic, and questions about them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final, NamedTuple

TOPICS: Final = ("food", "travel", "work", "music", "sports", "home", "health", "books", "family", "money")
_VERBS: Final = ("likes", "dislikes", "asked about", "bought", "plans", "remembers", "forgot", "compares", "prefers")
_THINGS: Final = [
    "a window seat",
    "oat milk",
    "the night train",
    "jazz records",
    "running shoes",
    "a standing desk",
    "green tea",
    "rye bread",
    "old maps",
    "the blue bicycle",
    "a garden in the north",
    "short meetings",
    "spicy noodles",
    "a second monitor",
    "wool coats",
    "a dentist in town",
    "the tax form",
    "mystery novels",
    "her sister's wedding",
    "the winter sale",
    "piano lessons",
    "trail running",
    "a used camera",
    "paper notebooks",
    "early flights",
    "quiet hotels",
    "sourdough",
    "a vegetable box",
    "the gym",
    "chess",
]
_PLACES: Final = ("Rome", "Lyon", "Oslo", "Porto", "Kyoto", "Quito", "Turin", "Ghent", "Leeds", "Dakar", "Perth")


class Fact(NamedTuple):
    """A text and what it is about."""

    text: str
    topic: str


def facts(count: int, seed: str = "facts") -> list[Fact]:
    """So many facts, no two the same; the same ones for the same seed."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        thing, place = chance.choice(_THINGS), chance.choice(_PLACES)
        text = f"The user {chance.choice(_VERBS)} {thing} near {place}, noted as {seed} {number}"
        made.append(Fact(text, chance.choice(TOPICS)))
    return made


def questions(count: int) -> list[str]:
    """So many questions."""
    chance = random.Random("questions")
    return [
        f"What does the user say of {chance.choice(_THINGS)} in {chance.choice(_PLACES)}? ({number})"
        for number in range(count)
    ]


def write_vectors(path: Path, sizes: int) -> None:
    """The vectors of everything that is said or asked, made once by Holdfast's embedder, for all systems."""
    import numpy as np

    from holdfast.recall.embedders.static import StaticEmbedder

    texts = [fact.text for seed, count in SAID.items() for fact in facts(count or sizes, seed)] + questions(QUESTIONS)
    np.save(path / "vectors.npy", StaticEmbedder().embed(texts))
    (path / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


QUESTIONS: Final = 300
#: How many texts each scenario says; ``None`` is as many as the store is to have.
SAID: Final[dict[str, int | None]] = {
    "facts": None,
    "added": 200,
    "corrected": 100,
    "expiring": 2_000,
    "first": 200,
    "second": 200,
}
