"""Agents and tools: the ``RegistryStore``, and how an agent's own follows it into the bin and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import Held, Hold, find_hold, removal_reason
from holdfast.core.errors import ConflictError, ExpiredError, HeldError, NotFoundError, StaleError
from holdfast.core.records import BIN, HISTORY, Cause, Move, Outcome, State, Subject
from holdfast.core.values import iso, parse_json_object, to_json
from holdfast.ports.conversations import SessionWindow, ShortTermStore
from holdfast.ports.coordination import Lease
from holdfast.ports.registry import Followed, Outlook, Own, Registered
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.moves import MoveBatch, active_holds, held_of
from holdfast.storage.relational.rows import KINDS
from holdfast.storage.relational.rules import Profiles
from holdfast.storage.relational.sessions import SessionPlace, end_windows, hold_on, move_session

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
    state: str
    version: int
    size: int
    kind: int | None
    messages: int
    session_id: str | None
    metadata: str
    purge_at: int | None
    previous: str | None
    hidden_from: int | None = None

    @property
    def kind_name(self) -> str:
        """What sort of thing it is."""
        return HISTORY if self.kind is None else KINDS[self.kind].name.value

    def counts(self) -> dict[str, int]:
        """What is counted of it, first of all the thing itself."""
        return {"sessions": 1, "messages": self.messages} if self.kind is None else {self.kind_name: 1}


class SqlRegistry:
    """The ``RegistryStore`` of the relational engines."""

    def __init__(self, database: Database, elsewhere: ShortTermStore | None = None) -> None:
        """``elsewhere`` keeps the short-term windows, if this database does not."""
        self._database = database
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
            (entry,) = _read(tx, (tenant, sort, entry_id))
            return entry

    def get(self, tenant: str, sort: str, entry_id: str) -> Registered | None:
        with self._database.read() as tx:
            return _get(tx, tenant, sort, entry_id)

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
            else:
                _note(tx, where, Action.REFUSED, now=now, to=State.RECYCLED.value, hold=hold.id)
            entries = _read(tx, where)
        if hold is not None:
            raise HeldError(
                f"{sort} {entry_id!r} is kept by hold {hold.id} ({hold.reason}) and was not removed; "
                f"release the hold first: holdfast hold release {hold.id}"
            )
        return entries[0]

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
            (entry,) = _read(tx, where)
            return entry

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
            with self._database.read() as tx:
                found = tx.all(OwnRow, f"registry.{statement}_{what}", where)
            if attempt == 0 and len(found) == limit:
                last = (found[-1].place, found[-1].key)
            theirs = [(subject, list(mine)) for subject, mine in groupby(found, key=lambda row: row.subject)]
            stale = 0
            for group in self._database.groups(theirs):
                ended: list[SessionWindow] = []
                with self._database.write() as tx:
                    check_lease(tx, lease)
                    for outcome, row in self._move_all(tx, entry, group, ended, now=now):
                        if outcome is Outcome.DONE:
                            moved.update(counts := row.counts())
                            sizes[next(iter(counts))] += row.size
                        elif outcome is Outcome.STALE and attempt < _ATTEMPTS - 1:
                            stale += 1
                        elif attempt == 0 or outcome is Outcome.STALE:
                            left[outcome.value] += 1
                end_windows(self._elsewhere, ended)
            if not stale:
                break
        return Followed(dict(moved), dict(left), last, dict(sizes))

    def _move_all(
        self,
        tx: Transaction,
        entry: Registered,
        group: Sequence[tuple[Subject, list[OwnRow]]],
        ended: list[SessionWindow],
        *,
        now: int,
    ) -> Iterator[tuple[Outcome, OwnRow]]:
        for subject, mine in group:
            number = tx.number_of(subject)
            _check_unchanged(tx, entry)
            if number is None:  # erased meanwhile
                continue
            batch = MoveBatch(tx, subject, number, now=now)
            for row in mine:
                yield self._move(tx, batch, entry, row, now=now), row
            batch.save()
            ended += batch.ended

    def _move(self, tx: Transaction, batch: MoveBatch, entry: Registered, row: OwnRow, *, now: int) -> Outcome:
        if entry.state is not State.RECYCLED:
            move = _restore_move(row, now)
        elif entry.unfinished is None and _is_held(tx, batch, entry, row):
            return Outcome.HELD  # it was refused, and written down, when the agent went
        else:
            move = _removal(entry, row, now)
        if row.kind is not None:
            return batch.move(move)
        return move_session(tx, self._profiles, batch, move, now=now)

    def finish(self, entry: Registered, *, lease: Lease | None = None) -> bool:
        with self._database.govern(entry.tenant) as tx:
            check_lease(tx, lease)
            return tx.run("registry.finish", (entry.tenant, entry.sort, entry.id, entry.version)) > 0

    def unfinished(self, tenant: str) -> list[Registered]:
        with self._database.read() as tx:
            return [_parse(row) for row in tx.all(Registered, "registry.unfinished", (tenant,))]

    def due(self, tenant: str, *, now: int) -> list[Registered]:
        with self._database.read() as tx:
            return [_parse(row) for row in tx.all(Registered, "registry.due", (tenant, now))]

    def outlook(self, entry: Registered, *, at: int) -> Outlook:
        where = (entry.tenant, entry.sort, entry.id)
        own: list[Own] = []
        with self._database.read() as tx:
            stays = _hold_on(tx, where, entry.metadata) is not None
            held = _Holds(tx, entry)
            for what in ("records", "sessions") if entry.sort == AGENT else ():
                for row in _pages(tx, f"registry.own_{what}", (entry.id, entry.tenant)):
                    if held.keep(row):
                        stays = True
                    else:
                        own.append(Own(row.kind_name, row.subject, row.id, row.version, row.size))
                staying = _pages(tx, f"registry.staying_{what}", (entry.bundle, entry.tenant), (at, held.any))
                stays = stays or any((row.purge_at or 0) > at or held.keep(row) for row in staying)
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
        with self._database.read() as tx:
            return [_parse(row) for row in tx.all(Registered, "registry.list", (tenant, sort, include_removed))]


class _Holds:
    """What holds keep of an agent's own."""

    def __init__(self, tx: Transaction, entry: Registered) -> None:
        self._tx = tx
        self._entry = entry
        self._batches: dict[str, MoveBatch] = {}
        self.any = tx.find(Hold, "rules.holds", (entry.tenant, False)) is not None
        """Whether any hold stands in the tenant."""

    def keep(self, row: OwnRow) -> bool:
        """Whether a hold keeps a record, or a conversation."""
        if not self.any:
            return False
        batch = self._batches.get(row.subject) or MoveBatch(self._tx, row.subject, row.number, now=0)
        self._batches[row.subject] = batch
        return _is_held(self._tx, batch, self._entry, row)


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
    move = Move(row.id, row.version, State(row.state), State.RECYCLED, reason, Cause.AGENT)
    return move._replace(purge_at=purge_at, bundle=entry.bundle)


