"""A certificate of an erasure: what was found, removed and left in each place, signed.

It names the user by pseudonym only. The signature (Ed25519) covers the canonical JSON of everything but the
signature: keys in order, no white space, UTF-8, which is what ``jq -cSj 'del(.signature)'`` writes; so a certificate
can be checked without Holdfast, and without the key that signed it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.core.errors import InvalidInputError
from holdfast.core.values import iso, to_json
from holdfast.installation import SOFTWARE
from holdfast.privacy.erasure import PlaceCount
from holdfast.privacy.keys.signatures import SigningKey, is_signature, public_id
from holdfast.privacy.ledger import Erased

_CONTENT: Final = re.compile(r'<pre id="certificate">(.*?)</pre>', re.DOTALL)
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:3rem auto;padding:0 1rem;color:#1a1a1a}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
    "code,pre{font:13px/1.5 ui-monospace,monospace;overflow-wrap:anywhere;white-space:pre-wrap}"
    "pre{background:#f6f6f6;padding:1rem}.open{color:#a00;font-weight:bold}"
)
_ADVICE: Final = (
    "A page proves nothing: anyone can write one. Verify it with a public key that you have from elsewhere: "
    "<code>holdfast certificate verify FILE --public-key KEY.pem</code>"
)


def readable_page(document: Mapping[str, Any]) -> str:
    """The page of a certificate; the same for the same certificate, to the byte."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Certificate of erasure {_safe(document['id'])}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Certificate of erasure</h1><p><code>{_safe(document['id'])}</code></p>",
        _page_summary(document),
        _page_places(document["places"]),
        "<h2>What this says, and what it does not</h2>",
        "<ul>" + "".join(f"<li>{_safe(remark)}</li>" for remark in document["remarks"]) + "</ul>",
        "<h2>What it refers to</h2>",
        _page_references(document),
        "<h2>The certificate itself</h2>",
        f"<p>{_ADVICE}</p>",
        f'<pre id="certificate">{_safe(json.dumps(document, indent=2))}</pre>',
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def page_content(text: str) -> str | None:
    """The certificate in a page, as it is written there; ``None`` if the text is no page of ours."""
    if not text.lstrip().startswith("<"):
        return None
    found = _CONTENT.findall(text)
    if len(found) != 1:
        raise ValueError("it is a page, but not one that holds a certificate")
    return html.unescape(found[0])


def _page_summary(document: Mapping[str, Any]) -> str:
    """How the erasure ended, in a sentence."""
    left = sum(place["left"] for place in document["places"])
    if left:
        return f'<p class="open">The erasure is not complete: {left:,} were still there afterwards.</p>'
    if document["pending"]:
        return '<p class="open">The erasure is not complete yet: see the remarks.</p>'
    return "<p>All that was found was removed; a second look at every place found nothing.</p>"


def _page_places(places: Sequence[Mapping[str, Any]]) -> str:
    head = '<th>Place</th><th class="n">Found</th><th class="n">Removed</th><th class="n">Left</th>'
    rows = [
        f"<tr><td>{_safe(place['name'])}</td>"
        + "".join(f'<td class="n">{place[count]:,}</td>' for count in ("found", "removed", "left"))
        + "</tr>"
        for place in places
    ]
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _page_references(document: Mapping[str, Any]) -> str:
    ledger, audit, key = document["ledger"], document["audit"], document["key"]
    facts = (
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
    rows = [f"<tr><th>{name}</th><td><code>{_safe(value)}</code></td></tr>" for name, value in facts if value]
    return f"<table>{''.join(rows)}</table>"


def _safe(text: object) -> str:
    return html.escape(str(text))


VERSION: Final = 1
_HEX_32, _HEX_64 = r"[0-9a-f]{32}", r"[0-9a-f]{64}"
#: 32 and 64 bytes, in the one way that base64 has for them: the last letter has bits to spare.
_BASE64_32: Final = r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
_BASE64_64: Final = r"[A-Za-z0-9+/]{85}[AQgw]=="
_MOMENT: Final = r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}(\.[0-9]{6})?\+00:00"


_Fits = Callable[[object], bool]


def _is(pattern: str) -> _Fits:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value != ""


def _is_list(of: _Fits) -> _Fits:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _has(**shape: _Fits) -> _Fits:
    return lambda value: isinstance(value, Mapping) and _find_misfit(value, shape) is None


def _find_misfit(value: Mapping[str, Any], shape: Mapping[str, _Fits]) -> str | None:
    """The first field that is unknown, missing or wrong."""
    unknown = [str(name) for name in value if name not in shape]
    wrong = (name for name, fits in shape.items() if name not in value or not fits(value[name]))
    return unknown[0] if unknown else next(wrong, None)


