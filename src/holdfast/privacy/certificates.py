"""``holdfast.certificates``: certificates of erasures, kept outside of the data (``certificates/<id>.json``).

A certificate says what was found, removed and left in each place. It names the user by pseudonym only. The signature
(Ed25519) covers the canonical JSON of everything but the signature: keys in order, no white space, UTF-8, which is what
``jq -cSj 'del(.signature)'`` writes; so a certificate can be checked without Holdfast, and without the key that signed
it.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from holdfast.core import errors
from holdfast.core.audit import Action
from holdfast.core.errors import quote
from holdfast.core.records import Subject
from holdfast.core.values import check_count, is_id, iso, to_json
from holdfast.installation import SOFTWARE
from holdfast.privacy.erasure import Erasure, PlaceCount
from holdfast.privacy.keys.signatures import SigningKey, SigningKeys, is_signature, public_id
from holdfast.privacy.ledger import Erased

if TYPE_CHECKING:  # an erasure does not wait for them
    from holdfast.ports.objects import ObjectStore
    from holdfast.ports.records import AuditStore
    from holdfast.results.lifecycle import CertificateResult

_log = logging.getLogger("holdfast.certificates")
FOLDER: Final = "certificates/"
VERSION: Final = 1
_MOST_LISTED: Final = 10_000


class Engines(NamedTuple):
    """Where a store keeps its data."""

    database: str
    """``sqlite`` or ``postgresql``."""
    has_short_term_server: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a certificate is genuine; falsy if it is not, or if its signer is not one that you trust."""

    signed: bool
    """Whether every word of it was signed with the key that it names."""
    trusted: bool
    """Whether it was, and that key is one that you trust."""
    reasons: tuple[str, ...]
    """What is wrong, in words; empty if nothing is."""
    document: CertificateResult | None
    """The certificate, where it could be read."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons

    def __bool__(self) -> bool:
        return self.ok


def remarks_on(engines: Engines, *, pending: bool) -> list[str]:
    """What an erasure on these engines does not cover, so that nobody takes it for more than it is."""
    names = ["reader" if pending else "overwritten"]
    if engines.database != "sqlite":
        names = [*(["unfinished"] if pending else []), "server"]
    names += ["short_term"] if engines.has_short_term_server else []
    remarks = tomllib.loads(_read_data("remarks.toml"))
    return [remarks[name] for name in (*names, "sealed", "working", "chain", "reach")]


def find_erasure(audit: AuditStore, tenants: Iterable[str], alias: str) -> dict[str, Any] | None:
    """The latest entry of a tenant's audit chain that says that a pseudonym was erased: its chain, number and hash;
    ``None`` if there is none. No name leads to the user's own chain any more.
    """
    for tenant in dict.fromkeys(tenants):
        entries = [entry for entry in audit.of_item(Subject(tenant), alias) if entry.action == Action.ERASED]
        if entries:
            return {name: getattr(entries[-1], name) for name in ("chain", "seq", "hash")}
    return None


@dataclass(eq=False)
class Certificates:
    """``holdfast.certificates``. ``find_audit`` finds the audit entry that says that a pseudonym was erased."""

    _objects: ObjectStore
    _keys: SigningKeys
    _engines: Engines
    _find_audit: Callable[[str], dict[str, Any] | None]
    _now: Callable[[], int]
    _new_id: Callable[[], str]

    def prepare(self) -> None:
        """Make sure that there is a key to sign with: ``MasterKeyError`` or ``ObjectStoreError`` if it cannot be used.

        Call it before something that is to be certified and cannot be repeated.
        """
        self._keys.current(now=self._now())

    def issue(self, entry: Erased, places: Sequence[PlaceCount], *, pending: bool = False) -> CertificateResult:
        """Sign and keep a certificate of what an erasure found, removed and left."""
        now = self._now()
        unsigned = {
            "holdfast_certificate": VERSION,
            "id": self._new_id(),
            "issued_at": iso(now),
            "subject": entry.key,
            "ledger": {"no": entry.no, "hash": entry.hash, "begun_at": iso(entry.at)},
            "engine": self._engines.database,
            "places": [one._asdict() for one in places],
            "pending": pending,
            "audit": self._find_audit(entry.key),
            "remarks": remarks_on(self._engines, pending=pending),
            "software": SOFTWARE,
        }
        document = sign(unsigned, self._keys.current(now=now))
        self._objects.put(_name(document["id"]), json.dumps(document, indent=2).encode() + b"\n", absent=True)
        return document

    def certify(self, erasure: Erasure) -> CertificateResult | None:
        """A certificate of an erasure; ``None``, with a warning, if none can be signed or written now. The erasure
        stands, and the store can be opened.
        """
        if erasure.entry is None:
            return None
        try:
            return self.issue(erasure.entry, erasure.places, pending=erasure.pending)
        except errors.HoldfastError as problem:
            _log.warning("%s was erased, but no certificate could be issued: %s", erasure.alias, problem)
            return None

    def list(self, limit: int = 100, *, before: str | None = None) -> list[CertificateResult]:
        """The latest certificates, the newest last; with ``before``, the latest of those issued before that one."""
        check_count(limit, "limit", most=_MOST_LISTED)
        names = (name.removeprefix(FOLDER).removesuffix(".json") for name in self._objects.names(FOLDER))
        ids = sorted(one for one in names if is_id(one) and (before is None or one < before))
        return [self.get(one) for one in ids[-limit:]]

    def get(self, certificate_id: str) -> CertificateResult:
        """A certificate, as it lies there; ``verify`` says whether it is as it was signed."""
        try:
            return read_certificate(self._read(certificate_id))
        except errors.InvalidInputError as problem:
            raise errors.ObjectDamagedError(
                f"certificate {certificate_id} in {self._objects.url} is damaged: {problem}"
            ) from None

    def page(self, certificate_id: str) -> str:
        """A certificate as a page for people."""
        return readable_page(self.get(certificate_id))

    def verify(
        self, certificate: Mapping[str, object] | str | bytes, *, public_key: bytes | Sequence[bytes] | None = None
    ) -> Verdict:
        """Whether a certificate (its id, its JSON, or its page) is as it was signed, by a key that you trust.

        Without ``public_key`` it is compared with the keys that this store has ever signed with.
        """
        given = self._read(str(certificate)) if is_id(certificate) else certificate
        if public_key is None:
            verdict = verify_certificate(given)
            if not verdict.signed or verdict.document is None:
                return verdict
            known = self._keys.public(verdict.document["key"]["id"])
            public_key = [] if known is None else [known]
        return verify_certificate(given, public_key=public_key)

    def _read(self, certificate_id: str) -> bytes:
        if not is_id(certificate_id):
            raise errors.NotFoundError(
                f"there is no certificate {quote(certificate_id)}; see: holdfast certificate list"
            )
        try:
            return self._objects.get(_name(certificate_id))
        except errors.ObjectMissingError:
            raise errors.NotFoundError(f"there is no certificate {certificate_id} in {self._objects.url}") from None


def _name(certificate_id: str) -> str:
    return f"{FOLDER}{certificate_id}.json"


# --- signing and verifying --------------------------------------------------------------------------------------------


def sign(document: Mapping[str, object], key: SigningKey) -> CertificateResult:
    """A certificate with the id and the public half of its key, and the signature over all of it."""
    content = {name: value for name, value in document.items() if name not in ("key", "signature")}
    content["key"] = {"id": key.id, "algorithm": "Ed25519", "public": _to_base64(key.public)}
    problem = form_problem({**content, "signature": _to_base64(bytes(64))})
    if problem is not None:
        raise errors.InvalidInputError(f"nothing was signed: {problem}")
    return cast("CertificateResult", {**content, "signature": _to_base64(key.sign(signed_bytes(content)))})


def signed_bytes(document: Mapping[str, object]) -> bytes:
    """What is signed of a certificate: its canonical JSON without the signature."""
    content = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def verify_certificate(
    certificate: Mapping[str, object] | str | bytes, *, public_key: bytes | Sequence[bytes] | None = None
) -> Verdict:
    """Whether a certificate (the JSON, as text or read; or its page) was signed as it is, by a key that you trust.

    ``public_key`` is the public half, or the halves, that you trust. Without one, ``signed`` may be true, but do not
    rely on the certificate: anyone can sign with a key of their own.
    """
    try:
        document, page = _read(certificate)
        problem = form_problem(document) or _signature_problem(document)
    except (ValueError, RecursionError) as unreadable:
        return Verdict(signed=False, trusted=False, reasons=(f"it cannot be read: {unreadable}",), document=None)
    if problem is not None:
        return Verdict(signed=False, trusted=False, reasons=(problem,), document=document)
    reasons = []
    if page is not None and page.replace("\r\n", "\n").strip() != readable_page(document).strip():
        reasons.append("the certificate is good, but the page around it was changed: believe the certificate alone")
    trusted = [public_key] if isinstance(public_key, bytes) else list(public_key or ())
    is_trusted = base64.b64decode(document["key"]["public"]) in trusted
    if not is_trusted:
        named = f"key {document['key']['id']}"
        reasons.append(
            f"the signature is good, but {named} is not one that you trust"
            if public_key is not None
            else f"the signature is good, but no public key was given to say that {named} is one to trust"
        )
    return Verdict(signed=True, trusted=is_trusted, reasons=tuple(reasons), document=document)


def read_certificate(certificate: str | bytes) -> CertificateResult:
    """The certificate that a text holds, or its page; ``InvalidInputError`` if it is none. It is not verified."""
    try:
        document, _ = _read(certificate)
        problem = form_problem(document)
    except (ValueError, RecursionError) as unreadable:
        problem = str(unreadable)
    if problem is not None:
        raise errors.InvalidInputError(f"that is no certificate: {problem}")
    return document


def _read(certificate: Mapping[str, object] | str | bytes) -> tuple[CertificateResult, str | None]:
    """A certificate, and the page that it was in."""
    if isinstance(certificate, Mapping):
        return cast("CertificateResult", dict(certificate)), None
    text = certificate.decode() if isinstance(certificate, bytes) else certificate
    if not text.lstrip().startswith("<"):
        return _parse(text), None
    found = _CONTENT.findall(text)
    if len(found) != 1:
        raise ValueError("it is a page, but not one that holds a certificate")
    return _parse(html.unescape(found[0])), text


def _parse(text: str) -> CertificateResult:
    """The object in a JSON text, if it is written in the one canonical way, apart from white space."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it is JSON, but no object")  # noqa: TRY004 - it is the text that is wrong
    if _BLANKS.sub(r"\1", text) not in (to_json(document), json.dumps(document, separators=(",", ":"))):
        raise ValueError("it says something twice, or in an unusual way")
    return cast("CertificateResult", document)