def _restore_move(row: OwnRow, now: int) -> Move:
    """Back to where it was. If its time is over, that counts anew: it would be gone at once otherwise."""
    is_over = row.hidden_from is not None and row.hidden_from <= now
    target = State(row.previous or State.ACTIVE)
    move = Move(row.id, row.version, State.RECYCLED, target, "its agent was restored", Cause.RESTORE)
    return move._replace(aged_from=now if is_over else None)


def _is_held(tx: Transaction, batch: MoveBatch, entry: Registered, row: OwnRow) -> bool:
    if row.kind is not None:
        thing = held_of(batch.subject, entry.id, row.session_id, row.id, row.metadata)
        return find_hold(thing, batch.holds) is not None
    return hold_on(tx, batch, SessionPlace(row.key, row.id, entry.id, row.session_id or "")) is not None


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
    return find_hold(thing, active_holds(tx, Subject(tenant)))


def _note(tx: Transaction, where: Where, action: Action, *, now: int, **detail: str) -> None:
    """Into the tenant's own audit chain."""
    tenant, sort, entry_id = where
    chain = tx.number_for(Subject(tenant))
    append(tx, chain, [Event(now, action, entry_id, {"kind": sort, **detail})])


def _get(tx: Transaction, tenant: str, sort: str, entry_id: str) -> Registered | None:
    return next(iter(_read(tx, (tenant, sort, entry_id))), None)


def _read(tx: Transaction, where: Where) -> list[Registered]:
    return [_parse(row) for row in tx.all(Registered, "registry.get", where)]


def _parse(row: Registered) -> Registered:
    metadata: Any = row.metadata  # as JSON
    return row._replace(state=State(row.state), metadata=parse_json_object(metadata))
