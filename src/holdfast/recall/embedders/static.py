"""The default embedder: the static token vectors that the ``wordllama`` wheel carries, read straight from its files.

``wordllama`` itself is never imported (it would configure logging and look for downloads): only its two data files are
used. The weights stay in the file as float16, mapped into memory, so that loading costs the tokenizer alone and
processes on one machine share the pages. The compiled tokenizer takes longer to load than most commands take to run, so
ordinary texts are cut in the same way without it, by ``Pieces``.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import secrets
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.clock import watch
from holdfast.core.errors import EmbedderError
from holdfast.ports.feed import Vectors
from holdfast.recall.embedders import clean_text
from holdfast.recall.terms import keep_words

MAX_CHARS = 65_536
"""How much of a text is embedded; the rest of a longer one does not count."""

_DIM = 256
_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_TENSOR = "embedding.weight"
#: The checksum of the tokenizer's file that ``Pieces`` was compared with.
_KNOWN: Final = 0x3FAF5800
_SPACE: Final = "▁"
#: Longer parts of words are left to the compiled tokenizer, whose effort grows more slowly with them.
_LONGEST: Final = 48
#: The parts of a word that are cut by themselves: no token has a digit and anything else.
_PARTS: Final = re.compile("[0-9]|[^0-9]+")
_NO_UNION: Final = (1 << 32, 0, 0)
#: Texts with any of these mean something to the tokenizer that is not said here.
_MARKS: Final = ("<s>", "</s>", "<unk>")


class _Model(NamedTuple):
    tokens: Callable[[str], list[int]]
    table: npt.NDArray[np.float16]
    rows: Vectors
    """The table as float32, filled in as tokens are met; what is not met takes no memory."""
    met: bytearray
    """Which tokens were met, 0 or 1 for each."""

    def rows_of(self, tokens: list[int]) -> Vectors:
        """The vectors of tokens."""
        if not all(map(self.met.__getitem__, tokens)):  # for a few tokens faster than an array says it
            self.rows[tokens] = self.table[tokens]
            for token in tokens:
                self.met[token] = 1
        rows: Vectors = self.rows.take(tokens, 0)
        return rows


class StaticEmbedder:
    """The normalised mean of a text's token vectors: 256 dimensions, tens of microseconds a text, no network.

    Reads at most the first ``MAX_CHARS`` characters of a text, without the white space around it. Nothing is loaded
    before the first ``embed``; any number of threads may call it, and it starts none. No text is kept but words, which
    ``terms.forget`` drops: the tokenizer's own cache is off.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: _Model | None = None

    @property
    def id(self) -> str:
        return "wordllama-l2-supercat-256"

    @property
    def dim(self) -> int:
        return _DIM

    def embed(self, texts: Sequence[str]) -> Vectors:
        model = self._model or self._load()
        rows = np.zeros((len(texts), _DIM), np.float32)
        for row, text in zip(rows, watch(texts), strict=True):
            if ids := model.tokens(text):
                np.add.reduce(model.rows_of(ids), 0, out=row)
                row *= 1 / (math.sqrt(np.dot(row, row)) or 1)  # noqa: PLW2901  (in place: ``row`` is a view)
        return rows

    def _load(self) -> _Model:
        with self._lock:
            if self._model is None:
                table, tokens = _read_bundled(_package_folder())
                rows = np.zeros(table.shape, np.float32)
                self._model = _Model(tokens, table, rows, bytearray(len(table)))
            return self._model


class _Tokens:
    """A function from a text to its token ids, all of them below ``vocabulary``, without begin-of-text marks."""

    def __init__(self, path: Path, vocabulary: int) -> None:
        self._path = path
        self._vocabulary = vocabulary
        self._pieces = read_pieces(path, vocabulary)
        self._compiled: Callable[[str], list[int]] | None = None
        self._lock = threading.Lock()

    def __call__(self, text: str) -> list[int]:
        cleaned = clean_text(text, MAX_CHARS)
        if not cleaned:
            return []
        ids = None if self._pieces is None else self._pieces.cut(cleaned)
        return (self._compiled or self._load())(cleaned) if ids is None else ids

    def _load(self) -> Callable[[str], list[int]]:
        with self._lock:
            if self._compiled is None:
                self._compiled = _read_tokenizer(self._path, self._vocabulary)
            return self._compiled


@cache
def _read_bundled(folder: Path) -> tuple[npt.NDArray[np.float16], _Tokens]:
    """The token vectors and the tokenizer of a folder: one of each for all embedders of a process."""
    table = _read_table(folder / _WEIGHTS)
    return table, _Tokens(folder / _TOKENIZER, len(table))


@cache
def _bundled_tokens() -> _Tokens:
    return _read_bundled(_package_folder())[1]


#: Of so many lines a process remembers how many tokens they have.
_MOST_COUNTS: Final = 20_000


class TokenCounter:
    """Counts the tokens of texts by the tokenizer of the bundled weights, whichever embedder is in use.

    No token spans the end of a line, so each line is counted once, however many texts it is part of. A counter keeps
    the lines that it has met: it is for one use. From one use to the next a process keeps counts alone, by fingerprints
    that nothing can be read from.
    """

    _counts: ClassVar[dict[bytes, int]] = {}
    _key: ClassVar = secrets.token_bytes(16)

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        first, *others = text.split("\n")
        return (_count_line(first) if first else 0) + sum(map(self._count_next, others))

    def _count_next(self, line: str) -> int:
        """The tokens of a line that is not the first, with the end of the one before it."""
        known = self._lines.get(line)
        if known is None:
            name = blake2b(line.encode(errors="surrogatepass"), digest_size=16, key=self._key).digest()
            known = self._counts.get(name)
            if known is None:
                known = _count_line(f"x\n{line}\nx") - 3
                if "<" in line:
                    known += sum(map(line.count, _MARKS))  # what follows such a mark may have a token more
                if len(self._counts) >= _MOST_COUNTS:
                    self._counts.clear()
                self._counts[name] = known
            self._lines[line] = known
        return known


