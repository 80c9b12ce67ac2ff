"""The key that certificates are signed with: Ed25519, made when it is first needed.

Its private half is wrapped with the master key and lies beside the data keys (``keys/signing/<id>.json``);
``keys/signing/current`` says which one signs. Public halves (``keys/signing/<id>.pub``, in PEM) are in clear and stay
for ever: what was signed can be verified after a rotation, and after the master key was lost.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core import errors
from holdfast.privacy.keys.encryption import KEY_BYTES, DataKey
from holdfast.privacy.keys.keyring import SIGNING, Keyring

if TYPE_CHECKING:
    from holdfast.ports.objects import ObjectStore


#: What stands before the 32 bytes of a public key of Ed25519 in DER (RFC 8410).
_DER: Final = bytes.fromhex("302a300506032b6570032100")


def public_id(public: bytes) -> str:
    """The id of a key."""
    return hashlib.sha256(b"holdfast signing key\0" + public).hexdigest()[:32]


def public_pem(public: bytes) -> bytes:
    """A public half as other programs read it (``openssl pkey -pubin``). What could write it in every form that there
    is takes longer to load than an erasure takes.
    """
    return b"-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n" % base64.b64encode(_DER + public)


def read_public(text: str | bytes) -> bytes:
    """The 32 bytes of a public half that is given in PEM, or as a certificate has it (in base64)."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        if b"-----BEGIN" in data:
            key = load_pem_public_key(data)
            if isinstance(key, Ed25519PublicKey):
                return key.public_bytes_raw()
        else:
            public = base64.b64decode(data.strip(), validate=True)
            if len(public) == KEY_BYTES:
                return public
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        pass
    raise errors.InvalidInputError(
        "that is no public key of Ed25519; give it in PEM, as holdfast key public prints it, "
        "or in base64, as a certificate has it"
    )


def is_signature(signature: bytes, message: bytes, public: bytes) -> bool:
    """Whether a message was signed, exactly as it is, with the private half of a key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


_CURRENT: Final = f"{SIGNING}current"
_PUBLIC: Final = re.compile(rf"{SIGNING}([0-9a-f]{{32}})\.pub")
_ID: Final = re.compile(r"[0-9a-f]{32}")


class SigningKey(NamedTuple):
    """A private key, its public half, and their id: the beginning of a digest of the public half."""

    id: str
    secret: bytes
    public: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(message)


class SigningKeys:
    """The signing key in use and the public halves of all that ever were, in an object store."""

    def __init__(self, objects: ObjectStore, keyring: Keyring) -> None:
        self._objects = objects
        self._keyring = keyring

    def current(self, *, now: int) -> SigningKey:
        """The key to sign with, made if there is none."""
        self._objects.prepare()
        while True:
            key_id = self.current_id()
            if key_id is None:
                with suppress(errors.ConflictError):  # another was faster
                    return self._install(self._make(now), absent=True)
                continue
            with suppress(errors.ObjectMissingError):
                return self._open(key_id, self._objects.get(_private_name(key_id)))
            if self.current_id() == key_id:  # no rotation has removed it
                raise errors.ObjectDamagedError(
                    f"the private half of signing key {key_id} is missing; bring it back from a copy of the keyring, "
                    "or make another key with: holdfast key rotate --signing"
                )

    def rotate(self, *, now: int) -> SigningKey:
        """Make a new key to sign with. The private half of the old one is destroyed, the public one stays.

        The old one need not be opened, so this also works after the master key was lost.
        """
        self._objects.prepare()
        while True:
            try:
                before, tag = self._objects.get_with_tag(_CURRENT)
            except errors.ObjectMissingError:
                before, tag = b"", None
            key = self._make(now)
            with suppress(errors.ConflictError):  # another process has rotated meanwhile: its key is replaced too
                self._install(key, absent=tag is None, match=tag)
                old = before.decode("ascii", errors="replace").strip()
                self._objects.delete([_private_name(old)] if _ID.fullmatch(old) else [])
                return key

    def public(self, key_id: str) -> bytes | None:
        """The public half of a key that this store has signed with; ``None`` if it never had one of that id."""
        if not _ID.fullmatch(key_id):
            return None
        try:
            public = read_public(self._objects.get(_public_name(key_id)))
        except errors.ObjectMissingError:
            return None
        except errors.InvalidInputError as problem:
            raise _damaged_error(key_id) from problem
        if public_id(public) != key_id:
            raise _damaged_error(key_id)
        return public

    def public_ids(self) -> Iterator[str]:
        """The ids of all keys that this store has ever signed with."""
        for name in self._objects.names(SIGNING):
            found = _PUBLIC.fullmatch(name)
            if found:
                yield found[1]

    def current_id(self) -> str | None:
        """The id of the key in use; ``None`` if none has been needed yet."""
        try:
            found = self._objects.get(_CURRENT).decode("ascii", errors="replace").strip()
        except errors.ObjectMissingError:
            return None
        if not _ID.fullmatch(found):
            raise errors.ObjectDamagedError(
                f"{_CURRENT} in {self._objects.url} is damaged; bring it back from a copy of the keyring, or make "
                "another signing key with: holdfast key rotate --signing"
            )
        return found

    # --- how it is kept ------------------------------------------------------------------------------------------

    def _make(self, now: int) -> SigningKey:
        """Make a new key and write both halves; it is not in use yet."""
        self._keyring.claim()
        secret = secrets.token_bytes(KEY_BYTES)
        public = _public_of(secret)
        key = SigningKey(public_id(public), secret, public)
        self._objects.put(_public_name(key.id), public_pem(public))
        self._keyring.keep(_private_name(key.id), DataKey(key.id, secret), now=now)
        return key

    def _install(self, key: SigningKey, *, absent: bool, match: str | None = None) -> SigningKey:
        """Make it the key in use; if another process was faster, remove it again: it has signed nothing."""
        try:
            self._objects.put(_CURRENT, key.id.encode() + b"\n", absent=absent, match=match)
        except errors.ConflictError:
            self._objects.delete([_private_name(key.id), _public_name(key.id)])
            raise
        return key

    def _open(self, key_id: str, data: bytes) -> SigningKey:
        try:
            secret = self._keyring.unwrap(key_id, data).secret
        except errors.MasterKeyError as problem:
            raise errors.MasterKeyError(
                f"the signing key cannot be opened: {problem}; another signing key alone is made with: holdfast key "
                "rotate --signing"
            ) from problem
        public = _public_of(secret)
        if public_id(public) != key_id:
            raise _damaged_error(key_id)
        return SigningKey(key_id, secret, public)


def _public_of(secret: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _private_name(key_id: str) -> str:
    return f"{SIGNING}{key_id}.json"


def _public_name(key_id: str) -> str:
    return f"{SIGNING}{key_id}.pub"


def _damaged_error(key_id: str) -> errors.ObjectDamagedError:
    return errors.ObjectDamagedError(f"signing key {key_id} is damaged; bring it back from a copy of the keyring")
