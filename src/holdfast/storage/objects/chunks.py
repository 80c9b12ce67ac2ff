"""Objects too large to hold: what is written piece by piece is counted, cut into parts and proven by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.core.errors import InvalidInputError, quote

#: The size of a part in a bucket, and no bucket takes more parts of an object than ten thousand.
PART_BYTES: Final = 8 * 1024 * 1024
MOST_PARTS: Final = 10_000


class Source:
    """Chunks on their way into a store: counted, hashed, and with what went wrong where they come from.

    Who reads them (a client, a file system) has errors of its own, which are not to be taken for the source's.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.size = 0
        self.trouble: BaseException | None = None
        self._hash = hashlib.sha256()
        self._chunks = iter(chunks)

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = next(self._chunks, None)
                if chunk is None:
                    return
                taken = _bytes(chunk)
            except BaseException as problem:
                self.trouble = problem
                raise
            self.size += len(taken)
            self._hash.update(taken)
            yield taken

    def parts(self) -> Iterator[bytes]:
        """The same in parts of ``PART_BYTES``; only the last one is smaller, and there is at least one."""
        held = bytearray()
        count = 1
        for chunk in self:
            held += chunk
            while len(held) > PART_BYTES:
                count += 1
                if count > MOST_PARTS:
                    self.trouble = InvalidInputError(
                        f"an object in a bucket has at most {MOST_PARTS * PART_BYTES:,} bytes; write several"
                    )
                    raise self.trouble
                yield bytes(memoryview(held)[:PART_BYTES])
                del held[:PART_BYTES]
        yield bytes(held)


def _bytes(chunk: object) -> bytes:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise InvalidInputError(f"an object is written in chunks of bytes, not {quote(chunk)}")
    return bytes(chunk)
