"""Figures of rankings, their intervals and their differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

_CUT: Final = 10
_ROUNDS: Final = 2_000
#: What is shown of each system, by its field.
SHOWN: Final = {"recall5": "R@5", "recall10": "R@10", "ndcg10": "nDCG@10"}
#: The figure that is shown for each category, and in pictures.
CHIEF: Final = "R@10"


class Figures(NamedTuple):
    """The figures of a question, or their means. Recall at one is ``any1``: whether the first hit is right."""

    any1: float
    recall5: float
    recall10: float
    any10: float
    mrr10: float
    ndcg10: float
    precision5: float


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    low: float
    mean: float
    high: float


def judge(ranked: Sequence[str], relevant: frozenset[str]) -> Figures:
    """The figures of one question, by the ids that were found for it, best first."""
    right = [memory in relevant for memory in ranked[:_CUT]]
    gain = sum(1 / math.log2(place + 2) for place, hit in enumerate(right) if hit)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(_CUT, len(relevant))))
    return Figures(
        any1=float(any(right[:1])),
        recall5=sum(right[:5]) / len(relevant),
        recall10=sum(right) / len(relevant),
        any10=float(any(right)),
        mrr10=1 / (right.index(True) + 1) if any(right) else 0.0,
        ndcg10=gain / ideal,
        precision5=sum(right[:5]) / 5,
    )


def bootstrap(values: Any) -> Interval:
    """The mean of a value per question, and its interval: questions are drawn again and again, always the same ones."""
    values = np.asarray(values, np.float32)
    low, high = np.percentile(_draw(len(values)) @ values / len(values), (2.5, 97.5))
    return Interval(float(low), float(values.mean()), float(high))


@lru_cache(maxsize=1)
def _draw(size: int) -> Any:
    """How often each of so many questions is drawn, round by round."""
    chance = np.random.default_rng(7)
    rounds = [np.bincount(chance.integers(0, size, size), minlength=size) for _ in range(_ROUNDS)]
    return np.asarray(rounds, np.float32)


class Compared(NamedTuple):
    """A system's figure, and how far the first system is ahead of it; none for the first itself."""

    own: Interval
    ahead: Interval | None


class Group(NamedTuple):
    """What each system did with some of the questions: its figures by their titles."""

    name: str
    questions: int
    systems: dict[str, dict[str, Compared]]


def compare(found: Mapping[str, Sequence[Figures]], categories: Sequence[str]) -> list[Group]:
    """All questions, and those of each category. The first system is the one that others are compared with."""
    groups = []
    for name, places in _split(categories).items():
        systems = {
            system: {title: _compare(found, system, field, places) for field, title in SHOWN.items()}
            for system in found
        }
        groups.append(Group(name, len(places), systems))
    return groups


def describe(groups: Iterable[Group]) -> Iterator[str]:
    """All of it, for a terminal."""
    for group in groups:
        width = max(map(len, group.systems), default=0) + 2
        yield (
            f"\n{group.name} ({group.questions:,}): mean [95 % interval]; difference of the first from it, "
            "question by question"
        )
        for system, row in group.systems.items():
            cells = []
            for title, (own, ahead) in row.items():
                cells.append(f"{title} {_show(own, '.3f')} " + (_show(ahead, "+.3f") if ahead else " " * 23))
            yield f"  {system:{width}}{'  '.join(cells)}".rstrip()


def tabulate(groups: Sequence[Group]) -> Iterator[str]:
    """For a page: a table over all questions, and one of the means of each category."""
    whole, *parts = groups
    yield f"| {whole.name} ({whole.questions:,}) | {' | '.join(f'{title} | ahead' for title in SHOWN.values())} |"
    yield f"|---|{'---:|' * (2 * len(SHOWN))}"
    for system, row in whole.systems.items():
        cells = [f"{_show(own, '.3f')} | {_show(ahead, '+.3f') if ahead else ''}" for own, ahead in row.values()]
        yield f"| {system} | {' | '.join(cells)} |"
    if parts:
        yield ""
        yield f"| {CHIEF} | {' | '.join(f'{part.name} ({part.questions:,})' for part in parts)} |"
        yield f"|---|{'---:|' * len(parts)}"
        for system in whole.systems:
            yield f"| {system} | {' | '.join(f'{part.systems[system][CHIEF].own.mean:.3f}' for part in parts)} |"


def _split(categories: Sequence[str]) -> dict[str, list[int]]:
    """The places of all questions, and of those of each category."""
    parts = {"all questions": list(range(len(categories)))}
    for name in sorted(set(categories) - {""}):
        parts[name] = [place for place, category in enumerate(categories) if category == name]
    return parts


def _compare(found: Mapping[str, Sequence[Figures]], system: str, field: str, places: Sequence[int]) -> Compared:
    first = next(iter(found))
    own, other = (np.asarray([getattr(found[one][place], field) for place in places]) for one in (system, first))
    return Compared(bootstrap(own), None if system == first else bootstrap(other - own))


def _show(one: Interval, form: str) -> str:
    return f"{one.mean:{form}} [{one.low:{form}}, {one.high:{form}}]"
