"""When two texts are the same text: one rule, for adding, for recall and for what is kept out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

#: What may end a sentence or not without changing what it says, in any script. A percent sign or a bracket is no
#: such mark.
_CLOSING: Final = (
    " .,;:!?\u203d\u3001\u3002\xb7\u0589\u05c3"  # Latin, Chinese, Greek, Armenian, Hebrew
    "\u060c\u061b\u061f\u06d4\u0700\u0701\u0702"  # Arabic, Urdu, Syriac
    "\u0964\u0965\u0f0d\u0f0e\u104a\u104b\u17d4\u17d5"  # Indian, Tibetan, Burmese, Khmer
    "\u1361\u1362\u1363\u1364\u1365\u1366\u1367\u1368\u166e\u1802\u1803"  # Ethiopic, Cree, Mongolian
)

#: Control characters that are no white space, and what Unicode lets a reader ignore: soft hyphens, joiners, marks of
#: direction, selectors of variants, tags. A pattern, which takes long to compile: few processes need it.
_UNSEEN: Final = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def normalize_text(text: str) -> str:
    """A text as it is compared: Unicode NFKC, case folded, without what cannot be seen, white space collapsed, closing
    punctuation dropped.

    Of a text of nothing but closing punctuation, that is kept.
    """
    seen = text if text.isascii() and text.isprintable() else re.sub(_UNSEEN, "", text)
    folded = seen.lower() if seen.isascii() else _fold(seen)
    plain = " ".join(folded.split())
    return plain.rstrip(_CLOSING) or plain


def _fold(text: str) -> str:
    """A text without what can be seen in one form only. It is taken apart before its case is folded, since the order of
    marks depends on that, and what is folded may be something that cannot be seen.
    """
    folded = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFKC", re.sub(_UNSEEN, "", unicodedata.normalize("NFKD", folded)))


def hash_text(text: str) -> int:
    """A number of 64 bits (signed, as stores keep it) that equal texts share, and others practically never."""
    digest = blake2b(normalize_text(text).encode(), digest_size=8, person=b"holdfast text").digest()
    return int.from_bytes(digest, "big", signed=True)


def texts_within(body: Mapping[str, Any] | None) -> Iterator[str]:
    """The texts of an episode beside its summary: its task, its steps and its messages."""
    if body:
        items = [item for part in ("steps", "messages") for item in body.get(part, ())]
        said = [body.get("task"), *(item.get("content") for item in items)]
        yield from (text for text in said if isinstance(text, str))
