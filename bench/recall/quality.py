"""How well recall ranks.

python -m bench.recall.quality                   # on every set of bench/data/sets, and on HOLDFAST_LOCOMO
python -m bench.recall.quality SET.json          # on one set: every embedder, every part switched off, the peers
python -m bench.recall.quality SET.json --peers  # without peers; or with the names of some
python -m bench.recall.quality SET.json --docs docs  # and write the section of docs/benchmarks.md, and its figures

``bench/recall/sets.py`` says what form a set has. With one set, R@5, R@10 and nDCG@10 come with 95 % intervals, and
with the paired differences from Holdfast, in all and for each category. ``--embedders`` says which ones are tried.

Without a set, each one is ranked four ways, with the embedder that ``HOLDFAST_EMBEDDER`` names: by vectors alone, by
words alone (BM25), by both, and by both with neighbours. A ranking that is tuned to one shape of text shows here as one
that loses to its own parts on another. The last way is the product; how far it is ahead of the better of vectors and
words comes with the 95 % interval of a paired bootstrap. Where a set has several users, each question is asked of the
next user's memory as well. Scores that mean something are higher for the own questions than for these foreign ones.

``long_answers``, ``other_words`` and ``second_topics`` were written by somebody who had not read the ranking's code but
knew a description of its weak points. ``long_answers`` got more turns and questions after it was first measured, since
nearly all was found. They are not changed to fit the ranking. Of the standard library of the running Python, a
docstring's first line asks for the rest of the docstring, or for the code; a module is a session.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.recall import comparison, page
from bench.recall import peers as other_systems
from bench.recall.comparison import Figures, Group, bootstrap, judge
from bench.recall.sets import Memory, RecallSet, SetError, code, documentation, read_set
from holdfast.core.errors import HoldfastError
from holdfast.core.records import TYPES, MemoryType
from holdfast.ports.feed import Embedder, IndexRow
from holdfast.recall import terms
from holdfast.recall.embedders import open_embedder
from holdfast.recall.embedders.static import StaticEmbedder
from holdfast.recall.index import Query, ScopeIndex, SearchOptions
from holdfast.recall.passages import split
from holdfast.recall.vectors import to_steps

DATA = Path(__file__).parents[1] / "data" / "sets"
_CUT = 10


class Way(NamedTuple):
    """What a ranking uses."""

    vectors: bool
    words: bool
    neighbours: bool


ALL_WAYS = {
    "vectors": Way(vectors=True, words=False, neighbours=False),
    "words": Way(vectors=False, words=True, neighbours=False),
    "both": Way(vectors=True, words=True, neighbours=False),
    "both + neighbours": Way(vectors=True, words=True, neighbours=True),
    "vectors + neighbours": Way(vectors=True, words=False, neighbours=True),
    "words + neighbours": Way(vectors=False, words=True, neighbours=True),
}
WAYS = tuple(ALL_WAYS)[:4]
#: The way that ``retrieve`` goes, and the parts that it is made of.
PRODUCT, PARTS = WAYS[3], WAYS[:2]


class Gain(NamedTuple):
    """By how much the product's recall@10 is above that of its better part, and the 95 % interval of that."""

    part: str
    low: float
    mean: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}] against {self.part}"


class Scores(NamedTuple):
    """The best score of each question of a set: asked of its own memory, and of another user's."""

    own: list[float]
    foreign: list[float]

    @property
    def auc(self) -> float:
        """How often an own question scores above a foreign one; a tie counts half."""
        foreign = np.sort(self.foreign)
        below = np.searchsorted(foreign, self.own, "left") + np.searchsorted(foreign, self.own, "right")
        return float(np.mean(below)) / 2 / len(foreign)

    def threshold(self, share: float = 0.1) -> float:
        """The lowest score that at most this share of the foreign questions reaches."""
        falling = sorted(self.foreign, reverse=True)
        return math.nextafter(falling[int(share * len(falling))], math.inf)

    def kept(self, threshold: float) -> tuple[float, float]:
        """The shares of own and of foreign questions that reach a threshold."""
        own, foreign = (float(np.mean(np.asarray(scores) >= threshold)) for scores in self)
        return own, foreign


