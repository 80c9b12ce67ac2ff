"""Words: how text becomes the terms that BM25 counts, and how a record's own row stores them.

A term is a stable 32-bit hash of a normalised word. Nothing else of the text is kept, and it lies in the record's row,
so that erasing the row erases it.
"""

from __future__ import annotations

import re
import struct
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

#: Names what ``tokenize`` does and how vectors are stored: what was encoded otherwise can be told, and is encoded anew.
#: Count it up with every change.
VERSION: Final = "terms-1/steps-1"
#: One term of one passage. Without a header, so that the blobs of many rows can be joined and read as one array.
ENTRY: Final = np.dtype([("term", "<u4"), ("passage", "u1"), ("count", "u1")])
_pack: Final = struct.Struct("<IBB").pack
_MOST: Final = 255
#: Bits of a term, and one more for the mark of a text without a word.
_WIDTH: Final = 33
_NO_WORD: Final = 1 << 32
_LONGEST_WORD: Final = 40
#: Some characters stand for many (one of Arabic for eighteen); of a text of nothing else, a part is enough.
_MOST_GROWTH: Final = 3

# Combining signs are no "word characters" to ``re``, yet Indic, Hebrew and Arabic words are written with them.
_SIGNS: Final = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u0900-\u0963\u0966-\u0d7f\u0d80-\u0dff\u0f71-\u0f84"
)
# Scripts without spaces between words (Thai, Lao, Myanmar, Khmer, kana, Han), and Hangul, whose words carry endings.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_CHUNK: Final = re.compile(r"\w+(?:['.\-]\w+)*", re.ASCII)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINTS: Final = re.compile(r"['’._\-]+")
_CLITIC: Final = re.compile(r"['’](?:s|t|d|m|re|ve|ll)$")
_ELISION: Final = re.compile(r"^(?:[a-z]|qu)['’](?=\w)")
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")


def tokenize(text: str) -> list[str]:
    """The terms of a text, in order and as often as they occur.

    Words and numbers, whatever the case, width or Latin accents; identifiers whole and in part (``userName`` gives
    ``username``, ``user``, ``name``); English inflections cut back; unspaced scripts as pairs of characters.
    """
    found: list[str] = []
    for run, word in _chunks(text):
        found += _split_word(word) if word else _pairs(run)
    return found


def _chunks(text: str) -> list[tuple[str, str]]:
    """The text in pieces: either a run of an unspaced script, or a word with whatever holds its parts together."""
    if text.isascii():  # the same, seen faster
        return [("", word) for word in _ASCII_CHUNK.findall(text)]
    return _chunk().findall(unicodedata.normalize("NFKC", text)[: _MOST_GROWTH * len(text)])


@cache  # made when a text first needs it: that takes longer than to load most of this package
def _chunk() -> re.Pattern[str]:
    part = rf"(?:(?![{_UNSPACED}])[\w{_SIGNS}])+"
    return re.compile(rf"(?P<run>[{_UNSPACED}]+)|(?P<word>{part}(?:['’.\-]{part})*)")


def _pairs(run: str) -> list[str]:
    """The pairs of adjacent characters of an unspaced run."""
    return [run[at : at + 2] for at in range(max(len(run) - 1, 1))]


def _hashes(text: str) -> list[int]:
    """The hashes of what ``tokenize`` gives. Those of words are kept; what is too long to be a word is not."""
    if text.isascii():  # the same without a step of Python for each word
        words = _ASCII_CHUNK.findall(text)
        if max(map(len, words), default=0) <= _LONGEST_WORD:
            return list(chain.from_iterable(map(_word_hashes, words)))
    found: list[int] = []
    for run, word in _chunks(text):
        if word and len(word) <= _LONGEST_WORD:
            found += _word_hashes(word)
        else:
            found += map(_hash, _split_word(word) if word else _pairs(run))
    return found


def _split_word(chunk: str) -> tuple[str, ...]:
    folded = _fold(chunk)
    if folded.isalpha() and (chunk.islower() or chunk[1:].islower()):
        return (_stem(folded),)
    bare = _ELISION.sub("", _CLITIC.sub("", folded))
    if bare != folded:
        chunk = folded = bare
    parts = [_stem(_fold(part)) for piece in _JOINTS.split(chunk) for part in _HUMP.split(piece) if part]
    if len(parts) < 2:
        return tuple(parts)
    return (*parts, _stem(folded.strip("._-").replace("-", "")))


_Word = TypeVar("_Word")
_clear_kept: Final[list[Callable[[], None]]] = []


def keep_words(function: Callable[[str], _Word]) -> Callable[[str], _Word]:
    """The same function, which keeps what it gives for words until ``forget`` is called."""
    kept = lru_cache(maxsize=65_536)(function)
    _clear_kept.append(kept.cache_clear)
    return kept


@keep_words
def _word_hashes(word: str) -> tuple[int, ...]:
    return tuple(map(_hash, _split_word(word)))


def _fold(word: str) -> str:
    """Caseless, and without the accents that people leave out when they type a query."""
    folded = word.casefold()
    if folded.isascii():
        return folded
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", folded)))


