"""Arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Growing:
    """An array that rows are appended to at a constant cost a row. ``view`` is what there is, and may be written to."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._room: npt.NDArray[Any] = np.zeros(0 if width is None else (0, width), dtype)
        self.view: npt.NDArray[Any] = self._room

    def __len__(self) -> int:
        return len(self.view)

    @property
    def width(self) -> int:
        """How long a row is."""
        return int(self._room.shape[1])

    @property
    def nbytes(self) -> int:
        """What it holds in memory, room to grow included."""
        return self._room.nbytes

    def extend(self, rows: npt.ArrayLike) -> None:
        """Append rows. Views taken before may no longer be current; the first rows may be taken over as they are."""
        new = np.asarray(rows, self._room.dtype)
        start, end = len(self.view), len(self.view) + len(new)
        if not start:
            self.replace(new)
            return
        if end > len(self._room):
            room = np.empty((end + end // 4 + 16, *self._room.shape[1:]), self._room.dtype)
            room[:start] = self.view
            self._room = room
        self._room[start:end] = new
        self.view = self._room[:end]

    def replace(self, rows: npt.NDArray[Any]) -> None:
        """Hold these rows and no others."""
        self._room = self.view = np.ascontiguousarray(rows, self._room.dtype)

    def widen(self, width: int) -> None:
        """Make each row so long; what is there is lost to zeros."""
        self._room = self.view = np.zeros((len(self.view), width), self._room.dtype)
