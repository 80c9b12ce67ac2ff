"""The master key: what all data keys are wrapped with. From a file, the environment, or a command."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import shlex
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from retain.core.errors import InvalidSettingsError, MasterKeyError
from retain.privacy.sealing import KEY_BYTES

_SECONDS: Final = 30


class MasterKey(NamedTuple):
    """A key of 256 bits, and the name it goes by: the beginning of a digest of it."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"MasterKey({self.id})"


def read_master(setting: str, default: Path) -> MasterKey | None:
    """The master key that a setting gives: ``file:<path>``, ``command:<command>``, or the key itself in base64.

    Without a setting it is in the ``default`` file; ``None`` if that is not there yet.
    """
    if not setting:
        return _of_file(default) if default.exists() else None
    scheme, _, rest = setting.partition(":")
    if scheme == "file":
        path = Path(rest).expanduser()
        if not path.exists():
            raise MasterKeyError(
                f"the master key's file {path} is not there; bring it back, or correct RETAIN_MASTER_KEY"
            )
        return _of_file(path)
    if scheme == "command":
        return _of_command(rest)
    return _of_text(setting, "RETAIN_MASTER_KEY")


def make_master(path: Path) -> MasterKey:
    """A new master key, in a file that only its owner may read; the one that is there, if another was faster."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _of_file(path)
    with os.fdopen(file, "wb") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return _of_file(path)


def _of_file(path: Path) -> MasterKey:
    try:
        return _of_text(path.read_text(encoding="ascii").strip(), str(path))
    except (OSError, UnicodeDecodeError) as problem:
        raise MasterKeyError(f"the master key cannot be read from {path}: {problem}") from problem


def _of_command(command: str) -> MasterKey:
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command
            shlex.split(command), capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        said = getattr(problem, "stderr", "") or problem
        raise MasterKeyError(f"the command that RETAIN_MASTER_KEY names gave no key: {str(said).strip()}") from None
    return _of_text(done.stdout.strip(), "what the command of RETAIN_MASTER_KEY printed")


def _of_text(text: str, source: str) -> MasterKey:
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise InvalidSettingsError(
            f"{source} is no master key: it must be 32 bytes in base64, as made by: retain key new"
        )
    return MasterKey(hashlib.sha256(b"retain master key\0" + secret).hexdigest()[:16], secret)