def _signature_problem(document: CertificateResult) -> str | None:
    public = base64.b64decode(document["key"]["public"])
    if public_id(public) != document["key"]["id"]:
        return "the signature is wrong: the key's name and its public half do not belong together"
    if not is_signature(base64.b64decode(document["signature"]), signed_bytes(document), public):
        return "the signature is wrong: something was changed after it was signed"
    return None


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- the form of a certificate ----------------------------------------------------------------------------------------

_BLANKS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_HEX_32, _HEX_64 = r"[0-9a-f]{32}", r"[0-9a-f]{64}"
#: 32 and 64 bytes, in the one way that base64 has for them: the last letter has bits to spare.
_BASE64_32: Final = r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
_BASE64_64: Final = r"[A-Za-z0-9+/]{85}[AQgw]=="
_MOMENT: Final = r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}(\.[0-9]{6})?\+00:00"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value != ""


#: What each field is: a pattern of texts, a type, a test, an object of fields, a list of such, or one of several.
_SHAPE: Final[Mapping[str, Any]] = {
    "holdfast_certificate": int,
    "id": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "issued_at": _MOMENT,
    "subject": _HEX_32,
    "ledger": {"no": _is_count, "hash": _HEX_64, "begun_at": _MOMENT},
    "engine": r"[a-z]+",
    "places": [{"name": _is_text, "found": _is_count, "removed": _is_count, "left": _is_count}],
    "pending": bool,
    "audit": (type(None), {"chain": _HEX_32, "seq": _is_count, "hash": _HEX_64}),
    "remarks": [_is_text],
    "software": _is_text,
    "key": {"id": _HEX_32, "algorithm": "Ed25519", "public": _BASE64_32},
    "signature": _BASE64_64,
}


