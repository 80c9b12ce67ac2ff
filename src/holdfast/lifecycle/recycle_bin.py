"""``holdfast.recycle``: what was removed, for as long as it can be brought back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any, Final, cast

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
from holdfast.core.records import Cause, MemoryType, Move, Outcome, Record, Scope, State, Subject
from holdfast.core.values import DAY, check_count, check_id, iso
from holdfast.lifecycle.registry import AGENT, TOOL, Registry
from holdfast.ports.conversations import BinnedMessage, Session
from holdfast.ports.records import RecordStore
from holdfast.ports.registry import Registered, RegistryReader
from holdfast.ports.stores import Stores
from holdfast.results import BinResult


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


_BATCH: Final = 500
_MOST: Final = 100_000
#: Where a list of the bin goes on from: a time at which things leave it, and what tells those of one time apart.
Place = tuple[int, Any]


class Recycle:
    """The recycle bin of one tenant."""

    def __init__(
        self,
        stores: Stores,
        tenant: str,
        registry: Registry,
        *,
        now: Callable[[], int],
        purge: Callable[..., dict[str, int]],
        refresh: Callable[[Subject, list[str]], None],
    ) -> None:
        """``refresh`` lets entities tell what holds now, after some of them came back."""
        self._stores = stores
        self._tenant = tenant
        self._registry = registry
        self._now = now
        self._purge = purge
        self._refresh = refresh

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
            return _count_restored(self._registry.restore(AGENT, check_id(agent_id, "agent_id")))
        if tool_id is not None:
            return _count_restored(self._registry.restore(TOOL, check_id(tool_id, "tool_id")))
        if user_id is not None:
            return self._restore_user(Subject.checked(self._tenant, user_id))
        raise InvalidInputError("say what to restore: memory_id, session_id, agent_id, tool_id, user_id or bundle")

    def purge(self, *, confirm: bool = False) -> dict[str, int]:
        """Delete for good what has been in the bin for its time; nothing else, whoever asks. How many, by kind.

        ``ClockError`` on a clock that leaped, is behind what the store has seen, or so far ahead of it that something
        waits, unless confirmed: the time as it is now is believed from then on.
        """
        return self._purge(confirm=confirm)

    # --- within -------------------------------------------------------------------------------------------------------

    def _subject(self, user_id: str | None) -> Subject | None:
        return None if user_id is None else Subject.checked(self._tenant, user_id)

    def _entries(self, now: int, sorts: Sequence[str] = (AGENT, TOOL)) -> list[dict[str, Any]]:
        return [
            {
                "type": entry.sort,
                f"{entry.sort}_id": entry.id,
                "deleted_at": iso(entry.moved_at or now),
                "reason": entry.reason,
                **_time_left(entry.purge_at, now),
            }
            for sort in sorts
            for entry in self._stores.registry.list(self._tenant, sort, include_removed=True)
            if entry.state is State.RECYCLED and (entry.purge_at or now) > now
        ]

    def _restore_one(self, memory_id: str, user_id: str | None) -> int:
        record = self._find(memory_id, user_id)
        now = self._now()
        if record is None:
            subject = self._message_owner(memory_id, user_id, now)
            if subject is not None and self._stores.history.restore_message(subject, memory_id, now=now):
                return 1 + self._restore_derived(memory_id, now)
            raise NotFoundError(f"no memory {quote(memory_id)} is in the recycle bin")
        (outcome,) = self._stores.records.transition(record.scope.subject, [restore_move(record, now)], now=now)
        if outcome is not Outcome.DONE:
            raise restore_error(record, outcome, self._stores.registry, now)
        self._refresh(record.scope.subject, [record.id])
        return 1 + (self._restore_derived(memory_id, now) if record.bundle == memory_id else 0)

    def _restore_derived(self, memory_id: str, now: int) -> int:
        """Bring back what was derived from a memory or a message and went with it; how much did."""
        return self._bring_back(read_bundle(self._stores.records, self._tenant, memory_id), now).outcomes[Outcome.DONE]

    def _restore_bundle(self, bundle: str, user_id: str | None) -> int:
        now = self._now()
        found = read_bundle(self._stores.records, self._tenant, bundle)
        theirs = (record for record in found if user_id in (None, record.scope.user_id))
        back = self._bring_back(theirs, now)
        if not back.outcomes:
            raise NotFoundError(f"nothing that went as {quote(bundle)} is in the recycle bin")
        return back.check()

    def _find(self, memory_id: str, user_id: str | None) -> Record | None:
        """A record in the bin, whoever's it is."""
        found = self._stores.records.find(self._tenant, memory_id)
        if found is None or found.state is not State.RECYCLED or user_id not in (None, found.scope.user_id):
            return None
        return found

    def _message_owner(self, memory_id: str, user_id: str | None, now: int) -> Subject | None:
        messages, _ = self._stores.history.binned_messages(self._tenant, self._subject(user_id), now=now, limit=_MOST)
        return next((binned.subject for binned in messages if binned.message.id == memory_id), None)

    def _restore_session(self, session_id: str, agent_id: str | None, user_id: str | None) -> int:
        sessions = self._stores.dues.binned_sessions(self._tenant, self._subject(user_id), limit=_MOST)
        found = [
            session
            for session in sessions
            if session_id in (session.session_id, session.id) and agent_id in (None, session.agent_id)
        ]
        if not found:
            raise NotFoundError(f"no session {session_id!r} is in the recycle bin")
        if len({(session.subject, session.agent_id) for session in found}) > 1:
            raise InvalidInputError(
                f"several users or agents have a session {session_id!r} in the recycle bin; say whose is meant",
                needs=("user_id", "agent_id"),
            )
        session = max(found, key=lambda session: session.moved_at or 0)
        now = self._now()
        outcome = self._bring_back_session(session.subject, session.id, now)
        if outcome is Outcome.TAKEN:
            raise ConflictError(
                f"session {session_id!r} cannot be restored: another of this name has begun since; remove that first"
            )
        if outcome is Outcome.PARTED:
            agent = self._stores.registry.get(self._tenant, AGENT, session.agent_id)
            raise agent_error(f"session {session_id!r}", session.agent_id, session.bundle, agent, now)
        if outcome is not Outcome.DONE:
            raise ConflictError(f"session {session_id!r} was changed by another writer meanwhile; try again")
        return 1

    def _bring_back_session(self, subject: Subject, item_id: str, now: int) -> Outcome:
        session = self._stores.history.get(subject, item_id)
        if session is None:
            return Outcome.STALE
        if session.purge_at is not None and session.purge_at <= now:
            raise ExpiredError(
                f"session {session.session_id!r} was in the recycle bin until {iso(session.purge_at)}; "
                "it can no longer be restored"
            )
        over = session.hidden_from is not None and session.hidden_from <= now
        move = Move(
            session.id,
            session.version,
            session.state,
            State.ACTIVE,
            "restored",
            Cause.RESTORE,
            aged_from=now if over else None,
        )
        return self._stores.history.transition_all([(subject, [move])], now=now)[0][0]

    def _restore_user(self, subject: Subject) -> int:
        now = self._now()
        back = self._bring_back(self._all(subject), now)
        sessions = self._stores.dues.binned_sessions(self._tenant, subject, limit=_MOST)
        for session in sessions:
            if session.purge_at is not None and session.purge_at > now:
                back.count(self._bring_back_session(subject, session.id, now), session.agent_id)
        for binned in self._stores.history.binned_messages(self._tenant, subject, now=now, limit=_MOST)[0]:
            try:
                if self._stores.history.restore_message(subject, binned.message.id, now=now):
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
                answers = self._stores.records.transition(
                    subject, [restore_move(record, now) for record in batch], now=now
                )
                for record, outcome in zip(batch, answers, strict=True):
                    back.count(outcome, record.scope.agent_id)
                    if outcome is Outcome.FULL:
                        back.full = record
                entities = [record.id for record in batch if record.kind is MemoryType.ENTITY]
                if entities:
                    self._refresh(subject, entities)
        return back

    def _all(self, subject: Subject | None) -> Iterator[Record]:
        after: dict[str, Any] = {}
        while True:
            records, place = self._stores.records.binned(self._tenant, subject, **after, limit=_BATCH)
            yield from records
            if len(records) < _BATCH:
                return
            after = {"after": place}

    def page(
        self, sort: str = "memory", *, user_id: str | None = None, after: Place | None = None, limit: int = 100
    ) -> tuple[list[dict[str, Any]], Place | None]:
        """Some of what is in the bin of one sort (``memory``, ``session``, ``message``, ``agent``, ``tool``), what
        leaves first first (agents and tools by their ids), and where to go on from; ``None`` when that was all.

        A page may have fewer things than ``limit`` though others follow.
        """
        check_count(limit, "limit", most=_MOST)
        now, subject = self._now(), self._subject(user_id)
        go_on: dict[str, Any] = {} if after is None else {"after": after}
        place: Place | None
        match sort:
            case "memory":
                records, place = self._stores.records.binned(self._tenant, subject, **go_on, limit=limit)
                found = [_describe_record(record, now) for record in records if (record.purge_at or now) > now]
                more = len(records) == limit
            case "session":
                sessions = self._stores.dues.binned_sessions(self._tenant, subject, **go_on, limit=limit)
                found = [_describe_session(session, now) for session in sessions if (session.purge_at or now) > now]
                more = len(sessions) == limit
                place = (sessions[-1].purge_at or now, sessions[-1].id) if sessions else None
            case "message":
                messages, place = self._stores.history.binned_messages(
                    self._tenant, subject, now=now, **go_on, limit=limit
                )
                found = [_describe_message(binned, now) for binned in messages]
                more = len(messages) == limit
            case "agent" | "tool":
                entries = [] if subject is not None else self._entries(now, [sort])
                found = [one for one in entries if after is None or one[f"{sort}_id"] > after[1]][: limit + 1]
                more = len(found) > limit
                found = found[:limit]
                place = (0, found[-1][f"{sort}_id"]) if found else None
            case _:
                raise InvalidInputError(
                    f"there is no {quote(sort)} in the recycle bin; use memory, session, message, agent or tool"
                )
        return found, place if more else None

    def list(self, *, user_id: str | None = None, limit: int = 100) -> list[BinResult]:
        """What is in the bin, of a user or of everyone, with the days each has left; what leaves first is first."""
        check_count(limit, "limit", most=_MOST)
        found: list[Any] = self._entries(self._now()) if user_id is None else []
        for sort in ("memory", "session", "message"):
            found += self.page(sort, user_id=user_id, limit=limit)[0]
        return cast("list[BinResult]", sorted(found, key=lambda item: str(item["purge_at"]))[:limit])


