"""Agents and tools, and how an agent's own follows it into the bin and back; parts of sessions.

The ``RegistryStore`` and the ``PartStore`` of the relational engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import Held, Hold, find_hold, removal_reason
from holdfast.core.errors import ConflictError, ExpiredError, HeldError, NotFoundError, StaleError
from holdfast.core.records import BIN, Cause, Move, Outcome, State, Subject
from holdfast.core.values import iso, to_json
from holdfast.ports.conversations import ShortTermStore
from holdfast.ports.coordination import Lease
from holdfast.ports.registry import Followed, Outlook, Own, Registered
from holdfast.ports.session_parts import PartRegistration
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import SqlStore, Transaction, Transactions
from holdfast.storage.relational.moves import MoveBatch
from holdfast.storage.relational.rows import kind_name
from holdfast.storage.relational.rules import Holds, Profiles
from holdfast.storage.relational.sessions import end_windows, find_session_hold, message_keys, move_session

AGENT: Final = "agent"
_ATTEMPTS: Final = 5
#: Before everything there is.
_FIRST: Final = ("", 0)
_PAGE: Final = 1_000
#: Tenant, sort and id.
Where = tuple[str, str, str]


class OwnRow(NamedTuple):
    """What is an agent's own: a record, or (without a kind) a conversation."""

    place: str
    key: int
    subject: Subject
    number: int
    id: str
    state: State
    version: int
    size: int
    kind: int | None
    messages: int
    session_id: str | None
    metadata: str
    purge_at: int | None
    previous: State | None
    hidden_from: int | None = None

    def counts(self) -> dict[str, int]:
        """What is counted of it, first of all the thing itself."""
        return {"sessions": 1, "messages": self.messages} if self.kind is None else {kind_name(self.kind): 1}


class SqlParts(SqlStore):
    """The ``PartStore`` of the relational engines."""

    def add(self, registration: PartRegistration) -> None:
        tenant, name, kind, url, options, unowned_as = registration
        self._change("parts.add", tenant, name, kind, url, to_json(options), unowned_as)

    def list(self, tenant: str) -> list[PartRegistration]:
        return self._database.ask(PartRegistration, "parts.list", (tenant,))

    def remove(self, tenant: str, name: str) -> bool:
        return self._change("parts.remove", tenant, name) > 0


