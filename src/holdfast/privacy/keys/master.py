"""The master key: what all data keys are wrapped with. From a file, the environment, or a command."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.core.errors import InvalidSettingsError, MasterKeyError, StoreFullError
from holdfast.privacy.keys.encryption import KEY_BYTES
from holdfast.storage.objects.disk import NO_ROOM, lock_folder, name_file, new_file, sync_file, sync_folder

SETTING: Final = "HOLDFAST_MASTER_KEY"
_SECONDS: Final = 30


class MasterKey(NamedTuple):
    """A key of 256 bits, and its id: the beginning of a digest of it."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"MasterKey({self.id})"


class Change(NamedTuple):
    """A change of the master key in its file: from one to another."""

    old: MasterKey
    new: MasterKey


def read_master(setting: str, default: Path, *, called: str = SETTING) -> MasterKey | None:
    """The master key that a setting gives: ``file:<path>``, ``command:<command>``, or the key itself in base64.

    Without a setting it is in the ``default`` file; ``None`` if there is no such file yet. ``called`` is the name of
    the setting in messages.
    """
    if not setting:
        return _of_file(default) if default.exists() else None
    scheme, _, rest = setting.partition(":")
    if scheme == "file":
        path = Path(rest).expanduser()
        if not path.exists():
            raise MasterKeyError(f"the master key's file {path} is not there; bring it back, or correct {called}")
        return _of_file(path)
    if scheme == "command":
        return _of_command(rest, called)
    return _of_text(setting, called)


def master_reader(setting: str, default: Path) -> Callable[[], MasterKey | None]:
    """A function that reads the master key. A file is read each time, to notice a change; a command runs once."""
    read = partial(read_master, setting, default)
    return read if master_file(setting, default) is not None else cache(read)


def new_master_text() -> str:
    """A new master key, as it is written into a file or a setting."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def master_file(setting: str, default: Path) -> Path | None:
    """The file that the master key is in, by a setting; ``None`` if it comes from elsewhere. Of a link it is the file
    that it leads to: that is the one to change, and what mounts secrets makes the link again.
    """
    scheme, _, rest = setting.partition(":")
    if setting and scheme != "file":
        return None
    return _real(Path(rest).expanduser() if setting else default)


def make_master(path: Path) -> MasterKey:
    """A new master key, in a file that only its owner may read; the one that is there, if another was faster."""
    path = _real(path)
    with _lock(path):
        if not path.exists():
            _replace(path, new_master_text())
    return _of_file(path)


# --- changing it in its file --------------------------------------------------------------------------------------


def begin_change(path: Path) -> Change:
    """Put a new master key into a file, and the one it had into ``<file>.old`` until ``end_change``.

    A change that was begun and not ended is continued: no third key is made.
    """
    old = _old_path(path)
    if not path.exists():
        raise MasterKeyError(f"there is no master key in {path} that could be changed")
    with _lock(path):
        if not old.exists():
            _replace(old, path.read_text(encoding="ascii"))
        if _of_file(old) == _of_file(path):
            _replace(path, new_master_text())
        return Change(_of_file(old), _of_file(path))


def end_change(path: Path, change: Change) -> None:
    """Destroy the master key that a change began with: nothing is wrapped with it any more."""
    old = _old_path(path)
    with _lock(path):
        if old.exists() and _of_file(old) == change.old:  # not that of a later change
            old.unlink()
            sync_folder(path.parent)


def read_previous(setting: str, default: Path) -> MasterKey | None:
    """The master key before the one in force, while that is being changed in its file; ``None`` at other times."""
    path = master_file(setting, default)
    with suppress(FileNotFoundError):
        if path is not None:
            return _of_text(_old_path(path).read_text(encoding="ascii").strip(), str(_old_path(path)))
    return None


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _old_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_folder(path.parent, needed=True):
            yield
    except OSError as problem:
        if problem.errno in NO_ROOM:
            message = f"no room for the master key in {path}: the disk is full; free some space and try again"
            raise StoreFullError(message) from problem
        raise MasterKeyError(
            f"the master key cannot be written to {path}: {problem}; where others put it there, give the new one with "
            "holdfast key rotate --new"
        ) from problem


def _replace(path: Path, text: str) -> None:
    """Write a file that only its owner may read: whole or not at all, and on the disk when this returns. The caller has
    the lock, so a draft that is there is of an earlier try that was cut short.
    """
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    with new_file(draft) as file:
        file.write(text.strip().encode() + b"\n")
        sync_file(file)
        name_file(file, draft, path)
    sync_folder(path.parent)


# --- reading it ---------------------------------------------------------------------------------------------------


def _of_file(path: Path) -> MasterKey:
    try:
        return _of_text(path.read_text(encoding="ascii").strip(), str(path))
    except (OSError, UnicodeDecodeError) as problem:
        raise MasterKeyError(f"the master key cannot be read from {path}: {problem}") from problem


def _of_command(command: str, called: str) -> MasterKey:
    import shlex
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command
            shlex.split(command), capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        said = getattr(problem, "stderr", "") or problem
        raise MasterKeyError(f"the command that {called} names gave no key: {str(said).strip()}") from None
    return _of_text(done.stdout.strip(), f"what the command of {called} printed")


def _of_text(text: str, source: str) -> MasterKey:
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise InvalidSettingsError(f"{source} is no master key: give 32 bytes in base64, as made by: holdfast key new")
    return MasterKey(hashlib.sha256(b"holdfast master key\0" + secret).hexdigest()[:16], secret)
