"""``holdfast.recycle``: what was removed, for as long as it can be brought back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, Final, cast

from holdfast.core.audit import Action, Event
from holdfast.core.errors import (
    AgentRemovedError,
    ConflictError,
    ExpiredError,
    HoldfastError,
    InvalidInputError,
    NotFoundError,
    QuotaExceededError,
    StaleError,
    quote,
)
from holdfast.core.records import HISTORY, TYPES, Cause, MemoryType, Move, Outcome, Record, State, Subject, key_of
from holdfast.core.values import DAY, check_count, check_id, iso
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.ports.conversations import BinnedMessage, Session
from holdfast.ports.records import RecordStore, kept_out_error
from holdfast.ports.registry import AGENT, TOOL, Registered, RegistryReader
from holdfast.ports.stores import Tenant, read_pages
from holdfast.results.lifecycle import BinResult, RegistryMoveResult

_BATCH: Final = 500
_MOST: Final = 100_000
_SORTS: Final = ("memory", "session", "message", AGENT, TOOL)
#: Where a list of the bin goes on from: a time at which things leave it, and what tells those of one time apart.
Place = tuple[int, Any]


def read_bundle(records: RecordStore, tenant: str, bundle: str) -> Iterator[Record]:
    """All that went to the recycle bin together, and is there still."""
    return chain.from_iterable(read_pages(partial(records.bundled, tenant, bundle), _BATCH))


def restore_move(one: Record | Session, now: int) -> Move:
    """The move that brings something back. If its time is over, it counts anew: else it would be gone at once."""
    if one.purge_at is not None and one.purge_at <= now:
        until = iso(one.purge_at)
        raise ExpiredError(f"{_name(one)} was in the recycle bin until {until}; it can no longer be restored")
    over = one.hidden_from is not None and one.hidden_from <= now
    target = (one.previous if isinstance(one, Record) else None) or State.ACTIVE
    return Move(one.id, one.version, one.state, target, "restored", Cause.RESTORE, aged_from=now if over else None)


def restore_error(one: Record | Session, outcome: Outcome, registry: RegistryReader, now: int) -> HoldfastError:
    """The error for something that did not come back."""
    name = _name(one)
    if outcome is Outcome.TAKEN and isinstance(one, Session):
        return ConflictError(f"{name} cannot be restored: another of this name has begun since; remove that first")
    if outcome is Outcome.TAKEN and isinstance(one, Record):
        taken = quote(key_of(TYPES[one.kind], one.name) or one.metadata.get("name") or one.metadata.get("key"))
        return ConflictError(
            f"{name} cannot be restored: another one goes by its name ({taken}) now; delete or rename that first"
        )
    if outcome is Outcome.FULL and isinstance(one, Record):
        return QuotaExceededError(
            f"{name} cannot be restored: the quota for {one.kind} memories of user {one.scope.user_id!r} has no room "
            "for it; delete old memories or upgrade the quota first"
        )
    if outcome is Outcome.KEPT_OUT:
        return kept_out_error(f"{name} cannot be restored", one.id)
    if outcome is Outcome.PARTED:
        owner = one if isinstance(one, Session) else one.scope
        agent = registry.get(owner.subject.tenant, AGENT, owner.agent_id)
        return _agent_error(name, owner.agent_id, one.bundle, agent, now)
    return StaleError(f"{name} was changed by another writer meanwhile; try again")


def _name(one: Record | Session) -> str:
    return f"session {one.session_id!r}" if isinstance(one, Session) else f"memory {one.id}"


def _agent_error(what: str, agent_id: str, bundle: str | None, agent: Registered | None, now: int) -> AgentRemovedError:
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


@dataclass(eq=False, repr=False)
class Recycle:
    """The recycle bin of one tenant."""

    tenant: Tenant
    empty: Callable[..., dict[str, int]]
    refresh: Callable[[Subject, list[str]], None]
    """``refresh`` lets entities tell what holds now, after some of them came back."""

    def restore(
        self,
        *,
        memory_id: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        tool_id: str | None = None,
        user_id: str | None = None,
        bundle: str | None = None,
    ) -> int:
        """Bring back one memory (with what was derived from it, if that went with it), a session (of an agent, if one
        is named), an agent, a tool, all that a user has in the bin, or what went there together as a ``bundle``; how
        many things came back, exactly as they were.

        ``ConflictError`` where a name has been taken meanwhile, ``QuotaExceededError`` where there is no room.
        """
        if memory_id is not None:
            return self._restore_one(check_id(memory_id, "memory_id"), user_id)
        if session_id is not None:
            return self._restore_session(check_id(session_id, "session_id"), agent_id, user_id)
        if bundle is not None:
            return self._restore_bundle(check_id(bundle, "bundle"), user_id)
        if user_id is not None and (agent_id is not None or tool_id is not None):
            raise InvalidInputError("an agent or a tool is restored for all its users; give agent_id or tool_id alone")
        if agent_id is not None:
            return _count_restored(Registry(self.tenant).agents.restore(agent_id))
        if tool_id is not None:
            return _count_restored(Registry(self.tenant).tools.restore(tool_id))
        if user_id is not None:
            return self._restore_user(Subject.check(self.tenant.name, user_id))
        raise InvalidInputError("say what to restore: memory_id, session_id, agent_id, tool_id, user_id or bundle")

    def purge(self, *, confirm: bool = False) -> dict[str, int]:
        """Delete for good what has been in the bin for its time; nothing else, whoever asks. How many, by kind.

        ``ClockError`` on a clock that leaped, is behind what the store has seen, or so far ahead of it that something
        waits, unless confirmed: the time as it is now is believed from then on.
        """
        return self.empty(confirm=confirm)

    # --- within -------------------------------------------------------------------------------------------------------

    def _subject(self, user_id: str | None) -> Subject | None:
        return None if user_id is None else Subject.check(self.tenant.name, user_id)

    def _restore_one(self, memory_id: str, user_id: str | None) -> int:
        record, now = self.tenant.records.find(self.tenant.name, memory_id), self.tenant.now()
        if record is None or record.state is not State.RECYCLED or user_id not in (None, record.scope.user_id):
            subject = self._message_owner(memory_id, user_id, now)
            if subject is not None and self.tenant.history.restore_message(subject, memory_id, now=now):
                return 1 + self._restore_derived(memory_id, now)
            raise NotFoundError(f"no memory {quote(memory_id)} is in the recycle bin")
        (outcome,) = self.tenant.records.transition(record.scope.subject, [restore_move(record, now)], now=now)
        if outcome is not Outcome.DONE:
            raise restore_error(record, outcome, self.tenant.registry, now)
        self.refresh(record.scope.subject, [record.id])
        return 1 + (self._restore_derived(memory_id, now) if record.bundle == memory_id else 0)

    def _restore_derived(self, memory_id: str, now: int) -> int:
        """Bring back what was derived from a memory or a message and went with it; how much did."""
        return self._bring_back(self._bundle(memory_id), now).outcomes[Outcome.DONE]

    def _bundle(self, bundle: str) -> Iterator[Record]:
        return read_bundle(self.tenant.records, self.tenant.name, bundle)

    def _restore_bundle(self, bundle: str, user_id: str | None) -> int:
        theirs = (record for record in self._bundle(bundle) if user_id in (None, record.scope.user_id))
        back = self._bring_back(theirs, self.tenant.now())
        if not back.outcomes:
            raise NotFoundError(f"nothing that went as {quote(bundle)} is in the recycle bin")
        return back.check()

    def _message_owner(self, memory_id: str, user_id: str | None, now: int) -> Subject | None:
        subject = self._subject(user_id)
        messages, _ = self.tenant.history.binned_messages(self.tenant.name, subject, now=now, limit=_MOST)
        return next((binned.subject for binned in messages if binned.message.id == memory_id), None)

    def _restore_session(self, session_id: str, agent_id: str | None, user_id: str | None) -> int:
        sessions = self.tenant.dues.binned_sessions(self.tenant.name, self._subject(user_id), limit=_MOST)
        named = [session for session in sessions if session_id in (session.session_id, session.id)]
        found = [session for session in named if agent_id in (None, session.agent_id)]
        if not found:
            raise NotFoundError(f"no session {session_id!r} is in the recycle bin")
        if len({(session.subject, session.agent_id) for session in found}) > 1:
            raise InvalidInputError(
                f"several users or agents have a session {session_id!r} in the recycle bin; say whose is meant",
                needs=("user_id", "agent_id"),
            )
        session = max(found, key=lambda session: session.moved_at or 0)
        now = self.tenant.now()
        outcome = self._bring_back_session(session, now)
        if outcome is not Outcome.DONE:
            raise restore_error(session, outcome, self.tenant.registry, now)
        return 1

    def _bring_back_session(self, session: Session, now: int) -> Outcome:
        """Bring back a session with all its parts; neither comes if one of them cannot."""
        parts, move = SessionParts(self.tenant), restore_move(session, now)
        if parts.is_taken(session):
            detail = {"kind": HISTORY, "to": move.target.value, "reason": "another was begun under its name"}
            self.tenant.audit.append(session.subject, [Event(now, Action.REFUSED, session.id, detail)])
            return Outcome.TAKEN
        ((outcome,),) = self.tenant.history.transition_all([(session.subject, [move])], now=now)
        return parts.follow_session(session.subject, session.id) if outcome is Outcome.DONE else outcome

    def _restore_user(self, subject: Subject) -> int:
        now = self.tenant.now()
        SessionParts(self.tenant).begin_steps()
        pages = read_pages(partial(self.tenant.records.binned, self.tenant.name, subject), _BATCH)
        back = self._bring_back(chain.from_iterable(pages), now)
        for session in self.tenant.dues.binned_sessions(self.tenant.name, subject, limit=_MOST):
            if session.purge_at is not None and session.purge_at > now:
                back.count(self._bring_back_session(session, now), session.agent_id)
        for binned in self.tenant.history.binned_messages(self.tenant.name, subject, now=now, limit=_MOST)[0]:
            try:
                if self.tenant.history.restore_message(subject, binned.message.id, now=now):
                    back.count(Outcome.DONE, binned.agent_id)
            except AgentRemovedError:
                back.count(Outcome.PARTED, binned.agent_id)
        if not back.outcomes:
            raise NotFoundError(f"nothing of user {subject.user_id!r} is in the recycle bin")
        return back.check()

    def _bring_back(self, found: Iterable[Record], now: int) -> _Restored:
        """Bring back records, each subject's together, in batches; what became of them."""
        back = _Restored()
        in_time = (record for record in found if record.purge_at is not None and record.purge_at > now)
        for subject, theirs in groupby(in_time, key=lambda record: record.scope.subject):
            while batch := list(islice(theirs, _BATCH)):
                moves = [restore_move(record, now) for record in batch]
                answers = self.tenant.records.transition(subject, moves, now=now)
                for record, outcome in zip(batch, answers, strict=True):
                    back.count(outcome, record.scope.agent_id)
                    if outcome is Outcome.FULL:
                        back.full = record
                if entities := [record.id for record in batch if record.kind is MemoryType.ENTITY]:
                    self.refresh(subject, entities)
        return back

    def page(
        self, sort: str = "memory", *, user_id: str | None = None, after: Place | None = None, limit: int = 100
    ) -> tuple[list[BinResult], Place | None]:
        """Some of what is in the bin of one sort (``memory``, ``session``, ``message``, ``agent``, ``tool``), what
        leaves first first (agents and tools by their ids), and where to go on from; ``None`` when that was all.

        A page may have fewer things than ``limit`` though others follow.
        """
        check_count(limit, "limit", most=_MOST)
        now, subject, tenant = self.tenant.now(), self._subject(user_id), self.tenant
        go_on: dict[str, Any] = {} if after is None else {"after": after}
        found: Sequence[Record | Session | BinnedMessage | Registered]
        place: Place
        match sort:
            case "memory":
                found, place = tenant.records.binned(tenant.name, subject, **go_on, limit=limit)
            case "session":
                found = sessions = tenant.dues.binned_sessions(tenant.name, subject, **go_on, limit=limit)
                place = (sessions[-1].purge_at or now, sessions[-1].id) if sessions else (0, "")
            case "message":
                found, place = tenant.history.binned_messages(tenant.name, subject, now=now, **go_on, limit=limit)
            case "agent" | "tool":
                start = "" if after is None else after[1]
                entries = [] if subject is not None else tenant.registry.list(tenant.name, sort, include_removed=True)
                removed = [entry for entry in entries if entry.state is State.RECYCLED and entry.id > start]
                found = removed[:limit]
                place = (0, found[-1].id if found else "")
            case _:
                raise InvalidInputError(
                    f"there is no {quote(sort)} in the recycle bin; use memory, session, message, agent or tool"
                )
        shown = [_describe(one, now) for one in found if (one.purge_at or now) > now]
        return shown, place if len(found) == limit else None

    def list(self, *, user_id: str | None = None, limit: int = 100) -> list[BinResult]:
        """What is in the bin, of a user or of everyone, with the days each has left; what leaves first is first."""
        check_count(limit, "limit", most=_MOST)
        most = {AGENT: _MOST, TOOL: _MOST}  # they come by their ids
        found = [one for sort in _SORTS for one in self.page(sort, user_id=user_id, limit=most.get(sort, limit))[0]]
        return sorted(found, key=lambda item: item["purge_at"])[:limit]