class SqlRegistry(SqlStore):
    """The ``RegistryStore`` of the relational engines."""

    def __init__(self, database: Transactions, elsewhere: ShortTermStore | None = None) -> None:
        """``elsewhere`` keeps the short-term windows, if this database does not."""
        super().__init__(database)
        self._elsewhere = elsewhere
        self._profiles = Profiles()

    def put(
        self, tenant: str, sort: str, entry_id: str, *, description: str, metadata: dict[str, Any], now: int
    ) -> Registered:
        with self._database.govern(tenant) as tx:
            known = _get(tx, tenant, sort, entry_id)
            if known is not None and known.state is not State.ACTIVE:
                if not _is_over(known, now):
                    raise ConflictError(
                        f"{sort} {entry_id!r} is in the recycle bin; restore it with holdfast {sort} restore {entry_id}"
                    )
                if not _forget(tx, known, now):
                    raise ConflictError(
                        f"{sort} {entry_id!r} was in the recycle bin until {iso(known.purge_at or 0)}, and is not gone "
                        "yet: it, or something of its own, is on hold or not swept; release the hold (holdfast hold "
                        "list), then sweep: holdfast sweep"
                    )
                known = None
            tx.run("registry.put", (tenant, sort, entry_id, description, to_json(metadata), now))
            _note(tx, (tenant, sort, entry_id), Action.REGISTERED if known is None else Action.CHANGED, now=now)
            return _entry(tx, tenant, sort, entry_id)

    def get(self, tenant: str, sort: str, entry_id: str) -> Registered | None:
        return self._find(Registered, "registry.get", tenant, sort, entry_id)

    def remove(self, tenant: str, sort: str, entry_id: str, *, now: int, reason: str, bundle: str) -> Registered:
        where = (tenant, sort, entry_id)
        with self._database.govern(tenant) as tx:
            known = _get(tx, *where)
            if known is None and not (sort == AGENT and _has_own(tx, tenant, entry_id)):
                raise NotFoundError(f"no {sort} {entry_id!r} is known; see them with holdfast {sort} list")
            if known is not None and known.state is not State.ACTIVE:
                until = iso(known.purge_at or 0)
                raise ConflictError(f"{sort} {entry_id!r} is in the recycle bin already, until {until}")
            hold = _hold_on(tx, where, {} if known is None else known.metadata)
            if hold is None:
                if known is None:
                    tx.run("registry.put", (*where, "", "{}", now))
                elif known.bundle is not None:  # some of it had not come back yet: it all goes together again
                    bundle = known.bundle
                tx.run("registry.remove", (now, reason, now + BIN, bundle, *where))
                _note(tx, where, Action.RECYCLED, now=now, reason=reason)
                return _entry(tx, *where)
            _note(tx, where, Action.REFUSED, now=now, to=State.RECYCLED.value, hold=hold.id)
        raise HeldError(
            f"{sort} {entry_id!r} is kept by hold {hold.id} ({hold.reason}) and was not removed; "
            f"release the hold first: holdfast hold release {hold.id}"
        )

    def restore(self, tenant: str, sort: str, entry_id: str, *, now: int) -> Registered:
        where = (tenant, sort, entry_id)
        with self._database.govern(tenant) as tx:
            known = _get(tx, *where)
            if known is None:
                raise NotFoundError(f"no {sort} {entry_id!r} is known, in the recycle bin or out of it")
            if known.state is not State.RECYCLED:
                raise ConflictError(f"{sort} {entry_id!r} is not in the recycle bin; nothing to restore")
            if _is_over(known, now):
                raise ExpiredError(
                    f"{sort} {entry_id!r} was in the recycle bin until {iso(known.purge_at or 0)}; "
                    "it can no longer be restored"
                )
            tx.run("registry.restore", (now, *where))
            _note(tx, where, Action.RESTORED, now=now)
            return _entry(tx, *where)

    def follow(
        self,
        entry: Registered,
        what: str,
        *,
        after: tuple[str, int] = _FIRST,
        now: int,
        limit: int,
        lease: Lease | None = None,
    ) -> Followed:
        whose, statement = (entry.id, "own") if entry.state is State.RECYCLED else (entry.bundle, "bundled")
        where = (whose, entry.tenant, *after, limit)
        moved: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        left: Counter[str] = Counter()
        last: tuple[str, int] | None = None
        for attempt in range(_ATTEMPTS):  # what another changed between the look and the move is looked at again
            found = self._database.ask(OwnRow, f"registry.{statement}_{what}", where)
            if attempt == 0 and len(found) == limit:
                last = (found[-1].place, found[-1].key)
            stale = 0
            for outcome, row in self._move_all(entry, found, lease, now=now):
                if outcome is Outcome.DONE:
                    moved.update(counts := row.counts())
                    sizes[next(iter(counts))] += row.size
                elif outcome is Outcome.STALE and attempt < _ATTEMPTS - 1:
                    stale += 1
                elif attempt == 0 or outcome is Outcome.STALE:
                    left[outcome.value] += 1
            if not stale:
                break
        return Followed(dict(moved), dict(left), last, dict(sizes))

    def _move_all(
        self, entry: Registered, found: Sequence[OwnRow], lease: Lease | None, *, now: int
    ) -> Iterator[tuple[Outcome, OwnRow]]:
        """Move what is an agent's own, and say what became of each; what was erased meanwhile is left out."""
        theirs = [(subject, list(mine)) for subject, mine in groupby(found, key=lambda row: row.subject)]
        for group in self._database.groups(theirs):
            outcomes: list[tuple[Outcome, OwnRow]] = []
            with self._database.write() as tx:
                check_lease(tx, lease)
                for subject, mine in group:
                    number = tx.number_of(subject)
                    _check_unchanged(tx, entry)
                    if number is not None:
                        batch = MoveBatch(tx, subject, number, now=now)
                        outcomes += [(self._move(batch, entry, row), row) for row in mine]
                        batch.save()
                        tx.then(partial(end_windows, self._elsewhere, batch.ended))
            yield from outcomes

    def _move(self, batch: MoveBatch, entry: Registered, row: OwnRow) -> Outcome:
        if entry.state is not State.RECYCLED:
            move = _restore_move(row, batch.now)
        elif entry.unfinished is None and _is_held(batch.tx, batch.holds, entry, row):
            return Outcome.HELD  # it was refused, and written down, when the agent went
        else:
            move = _removal(entry, row, batch.now)
        return batch.move(move) if row.kind is not None else move_session(self._profiles, batch, move)

    def finish(self, entry: Registered, *, lease: Lease | None = None) -> bool:
        with self._database.govern(entry.tenant) as tx:
            check_lease(tx, lease)
            return tx.run("registry.finish", (entry.tenant, entry.sort, entry.id, entry.version)) > 0

    def unfinished(self, tenant: str) -> list[Registered]:
        return self._database.ask(Registered, "registry.unfinished", (tenant,))

    def due(self, tenant: str, *, now: int) -> list[Registered]:
        return self._database.ask(Registered, "registry.due", (tenant, now))

    def outlook(self, entry: Registered, *, at: int) -> Outlook:
        where = (entry.tenant, entry.sort, entry.id)
        own: list[Own] = []
        with self._database.read() as tx:
            stays = _hold_on(tx, where, entry.metadata) is not None
            holds = cache(partial(Holds, tx))
            any_hold = bool(tx.all(Hold, "rules.holds", (entry.tenant, False)))

            def is_kept(row: OwnRow) -> bool:
                return any_hold and _is_held(tx, holds(row.subject), entry, row)

            for what in ("records", "sessions") if entry.sort == AGENT else ():
                for row in _pages(tx, f"registry.own_{what}", (entry.id, entry.tenant)):
                    if is_kept(row):
                        stays = True
                    else:
                        own.append(Own(kind_name(row.kind), row.subject, row.id, row.version, row.size))
                staying = _pages(tx, f"registry.staying_{what}", (entry.bundle, entry.tenant), (at, any_hold))
                stays = stays or any((row.purge_at or 0) > at or is_kept(row) for row in staying)
        return Outlook(own, stays)

    def erase(self, entry: Registered, *, now: int, lease: Lease | None = None) -> bool:
        where = (entry.tenant, entry.sort, entry.id)
        with self._database.govern(entry.tenant) as tx:
            check_lease(tx, lease)
            known = _get(tx, *where)
            if known is None or known.version != entry.version or not _is_over(known, now):
                return False
            return _forget(tx, known, now)

    def list(self, tenant: str, sort: str, *, include_removed: bool = False) -> list[Registered]:
        return self._database.ask(Registered, "registry.list", (tenant, sort, include_removed))


