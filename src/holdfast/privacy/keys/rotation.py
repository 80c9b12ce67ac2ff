"""Changing the master key: every key that is wrapped with the old one is wrapped with the new one instead.

Nothing that was sealed is touched. If it is cut short, the same call goes on where it stopped: each key names the
master key that it is wrapped with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import InvalidInputError, MasterKeyError
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.keys.keyring import Keyring, open_keyring
from holdfast.privacy.keys.master import MasterKey, begin_change, end_change, master_file, read_master


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
    keyring = open_keyring(objects, setting, default)
    if new is not None:
        master = read_master(new, default, called="--new") if new else None
        if master is None:
            raise InvalidInputError("--new must be file:<path>, command:<command>, or 32 bytes in base64")
        _check_openable(keyring, master)
        count = keyring.rewrap(master, now=now, progress=progress)
        return Rotated(master.id, count, _not_under(keyring, master), None)
    path = master_file(setting, default)
    if path is None:
        raise InvalidInputError(
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
    if others and others <= set(keyring.check()):
        raise MasterKeyError(
            f"the master key opens none of the {len(others):,} keys that are to be wrapped again; nothing was changed: "
            "give the one that they are wrapped with as HOLDFAST_MASTER_KEY"
        )


def _not_under(keyring: Keyring, master: MasterKey) -> tuple[str, ...]:
    return tuple(sorted(key.id for key in keyring.list_keys() if key.master != master.id))
