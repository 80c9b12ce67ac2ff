"""Headers that tell browsers to be careful with what the service answers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: An answer of the API is data: a browser is to run, load, frame and keep nothing of it.
_DATA: Final = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
#: A page of the service runs its own scripts only; inline styles are what such pages are made with.
_PAGE: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
#: Which paths are pages: the first folder of the path decides.
PAGES: Final[Mapping[str, str]] = MappingProxyType({"docs": _PAGE, "redoc": _PAGE, "console": _PAGE})
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class SecurityHeaders:
    """Adds them to every answer; what the app says itself about caching and contents stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        policy = PAGES.get(scope["path"].split("/", 2)[1] if "/" in scope["path"] else "", _DATA)
        default = ((b"content-security-policy", policy.encode()), (b"cache-control", b"no-store"))

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                said = {name.lower() for name, _ in headers}
                headers += _ALWAYS
                headers += [pair for pair in default if pair[0] not in said]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, hardened)
