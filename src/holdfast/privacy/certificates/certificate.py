"""A certificate of an erasure: what was found, removed and left in each place, signed.

It names whoever was erased by pseudonym only. The signature (Ed25519) covers the canonical JSON of everything but the
signature: keys in order, no white space, UTF-8, which is what ``jq -cSj 'del(.signature)'`` writes; so a certificate
can be checked without Holdfast, and without the key that signed it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from holdfast.core.content import to_json
from holdfast.core.errors import InvalidInputError
from holdfast.core.times import iso
from holdfast.privacy.certificates.html import page_content, readable_page
from holdfast.privacy.keys.signatures import is_signature, public_id
from holdfast.privacy.keys.signing import SigningKey
from holdfast.privacy.ledger import Erased

VERSION: Final = 1
_HEX_32, _HEX_64 = r"[0-9a-f]{32}", r"[0-9a-f]{64}"
_MOMENT: Final = r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}(\.[0-9]{6})?\+00:00"


def _is(pattern: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value != ""


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_all(shape: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(shape, value))


def _or_none(shape: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or shape(value)


def _has(shape: Mapping[str, Callable[[object], bool]]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Mapping) and _misfit(value, shape) is None


def _misfit(value: Mapping[str, Any], shape: Mapping[str, Callable[[object], bool]]) -> str | None:
    """The first field that is missing, unknown or not as it must be."""
    unknown = [str(name) for name in value if name not in shape]
    wrong = (name for name, fits in shape.items() if name not in value or not fits(value[name]))
    return unknown[0] if unknown else next(wrong, None)


def in_base64(data: bytes) -> str:
    """Bytes as a certificate has them."""
    return base64.b64encode(data).decode()


def _is_base64(size: int) -> Callable[[object], bool]:
    """Whether it is so many bytes, written in the one way that base64 has: its last letter has bits to spare."""

    def fits(value: object) -> bool:
        try:
            data = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
        except (binascii.Error, ValueError):
            return False
        return len(data) == size and in_base64(data) == value

    return fits


_SHAPE: Final[Mapping[str, Callable[[object], bool]]] = {
    "holdfast_certificate": lambda value: type(value) is int,
    "id": _is(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "issued_at": _is(_MOMENT),
    "subject": _is(_HEX_32),
    "ledger": _has({"no": _is_count, "hash": _is(_HEX_64), "begun_at": _is(_MOMENT)}),
    "engine": _is(r"[a-z]+"),
    "places": _is_all(_has({"name": _is_text, "found": _is_count, "removed": _is_count, "left": _is_count})),
    "pending": _is_flag,
    "audit": _or_none(_has({"chain": _is(_HEX_32), "seq": _is_count, "hash": _is(_HEX_64)})),
    "remarks": _is_all(_is_text),
    "software": _is_text,
    "key": _has({"id": _is(_HEX_32), "algorithm": _is("Ed25519"), "public": _is_base64(32)}),
    "signature": _is_base64(64),
}


def form_problem(document: Mapping[str, Any]) -> str | None:
    """What keeps a document from being a certificate, signatures aside."""
    version = document.get("holdfast_certificate")
    if type(version) is not int:
        return "it is no certificate of Holdfast"
    if version != VERSION:
        return f"it is a certificate of version {version}, and this Holdfast knows version {VERSION}"
    misfit = _misfit(document, _SHAPE)
    return None if misfit is None else f"its {misfit[:40]!r} is missing, or not what a certificate has there"


_BLANKS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)


class Place(Protocol):
    """What an erasure found in one place, removed from it, and saw when it looked again."""

    @property
    def name(self) -> str: ...
    @property
    def found(self) -> int: ...
    @property
    def removed(self) -> int: ...
    @property
    def left(self) -> int: ...


class Audited(NamedTuple):
    """The entry "erased" on an audit chain, which names the pseudonym: the tenant's, since no name leads to the chain
    of whoever was erased any more.
    """

    chain: str
    seq: int
    hash: str


class Account(NamedTuple):
    """What a certificate tells of an erasure."""

    ledger: Erased
    audit: Audited | None
    engine: str
    places: Sequence[Place]
    pending: bool
    remarks: Sequence[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a certificate is what it claims to be; falsy when it is not, or when its signer is not one you trust."""

    signed: bool
    """Every word of it was signed with the key that it names."""
    trusted: bool
    """It was, and that key is one of those that you trust."""
    reasons: tuple[str, ...]
    """What is wrong, in words; empty if nothing is."""
    document: dict[str, Any] | None
    """The certificate, where it could be read."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons

    def __bool__(self) -> bool:
        return self.ok


def draft(account: Account, *, certificate_id: str, now: int, software: str) -> dict[str, Any]:
    """A certificate that nobody has signed yet."""
    return {
        "holdfast_certificate": VERSION,
        "id": certificate_id,
        "issued_at": iso(now),
        "subject": account.ledger.key,
        "ledger": {"no": account.ledger.no, "hash": account.ledger.hash, "begun_at": iso(account.ledger.at)},
        "engine": account.engine,
        "places": [
            {"name": one.name, "found": one.found, "removed": one.removed, "left": one.left} for one in account.places
        ],
        "pending": account.pending,
        "audit": None if account.audit is None else account.audit._asdict(),
        "remarks": list(account.remarks),
        "software": software,
    }


def sign(document: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """A certificate with its key's name and public half, and the signature over all of it."""
    said = {name: value for name, value in document.items() if name not in ("key", "signature")}
    said["key"] = {"id": key.id, "algorithm": "Ed25519", "public": in_base64(key.public)}
    problem = form_problem({**said, "signature": in_base64(bytes(64))})
    if problem is not None:
        raise InvalidInputError(f"nothing was signed: {problem}")
    return {**said, "signature": in_base64(key.sign(signed_bytes(said)))}


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """What is signed of a certificate: its canonical JSON without the signature."""
    return to_json(_in_order({name: value for name, value in document.items() if name != "signature"})).encode()


