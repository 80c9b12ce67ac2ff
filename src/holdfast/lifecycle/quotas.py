"""How much of a kind a user may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.records import TYPES, MemoryType, Subject, Usage, kind_of
from holdfast.core.values import check_id
from holdfast.ports.stores import Tenant


@dataclass(eq=False, repr=False)
class Quotas:
    """``holdfast.quotas``: how much of a kind a user may hold."""

    tenant: Tenant

    def set(
        self,
        kind: MemoryType | str,
        max_memories: float | None = None,
        max_bytes: float | None = None,
        user_id: str | None = None,
    ) -> None:
        """Set limits for a user, or for everyone who has none of their own. ``None`` leaves one as it is;
        ``math.inf`` takes it away. A lower limit removes nothing: it stops further writes.
        """
        row = kind_of(kind)
        if not row.durable:
            kinds = ", ".join(kind.name.value for kind in TYPES.values() if kind.durable)
            raise InvalidInputError(
                f"the size of {row.name} memory is fixed: it holds the last {row.max_memories:,} entries of a session, "
                f"of whatever size; kinds that take max_memories and max_bytes are: {kinds}"
            )
        given = {"max_memories": max_memories, "max_bytes": max_bytes}
        limits = {name: _limit(name, value) for name, value in given.items() if value is not None}
        if not limits:
            raise InvalidInputError("give max_memories, max_bytes, or both")
        user = None if user_id is None else check_id(user_id, "user_id")
        self.tenant.records.set_quota(self.tenant.name, user, row, limits)

    def get(self, kind: MemoryType | str, user_id: str) -> Usage:
        """What a user holds of a kind, and how much they may."""
        row = kind_of(kind)
        if not row.durable:
            raise InvalidInputError(
                f"{row.name} memory is counted where it is used: count_memories({row.name.value!r})"
            )
        return self.tenant.records.usage(Subject.check(self.tenant.name, user_id), row)


def _limit(name: str, value: float) -> int | None:
    if value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInputError(
            f"{name} must be a whole number of at least 0, or math.inf for no limit, not {quote(value)}"
        )
    return value
