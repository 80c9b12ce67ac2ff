"""The contracts between what Retain does and the engines that it runs on.

Each protocol is narrow, speaks the domain and states its contract; engines satisfy it by shape, not by inheritance. One
conformance suite per protocol (``tests/conformance``) runs over every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors of one space."""

    @property
    def id(self) -> str:
        """Names the space: two embedders share an id only if their vectors may be compared."""

    @property
    def dim(self) -> int:
        """How long each vector is."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit-length float32 row per text (all zeros where a text has nothing to embed).

        Raises ``EmbedderError``; ``EmbedderUnavailableError`` where trying again may help.
        """


class Summarizer(Protocol):
    """Makes a short text of a long one."""

    def summarize(self, texts: Sequence[str], *, max_chars: int) -> str:
        """A summary of ``texts``, in their order, of at most ``max_chars`` characters."""


class IndexRow(NamedTuple):
    """What the recall index needs to know of a record; all of it lies in the record's own row."""

    id: str
    agent_id: str
    session_id: str | None
    created_at: int
    updated_at: int
    hidden_from: int | None
    """The moment from which the record must not be seen, whether or not a sweep has run."""
    archived: bool
    metadata: str
    """JSON text."""
    vectors: bytes | None
    """float16, one row per passage, in the space of the index's embedder; ``None`` if not embedded in that space."""
    terms: bytes
    """The passages' terms, as ``recall.terms.encode`` wrote them."""
