"""Compaction: the little that the row of an archived record keeps for recall, and what an index makes of it.

The row keeps one vector, of eight bits a dimension, and no terms: whoever reads it into an index counts the words of
the text that the row has. A row without terms is one that was compacted, since every other has at least one entry
for each of its passages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from holdfast.core.records import Encoding, Kind, MemoryType, Record
from holdfast.ports.feed import IndexRow
from holdfast.recall import terms
from holdfast.recall.passages import split_record, split_summary, summary_text

_NOTHING: Final = Encoding(None, None, b"")
#: The longest part of a vector becomes this; its length need not be kept, since every vector is of unit length.
_LARGEST: Final = 127


def compact(record: Record, encoding: Encoding) -> Encoding:
    """What stays of a record's encoding when it is archived: one vector, in the middle of all of them, and no terms.

    ``record`` is the record as it was encoded. Of an episode the vector is its summary's: nothing of a message is
    kept. Where the encoding is not of the passages that the episode has now (it was made by other rules), nothing
    is kept, and the vector is left to the next recall.
    """
    if not encoding.terms:
        return encoding
    passages = terms.count_passages(encoding.terms)
    kept = passages
    if record.kind is MemoryType.EPISODIC:
        if passages != len(split_record(record)):
            return _NOTHING
        kept = len(split_summary(record))
    if encoding.vectors is None:
        return _NOTHING
    vectors = np.frombuffer(encoding.vectors, np.float16).reshape(passages, -1)[:kept]
    middle = vectors.sum(0, dtype=np.float32)
    longest = np.abs(middle).max(initial=0)
    steps = np.rint(middle * (_LARGEST / longest)) if longest else middle
    return Encoding(encoding.model, steps.astype(np.int8).tobytes(), b"")


def expand(kind: Kind, rows: Iterable[IndexRow]) -> list[IndexRow]:
    """Rows as an index takes them in: those of archived records with terms, and a vector like any other."""
    expanded = list(rows)
    places = [place for place, row in enumerate(expanded) if not row.terms]
    if not places:
        return expanded
    some = [expanded[place] for place in places]
    words = terms.encode_each([_text(kind, row) for row in some])
    made = zip(places, some, words, _vectors([row.vectors for row in some]), strict=True)
    for place, row, said, vector in made:
        expanded[place] = row._replace(vectors=vector, terms=said)
    return expanded


def _text(kind: Kind, row: IndexRow) -> str:
    text = row.text or ""
    return summary_text(text, json.loads(row.metadata)) if kind.name is MemoryType.EPISODIC else text


def _vectors(kept: Sequence[bytes | None]) -> list[bytes | None]:
    """Vectors of eight bits as those of sixteen, of unit length. All of one length are made at once."""
    made: list[bytes | None] = [None] * len(kept)
    for length in {len(one) for one in kept if one}:
        places = [place for place, one in enumerate(kept) if one is not None and len(one) == length]
        steps = np.frombuffer(b"".join(kept[place] or b"" for place in places), np.int8).reshape(-1, length)
        vectors = steps.astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        vectors /= np.where(lengths > 0, lengths, 1)[:, np.newaxis]
        for place, vector in zip(places, vectors.astype(np.float16), strict=True):
            made[place] = vector.tobytes()
    return made
