"""Sealed bytes: encrypted and authenticated, under a key that can be destroyed.

A sealed text is a line that says what it is and under which key (``holdfast-sealed 1 <key id> <print>``), a nonce of
twelve bytes, and what AES-256-GCM makes of the content; line and name are authenticated with it, so that nothing can be
taken for something else. The print is the beginning of a digest of the key: two keyrings may have keys of the same id.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_LINE: Final = re.compile(rb"holdfast-sealed (\d+) ([0-9a-f]{32}) ([0-9a-f]{16})\n")
_VERSION: Final = b"1"
_NONCE: Final = 12
KEY_BYTES: Final = 32


class SealBrokenError(ValueError):
    """The bytes are not as they were sealed, or not sealed under this key, or for another name."""


class OtherKeyError(SealBrokenError):
    """It was sealed under another key of the same id: one of another keyring, or one that was there before."""


class DataKey(NamedTuple):
    """A random key, and its id."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"DataKey({self.id})"


def new_key(key_id: str) -> DataKey:
    """A new random key."""
    return DataKey(key_id, secrets.token_bytes(KEY_BYTES))


def seal(key: DataKey, name: str, content: bytes) -> bytes:
    """The content, encrypted and authenticated under a key, for a name."""
    line = b"holdfast-sealed %s %s %s\n" % (_VERSION, key.id.encode(), _print_of(key))
    nonce = secrets.token_bytes(_NONCE)
    return line + nonce + _cipher(key).encrypt(nonce, content, line + name.encode())


def unseal(key: DataKey, name: str, data: bytes) -> bytes:
    """What was sealed; ``SealBrokenError`` unless each byte, the key and the name are as they were."""
    from cryptography.exceptions import InvalidTag

    found = _LINE.match(data)
    if found is None:
        raise SealBrokenError("it is not sealed, or its beginning is damaged")
    if found[1] != _VERSION:
        raise SealBrokenError(f"it is sealed in a format of a newer version of Holdfast ({found[1].decode()})")
    if found[3] != _print_of(key):
        raise OtherKeyError(f"it was sealed under another key {found[2].decode()} than the one that is there")
    start = found.end()
    try:
        return _cipher(key).decrypt(data[start : start + _NONCE], data[start + _NONCE :], found[0] + name.encode())
    except (InvalidTag, ValueError) as problem:
        raise SealBrokenError("it is damaged, or was sealed for another name") from problem


def sealed_under(data: bytes) -> str | None:
    """The id of the key that something is sealed under; ``None`` if it is not sealed."""
    found = _LINE.match(data)
    return None if found is None else found[2].decode()


def _print_of(key: DataKey) -> bytes:
    return hashlib.sha256(b"holdfast key print\0" + key.secret).hexdigest()[:16].encode()


def _cipher(key: DataKey) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key.secret)
