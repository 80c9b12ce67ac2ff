"""Cold storage with sealed objects, each under the key of its user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import KeyMissingError, ObjectMissingError
from holdfast.privacy.keys.encryption import DataKey, SealBrokenError, seal, sealed_under, unseal

if TYPE_CHECKING:
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.keys.keyring import Keyring

#: The name of an object has the pseudonym of its user: ``archive/ab/<pseudonym>/…``.
_OWNED: Final = re.compile(r"archive/[0-9a-f]{2}/([0-9a-f]{32})/")
#: The list of a domain's archive is not sealed: callers are given its path. What it lists is sealed like the rest.
_OPEN: Final = re.compile(rf"{_OWNED.pattern}domains/[a-z]+/[0-9a-f-]{{36}}/manifest\.json")


class SealedObjects:
    """An object store that seals what belongs to a user. Objects that are not sealed are read as they are."""

    def __init__(
        self,
        objects: ObjectStore,
        keyring: Keyring,
        now: Callable[[], int],
        is_erased: Callable[[str], bool] = lambda _alias: False,
    ) -> None:
        self._objects = objects
        self._keyring = keyring
        self._now = now
        self._is_erased = is_erased

    @property
    def url(self) -> str:
        return self._objects.url

    def prepare(self) -> None:
        self._objects.prepare()

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        owner = _OWNED.match(name)
        if owner is not None and not _OPEN.fullmatch(name):
            data = seal(ensure_key(self._keyring, owner[1], self._now(), self._is_erased), name, data)
        return self._objects.put(name, data, absent=absent, match=match)

    def get(self, name: str) -> bytes:
        return self._unseal(name, self._objects.get(name))

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        data, tag = self._objects.get_with_tag(name)
        return self._unseal(name, data), tag

    def _unseal(self, name: str, data: bytes) -> bytes:
        key_id = sealed_under(data)
        if key_id is None:
            return data
        try:
            return unseal(self._keyring.get(key_id), name, data)
        except (KeyMissingError, SealBrokenError) as problem:
            is_missing = isinstance(problem, KeyMissingError)
            if is_missing and self._is_erased(key_id):
                raise _erased_error(key_id) from problem
            if is_missing and not self._keyring.is_abandoned(key_id):
                raise
            what = f"the object {name} in {self.url}"
            raise self._keyring.explain_unreadable(key_id, what, problem) from problem

    def delete(self, names: Sequence[str]) -> None:
        self._objects.delete(names)

    def names(self, prefix: str = "") -> Iterator[str]:
        return self._objects.names(prefix)

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        return self._objects.sizes(prefix)

    def check(self) -> Sequence[str]:
        return self._objects.check()


def ensure_key(keyring: Keyring, alias: str, now: int, is_erased: Callable[[str], bool]) -> DataKey:
    """The key of a user, made if there is none; none for a user who is being erased. The ledger is written before
    an erasure looks for the key: either the erasure finds this key, or this finds the erasure.
    """
    key = keyring.ensure(alias, now=now)
    if is_erased(alias):
        keyring.destroy(alias)
        raise _erased_error(alias)
    return key


def owner_of(name: str) -> str | None:
    """The pseudonym of the user of an object, by its name."""
    found = _OWNED.match(name)
    return None if found is None else found[1]


def _erased_error(alias: str) -> ObjectMissingError:
    return ObjectMissingError(f"the user with the pseudonym {alias} was erased; nothing of them is kept")
