"""What sessions are called on the server.

Ids may hold any printable character, so keys hold digests of them: of one alphabet and length, and not to be read.
Everything of a user lies in one of 256 buckets, named by a hash tag, so that all keys of one operation are in one slot
of a cluster; an agent's index and the list of what is due are kept in each bucket for the users who are in it.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from holdfast.core.records import Scope

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
    user, agent = _user(scope.tenant, scope.user_id), _agent(scope.tenant, scope.agent_id)
    return b"%b:%b:%b" % (user, agent, _session(scope.session_id))


def forget_scopes() -> None:
    """Keep no ids in memory."""
    session_keys.cache_clear()


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


def _session(session_id: str | None) -> bytes:
    return _digest("no session" if session_id is None else f"session {session_id}")


def _digest(text: str) -> bytes:
    """128 bits of a text, as 32 digits; the first two of a user's are the bucket."""
    return blake2b(text.encode(), digest_size=16).hexdigest().encode()
