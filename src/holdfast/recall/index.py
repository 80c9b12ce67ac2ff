"""The recall index of one scope, in process memory: exact vectors and BM25 over its records, fused, with neighbours.

Each record has a slot. Slots are given out in order; a record that replaces another gets a new one. Slots of records
that are gone are skipped. When there are many of them, the index numbers the others again. What ``rank`` returns does
not depend on how the index came to hold its records.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial
from heapq import nlargest
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.filters import Filter
from holdfast.core.records import Kind
from holdfast.ports.feed import SEPARATOR, IndexRow
from holdfast.recall import ranking
from holdfast.recall.arrays import NEVER, Batch, GrowingArray, SlotIds
from holdfast.recall.metadata_columns import Mask, MetadataColumns
from holdfast.recall.postings import CAPACITY, Postings
from holdfast.recall.ranking import Floats, Ints
from holdfast.recall.session_links import NONE, SessionLinks
from holdfast.recall.vectors import Steps, add_up, cosine, length, pair_products, products, scales, to_steps

#: Slots are renumbered when more than this many, and more than a third of them, are empty.
_SLACK: Final = 256
#: So few new records are compared with the others one by one.
_FEW: Final = 16
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
        self._first = GrowingArray(np.int64)  # each slot's first passage
        self._square = GrowingArray(np.float32)  # how long the sum of a slot's vectors is, squared
        self._passage_length = GrowingArray(np.float32)
        self._vectors = GrowingArray(np.int8, 0)
        self._scale = GrowingArray(np.float32)  # what makes each vector one of length 1
        self._total: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._embedded = 0
        self._words = 0
        # Weakly, so that an index is gone as soon as nobody has it: the garbage collection may be long in coming.
        self._links = SessionLinks(self._ids, partial(ScopeIndex._compare_first, weakref.proxy(self)))
        self._postings = Postings()
        self._columns = MetadataColumns(kind.name)
        self._derived: _Derived | None = None
        self._size: int | None = None
        self._seen_until: tuple[int, int] | None = None
        """For how long all records are seen: without archived ones, and with them."""
        self.add(batches)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, record_id: str) -> bool:
        return self._slots.find(record_id) is not None

    @property
    def nbytes(self) -> int:
        """About what the index holds in memory."""
        if self._size is None:
            self._size = self._measure()
        return self._size

    def _measure(self) -> int:
        arrays = (self._first, *self._of_passages, *self._of_slots)
        held = sum(array.nbytes for array in arrays) + 64 * len(self._repeated)
        held += self._postings.nbytes + self._columns.nbytes + self._links.nbytes
        return held + 240 * len(self._ids) + 12 * len(self._vectors)  # ids, and what is derived

    @property
    def _of_passages(self) -> tuple[GrowingArray, ...]:
        """What is kept for each passage."""
        return self._vectors, self._scale, self._passage_length

    @property
    def _of_slots(self) -> tuple[GrowingArray, ...]:
        """What is kept for each slot, but for the number of its first passage."""
        times = (self._archived_from, self._hidden_from, self._ended_at)
        return self._here, *times, self._length, self._text_hash, self._square

    def _note_change(self) -> None:
        """What was found out about all records is to be found out again."""
        self._derived = self._size = self._seen_until = None

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
        self._add_vectors(batches)
        for batch in batches:
            self._slots.add(batch.id)
            self._columns.add(batch)
        self._here.extend(np.ones(count, np.bool_))
        self._archived_from.extend(np.concatenate([batch.archived_from for batch in batches]))
        self._hidden_from.extend(np.concatenate([batch.hidden_from for batch in batches]))
        self._text_hash.extend(np.concatenate([batch.text_hash for batch in batches]))
        self._note_repeated(count)
        for batch in batches:
            self._ended_at.extend(np.full(len(batch.id), NEVER) if batch.ended_at is None else batch.ended_at)
        self._links.add([name for batch in batches for name in _linked_sessions(batch)])
        self._note_change()

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
            gone = self._passages(slot)
            self._total -= add_up(self._vectors.view[gone])
            self._embedded -= int(np.count_nonzero(self._scale.view[gone]))
        self._links.remove(slots)
        self._note_change()
        dead = len(self._ids) - len(self)
        if dead > _SLACK and dead * 3 > len(self._ids):
            self._compact()

    def _add_vectors(self, batches: Sequence[Batch]) -> None:
        """Append the vectors of new records; zeros for those that have none, or none of the length of the others."""
        if not self._vectors.width:
            dim = next((width for batch in batches if (width := batch.vectors.shape[1])), 0)
            self._vectors.widen(dim)
            self._total = np.zeros(dim, np.int64)
        vectors = np.concatenate([_of_width(batch.vectors, self._vectors.width) for batch in batches])
        scale = scales(vectors)
        self._total += add_up(vectors)
        self._embedded += int(np.count_nonzero(scale))
        passages = np.concatenate([batch.passages for batch in batches])
        first = np.cumsum(passages) - passages
        # A single vector counts as one of length 1, with or without records of several passages beside it.
        square = (scale[first] > 0).astype(np.float32)
        slot = end = 0
        for batch in batches if len(vectors) > len(first) else ():
            part = slice(end, end := end + len(batch.vectors))
            slots = slice(slot, slot := slot + len(batch.id))
            _fill_squares(square[slots], vectors[part], scale[part], batch.passages)
        self._square.extend(square)
        self._first.extend(len(self._vectors) + first)
        self._vectors.extend(vectors)
        self._scale.extend(scale)

    def _add_terms(self, batches: Sequence[Batch], start: int) -> None:
        """Append the terms of new passages, which are numbered from ``start``, and the lengths in words."""
        passages = []
        for batch in batches:
            lengths = batch.words
            self._words += int(lengths.sum(dtype=np.float64))
            self._passage_length.extend(lengths)
            is_whole = len(lengths) == len(batch.passages)
            self._length.extend(lengths if is_whole else _sum(lengths, np.cumsum(batch.passages) - batch.passages))
            passages.append(batch.passage + np.uint32(start))
            start += len(batch.vectors)
        terms = np.concatenate([batch.term for batch in batches])
        self._postings.add(np.concatenate(passages), terms, np.concatenate([batch.times for batch in batches]))

    def _compare_first(self, slots: Ints, others: Ints) -> Floats:
        """The products of the first vectors of slots with those of others."""
        here, there = self._first.view[slots], self._first.view[others]
        alike = pair_products(self._rows(here), self._rows(there))
        alike *= self._scale.view[here]
        alike *= self._scale.view[there]
        return alike

    def _rows(self, places: Ints) -> Steps:
        """Some vectors: without a copy, where they stand in a row."""
        in_a_row = len(places) > 0 and bool((np.diff(places) == 1).all())
        rows: Steps = self._vectors.view[slice(int(places[0]), int(places[-1]) + 1) if in_a_row else places]
        return rows

    def _passages(self, slot: int) -> slice:
        first = self._first.view
        return slice(int(first[slot]), int(first[slot + 1]) if slot + 1 < len(first) else len(self._vectors))

    def _compact(self) -> None:
        """Renumber the slots without those whose record is gone."""
        kept = np.flatnonzero(self._here.view)
        numbers = np.full(len(self._ids) + 1, NONE)  # the last one is the record that is not there
        numbers[kept] = np.arange(len(kept))
        first = self._first.view
        counts = np.diff(first, append=len(self._vectors))
        owned = np.repeat(self._here.view, counts)
        passages = np.where(owned, np.cumsum(owned) - 1, NONE)
        for array in self._of_passages:
            array.replace(array.view[owned])
        self._first.replace(np.cumsum(counts[kept]) - counts[kept])
        for array in self._of_slots:
            array.replace(array.view[kept])
        self._links.renumber(kept, numbers)
        self._slots.keep(kept.tolist())
        self._postings.renumber(passages)
        self._columns.keep(kept)
        self._note_change()

    # --- answering ----------------------------------------------------------------------------------------------------

    def rank(self, query: Query, options: SearchOptions) -> list[Hit]:
        """The records closest to a query, best first; of equals, the one that was changed last.

        What is hidden at that time, archived (unless asked for) or outside the filter does not count among the
        ``top_k``. A record without vectors is found by its words and its neighbours.
        """
        visible, wanted = self._masks(options)
        passing = int(np.count_nonzero(wanted))
        is_all = passing == len(wanted)
        left_out = None if options.without is None else self._slots.find(options.without)
        if left_out is not None:
            passing -= int(wanted[left_out])
        count = min(options.top_k, passing)
        if count <= 0:
            return []
        derived = self._derived = self._derived or self._derive()
        found = self._weigh_evidence(query, derived, None if is_all else visible, left_out)
        total, bounded = found.total, [found.closeness, found.share]
        if not is_all:
            total = np.where(wanted, total, np.float32(-np.inf))
            bounded = [np.where(wanted, each, np.float32(-1)) for each in bounded]
        if left_out is not None:
            total[left_out] = -np.inf
            for each in bounded:
                each[left_out] = -1
        closest, covered = (float(each.max()) for each in bounded)
        related = ranking.related(closest, covered, len(self))
        best, groups = self._best_once(total, count, passing) if self._repeated else (self._best(total, count), {})
        most = max(best[0][1], ranking.LEAST)
        hits = []
        for slot, much in best:
            score = related * min(max(much / most, 0.0), 1.0)
            if score < options.min_score:
                break
            shown, times = groups.get(slot, (slot, 1))
            passage = found.best_passage(self._passages(slot)) if derived.several is not None else 0
            parts = {**found.parts(slot), "evidence": much} if options.explain else {}
            hits.append(Hit(self._ids[shown], score, passage, parts, int(self._columns.updated_at[shown]), times))
        return hits

    def _weigh_evidence(self, query: Query, derived: _Derived, visible: Mask | None, left_out: int | None) -> _Evidence:
        """What speaks for each record. Those that are not ``visible`` (``None``: all are), and the one that is left
        out, lend nothing to others.
        """
        closeness, close = self._closeness(query.vector, derived)
        words, said, share = self._find_words(query.terms, derived)
        here = slice(None) if derived.present is None else derived.present
        weight = np.float32(ranking.word_weight(closeness[here], words[here]))
        evidence = weight * words
        evidence += closeness
        if derived.reach is None:
            return _Evidence(evidence, closeness, close, words, said, share, weight, None)
        seen = evidence.copy() if visible is None else np.where(visible, evidence, np.float32(0))
        if left_out is not None:
            seen[left_out] = 0
        faint = ranking.faint(evidence[here])
        neighbours = ranking.neighbour_evidence(seen, faint, derived.near, derived.far)
        neighbours *= derived.reach
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
        self._size = None  # a column may be added
        return self._columns.count(path, self._masks(options)[1])

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
        self._size = None  # a column may be added
        return visible, visible & self._columns.mask(options.where)

    def _sees_all(self, options: SearchOptions) -> bool:
        """Whether every record that is there is seen, and wanted."""
        if not (options.where is None and options.as_of is None):
            return False
        if self._seen_until is None:
            here = self._here.view
            seen, active = (
                int(each.view[here].min(initial=NEVER)) for each in (self._hidden_from, self._archived_from)
            )
            self._seen_until = (min(seen, active), seen)
        return options.now < self._seen_until[options.include_archived]

    def _derive(self) -> _Derived:
        """What depends on the records and not on the query."""
        slots = len(self._ids)
        direction = to_steps(self._total.astype(np.float64))
        removed = ranking.common_share(self._embedded) if direction.any() else 0.0
        common = self._multiply(direction, self._scale.view)
        own = ranking.own_length(common, removed)
        near = far = (self._links.previous.view, self._links.next.view)
        linked = np.flatnonzero(near[0] != NONE)
        reach = None
        thread = 0.0
        if len(linked):
            here, there = (self._first.view[ends] for ends in (linked, near[0][linked]))
            dots = self._links.likeness.view[linked] - removed * common[here] * common[there]
            thread = ranking.thread(dots / (own[here] * own[there]))
        if thread:
            reach = ranking.openness(self._length.view) * np.float32(thread)
            far = (_step(near[0]), _step(near[1]))
        scale: Floats = np.divide(self._scale.view, own)
        common_share: Floats = common / own
        present = passage_present = None if len(self) == slots else self._here.view
        usual = usual_passage = ranking.usual_length(self._words, len(self))
        several = None
        if len(self._vectors) > slots:
            counts = np.diff(self._first.view, append=len(self._vectors))
            owner = np.repeat(np.arange(slots), counts)
            if present is not None:
                passage_present = present.take(owner)
            usual_passage = ranking.usual_length(self._words, int(counts[self._here.view].sum()))
            own_of_sum = ranking.own_length(_sum(common, self._first.view), removed, self._square.view)
            embedded = self._square.view > 0
            free = int((counts - 1)[embedded & self._here.view].sum())
            by_chance = np.where(embedded, ranking.chance(counts), np.float32(0))
            several = _Several(owner, counts.astype(np.float32), by_chance, free, own_of_sum)
        return _Derived(
            direction,
            removed,
            own,
            scale,
            common_share,
            usual,
            usual_passage,
            present,
            passage_present,
            several,
            near,
            far,
            reach,
        )

    def _multiply(self, query: Steps, scale: Floats) -> Floats:
        """The product of each vector, with its scale, and another one of length 1."""
        found = products(self._vectors.view, query)
        found *= scale
        found *= np.float32(1 / (length(query) or 1))
        return found

    def _closeness(self, query: Steps | None, derived: _Derived) -> tuple[Floats, Floats]:
        """How close each record is to the query, and each passage's cosine with it; zeros if there is none."""
        if query is None or not self._embedded or not query.any():
            return np.zeros(len(self._ids), np.float32), np.zeros(len(self._vectors), np.float32)
        dots, query_common = self._multiply(query, derived.scale), cosine(query, derived.direction)
        cosines = ranking.own_cosines(dots, derived.common, query_common, derived.removed)
        if derived.several is None:
            return cosines, cosines
        several, first = derived.several, self._first.view
        middle = _sum(cosines, first) / several.counts
        inside = cosines - middle.take(several.owner)
        if derived.passage_present is not None:
            inside = inside[derived.passage_present]
        spread = ranking.spread(inside, several.free)
        mean = _sum(cosines * derived.own, first) / several.own
        return ranking.closeness(np.maximum.reduceat(cosines, first), mean, spread * several.chance), cosines

    def _find_words(self, query_terms: npt.NDArray[np.uint32], derived: _Derived) -> tuple[Floats, Floats, Floats]:
        """How much the query's words say for each record, and for each passage; and what share of them a record has."""
        found, impact = self._postings.find(
            query_terms, derived.passage_present, self._passage_length.view, derived.usual_passage
        )
        several = derived.several
        if several is None:
            weights = ranking.rarity(len(self), found.holding)
            words, share = _match(found.passage, found.holding, impact, weights, len(self._ids))
            return words, words, share
        owner, term = several.owner.take(found.passage), found.term
        begins = np.ones(len(owner), bool)
        np.logical_or(owner[1:] != owner[:-1], term[1:] != term[:-1], out=begins[1:])
        starts = np.flatnonzero(begins)
        record, holding = owner[starts], np.bincount(term[starts], minlength=len(query_terms))
        times = np.add.reduceat(found.times, starts, dtype=np.float32) if len(starts) else _NOTHING
        weights = ranking.rarity(len(self), holding)
        said, _ = _match(found.passage, found.holding, impact, weights, len(self._vectors))
        impact = ranking.saturation(times, self._length.view.take(record), derived.usual)
        words, share = _match(record, holding, impact, weights, len(self._ids))
        return ranking.of_record(words, np.maximum.reduceat(said, self._first.view)), said, share

    def _best(self, evidence: Floats, count: int) -> list[tuple[int, float]]:
        """The slots with the most evidence, and how much; of equals, those that were changed last."""
        slots = np.flatnonzero(evidence >= _least_of_best(evidence, count) - _GRAIN)
        steps = np.rint(evidence[slots] / np.float32(_GRAIN))
        changed = self._columns.updated_at[slots]
        if len(slots) > 4 * count and self._slots.ascend:  # many equals
            chosen = np.lexsort((slots, changed, steps))[-count:]
            slots, steps, changed = slots[chosen], steps[chosen], changed[chosen]
        ids = (self._ids[slot] for slot in slots)
        ranked = nlargest(count, zip(steps.tolist(), changed.tolist(), ids, slots.tolist(), strict=True))
        return [(slot, step * _GRAIN) for step, _, _, slot in ranked]

    def _best_once(
        self, evidence: Floats, count: int, rest: int
    ) -> tuple[list[tuple[int, float]], dict[int, tuple[int, int]]]:
        """The same with one slot for each text, out of ``rest`` that count: the one with the most evidence. Of texts
        that several records have, by that slot: the newest record's, and how many have it.
        """
        evidence, hashes, changed = evidence.copy(), self._text_hash.view, self._columns.updated_at
        groups: dict[int, tuple[int, int]] = {}
        while True:
            best = self._best(evidence, min(count, rest))
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


