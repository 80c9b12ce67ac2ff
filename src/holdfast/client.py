"""A client of ``holdfast serve``: the verbs of a memory, with the store behind a service instead of in the process.

with connect("https://memory.example.org", key="holdfast_…") as holdfast:
    memory = holdfast.manager("user_123", "travel_agent")
    memory.add("User enjoys skiing", "long_term")
    memory.retrieve("a holiday in the mountains")

Verbs, arguments, results and errors are those of ``MemoryManager``; ``connect_async`` gives those of ``holdfast.aio``.
What is no verb of a memory (rules, sweeps, holds, exports) is done over REST or at the command line.
Nothing of the engine is imported. ``client.json`` has the verbs and their signatures; it is made from the engine's.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from importlib import resources
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast
from uuid import uuid4

from holdfast.core import errors
from holdfast.core.errors import (
    ClosedError,
    HoldfastError,
    InDoubtError,
    InvalidContentError,
    InvalidInputError,
    StaleError,
    StorageError,
    StoreAwayError,
    quote,
)
from holdfast.core.filters import parse
from holdfast.core.prompts import LeftOut
from holdfast.core.records import Message, Scope, Usage
from holdfast.core.values import check_content, check_metadata, dump_json
from holdfast.installation import missing_extra
from holdfast.results.memory import Context

if TYPE_CHECKING:
    import httpx

    from holdfast.aio import AsyncMemory
    from holdfast.manager import Memory

_READ, _GOVERN = "read", "govern"
#: What concerns all that is kept on a user may take so many seconds.
_LONG_SECONDS: Final = 600.0
#: No longer than this is waited between two attempts; a service that asks for more is not asked again.
_MAX_WAIT_SECONDS: Final = 30.0
_FIRST_WAIT_SECONDS: Final = 0.1
#: Statuses of what stands before a service and does not know our errors.
_AWAY: Final = frozenset({429, 502, 503, 504})


class Verb(NamedTuple):
    """A verb of a memory, or of a part of it."""

    name: str
    right: str
    signature: Signature


def _read_verbs() -> dict[str, Verb]:
    rows = json.loads(resources.files("holdfast").joinpath("client.json").read_bytes())
    kinds = {"positional": Parameter.POSITIONAL_OR_KEYWORD, "named": Parameter.KEYWORD_ONLY}
    return {
        name: Verb(
            name,
            row["right"],
            Signature(
                [
                    Parameter(one, kind, default=_read_default(default))
                    for group, kind in kinds.items()
                    for one, default in row.get(group, {}).items()
                ]
            ),
        )
        for name, row in rows.items()
    }


def _read_default(given: list[Any]) -> Any:
    if not given:
        return Parameter.empty
    return tuple(given[0]) if isinstance(given[0], list) else given[0]


VERBS: Final = _read_verbs()


# --- requests and answers ---------------------------------------------------------------------------------------------


class Request(NamedTuple):
    """One call of a verb, as it is sent; the same at every attempt."""

    path: str
    body: bytes
    headers: dict[str, str]
    is_write: bool
    seconds: float


class Reply(NamedTuple):
    """What a service answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Attempts:
    """The attempts at one request: it is sent until it is answered, at most ``retries`` times more.

    A write carries an idempotency key, so that the service does it once however often it is sent.
    """

    def __init__(self, request: Request, retries: int) -> None:
        self.result: Any = None
        self.wait: float | None = 0.0
        """So many seconds until the next attempt; ``None``: there is an answer."""
        self._is_write, self._left, self._number = request.is_write, retries, 0
        self._may_be_done = False

    def take(self, reply: Reply) -> None:
        """Take an answer; raises the error that it is, unless the request is to be sent again."""
        if reply.status < 300:
            self.result, self.wait = json.loads(reply.body)["result"], None
            return
        error = read_error(reply)
        if not error.retryable or isinstance(error, StaleError):
            raise error
        self._try_again(error, _read_wait(reply, self._next_wait()))

    def miss(self, problem: Exception, *, was_sent: bool) -> None:
        """No answer came."""
        self._may_be_done = self._may_be_done or (was_sent and self._is_write)
        why = str(problem) or type(problem).__name__
        error: HoldfastError = (
            InDoubtError(f"the service did not say whether it was done; look before you try again ({why})")
            if self._may_be_done
            else StoreAwayError(f"the service does not answer ({why}); see that it runs, and that the address is right")
        )
        self._try_again(error, self._next_wait())

    def _next_wait(self) -> float:
        return float(_FIRST_WAIT_SECONDS * 2**self._number * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    def _try_again(self, error: HoldfastError, wait: float | None) -> None:
        if self._left == 0 or wait is None:
            raise error
        self._left, self._number, self.wait = self._left - 1, self._number + 1, wait


def _read_wait(reply: Reply, otherwise: float) -> float | None:
    """How long a service asks to wait; ``None``: for longer than anyone waits here."""
    asked = reply.headers.get("retry-after", "")
    if not asked.isdecimal():
        return otherwise
    return float(asked) if float(asked) <= _MAX_WAIT_SECONDS else None


#: The classes of errors by their codes.
ERRORS: Final = {
    one.code: one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, HoldfastError)
}


