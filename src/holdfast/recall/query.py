"""A question, in the form in which every way of searching takes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.filters import Filter


class Query(NamedTuple):
    """What is asked, ready to be compared."""

    vector: npt.NDArray[np.float32] | None
    terms: npt.NDArray[np.uint32]


class Ask(NamedTuple):
    """How it is asked."""

    top_k: int
    now: int
    where: Filter | None = None
    include_archived: bool = False
    explain: bool = False
    before: str | None = None
    """Where a list goes on from: only records with smaller ids, which are older ones."""
