"""Ranking: how close a record is to a query, as evidence that adds up.

Three things speak for a record: what it means (a cosine), which of the query's words it holds (BM25), and what stands
next to it in its session. What words weigh beside meaning, and what is worth lending to a neighbour, follows from how
far they spread in the scope for this query, so that it fits long questions, long texts and other embedders. Evidence
puts the records of a scope in order. A score is made of what is bounded (a cosine, a share of the words), so that it
means the same in every scope, and results of several can be merged by it.
Every constant was chosen on several shapes of text at once (``bench/recall/quality.py``), none on one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: BM25's two usual constants: how soon a repeated word says nothing new, and how much a long text is discounted.
K1: Final = 1.2
B: Final = 0.75
#: What a unit of BM25 (a nat of a word's rarity) weighs against a unit of cosine in a scope of a few records.
LEXICAL: Final = 0.12
#: How much words are to tell records apart beside their vectors, in a scope of many: each by its own spread.
_WORDS: Final = 0.6
#: A scope of so many records is half believed in what it shows of a query: spreads, and what stands out.
_PRIOR_RECORDS: Final = 100.0
#: Before a scope has told how common a word is, it counts as if met in one of so many texts.
_PRIOR_TEXTS: Final = 10.0
#: So many vectors must have been seen before half of their common direction is taken out.
_PRIOR_VECTORS: Final = 10.0
#: How much of it is taken out is told in so many steps.
_SHARES: Final = 4_096
#: A vector that is nearly all common direction has too little of its own to be scaled up to unit length.
_LEAST_OWN: Final = 0.02
_ONE: Final = np.float32(1)

#: Evidence up to here is what any text in the same language may have, and is not lent: in a scope of a few records, ...
_FAINT: Final = 0.3
#: ... and in one of many, by how many spreads it must stand out.
_STANDS_OUT: Final = 2.5
#: Two turns away counts half of one turn away.
_FARTHER: Final = 0.5
#: From this mean cosine between adjacent records on, a session is taken to follow one thread; random neighbours have 0.
_COHERENT: Final = 0.1
#: Before the records of a scope have shown that they follow each other, so many links are taken to be random.
_PRIOR_LINKS: Final = 8.0
#: How much of its evidence a neighbour lends.
_LENT: Final = 1.5
#: A record of so many words is half able to stand alone ...
_LONG: Final = 160.0
#: ... and one of so few is half a mere interjection, which is not what anybody looks for.
_SHORT: Final = 20.0

#: How far the cosines of texts that have nothing to do with each other spread, once what all share is taken out. It was
#: about the same for every embedder that was tried.
_RANDOM: Final = 0.08
#: What all of a query's words in one record say, in cosines.
_ALL_WORDS: Final = 0.75
#: What is as likely to be chance as not, and how fast it becomes certain.
_EVEN: Final = 0.33
_STEEP: Final = 10.0
#: Numbers are divided by this at least.
LEAST: Final = 1e-9

#: Where every kind is asked, a match that scores less is taken to be unrelated. Of 100 questions of LoCoMo 99 reach it
#: in their own conversation and 35 in another; of those about long answers 97 and 27.
FLOOR: Final = 0.2
#: From this score on, two memories are taken to be about the same: evidence that is more likely than not no chance.
SIMILAR: Final = 0.5


# --- meaning --------------------------------------------------------------------------------------------------------


def common_share(count: int) -> float:
    """How much of the direction that a scope's vectors share is taken out: 0 of none, nearly 1 of many.

    Texts of one user resemble each other, and what all of them share tells none of them apart. It is all of it from
    900 vectors on, so that one more changes nothing of the others.
    """
    share = count / (count + _PRIOR_VECTORS)
    return round(share * (2 - share) * _SHARES) / _SHARES


def own_length(common: Floats, removed: float, square: Floats | np.float32 = _ONE) -> Floats:
    """The length of what is left of vectors of a length of the root of ``square`` (1, if not said) and a component of
    ``common`` along the common direction.
    """
    left: Floats = np.sqrt(np.maximum(square - np.float32(removed) * common * common, np.float32(_LEAST_OWN)))
    return left


def own_cosines(dots: Floats, common: Floats, query_common: float, removed: float) -> Floats:
    """The cosines of a unit query with vectors once their common direction is taken out, which are written to ``dots``.

    ``dots`` and ``common`` are the vectors' products with the query and with the common direction, each divided by the
    vector's ``own_length``.
    """
    query_own = math.sqrt(max(1 - removed * query_common * query_common, _LEAST_OWN))
    dots -= common * np.float32(removed * query_common)
    dots *= np.float32(1 / query_own)
    return dots


def chance(counts: Ints) -> Floats:
    """By about how many spreads the best of so many stands out when none of them means anything."""
    out: Floats = np.sqrt(2 * np.log(counts)).astype(np.float32)
    return out


def spread(apart: Floats, free: int) -> float:
    """The spread of numbers around what they have in common, ``free`` of which could have been otherwise."""
    return _step(math.sqrt(float(np.vdot(apart, apart)) / free)) if free > 0 else 0.0


def closeness(best: Floats, mean: Floats, by_chance: Floats) -> Floats:
    """How close a record of several passages is to a query: half by its best passage, less what the best of so many has
    by chance, and half by all of it. So a long record does not win by being long.
    """
    close: Floats = best - by_chance
    close += mean
    close *= np.float32(0.5)
    return close


# --- words ------------------------------------------------------------------------------------------------------------


def rarity(records: int, holding: Iterable[int]) -> Doubles:
    """BM25's weight for words held by so many of a scope's records (with a few imagined ones, for scopes of a few)."""
    texts = records + _PRIOR_TEXTS - 0.5
    return np.array([math.log1p(max(texts - held, 0) / (held + 1.5)) for held in holding])  # few: faster than arrays


def usual_length(words: int, records: int) -> float:
    """The mean length of a scope's records, to within 2 % steps, so that what depends on it seldom changes."""
    if not words or not records:
        return 1.0
    return float(2 ** (round(math.log2(words / records) * 32) / 32))


