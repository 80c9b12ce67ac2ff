"""What a state store and a store know of each other.

The store knows its keyring: a home with another keyring is refused before it makes a key. The state store knows which
stores were opened with it, by their URLs without credentials, and whether they held data
(``state/stores/<digest of the URL>.json``). If such a store is missing or empty, no new one is made unless the caller
asks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from holdfast.core.errors import KeyringError, StoreLostError
from holdfast.core.values import iso, to_json

if TYPE_CHECKING:
    from holdfast.ports.coordination import Identity, IdentityStore
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.keys.keyring import Keyring

FOLDER: Final = "state/stores/"
#: What a store is opened for. ``new``: to begin with an empty store where another was lost; ``restore``: to restore a
#: backup; ``abandon``: to go on without the keyring that it belonged to.
Purpose = Literal["use", "new", "restore", "abandon"]


class Note(NamedTuple):
    """What is known of a store that was opened before."""

    id: str
    url: str
    held_data: bool
    noted_at: str


class StoreState:
    """What a state store knows of the store at a URL, and the other way round."""

    def __init__(self, objects: ObjectStore, url: str, last_backup: Callable[[], str | None]) -> None:
        self._objects = objects
        self._url = url
        self._last_backup = last_backup
        self._noted = False

    # --- which stores were opened --------------------------------------------------------------------------------

    def read(self) -> Note | None:
        """What is known of the store at the URL; ``None`` if there was none yet. A damaged note means that there was
        one.
        """
        name = _name(self._url)
        if name not in self._objects.names(FOLDER):
            return None
        try:
            said = json.loads(self._objects.get(name))
            return Note(str(said["id"]), str(said["url"]), bool(said["held_data"]), str(said["noted_at"]))
        except (ValueError, KeyError, TypeError):
            return Note("", self._url, True, "a day that cannot be read")

    def check_absent(self) -> None:
        """``StoreLostError`` if a store is to be made where there was one that held data."""
        note = self.read()
        if note is not None and note.held_data:
            raise StoreLostError(self.describe_loss(note), needs=("new_store",))

    def check_present(self, identity: IdentityStore) -> None:
        """``StoreLostError`` if the store is empty, and is not the one that held data there."""
        note, known = self.read(), identity.read()
        if note is None or known is None or not note.held_data or note.id == known.store:
            self._noted = note is not None and known is not None and note.held_data
        elif not identity.has_data():
            raise StoreLostError(self.describe_loss(note), needs=("new_store",))

    def describe_loss(self, note: Note) -> str:
        """That a store is missing, and what to do."""
        backup = self._last_backup()
        restore = (
            "there is no backup that could be restored"
            if backup is None
            else (f"or restore the last backup ({backup}) with: holdfast backup restore latest")
        )
        return (
            f"the store {self._url} held memories on {note.noted_at[:16]}, and there is nothing now; no new store was "
            f"made. Bring it back, or correct HOLDFAST_URL; {restore}; or begin with an empty store"
        )

    def begin_anew(self, identity: Identity, *, now: int) -> bool:
        """Note that an empty store replaces the one that was there; whether it is another one."""
        note = self.read()
        if note is None or note.id == identity.store:
            return False
        self._write(Note(identity.store, self._url, False, iso(now)))
        return True

    def note_data(self, identity: IdentityStore, *, now: int) -> None:
        """Note that the store holds data, once it does."""
        if self._noted or not identity.has_data():
            return
        known, note = identity.read(), self.read()
        if known is not None and (note is None or note.id != known.store or not note.held_data):
            self._write(Note(known.store, self._url, True, iso(now)))
        self._noted = True

    def _write(self, note: Note) -> None:
        self._objects.prepare()
        self._objects.put(_name(self._url), to_json({"holdfast_store": 1, **note._asdict()}).encode() + b"\n")

    # --- the keyring ---------------------------------------------------------------------------------------------

    def bind(self, identity: IdentityStore, found: str | None) -> None:
        """Bind the store to a keyring; ``None`` is one that is not made yet. ``KeyringError`` if the store belongs to
        another one.
        """
        if found is None:
            known = identity.read()
            owner = None if known is None else known.keyring
        else:
            owner = identity.bind(found)
        if owner is not None and owner != found:
            raise self._other_keyring_error(owner, found)

    def check_keyring(self, identity: IdentityStore, keyring: Keyring) -> None:
        """``KeyringError`` if the store belongs to another keyring; nothing is made or bound."""
        known = identity.read()
        if known is not None and known.keyring is not None and known.keyring != (found := keyring.id()):
            raise self._other_keyring_error(known.keyring, found)

    def _other_keyring_error(self, owner: str, found: str | None) -> KeyringError:
        there = "there is none" if found is None else f"there is keyring {found}"
        return KeyringError(
            f"the store {self._url} belongs to keyring {owner}, and in {self._objects.url} {there}; nothing was done. "
            "Set HOLDFAST_STATE_URL to where that keyring is, the same for every machine that uses the store, and "
            "HOLDFAST_MASTER_KEY to its master key; if that keyring is lost for good: holdfast key abandon"
        )


def _name(url: str) -> str:
    return f"{FOLDER}{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"
