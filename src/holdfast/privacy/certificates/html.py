"""A certificate as a page for people. It needs nothing from elsewhere, and holds the certificate itself, so that it can
be verified from the page too.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

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
        _told(document),
        _places(document["places"]),
        "<h2>What this says, and what it does not</h2>",
        "<ul>" + "".join(f"<li>{_safe(remark)}</li>" for remark in document["remarks"]) + "</ul>",
        "<h2>What it refers to</h2>",
        _references(document),
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


def _told(document: Mapping[str, Any]) -> str:
    """How the erasure ended, in a sentence."""
    left = sum(place["left"] for place in document["places"])
    if left:
        return f'<p class="open">The erasure is not complete: {left:,} were still there afterwards.</p>'
    if document["pending"]:
        return '<p class="open">The erasure is not complete yet: see the remarks.</p>'
    return "<p>All that was found was removed; a second look at every place found nothing.</p>"


def _places(places: Sequence[Mapping[str, Any]]) -> str:
    head = '<th>Place</th><th class="n">Found</th><th class="n">Removed</th><th class="n">Left</th>'
    rows = [
        f"<tr><td>{_safe(place['name'])}</td>"
        + "".join(f'<td class="n">{place[count]:,}</td>' for count in ("found", "removed", "left"))
        + "</tr>"
        for place in places
    ]
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _references(document: Mapping[str, Any]) -> str:
    ledger, audit, key = document["ledger"], document["audit"], document["key"]
    facts = (
        ("Erased", f"whoever had the pseudonym {document['subject']}"),
        ("Erasure", f"entry {ledger['no']} of the ledger, begun {ledger['begun_at']}"),
        ("Hash of that entry", ledger["hash"]),
        ("Audit chain", "" if audit is None else f"entry {audit['seq']} of chain {audit['chain']}"),
        ("Hash of that entry", "" if audit is None else audit["hash"]),
        ("Database", document["engine"]),
        ("Issued", f"{document['issued_at']} by {document['software']}"),
        ("Signed with key", key["id"]),
        ("Public key", f"{key['public']} ({key['algorithm']})"),
    )
    rows = [f"<tr><th>{name}</th><td><code>{_safe(said)}</code></td></tr>" for name, said in facts if said]
    return f"<table>{''.join(rows)}</table>"


def _safe(text: object) -> str:
    return html.escape(str(text))