class _Restored:
    """What became of things that were to come back together."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.full: Record | None = None
        """One that there is no room for."""
        self._parted: set[str] = set()

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
        if self._parted and not done:
            agents = "; ".join(f"holdfast agent restore {agent_id}" for agent_id in sorted(self._parted))
            raise AgentRemovedError(
                f"nothing was restored: all that is in the recycle bin ({outcomes[Outcome.PARTED]:,}) belongs to "
                f"agents that are there too; restore the agents first: {agents}"
            )
        return done


def _count_restored(restored: dict[str, Any]) -> int:
    """How many things came back: what was an agent's own, and itself."""
    names = ("persona", "episodic", "sessions")
    return 1 + sum(int(restored.get(name, 0)) for name in names)


def _time_left(purge_at: int | None, now: int) -> dict[str, Any]:
    left = max(0, (purge_at or now) - now)
    return {"purge_at": iso(purge_at or now), "days_left": -(-left // DAY)}


def _describe_session(session: Session, now: int) -> dict[str, Any]:
    return {
        "type": "session",
        "id": session.id,
        "user_id": session.subject.user_id,
        "agent_id": session.agent_id,
        "session_id": session.session_id,
        "messages": session.messages,
        "deleted_at": iso(session.moved_at or now),
        "reason": session.reason,
        **_time_left(session.purge_at, now),
    }


def _describe_message(binned: BinnedMessage, now: int) -> dict[str, Any]:
    return {
        "type": "message",
        "memory_id": binned.message.id,
        "user_id": binned.subject.user_id,
        "agent_id": binned.agent_id,
        "session_id": binned.session_id,
        "deleted_at": None,
        "reason": "deleted by the user",
        **_time_left(binned.purge_at, now),
    }


def _describe_record(record: Record, now: int) -> dict[str, Any]:
    scope: Scope = record.scope
    return {
        "type": "memory",
        "memory_id": record.id,
        "memory_type": record.kind.value,
        "user_id": scope.user_id,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "content": record.content,
        "deleted_at": iso(record.moved_at or now),
        "reason": record.reason,
        "bundle": record.bundle,
        **_time_left(record.purge_at, now),
    }
