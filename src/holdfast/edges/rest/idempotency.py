"""Writes that may come again: under the same ``Idempotency-Key`` a request is carried out once, and answered alike.

A reply that is told again says what memories say now, never what they said when it was kept: what was deleted, was kept
out or has expired since is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.access.replies import Once, Replies, Reply, fingerprint
from holdfast.core.access import Right
from holdfast.core.errors import HoldfastError, InvalidInputError, NotFoundError
from holdfast.edges.access.gate import Gate
from holdfast.edges.operations.batches import BatchItem, ItemResult, describe_failure
from holdfast.edges.operations.batches import Once as ItemOnce
from holdfast.edges.operations.outputs import encode
from holdfast.edges.rest.errors import respond
from holdfast.edges.rest.streams import StreamedResponse
from holdfast.ports.coordination import REQUEST

HEADER: Final = "Idempotency-Key"
_HEADER: Final = HEADER.lower()
REPLAYED: Final = "Idempotency-Replayed"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MAX_KEY_CHARS: Final = 200
#: What an answer says of itself, to be said again.
_KEPT_HEADERS: Final = ("content-type", "location")
#: What is raised where nothing was done.
_NOTHING_DONE: Final = (HoldfastError, HTTPException)

Handler = Callable[[Request], Awaitable[Response]]
#: Does the work of an endpoint so that its effect and its reply are one transaction. All of it is in the endpoint's own
#: thread: nobody who waits for the transaction can take the thread that ends it.
Carry = Callable[[Callable[[], Response]], Response]


@dataclass
class Caller:
    """Who sends a request: what it may reach, and how its request is done once where it has an idempotency key."""

    gate: Gate
    headers: Mapping[str, str]
    """Of the request; of two with the same name, the first."""
    content: bytes = b""
    """The body of the request."""
    carry: Carry | None = None
    once: ItemOnce | None = None
    """How each item of a batch is done once."""


def key_of(headers: Mapping[str, str], method: str) -> str | None:
    """The key of a write that may come again."""
    key = headers.get(_HEADER)
    if key is None or method not in WRITES:
        return None
    if not 1 <= len(key) <= MAX_KEY_CHARS or not key.isascii() or not key.isprintable() or key.isspace() or key == "*":
        raise InvalidInputError(
            f"{HEADER} must be 1 to {MAX_KEY_CHARS} printable ASCII characters, such as a UUID; make one for each write"
        )
    return key


async def answer_once(request: Request, key: str, caller: Caller, handle: Handler, *, is_long: bool) -> Response:
    """Carry a request out, or answer as it was answered before.

    What failed may be sent again under its key. What was begun is finished even if the caller goes away: it will ask
    what became of it. Long work is in several transactions to its end.
    """
    replies: Replies = request.app.replies
    principal = caller.gate.principal.key_id or "local"
    query = request.scope["query_string"].decode("latin-1")
    target = f"{request.scope['path']}?{query}"
    mark = fingerprint(request.method, target, caller.content, tenant=caller.gate.tenant_id)
    begin = partial(replies.once, principal, key, mark)
    with anyio.CancelScope(shield=True):
        if is_long:
            response = await _do_long_work(request, await run_in_threadpool(begin), handle)
        else:
            caller.carry = partial(_carry_out, begin, request)
            response = await handle(request)
    return response  # for all that mypy knows, the scope swallows errors


def item_once(replies: Replies, key: str, gate: Gate) -> ItemOnce:
    """Carries each item of a batch out once: under the key of the batch, and its number there."""

    def once(number: int, item: BatchItem, work: Callable[[], ItemResult]) -> ItemResult:
        def reply(made: ItemResult) -> Reply:
            return Reply(made["status"], {}, encode(made))

        def failed() -> Reply:
            return reply(describe_failure(HoldfastError("it broke off, and nobody knows how far it came")))

        mark = fingerprint("BATCH", item.operation, encode(item.input), tenant=gate.tenant_id)
        request = replies.once(gate.principal.key_id or "local", f"{key}#{number}", mark)
        known, is_known = request.carry_out(lambda: reply(work()), failed)
        found: ItemResult = json.loads(known.body)
        return tell_again(gate, item.input, found) if is_known else found

    return once


def tell_again(gate: Gate, asked: Mapping[str, Any], told: Any) -> Any:
    """What was told of memories, with what they say now; ``NotFoundError`` if it is all about one that is gone."""
    memory = gate.memory(Right.READ, asked["user_id"], asked["agent_id"], asked.get("session_id"))

    def refresh(value: Any) -> Any:
        if isinstance(value, list):
            return list(refresh_each(value))
        if not isinstance(value, dict):
            return value
        if "memory_id" in value and "content" in value:
            now: Any = memory.get(value["memory_id"])
            return {name: now.get(name, old) for name, old in value.items()}
        fresh = {name: refresh(one) for name, one in value.items() if name != "corrected_to"}
        if len(fresh) < len(value):
            for one in refresh_each([{"memory_id": value["memory_id"], "content": ""}]):
                fresh["corrected_to"] = one["content"]
        return fresh

    def refresh_each(values: list[Any]) -> Iterator[Any]:
        for one in values:
            with suppress(NotFoundError):
                yield refresh(one)

    return refresh(told)


def _carry_out(begin: Callable[[], Once], request: Request, endpoint: Callable[[], Response]) -> Response:
    made: list[Response] = []

    def work() -> Reply:
        made.append(endpoint())
        return _reply_of(made[0])

    reply, is_known = begin().carry_out(work, lambda: _reply_of(respond(request)))
    return _replay(reply) if is_known else made[0]


async def _do_long_work(request: Request, once: Once, handle: Handler) -> Response:
    known = await run_in_threadpool(once.begin)
    if known is not None:
        return _replay(known)
    here = REQUEST.set(once.request)
    try:
        response = await handle(request)
        if isinstance(response, StreamedResponse):
            response = await response.make_whole(request.scope)
    except _NOTHING_DONE as problem:
        await run_in_threadpool(once.give_up, problem)
        raise
    except BaseException:
        await run_in_threadpool(once.fail, lambda: _reply_of(respond(request)))
        raise
    finally:
        REQUEST.reset(here)
    await run_in_threadpool(once.keep, _reply_of(response))
    return response


def _reply_of(response: Response) -> Reply:
    headers = {name: value for name in _KEPT_HEADERS if (value := response.headers.get(name)) is not None}
    return Reply(response.status_code, headers, bytes(response.body))


def _replay(reply: Reply) -> Response:
    return Response(reply.body, reply.status, {**reply.headers, REPLAYED: "true"})
