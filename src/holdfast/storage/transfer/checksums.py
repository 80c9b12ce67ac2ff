"""Whether two sets of rows are the same, without holding either of them."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from holdfast.storage.relational.database import Row

_SIZE: Final = 32
_ROOM: Final = 1 << 8 * _SIZE
#: The form of ``marshal`` in which equal rows are equal bytes, whatever else refers to their parts.
_PLAIN: Final = 2


@dataclass(slots=True)
class Sum:
    """How many rows there were, and the sum of their hashes, which does not depend on their order.

    It finds what went wrong by itself. It is no proof against someone who may choose the rows; the audit chain is.
    """

    rows: int = 0
    total: int = 0

    def add(self, row: Row) -> None:
        """Count a row, in its canonical form."""
        digest = blake2b(marshal.dumps(row, _PLAIN), digest_size=_SIZE).digest()
        self.rows += 1
        self.total = (self.total + int.from_bytes(digest)) % _ROOM

    def counting(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows, counted as they go by."""
        for row in rows:
            self.add(row)
            yield row

    @property
    def hex(self) -> str:
        """The sum as text."""
        return f"{self.total:0{2 * _SIZE}x}"