def saturation(counts: Floats, lengths: Floats, usual: float) -> Floats:
    """BM25's measure of how much a word that occurs so often in a record of that length says, from 0 to ``K1 + 1``."""
    much: Floats = lengths * np.float32(K1 * B / usual)
    much += np.float32(K1 * (1 - B))
    much += counts
    np.divide(counts * np.float32(K1 + 1), much, out=much)
    return much


def lexical(matched: Doubles, share: Doubles) -> Floats:
    """What words say: BM25 (``matched``) of texts that hold such a ``share`` of what was asked for.

    A text that holds all that was asked for says more than the sum of its words; where most of the question is
    missing, what little there is may well be chance.
    """
    said: Floats = np.sqrt(share, dtype=np.float32, casting="same_kind")
    return np.multiply(said, matched, said, dtype=np.float32, casting="same_kind")


def of_record(whole: Floats, best: Floats) -> Floats:
    """What words say for a record of several passages: half by all of it, half by its best passage."""
    return (whole + best) * np.float32(0.5)


def word_weight(closeness: Floats, words: Floats) -> float:
    """What a unit of ``words`` weighs against a unit of ``closeness``, so that neither drowns the other.

    Both are measured by how far they spread in this scope for this query: a long question, or another embedder, has
    other spreads. Where one record stands out by its vector more than the best of so many does by chance, words weigh
    less.
    """
    count = len(words)
    (middle, apart), (_, said) = _spread(closeness), _spread(words)
    if not apart or not said:
        return LEXICAL
    out = (float(np.maximum.reduce(closeness)) - middle) / apart
    weight = _WORDS * apart / said * math.sqrt(2 * math.log(count)) / out
    share = count / (count + _PRIOR_RECORDS)
    return _step(weight**share * LEXICAL ** (1 - share))


def _spread(values: Floats) -> tuple[float, float]:
    """The mean of some numbers, and how far they spread around it; 0 where that is less than what rounding does."""
    count = len(values)
    mean = float(np.add.reduce(values)) / count
    square = float(np.dot(values, values)) / count
    return mean, math.sqrt(square - mean * mean) if square - mean * mean > 1e-6 * square else 0.0


def _step(value: float) -> float:
    """A number to within 1 %, so that the order in which something was summed up makes no difference."""
    return float(2 ** (round(math.log2(value) * 64) / 64)) if value > 0 else 0.0


# --- neighbours -----------------------------------------------------------------------------------------------------


def thread(total: float, links: int) -> float:
    """From 0 to 1: how far adjacent records of a scope's sessions follow one thread, from the cosines of so many pairs
    in all.
    """
    return min(max(total / (links + _PRIOR_LINKS) / _COHERENT, 0.0), 1.0)


def openness(lengths: Floats) -> Floats:
    """From 0 to 1: how much records of so many words owe to what stands next to them."""
    share: Floats = lengths / (lengths + np.float32(_SHORT)) * (np.float32(_LONG) / (np.float32(_LONG) + lengths))
    return share


def faint(evidence: Floats) -> float:
    """Up to where evidence is too faint to be lent."""
    share = len(evidence) / (len(evidence) + _PRIOR_RECORDS)
    middle, apart = _spread(evidence)
    outstanding = middle + _STANDS_OUT * apart
    return round((share * outstanding + (1 - share) * _FAINT) * 1024) / 1024


def neighbour_evidence(evidence: Floats, faint: float, links: Sequence[Ints], thread: float) -> Floats:
    """What each record is lent by its neighbours, one step away and two: before it, and after it. A link of -1 leads to
    none.

    Like the sides of a right angle: one strong neighbour lends more than several faint ones.
    """
    lenders = np.flatnonzero(evidence > faint)  # few, so the rest is not touched
    squares = np.square((evidence[lenders] - np.float32(faint)) * np.float32(_LENT * thread))
    total = np.zeros(len(evidence) + 1, np.float32)  # the last one is the neighbour that is not there
    near = [each[lenders] for each in links]
    for places in near:
        total[places] += squares  # no record is the next, or the previous, of two
    squares *= np.float32(_FARTHER)
    for each, places in zip(links, near, strict=True):
        total[np.where(places < 0, places, each[places])] += squares
    return np.sqrt(total[:-1])


# --- the outcome ------------------------------------------------------------------------------------------------------


def related(closest: float, share: float, records: int) -> float:
    """From 0 to 1: whether anything in a scope is related to a query, not whether it answers it.

    It comes from what is bounded and means the same in every scope: the closeness of the closest record, less what the
    closest of so many has by chance, and the largest share of the query's words that one record has.
    """
    by_chance = _RANDOM * math.sqrt(2 * math.log(max(records, 1)))
    return 1 / (1 + math.exp(-_STEEP * (closest - by_chance + _ALL_WORDS * share - _EVEN)))
