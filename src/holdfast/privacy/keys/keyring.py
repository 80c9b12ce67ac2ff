"""The keyring: a random key for each user, wrapped by the master key, outside of the data and of every backup.

The id of a key is the user's pseudonym. When it is destroyed, everything that was sealed under it is unreadable, in
every copy; a user who comes back has another pseudonym, and another key. The private half of the key that signs
certificates is wrapped in the same way, and lies beside the others.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from holdfast.core import errors
from holdfast.core.values import iso, to_json
from holdfast.privacy.keys.encryption import DataKey, OtherKeyError, SealBrokenError, new_key, seal, unseal
from holdfast.privacy.keys.master import (
    MasterKey,
    begin_change,
    end_change,
    make_master,
    master_file,
    master_reader,
    read_master,
    read_previous,
)

if TYPE_CHECKING:
    from holdfast.ports.objects import ObjectStore


class Rotated(NamedTuple):
    """The result of changing the master key."""

    master: str
    """The id of the new one."""
    rewrapped: int
    left: tuple[str, ...]
    """Keys that could not be opened, and were not changed."""
    file: Path | None
    """The file in which the new one replaced the old one."""


def rotate_master(
    objects: ObjectStore,
    setting: str,
    default: Path,
    *,
    new: str | None,
    now: int,
    progress: Callable[[int], None] = lambda _count: None,
) -> Rotated:
    """Change the master key that a setting gives to ``new``, which has the same forms; without it, a new one is made
    and written to the file of the old one.
    """
    keyring = Keyring(objects, setting, default)
    if new is not None:
        master = read_master(new, default, called="--new") if new else None
        if master is None:
            raise errors.InvalidInputError("--new must be file:<path>, command:<command>, or 32 bytes in base64")
        _check_openable(keyring, master)
        count = keyring.rewrap(master, now=now, progress=progress)
        return Rotated(master.id, count, _not_under(keyring, master), None)
    path = master_file(setting, default)
    if path is None:
        raise errors.InvalidInputError(
            "HOLDFAST_MASTER_KEY does not name a file to write a new key to; make one with holdfast key new, keep it "
            "where you keep secrets, and name it with --new"
        )
    _check_openable(keyring, None)
    change = begin_change(path)
    count = keyring.rewrap(change.new, now=now, progress=progress)
    if all(key.master != change.old.id for key in keyring.list_keys()):
        end_change(path, change)
    return Rotated(change.new.id, count, _not_under(keyring, change.new), path)


def _check_openable(keyring: Keyring, new: MasterKey | None) -> None:
    """``MasterKeyError`` if the present master key opens none of the keys: then it is not the right one."""
    others = {key.id for key in keyring.list_keys() if new is None or key.master != new.id}
    if others and others <= {key_id for _, key_id in keyring.find_unopened()}:
        raise errors.MasterKeyError(
            f"the master key opens none of the {len(others):,} keys that are to be wrapped again; nothing was changed: "
            "give the one that they are wrapped with as HOLDFAST_MASTER_KEY"
        )


def _not_under(keyring: Keyring, master: MasterKey) -> tuple[str, ...]:
    return tuple(sorted(key.id for key in keyring.list_keys() if key.master != master.id))


FOLDER: Final = "keys/"
SIGNING: Final = f"{FOLDER}signing/"
#: Where keys are moved to when their master key is lost: ``keys/abandoned/<id>/<digest>.json``.
ABANDONED: Final = f"{FOLDER}abandoned/"
#: Notes of texts that are kept out: ``keys/kept_out/<id>/<fingerprint>``. They go with the key.
KEPT_OUT: Final = f"{FOLDER}kept_out/"
_MOST_SIGNERS: Final = 4_096
#: The id of the keyring: made with the first key, and never changed.
_ID_FOLDER: Final = f"{FOLDER}keyring/"
_ID: Final = f"{_ID_FOLDER}id"
_NAME: Final = re.compile(r"keys/([0-9a-f]{2}|signing)/([0-9a-f]{32})\.json")
_ID_FORM: Final = re.compile(r"[0-9a-f]{32}")
_GONE: Final = (
    "the master key is missing, and there are keys that only it opens; bring it back from where you keep it: "
    "without it, cold memories and backups cannot be read again"
)


Purpose = Literal["data", "signing"]


class KeptKey(NamedTuple):
    """What is known of a key without opening it."""

    id: str
    purpose: Purpose
    master: str | None
    """The master key that it is wrapped with; ``None`` if the key is damaged."""
    made_at: str | None


@dataclass(eq=False)
class Keyring:
    """Data keys in an object store, their master key as a setting says, or in the ``default`` file.

    ``bind`` is called with the keyring's id (``None`` if it has none yet) before the first key is made, and raises
    ``KeyringError`` if the store belongs to another keyring.
    """

    _objects: ObjectStore
    _setting: str
    _default: Path
    _bind: Callable[[str | None], None] = lambda _keyring_id: None

    def __post_init__(self) -> None:
        self._claimed = False
        self._read_master = master_reader(self._setting, self._default)
        self._master: MasterKey | None = None
        self._signers: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._claim_lock = threading.RLock()

    # --- which keyring it is -------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it is, as it may be shown."""
        return self._objects.url

    def id(self) -> str | None:
        """The id of the keyring; ``None`` if no key was ever made in it."""
        if _ID not in self._objects.names(_ID_FOLDER):  # before the first key the folder is missing too
            return None
        found = self._objects.get(_ID).decode("ascii", errors="replace").strip()
        if not _ID_FORM.fullmatch(found):
            raise errors.ObjectDamagedError(f"{_ID} in {self.url} is damaged; bring it back from a copy of the keyring")
        return found

    def make_id(self) -> str:
        """The keyring's id, made if there is none, for whatever store."""
        if self.id() is None:
            self._objects.prepare()
            with suppress(errors.ConflictError):  # another was faster
                self._objects.put(_ID, secrets.token_hex(16).encode() + b"\n", absent=True)
        return self.id() or self.make_id()

    def claim(self) -> None:
        """See, once, that the store belongs to this keyring, and make the keyring's id if there is none.
        ``KeyringError``, before anything is made, if the store belongs to another keyring.
        """
        if self._claimed:
            return
        with self._claim_lock:  # else one thread sees the store bound to the id that another is about to write
            if not self._claimed:
                known = self.id()
                if known is None:
                    self._bind(None)
                    known = self.make_id()
                self._bind(known)
                self._claimed = True

    # --- keys ----------------------------------------------------------------------------------------------------

    def get(self, key_id: str) -> DataKey:
        """The key of a pseudonym; ``KeyMissingError`` if it is not there. Whether it was destroyed, the ledger says."""
        try:
            data = self._objects.get(_name(key_id))
        except errors.ObjectMissingError as problem:
            raise errors.KeyMissingError(
                f"key {key_id} is not in the keyring in {self._objects.url}: what was sealed under it cannot be read; "
                "check HOLDFAST_STATE_URL, or bring the key back from where the keyring was, or from a copy of it"
            ) from problem
        return self.unwrap(key_id, data)

    def ensure(self, key_id: str, *, now: int) -> DataKey:
        """The key of a pseudonym, made if there is none."""
        self.claim()
        with suppress(errors.KeyMissingError):
            return self.get(key_id)
        made = new_key(key_id)
        try:
            self.keep(_name(key_id), made, now=now)
        except errors.ConflictError:  # another was faster
            return self.get(key_id)
        return made

    def destroy(self, key_id: str) -> int:
        """Destroy a key for good, with abandoned ones of the same id, and the notes beside it; how many keys it was."""
        names, notes = list(self._kept_of(key_id)), list(self._objects.names(f"{KEPT_OUT}{key_id}/"))
        if names or notes:
            self._objects.delete([*names, *notes])
        self._signers.pop(key_id, None)
        return len(names)

    def has(self, key_id: str) -> bool:
        """Whether there is a key of a pseudonym, in use or abandoned, or a note beside it."""
        found = next(self._kept_of(key_id), None) or next(self._objects.names(f"{KEPT_OUT}{key_id}/"), None)
        return found is not None

    # --- texts that are kept out ---------------------------------------------------------------------------------

    def sign_texts(self, key_id: str, hashes: Sequence[int]) -> list[str]:
        """Fingerprints of hashes of texts, under the key of a pseudonym. What is made of that key is kept in memory."""
        signer = self._signers.get(key_id)
        if signer is None:
            signer = hmac.digest(self.get(key_id).secret, b"holdfast texts that are kept out", "sha256")
            if len(self._signers) >= _MOST_SIGNERS:
                self._signers.clear()
            self._signers[key_id] = signer
        return [hmac.digest(signer, one.to_bytes(8, "big", signed=True), "sha256")[:16].hex() for one in hashes]

    def note_kept_out(self, key_id: str, print_of: str, note: bytes) -> None:
        """Note outside of the store that a text is kept out: no backup of before brings it back."""
        self._objects.put(f"{KEPT_OUT}{key_id}/{print_of}", note)

    def forget_kept_out(self, key_id: str, prints: Sequence[str]) -> None:
        """Remove such notes."""
        self._objects.delete([f"{KEPT_OUT}{key_id}/{one}" for one in prints])

    def kept_out(self) -> Iterator[tuple[str, str, bytes]]:
        """The notes: whose, which fingerprint, and what is said of it."""
        for name in sorted(self._objects.names(KEPT_OUT)):
            key_id, _, print_of = name.removeprefix(KEPT_OUT).partition("/")
            with suppress(errors.ObjectMissingError):
                yield key_id, print_of, self._objects.get(name)

    def _kept_of(self, key_id: str) -> Iterator[str]:
        with suppress(errors.ObjectMissingError):
            self._objects.get(_name(key_id))  # if the place itself is missing, this raises
            yield _name(key_id)
        yield from self._objects.names(f"{ABANDONED}{key_id}/")

    def ids(self) -> Iterator[str]:
        """The pseudonyms that have a key."""
        return (key_id for _, purpose, key_id in self._all() if purpose == "data")

    def list_keys(self) -> Iterator[KeptKey]:
        """What is known of every key without opening it."""
        for name, purpose, key_id in self._all():
            with suppress(errors.ObjectMissingError):  # destroyed meanwhile
                try:
                    said = _parse(key_id, self._objects.get(name))
                except errors.ObjectDamagedError:
                    yield KeptKey(key_id, purpose, None, None)
                else:
                    yield KeptKey(key_id, purpose, said["master"], said.get("made_at"))

    def _all(self) -> Iterator[tuple[str, Purpose, str]]:
        """The names of all wrapped keys, what each is for, and its id."""
        for name in self._objects.names(FOLDER):
            found = _NAME.fullmatch(name)
            if found:
                yield name, "signing" if found[1] == "signing" else "data", found[2]

    # --- the master key ------------------------------------------------------------------------------------------

    def rewrap(self, new: MasterKey, *, now: int, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Wrap every key with another master key; how many there were to wrap. Done again, it goes on where it stopped.

        Keys that another process makes meanwhile under the old one are found too: it ends when none is left. A process
        that still uses the old master key after that must read the new one before it makes a key. A key that cannot be
        opened is left as it is: ``find_unopened`` lists it.
        """
        done = 0
        while again := sum(self._rewrap(name, key_id, new, now, progress) for name, _, key_id in self._all()):
            done += again
        with self._lock:
            self._master = new
        return done

    def _rewrap(self, name: str, key_id: str, new: MasterKey, now: int, progress: Callable[[int], None]) -> bool:
        """Wrap one key with another master key; whether there was something to do. A destroyed key stays destroyed."""
        try:
            data, tag = self._objects.get_with_tag(name)
            said = _parse(key_id, data)
            if said["master"] == new.id:
                return False
            fresh = _wrap(self.unwrap(key_id, data), new, made_at=said.get("made_at"), wrapped_at=iso(now))
            self._objects.put(name, fresh, match=tag)
        except (errors.ObjectMissingError, errors.ObjectDamagedError, errors.MasterKeyError):
            return False
        except errors.StaleError:  # another has rewrapped or destroyed it: the next round finds out
            return True
        progress(1)
        return True

    def find_unopened(self) -> Iterator[tuple[Purpose, str]]:
        """The keys that this master key does not open, or that are damaged, and what each is for."""
        for name, purpose, key_id in self._all():
            try:
                self.unwrap(key_id, self._objects.get(name))
            except (errors.MasterKeyError, errors.ObjectDamagedError):
                yield purpose, key_id
            except errors.ObjectMissingError:  # destroyed meanwhile
                continue

    # --- keys that were lost -------------------------------------------------------------------------------------

    def require_master(self) -> None:
        """``MasterKeyError`` unless there is a master key to make keys with."""
        if self._read_master() is None:
            raise errors.MasterKeyError(
                "there is no master key to make new keys with; make one with holdfast key new, and set "
                "HOLDFAST_MASTER_KEY to it first"
            )

    def abandon(self, purpose: Purpose, key_id: str) -> None:
        """Move a key to another name, so that a new one can be made. Destroying the new one destroys both.

        If it is cut short, the key is there twice, and doing it again goes on.
        """
        name = _name(key_id) if purpose == "data" else f"{SIGNING}{key_id}.json"
        with suppress(errors.ObjectMissingError):  # destroyed meanwhile
            data = self._objects.get(name)
            self._objects.put(f"{ABANDONED}{key_id}/{hashlib.sha256(data).hexdigest()[:16]}.json", data)
            self._objects.delete([name])

    def is_abandoned(self, key_id: str) -> bool:
        """Whether a key of this id was abandoned."""
        return next(self._objects.names(f"{ABANDONED}{key_id}/"), None) is not None

    def explain_unreadable(self, key_id: str, what: str, problem: Exception) -> errors.HoldfastError:
        """Why something that was sealed under a key cannot be read."""
        if self.is_abandoned(key_id):
            reason = f"it was sealed under key {key_id}, which was abandoned because its master key was lost"
            return errors.ObjectDamagedError(f"{what} cannot be read: {reason}")
        if isinstance(problem, OtherKeyError):
            return errors.OtherKeyringError(
                f"{what} was sealed under another keyring than the one in {self.url}; name the keyring that belongs to "
                "it in HOLDFAST_STATE_URL, and its master key in HOLDFAST_MASTER_KEY"
            )
        return errors.ObjectDamagedError(f"{what} is damaged ({problem}); restore it from a backup where it is whole")

    def _wrapping_key(self) -> MasterKey:
        """The master key, read now. If there is none and there are no keys, it is made."""
        with self._lock:
            master = self._read_master()
            if master is None:
                if next(self._all(), None) is not None:
                    raise errors.MasterKeyError(_GONE)
                master = make_master(self._default)
            self._master = master
            return master

    def _unwrapping_key(self, master_id: str) -> MasterKey | None:
        """The master key of an id: the one that was read before, the one that is there now, or the one before it."""
        with self._lock:
            if self._master is None or self._master.id != master_id:
                self._master = self._read_master() or self._master
            if self._master is None:
                raise errors.MasterKeyError(_GONE)
            previous = None if self._master.id == master_id else read_previous(self._setting, self._default)
            return next((one for one in (self._master, previous) if one is not None and one.id == master_id), None)

    # --- how a key is kept ---------------------------------------------------------------------------------------

    def keep(self, name: str, key: DataKey, *, now: int) -> None:
        """Write a key, wrapped with the master key, under a new name; ``ConflictError`` if the name is taken."""
        self.claim()
        master = self._wrapping_key()
        tag = self._objects.put(name, _wrap(key, master, made_at=iso(now)), absent=True)
        current = self._read_master()
        if current is not None and current.id != master.id:  # it was changed just now, and missed this key
            with suppress(errors.StaleError):
                self._objects.put(name, _wrap(key, current, made_at=iso(now)), match=tag)

    def unwrap(self, key_id: str, data: bytes) -> DataKey:
        """The key in ``data``; ``MasterKeyError`` if it is wrapped with another master key."""
        kept = _parse(key_id, data)
        master = self._unwrapping_key(kept["master"])
        if master is None:
            raise errors.MasterKeyError(
                f"key {key_id} was wrapped with master key {kept['master']}, which HOLDFAST_MASTER_KEY is not; "
                "give the right one, or if that is lost for good, go on without with: holdfast key abandon"
            )
        try:
            wrapped = base64.b64decode(kept["wrapped"], validate=True)
            return DataKey(key_id, unseal(_as_data_key(master), f"key {key_id}", wrapped))
        except (SealBrokenError, ValueError) as problem:
            raise _damaged_error(key_id, problem) from problem


def _wrap(key: DataKey, master: MasterKey, **moments: str | None) -> bytes:
    wrapped = base64.b64encode(seal(_as_data_key(master), f"key {key.id}", key.secret)).decode()
    kept = {"holdfast_key": 1, "id": key.id, "master": master.id, "wrapped": wrapped, **moments}
    return to_json(kept).encode() + b"\n"


def _parse(key_id: str, data: bytes) -> dict[str, Any]:
    try:
        kept = json.loads(data)
        if kept["holdfast_key"] != 1 or kept["id"] != key_id or not isinstance(kept["master"], str):
            raise ValueError("it is not the key that it should be")  # noqa: TRY301 - one message for all
        str(kept["wrapped"])
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged_error(key_id, problem) from problem
    found: dict[str, Any] = kept
    return found


def _damaged_error(key_id: str, problem: Exception) -> errors.ObjectDamagedError:
    return errors.ObjectDamagedError(f"key {key_id} is damaged ({problem}); bring it back from a copy of the keyring")


def _name(key_id: str) -> str:
    return f"{FOLDER}{key_id[:2]}/{key_id}.json"


def _as_data_key(master: MasterKey) -> DataKey:
    return DataKey(master.id.rjust(32, "0"), master.secret)