def verify_certificate(
    certificate: Mapping[str, Any] | str | bytes, *, public_key: bytes | Sequence[bytes] | None = None
) -> Verdict:
    """Whether a certificate (the JSON, as text or read; or its page) was signed as it is, by a key that you trust.

    ``public_key`` is the public half, or the halves, that you trust. Without one a certificate can be whole, which
    ``signed`` says, and is not to be relied on: anyone can sign with a key of their own.
    """
    try:
        document, page = _read(certificate)
        problem = form_problem(document)
    except (ValueError, RecursionError) as unreadable:
        return Verdict(signed=False, trusted=False, reasons=(f"it cannot be read: {unreadable}",), document=None)
    if problem is None:
        problem = _signature_problem(document)
    if problem is not None:
        return Verdict(signed=False, trusted=False, reasons=(problem,), document=document)
    reasons = [] if page is None else _page_problems(document, page)
    trusted = [public_key] if isinstance(public_key, bytes) else list(public_key or ())
    is_trusted = base64.b64decode(document["key"]["public"]) in trusted
    if not is_trusted:
        named = f"key {document['key']['id']}"
        reasons.append(
            f"the signature is good, but {named} is not one that you trust"
            if public_key is not None
            else f"the signature is good, but nobody has said that {named} is one to trust"
        )
    return Verdict(signed=True, trusted=is_trusted, reasons=tuple(reasons), document=document)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_certificate(certificate: str | bytes) -> dict[str, Any]:
    """The certificate that a text holds, or its page; ``InvalidInputError`` if it is none. It is not verified."""
    try:
        document, _ = _read(certificate)
        problem = form_problem(document)
    except (ValueError, RecursionError) as unreadable:
        problem = str(unreadable)
    if problem is not None:
        raise InvalidInputError(f"that is no certificate: {problem}")
    return document


def _read(certificate: Mapping[str, Any] | str | bytes) -> tuple[dict[str, Any], str | None]:
    """What a certificate says, and the page that it was in."""
    if isinstance(certificate, Mapping):
        return dict(certificate), None
    text = certificate.decode() if isinstance(certificate, bytes) else certificate
    content = page_content(text)
    return _parsed(text if content is None else content), None if content is None else text


def _parsed(text: str) -> dict[str, Any]:
    """The object that a JSON text holds, if it is written in the one way that JSON has, but for white space."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it is JSON, but no object")  # noqa: TRY004 - it is the text that is wrong
    squeezed = _BLANKS.sub(r"\1", text)
    if squeezed not in (to_json(document), json.dumps(document, separators=(",", ":"))):
        raise ValueError("it says something twice, or in an unusual way")
    return document


def _signature_problem(document: Mapping[str, Any]) -> str | None:
    key = document["key"]
    public = base64.b64decode(key["public"])
    if public_id(public) != key["id"]:
        return "the signature is wrong: the key's name and its public half do not belong together"
    if not is_signature(base64.b64decode(document["signature"]), signed_bytes(document), public):
        return "the signature is wrong: something was changed after it was signed"
    return None


def _page_problems(document: Mapping[str, Any], page: str) -> list[str]:
    if page.replace("\r\n", "\n").strip() == readable_page(document).strip():
        return []
    return [
        "the certificate within the page is good, but the page around it was changed: believe the certificate alone"
    ]


def _in_order(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _in_order(value[name]) for name in sorted(value)}
    return [_in_order(one) for one in value] if isinstance(value, list) else value


__all__ = [
    "Account",
    "Audited",
    "Place",
    "Verdict",
    "draft",
    "read_certificate",
    "readable_page",
    "sign",
    "signed_bytes",
    "verify_certificate",
]