class Table(NamedTuple):
    """The figures of one set, by way of ranking."""

    name: str
    memories: int
    questions: int
    figures: dict[str, Figures]
    gain: Gain
    scores: Scores | None
    """None for a set of one user."""

    def __str__(self) -> str:
        heads = ("any@1", "R@5", "R@10", "any@10", "MRR@10", "nDCG@10", "P@5")
        lines = [
            f"{self.name}: {self.memories:,} memories, {self.questions:,} questions",
            f"  {'':18}" + "".join(f"{head:>9}" for head in heads),
            *(f"  {way:18}" + "".join(f"{cell:9.3f}" for cell in row) for way, row in self.figures.items()),
            f"  R@10 {self.gain}",
        ]
        if self.scores is not None:
            threshold = self.scores.threshold()
            own, foreign = self.scores.kept(threshold)
            kept = f"a score of {threshold:.3f} keeps {own:.0%} of the own and {foreign:.0%} of the foreign questions"
            lines.append(f"  AUC {self.scores.auc:.3f}; {kept}")
        return "\n".join(lines)


# --- measuring --------------------------------------------------------------------------------------------------------


def rank(asked: RecallSet, embedder: Embedder, ways: Iterable[str] = WAYS) -> tuple[dict[str, list[Figures]], Scores]:
    """Rank every question of a set in some ways: its figures by way, and the best scores."""
    found: dict[str, list[Figures]] = {way: [] for way in ways}
    scores = Scores([], [])
    indexes = [_indexes(collection.memories, embedder) for collection in asked.collections]
    no_terms = np.empty(0, np.uint32)
    for number, collection in enumerate(asked.collections):
        plain, linked = indexes[number]
        _, foreign = indexes[(number + 1) % len(indexes)]
        names = [memory.id for memory in collection.memories]
        for question in collection.questions:
            vector, words = to_steps(embedder.embed([question.text])[0]), terms.query_terms(question.text)
            for name, rows in found.items():
                way = ALL_WAYS[name]
                query = Query(vector if way.vectors else None, words if way.words else no_terms)
                hits = (linked if way.neighbours else plain).rank(query, SearchOptions(_CUT, 0))
                rows.append(judge([names[int(hit.id[:8], 16)] for hit in hits], question.relevant))
            scores.own.append(_best(linked, Query(vector, words)))
            scores.foreign.append(_best(foreign, Query(vector, words)))
    return found, scores


def measure(asked: RecallSet, embedder: Embedder | None = None) -> Table:
    """Rank every question of a set in each of the ``WAYS``."""
    found, scores = rank(asked, embedder or StaticEmbedder())
    return Table(
        asked.name,
        sum(len(collection.memories) for collection in asked.collections),
        len(asked.questions),
        {way: Figures(*(float(np.mean(column)) for column in zip(*rows, strict=True))) for way, rows in found.items()},
        compare({way: [row.recall10 for row in rows] for way, rows in found.items()}),
        scores if len(asked.collections) > 1 else None,
    )


def _best(index: ScopeIndex, query: Query) -> float:
    return max((hit.score for hit in index.rank(query, SearchOptions(1, 0))), default=0.0)


def compare(recalls: dict[str, list[float]]) -> Gain:
    """The product against its better part: the same questions are drawn for both, again and again."""
    part = max(PARTS, key=lambda way: float(np.mean(recalls[way])))
    gain = bootstrap(np.asarray(recalls[PRODUCT]) - np.asarray(recalls[part]))
    return Gain(part, gain.low, gain.mean, gain.high)


def _indexes(memories: Sequence[Memory], embedder: Embedder) -> tuple[ScopeIndex, ScopeIndex]:
    """An index that knows no sessions, and one that does."""
    rows = []
    for number, memory in enumerate(memories):
        passages = split(memory.text)
        vectors = to_steps(embedder.embed(passages)).tobytes()
        record_id = f"{number:08x}-0000-7000-8000-000000000000"
        rows.append(
            IndexRow(
                record_id,
                agent_id="bench",
                session_id=memory.session,
                created_at=number,
                updated_at=number,
                hidden_from=None,
                archived_from=None,
                metadata="{}",
                vectors=vectors,
                terms=terms.encode(passages),
            )
        )
    unlinked = [row._replace(session_id=None) for row in rows]
    return _index_of(unlinked), _index_of(rows)