def _count_line(text: str) -> int:
    tokens = _bundled_tokens()
    if len(text) <= MAX_CHARS:
        return len(tokens(text))
    return sum(len(tokens(text[start : start + MAX_CHARS])) for start in range(0, len(text), MAX_CHARS))


def _package_folder() -> Path:
    spec = importlib.util.find_spec("wordllama")  # finds the package without running it
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderError("the static embedder needs the files of wordllama: pip install 'wordllama>=0.4'")
    return Path(spec.submodule_search_locations[0])


def _read_table(path: Path) -> npt.NDArray[np.float16]:
    """The token vectors of a safetensors file: a length, a JSON header, then the numbers."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            entry = json.loads(file.read(length))[_TENSOR]
        rows, columns = entry["shape"]
        if (entry["dtype"], columns) != ("F16", _DIM):
            raise EmbedderError(f"{path} holds {columns} {entry['dtype']} numbers a token; expected {_DIM} F16")
        return np.asarray(np.memmap(path, "<f2", "r", 8 + length + entry["data_offsets"][0], (rows, columns)))
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        raise EmbedderError(
            f"cannot read the weights {path} ({error}); reinstall them: pip install --force-reinstall wordllama"
        ) from error


def _read_tokenizer(path: Path, vocabulary: int) -> Callable[[str], list[int]]:
    """The compiled tokenizer: from a cleaned text to its token ids.

    Texts are encoded one by one on purpose: the library's batch call starts a thread pool that warns on stderr when the
    host program forks, and one thread already encodes faster than records can be stored.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415  (only who has more than a few texts should pay for it)

    try:
        tokenizer: Any = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise EmbedderError(
            f"cannot read the tokenizer {path} ({error}); reinstall it: pip install --force-reinstall wordllama"
        ) from error
    if tokenizer.get_vocab_size() > vocabulary:
        raise EmbedderError(f"{path} has {tokenizer.get_vocab_size()} tokens, but there are {vocabulary} vectors")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if resize_cache := getattr(tokenizer.model, "_resize_cache", None):
        resize_cache(0)  # the cache would keep whole texts in memory after they were erased, and saves no time
    encode = tokenizer.encode

    def tokens(text: str) -> list[int]:
        ids: list[int] = encode(text, add_special_tokens=False).ids
        return ids

    return tokens


class Pieces:
    """Cuts texts into the tokens of a vocabulary, as the tokenizer of the bundled weights does.

    That one merges the neighbours whose union comes first in its vocabulary, and no token spans two words. So the
    vocabulary alone is enough, and is read in a quarter of the time; and what is known of a word need not be found out
    again, which takes a tenth of the time. Whatever is out of the ordinary is left to the compiled one; a test compares
    the two.
    """

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._ids = vocabulary
        self.cut_word = keep_words(self._cut_word)
        self._cut_part = keep_words(self.cut_part)

    def cut(self, text: str) -> list[int] | None:
        """The ids of a text's tokens; ``None`` where the compiled tokenizer has to be asked."""
        if "  " in text or _SPACE in text or ("<" in text and any(mark in text for mark in _MARKS)):
            return None
        ids: list[int] = []
        find, cut_word = self._ids.get, self.cut_word
        for word in text.split(" "):
            spaced = _SPACE + word
            known = find(spaced)
            if known is not None:
                ids.append(known)  # a word that is in the vocabulary is one token
            elif (cut := cut_word(spaced)) is not None:
                ids += cut
            else:
                return None
        return ids

    def _cut_word(self, word: str) -> tuple[int, ...] | None:
        """The ids of a word's tokens: as a tuple, which the garbage collector need not keep in view. A part of a word
        is in many words, such as numbers.
        """
        parts = _PARTS.findall(word)
        if max(map(len, parts)) > _LONGEST:
            return None
        return tuple(chain.from_iterable(map(self._cut_part, parts)))

    def cut_part(self, part: str) -> tuple[int, ...]:
        """The ids of the tokens of a part of a word."""
        parts = [one for char in part for one in ([char] if char in self._ids else _bytes_of(char))]
        unions = list(map(self._union, parts, parts[1:]))
        while unions and (first := min(unions)) is not _NO_UNION:
            place = unions.index(first)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            del unions[place]
            for at in range(max(place - 1, 0), min(place + 1, len(unions))):  # those that the new token is part of
                unions[at] = self._union(parts[at], parts[at + 1])
        return tuple(map(self._ids.__getitem__, parts))

    def _union(self, left: str, right: str) -> tuple[int, int, int]:
        """How soon two neighbours are merged: smaller ones first."""
        ids = self._ids
        union = ids.get(left + right)
        return _NO_UNION if union is None else (union, ids[left], ids[right])


def read_pieces(path: Path, most: int) -> Pieces | None:
    """The vocabulary of a tokenizer's file; ``None`` where it is not the one that is known to work so, is not there, or
    has more than so many tokens.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return None  # whoever loads the tokenizer says what is wrong
    if zlib.crc32(data) != _KNOWN:
        return None
    start = data.index(b"{", data.index(b'"vocab"'))
    end = data.index(b"}", data.rindex(b":", start, data.index(b'"merges"'))) + 1
    vocabulary: dict[str, int] = json.loads(data[start:end])
    return Pieces(vocabulary) if len(vocabulary) <= most else None


def _bytes_of(char: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in char.encode()]
