"""Cold storage whose objects are sealed, each under the key of the user whom it belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from retain.core.errors import ObjectDamagedError, ObjectStoreError
from retain.ports import ObjectStore
from retain.privacy.keyring import Keyring
from retain.privacy.sealing import SealBrokenError, seal, sealed_under, unseal

#: Names say whose an object is: ``archive/ab/<pseudonym>/…``.
_OWNED: Final = re.compile(r"archive/[0-9a-f]{2}/([0-9a-f]{32})/")


class SealedObjects:
    """An object store that seals what belongs to someone. What was written before there were keys is read as it is."""

    def __init__(self, objects: ObjectStore, keyring: Keyring, now: Callable[[], int]) -> None:
        self._objects = objects
        self._keyring = keyring
        self._now = now

    @property
    def url(self) -> str:
        return self._objects.url

    def prepare(self) -> None:
        self._objects.prepare()

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        owner = _OWNED.match(name)
        if owner is not None:
            data = seal(self._keyring.ensure(owner[1], now=self._now()), name, data)
        return self._objects.put(name, data, absent=absent, match=match)

    def get(self, name: str) -> bytes:
        return self._opened(name, self._objects.get(name))

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        data, tag = self._objects.get_with_tag(name)
        return self._opened(name, data), tag

    def _opened(self, name: str, data: bytes) -> bytes:
        key_id = sealed_under(data)
        if key_id is None:
            return data
        try:
            return unseal(self._keyring.get(key_id), name, data)
        except SealBrokenError as problem:
            raise ObjectDamagedError(
                f"the object {name} in {self.url} is damaged ({problem}); restore it from a backup"
            ) from problem

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> tuple[int, bytes]:
        if _OWNED.match(name):
            raise ObjectStoreError(f"{name} belongs to a user and is sealed in one piece; put it whole")
        return self._objects.put_stream(name, chunks)

    def get_stream(self, name: str) -> Iterator[bytes]:
        if _OWNED.match(name):
            return iter([self.get(name)])
        return self._objects.get_stream(name)

    def delete(self, names: Sequence[str]) -> None:
        self._objects.delete(names)

    def names(self, prefix: str = "") -> Iterator[str]:
        return self._objects.names(prefix)

    def check(self) -> Sequence[str]:
        return self._objects.check()
