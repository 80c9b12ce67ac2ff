"""The recall index of one scope, in process memory: exact vectors and BM25 over its records, fused, with neighbours.

Each record has a slot. Slots are given out in order; a record that replaces another gets a new one. Slots of records
that are gone are skipped. When there are many of them, the index numbers the others again. What ``rank`` returns does
not depend on how the index came to hold its records.

What is derived of the records lies in columns beside them, and follows each change by as much as has changed: a column
is extended by what is new, a slot whose record is gone is masked, and sums over the scope are running sums of whole
numbers, which are the same in any order. Two things are made anew for all records, and seldom: what is left of the
vectors, when the direction that they share changes (``passage_vectors``), and what words say, when the usual length of
a text does (``postings``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import eq
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.filters import Filter
from holdfast.core.records import Kind
from holdfast.ports.feed import SEPARATOR, IndexRow
from holdfast.recall import ranking
from holdfast.recall.arrays import NEVER, Batch, GrowingArray, SlotIds
from holdfast.recall.metadata_columns import Mask, MetadataColumns
from holdfast.recall.passage_vectors import PassageVectors, join
from holdfast.recall.postings import CAPACITY, Postings
from holdfast.recall.ranking import Doubles, Floats, Ints
from holdfast.recall.session_links import NONE, SessionLinks
from holdfast.recall.vectors import Steps

#: Slots are renumbered when more than this many, and more than a third of them, are empty.
_SLACK: Final = 256
#: So few new records are compared with the others one by one.
_FEW: Final = 16
#: What it takes is measured again when its arrays have grown, or after so many new slots.
_SIZE_STEP: Final = 64
#: Into so many parts a scope is divided to find its best.
_PARTS: Final = 128
#: Evidence that differs by less is equal: it is what the order of additions does to a sum of floats.
_GRAIN: Final = 2.0**-16


class Query(NamedTuple):
    """A text, ready to be compared."""

    vector: Steps | None
    """``None``: by words alone."""
    terms: npt.NDArray[np.uint32]
    """As ``terms.query_terms`` gives them."""


class SearchOptions(NamedTuple):
    """How many records are wanted, as of which time, and which ones."""

    top_k: int
    now: int
    where: Filter | None = None
    include_archived: bool = False
    explain: bool = False
    min_score: float = 0.0
    """Records that score less are left out."""
    without: str | None = None
    """A record that is left out: the one that the others are compared with."""
    before: str | None = None
    """A list goes on from here: with records of smaller ids, which are older ones."""
    as_of: int | None = None
    """The versions that were current then, instead of those that are now."""


class Hit(NamedTuple):
    """A record that matches a query."""

    id: str
    score: float
    """0 to 1: how likely the scope has something related to the query, less for a record with less evidence than the
    first. It means the same in every scope, so that hits of several scopes can be merged.
    """
    passage: int
    """Which of the record's passages matched best."""
    parts: dict[str, float]
    """If asked for: the evidence of which the score is made, which adds up to ``evidence``."""
    updated_at: int
    """When the record was last changed."""
    times: int = 1
    """How many of the records that passed have this text; the hit is the newest of them, at the best one's place."""


