"""What brings a record back from the recycle bin, and why it may not come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.core.errors import (
    AgentRemovedError,
    ConflictError,
    ExpiredError,
    HoldfastError,
    QuotaExceededError,
    StaleError,
    quote,
)
from holdfast.core.records import Cause, Move, Outcome, Record, State
from holdfast.core.times import iso
from holdfast.lifecycle.registry import AGENT
from holdfast.ports.records import RecordStore
from holdfast.ports.registry import Registered, RegistryReader

_BATCH: Final = 500


def read_bundle(records: RecordStore, tenant: str, bundle: str) -> Iterator[Record]:
    """All that went to the recycle bin together, and is there still."""
    place = 0
    while True:
        some, place = records.bundled(tenant, bundle, after=place, limit=_BATCH)
        yield from some
        if len(some) < _BATCH:
            return


def restore_move(record: Record, now: int) -> Move:
    """The move that brings a record back. If its time is over, that counts anew: it would be gone at once otherwise."""
    if record.purge_at is not None and record.purge_at <= now:
        raise ExpiredError(
            f"memory {record.id} was in the recycle bin until {iso(record.purge_at)}; it can no longer be restored"
        )
    over = record.hidden_from is not None and record.hidden_from <= now
    target = record.previous or State.ACTIVE
    aged_from = now if over else None
    return Move(record.id, record.version, record.state, target, "restored", Cause.RESTORE, aged_from=aged_from)


def agent_error(what: str, agent_id: str, bundle: str | None, agent: Registered | None, now: int) -> AgentRemovedError:
    """The error for something whose agent is in the recycle bin. Only what went with the agent comes back with it."""
    where = f"{what} belongs to agent {agent_id!r}, which is in the recycle bin"
    if agent is not None and agent.purge_at is not None and agent.purge_at <= now:
        until = iso(agent.purge_at)
        return AgentRemovedError(f"{where} and could be restored until {until}; neither can be restored any more")
    if agent is not None and bundle is not None and bundle == agent.bundle:
        return AgentRemovedError(
            f"{where}; restore the agent, and it comes back too: holdfast agent restore {agent_id}"
        )
    return AgentRemovedError(
        f"{where}, but did not go there with it; restore the agent first (holdfast agent restore {agent_id}), then this"
    )


def restore_error(record: Record, outcome: Outcome, registered: RegistryReader, now: int) -> HoldfastError:
    """The error for a record that did not come back."""
    if outcome is Outcome.TAKEN:
        name = quote(record.metadata.get("name") or record.metadata.get("key"))
        return ConflictError(
            f"memory {record.id} cannot be restored: another one goes by its name ({name}) now; "
            "delete or rename that first"
        )
    if outcome is Outcome.FULL:
        return QuotaExceededError(
            f"memory {record.id} cannot be restored: the quota for {record.kind} memories of user "
            f"{record.scope.user_id!r} has no room for it; delete old memories or upgrade the quota first"
        )
    if outcome is Outcome.PARTED:
        agent = registered.get(record.scope.tenant, AGENT, record.scope.agent_id)
        return agent_error(f"memory {record.id}", record.scope.agent_id, record.bundle, agent, now)
    return StaleError(f"memory {record.id} was changed by another writer meanwhile; try again")
