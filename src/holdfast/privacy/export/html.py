"""An export as a page that people can read: plain HTML that loads nothing, with everything on it escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any, Final

from holdfast.core.content import to_json
from holdfast.privacy.export.rows import Line

#: What a line says, as opposed to what is said about it; the first of these that it has.
_SAID: Final = ("content", "summary")
#: A value that is shorter as JSON is shown on one line.
_SHORT: Final = 100
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "article{border-top:1px solid #ccc;padding:.5rem 0;content-visibility:auto}"
    "article.message{margin-left:2rem}"
    "p.said{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:0 1rem;margin:0;font-size:.8rem;color:#555}"
    "dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}"
    "table{border-collapse:collapse}td{padding:0 1rem 0 0}"
)
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def head(user_id: str, export_date: str, counts: Mapping[str, tuple[str, int]]) -> bytes:
    """The beginning of the page; ``counts`` are the title of each section, and how much is in it, by name."""
    rows = "".join(
        f'<tr><td><a href="#{escape(name)}">{escape(title)}</a></td><td>{count:,}</td></tr>\n'
        for name, (title, count) in counts.items()
    )
    return _bytes(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>Data held on {escape(user_id)}</title>\n<style>{_STYLE}</style></head><body>\n"
        f"<h1>Data held on {escape(user_id)}</h1>\n"
        f"<p>As of {escape(export_date)}. The same is in the other files of this archive, for programs: "
        "manifest.json lists them, schema.json describes them.</p>\n"
        f"<table>\n{rows}</table>\n"
    )


def section(name: str, title: str) -> bytes:
    """The beginning of a section."""
    return _bytes(f'<h2 id="{escape(name)}">{escape(title)}</h2>\n')


def article(line: Line) -> bytes:
    """One thing that is held."""
    said = next((name for name in _SAID if line.get(name)), None)
    about = "".join(
        f"<dt>{_label(name)}</dt><dd>{escape(_told(value))}</dd>"
        for name, value in line.items()
        if name not in ("type", said) and value not in (None, {}, "")
    )
    words = "" if said is None else f'<p class="said">{escape(line[said])}</p>'
    return _bytes(f'<article class="{escape(line["type"])}">{words}<dl>{about}</dl></article>\n')


def nothing() -> bytes:
    """What a section says that has nothing in it."""
    return b"<p>Nothing.</p>\n"


def foot() -> bytes:
    """The end of the page."""
    return b"</body></html>\n"


@cache
def _label(name: str) -> str:
    return escape(name.replace("_", " "))


def _told(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = to_json(value)
    return text if len(text) < _SHORT else json.dumps(value, ensure_ascii=False, indent=1, default=dict)


def _bytes(text: str) -> bytes:
    return text.encode(errors="xmlcharrefreplace")
