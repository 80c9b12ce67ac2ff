"""Checksums that say whether two sets of rows are the same, in any order."""

from __future__ import annotations

import marshal
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from holdfast.ports.backups import Row

_SIZE: Final = 32
_LIMIT: Final = 1 << 8 * _SIZE
#: The form of ``marshal`` in which equal rows are equal bytes, whatever else refers to their parts.
_FORMAT: Final = 2


@dataclass(slots=True)
class Sum:
    """How many rows there were, and the sum of their hashes, which does not depend on their order.

    It finds accidents. It is no proof against someone who may choose the rows; the audit chain is.
    """

    rows: int = 0
    total: int = 0

    def add(self, row: Row) -> None:
        """Count a row, in its canonical form."""
        digest = blake2b(marshal.dumps(row, _FORMAT), digest_size=_SIZE).digest()
        self.rows += 1
        self.total = (self.total + int.from_bytes(digest)) % _LIMIT

    @property
    def hex(self) -> str:
        """The sum as text."""
        return f"{self.total:0{2 * _SIZE}x}"
