"""Whether the store is the one that was served before, belongs to the keyring that is there, and shares its keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from holdfast.backups.catalog import describe_last
from holdfast.core.errors import HoldfastError, KeyringError, StoreLostError
from holdfast.health.checks import Check, fail, warn
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.store_state import StoreState
from holdfast.settings import Settings
from holdfast.storage.objects import open_keeping
from holdfast.storage.objects.urls import read_place
from holdfast.storage.relational.coordination import SqlIdentity
from holdfast.storage.relational.database import Database
from holdfast.storage.stores import store_url
from holdfast.store import open_catalog

_LOST_FIX: Final = (
    "bring the store back, restore a backup with: holdfast backup restore latest, or correct HOLDFAST_URL"
)
_KEYRING_FIX: Final = "set HOLDFAST_STATE_URL and HOLDFAST_MASTER_KEY to the same as on the machines that use the store"
_SHARED_FIX: Final = (
    "name a bucket in HOLDFAST_STATE_URL and give every machine the same HOLDFAST_MASTER_KEY; or go on, if all "
    "processes run on this machine or all machines mount the folder"
)


def check_lost(settings: Settings, name: str = "store") -> Check | None:
    """That a store that is not there was not there before either; ``None`` if so."""
    try:
        _state_of(settings).check_absent()
    except HoldfastError as problem:
        return fail(name, problem, _LOST_FIX)
    return None


def check_identity(database: Database, settings: Settings) -> Iterator[Check]:
    """That a store is no empty one in the place of another, and belongs to the keyring that is there."""
    identity, state = SqlIdentity(database), _state_of(settings)
    keyring = Keyring(open_keeping(settings), settings.master_key, settings.master_path())
    try:
        state.check_present(identity)
        state.check_keyring(identity, keyring)
    except StoreLostError as problem:
        yield fail("identity", problem, _LOST_FIX)
    except KeyringError as problem:
        yield fail("keyring", problem, _KEYRING_FIX)
    except HoldfastError as problem:
        yield fail("keyring", problem, "correct HOLDFAST_STATE_URL, or the credentials in the environment")


def check_state_place(settings: Settings) -> Iterator[Check]:
    """That a shared store does not have its keys where other machines cannot find them."""
    try:
        place = read_place(settings.keeping_url())
    except HoldfastError:  # the checks that read it report it
        return
    if place.scheme == "file":
        found = f"keys and the ledger of erasures are in {place.folder}, a folder that other machines may not see"
        yield warn("state", found, _SHARED_FIX)
    elif not settings.master_key:
        found = f"the master key is in {settings.master_path()}, a file that other machines do not have"
        yield warn("state", found, "give every machine the same HOLDFAST_MASTER_KEY")


def _state_of(settings: Settings) -> StoreState:
    last_backup = partial(describe_last, partial(open_catalog, settings))
    return StoreState(open_keeping(settings), store_url(settings), last_backup)
