"""Record ids: UUIDs of version 7, which sort by time as text and as bytes."""

from __future__ import annotations

import uuid
from collections.abc import Callable

_TAIL_BITS = 62
_TAIL_LIMIT = 1 << _TAIL_BITS


class IdSource:
    """Makes ids that sort by the moment given, and by order of making within one moment.

    A moment is a count of microseconds since 1970. Milliseconds fill the standard's timestamp field; the
    rest of the moment goes into the twelve bits after it, so that ids made within a millisecond keep their order.
    Calls must not overlap; the caller holds a lock where threads share a source.
    """

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        self._random_bits = random_bits
        self._moment = -1
        self._tail = 0

    def next(self, moment: int) -> str:
        """The next id for ``moment``."""
        if moment == self._moment and self._tail + (1 << 40) < _TAIL_LIMIT:
            self._tail += 1 + self._random_bits(32)
        else:
            self._tail = self._random_bits(_TAIL_BITS - 1)
        self._moment = moment
        millis, micros = divmod(moment, 1_000)
        value = (millis & ((1 << 48) - 1)) << 80
        value |= 0x7 << 76
        value |= (micros * 4_096 // 1_000) << 64
        value |= 0b10 << 62
        value |= self._tail
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: object) -> bool:
    """Whether ``text`` has the form of a record id."""
    if not isinstance(text, str) or len(text) != 36:
        return False
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def name_in_logs(alias: str | None) -> str:
    """What logs call a user: the pseudonym that the audit chain and certificates use, never the name."""
    return alias or "unknown (nothing is kept)"
