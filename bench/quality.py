"""How well recall ranks, on several shapes of text: ``python -m bench.quality [locomo10.json]``, with the embedder that
``HOLDFAST_EMBEDDER`` names.

Each shape is ranked four ways: by vectors alone, by words alone (BM25), by both, and by both with neighbours. A ranking
that is tuned to one shape shows here as one that loses to its own parts on another. The last way is the product; how
far it is ahead of the better of vectors and words comes with the 95 % interval of a paired bootstrap.

Where a set has several users, each question is asked of the next user's memory as well. Scores that mean something
are higher for the own questions than for these foreign ones.

- LoCoMo (its file is given by path or ``HOLDFAST_LOCOMO``; CC BY-NC, so it is no part of this repository): one user per
  conversation, one record per turn, ``Speaker: text`` with the caption of a shared image in brackets, the turn's
  session; the questions of categories 1 to 4 that name at least one turn as evidence.
- The labelled sets in ``bench/sets``. In some of them each memory and each query has its ``user``, who asks of their
  own memories only. ``long_answers``, ``other_words`` and ``second_topics`` were written by somebody who had not read
  the ranking's code but knew a description of its weak points. ``long_answers`` got more turns and questions after it
  was first measured, since nearly all was found. They are not changed to fit the ranking.
- The standard library of the running Python: a docstring's first line asks for the rest of the docstring, or for the
  code. A module is a session.
"""

from __future__ import annotations

import ast
import json
import math
import os
import random
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from holdfast.core.records import TYPES, MemoryType
from holdfast.ports.feed import Embedder, IndexRow
from holdfast.recall import terms
from holdfast.recall.embedders import open_embedder
from holdfast.recall.embedders.static import StaticEmbedder
from holdfast.recall.index import Query, ScopeIndex, SearchOptions
from holdfast.recall.passages import split

DATA = Path(__file__).parent / "sets"
WAYS = ("vectors", "words", "both", "both + neighbours")
#: The way that ``retrieve`` goes, and the parts that it is made of.
PRODUCT, PARTS = WAYS[3], WAYS[:2]
_CUT = 10


class Memory(NamedTuple):
    """One record of a set."""

    id: str
    text: str
    session: str | None


class Question(NamedTuple):
    """A query and the ids of the memories that answer it."""

    text: str
    relevant: frozenset[str]


class Collection(NamedTuple):
    """One user's memories and the questions about them."""

    memories: list[Memory]
    questions: list[Question]


class Figures(NamedTuple):
    """Means over the questions of a set. Recall at one is ``any1``: whether the first hit is right."""

    any1: float
    recall5: float
    recall10: float
    any10: float
    mrr10: float
    ndcg10: float
    precision5: float


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


def measure(name: str, collections: Sequence[Collection], embedder: Embedder | None = None) -> Table:
    """Rank every question of a set in each of the ``WAYS``."""
    embedder = embedder or StaticEmbedder()
    found: dict[str, list[Figures]] = {way: [] for way in WAYS}
    scores = Scores([], [])
    indexes = [_indexes(collection.memories, embedder) for collection in collections]
    no_terms = np.empty(0, np.uint32)
    for number, collection in enumerate(collections):
        plain, linked = indexes[number]
        _, foreign = indexes[(number + 1) % len(indexes)]
        names = [memory.id for memory in collection.memories]
        for question in collection.questions:
            vector, words = embedder.embed([question.text])[0], terms.query_terms(question.text)
            whole = Query(vector, words)
            asked = ((plain, Query(vector, no_terms)), (plain, Query(None, words)), (plain, whole), (linked, whole))
            for way, (index, query) in zip(WAYS, asked, strict=True):
                hits = index.rank(query, SearchOptions(_CUT, 0))
                found[way].append(_judge([names[int(hit.id[:8], 16)] for hit in hits], question.relevant))
            scores.own.append(_best(linked, whole))
            scores.foreign.append(_best(foreign, whole))
    figures = {
        way: Figures(*(float(np.mean(column)) for column in zip(*rows, strict=True))) for way, rows in found.items()
    }
    return Table(
        name,
        sum(len(collection.memories) for collection in collections),
        sum(len(collection.questions) for collection in collections),
        figures,
        compare({way: [row.recall10 for row in rows] for way, rows in found.items()}),
        scores if len(collections) > 1 else None,
    )


def _best(index: ScopeIndex, query: Query) -> float:
    return max((hit.score for hit in index.rank(query, SearchOptions(1, 0))), default=0.0)


def compare(recalls: dict[str, list[float]], rounds: int = 2_000) -> Gain:
    """The product against its better part: the same questions are drawn for both, again and again."""
    part = max(PARTS, key=lambda way: float(np.mean(recalls[way])))
    gains = np.asarray(recalls[PRODUCT]) - np.asarray(recalls[part])
    drawn = np.random.default_rng(7).integers(0, len(gains), (rounds, len(gains)))
    low, high = np.percentile(gains[drawn].mean(axis=1), (2.5, 97.5))
    return Gain(part, float(low), float(gains.mean()), float(high))


