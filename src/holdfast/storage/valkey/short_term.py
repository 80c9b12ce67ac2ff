"""The ``ShortTermStore`` of a Valkey or Redis server."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from holdfast.core.errors import HoldfastError, StorageError
from holdfast.core.records import Message, Scope
from holdfast.core.values import SECOND, pack, to_json, unpack
from holdfast.ports.conversations import SessionWindow, ShortWindow
from holdfast.storage.valkey.addresses import Address, read_address
from holdfast.storage.valkey.server import Run, Server, Word, read_script

BUCKETS: Final = tuple(b"%02x" % number for number in range(256))


class SessionKeys(NamedTuple):
    """The keys that one session is kept by, in the order in which scripts take them.

    ``messages`` ends with the session's name, which is what the three others, its indexes, hold of it.
    """

    messages: bytes
    of_user: bytes
    of_agent: bytes
    due: bytes


@lru_cache(maxsize=1_024)  # a session is used often, and the digests take a tenth of the time of a write
def session_keys(scope: Scope) -> SessionKeys:
    """The keys of a scope's session."""
    return named_keys(session_name(scope))


def session_name(scope: Scope) -> bytes:
    """What a scope's session is called in indexes."""
    session = _digest("no session" if scope.session_id is None else f"session {scope.session_id}")
    return b"%b:%b:%b" % (_user(scope.tenant, scope.user_id), _agent(scope.tenant, scope.agent_id), session)


def named_keys(name: bytes) -> SessionKeys:
    """The keys of the session that goes by ``name`` in an index."""
    user, agent, _ = name.split(b":")
    bucket = user[:2]
    return SessionKeys(
        messages=b"holdfast:{%b}:session:%b" % (bucket, name),
        of_user=b"holdfast:{%b}:user:%b" % (bucket, user),
        of_agent=b"holdfast:{%b}:agent:%b" % (bucket, agent),
        due=due_key(bucket),
    )


def user_key(tenant: str, user_id: str) -> bytes:
    """The index of a user's sessions."""
    user = _user(tenant, user_id)
    return b"holdfast:{%b}:user:%b" % (user[:2], user)


def agent_keys(tenant: str, agent_id: str) -> list[bytes]:
    """The indexes of an agent's sessions, one in each bucket."""
    agent = _agent(tenant, agent_id)
    return [b"holdfast:{%b}:agent:%b" % (bucket, agent) for bucket in BUCKETS]


def due_key(bucket: bytes) -> bytes:
    """The list of when the sessions of a bucket expire."""
    return b"holdfast:{%b}:due" % bucket


def _user(tenant: str, user_id: str) -> bytes:
    return _digest(f"user {len(tenant)} {tenant}{user_id}")


def _agent(tenant: str, agent_id: str) -> bytes:
    return _digest(f"agent {len(tenant)} {tenant}{agent_id}")


def _digest(text: str) -> bytes:
    """128 bits of a text, as 32 digits; the first two of a user's are the bucket."""
    return blake2b(text.encode(), digest_size=16).hexdigest().encode()


_APPEND, _WINDOW, _EXPIRY, _REMOVE, _END, _END_EXPIRED = map(
    read_script, ("append", "window", "expiry", "remove", "end", "end_expired")
)

_TEXT, _PACKED = b"t", b"z"
#: The moment at which no session has expired.
_EVER: Final = 0
#: How long the window of a check stays if the check is cut short.
_TRIAL_TTL: Final = 60 * SECOND


class ServerProblem(NamedTuple):
    """Something that is wrong with a server, and what to do about it."""

    text: str
    remedy: str
    is_fatal: bool
    """Whether the server cannot be used until then."""


class ServerCheck(NamedTuple):
    """What a look at a server found."""

    found: str
    problems: tuple[ServerProblem, ...]


