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
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: Names what ``tokenize`` does, so that records encoded otherwise can be told: count it up with every change.
VERSION: Final = "terms-1"
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
_CHUNK: Final = re.compile(
    rf"(?P<run>[{_UNSPACED}]+)|(?P<word>(?:(?![{_UNSPACED}])[\w{_SIGNS}])+(?:['’.\-](?:(?![{_UNSPACED}])[\w{_SIGNS}])+)*)"
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
    return _CHUNK.findall(unicodedata.normalize("NFKC", text)[: _MOST_GROWTH * len(text)])


def _pairs(run: str) -> list[str]:
    """The pairs of adjacent characters of an unspaced run."""
    return [run[at : at + 2] for at in range(max(len(run) - 1, 1))]


def _hashes(text: str) -> list[int]:
    """The hashes of what ``tokenize`` gives. Those of words are kept; what is too long to be a word is not."""
    found: list[int] = []
    for run, word in _chunks(text):
        if word and len(word) <= _LONGEST_WORD:
            found += _kept_hashes(word)
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


@lru_cache(maxsize=65_536)
def _kept_hashes(word: str) -> tuple[int, ...]:
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

    row: npt.NDArray[np.int64]
    term: npt.NDArray[np.uint32]
    passage: npt.NDArray[np.uint8]
    times: npt.NDArray[np.uint8]
    passages: npt.NDArray[np.int64]
    """How many passages each row has."""


def encode(passages: Sequence[str]) -> bytes:
    """The terms of a record's passages (at most 256), six bytes for each distinct term of a passage."""
    entries: list[bytes] = []
    for number, text in enumerate(passages):
        counts = Counter(_hashes(text))
        # A passage without a word is noted all the same, so that the number of passages can be read back.
        entries += [_pack(term, number, min(count, _MOST)) for term, count in counts.items() or ((0, 0),)]
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


def decode(blobs: Sequence[bytes]) -> Terms:
    """What ``encode`` wrote, of many rows at once."""
    sizes = np.fromiter(map(len, blobs), np.int64, len(blobs)) // ENTRY.itemsize
    entries = np.frombuffer(b"".join(blobs), ENTRY)
    row = np.repeat(np.arange(len(blobs)), sizes)
    passages = np.ones(len(blobs), np.int64)
    np.maximum.at(passages, row, entries["passage"].astype(np.int64) + 1)
    said = entries["count"] > 0
    if not said.all():
        row, entries = row[said], entries[said]
    return Terms(row, entries["term"].copy(), entries["passage"].copy(), entries["count"].copy(), passages)


def query_terms(text: str) -> npt.NDArray[np.uint32]:
    """The distinct terms that a query is about, as ``encode`` would write them, in ascending order."""
    asked = set(_hashes(text))
    return np.array(sorted(asked - _COMMON or asked), np.uint32)


def forget() -> None:
    """Drop the words that were kept to save time."""
    _kept_hashes.cache_clear()


def _hash(token: str) -> int:
    return zlib.crc32(token.encode())


# --- words that shape a question rather than say what it is about ---------------------------------------------------
#
# In a small scope they pass for rare: nobody's memories contain "what" or "does". So a query is asked without them,
# unless it consists of nothing else. They count in records like any other word. A word that means something in another
# of these languages ("war", "son", "mine") is kept: a word too many costs little, the one that was meant costs the
# answer.

_ENGLISH: Final = """
a about after again all also am an and any anyone anything are around as at be because been before being both but by
can could did do does doing done during each either else ever every everyone everything few for from further had has
have having he her here hers him his how i if in into is it its just kind let many may me might mine more most much
must my neither no nor not now of off on once one ones only or other our ours out over own please same shall she
should so some someone something somewhere sort such than that the their theirs them then there these they this those
through to too under until up us very was we were what when where whether which while who whom whose why will with
would you your yours come feel give go goes going good got know like look need say take tell thing think want way went
"""
_GERMAN: Final = """
aber alle als am auf aus bei bin bis da damit dann das dass dein deine dem den denn der des dich dir doch du durch ein
eine einem einen einer eines er es euch euer für gibt habe haben hast hatte ich ihm ihn ihr ihre im ist ja jede jeder
kann kein keine können mein meine mich mir mit muss nach nicht noch nur ob oder ohne sehr sein seine sich sie sind so
über um und uns unser unter vom von vor wann warum was weil welche welchem welchen welcher welches wem wen wenn wer
werden wie wieder will wir wird wo woher wohin wurde zu zum zur
"""
_FRENCH: Final = """
ai alors au aussi aux avec avez avoir ce cela ces cet cette ceux combien comme comment dans de des donc du elle elles
en est est-ce et eu faire fait il ils je la le les leur leurs lui mais me mes moi mon ne nos notre nous on ou où par
parce pas plus pourquoi quand que quel quelle quelles quels qui quoi sa sans se ses si sont sur ta te tes toi ton tu
un une vos votre vous y était été être
"""
_SPANISH: Final = """
al algo así como con cuál cuáles cuándo cuánto cuánta cuántos cuántas cuando de del desde donde dónde durante el él
ella ellas ellos en entre era eran es esa ese eso esta está están estar estas este esto estos fue ha han hasta hay la
las le les lo los más me mi mis mucho muy nada ni nos nosotros o para pero por porque qué que quien quién se ser si sí
sin sobre son su sus también te tengo tiene tu tus un una uno unos unas y ya yo
"""
_ITALIAN_PORTUGUESE_DUTCH: Final = """
anche che chi ci cosa cui da dai dal dalla degli dei del della delle di dov'è e è gli ha hanno ho i il io lei loro lui
ma mia mio nei nel nella non per perché più quale quali quando quanto questa questo qui si sono su sua suo tra tuo un'
à ao aos até com como das do dos ela ele em essa esse está eu foi isso mais mas meu minha na nas não no nos o onde os
ou para pela pelo por porque qual quais quem se sem ser seu também tem um uma você aan al ben bij dan dat de deze die
dit doen door een en er haar had heb hebben heeft het hij hoe hun ik is je jij kan maar mijn naar niet nog om onze ook
op te tot uit van veel voor waar waarom wanneer waren wat we welk welke wie wij ze zich zij zijn zou
"""
_RUSSIAN: Final = """
а без был была было были быть в вам вас весь во вот все всё всех вы где да для до его ее её если есть еще ещё же за
здесь и из или им их к как какая какие какой какое когда кого кому кто ли меня мне мной мой моя мы на над нам нас не
него нее неё ней нет ни них но о об он она они оно от по под почему при с сам себя со так также там тебе тебя то
только тот ты у уже что чтобы чья эта эти это этот я
"""

#: Each is a word, a name or an abbreviation to somebody who asks in another of these languages ("AI", "Ben", "May",
#: "recycle bin"), or would be taken for one once its ending is cut off ("same" for "Sam", "done" for "Don").
_MEANT: Final = """
ai ben bin com come dan die dir done door era eu fine hay hun man may mia mine mit par pas same sin sole son ton war
"""
_COMMON: Final = frozenset(
    term
    for text in (_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN_PORTUGUESE_DUTCH, _RUSSIAN)
    for word in text.split()
    if word not in _MEANT.split()
    for term in _hashes(word)
)
