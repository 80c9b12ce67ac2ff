"""The little of ASGI that every layer needs: headers of a request, and a refusal."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

from holdfast.core.errors import HoldfastError, UnauthenticatedError
from holdfast.edges.access.callers import read_secret
from holdfast.edges.operations.errors import problem_response, status_of

DISCONNECT: Final[Message] = {"type": "http.disconnect"}
#: What a proxy adds to the requests that it passes on.
_FORWARDING: Final = (b"forwarded", b"via", b"x-real-ip")


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that name (in lower case)."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


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
    more = {} if wait_seconds is None else {"Retry-After": str(max(1, -int(-wait_seconds // 1)))}
    headers = {**more, "Connection": "close"} if close else more
    code, retryable, status = problem.code, problem.retryable, status or status_of(problem)
    response = problem_response(scope, status, str(problem), code=code, retryable=retryable, headers=headers)
    await response(scope, _disconnect, send)


async def _disconnect() -> Message:
    return DISCONNECT