class ValkeyShortTerm:
    """Sessions on a server. A session is one key, which holds when it expires by the caller's clock; the server's own
    TTL is the backstop. Each operation on a session is one script, whole or not at all, and one round trip.
    """

    is_outside = True

    def __init__(self, address: Address | str, *, timeout: float = 2.0) -> None:
        """``timeout`` bounds, in seconds, how long is waited for a connection and for an answer."""
        self._server = Server(read_address(address) if isinstance(address, str) else address, timeout=timeout)

    # --- one session ---------------------------------------------------------------------------------------------

    def append(
        self, scope: Scope, messages: Sequence[Message], *, ttl: int, now: int, most: int, session: str = ""
    ) -> int:
        milliseconds = -(-ttl // 1_000)
        arguments: list[Word] = [now, now + ttl, milliseconds, most, session, *map(_encode, messages)]
        held: int = self._server.run(Run(_APPEND, session_keys(scope), arguments), again=True)
        return held

    def window(
        self, scope: Scope, *, now: int, session: str | None = None, held: Mapping[str, Message] | None = None
    ) -> list[Message]:
        del held  # all of it comes with one answer
        return _messages(*self._server.run(Run(_WINDOW, session_keys(scope)[:1], _arguments(now, session)), again=True))

    def expires_at(self, scope: Scope, *, now: int, session: str | None = None) -> int | None:
        found = self._server.run(Run(_EXPIRY, session_keys(scope)[:1], _arguments(now, session)), again=True)
        return None if found is None else int(found)

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        removed: int = self._server.run(Run(_REMOVE, session_keys(scope), message_ids))
        return removed

    # --- many sessions -------------------------------------------------------------------------------------------

    def end(self, windows: Sequence[SessionWindow]) -> int:
        runs = [Run(_END, session_keys(scope), () if session is None else (session,)) for scope, session in windows]
        return sum(self._server.run_all(runs))

    def end_agent(self, tenant: str, agent_id: str) -> int:
        found = self._server.ask_all([("ZRANGE", key, 0, -1) for key in agent_keys(tenant, agent_id)])
        return self._end_all(name for names in found for name in names)

    def end_user(self, tenant: str, user_id: str) -> int:
        """Let the messages of all of a user's sessions expire now; how many sessions."""
        session_keys.cache_clear()  # so that no ids stay in memory
        (names,) = self._server.ask_all([("ZRANGE", user_key(tenant, user_id), 0, -1)])
        return self._end_all(names)

    def end_expired(self, now: int, limit: int) -> int:
        """Remove what has expired by ``now``, some at a time; how many sessions.

        The server forgets by itself what has expired by its own clock, so what is left to do is to strike that off the
        lists, and to remove what has expired by a clock that is ahead of the server's.
        """
        ended = 0
        while ended < limit:  # those that are found to be due only later are not found again
            names = self._due(now, limit - ended)
            is_all = len(names) < limit - ended
            ended += sum(self._server.run_all([Run(_END_EXPIRED, named_keys(name), (now,)) for name in names]))
            if is_all:
                break
        return ended

    def windows(self, tenant: str, user_id: str, *, known: Iterable[tuple[str, str | None]]) -> Iterator[ShortWindow]:
        """All messages of a user that the server has, session by session."""
        (names,) = self._server.ask_all([("ZRANGE", user_key(tenant, user_id), 0, -1)])
        owners = {session_name(Scope(tenant, user_id, *both)): both for both in known} if names else {}
        for name in names:
            keys = named_keys(name)[:1]
            asked = [Run(_WINDOW, keys, (_EVER,)), Run(_EXPIRY, keys, (_EVER,))]
            window, expires_at = self._server.run_all(asked)
            if expires_at is not None:
                agent_id, session_id = owners.get(name, (None, None))
                yield ShortWindow(agent_id, session_id, int(expires_at), _messages(*window))

    def _due(self, now: int, limit: int) -> list[bytes]:
        """The names of some sessions that are on the lists of what is due."""
        buckets = random.sample(BUCKETS, len(BUCKETS))  # so that several at work do not all begin with the same
        counts = self._server.ask_all([("ZCOUNT", due_key(bucket), "-inf", now) for bucket in buckets])
        asked: list[tuple[Word, ...]] = []
        for bucket, count in zip(buckets, counts, strict=True):
            if some := min(count, limit):
                asked.append(("ZRANGEBYSCORE", due_key(bucket), "-inf", now, "LIMIT", 0, some))
                limit -= some
        return [name for names in self._server.ask_all(asked) for name in names]

    def _end_all(self, names: Iterable[bytes]) -> int:
        return sum(self._server.run_all([Run(_END, named_keys(name), ()) for name in names]))

    # --- the server ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the server is, without user and password."""
        return self._server.address.safe_url

    def check(self) -> ServerCheck:
        """Ask the server what it is, and write, read and remove a window; raises what any other call would."""
        self._server.ask("PING")
        begun = time.perf_counter()
        self._server.ask("PING")
        milliseconds = (time.perf_counter() - begun) * 1_000
        facts = self._facts()
        product = "Valkey" if "valkey_version" in facts else "Redis"
        version = facts.get("valkey_version") or facts.get("redis_version") or "of an unknown version"
        problems = tuple(_problems(facts, is_cluster=self._server.address.cluster))
        if not any(problem.is_fatal for problem in problems):
            self._try_window()
        return ServerCheck(f"{product} {version} at {self.url} answers in {milliseconds:.1f} ms", problems)

    def _facts(self) -> dict[str, str]:
        """What the server tells of itself; nothing, where the user may not ask."""
        try:
            return {name: str(value) for name, value in self._server.ask("INFO").items()}
        except HoldfastError as problem:
            if problem.retryable:
                raise
            return {}

    def _try_window(self) -> None:
        """Write, read and remove a message, in a session that nobody else uses."""
        trial, now = uuid.uuid4().hex, time.time_ns() // 1_000
        scope = Scope("doctor", trial, "doctor", trial)
        message = Message(trial, "user", "trial", now, {})
        self.append(scope, [message], ttl=_TRIAL_TTL, now=now, most=1)
        kept = self.window(scope, now=now)
        if not self.end([SessionWindow(scope, None)]) or kept != [message]:
            raise StorageError(f"the short-term store {self.url} lost a message that was just written; look at its log")

    def close(self) -> None:
        """Let go of all connections."""
        self._server.close()


def _problems(facts: Mapping[str, str], *, is_cluster: bool) -> Iterator[ServerProblem]:
    """What is wrong with a server that tells this of itself."""
    if not facts:
        yield ServerProblem(
            "the user may not run INFO, so its memory policy is unknown",
            "grant it: ACL SETUSER … +info",
            is_fatal=False,
        )
    if facts.get("role") == "slave":
        yield ServerProblem(
            "it is a replica and takes no writes", "name the primary in HOLDFAST_SHORT_TERM_URL", is_fatal=True
        )
    mode = facts.get("server_mode") or facts.get("redis_mode")
    if (mode == "cluster" or facts.get("cluster_enabled") == "1") and not is_cluster:
        yield ServerProblem(
            "it is a node of a cluster and holds only some of the sessions",
            "write valkey+cluster:// in HOLDFAST_SHORT_TERM_URL",
            is_fatal=True,
        )
    policy = facts.get("maxmemory_policy", "noeviction")
    if facts.get("maxmemory", "0") != "0" and policy != "noeviction":
        yield ServerProblem(
            f"it may drop sessions before their time when its memory is full (maxmemory-policy {policy})",
            "set maxmemory-policy noeviction, or give Holdfast a server of its own",
            is_fatal=False,
        )


def _arguments(now: int, session: str | None) -> tuple[Word, ...]:
    return (now,) if session is None else (now, session)


def _encode(message: Message) -> bytes:
    """A message as it is stored: its id, the rest of it but for its content, its content; the first two are a line."""
    rest = {"role": message.role, "at": message.created_at, "metadata": message.metadata}
    if message.external_id is not None:
        rest["external_id"] = message.external_id
    content = pack(message.content)
    body = _TEXT + content.encode() if isinstance(content, str) else _PACKED + content
    return f"{message.id}\n{to_json(rest)}\n".encode() + body


def _messages(lengths: bytes, text: bytes) -> list[Message]:
    """The messages that follow one another in a text."""
    parts, at = [], 0
    for length in map(int, lengths.split()):
        parts.append(text[at : at + length].split(b"\n", 2))
        at += length
    rests = json.loads(b"[%b]" % b",".join(rest for _, rest, _ in parts))  # at once, which is much faster
    return [
        Message(one.decode(), rest["role"], _content(body), rest["at"], rest["metadata"], rest.get("external_id"))
        for (one, _, body), rest in zip(parts, rests, strict=True)
    ]


def _content(body: bytes) -> str:
    return unpack(body[1:]) if body[:1] == _PACKED else body[1:].decode()
