"""Whether the master key that is there opens the keys that are kept, and they open what lies in cold storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import PurePosixPath
from typing import Final

from holdfast.core.errors import HoldfastError, KeyMissingError, ObjectDamagedError, ObjectMissingError, StorageError
from holdfast.health.checks import Check, advice_of, fail, ok
from holdfast.ports.objects import Pack
from holdfast.privacy.keys.keyring import SIGNING, Keyring
from holdfast.privacy.keys.master import SETTING, master_file
from holdfast.privacy.ledger import Ledger
from holdfast.privacy.sealed_objects import SealedObjects
from holdfast.settings import Settings
from holdfast.storage.objects import open_cold, open_keeping
from holdfast.storage.relational.attachments import SqlPacks
from holdfast.storage.relational.database import Database

_NAME: Final = "master_key"
_COLD: Final = "cold_memories"
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


def check_master_key(settings: Settings) -> Iterator[Check]:
    """That the master key opens some of the keys that it should; nothing is said where there are none yet."""
    try:
        state = open_keeping(settings)
        keyring = Keyring(state, settings.master_key, settings.master_path())
        some = list(islice(keyring.list_keys(), _FEW))
    except HoldfastError as problem:
        yield fail(_NAME, problem, _STATE_FIX)
        return
    if not some:
        return
    try:
        for key in some:
            with suppress(KeyMissingError, ObjectMissingError):  # destroyed just now
                if key.purpose == "data":
                    keyring.get(key.id)
                else:
                    keyring.unwrap(key.id, state.get(f"{SIGNING}{key.id}.json"))
    except ObjectDamagedError as problem:
        yield fail(_NAME, problem, _DAMAGED_FIX)
    except HoldfastError as problem:
        yield fail(_NAME, problem, _fix(settings))
    else:
        yield ok(_NAME, f"it opens the keys in {state.url}")


def check_cold(database: Database, settings: Settings) -> Iterator[Check]:
    """That memories in cold storage can be read: some are. Nothing is said where there are none."""
    packs = SqlPacks(database)
    try:
        oldest = packs.oldest(_SOME)
    except StorageError as problem:
        yield fail(_COLD, problem, advice_of(problem))
        return
    try:
        opened = _open_packs(packs, oldest, settings)
    except HoldfastError as problem:
        yield fail(_COLD, problem, _COLD_FIX)
        return
    if opened:
        yield ok(_COLD, f"they can be read ({opened:,} {'object was' if opened == 1 else 'objects were'} opened)")


def _open_packs(packs: SqlPacks, some: Iterable[Pack], settings: Settings) -> int:
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


def _fix(settings: Settings) -> str:
    file = master_file(settings.master_key, settings.master_path())
    if file is None:
        return f"give the right one in {SETTING}"
    return f"put the file {file} back from where you keep a copy, or set {SETTING}"
