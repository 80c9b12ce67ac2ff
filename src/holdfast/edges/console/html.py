"""HTML: the templates with what all of them use, and the files that pages load, under names that change with them."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Awaitable
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.edges.console import drawings, formats
from holdfast.edges.console.table import PREFIX
from holdfast.edges.operations.errors import PROBLEM_JSON
from holdfast.edges.rest.direct import find_direct_way

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


def make_once() -> str:
    """What a page that confirms something is known by."""
    return secrets.token_urlsafe(9)


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
        "kind": formats.kind,
        "said": formats.text,
        "id": formats.identifier,
        "file": formats.file,
        "sentence": formats.sentence,
        "cron": formats.cron,
    }
    made.globals |= {
        "link": formats.link,
        "prefix": PREFIX,
        "asset": asset_path,
        "draw": drawings,
        "make_once": make_once,
    }
    return made


class ProblemPages:
    """A layer that makes pages of refusals below the console, whichever layer within it refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.answer_directly = find_direct_way(app)  # which is never a page

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_page = scope["path"] == PREFIX or scope["path"].startswith(f"{PREFIX}/")
        return self._app(scope, receive, _Refusal(scope, receive, send).pass_on if is_page else send)


class _Refusal:
    """An answer that goes by: a problem as JSON is kept until it is whole, and sent as a page."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._way = (scope, receive, send)
        self._start: Message | None = None
        self._body = b""

    async def pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is None or message["type"] != "http.response.body":
            await self._way[2](message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._make_page(self._start)(*self._way)

    def _make_page(self, start: Message) -> HTMLResponse:
        said = json.loads(self._body)
        problem = {"message": said["detail"], "code": said["code"], "status": said["status"]}
        values = {"title": "Refused", "problem": problem, "navigation": (), "visitor": None, "note": None}
        page = render("problem.html", values, start["status"])
        own = [(name, value) for name, value in start["headers"] if not name.lower().startswith(b"content-")]
        page.raw_headers += own
        return page


def _is_problem(start: Message) -> bool:
    return (b"content-type", PROBLEM_JSON.encode()) in start.get("headers", ())


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
