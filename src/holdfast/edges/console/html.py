"""HTML: the templates with what all of them use, and the files that pages load, under names that change with them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast.edges.console import drawings, formats
from holdfast.edges.console.table import PREFIX

_FOLDER: Final = Path(__file__).parent
_TYPES: Final = MappingProxyType({".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"})
_YEAR: Final = 365 * 86_400
#: Nothing inline, and nothing from elsewhere. A browser that follows a form's answer tells no other site where it was;
#: with no-referrer it would not tell this one either, and a service without keys would refuse the form.
HEADERS: Final = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": formats.number,
        "amount": formats.count,
        "size": formats.size,
        "duration": formats.duration,
        "when": formats.when,
        "day": formats.day,
        "state": formats.state,
        "said": formats.text,
        "id": formats.identifier,
        "file": formats.file,
        "sentence": formats.sentence,
    }
    made.globals |= {"link": formats.link, "prefix": PREFIX, "asset": asset_path, "draw": drawings}
    return made


def render(template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    """A page, or a part of one."""
    return HTMLResponse(_environment().get_template(template).render(values), status, dict(HEADERS))


@cache
def _asset(name: str) -> tuple[bytes, str] | None:
    """A file that pages load, and a hash of it."""
    path = _FOLDER / "static" / name
    if path.suffix not in _TYPES or path.parent != _FOLDER / "static" or not path.is_file():
        return None
    content = path.read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:16]


def asset_path(name: str) -> str:
    """Where a file is loaded from: a browser keeps it until it changes."""
    found = _asset(name)
    return f"{PREFIX}/static/{name}?v={found[1] if found else ''}"


def send_asset(request: Request) -> Response:
    """A file that pages load."""
    name = request.path_params["name"]
    found = _asset(name)
    if found is None:
        return Response(status_code=404)
    content, digest = found
    is_current = request.query_params.get("v") == digest
    headers = {"ETag": f'"{digest}"', "Cache-Control": f"max-age={_YEAR}, immutable" if is_current else "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES[Path(name).suffix])