def _fits(value: Any, shape: Any) -> bool:
    match shape:
        case str():
            return isinstance(value, str) and re.fullmatch(shape, value) is not None
        case dict():
            return isinstance(value, Mapping) and _find_misfit(value, shape) is None
        case list():
            return isinstance(value, list) and all(_fits(one, shape[0]) for one in value)
        case tuple():
            return any(_fits(value, one) for one in shape)
        case type():
            return type(value) is shape
        case _:
            return bool(shape(value))


def _find_misfit(value: Mapping[str, object], shape: Mapping[str, Any]) -> str | None:
    """The first field that is unknown, missing or wrong."""
    unknown = (str(name) for name in value if name not in shape)
    wrong = (name for name, one in shape.items() if name not in value or not _fits(value[name], one))
    return next(unknown, None) or next(wrong, None)


def form_problem(document: Mapping[str, object]) -> str | None:
    """Why a document is no certificate, apart from the signature; ``None`` if it is one."""
    version = document.get("holdfast_certificate")
    if type(version) is not int:
        return "it is no certificate of Holdfast"
    if version != VERSION:
        return f"it is a certificate of version {version}, and this Holdfast knows version {VERSION}"
    misfit = _find_misfit(document, _SHAPE)
    return None if misfit is None else f"its {misfit[:40]!r} is missing, or not what a certificate has there"