@dataclass
class _Restored:
    """What became of things that were to come back together."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    full: Record | None = None
    """One that there is no room for."""
    _parted: set[str] = field(default_factory=set)

    def count(self, outcome: Outcome, agent_id: str) -> None:
        """Count what became of one that is with this agent."""
        self.outcomes[outcome] += 1
        if outcome is Outcome.PARTED:
            self._parted.add(agent_id)

    def check(self) -> int:
        """How many came back; an error where others have to make way first, or nothing came for want of its agent."""
        outcomes, done = self.outcomes, self.outcomes[Outcome.DONE]
        if self.full is not None:
            raise QuotaExceededError(
                f"{done:,} things were restored, {outcomes[Outcome.FULL]:,} stay in the recycle bin: the quota for "
                f"{self.full.kind} memories of user {self.full.scope.user_id!r} has no room for them"
            )
        if outcomes[Outcome.TAKEN]:
            raise ConflictError(
                f"{done:,} things were restored, {outcomes[Outcome.TAKEN]:,} stay in the bin: "
                "others go by their names now; delete or rename those first"
            )
        if outcomes[Outcome.KEPT_OUT]:
            raise kept_out_error(f"{done:,} things were restored, {outcomes[Outcome.KEPT_OUT]:,} stay in the bin")
        if self._parted and not done:
            agents = "; ".join(f"holdfast agent restore {agent_id}" for agent_id in sorted(self._parted))
            raise AgentRemovedError(
                f"nothing was restored: all that is in the recycle bin ({outcomes[Outcome.PARTED]:,}) belongs to "
                f"agents that are there too; restore the agents first: {agents}"
            )
        return done


def _count_restored(restored: RegistryMoveResult) -> int:
    """How many things came back: what was an agent's own, and itself."""
    return 1 + restored.get("persona", 0) + restored.get("episodic", 0) + restored.get("sessions", 0)