def _indexes(memories: Sequence[Memory], embedder: Embedder) -> tuple[ScopeIndex, ScopeIndex]:
    """An index that knows no sessions, and one that does."""
    rows = []
    for number, memory in enumerate(memories):
        passages = split(memory.text)
        vectors = embedder.embed(passages).astype(np.float16).tobytes()
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


def _judge(ranked: Sequence[str], relevant: frozenset[str]) -> Figures:
    right = [memory in relevant for memory in ranked]
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


# --- the sets ---------------------------------------------------------------------------------------------------------


def locomo(path: Path, embedder: Embedder | None = None) -> Table:
    """LoCoMo, turn by turn."""
    samples = json.loads(path.read_text("utf-8"))
    return measure("LoCoMo turns", [_conversation(sample) for sample in samples], embedder)


def _conversation(sample: dict[str, object]) -> Collection:
    conversation = sample["conversation"]
    questions = sample["qa"]
    assert isinstance(conversation, dict)
    assert isinstance(questions, list)
    sessions = sorted((key for key in conversation if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
    memories = [Memory(turn["dia_id"], _said(turn), session) for session in sessions for turn in conversation[session]]
    known = {memory.id for memory in memories}
    asked = []
    for question in questions:
        # Some evidence is written as several turns in one string.
        evidence = known.intersection(re.findall(r"D\d+:\d+", " ".join(question["evidence"])))
        if question["category"] != 5 and evidence:
            asked.append(Question(question["question"], frozenset(evidence)))
    return Collection(memories, asked)


def _said(turn: dict[str, str]) -> str:
    caption = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [{caption}]" if caption else "")


def labelled(path: Path, embedder: Embedder | None = None) -> Table:
    """One of the sets in ``bench/sets``: memories and queries, or queries about the ``memories_of`` another."""
    written = json.loads(path.read_text("utf-8"))
    holder = path.with_name(written["memories_of"]) if "memories_of" in written else path
    collections: dict[str | None, Collection] = {}
    for memory in json.loads(holder.read_text("utf-8"))["memories"]:
        collection = collections.setdefault(memory.get("user"), Collection([], []))
        collection.memories.append(Memory(memory["id"], memory["text"], memory.get("session")))
    for query in written["queries"]:
        collections[query.get("user")].questions.append(Question(query["text"], frozenset(query["relevant"])))
    return measure(written["name"], list(collections.values()), embedder)


def documentation(embedder: Embedder | None = None) -> Table:
    """Long texts: the first line of each docstring of the standard library asks for the rest of it."""
    found = ((module, title, rest) for module, title, rest, _ in _documented() if len(rest) >= 300)
    return measure("stdlib docstrings", [_collect(found)], embedder)


def code(embedder: Embedder | None = None) -> Table:
    """Code: the first line of each docstring of the standard library asks for the function's source without it."""
    found = ((module, title, source) for module, title, _, source in _documented() if 0 < len(source) <= 6_000)
    return measure("stdlib code", [_collect(found)], embedder)


def _collect(found: Iterable[tuple[str, str, str]], asked: int = 800) -> Collection:
    """Each distinct text once, and some of their titles as questions (the same ones on every run)."""
    memories: list[Memory] = []
    questions: list[Question] = []
    seen: set[str] = set()
    for module, title, text in found:
        if title not in seen and text not in seen:
            seen |= {title, text}
            memories.append(Memory(str(len(memories)), text, module))
            questions.append(Question(title, frozenset({memories[-1].id})))
    random.Random(7).shuffle(questions)
    return Collection(memories, questions[:asked])


def _documented() -> Iterator[tuple[str, str, str, str]]:
    """Module, first line and rest of the docstring, and source of what the standard library documents."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"test", "tests", "site-packages", "idlelib", "lib2to3", "turtledemo", "idle_test"}
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root)
        if skipped.isdisjoint(module.parts):
            for node in _parsed(path):
                title, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
                title = " ".join(title.split())
                if len(title.split()) >= 4 and len(title) <= 160:
                    yield str(module), title, rest.strip(), _source(node)


def _parsed(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # samples of what Python refuses are part of the library
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def _source(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """A function's source without its docstring; nothing for one that does nothing, and for classes."""
    if isinstance(node, ast.ClassDef) or len(node.body) < 3:
        return ""
    node.body = node.body[1:]
    return ast.unparse(node)


def tables(locomo_path: Path | None = None, embedder: Embedder | None = None) -> Iterator[Table]:
    """The table of each set there is, as it is measured."""
    if locomo_path is not None:
        yield locomo(locomo_path, embedder)
    for path in sorted(DATA.glob("*.json")):
        yield labelled(path, embedder)
    yield documentation(embedder)
    yield code(embedder)


def common_threshold(measured: Iterable[Table], share: float = 0.1) -> float:
    """The lowest score that keeps at most this share of the foreign questions in every set of several users."""
    return max(table.scores.threshold(share) for table in measured if table.scores is not None)


def main(arguments: Sequence[str] = ()) -> None:
    """Print every table."""
    given = arguments[0] if arguments else os.environ.get("HOLDFAST_LOCOMO")
    if given is None:
        print("Without LoCoMo: give the path of locomo10.json, or set HOLDFAST_LOCOMO.\n")
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


if __name__ == "__main__":
    main(sys.argv[1:])