def read_error(reply: Reply) -> HoldfastError:
    """The error that a service answered, as the engine would have raised it."""
    try:
        said = json.loads(reply.body)
        family = ERRORS[said["code"]]
    except (ValueError, KeyError, TypeError):
        words = f"the service answered with status {reply.status}, and nothing that it says itself"
        return StoreAwayError(f"{words}; try again later") if reply.status in _AWAY else StorageError(words)
    return family(said["detail"], needs=said.get("needs", ()))


#: Arguments that are texts, or objects that are stored as texts.
_TEXTS: Final = frozenset({"content", "contents", "query", "task", "summary", "reason", "description", "search_text"})
#: How arguments are refused that are no JSON.
_REFUSALS: Final[Mapping[str, tuple[type[InvalidInputError], str]]] = {
    **dict.fromkeys(_TEXTS, (InvalidContentError, "content")),
    **dict.fromkeys(("messages", "steps", "tool_calls"), (InvalidContentError, "the episode")),
    "document": (InvalidContentError, "the document"),
}
_MOMENTS: Final = frozenset({"at", "as_of", "since", "until", "timestamp", "created_at", "updated_at"})
#: Verbs that take a list of objects, whose fields are as arguments are.
_OF_OBJECTS: Final = frozenset({"short_term.add_messages", "structured.put_many", "import_memories"})


def _check_arguments(verb: Verb, arguments: Mapping[str, Any]) -> None:
    """Refuse what JSON would change or cannot hold, as the engine does."""
    for name, value in arguments.items():
        if verb.name in _OF_OBJECTS and isinstance(value, list | tuple):
            for one in value:
                for field in one.items() if isinstance(one, Mapping) else ():
                    _check(*field)
        else:
            _check(name, value)


def _check(name: str, value: object) -> None:
    if name == "metadata":
        for one in value if isinstance(value, list | tuple) else (value,):
            check_metadata(one)
    elif name in ("filters", "where"):
        parse(cast("Any", value))
    elif name in _TEXTS and isinstance(value, str | bytes | bytearray):
        check_content(value, name, max_bytes=sys.maxsize, may_be_empty=True)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        for one in value:
            _check(name, one)
    elif name not in _MOMENTS:
        dump_json(value, *_REFUSALS.get(name, (InvalidInputError, name)))


