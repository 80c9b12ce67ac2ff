"""Writes that may come again: under the same ``Idempotency-Key`` a request is carried out once, and answered alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from retain.access import Replies, Reply
from retain.access.replies import fingerprint
from retain.api.problems import failed, respond
from retain.api.rights import Caller
from retain.api.streaming import Streamed
from retain.core.errors import InDoubtError, InvalidInputError, RetainError

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MAX_KEY_CHARS: Final = 200
#: What an answer says of itself, to be said again.
_KEPT_HEADERS: Final = ("content-type", "location")
#: What is raised where nothing was done.
_HARMLESS: Final = (RetainError, RequestValidationError, HTTPException)

Handler = Callable[[Request], Awaitable[Response]]


def key_of(request: Request) -> str | None:
    """The key of a write that may come again."""
    key = request.headers.get(HEADER)
    if key is None or request.method not in WRITES:
        return None
    if not 1 <= len(key) <= MAX_KEY_CHARS or not key.isascii() or not key.isprintable() or key.isspace() or key == "*":
        raise InvalidInputError(
            f"{HEADER} must be 1 to {MAX_KEY_CHARS} printable ASCII characters, such as a UUID; make one for each write"
        )
    return key


async def answer_once(request: Request, key: str, caller: Caller, replies: Replies, handle: Handler) -> Response:
    """Carry a request out, or answer as it was answered before.

    What failed has changed nothing, so it may be sent again under its key. What was begun is finished even if the
    caller goes away: it will ask what became of it.
    """
    principal = caller.gate.principal.key_id or "local"
    query = request.scope["query_string"].decode("latin-1")
    target = f"{request.scope['path']}?{query}"
    mark = fingerprint(request.method, target, await request.body(), tenant=caller.gate.tenant_id)
    with anyio.CancelScope(shield=True):
        known = await run_in_threadpool(replies.claim, principal, key, mark)
        if known is not None:
            return Response(known.body, known.status, {**known.headers, REPLAYED: "true"})
        try:
            response = await handle(request)
            if isinstance(response, Streamed):
                response = await response.whole(request.scope)
        except InDoubtError as problem:  # it may be there: whoever asks again is told so, too
            with suppress(RetainError):
                await _keep(replies, principal, key, mark, respond(request, problem))
            raise
        except _HARMLESS:
            await run_in_threadpool(replies.release, principal, key)
            raise
        except BaseException:  # nobody knows what it has done: it is not to be done again
            await _keep(replies, principal, key, mark, failed(request))
            raise
        await _keep(replies, principal, key, mark, response)
    return response


async def _keep(replies: Replies, principal: str, key: str, mark: bytes, response: Response) -> None:
    headers = {name: value for name in _KEPT_HEADERS if (value := response.headers.get(name)) is not None}
    reply = Reply(response.status_code, headers, bytes(response.body))
    await run_in_threadpool(replies.keep, principal, key, mark, reply)