def _index_of(rows: Sequence[IndexRow]) -> ScopeIndex:
    index = ScopeIndex(TYPES[MemoryType.LONG_TERM])
    index.upsert(rows)
    return index


def tables(locomo_path: Path | None = None, embedder: Embedder | None = None) -> Iterator[Table]:
    """The table of each set there is, as it is measured."""
    if locomo_path is not None:
        yield measure(read_set(locomo_path), embedder)
    for path in sorted(DATA.glob("*.json")):
        yield measure(read_set(path), embedder)
    yield measure(documentation(), embedder)
    yield measure(code(), embedder)


def common_threshold(measured: Iterable[Table], share: float = 0.1) -> float:
    """The lowest score that keeps at most this share of the foreign questions in every set of several users."""
    return max(table.scores.threshold(share) for table in measured if table.scores is not None)


class Comparison(NamedTuple):
    """What each system did with the questions of a set, and why some did nothing. The first one is the product."""

    asked: RecallSet
    found: dict[str, list[Figures]]
    missing: dict[str, str]

    @property
    def head(self) -> str:
        """What was asked."""
        memories = sum(len(one.memories) for one in self.asked.collections)
        return f"{self.asked.name}: {memories:,} memories, {len(self.asked.questions):,} questions"

    @property
    def groups(self) -> list[Group]:
        """The figures over all questions and over each category."""
        return comparison.compare(self.found, [question.category for question in self.asked.questions])

    @property
    def reasons(self) -> list[str]:
        """Why some did nothing, as sentences."""
        return [f"{name}: {why}." for name, why in self.missing.items()]


def compare_all(path: Path, embedders: Sequence[str], peers: Sequence[str]) -> Comparison:
    """Rank one set with every embedder, in every way, and by the peers."""
    done = Comparison(read_set(path), {}, {})
    for name in embedders:
        try:
            ranked, _ = rank(done.asked, open_embedder(name), sorted(ALL_WAYS, key=lambda way: way != PRODUCT))
        except HoldfastError as problem:
            done.missing[f"Holdfast, {name}"] = str(problem)
        else:
            done.found.update({f"Holdfast, {name}{_explain(way)}": rows for way, rows in ranked.items()})
    for name, outcome in other_systems.run_all(path, done.asked, peers):
        if isinstance(outcome, str):
            done.missing[name] = outcome
        else:
            gold = [question.relevant for question in done.asked.questions]
            done.found[name] = [judge(ids, right) for ids, right in zip(outcome, gold, strict=True)]
    return done


def _explain(way: str) -> str:
    """What a way leaves out of the product."""
    off = [part for part, used in ALL_WAYS[way]._asdict().items() if not used]
    return f" without {' and '.join(off)}" if off else ""


def print_tables() -> None:
    """Print the table of every set."""
    given = os.environ.get("HOLDFAST_LOCOMO")
    if given is None:
        print("Without LoCoMo: set HOLDFAST_LOCOMO to the path of locomo10.json.\n")
    measured = []
    embedder = open_embedder(os.environ.get("HOLDFAST_EMBEDDER", "static"))
    for table in tables(None if given is None else Path(given), embedder):
        measured.append(table)
        print(table, end="\n\n", flush=True)
    threshold = common_threshold(measured)
    print(f"One threshold for all sets of several users, {threshold:.3f}:")
    for table in measured:
        if table.scores is not None:
            own, foreign = table.scores.kept(threshold)
            print(f"  {table.name:30}{own:6.0%} of the own and {foreign:4.0%} of the foreign questions")


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare on one set, or print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", nargs="?", type=Path, help="a set, or locomo10.json (default: every set there is)")
    parser.add_argument("--embedders", nargs="+", default=["static", "minilm"], help="(default: static minilm)")
    parser.add_argument("--peers", nargs="*", choices=other_systems.NAMES, default=other_systems.NAMES)
    parser.add_argument("--docs", type=Path, help="write the section of docs/benchmarks.md in this folder")
    options = parser.parse_args(arguments)
    if options.set is None:
        print_tables()
        return
    try:
        done = compare_all(options.set, options.embedders, options.peers)
    except SetError as problem:
        sys.exit(str(problem))
    print(done.head, *comparison.describe(done.groups), "", *done.reasons, sep="\n")
    if options.docs is not None:
        page.keep(options.docs, done.head, done.groups, done.reasons)


if __name__ == "__main__":
    main()