class _Evidence(NamedTuple):
    """What speaks for each record, in all and by its parts; of passages, what their vectors and their words say."""

    total: Floats
    closeness: Floats
    close: Floats
    words: Floats
    said: Floats
    share: Floats
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


class _Derived(NamedTuple):
    """What a search needs of the records, until one of them changes."""

    direction: Steps
    removed: float
    own: Floats
    """How long what is left of each vector without the common direction is, ..."""
    scale: Floats
    """... what makes its steps as long as that makes it, ..."""
    common: Floats
    """... and its product with that direction, divided by it."""
    usual: float
    """The usual length of a record, ..."""
    usual_passage: float
    """... and of a passage."""
    present: Mask | None
    """Which slots have a record; ``None``: all."""
    passage_present: Mask | None
    several: _Several | None
    """Where a record has more than one passage."""
    near: tuple[Ints, Ints]
    far: tuple[Ints, Ints]
    reach: Floats | None


class _Several(NamedTuple):
    """What is needed of records with several passages."""

    owner: Ints
    """The slot of each passage."""
    counts: Floats
    """How many passages each slot has."""
    chance: Floats
    """How far the best of so many passages stands out by chance; 0 for a record without vectors."""
    free: int
    """How many vectors there are beyond one for each record that has some."""
    own: Floats
    """The length of what is left of the sum of a record's vectors without the common direction."""


