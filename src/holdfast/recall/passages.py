"""Passages: the units of a text that are compared with a query.

One vector of a long text is the average of everything in it and close to nothing in particular, so a long text is
embedded piece by piece and is as close to a query as its closest piece. Words are counted over the whole record all the
same: there, measured, pieces were no better.

Of one record the first ``INDEXED_CHARS`` characters are embedded and indexed, so that no text, however long and of
whatever shape, costs more than a part of a second. All of it is kept; what comes after that is not found by its words.

An episode's summary comes before its messages and is cut as if there were none, so that archiving it, which leaves the
summary alone, is keeping the first of its passages.

The row of an archived record keeps one vector and no terms. Whoever reads it into an index
counts the words of the text that the row has. A row without terms is an archived one: every other row has at least one
entry for each of its passages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from holdfast.core.records import Encoding, Kind, MemoryType, Record
from holdfast.ports.feed import IndexRow
from holdfast.recall import terms
from holdfast.recall.vectors import read_steps, to_steps, units

#: About how many characters a piece has: a paragraph's worth. Half as many or twice as many did no better on any shape.
TARGET: Final = 400
MAX_PASSAGES: Final = 64
#: How much of one record is embedded and indexed: about ten thousand words.
INDEXED_CHARS: Final = 65_536
#: A summary is dense, and is compared with whole episodes: there, pieces of the usual size did worse than longer ones.
SUMMARY_TARGET: Final = 1_000
#: However long a given summary is, half of the passages are left for messages.
MAX_SUMMARY_PASSAGES: Final = MAX_PASSAGES // 2

_SENTENCE_END: Final = re.compile(r"(?<=[.!?…])(?=\s)|(?<=[。！？])")
_LINE_END: Final = re.compile(r"(?<=\n)")
#: Where a document's metadata say by which texts it is found, and that it is found by none.
SEARCH_TEXT: Final = "search_text"
IS_SEARCHED: Final = "is_searched"
_SAID: Final = ("steps", "messages")


def split_record(record: Record) -> list[str]:
    """The passages of a record: of its content and, while an episode has its messages, of each of those.

    A structured document is taken as its fields and values, without the punctuation of JSON; or as the texts that
    were chosen to find it by. Without any of those it has one passage, of nothing.
    """
    if record.kind is MemoryType.STRUCTURED and "document" in record.metadata:
        chosen = record.metadata.get(SEARCH_TEXT)
        if isinstance(chosen, list):
            texts = (split(_cut_to_index(text)) for text in _take_first(map(str, chosen)))
            return [passage for passages in texts for passage in passages][:MAX_PASSAGES] or [""]
        if record.metadata.get(IS_SEARCHED) is False:
            return [""]
        return split("\n".join(_take_first(_fields(record.metadata["document"], ""))) or _cut_to_index(record.content))
    if record.kind is not MemoryType.EPISODIC:
        return split(_cut_to_index(record.content))
    summary = split_summary(record)
    items = (item for part in _SAID for item in (record.body or {}).get(part, ()))
    said = [text for item in _take_first(str(item.get("content") or "") for item in items) if (text := item.strip())]
    run = max(1, -(-len(said) // (MAX_PASSAGES - len(summary))))  # of very many, neighbours share a passage
    return [*summary, *("\n".join(said[start : start + run]) for start in range(0, len(said), run))]


def split_summary(record: Record) -> list[str]:
    """The passages of an episode's task and summary: the first ones of the episode, and all of an archived one.

    They depend on its content and its metadata alone.
    """
    text = summary_text(record.content, record.metadata)
    return split(text, target=SUMMARY_TARGET, most=MAX_SUMMARY_PASSAGES)


def _cut_to_index(text: str) -> str:
    """As much of a text as is indexed, to the end of a word if there is one near."""
    text = text.lstrip()
    if len(text) <= INDEXED_CHARS:
        return text
    end = text.rfind(" ", INDEXED_CHARS - TARGET, INDEXED_CHARS)
    return text[: end if end > 0 else INDEXED_CHARS]


def _take_first(texts: Iterable[str]) -> Iterator[str]:
    """Texts until they are as much as is indexed; no more of them are looked at."""
    room = INDEXED_CHARS
    for text in texts:
        yield text[:room]
        room -= len(text) + 1
        if room <= 0:
            return


def summary_text(content: str, metadata: Mapping[str, Any]) -> str:
    """An episode's task and summary in one, from its content and its metadata: as much of it as is indexed."""
    task = metadata.get("task")
    return _cut_to_index(content if not isinstance(task, str) or content.startswith(task) else f"{task}\n{content}")