def _describe(one: Record | Session | BinnedMessage | Registered, now: int) -> BinResult:
    """Something in the bin as callers see it."""
    named: dict[str, Any]
    match one:
        case Record(scope=scope):
            named = {"type": "memory", "memory_id": one.id, "memory_type": one.kind.value, "user_id": scope.user_id}
            named |= {"agent_id": scope.agent_id, "session_id": scope.session_id, "content": one.content}
            named |= {"bundle": one.bundle}
        case Session():
            named = {"type": "session", "id": one.id, "user_id": one.subject.user_id, "agent_id": one.agent_id}
            named |= {"session_id": one.session_id, "messages": one.messages}
        case BinnedMessage():
            named = {"type": "message", "memory_id": one.message.id, "user_id": one.subject.user_id}
            named |= {"agent_id": one.agent_id, "session_id": one.session_id}
        case Registered():
            named = {"type": one.sort, f"{one.sort}_id": one.id}
    moved = {"deleted_at": None, "reason": "deleted by the user"}
    if not isinstance(one, BinnedMessage):
        moved = {"deleted_at": iso(one.moved_at or now), "reason": one.reason}
    found = {
        **named,
        **moved,
        "purge_at": iso(one.purge_at or now),
        "days_left": -(-max(0, (one.purge_at or now) - now) // DAY),
    }
    return cast("BinResult", found)
