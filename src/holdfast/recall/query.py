"""A query, and how it is to be answered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.filters import Filter


class Query(NamedTuple):
    """A text, ready to be compared."""

    vector: npt.NDArray[np.float32] | None
    """Of unit length; ``None``: by words alone."""
    terms: npt.NDArray[np.uint32]
    """As ``terms.query_terms`` gives them."""


class SearchOptions(NamedTuple):
    """How many records are wanted, as of which time, and which ones."""

    top_k: int
    now: int
    where: Filter | None = None
    include_archived: bool = False
    explain: bool = False
    before: str | None = None
    """A list goes on from here: with records of smaller ids, which are older ones."""
