"""When two texts are the same text: one rule, for adding, for recall and for what is kept out."""

from __future__ import annotations

import unicodedata
from hashlib import blake2b
from typing import Final

#: What may end a sentence or not without changing what it says. A percent sign or a closing bracket is no such mark.
_CLOSING: Final = " .,;:!?。、।؟"


def normalize_text(text: str) -> str:
    """A text as it is compared: Unicode NFKC, case folded, white space collapsed, closing punctuation dropped.

    Of a text of nothing but closing punctuation, that is kept.
    """
    folded = text.lower() if text.isascii() else _fold(text)
    plain = " ".join(folded.split())
    return plain.rstrip(_CLOSING) or plain


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def hash_text(text: str) -> int:
    """A number of 64 bits (signed, as stores keep it) that equal texts share, and others practically never."""
    digest = blake2b(normalize_text(text).encode(), digest_size=8, person=b"holdfast text").digest()
    return int.from_bytes(digest, "big", signed=True)
