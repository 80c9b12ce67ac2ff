"""The keyring: a random key for each user, wrapped by the master key, outside of the data and of every backup.

A key goes by the user's pseudonym. Destroying it makes everything that was sealed under it unreadable, wherever a copy
of that may be; a user who comes back has another pseudonym, and another key.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from retain.core.content import to_json
from retain.core.errors import ConflictError, KeyDestroyedError, MasterKeyError, ObjectDamagedError, ObjectMissingError
from retain.core.times import iso
from retain.ports import ObjectStore
from retain.privacy.master import MasterKey
from retain.privacy.sealing import DataKey, SealBrokenError, new_key, seal, unseal

FOLDER: Final = "keys/"
_NAME: Final = re.compile(r"keys/[0-9a-f]{2}/([0-9a-f]{32})\.json")


class Keyring:
    """Data keys in an object store. ``master`` gives the master key if there is one; ``make`` makes it."""

    def __init__(
        self, objects: ObjectStore, master: Callable[[], MasterKey | None], make: Callable[[], MasterKey]
    ) -> None:
        self._objects = objects
        self._read_master = master
        self._make = make
        self._master: MasterKey | None = None
        self._lock = threading.Lock()

    # --- keys ----------------------------------------------------------------------------------------------------

    def get(self, key_id: str) -> DataKey:
        """The key of a pseudonym; ``KeyDestroyedError`` if it is not there (any more)."""
        try:
            data = self._objects.get(_name(key_id))
        except ObjectMissingError as problem:
            raise KeyDestroyedError(
                f"there is no key {key_id}: it was destroyed, and what was sealed under it cannot be read again"
            ) from problem
        return self._unwrapped(key_id, data)

    def ensure(self, key_id: str, *, now: int) -> DataKey:
        """The key of a pseudonym, made if there is none."""
        self._objects.prepare()
        with suppress(KeyDestroyedError):
            return self.get(key_id)
        key = new_key(key_id)
        with suppress(ConflictError):  # another was faster
            self._objects.put(_name(key_id), self._wrapped(key, self._current(make=True), now), absent=True)
        return self.get(key_id)

    def destroy(self, key_id: str) -> bool:
        """Destroy a key for good; whether it was there."""
        try:
            self._objects.get(_name(key_id))
        except ObjectMissingError:
            return False
        self._objects.delete([_name(key_id)])
        return True

    def ids(self) -> Iterator[str]:
        """The pseudonyms that have a key."""
        for name in self._objects.names(FOLDER):
            found = _NAME.fullmatch(name)
            if found:
                yield found[1]

    # --- the master key ------------------------------------------------------------------------------------------

    def rewrap(self, new: MasterKey, *, now: int, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Wrap every key with another master key; how many there were. Done again, it goes on where it stopped."""
        count = 0
        for key_id in self.ids():
            data, tag = self._objects.get_with_tag(_name(key_id))
            if _parsed(key_id, data)["master"] != new.id:
                key = self._unwrapped(key_id, data)
                self._objects.put(_name(key_id), self._wrapped(key, new, now), match=tag)
                count += 1
                progress(1)
        with self._lock:
            self._master = new
        return count

    def check(self) -> list[str]:
        """The pseudonyms whose keys this master key does not open, or that are damaged."""
        wrong = []
        for key_id in self.ids():
            try:
                self.get(key_id)
            except (MasterKeyError, ObjectDamagedError):
                wrong.append(key_id)
        return wrong

    def _current(self, *, make: bool) -> MasterKey:
        with self._lock:
            if self._master is None:
                self._master = self._read_master()
            if self._master is None:
                if not make or next(self.ids(), None) is not None:
                    raise MasterKeyError(
                        "the master key is gone, and keys are there that only it opens; bring it back from where you "
                        "keep it: without it, cold memories and backups cannot be read again"
                    )
                self._master = self._make()
            return self._master

    # --- how a key is kept ---------------------------------------------------------------------------------------

    def _wrapped(self, key: DataKey, master: MasterKey, now: int) -> bytes:
        sealed = seal(DataKey(_as_id(master), master.secret), _bound(key.id), key.secret)
        kept = {
            "retain_key": 1,
            "id": key.id,
            "master": master.id,
            "wrapped": base64.b64encode(sealed).decode(),
            "made_at": iso(now),
        }
        return to_json(kept).encode() + b"\n"

    def _unwrapped(self, key_id: str, data: bytes) -> DataKey:
        kept = _parsed(key_id, data)
        master = self._current(make=False)
        if kept["master"] != master.id:
            raise MasterKeyError(
                f"key {key_id} was wrapped with master key {kept['master']}, and RETAIN_MASTER_KEY is {master.id}; "
                "give the right one"
            )
        try:
            secret = unseal(
                DataKey(_as_id(master), master.secret), _bound(key_id), base64.b64decode(kept["wrapped"], validate=True)
            )
        except (SealBrokenError, ValueError) as problem:
            raise _damaged(key_id, problem) from problem
        return DataKey(key_id, secret)


def _parsed(key_id: str, data: bytes) -> dict[str, Any]:
    try:
        kept = json.loads(data)
        if kept["retain_key"] != 1 or kept["id"] != key_id or not isinstance(kept["master"], str):
            raise ValueError("it is not the key that it should be")  # noqa: TRY301 - one message for all
        str(kept["wrapped"])
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged(key_id, problem) from problem
    found: dict[str, Any] = kept
    return found


def _damaged(key_id: str, problem: Exception) -> ObjectDamagedError:
    return ObjectDamagedError(f"key {key_id} is damaged ({problem}); bring it back from a copy of the keyring")


def _name(key_id: str) -> str:
    return f"{FOLDER}{key_id[:2]}/{key_id}.json"


def _as_id(master: MasterKey) -> str:
    return master.id.rjust(32, "0")


def _bound(key_id: str) -> str:
    return f"key {key_id}"
