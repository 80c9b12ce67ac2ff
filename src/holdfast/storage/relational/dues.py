"""What is due: the ``DueStore``. Each question is a range of an index, so it costs what it answers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from holdfast.core.content import to_json
from holdfast.core.decisions import RecordFacts, Window
from holdfast.core.holds import Held, standing
from holdfast.core.records import State, Subject
from holdfast.core.rules import HISTORY, resolve
from holdfast.core.times import SECOND
from holdfast.ports.conversations import Session
from holdfast.ports.rules import Census, Named, Page, Profile, Share
from holdfast.ports.subjects import is_tombstone
from holdfast.storage.relational.database import Database, Names, Transaction
from holdfast.storage.relational.moves import KINDS, Mover, held_of
from holdfast.storage.relational.rules import read_book, version_of
from holdfast.storage.relational.scopes import START, all_keys
from holdfast.storage.relational.sessions import SQL as CONVERSATIONS
from holdfast.storage.relational.sessions import as_session, hold_on

SQL: Final = Names("dues")
_FIRST: Final = -(2**63)
_LAST: Final = 2**63 - 1
#: Stands for conversations where a kind's number is asked for.
_HISTORY_CODE: Final = 8
_SOME: Final = 1_000
Place = tuple[int, int]


class SqlDues:
    """The ``DueStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rules_version(self, tenant: str) -> int:
        with self._database.read() as tx:
            return version_of(tx, tenant)

    def tenants(self) -> list[str]:
        with self._database.read() as tx:
            return [row[0] for row in tx.rows(SQL["tenants"])]

    def profiles(self, tenant: str) -> list[Profile]:
        with self._database.read() as tx:
            book = read_book(tx, tenant)
            found = tx.rows(SQL["profiles"], (tenant,))
            together = [(no, kind, book.together(kind, json.loads(names))) for no, kind, names in found]
        return [Profile(no, kind, resolve(kind, rules, book.defaults), tuple(rules)) for no, kind, rules in together]

    def census(self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()) -> list[Census]:
        statement = SQL["session_census" if profile.kind == HISTORY else "census"]
        with self._database.read() as tx:
            found = tx.rows(statement, (profile.number, state, *_bounds(window), to_json(sorted(without))))
        return [Census(profile.kind, Subject.parse(row[0]), *row[1:]) for row in found if not is_tombstone(row[0])]

    def census_of_agents(
        self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()
    ) -> dict[str, int]:
        if profile.kind == HISTORY:
            return {}
        where = (profile.number, state, *_bounds(window), to_json(sorted(without)))
        with self._database.read() as tx:
            return dict(tx.rows(SQL["census_of_agents"], where))

    def due(
        self, profile: Profile, state: State, window: Window, *, after: Place = START, limit: int, tags: bool
    ) -> Page:
        statement = SQL["sessions_due" if profile.kind == HISTORY else "due"]
        with self._database.read() as tx:
            found = tx.rows(statement, (profile.number, state, *_bounds(window), *after, tags, limit))
        standings = [_standing(row, profile.kind, state, row[1], None) for row in found if not is_tombstone(row[3])]
        return Page(standings, _last(found))

    def due_of(
        self,
        subject: Subject,
        profile: Profile,
        state: State,
        window: Window,
        *,
        after: int = 0,
        limit: int,
        tags: bool,
    ) -> tuple[list[RecordFacts], int]:
        with self._database.read() as tx:
            first, last = all_keys(tx.number_of(subject) or 0)
            where = (profile.number, state, *_bounds(window), max(first, after + 1), last, tags, limit, subject)
            found = tx.rows(SQL["due_of_subject"], where)
        standings = [_standing(row, profile.kind, state, row[1], None) for row in found]
        return standings, found[-1][0] if found else after

    def bin_census(self, tenant: str, now: int) -> list[Census]:
        with self._database.read() as tx:
            found = tx.rows(SQL["bin_census"], (now, tenant))
            found += tx.rows(SQL["session_bin_census"], (now, tenant))
        return [Census(_kind(code), Subject.parse(subject), *rest) for subject, code, *rest in found]

    def message_census(self, tenant: str, now: int) -> list[Census]:
        totals: dict[Subject, list[int]] = {}
        after = START
        with self._database.read() as tx:
            movers: dict[Subject, Mover] = {}
            while found := tx.rows(CONVERSATIONS["messages_to_purge"], (now, *after, tenant, _SOME)):
                after = (found[-1][2], found[-1][0])
                for row in found:
                    subject = Subject.parse(row[3])
                    mover = movers.get(subject) or Mover(tx, subject, row[7], now=now)
                    movers[subject] = mover
                    if not _is_kept(tx, mover, row):
                        total = totals.setdefault(subject, [0, 0, 0, 0])
                        for place, amount in enumerate((1, row[8], zlib.crc32(row[1].encode()), row[2] // SECOND)):
                            total[place] += amount
        return [Census("message", subject, *total) for subject, total in sorted(totals.items())]

    def binned(
        self, tenant: str, now: int, *, after: Place = START, limit: int, tags: bool, sessions: bool = False
    ) -> Page:
        statement = SQL["sessions_binned" if sessions else "binned"]
        with self._database.read() as tx:
            found = tx.rows(statement, (now, tenant, *after, tags, limit))
        standings = [_standing(row[:10], _kind(row[10]), State(row[11]), row[12], row[1]) for row in found]
        return Page(standings, _last(found))

    def binned_sessions(
        self, tenant: str, subject: Subject | None = None, *, after: tuple[int, str] | None = None, limit: int
    ) -> list[Session]:
        with self._database.read() as tx:
            found = tx.rows(SQL["bin_of_sessions"], (tenant, subject, limit, *(after or (-(2**63), ""))))
        return [as_session(Subject.parse(row[-1]), row[:-1]) for row in found]

    def live(self, subject: Subject) -> int:
        with self._database.read() as tx:
            return tx.value(SQL["live_of_subject"], (tx.number_of(subject) or 0,))

    def expired(self, subject: Subject, kind: str, now: int) -> int:
        tenant = subject.tenant
        with self._database.read() as tx:
            keys = all_keys(tx.number_of(subject) or 0)
            return tx.value(SQL["expired"], (tenant, kind, now, *keys))

    def live_of_agent(self, tenant: str, agent_id: str) -> int:
        with self._database.read() as tx:
            return tx.value(SQL["live_of_agent"], (agent_id, tenant))

    def shares(self, tenant: str, profile: Profile, state: State, window: Window, named: Named) -> list[Share]:
        statement = SQL["session_shares" if profile.kind == HISTORY else "shares"]
        with self._database.read() as tx:
            numbers = ((tx.number_of(Subject(tenant, user_id)), user_id) for user_id in named.users)
            users = {number: user_id for number, user_id in numbers if number is not None}
            sets = (to_json(dict.fromkeys(sorted(names), 1)) for names in (map(str, users), *named[1:]))
            found = tx.rows(statement, (profile.number, state, *_bounds(window), *sets))
        return [
            Share(Held(users.get(number, ""), agent_id or "", session_id or "", item_id or "", {}), records, size)
            for number, agent_id, session_id, item_id, records, size in found
        ]

    def overdue_since(self, tenant: str, now: int) -> Iterator[tuple[str, int]]:
        for profile in self.profiles(tenant):
            with self._database.read() as tx:
                yield from _oldest_due(tx, profile, now)
        with self._database.read() as tx:
            row = tx.one(SQL["earliest_binned"], (now, tenant))
        if row is not None and row[0] is not None:
            yield "bin", row[0]

    def totals(self) -> list[tuple[str, str, str, int]]:
        with self._database.read() as tx:
            return [(row[0], row[1], row[2], row[3]) for row in tx.rows(SQL["totals"])]

    def holdings(self) -> list[tuple[str, int, int]]:
        with self._database.read() as tx:
            return [(_kind(code), size, count) for code, size, count in tx.rows(SQL["bytes_by_kind"])]

    def ages(self, bounds: Sequence[int]) -> dict[str, tuple[list[int], int]]:
        limits = [_LAST, *sorted(bounds, reverse=True), _FIRST]
        counts: dict[str, tuple[list[int], int]] = {}
        with self._database.read() as tx:
            for number, kind in tx.rows(SQL["every_profile"]):
                found, total = counts.get(kind, ([0] * (len(limits) - 1), 0))
                for place, (newest, oldest) in enumerate(pairwise(limits)):
                    for state in (State.ACTIVE, State.ARCHIVED):
                        count, ages = tx.one(SQL["ages"], (number, state, oldest, newest)) or (0, 0)
                        found[place] += count
                        total += int(ages) * SECOND
                counts[kind] = (found, total)
        return counts

    def give_back(self, pages: int) -> int:
        return self._database.give_back(pages)


def _oldest_due(tx: Transaction, profile: Profile, now: int) -> Iterator[tuple[str, int]]:
    """When the record that has waited longest for its move was due, for each state."""
    if profile.kind == HISTORY:
        found = [(State.ACTIVE, tx.one(SQL["earliest_session"], (profile.number,)))]
    else:
        states = (State.ACTIVE, State.ARCHIVED)
        found = [(state, tx.one(SQL["earliest"], (profile.number, state))) for state in states]
    life = profile.life
    for state, row in found:
        times = [life.delete_after] + ([life.archive_after] if state is State.ACTIVE else [])
        due = [row[0] + after for after in times if row and row[0] is not None and after is not None]
        if due and min(due) <= now:
            yield profile.kind, min(due)


def _is_kept(tx: Transaction, mover: Mover, row: tuple[Any, ...]) -> bool:
    """Whether a message stays, for a hold on it, or goes with its conversation, if no hold keeps that."""
    _, message_id, _, subject, agent_id, session_id, metadata, _, _, number, item_id, over = row
    if (
        mover.holds
        and standing(held_of(Subject.parse(subject), agent_id, session_id, message_id, metadata), mover.holds)
        is not None
    ):
        return True
    return bool(over) and hold_on(tx, mover, (number, item_id, agent_id, session_id)) is None


def _bounds(window: Window) -> Place:
    return (_FIRST if window.after is None else window.after), window.upto


def _last(found: list[tuple[Any, ...]]) -> Place:
    return (found[-1][1], found[-1][0]) if found else START


def _kind(code: int) -> str:
    return HISTORY if code == _HISTORY_CODE else KINDS[code].name.value


def _standing(row: tuple[Any, ...], kind: str, state: State, aged_from: int, purge_at: int | None) -> RecordFacts:
    _, _, item_id, key, version, agent_id, session_id, size, packed, metadata = row
    subject = Subject.parse(key)
    thing = Held(subject.user_id, agent_id, session_id, item_id, json.loads(metadata) if metadata != "{}" else {})
    return RecordFacts(item_id, kind, subject, thing, state, version, aged_from, purge_at, size, packed is not None)
