"""Whether a store and its keys belong together: the store is the one that was served before, its keyring is there, the
master key opens the keys, they open what lies in cold storage, and other machines find them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Final

from holdfast.backups.catalog import describe_last
from holdfast.core.errors import (
    HoldfastError,
    KeyMissingError,
    KeyringError,
    ObjectDamagedError,
    ObjectMissingError,
    StorageError,
    StoreLostError,
)
from holdfast.health.checks import Check, advice_of, check, fail, warn
from holdfast.ports.coordination import IdentityStore
from holdfast.ports.objects import Pack, PackStore
from holdfast.privacy.keys.keyring import SIGNING, Keyring
from holdfast.privacy.keys.master import SETTING, master_file
from holdfast.privacy.ledger import Ledger
from holdfast.privacy.sealed_objects import SealedObjects
from holdfast.privacy.store_state import StoreState
from holdfast.settings import Settings
from holdfast.storage.objects import open_cold, open_keeping
from holdfast.storage.objects.urls import read_place
from holdfast.storage.stores import store_url
from holdfast.store import open_catalog

#: So many keys are opened: one master key wraps them all, and ``holdfast key check`` looks at each.
_FEW: Final = 3
#: Of so many users one cold object is opened: who moved to another home, or lost a disk, has lost more than one.
_SOME: Final = 10
_STATE_FIX: Final = "correct HOLDFAST_STATE_URL, the credentials in the environment, or the permissions there"
_COLD_FIX: Final = (
    "name the place where they are in HOLDFAST_ARCHIVE_URL, and the keyring that has their keys in HOLDFAST_STATE_URL; "
    "what was left in another home is copied from there"
)
_DAMAGED_FIX: Final = "bring it back from a copy of the keyring; holdfast key check looks at all of them"
_LOST_FIX: Final = (
    "bring the store back, restore a backup with: holdfast backup restore latest, or correct HOLDFAST_URL"
)
_KEYRING_FIX: Final = "set HOLDFAST_STATE_URL and HOLDFAST_MASTER_KEY to the same as on the machines that use the store"
_SHARED_FIX: Final = (
    "name a bucket in HOLDFAST_STATE_URL and give every machine the same HOLDFAST_MASTER_KEY; or go on, if all "
    "processes run on this machine or all machines mount the folder"
)


@check("master_key", _STATE_FIX)
def check_master_key(settings: Settings) -> Check | str | None:
    """That the master key opens some of the keys that it should; nothing is said where there are none yet."""
    state = open_keeping(settings)
    keyring = Keyring(state, settings.master_key, settings.master_path())
    some = list(islice(keyring.list_keys(), _FEW))
    try:
        for key in some:
            with suppress(KeyMissingError, ObjectMissingError):  # destroyed just now
                if key.purpose == "data":
                    keyring.get(key.id)
                else:
                    keyring.unwrap(key.id, state.get(f"{SIGNING}{key.id}.json"))
    except ObjectDamagedError as problem:
        return fail(problem, _DAMAGED_FIX)
    except HoldfastError as problem:
        file = master_file(settings.master_key, settings.master_path())
        copied = f"put the file {file} back from where you keep a copy, or set {SETTING}"
        return fail(problem, f"give the right one in {SETTING}" if file is None else copied)
    return f"it opens the keys in {state.url}" if some else None


@check("cold_memories", _COLD_FIX)
def check_cold(packs: PackStore, settings: Settings) -> Check | str | None:
    """That memories in cold storage can be read: some are. Nothing is said where there are none."""
    try:
        oldest = packs.oldest(_SOME)
    except StorageError as problem:
        return fail(problem, advice_of(problem))
    opened = _open_packs(packs, oldest, settings)
    what = "object was" if opened == 1 else "objects were"
    return f"they can be read ({opened:,} {what} opened)" if opened else None


def _open_packs(packs: PackStore, some: Iterable[Pack], settings: Settings) -> int:
    """Open the oldest cold object of some users; how many were. What is being erased, or went just now, need not."""
    state = open_keeping(settings)
    keyring = Keyring(state, settings.master_key, settings.master_path())
    ledger = Ledger(state)
    objects = SealedObjects(open_cold(settings), keyring, lambda: 0, lambda alias: ledger.find(alias) is not None)
    opened = 0
    for pack in some:
        try:
            objects.get(pack.name)
            opened += 1
        except ObjectMissingError:
            owner = PurePosixPath(pack.name).parent.name
            if packs.get(pack.number) is not None and ledger.find(owner) is None:
                raise
    return opened


def find_loss(settings: Settings) -> Check | None:
    """What is wrong where a store is not there and was there before."""
    try:
        _state_of(settings).check_absent()
    except HoldfastError as problem:
        return fail(problem, _LOST_FIX)
    return None


@check("identity")
def check_identity(identity: IdentityStore, settings: Settings) -> Check | None:
    """That a store is no empty one in the place of another."""
    try:
        _state_of(settings).check_present(identity)
    except StoreLostError as problem:
        return fail(problem, _LOST_FIX)
    except HoldfastError:  # the check of the keyring reports it
        return None
    return None


@check("keyring", lambda problem: _KEYRING_FIX if isinstance(problem, KeyringError) else _STATE_FIX)
def check_keyring(identity: IdentityStore, settings: Settings) -> None:
    """That a store belongs to the keyring that is there."""
    keyring = Keyring(open_keeping(settings), settings.master_key, settings.master_path())
    _state_of(settings).check_keyring(identity, keyring)


@check("state")
def check_state_place(settings: Settings) -> Check | None:
    """That a shared store does not have its keys where other machines cannot find them."""
    try:
        place = read_place(settings.keeping_url())
    except HoldfastError:  # the checks that read it report it
        return None
    if place.scheme == "file":
        found = f"keys and the ledger of erasures are in {place.folder}, a folder that other machines may not see"
        return warn(found, _SHARED_FIX)
    if not settings.master_key:
        found = f"the master key is in {settings.master_path()}, a file that other machines do not have"
        return warn(found, "give every machine the same HOLDFAST_MASTER_KEY")
    return None


def _state_of(settings: Settings) -> StoreState:
    last_backup = partial(describe_last, partial(open_catalog, settings))
    return StoreState(open_keeping(settings), store_url(settings), last_backup)