def _linked_sessions(batch: Batch) -> Sequence[str | None]:
    """The sessions in which records are neighbours: a version that has ended is nobody's."""
    if len(batch.session_id) < len(batch.id):  # nothing but separators
        return [None] * len(batch.id)
    names = batch.session_id.split(SEPARATOR)
    if batch.ended_at is None and "" not in names:
        return names
    current = [True] * len(names) if batch.ended_at is None else (batch.ended_at == NEVER).tolist()
    return [name if name and is_current else None for name, is_current in zip(names, current, strict=True)]


def _of_width(vectors: Steps, width: int) -> Steps:
    return vectors if vectors.shape[1] == width else np.zeros((len(vectors), width), np.int8)


def _fill_squares(square: Floats, vectors: Steps, scale: Floats, passages: Ints) -> None:
    """How long the sum of the vectors of each record of several passages is, squared."""
    counts = passages[passages > 1]
    if len(counts):
        theirs = np.repeat(passages > 1, passages)
        units = vectors[theirs] * scale[theirs, np.newaxis]
        totals = np.add.reduceat(units, np.cumsum(counts) - counts)
        square[passages > 1] = np.vecdot(totals, totals)


def _least_of_best(evidence: Floats, count: int) -> float:
    """What the best so many have at least. Of many, the best of each of several parts are looked at: as many of these
    as are wanted have no less than that, and few others have as much.
    """
    width = len(evidence) // _PARTS
    if count <= _PARTS // 4 and width > 1:
        evidence = evidence[: _PARTS * width].reshape(width, _PARTS).max(0)
    return float(np.partition(evidence, len(evidence) - count)[len(evidence) - count])


def _step(links: Ints) -> Ints:
    """Links two steps long."""
    return np.append(links, NONE).take(links)


def _sum(values: Floats, first: Ints) -> Floats:
    """The sum of the values of each record's passages."""
    total: Floats = np.add.reduceat(values, first)
    return total


def _match(
    numbers: Ints | npt.NDArray[np.uint32], holding: Ints, impact: Floats, weights: npt.NDArray[np.float64], count: int
) -> tuple[Floats, Floats]:
    """What the query's words say for each of ``count`` records or passages, from each that holds one of them (word by
    word); and what share of the words each has, by their weights.
    """
    each = np.repeat(weights, holding)
    places = numbers.astype(np.intp, copy=False)
    share = np.bincount(places, each / max(float(weights.sum()), ranking.LEAST), count).astype(np.float32)
    each *= impact
    matched = np.bincount(places, each, count).astype(np.float32)
    return ranking.lexical(matched, share), share


_NOTHING: Final = np.empty(0, np.float32)
