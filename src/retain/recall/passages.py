"""Passages: the units of a text that are compared with a query.

One vector of a long text is the average of everything in it and close to nothing in particular, so a long text is
embedded piece by piece and is as close to a query as its closest piece. Words are counted over the whole record all the
same: there, measured, pieces were no better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from retain.core.records import Record
from retain.core.types import MemoryType

#: About how many characters a piece has: a paragraph's worth. Half as many or twice as many did no better on any shape.
TARGET: Final = 400
#: Up to here a text is one passage; cutting it would leave two scraps.
_WHOLE: Final = TARGET * 3 // 2
MAX_PASSAGES: Final = 64

_SENTENCE_END: Final = re.compile(r"(?<=[.!?…])(?=\s)|(?<=[。！？])")
_LINE_END: Final = re.compile(r"(?<=\n)")


def of_record(record: Record) -> list[str]:
    """The passages of a record: of its content and, while an episode has its messages, of each of those.

    A structured document is taken as its fields and values, without the punctuation of JSON.
    """
    if record.kind is MemoryType.STRUCTURED and "document" in record.metadata:
        return split("\n".join(_fields(record.metadata["document"], "")) or record.content)
    if record.kind is not MemoryType.EPISODIC or not record.body:
        return split(record.content)
    said = [str(item.get("content") or "") for part in ("steps", "messages") for item in record.body.get(part, ())]
    said = [text.strip() for text in said if text.strip()]
    run = max(1, -(-len(said) // (MAX_PASSAGES - 1)))  # of very many, neighbours share a passage
    joined = ["\n".join(said[start : start + run]) for start in range(0, len(said), run)]
    return ["\n".join(filter(None, (record.body.get("task"), record.content))), *joined]


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


def split(text: str) -> list[str]:
    """The passages of a text, in order: one for a short text, at most ``MAX_PASSAGES`` for any.

    They are cut at the ends of lines where possible, else of sentences, else of words, and together are the text (but
    for white space around them). A text longer than all of them at their usual size is cut into longer ones.
    """
    stripped = text.strip()
    if len(stripped) <= _WHOLE:
        return [stripped]
    size = len(stripped) / min(MAX_PASSAGES, round(len(stripped) / TARGET))
    pieces: list[str] = []
    piece = ""
    for atom in _atoms(stripped, int(size)):
        # The last piece takes whatever is left, so that there are never more than asked for.
        if piece and len(piece) + len(atom) / 2 > size and len(pieces) < MAX_PASSAGES - 1:
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
