"""The first texts of a process, cut into tokens without the compiled tokenizer, which takes longer to load than most
commands take to run.

The tokenizer of the bundled weights merges the neighbours whose union comes first in its vocabulary, and no token spans
two words. So its vocabulary alone is enough to do as it does, and that is read in a quarter of the time. Whatever is
out of the ordinary is left to the compiled one; a test holds the two against each other.
"""

from __future__ import annotations

import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Final

#: The file of which the above was found to be true.
_KNOWN: Final = 0x3FAF5800
_SPACE: Final = "▁"
#: Longer words are left to the compiled tokenizer, whose effort grows more slowly with them.
_LONGEST: Final = 48
#: Texts with any of these mean something to the tokenizer that is not said here.
_LEFT_OUT: Final = ("<s>", "</s>", "<unk>", "  ", _SPACE)


class Pieces:
    """Cuts texts into the tokens of a vocabulary."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._ids = vocabulary

    def cut(self, text: str) -> list[int] | None:
        """The ids of a text's tokens; ``None`` where the compiled tokenizer has to be asked."""
        if any(mark in text for mark in _LEFT_OUT):
            return None
        ids: list[int] = []
        for word in text.split(" "):
            if len(word) > _LONGEST:
                return None
            ids += self._cut_word(_SPACE + word)
        return ids

    def _cut_word(self, word: str) -> list[int]:
        ids = self._ids
        parts = [part for char in word for part in ([char] if char in ids else _bytes_of(char))]
        while len(parts) > 1:
            unions = [
                (union, ids[left], ids[right], place)
                for place, (left, right) in enumerate(pairwise(parts))
                if (union := ids.get(left + right)) is not None
            ]
            if not unions:
                break
            place = min(unions)[3]
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return [ids[part] for part in parts]


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