def _pages(tx: Transaction, statement: str, whose: tuple[Any, ...], more: tuple[Any, ...] = ()) -> Iterator[OwnRow]:
    """All rows of a statement that gives some of what lies after a place."""
    after: tuple[str, int] = _FIRST
    while True:
        found = tx.all(OwnRow, statement, (*whose, *after, _PAGE, *more))
        yield from found
        if len(found) < _PAGE:
            return
        after = (found[-1].place, found[-1].key)


def _is_over(entry: Registered, now: int) -> bool:
    """Whether an entry's time in the recycle bin is over, swept or not."""
    return entry.purge_at is not None and entry.purge_at <= now


def _forget(tx: Transaction, entry: Registered, now: int) -> bool:
    """Forget an entry whose time is over, unless a hold keeps it, or something of its own is left; whether it went."""
    where = (entry.tenant, entry.sort, entry.id)
    left = tx.number("registry.bundle_left", (entry.bundle,))
    if left or (entry.sort == AGENT and _has_own(tx, entry.tenant, entry.id)):
        return False
    if _hold_on(tx, where, entry.metadata) is not None:
        return False
    tx.run("registry.erase", where)
    _note(tx, where, Action.DELETED, now=now, reason="its time in the recycle bin was over")
    return True


def _removal(entry: Registered, row: OwnRow, now: int) -> Move:
    """Into the bin until the agent leaves it; what a hold kept for longer has its own time there."""
    purge_at = entry.purge_at if entry.purge_at is not None and entry.purge_at > now else now + BIN
    reason = removal_reason(entry.id)
    move = Move(row.id, row.version, row.state, State.RECYCLED, reason, Cause.AGENT)
    return move._replace(purge_at=purge_at, bundle=entry.bundle)


def _restore_move(row: OwnRow, now: int) -> Move:
    """Back to where it was. If its time is over, that counts anew: it would be gone at once otherwise."""
    is_over = row.hidden_from is not None and row.hidden_from <= now
    target = row.previous or State.ACTIVE
    move = Move(row.id, row.version, State.RECYCLED, target, "its agent was restored", Cause.RESTORE)
    return move._replace(aged_from=now if is_over else None)


def _is_held(tx: Transaction, holds: Holds, entry: Registered, row: OwnRow) -> bool:
    if row.kind is not None:
        return holds.find(entry.id, row.session_id, row.id, row.metadata) is not None
    keys = message_keys(row.number, row.key)
    return find_session_hold(tx, holds, keys, row.id, (entry.id, row.session_id or None)) is not None


def _check_unchanged(tx: Transaction, entry: Registered) -> None:
    known = _get(tx, entry.tenant, entry.sort, entry.id)
    if known is None or known.version != entry.version:
        raise StaleError(
            f"{entry.sort} {entry.id!r} was removed, restored or changed by another writer meanwhile; look at it again"
        )


def _has_own(tx: Transaction, tenant: str, agent_id: str) -> bool:
    """Whether an agent has live memories or conversations of its own."""
    where = (agent_id, tenant, *_FIRST, 1)
    return any(tx.all(OwnRow, f"registry.{statement}", where) for statement in ("own_records", "own_sessions"))


def _hold_on(tx: Transaction, where: Where, metadata: dict[str, Any]) -> Hold | None:
    """The hold on all of an agent, or on a tool by its id or tag; those on a user leave the others' alone."""
    tenant, sort, entry_id = where
    thing = Held("", entry_id if sort == AGENT else "", None, entry_id, metadata)
    return find_hold(thing, Holds(tx, Subject(tenant)).active)


def _note(tx: Transaction, where: Where, action: Action, *, now: int, **detail: str) -> None:
    """Into the tenant's own audit chain."""
    tenant, sort, entry_id = where
    chain = tx.number_for(Subject(tenant))
    append(tx, chain, [Event(now, action, entry_id, {"kind": sort, **detail})])


def _get(tx: Transaction, tenant: str, sort: str, entry_id: str) -> Registered | None:
    return tx.find(Registered, "registry.get", (tenant, sort, entry_id))


def _entry(tx: Transaction, tenant: str, sort: str, entry_id: str) -> Registered:
    """An entry that has just been written."""
    (entry,) = tx.all(Registered, "registry.get", (tenant, sort, entry_id))
    return entry