def _stem(word: str) -> str:
    """One form for an English word's plural, -ed and -ing. Other words lose at most an ending, always the same."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("ses", "xes", "zes")) and len(word) > 4:
        word = word[:-2]
    elif word.endswith("s") and word[-2] not in "su":
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 3 and rest[-1] != "e" and any(letter in "aeiouy" for letter in rest):
            word = rest[:-1] if rest[-1] == rest[-2] and rest[-1] not in "lsz" and len(rest) > 3 else rest
            break
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


# --- storing them ---------------------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """The terms of several rows' passages, one entry per distinct term of a passage, rows in the order given."""

    term: npt.NDArray[np.uint32]
    times: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    """The first entry of each passage, counted through all rows."""
    passages: npt.NDArray[np.int64]
    """How many passages each row has."""
    words: npt.NDArray[np.float32]
    """How many words each passage has."""

    @property
    def passage(self) -> npt.NDArray[np.int64]:
        """Which passage each entry is of."""
        return np.arange(len(self.starts)).repeat(np.diff(self.starts, append=len(self.term)))


def encode(passages: Sequence[str]) -> bytes:
    """The terms of a record's passages (at most 256), six bytes for each distinct term of a passage."""
    entries: list[bytes] = []
    for number, text in enumerate(passages):
        hashes = _hashes(text)
        counts = dict.fromkeys(hashes, 1)
        if len(counts) < len(hashes):  # which is not so of most short texts
            counts = {term: min(count, _MOST) for term, count in Counter(hashes).items()}
        # A passage without a word is noted all the same, so that the number of passages can be read back.
        counts = counts or {0: 0}
        entries += map(_pack, counts, repeat(number), counts.values())
    return b"".join(entries)


def count_passages(blob: bytes) -> int:
    """How many passages the terms are of: entries are in the order of passages."""
    return blob[-2] + 1


def encode_each(texts: Sequence[str]) -> list[bytes]:
    """What ``encode`` gives for each text as a record's only passage, but for the order of terms: for many at once."""
    found = [_hashes(text) or [_NO_WORD] for text in texts]
    sizes = np.fromiter(map(len, found), np.int64, len(found))
    hashes = np.fromiter(chain.from_iterable(found), np.int64, int(sizes.sum()))
    each, times = np.unique(np.repeat(np.arange(len(found)), sizes) << _WIDTH | hashes, return_counts=True)
    entries = np.zeros(len(each), ENTRY)
    said = each & (1 << _WIDTH) - 1
    entries["term"] = np.where(said == _NO_WORD, 0, said)
    entries["count"] = np.where(said == _NO_WORD, 0, np.minimum(times, _MOST))
    ends = (np.searchsorted(each, np.arange(len(found) + 1) << _WIDTH) * ENTRY.itemsize).tolist()
    blob = entries.tobytes()
    return [blob[start:end] for start, end in pairwise(ends)]


def decode(joined: bytes, sizes: npt.NDArray[np.int64] | None = None) -> Terms:
    """What ``encode`` wrote, of many rows at once: joined, with the size of each (without sizes, it is one row)."""
    entries = np.frombuffer(joined, ENTRY)
    times = entries["count"].copy()
    if (sizes is None or len(sizes) == 1) and len(entries) and not joined[-2] and times.all():
        words = np.array([times.sum()], np.float32)  # one short text, as most that are added: seen with fewer steps
        return Terms(entries["term"].copy(), times, np.zeros(1, np.int64), np.ones(1, np.int64), words)
    counts = np.array([len(entries)]) if sizes is None else sizes // ENTRY.itemsize
    inner, ends = entries["passage"], counts.cumsum()
    passages = inner[ends - 1].astype(np.int64) + 1
    starts = ends - counts
    if passages.sum() > len(passages):
        begins = np.ones(len(inner), bool)
        np.not_equal(inner[1:], inner[:-1], out=begins[1:])
        begins[starts] = True
        starts = begins.nonzero()[0]
    words = np.diff(starts, append=len(times)).astype(np.float32)
    if len(other := (times != 1).nonzero()[0]):  # most words of a text are said once
        words += np.bincount(starts.searchsorted(other, "right") - 1, times[other] - 1.0, len(starts))
    if not times.all():
        said = times > 0
        starts = (said.cumsum() - said)[starts]
        entries, times = entries[said], times[said]
    return Terms(entries["term"].copy(), times, starts, passages, words)


def read_words(name: str) -> list[str]:
    """The words of a list that lies beside this module; its comments begin with ``#``."""
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    return [word for line in lines if not line.startswith("#") for word in line.split()]


def query_terms(text: str) -> npt.NDArray[np.uint32]:
    """The distinct terms that a query is about, as ``encode`` would write them, in ascending order."""
    return _to_query(set(_hashes(text)))


def query_terms_of(encoded: bytes) -> npt.NDArray[np.uint32]:
    """The same of a text that ``encode`` has written as the only passage."""
    entries = np.frombuffer(encoded, ENTRY)
    return _to_query(set(entries["term"][entries["count"] > 0].tolist()))


def _to_query(asked: set[int]) -> npt.NDArray[np.uint32]:
    return np.array(sorted(asked - _common_terms() or asked), np.uint32)


@cache
def _common_terms() -> frozenset[int]:
    """The terms of words that shape a question rather than say what it is about."""
    return frozenset(chain.from_iterable(map(_word_hashes, read_words("question_words.txt"))))


def forget() -> None:
    """Drop the words that were kept to save time."""
    for clear in _clear_kept:
        clear()


def _hash(token: str) -> int:
    return zlib.crc32(token.encode())
