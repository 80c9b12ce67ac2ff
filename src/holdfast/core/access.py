"""Who may do what: rights, and the callers that have them. Pure checks; whoever asks says what is missing.

A right includes those before it: whoever may govern may write, whoever may write may read. A caller may be bound to
some users, to some agents, or to both: it reaches what is within all of its bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

from holdfast.core.audit import key_actor
from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.records import ALL
from holdfast.core.values import check_id, check_tenant, iso

MAX_BOUND: Final = 1_000
MAX_NAME_CHARS: Final = 100


class Right(StrEnum):
    """What a caller may do, from the least to the most."""

    READ = "read"
    """Recall, list, look up, explain."""
    WRITE = "write"
    """Add, change, delete to the recycle bin, restore."""
    GOVERN = "govern"
    """Rules, quotas, holds, sweeps, exports, erasure: what decides how long things live, and what ends them."""
    ADMIN = "admin"
    """The schedule and backups: how it is run."""

    @property
    def includes(self) -> frozenset[Right]:
        """This right, and those that come with it."""
        return _include(frozenset({self}))


@cache
def _include(rights: frozenset[Right]) -> frozenset[Right]:
    """Some rights, and those that come with them."""
    order = list(Right)
    return frozenset(order[: max(map(order.index, rights)) + 1]) if rights else rights


class Principal(NamedTuple):
    """A caller, as its key describes it."""

    key_id: str | None
    """``None``: the local caller, who has no key."""
    tenant: str
    """``*``: an operator, who may act for any tenant and for the whole store."""
    rights: frozenset[Right]
    users: frozenset[str] | None = None
    """The users that it is bound to; ``None``: all of the tenant's."""
    agents: frozenset[str] | None = None
    """The agents that it is bound to; ``None``: all of the tenant's."""

    def actor(self, edge: str) -> str:
        """Whom audit entries name for it: its key, or the edge where it has none."""
        return edge if self.key_id is None else key_actor(self.key_id)

    @property
    def is_operator(self) -> bool:
        """Whether it may act for any tenant, and for the whole store."""
        return self.tenant == ALL

    def allows(self, right: Right) -> bool:
        """Whether it has a right, by itself or with a greater one."""
        return right in _include(self.rights)

    def reaches_tenant(self, tenant: str) -> bool:
        """Whether it may act for a tenant."""
        return self.is_operator or tenant == self.tenant

    def reaches_user(self, user_id: str) -> bool:
        """Whether a user (``*``: all of them) is within its bounds. Ids are compared whole."""
        return self.users is None or user_id in self.users

    def reaches_agent(self, agent_id: str) -> bool:
        """Whether an agent (``*``: all of them) is within its bounds."""
        return self.agents is None or agent_id in self.agents


#: The one who sits at the machine, where no keys are asked for.
LOCAL: Final = Principal(None, ALL, frozenset(Right))


class ApiKey(NamedTuple):
    """What is known of a key; its secret is not."""

    id: str
    tenant: str
    name: str
    rights: frozenset[Right]
    users: frozenset[str] | None
    agents: frozenset[str] | None
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None

    @property
    def principal(self) -> Principal:
        """Who calls with it."""
        return Principal(self.id, self.tenant, self.rights, self.users, self.agents)

    def is_valid(self, now: int) -> bool:
        """Whether it lets anyone in: it was not revoked, and its time is not over."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def as_dict(self) -> dict[str, Any]:
        """As callers of a service see it."""
        moments = ("created_at", "expires_at", "revoked_at", "last_used_at")
        said = {name: getattr(self, name) for name in moments}
        return {
            "key_id": self.id,
            "name": self.name,
            "tenant": self.tenant,
            "rights": list_rights(self.rights),
            "users": None if self.users is None else sorted(self.users),
            "agents": None if self.agents is None else sorted(self.agents),
            **{name: None if value is None else iso(value) for name, value in said.items()},
        }


def check_rights(rights: Iterable[Right | str]) -> frozenset[Right]:
    """Rights that a caller named, at least one."""
    if isinstance(rights, str) or not isinstance(rights, Iterable):
        raise InvalidInputError(f"rights must be a list of rights, such as ['read'], not {quote(rights)}")
    checked = frozenset(map(_right, rights))
    if not checked:
        raise InvalidInputError(f"a key needs at least one right: {', '.join(Right)}")
    return checked


def check_bounds(ids: Iterable[str] | None, what: str) -> frozenset[str] | None:
    """Users or agents that a key is bound to; ``None`` if to none. An empty list is no way to say that."""
    if ids is None:
        return None
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInputError(f"{what}s must be a list of ids, or None for all of them, not {quote(ids)}")
    checked = frozenset(check_id(one, f"{what}_id") for one in ids)
    if not 1 <= len(checked) <= MAX_BOUND:
        raise InvalidInputError(
            f"a key is bound to 1 to {MAX_BOUND:,} {what}s, not to {len(checked):,}; leave them out for all of them"
        )
    return checked


def check_key_tenant(tenant: object) -> str:
    """The tenant of a key; ``*`` for an operator's."""
    return ALL if tenant == ALL else check_tenant(tenant)


def list_rights(rights: Iterable[Right]) -> list[str]:
    """Rights from the least to the most."""
    held = frozenset(rights)
    return [right.value for right in Right if right in held]


def _right(value: object) -> Right:
    try:
        return Right(value)  # type: ignore[arg-type]  # whatever is not a right is refused
    except ValueError:
        raise InvalidInputError(f"unknown right {quote(value)}; use one of: {', '.join(Right)}") from None