_is_audit: Final = _has(chain=_is(_HEX_32), seq=_is_count, hash=_is(_HEX_64))
_SHAPE: Final[Mapping[str, _Fits]] = {
    "holdfast_certificate": lambda value: type(value) is int,
    "id": _is(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "issued_at": _is(_MOMENT),
    "subject": _is(_HEX_32),
    "ledger": _has(no=_is_count, hash=_is(_HEX_64), begun_at=_is(_MOMENT)),
    "engine": _is(r"[a-z]+"),
    "places": _is_list(_has(name=_is_text, found=_is_count, removed=_is_count, left=_is_count)),
    "pending": lambda value: isinstance(value, bool),
    "audit": lambda value: value is None or _is_audit(value),
    "remarks": _is_list(_is_text),
    "software": _is_text,
    "key": _has(id=_is(_HEX_32), algorithm=_is("Ed25519"), public=_is(_BASE64_32)),
    "signature": _is(_BASE64_64),
}


def form_problem(document: Mapping[str, Any]) -> str | None:
    """Why a document is no certificate, apart from the signature; ``None`` if it is one."""
    version = document.get("holdfast_certificate")
    if type(version) is not int:
        return "it is no certificate of Holdfast"
    if version != VERSION:
        return f"it is a certificate of version {version}, and this Holdfast knows version {VERSION}"
    misfit = _find_misfit(document, _SHAPE)
    return None if misfit is None else f"its {misfit[:40]!r} is missing, or not what a certificate has there"


_BLANKS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)


class Audited(NamedTuple):
    """The entry of the tenant's audit chain that says that a pseudonym was erased. No name leads to the user's own
    chain any more.
    """

    chain: str
    seq: int
    hash: str


class Account(NamedTuple):
    """What a certificate says of an erasure."""

    ledger: Erased
    audit: Audited | None
    engine: str
    places: Sequence[PlaceCount]
    pending: bool
    remarks: Sequence[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a certificate is genuine; falsy if it is not, or if its signer is not one that you trust."""

    signed: bool
    """Whether every word of it was signed with the key that it names."""
    trusted: bool
    """Whether it was, and that key is one that you trust."""
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


def draft(account: Account, *, certificate_id: str, now: int) -> dict[str, Any]:
    """A certificate that nobody has signed yet."""
    return {
        "holdfast_certificate": VERSION,
        "id": certificate_id,
        "issued_at": iso(now),
        "subject": account.ledger.key,
        "ledger": {"no": account.ledger.no, "hash": account.ledger.hash, "begun_at": iso(account.ledger.at)},
        "engine": account.engine,
        "places": [one._asdict() for one in account.places],
        "pending": account.pending,
        "audit": None if account.audit is None else account.audit._asdict(),
        "remarks": list(account.remarks),
        "software": SOFTWARE,
    }


def _in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def sign(document: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """A certificate with the id and the public half of its key, and the signature over all of it."""
    content = {name: value for name, value in document.items() if name not in ("key", "signature")}
    content["key"] = {"id": key.id, "algorithm": "Ed25519", "public": _in_base64(key.public)}
    problem = form_problem({**content, "signature": _in_base64(bytes(64))})
    if problem is not None:
        raise InvalidInputError(f"nothing was signed: {problem}")
    return {**content, "signature": _in_base64(key.sign(signed_bytes(content)))}


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """What is signed of a certificate: its canonical JSON without the signature."""
    return to_json(_in_order({name: value for name, value in document.items() if name != "signature"})).encode()


def verify_certificate(
    certificate: Mapping[str, Any] | str | bytes, *, public_key: bytes | Sequence[bytes] | None = None
) -> Verdict:
    """Whether a certificate (the JSON, as text or read; or its page) was signed as it is, by a key that you trust.

    ``public_key`` is the public half, or the halves, that you trust. Without one, ``signed`` may be true, but do not
    rely on the certificate: anyone can sign with a key of their own.
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
            else f"the signature is good, but no public key was given to say that {named} is one to trust"
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
    """A certificate, and the page that it was in."""
    if isinstance(certificate, Mapping):
        return dict(certificate), None
    text = certificate.decode() if isinstance(certificate, bytes) else certificate
    content = page_content(text)
    return _parse(text if content is None else content), None if content is None else text


def _parse(text: str) -> dict[str, Any]:
    """The object in a JSON text, if it is written in the one canonical way, apart from white space."""
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