def _fields(value: object, name: str) -> Iterator[str]:
    """A JSON value as lines of names and values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(inner, f"{name} {key}".strip())
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner, name)
    elif value is not None:
        yield f"{name}: {value}"


def split(text: str, *, target: int = TARGET, most: int = MAX_PASSAGES) -> list[str]:
    """The passages of a text, in order: one for a short text, about ``target`` characters each, at most ``most``.

    They are cut at the ends of lines where possible, else of sentences, else of words, and together are the text (but
    for white space around them). A text longer than all of them at their usual size is cut into longer ones.
    """
    stripped = text.strip()
    if len(stripped) <= target * 3 // 2:  # cutting it would leave two scraps
        return [stripped]
    size = len(stripped) / min(most, round(len(stripped) / target))
    pieces: list[str] = []
    piece = ""
    for atom in _atoms(stripped, int(size)):
        # The last piece takes whatever is left, so that there are never more than asked for.
        if piece and len(piece) + len(atom) / 2 > size and len(pieces) < most - 1:
            pieces.append(piece)
            piece = ""
        piece += atom
    if pieces and len(piece) < size / 3:
        pieces[-1] += piece
    else:
        pieces.append(piece)
    return [clean for piece in pieces if (clean := piece.strip())]


def _atoms(text: str, size: int) -> Iterator[str]:
    """Pieces of the text of at most ``size`` characters, that together are the text."""
    for line in _LINE_END.split(text):
        for sentence in [line] if len(line) <= size else _SENTENCE_END.split(line):
            rest = sentence
            while len(rest) > size:
                space = rest.rfind(" ", size // 2, size)
                cut = space if space > 0 else size
                yield rest[:cut]
                rest = rest[cut:]
            yield rest


_NOTHING: Final = Encoding(None, None, b"")


def compact(record: Record | None, encoding: Encoding) -> Encoding:
    """What stays of a record's encoding when it is archived: one vector, in the middle of all of them, and no terms.

    ``record`` is the record as it was encoded, or ``None`` if it is no episode. Of an episode the vector is its
    summary's: nothing of a message is
    kept. Where the encoding is not of the passages that the episode has now (it was made by other rules), nothing
    is kept, and the vector is left to the next recall.
    """
    if not encoding.terms:
        return encoding
    passages = terms.count_passages(encoding.terms)
    kept = passages
    if record is not None and record.kind is MemoryType.EPISODIC:
        if passages != len(split_record(record)):
            return _NOTHING
        kept = len(split_summary(record))
    if encoding.vectors is None:
        return _NOTHING
    if passages == 1:
        return Encoding(encoding.model, encoding.vectors, b"")
    vectors = units(read_steps(encoding.vectors, passages)[:kept])
    return Encoding(encoding.model, to_steps(vectors.sum(0)).tobytes(), b"")


def expand(kind: Kind, rows: Iterable[IndexRow]) -> list[IndexRow]:
    """Rows as an index takes them in: those of archived records with terms."""
    expanded = list(rows)
    places = [place for place, row in enumerate(expanded) if not row.terms]
    if not places:
        return expanded
    some = [expanded[place] for place in places]
    words = terms.encode_each([_text(kind, row) for row in some])
    for place, row, said in zip(places, some, words, strict=True):
        expanded[place] = row._replace(terms=said)
    return expanded


def _text(kind: Kind, row: IndexRow) -> str:
    text = row.text or ""
    return summary_text(text, json.loads(row.metadata)) if kind.name is MemoryType.EPISODIC else text