def _encode(value: object) -> Any:
    """An argument as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | Set):
        return list(value)
    raise TypeError(f"{quote(value)} cannot be sent to a service")


def _rebuild_context(given: dict[str, Any]) -> Context:
    return Context(**{**given, "left_out": [LeftOut(**one) for one in given["left_out"]]})


def _rebuild_window(given: dict[str, Any]) -> Any:
    from holdfast.memory.short_term import WindowChange  # noqa: PLC0415 - a step of the engine's own, seldom called

    return WindowChange(**given)


#: What verbs return that is not JSON, made of what a service answers.
_REBUILD: Final[Mapping[str, Callable[[Any], Any]]] = {
    "context": _rebuild_context,
    "working.items": lambda given: [Message(**one) for one in given],
    "working.get": lambda given: None if given is None else Message(**given),
    "working.put": lambda given: (given[0], Usage(**given[1]), given[2]),
    "short_term.messages": lambda given: [Message(**one) for one in given],
    "short_term.append": _rebuild_window,
}


# --- memories ---------------------------------------------------------------------------------------------------------


class Caller(Protocol):
    """What sends requests: at once, or, for async callers, when the answer is awaited."""

    timeout: float

    def run(self, request: Request, read: Callable[[Any], Any]) -> Any:
        """What ``read`` makes of the result."""


class _Part:
    """The verbs of a memory, or of one part of it."""

    def __init__(self, caller: Caller, who: Mapping[str, Any]) -> None:
        self._caller, self._who = caller, who


class RemoteMemory(_Part):
    """The memory of one user as one agent sees it, in one session, behind a service."""

    def __init__(
        self, caller: Caller, user_id: str, agent_id: str, session_id: str | None = None, *, auto_prune: bool = False
    ) -> None:
        Scope.check("default", user_id, agent_id, session_id, everyone=True)
        self.user_id, self.agent_id, self.session_id, self.auto_prune = user_id, agent_id, session_id, auto_prune
        super().__init__(caller, {"user_id": user_id, "agent_id": agent_id, "session_id": session_id})
        for name, part in _PARTS.items():
            setattr(self, name, part(caller, self._who))

    def __repr__(self) -> str:
        return f"Memory(user_id={self.user_id!r}, agent_id={self.agent_id!r}, session_id={self.session_id!r})"

    def remember(self, messages: Sequence[Mapping[str, Any]], extract: Callable[..., Any]) -> Any:
        """As the engine does it; ``extract`` is called here."""
        from holdfast.memory.additions import remember  # noqa: PLC0415 - the engine's own steps, by this memory's verbs

        me: Any = self
        if isinstance(self._caller, Connection):
            return remember(me.add, me.short_term, messages, extract)
        return _remember_async(me, messages, extract)


def _verb(verb: Verb) -> Callable[..., Any]:
    name = verb.name.rpartition(".")[2]
    with_self = verb.signature.replace(
        parameters=[Parameter("self", Parameter.POSITIONAL_ONLY), *verb.signature.parameters.values()]
    )

    def call(self: _Part, /, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(verb.signature.bind(*args, **kwargs).arguments)
        if arguments.pop("count", None) is not None:
            raise InvalidInputError("must be left out: a service counts tokens itself", about="count")
        _check_arguments(verb, arguments)
        prune = getattr(self, "auto_prune", False) and verb.right != _READ
        more = {"auto_prune": True} if prune else {}
        said = {**self._who, "verb": verb.name, "arguments": arguments, **more}
        request = _make_request(verb, said, self._caller.timeout)
        return self._caller.run(request, _REBUILD.get(verb.name, lambda result: result))

    call.__name__, call.__qualname__ = name, f"RemoteMemory.{verb.name}"
    call.__doc__ = f"``{verb.name}`` of a memory; see ``MemoryManager``."
    call.__signature__ = with_self  # type: ignore[attr-defined]
    return call


def _make_request(verb: Verb, said: dict[str, Any], seconds: float) -> Request:
    try:
        body = json.dumps(said, default=_encode, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as wrong:
        raise InvalidInputError(f"{verb.name} was called with what is no JSON: {wrong}") from None
    headers = {"Content-Type": "application/json"}
    if "opentelemetry.propagate" in sys.modules:  # the program traces: the service goes on with its trace
        sys.modules["opentelemetry.propagate"].inject(headers)
    is_write = verb.right != _READ
    if is_write:
        headers["Idempotency-Key"] = str(uuid4())
    limit = max(seconds, _LONG_SECONDS) if verb.right == _GOVERN else seconds
    return Request(f"/v1/calls/{verb.right}", body, headers, is_write, limit)


def _make_parts() -> dict[str, type[_Part]]:
    """A class with the verbs of each part; those of the memory itself go to its class."""
    verbs: dict[str, dict[str, Any]] = {}
    for verb in VERBS.values():
        part, _, name = verb.name.rpartition(".")
        if not part:
            setattr(RemoteMemory, name, _verb(verb))
        else:
            verbs.setdefault(part, {})[name] = _verb(verb)
    return {part: type(f"Remote_{part}", (_Part,), own) for part, own in verbs.items()}


_PARTS: Final = _make_parts()


async def _remember_async(memory: Any, messages: Any, extract: Any) -> Any:
    """``remember`` in a worker thread, whose calls and whose ``extract`` run in the caller's loop."""
    from holdfast.memory.additions import remember  # noqa: PLC0415 - see above

    loop = asyncio.get_running_loop()

    async def wait(awaited: Awaitable[Any]) -> Any:
        return await awaited

    def in_loop(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        made = call(*args, **kwargs)
        return asyncio.run_coroutine_threadsafe(wait(made), loop).result() if isinstance(made, Awaitable) else made

    class Steps:
        add_messages = staticmethod(partial(in_loop, memory.short_term.add_messages))

    given = partial(in_loop, extract) if callable(extract) else extract
    short_term: Any = Steps()
    return await asyncio.to_thread(remember, partial(in_loop, memory.add), short_term, messages, given)


# --- connections ------------------------------------------------------------------------------------------------------


def _options(url: str, key: str | None, tenant: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """What both of httpx' clients are made with."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    if tenant is not None:
        headers["X-Holdfast-Tenant"] = tenant
    return {"base_url": url, "headers": headers, **options}


def _httpx() -> Any:
    try:
        import httpx  # noqa: PLC0415 - importing the client costs next to nothing
    except ImportError:
        raise missing_extra("the client of a service", "client") from None
    return httpx


def _to_reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.headers, response.content)


#: Where the verbs of an engine are that are no verbs of a memory: a path of the REST API, and a command.
ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    "access": ("", "access"),
    "agents": ("/agents", "agent"),
    "audit": ("/audit", "audit"),
    "backups": ("/backups", "backup"),
    "certificates": ("/certificates", "certificate"),
    "domains": ("/domains", "domain"),
    "erase_user": ("/users/{user_id}", "erase"),
    "explain": ("/memories/{memory_id}/explain", "explain"),
    "export_user": ("/users/{user_id}/export", "export"),
    "forecast": ("/sweeps/forecast", "forecast"),
    "forget_source": ("/sources:forget", "forget"),
    "holds": ("/holds", "hold"),
    "life": ("/users/{user_id}/memories/{memory_id}", "life"),
    "overview": ("/overview", "overview"),
    "policies": ("/policies", "policy"),
    "preview_erasure": ("/users/{user_id}/erasure", "erase --dry-run"),
    "quotas": ("/quotas/{memory_type}", "quota"),
    "recycle": ("/recycle", "recycle"),
    "schedule": ("/schedule", "schedule"),
    "sessions": ("/sessions", "session"),
    "sweep": ("/sweeps", "sweep"),
    "tools": ("/tools", "tool"),
    "users": ("/users", "user"),
}


class _Base:
    def __init__(self, http: Any, timeout: float, retries: int) -> None:
        self._http, self.timeout, self._retries = http, timeout, retries
        self._errors: Any = _httpx()

    def __getattr__(self, name: str) -> Any:
        path, command = ELSEWHERE.get(name, ("", ""))
        where = " or ".join([*([f"/v1{path} of its REST API"] if path else ()), f"`holdfast {command or '--help'}`"])
        raise AttributeError(f"a connection has the verbs of a memory, by manager(), and no {name!r}; use {where}")

    def _was_sent(self, problem: Exception) -> bool:
        never = (self._errors.ConnectError, self._errors.ConnectTimeout, self._errors.PoolTimeout)
        return not isinstance(problem, never)

    def _send(self, request: Request) -> Any:
        if self._http.is_closed:
            raise ClosedError("the connection was closed; connect again")
        timeout = self._errors.Timeout(request.seconds, connect=min(request.seconds, 5.0))
        return self._http.post(request.path, content=request.body, headers=request.headers, timeout=timeout)


class Connection(_Base):
    """A service, for a caller with a key. Use it in a ``with`` block, or ``close()`` it; safe for many threads."""

    def manager(
        self, user_id: str, agent_id: str, session_id: str | None = None, *, auto_prune: bool = False
    ) -> Memory:
        """The memory of a user as an agent sees it, in a session."""
        return cast("Memory", RemoteMemory(self, user_id, agent_id, session_id, auto_prune=auto_prune))

    def run(self, request: Request, read: Callable[[Any], Any]) -> Any:
        """Send a request, with what attempts it takes."""
        attempts = Attempts(request, self._retries)
        while attempts.wait is not None:
            time.sleep(attempts.wait)
            try:
                attempts.take(_to_reply(self._send(request)))
            except self._errors.TransportError as problem:
                attempts.miss(problem, was_sent=self._was_sent(problem))
        return read(attempts.result)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()


class AsyncConnection(_Base):
    """A service for async callers. Use it in an ``async with`` block, or ``await close()``."""

    def manager(
        self, user_id: str, agent_id: str, session_id: str | None = None, *, auto_prune: bool = False
    ) -> AsyncMemory:
        """The memory of a user as an agent sees it, in a session."""
        return cast("AsyncMemory", RemoteMemory(self, user_id, agent_id, session_id, auto_prune=auto_prune))

    async def run(self, request: Request, read: Callable[[Any], Any]) -> Any:
        """Send a request, with what attempts it takes."""
        attempts = Attempts(request, self._retries)
        while attempts.wait is not None:
            await asyncio.sleep(attempts.wait)
            try:
                attempts.take(_to_reply(await self._send(request)))
            except self._errors.TransportError as problem:
                attempts.miss(problem, was_sent=self._was_sent(problem))
        return read(attempts.result)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self.close()


def connect(
    url: str,
    *,
    key: str | None = None,
    tenant: str | None = None,
    timeout: float = 60.0,
    retries: int = 3,
    **options: Any,
) -> Connection:
    """A service at ``url``, for the holder of a ``key``; an operator names the ``tenant``.

    A call waits up to ``timeout`` seconds for an answer, and is sent up to ``retries`` times more where the service is
    away, busy or asks to wait. ``options`` are for httpx (``verify``, ``proxy``, ``transport``). Nothing is sent yet.
    """
    made = _options(url, key, tenant, options)
    return Connection(_httpx().Client(**made), timeout, retries)


def connect_async(
    url: str,
    *,
    key: str | None = None,
    tenant: str | None = None,
    timeout: float = 60.0,
    retries: int = 3,
    **options: Any,
) -> AsyncConnection:
    """The same for async callers."""
    made = _options(url, key, tenant, options)
    return AsyncConnection(_httpx().AsyncClient(**made), timeout, retries)