# --- the page for people ----------------------------------------------------------------------------------------------

_CONTENT: Final = re.compile(r'<pre id="certificate">(.*?)</pre>', re.DOTALL)


@cache
def _read_data(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def readable_page(document: CertificateResult) -> str:
    """The page of a certificate; the same for the same certificate, to the byte."""
    ledger, audit, key = document["ledger"], document["audit"], document["key"]
    places = [
        f"<tr><td>{_safe(place['name'])}</td>"
        + "".join(f'<td class="n">{place[count]:,}</td>' for count in ("found", "removed", "left"))
        + "</tr>"
        for place in document["places"]
    ]
    references = (
        ("Erased", f"the user with the pseudonym {document['subject']}"),
        ("Erasure", f"entry {ledger['no']} of the ledger, begun {ledger['begun_at']}"),
        ("Hash of that entry", ledger["hash"]),
        ("Audit chain", "" if audit is None else f"entry {audit['seq']} of chain {audit['chain']}"),
        ("Hash of that entry", "" if audit is None else audit["hash"]),
        ("Database", document["engine"]),
        ("Issued", f"{document['issued_at']} by {document['software']}"),
        ("Signed with key", key["id"]),
        ("Public key", f"{key['public']} ({key['algorithm']})"),
    )
    rows = [f"<tr><th>{name}</th><td><code>{_safe(value)}</code></td></tr>" for name, value in references if value]
    return Template(_read_data("certificate.html")).substitute(
        id=_safe(document["id"]),
        summary=_summarize(document),
        places="".join(places),
        remarks="".join(f"<li>{_safe(remark)}</li>" for remark in document["remarks"]),
        references="".join(rows),
        certificate=_safe(json.dumps(document, indent=2)),
    )


def _summarize(document: CertificateResult) -> str:
    """How the erasure ended, in a sentence."""
    left = sum(place["left"] for place in document["places"])
    if left:
        return f'<p class="open">The erasure is not complete: {left:,} were still there afterwards.</p>'
    if document["pending"]:
        return '<p class="open">The erasure is not complete yet: see the remarks.</p>'
    return "<p>All that was found was removed; a second look at every place found nothing.</p>"


def _safe(text: object) -> str:
    return html.escape(str(text))
