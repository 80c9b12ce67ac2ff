"""Agents and tools in SQLite: the ``RegistryStore``, and how an agent's own follows it into the bin and back."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any, Final

import apsw

from retain.core.chain import Event
from retain.core.content import parse_json_object, to_json
from retain.core.errors import ConflictError, HeldError, NotFoundError, StaleError
from retain.core.holds import Held, Hold, standing
from retain.core.records import Cause, Move, Outcome
from retain.core.rules import BIN
from retain.core.times import iso
from retain.core.types import State
from retain.ports import Followed, Lease, Registered
from retain.storage.sql import statements
from retain.storage.sqlite.audit import append
from retain.storage.sqlite.database import Database, one, rows, value
from retain.storage.sqlite.jobs import check_lease
from retain.storage.sqlite.moves import KINDS, Mover, held_of, standing_holds
from retain.storage.sqlite.rules import Profiles
from retain.storage.sqlite.scopes import ensure_subject
from retain.storage.sqlite.sessions import SQL as CONVERSATIONS
from retain.storage.sqlite.sessions import hold_on, move_session

SQL: Final = statements("retain.storage.sqlite", "registry.sql")
AGENT: Final = "agent"
#: Before everything there is.
_FIRST: Final = ("", 0)
_METADATA: Final = 6
#: Tenant, sort and id.
Where = tuple[str, str, str]


class SqliteRegistry:
    """The ``RegistryStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._profiles = Profiles()

    def put(
        self, tenant: str, sort: str, entry_id: str, *, description: str, metadata: dict[str, Any], now: int
    ) -> Registered:
        with self._database.write() as connection:
            known = _get(connection, tenant, sort, entry_id)
            if known is not None and known.state is not State.ACTIVE:
                raise ConflictError(
                    f"{sort} {entry_id!r} is in the recycle bin; restore it with retain {sort} restore {entry_id}"
                )
            connection.execute(SQL["put"], (tenant, sort, entry_id, description, to_json(metadata), now))
            _note(connection, (tenant, sort, entry_id), "registered" if known is None else "changed", now=now)
            return _known(connection, tenant, sort, entry_id)

    def get(self, tenant: str, sort: str, entry_id: str) -> Registered | None:
        with self._database.read() as connection:
            return _get(connection, tenant, sort, entry_id)

    def remove(self, tenant: str, sort: str, entry_id: str, *, now: int, reason: str, bundle: str) -> Registered:
        where = (tenant, sort, entry_id)
        with self._database.write() as connection:
            known = _get(connection, *where)
            if known is None and not (sort == AGENT and _has_own(connection, tenant, entry_id)):
                raise NotFoundError(f"no {sort} {entry_id!r} is known; see them with retain {sort} list")
            if known is not None and known.state is not State.ACTIVE:
                until = iso(known.purge_at or 0)
                raise ConflictError(f"{sort} {entry_id!r} is in the recycle bin already, until {until}")
            hold = _hold_on(connection, where, {} if known is None else known.metadata)
            if hold is None:
                if known is None:
                    connection.execute(SQL["put"], (*where, "", "{}", now))
                elif known.bundle is not None:  # some of it had not come back yet: it all goes together again
                    bundle = known.bundle
                connection.execute(SQL["remove"], (now, reason, now + BIN, bundle, *where))
                if sort == AGENT:
                    connection.execute(CONVERSATIONS["end_windows_of_agent"], (entry_id, tenant))
                _note(connection, where, "recycled", now=now, reason=reason)
            else:
                _note(connection, where, "refused", now=now, to=State.RECYCLED.value, hold=hold.id)
            row = one(connection, SQL["get"], where) or ()
        if hold is not None:
            raise HeldError(
                f"{sort} {entry_id!r} is kept by hold {hold.id} ({hold.reason}) and was not removed; "
                f"release the hold first: retain hold release {hold.id}"
            )
        return _entry(row)

    def restore(self, tenant: str, sort: str, entry_id: str, *, now: int) -> Registered:
        where = (tenant, sort, entry_id)
        with self._database.write() as connection:
            known = _get(connection, *where)
            if known is None:
                raise NotFoundError(f"no {sort} {entry_id!r} is known, in the recycle bin or out of it")
            if known.state is not State.RECYCLED:
                raise ConflictError(f"{sort} {entry_id!r} is not in the recycle bin; nothing to restore")
            if (known.purge_at or 0) <= now:
                raise ConflictError(
                    f"{sort} {entry_id!r} was in the recycle bin until {iso(known.purge_at or 0)}; "
                    "it can no longer be restored"
                )
            connection.execute(SQL["restore"], (now, *where))
            _note(connection, where, "restored", now=now)
            return _known(connection, *where)

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
        with self._database.write() as connection:
            check_lease(connection, lease)
            _check_unchanged(connection, entry)
            found = rows(connection, SQL[f"{statement}_{what}"], (whose, entry.tenant, *after, limit))
            moved: Counter[str] = Counter()
            left: Counter[str] = Counter()
            for (subject, number), mine in groupby(found, key=lambda row: (str(row[2]), int(row[3]))):
                mover = Mover(connection, subject, number, now=now)
                for row in mine:
                    outcome = self._move(connection, mover, entry, row, records=what == "records", now=now)
                    if outcome is not Outcome.DONE:
                        left[outcome.value] += 1
                    elif what == "records":
                        moved[KINDS[row[7]].name.value] += 1
                    else:
                        moved.update(sessions=1, messages=row[7])
                mover.save()
        return Followed(dict(moved), dict(left), (found[-1][0], found[-1][1]) if len(found) == limit else None)

    def _move(
        self,
        connection: apsw.Connection,
        mover: Mover,
        entry: Registered,
        row: tuple[Any, ...],
        *,
        records: bool,
        now: int,
    ) -> Outcome:
        if entry.state is not State.RECYCLED:
            move = _restoring(row, now)
        elif entry.unfinished is None and _is_held(connection, mover, entry, row, records=records):
            return Outcome.HELD  # it was refused, and written down, when the agent went
        else:
            move = _removing(entry, row, now)
        if records:
            return mover.move(move)
        return move_session(connection, self._profiles, mover, move, subject=row[3], now=now)

    def finish(self, entry: Registered, *, lease: Lease | None = None) -> bool:
        with self._database.write() as connection:
            check_lease(connection, lease)
            connection.execute(SQL["finish"], (entry.tenant, entry.sort, entry.id, entry.version))
            return connection.changes() > 0

    def unfinished(self, tenant: str) -> list[Registered]:
        with self._database.read() as connection:
            return [_entry(row) for row in rows(connection, SQL["unfinished"], (tenant,))]

    def due(self, tenant: str, *, now: int) -> list[Registered]:
        with self._database.read() as connection:
            return [_entry(row) for row in rows(connection, SQL["due"], (tenant, now))]

    def erase(self, entry: Registered, *, now: int, lease: Lease | None = None) -> bool:
        where = (entry.tenant, entry.sort, entry.id)
        with self._database.write() as connection:
            check_lease(connection, lease)
            known = _get(connection, *where)
            if known is None or known.version != entry.version or known.purge_at is None or known.purge_at > now:
                return False
            left = value(connection, SQL["bundle_left"], (known.bundle,))
            if left or (known.sort == AGENT and _has_own(connection, known.tenant, known.id)):
                return False
            if _hold_on(connection, where, known.metadata) is not None:
                return False
            connection.execute(SQL["erase"], where)
            _note(connection, where, "deleted", now=now, reason="its time in the recycle bin was over")
            return True

    def list(self, tenant: str, sort: str, *, include_removed: bool = False) -> list[Registered]:
        with self._database.read() as connection:
            return [_entry(row) for row in rows(connection, SQL["list"], (tenant, sort, include_removed))]


