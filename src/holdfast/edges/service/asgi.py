"""The little of ASGI that every layer needs: headers of a request, and a whole answer at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.datastructures import Headers as RequestHeaders
from starlette.types import Scope, Send

from holdfast.core.errors import HoldfastError, UnauthenticatedError
from holdfast.edges.access.callers import read_secret
from holdfast.edges.operations.errors import PROBLEM_JSON, status_of, write_problem

Headers = Sequence[tuple[bytes, bytes]]

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
        return read_secret(RequestHeaders(scope=scope)) or None
    except UnauthenticatedError:
        return None


def request_id_of(scope: Scope) -> str | None:
    """The id that the request was given."""
    state: dict[str, Any] = scope.get("state") or {}
    return state.get("request_id")


async def answer(
    send: Send, status: int, body: bytes, content_type: str, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a whole answer."""
    start = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, status: int, value: Any, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send a JSON document."""
    await answer(send, status, json.dumps(value).encode(), "application/json", headers)


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
    document = write_problem(
        status_of(problem) if status is None else status,
        str(problem),
        code=problem.code,
        retryable=problem.retryable,
        request_id=request_id_of(scope),
        headers={**more, **({"Connection": "close"} if close else {})},
    )
    headers = [(name.lower().encode(), value.encode()) for name, value in document.headers.items()]
    await answer(send, document.status, document.body, PROBLEM_JSON, headers)
