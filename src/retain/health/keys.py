"""Whether the master key that is there opens the keys that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from retain.core.errors import KeyDestroyedError, ObjectDamagedError, ObjectMissingError, RetainError
from retain.health.checks import Check, failed, ok
from retain.privacy.keyring import SIGNING, KeptKey, Keyring, open_keyring
from retain.privacy.master import SETTING, master_file
from retain.settings import Settings
from retain.storage.objects import open_objects

_NAME: Final = "master_key"
#: So many keys are opened: one master key wraps them all, and ``retain key check`` looks at each.
_FEW: Final = 3
_STATE_FIX: Final = "correct RETAIN_STATE_URL, the credentials in the environment, or the permissions there"
_DAMAGED_FIX: Final = "bring it back from a copy of the keyring; retain key check looks at all of them"


def check_master_key(settings: Settings) -> Iterator[Check]:
    """That the master key opens some of the keys that it should; nothing is said where there are none yet."""
    try:
        state = open_objects(settings.keeping_url())
        keyring = open_keyring(state, settings.master_key, settings.master_path())
        some = _some(keyring)
    except RetainError as problem:
        yield failed(_NAME, problem, _STATE_FIX)
        return
    if not some:
        return
    try:
        for key in some:
            with suppress(KeyDestroyedError, ObjectMissingError):  # destroyed just now
                if key.purpose == "data":
                    keyring.get(key.id)
                else:
                    keyring.unwrap(key.id, state.get(f"{SIGNING}{key.id}.json"))
    except ObjectDamagedError as problem:
        yield failed(_NAME, problem, _DAMAGED_FIX)
    except RetainError as problem:
        yield failed(_NAME, problem, _fix(settings))
    else:
        yield ok(_NAME, f"it opens the keys in {state.url}")


def _some(keyring: Keyring) -> list[KeptKey]:
    return list(islice(keyring.kept(), _FEW))


def _fix(settings: Settings) -> str:
    file = master_file(settings.master_key, settings.master_path())
    if file is None:
        return f"give the right one in {SETTING}"
    return f"put the file {file} back from where you keep a copy, or set {SETTING}"
