"""What every model's raw output goes through before it counts as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.core.errors import EmbedderError
from holdfast.ports.feed import Vectors


def unit_rows(raw: Any, *, count: int, dim: int | None, source: str) -> Vectors:
    """``raw`` as ``count`` float32 rows of unit length (rows of zeros stay zeros).

    Raises ``EmbedderError``, naming ``source``, unless it is a table of finite numbers, of that many rows and, where
    ``dim`` is known, of that width.
    """
    try:
        table = np.asarray(raw, np.float64)
    except (TypeError, ValueError) as error:
        raise EmbedderError(f"{source} gave something that is no table of numbers: {error}") from error
    if table.ndim != 2 or len(table) != count or table.shape[1] == 0:
        raise EmbedderError(f"{source} gave vectors of shape {table.shape} for {count} texts")
    if dim is not None and table.shape[1] != dim:
        raise EmbedderError(
            f"{source} gave vectors of {table.shape[1]} dimensions where it gave {dim} before; was the model changed?"
        )
    if not np.isfinite(table).all():
        raise EmbedderError(f"{source} gave vectors with numbers that are not finite")
    largest = np.abs(table).max(axis=1, keepdims=True)  # scaled by it first, so that no square leaves the range
    table /= np.where(largest > 0, largest, 1)
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    unit: Vectors = (table / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def clean_text(text: str, max_chars: int) -> str:
    """The first ``max_chars`` characters of ``text``, stripped; what UTF-8 cannot carry becomes ``?``."""
    return text[:max_chars].strip().encode("utf-8", "replace").decode()
