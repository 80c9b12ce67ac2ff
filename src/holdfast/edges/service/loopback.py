"""Callers on this machine, and what keeps web pages from passing for one.

Without API keys whoever reaches the service may do everything, so it listens to this machine only. A browser on it
would still send what any web page asks it to: requests for names that were made to point here, and from pages of other
origins. Neither is answered, and nothing that a proxy passed on. Beside it is the little of ASGI that every layer
needs: a header of a request, and a refusal.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable
from functools import lru_cache
from typing import Final
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import ForbiddenError, HoldfastError, InvalidSettingsError, UnauthenticatedError, quote
from holdfast.edges.access.callers import read_secret
from holdfast.edges.operations.errors import problem_response, status_of
from holdfast.edges.rest.direct import WholeRequest, find_direct_way

DISCONNECT: Final[Message] = {"type": "http.disconnect"}
#: In a request's state: has the request counted now, though its work goes on.
GIVE_UP: Final = "give_up"
#: What a proxy adds to the requests that it passes on.
_FORWARDING: Final = (b"forwarded", b"via", b"x-real-ip")


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that name (in lower case)."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def came_through_proxy(scope: Scope) -> bool:
    """Whether someone passed the request on: who asked first is not who is connected."""
    return any(key in _FORWARDING or key.startswith(b"x-forwarded-") for key, _ in scope["headers"])


def secret_of(scope: Scope) -> str | None:
    """The API key that came with the request, if there is one that can be read."""
    try:
        return read_secret(Headers(scope=scope)) or None
    except UnauthenticatedError:
        return None


async def refuse(
    scope: Scope,
    send: Send,
    problem: HoldfastError,
    *,
    status: int | None = None,
    wait_seconds: float | None = None,
    close: bool = False,
) -> None:
    """Answer with a problem, as the API does: with the ``status`` of its code, unless another is said.

    ``wait_seconds`` says when to try again; ``close`` ends the connection, for what is left of the request is not read.
    """
    response = refusal(scope, problem, status=status, wait_seconds=wait_seconds, close=close)
    await response(scope, _disconnect, send)


def refusal(
    scope: Scope,
    problem: HoldfastError,
    *,
    status: int | None = None,
    wait_seconds: float | None = None,
    close: bool = False,
) -> Response:
    """What ``refuse`` answers."""
    more = {} if wait_seconds is None else {"Retry-After": str(max(1, -int(-wait_seconds // 1)))}
    headers = {**more, "Connection": "close"} if close else more
    code, retryable, status = problem.code, problem.retryable, status or status_of(problem)
    return problem_response(scope, status, str(problem), code=code, retryable=retryable, headers=headers)


async def _disconnect() -> Message:
    return DISCONNECT


_LOCAL_NAMES: Final = frozenset({"localhost", "localhost."})


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number, is this machine and can be reached from nowhere else."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOCAL_NAMES or host.lower().endswith(".localhost")


def resolves_to_loopback(host: str) -> bool:
    """Whether a name to listen at stands for loopback alone; ``InvalidSettingsError`` if it stands for nothing."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise InvalidSettingsError(f"the host {quote(host)} is not known here: {problem}") from problem
    return all(is_loopback(str(address[4][0]).partition("%")[0]) for address in found)


def is_local(scope: Scope) -> bool:
    """Whether a request was made on this machine."""
    client = scope.get("client")
    if client is None or not is_loopback(client[0]) or came_through_proxy(scope):
        return False
    host = _host(scope)  # a proxy that says nothing of itself passes on the name that was asked for
    return host is not None and _names_loopback(host)


def _host(scope: Scope) -> str | None:
    """The host that a request is for; of two, who knows which one counts."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    return hosts[0] if len(hosts) == 1 else None


class LocalOnly:
    """For a service without keys: refuses with 403 what was not asked by a program of this machine itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._directly = app, find_direct_way(app)

    def answer_directly(self, asked: WholeRequest) -> Response | None:
        """Let in what is for this machine: what is plain came through no proxy, and was made by no page."""
        return self._directly(asked) if _names_loopback(asked.headers.get("host", "")) else None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        problem = _refusal_reason(scope)
        if problem is None:
            return self._app(scope, receive, send)
        return refuse(scope, send, ForbiddenError(f"{problem}; make a key with: holdfast access create"))


def _refusal_reason(scope: Scope) -> str | None:
    """Why a request is not taken for this machine's own."""
    found: dict[bytes, bytes] = {}
    for key, value in scope["headers"]:
        if key in _FORWARDING or key.startswith(b"x-forwarded-"):
            return "the request came through a proxy, and this service asks for no keys, so it serves this machine only"
        found[key] = b"" if key == b"host" and key in found else value  # of two hosts, who knows which one counts
    host = found[b"host"].decode("latin-1") if b"host" in found else None
    if host is None or not _names_loopback(host):
        return f"the request is for the host {quote(host)}, and without keys only localhost is served"
    origin = found.get(b"origin")
    if origin is not None and _split(origin.decode("latin-1")).netloc.lower() != host.lower():
        return f"the request was made by a page of {quote(origin)}, and without keys no other page is served"
    foreign = found.get(b"sec-fetch-site") in {b"cross-site", b"same-site"}
    if foreign and scope["method"] not in {"GET", "HEAD"}:  # following a link to here is no harm
        return "the request was made by a page of another site, and without keys no other page is served"
    return None


@lru_cache(64)
def _names_loopback(host: str) -> bool:
    """Whether the host that a request is for, with its port, is this machine."""
    return is_loopback(_split(f"//{host}").hostname or "")


def _split(url: str) -> SplitResult:
    """The parts of a URL; none, for what is no URL."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
