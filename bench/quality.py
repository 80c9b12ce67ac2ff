"""How well recall ranks, on several shapes of text: ``python -m bench.quality [locomo10.json]``.

Each shape is ranked four ways: by vectors alone, by words alone (BM25), by both, and by both with neighbours. A ranking
that is tuned to one shape shows here as one that loses to its own parts on another.

- LoCoMo (its file is given by path or ``HOLDFAST_LOCOMO``; CC BY-NC, so it is no part of this repository): one user per
  conversation, one record per turn, ``Speaker: text`` with the caption of a shared image in brackets, the turn's
  session; the questions of categories 1 to 4 that name at least one turn as evidence.
- The labelled sets in ``bench/data``.
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
from holdfast.recall.embedders.static import StaticEmbedder
from holdfast.recall.index import Query, ScopeIndex, SearchOptions
from holdfast.recall.passages import split

DATA = Path(__file__).parent / "data"
WAYS = ("vectors", "words", "both", "both + neighbours")
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
    """Means over the questions of a set."""

    recall5: float
    recall10: float
    any10: float
    ndcg10: float
    precision5: float


class Table(NamedTuple):
    """The figures of one set, by way of ranking."""

    name: str
    memories: int
    questions: int
    figures: dict[str, Figures]

    def __str__(self) -> str:
        head = f"{self.name}: {self.memories:,} memories, {self.questions:,} questions"
        lines = [head, f"  {'':18}{'R@5':>8}{'R@10':>8}{'any@10':>8}{'nDCG@10':>9}{'P@5':>8}"]
        for way, row in self.figures.items():
            cells = f"{row.recall5:8.3f}{row.recall10:8.3f}{row.any10:8.3f}{row.ndcg10:9.3f}{row.precision5:8.3f}"
            lines.append(f"  {way:18}{cells}")
        return "\n".join(lines)


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(name: str, collections: Sequence[Collection], embedder: Embedder | None = None) -> Table:
    """Rank every question of a set in each of the ``WAYS``."""
    embedder = embedder or StaticEmbedder()
    found: dict[str, list[Figures]] = {way: [] for way in WAYS}
    for collection in collections:
        plain, linked = _indexes(collection.memories, embedder)
        names = [memory.id for memory in collection.memories]
        no_terms = np.empty(0, np.uint32)
        for question in collection.questions:
            vector = embedder.embed([question.text])[0]
            words = terms.query_terms(question.text)
            asked = zip(
                WAYS,
                ((plain, vector, no_terms), (plain, None, words), (plain, vector, words), (linked, vector, words)),
                strict=True,
            )
            for way, (index, query, query_words) in asked:
                hits = index.rank(Query(query, query_words), SearchOptions(_CUT, 0))
                found[way].append(_judge([names[int(hit.id[:8], 16)] for hit in hits], question.relevant))
    figures = {
        way: Figures(*(float(np.mean(column)) for column in zip(*rows, strict=True))) for way, rows in found.items()
    }
    return Table(
        name,
        sum(len(collection.memories) for collection in collections),
        sum(len(collection.questions) for collection in collections),
        figures,
    )


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
        sum(right[:5]) / len(relevant), sum(right) / len(relevant), float(any(right)), gain / ideal, sum(right[:5]) / 5
    )


# --- the sets ---------------------------------------------------------------------------------------------------------


def locomo(path: Path) -> Table:
    """LoCoMo, turn by turn."""
    return measure("LoCoMo turns", [_conversation(sample) for sample in json.loads(path.read_text("utf-8"))])


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


def labelled(path: Path) -> Table:
    """One of the sets in ``bench/data``: memories and queries, or queries about the ``memories_of`` another."""
    written = json.loads(path.read_text("utf-8"))
    holder = path.with_name(written["memories_of"]) if "memories_of" in written else path
    listed = json.loads(holder.read_text("utf-8"))["memories"]
    memories = [Memory(memory["id"], memory["text"], memory.get("session")) for memory in listed]
    questions = [Question(query["text"], frozenset(query["relevant"])) for query in written["queries"]]
    return measure(written["name"], [Collection(memories, questions)])


def documentation() -> Table:
    """Long texts: the first line of each docstring of the standard library asks for the rest of it."""
    found = ((module, title, rest) for module, title, rest, _ in _documented() if len(rest) >= 300)
    return measure("stdlib docstrings", [_collect(found)])


def code() -> Table:
    """Code: the first line of each docstring of the standard library asks for the function's source without it."""
    found = ((module, title, source) for module, title, _, source in _documented() if 0 < len(source) <= 6_000)
    return measure("stdlib code", [_collect(found)])


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


def tables(locomo_path: Path | None = None) -> Iterator[Table]:
    """The table of each set there is, as it is measured."""
    if locomo_path is not None:
        yield locomo(locomo_path)
    for path in sorted(DATA.glob("*.json")):
        yield labelled(path)
    yield documentation()
    yield code()


def main(arguments: Sequence[str] = ()) -> None:
    """Print every table."""
    given = arguments[0] if arguments else os.environ.get("HOLDFAST_LOCOMO")
    if given is None:
        print("Without LoCoMo: give the path of locomo10.json, or set HOLDFAST_LOCOMO.\n")
    for table in tables(None if given is None else Path(given)):
        print(table, end="\n\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
