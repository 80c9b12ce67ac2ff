"""Signatures of Ed25519, and the public keys that they are held against."""

from __future__ import annotations

import base64
import binascii
import hashlib

from holdfast.core.errors import InvalidInputError
from holdfast.privacy.keys.sealing import KEY_BYTES


def public_id(public: bytes) -> str:
    """The name that a key goes by."""
    return hashlib.sha256(b"holdfast signing key\0" + public).hexdigest()[:32]


def public_pem(public: bytes) -> bytes:
    """A public half as other programs read it (``openssl pkey -pubin``)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - costs time
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public(text: str | bytes) -> bytes:
    """The 32 bytes of a public half that is given in PEM, or as a certificate has it (in base64)."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - costs time
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

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
    raise InvalidInputError(
        "that is no public key of Ed25519; give it in PEM, as holdfast key public prints it, "
        "or in base64, as a certificate has it"
    )


def is_signature(signature: bytes, message: bytes, public: bytes) -> bool:
    """Whether a message was signed, exactly as it is, with the private half of a key."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - costs time
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