def _removing(entry: Registered, row: tuple[Any, ...], now: int) -> Move:
    """Into the bin until the agent leaves it; what a hold kept for longer has its own time there."""
    purge_at = entry.purge_at if entry.purge_at is not None and entry.purge_at > now else now + BIN
    reason = f"agent {entry.id} was removed"
    return Move(
        row[4], row[6], State(row[5]), State.RECYCLED, reason, Cause.AGENT, purge_at=purge_at, bundle=entry.bundle
    )


def _restoring(row: tuple[Any, ...], now: int) -> Move:
    """Back to where it was. If its time is over, that counts anew: it would be gone at once otherwise."""
    over = row[9] is not None and row[9] <= now
    target = State(row[8] or State.ACTIVE)
    aged_from = now if over else None
    return Move(row[4], row[6], State.RECYCLED, target, "its agent was restored", Cause.RESTORE, aged_from=aged_from)


def _is_held(
    connection: apsw.Connection, mover: Mover, entry: Registered, row: tuple[Any, ...], *, records: bool
) -> bool:
    if records:
        thing = held_of(mover.subject, entry.id, row[8], row[4], row[9])
        return standing(thing, mover.holds) is not None
    return hold_on(connection, mover, (row[1], row[4], entry.id, row[0])) is not None


def _check_unchanged(connection: apsw.Connection, entry: Registered) -> None:
    known = _get(connection, entry.tenant, entry.sort, entry.id)
    if known is None or known.version != entry.version:
        raise StaleError(
            f"{entry.sort} {entry.id!r} was removed, restored or changed by another writer meanwhile; look at it again"
        )


def _has_own(connection: apsw.Connection, tenant: str, agent_id: str) -> bool:
    """Whether an agent has live memories or conversations of its own."""
    return any(
        one(connection, SQL[statement], (agent_id, tenant, *_FIRST, 1)) for statement in ("own_records", "own_sessions")
    )


def _hold_on(connection: apsw.Connection, where: Where, metadata: dict[str, Any]) -> Hold | None:
    """The hold on all of an agent, or on a tool by its id or tag; those on a user leave the others' alone."""
    tenant, sort, entry_id = where
    thing = Held("", entry_id if sort == AGENT else "", None, entry_id, metadata)
    return standing(thing, standing_holds(connection, f"{tenant}/"))


def _note(connection: apsw.Connection, where: Where, action: str, *, now: int, **detail: str) -> None:
    """Into the tenant's own audit chain."""
    tenant, sort, entry_id = where
    chain = ensure_subject(connection, f"{tenant}/")
    append(connection, chain, [Event(now, action, entry_id, {"kind": sort, **detail})])


def _get(connection: apsw.Connection, tenant: str, sort: str, entry_id: str) -> Registered | None:
    row = one(connection, SQL["get"], (tenant, sort, entry_id))
    return None if row is None else _entry(row)


def _known(connection: apsw.Connection, tenant: str, sort: str, entry_id: str) -> Registered:
    row = one(connection, SQL["get"], (tenant, sort, entry_id))
    return _entry(row or ())


def _entry(row: tuple[Any, ...]) -> Registered:
    entry = Registered(*row)
    return entry._replace(state=State(entry.state), metadata=parse_json_object(row[_METADATA]))