class ScopeIndex:
    """What is recalled from one scope and kind. Calls must not overlap."""

    def __init__(self, kind: Kind, batches: Sequence[Batch] = ()) -> None:
        self._kind = kind
        self._slots = SlotIds()
        self._ids = self._slots.ids
        self._here = GrowingArray(np.bool_)
        self._archived_from = GrowingArray(np.int64)
        self._hidden_from = GrowingArray(np.int64)
        self._ended_at = GrowingArray(np.int64)
        self._length = GrowingArray(np.float32)
        self._text_hash = GrowingArray(np.int64)
        self._repeated: set[int] = set()  # the hashes of texts that several records have, or had
        self._openness = GrowingArray(np.float32)  # how much each record owes to its neighbours, where there are some
        self._passage_length = GrowingArray(np.float32)
        self._words = 0
        self._vectors = PassageVectors()
        self._links = SessionLinks(self._ids, self._vectors)
        self._postings = Postings()
        self._columns = MetadataColumns(kind.name)
        self._size: int | None = None
        self._columns_size = 0
        self._sized = (0, 0)  # how much room for slots there was then, and how many of them in steps
        self._soonest: list[int] | None = [NEVER, NEVER]  # when the first record is archived, and hidden; None: unknown
        self.add(batches)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, record_id: str) -> bool:
        return self._slots.find(record_id) is not None

    @property
    def nbytes(self) -> int:
        """About what the index holds in memory."""
        sized = (self._here.nbytes, len(self._ids) // _SIZE_STEP)
        if self._size is None or self._sized != sized:
            self._size, self._sized = self._measure(), sized
        return self._size

    def _measure(self) -> int:
        held = sum(array.nbytes for array in (self._passage_length, self._openness, *self._of_slots))
        held += self._vectors.nbytes + self._postings.nbytes + self._columns.nbytes + self._links.nbytes
        return held + 64 * len(self._repeated) + 240 * len(self._ids)

    @property
    def _of_slots(self) -> tuple[GrowingArray, ...]:
        """What is kept for each slot, but for the number of its first passage."""
        times = (self._archived_from, self._hidden_from, self._ended_at)
        return self._here, *times, self._length, self._text_hash

    # --- following the scope ----------------------------------------------------------------------------------------

    def upsert(self, rows: Iterable[IndexRow]) -> None:
        """Hold these records, in place of those with the same ids."""
        found = list(rows)
        self.add([Batch.read(self._kind, found)] if found else [])

    def add(self, batches: Sequence[Batch]) -> None:
        """Hold these records, in place of those with the same ids. No two batches have a record in common."""
        count = sum(len(batch.id) for batch in batches)
        if not count:
            return
        for batch in batches if self._ids else ():
            self.remove(batch.id)
        if len(self._vectors) + sum(len(batch.vectors) for batch in batches) > CAPACITY:
            raise ValueError(f"an index holds at most {CAPACITY} passages")
        self._add_terms(batches, len(self._vectors))
        self._vectors.add(batches)
        for batch in batches:
            self._slots.add(batch.id)
            self._columns.add(batch)
            self._ended_at.extend(np.full(len(batch.id), NEVER) if batch.ended_at is None else batch.ended_at)
        self._here.extend(np.ones(count, np.bool_))
        self._archived_from.extend(join([batch.archived_from for batch in batches]))
        self._hidden_from.extend(join([batch.hidden_from for batch in batches]))
        self._text_hash.extend(join([batch.text_hash for batch in batches]))
        self._note_repeated(count)
        self._links.add([name for batch in batches for name in _linked_sessions(batch)])
        if self._soonest is not None:
            new = (each.view[-count:].min() for each in (self._archived_from, self._hidden_from))
            self._soonest = [min(known, int(one)) for known, one in zip(self._soonest, new, strict=True)]

    def _note_repeated(self, count: int) -> None:
        """Note which of the last records have a text that others have."""
        hashes = self._text_hash.view
        if count > _FEW:
            found, times = np.unique(hashes, return_counts=True)
            self._repeated.update(found[times > 1].tolist())
        else:
            new = hashes[-count:].tolist()
            self._repeated.update(one for one in new if np.count_nonzero(hashes == one) > 1)
        self._repeated.discard(0)

    def remove(self, ids: Iterable[str]) -> None:
        """Hold these records no longer. Ids that are not held are ignored."""
        slots = self._slots.remove(ids)
        if not slots:
            return
        for slot in slots:
            self._here.view[slot] = False
            self._words -= int(self._length.view[slot])
            times = [int(each.view[slot]) for each in (self._archived_from, self._hidden_from)]
            if self._soonest is not None and any(map(eq, times, self._soonest)) and min(times) < NEVER:
                self._soonest = None
        self._vectors.remove(slots)
        self._links.remove(slots)
        dead = len(self._ids) - len(self)
        if dead > _SLACK and dead * 3 > len(self._ids):
            self._compact()

    def _add_terms(self, batches: Sequence[Batch], start: int) -> None:
        """Append the terms of new passages, which are numbered from ``start``, and the lengths in words."""
        for batch in batches:
            lengths = batch.terms.words
            self._words += int(lengths.sum(dtype=np.float64))
            self._passage_length.extend(lengths)
            is_whole = len(lengths) == len(batch.passages)
            self._length.extend(lengths if is_whole else _sum(lengths, np.cumsum(batch.passages) - batch.passages))
            self._postings.add(batch.terms, start)
            start += len(batch.vectors)

    def _compact(self) -> None:
        """Renumber the slots without those whose record is gone."""
        kept = np.flatnonzero(self._here.view)
        numbers = np.full(len(self._ids) + 1, NONE)  # the last one is the record that is not there
        numbers[kept] = np.arange(len(kept))
        for array in self._of_slots:
            array.replace(array.view[kept])
        self._openness.clear()
        passages = self._vectors.keep(kept)
        self._passage_length.replace(self._passage_length.view[passages >= 0])
        self._links.renumber(kept, numbers)
        self._slots.keep(kept.tolist())
        self._postings.renumber(passages)
        self._columns.keep(kept)
        self._size = None

    # --- answering ----------------------------------------------------------------------------------------------------

    def rank(self, query: Query, options: SearchOptions) -> list[Hit]:
        """The records closest to a query, best first; of equals, the one that was changed last.

        What is hidden at that time, archived (unless asked for) or outside the filter does not count among the
        ``top_k``. A record without vectors is found by its words and its neighbours.
        """
        visible, wanted = self._masks(options)
        records = len(self._slots)
        passing = records if wanted is self._here.view else int(np.count_nonzero(wanted))
        is_all = passing == len(wanted)
        left_out = None if options.without is None else self._slots.find(options.without)
        if left_out is not None:
            passing -= int(wanted[left_out])
        count = min(options.top_k, passing)
        if count <= 0:
            return []
        found = self._weigh_evidence(query, None if is_all else visible, left_out)
        total = found.total
        bounded: list[npt.NDArray[Any]] = [found.closeness, found.share]
        if not is_all:
            total = np.where(wanted, total, np.float32(-np.inf))
            bounded = [np.where(wanted, each, each.dtype.type(-1)) for each in bounded]
        if left_out is not None:
            total[left_out] = -np.inf
            for each in bounded:
                each[left_out] = -1
        closest, covered = map(np.float32, map(np.maximum.reduce, bounded))
        related = ranking.related(float(closest), float(covered), records)
        best, groups = self._best_once(total, count, passing)
        most, changed = max(best[0][1], ranking.LEAST), self._columns.updated_at
        is_single, hits = found.close is found.closeness, []
        for slot, much in best:
            score = related * min(max(much / most, 0.0), 1.0)
            if score < options.min_score:
                break
            shown, times = groups.get(slot, (slot, 1))
            passage = 0 if is_single else found.best_passage(self._vectors.slice_of(slot))
            parts = {**found.parts(slot), "evidence": much} if options.explain else {}
            hits.append(Hit(self._ids[shown], score, passage, parts, int(changed[shown]), times))
        return hits

    def _weigh_evidence(self, query: Query, visible: Mask | None, left_out: int | None) -> _Evidence:
        """What speaks for each record. Those that are not ``visible`` (``None``: all are), and the one that is left
        out, lend nothing to others.
        """
        closeness, close = self._vectors.closeness(query.vector)
        words, said, share = self._find_words(query.terms)
        here = slice(None) if len(self._slots) == len(self._ids) else self._here.view
        weight = np.float32(ranking.word_weight(closeness[here], words[here]))
        evidence = weight * words
        evidence += closeness
        thread = self._links.thread()
        if not thread:
            return _Evidence(evidence, closeness, close, words, said, share, weight, None)
        seen = evidence.copy() if visible is None else np.where(visible, evidence, np.float32(0))
        if left_out is not None:
            seen[left_out] = 0
        faint = ranking.faint(evidence[here])
        links = (self._links.previous.view, self._links.next.view)
        neighbours = ranking.neighbour_evidence(seen, faint, links, thread)
        if len(self._openness) < len(self._ids):
            self._openness.extend(ranking.openness(self._length.view[len(self._openness) :]))
        neighbours *= self._openness.view
        return _Evidence(evidence + neighbours, closeness, close, words, said, share, weight, neighbours)

    def list_newest(self, options: SearchOptions) -> list[str]:
        """Ids of the records that ``rank`` would choose from, newest first."""
        _, wanted = self._masks(options)
        slots, top_k, before = np.flatnonzero(wanted).tolist(), options.top_k, options.before
        if self._slots.ascend:
            if before is not None:
                slots = slots[: bisect_left(slots, before, key=self._ids.__getitem__)]
            return [self._ids[slot] for slot in slots[: -top_k - 1 : -1]] if top_k > 0 else []
        ids = (self._ids[slot] for slot in slots)
        return nlargest(top_k, ids if before is None else (one for one in ids if one < before))

    def count_values(self, path: tuple[str, ...], options: SearchOptions) -> dict[Any, int]:
        """How many of the records that ``rank`` would choose from have each value of a field."""
        counts = self._columns.count(path, self._masks(options)[1])
        self._note_columns()
        return counts

    def _masks(self, options: SearchOptions) -> tuple[Mask, Mask]:
        """Which slots can be seen, and which of these pass the filter."""
        if self._sees_all(options):
            return self._here.view, self._here.view
        visible: Mask = self._hidden_from.view > options.now
        visible &= self._here.view
        if not options.include_archived:
            visible &= self._archived_from.view > options.now
        if options.as_of is not None:
            visible &= (self._columns.updated_at <= options.as_of) & (self._ended_at.view > options.as_of)
        if options.where is None:
            return visible, visible
        wanted = visible & self._columns.mask(options.where)
        self._note_columns()
        return visible, wanted

    def _note_columns(self) -> None:
        """What the index takes is measured again where a filter has read a field that none had read before."""
        if self._columns_size != (size := self._columns.nbytes):
            self._columns_size, self._size = size, None

    def _sees_all(self, options: SearchOptions) -> bool:
        """Whether every record that is there is seen, and wanted."""
        if not (options.where is None and options.as_of is None):
            return False
        if self._soonest is None:
            times = (each.view[self._here.view] for each in (self._archived_from, self._hidden_from))
            self._soonest = [int(each.min(initial=NEVER)) for each in times]
        archived, hidden = self._soonest
        return options.now < (hidden if options.include_archived else min(archived, hidden))

    def _find_words(self, query_terms: npt.NDArray[np.uint32]) -> tuple[Floats, Floats, Doubles]:
        """How much the query's words say for each record, and for each passage; and what share of them a record has."""
        records = len(self._slots)
        present = None if records == len(self._ids) else self._vectors.here.view
        usual = ranking.usual_length(self._words, self._vectors.passages)
        owners, lengths = self._vectors.owner, self._passage_length.view
        found, impact = self._postings.find(query_terms, present, lengths, usual, with_times=owners is not None)
        if owners is None:
            weights = ranking.rarity(records, found.holding)
            words, share = _match(found.passage, found.holding, impact, weights, len(self._ids))
            return words, words, share
        owner, term = owners.take(found.passage), found.term
        begins = np.ones(len(owner), bool)
        np.logical_or(owner[1:] != owner[:-1], term[1:] != term[:-1], out=begins[1:])
        starts = np.flatnonzero(begins)
        record, holding = owner[starts], np.bincount(term[starts], minlength=len(query_terms)).tolist()
        times = np.add.reduceat(found.times, starts, dtype=np.float32) if len(starts) else _NOTHING
        weights = ranking.rarity(records, holding)
        said, _ = _match(found.passage, found.holding, impact, weights, len(self._vectors))
        usual = ranking.usual_length(self._words, records)
        impact = ranking.saturation(times, self._length.view.take(record), usual)
        words, share = _match(record, holding, impact, weights, len(self._ids))
        return ranking.of_record(words, np.maximum.reduceat(said, self._vectors.first.view)), said, share

    def _best(self, evidence: Floats, count: int) -> list[tuple[int, float]]:
        """The slots with the most evidence, and how much; of equals, those that were changed last."""
        (slots,) = (evidence >= _least_of_best(evidence, count) - _GRAIN).nonzero()
        steps = np.rint(evidence[slots] / np.float32(_GRAIN))
        changed = self._columns.updated_at[slots]
        if len(slots) > 4 * count and self._slots.ascend:  # many equals
            chosen = np.lexsort((slots, changed, steps))[-count:]
            slots, steps, changed = slots[chosen], steps[chosen], changed[chosen]
        found = slots.tolist()
        ids = [self._ids[slot] for slot in found]
        ranked = sorted(zip(steps.tolist(), changed.tolist(), ids, found, strict=True), reverse=True)
        return [(slot, step * _GRAIN) for step, _, _, slot in ranked[:count]]

    def _best_once(
        self, evidence: Floats, count: int, rest: int
    ) -> tuple[list[tuple[int, float]], dict[int, tuple[int, int]]]:
        """The same with one slot for each text, out of ``rest`` that count: the one with the most evidence. Of texts
        that several records have, by that slot: the newest record's, and how many have it.
        """
        best, hashes, changed = self._best(evidence, count), self._text_hash.view, self._columns.updated_at
        groups: dict[int, tuple[int, int]] = {}
        if self._repeated.isdisjoint(hashes[[slot for slot, _ in best]].tolist()):
            return best, groups
        evidence = evidence.copy()
        while True:
            before = rest
            for slot, _ in best:
                if int(hashes[slot]) not in self._repeated or slot in groups or np.isneginf(evidence[slot]):
                    continue
                alike = np.flatnonzero(hashes == hashes[slot])
                alike = alike[evidence[alike] > -np.inf]
                groups[slot] = (max(alike.tolist(), key=lambda one: (changed[one], self._ids[one])), len(alike))
                evidence[alike[alike != slot]] = -np.inf
                rest -= len(alike) - 1
            if rest == before:  # all of them are different
                return best, groups
            best = self._best(evidence, min(count, rest))


class _Evidence(NamedTuple):
    """What speaks for each record, in all and by its parts; of passages, what their vectors and their words say."""

    total: Floats
    closeness: Floats
    close: Floats
    words: Floats
    said: Floats
    share: Doubles
    """Which share of the query's words a record has."""
    weight: np.float32
    """Of words."""
    neighbours: Floats | None

    def best_passage(self, passages: slice) -> int:
        """Which of a record's passages matches best."""
        return int(np.argmax(self.close[passages] + self.weight * self.said[passages]))

    def parts(self, slot: int) -> dict[str, float]:
        """What the evidence of a record is made of."""
        near = 0.0 if self.neighbours is None else float(self.neighbours[slot])
        parts = {
            "vector": float(self.closeness[slot]),
            "lexical": float(self.weight * self.words[slot]),
            "neighbours": near,
        }
        # Beyond these digits, what is told would depend on the order of additions, and so on how records came here.
        return {name: round(part, 6) for name, part in parts.items()}


def _linked_sessions(batch: Batch) -> Sequence[str | None]:
    """The sessions in which records are neighbours: a version that has ended is nobody's."""
    if len(batch.session_id) < len(batch.id):  # nothing but separators
        return [None] * len(batch.id)
    names = batch.session_id.split(SEPARATOR)
    if batch.ended_at is None and "" not in names:
        return names
    current = [True] * len(names) if batch.ended_at is None else (batch.ended_at == NEVER).tolist()
    return [name if name and is_current else None for name, is_current in zip(names, current, strict=True)]


def _least_of_best(evidence: Floats, count: int) -> float:
    """What the best so many have at least. Of many, the best of each of several parts are looked at: as many of these
    as are wanted have no less than that, and few others have as much.
    """
    width = len(evidence) // _PARTS
    if count <= _PARTS // 4 and width > 1:
        best = np.maximum.reduce(evidence[: _PARTS * width].reshape(width, _PARTS), 0)
    else:
        best = evidence.copy()
    best.partition(len(best) - count)
    return float(best[-count])


def _sum(values: Floats, first: Ints) -> Floats:
    """The sum of the values of each record's passages."""
    total: Floats = np.add.reduceat(values, first)
    return total


def _match(
    places: npt.NDArray[np.intp], holding: Sequence[int], impact: Floats, weights: Doubles, count: int
) -> tuple[Floats, Doubles]:
    """What the query's words say for each of ``count`` records or passages, from each that holds one of them (word by
    word); and what share of the words each has, by their weights.
    """
    shares = weights / max(float(np.add.reduce(weights)), ranking.LEAST)
    share: Any = np.bincount(places, shares.repeat(holding), count)
    each = weights.repeat(holding)
    each *= impact
    matched: Any = np.bincount(places, each, count)
    return ranking.lexical(matched, share), share


_NOTHING: Final = np.empty(0, np.float32)
