"""Versions of records that have ended, in a relational engine: the ``VersionStore``.

A version ends where a record is changed (``records.py``), by a copy of its row, in the same transaction. Its row refers
to the record's, and goes with it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action, Event, acting_as
from holdfast.core.decisions import Held
from holdfast.core.records import Entry, Kind, Subject, Version
from holdfast.core.values import SECOND, parse_json_object, to_json, unpack
from holdfast.ports.coordination import Lease
from holdfast.ports.rules import Census
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import SqlStore, Transaction
from holdfast.storage.relational.moves import CurrentRow, Holds, MoveBatch, model_code
from holdfast.storage.relational.rows import to_stored

_PAGE: Final = 1_000


class VersionRow(NamedTuple):
    """A version that has ended, as it is stored."""

    id: str
    version: int
    started_at: int
    ended_at: int
    actor: str
    reason: str | None
    metadata: str
    content: str | bytes
    source: str | None
    derived_from: str | None

    def value(self) -> Version:
        """The version as callers know it."""
        sources = tuple(json.loads(self.derived_from)) if self.derived_from else ()
        data = (unpack(self.content), parse_json_object(self.metadata), self.source, sources)
        return Version(self.id, self.version, self.started_at, self.ended_at, self.actor, self.reason, *data)


class DueRow(NamedTuple):
    """A version that is past its time, and the record that it is of."""

    key: int
    version: int
    ended_at: int
    size: int
    id: str
    subject: Subject
    agent_id: str
    session_id: str | None
    metadata: str
    profile: int
    revision: int


class SqlVersions(SqlStore):
    """The ``VersionStore`` of the relational engines."""

    def ended(self, subject: Subject, record_id: str, *, now: int | None = None) -> list[Version]:
        found = self._ask_about(subject, VersionRow, "versions.of_record", now, record_id)
        return [row.value() for row in found]

    def at(self, subject: Subject, record_ids: Sequence[str], *, at: int, now: int) -> list[Version]:
        if not record_ids:
            return []
        found = self._ask_about(subject, VersionRow, "versions.at", now, to_json(record_ids), at)
        return [row.value() for row in found]

    def complete(self, entry: Entry, version: int) -> None:
        record, (model, vectors, terms) = entry
        stored = to_stored(record.content, record.metadata, None)
        with self._database.write(record.scope.subject) as tx:
            number = tx.number_of(record.scope.subject)
            found_by = (model_code(tx, model), vectors, terms)
            own = (stored.size, stored.text_hash, *found_by, stored.metadata, stored.content)
            tx.run("versions.complete", (number, record.id, version, *own))

    def census(self, tenant: str, now: int) -> list[Census]:
        totals: dict[Subject, list[int]] = {}
        with self._database.read() as tx:
            holds = cache(partial(Holds, tx))
            for page in _due(tx.all, tenant, now):
                for row in page:
                    if _is_held(holds(row.subject), row):
                        continue
                    amounts = (1, row.size, zlib.crc32(f"{row.id}@{row.version}".encode()), row.ended_at // SECOND)
                    total = totals.get(row.subject, [0, 0, 0, 0])
                    totals[row.subject] = [so_far + more for so_far, more in zip(total, amounts, strict=True)]
        return [Census("version", subject, *total) for subject, total in sorted(totals.items())]

    def newly_due(
        self, profile: int, versions: int | None, versions_for: int | None, *, now: int
    ) -> Iterator[tuple[Held, int]]:
        asked = (profile, now, versions, versions_for)
        for page in _pages(self._database.ask, "versions.newly_due", asked, "revision"):
            for row in page:
                where = (row.subject.user_id, row.agent_id, row.session_id, row.id)
                yield Held(*where, parse_json_object(row.metadata)), row.size

    def trim(self, tenant: str, *, upto: int, now: int, lease: Lease | None = None) -> tuple[int, int]:
        gone = size = 0
        for page in _due(self._database.ask, tenant, upto):
            page.sort(key=lambda row: row.key)  # which begins with the subject's number
            theirs = [(subject, list(mine)) for subject, mine in groupby(page, key=lambda row: row.subject)]
            for group in self._database.groups(theirs):
                with self._database.write() as tx:
                    check_lease(tx, lease)
                    for subject, mine in group:
                        sizes = _erase(tx, subject, mine, upto=upto, now=now)
                        gone, size = gone + len(sizes), size + sum(sizes)
        return gone, size


def _due(ask: Callable[..., list[Any]], tenant: str, now: int) -> Iterator[list[DueRow]]:
    """The versions that rules keep no longer, in pages: what ended too long ago, and what too many came after."""
    (shortest,) = ask(int, "versions.shortest", (tenant,))
    if shortest is not None:
        yield from _pages(ask, "versions.too_old", (now - shortest, now, tenant), "ended_at")
    yield from _pages(ask, "versions.too_many", (tenant, now), "profile", "revision")


def _pages(
    ask: Callable[..., list[Any]], statement: str, asked: tuple[object, ...], *order: str
) -> Iterator[list[DueRow]]:
    """What a statement gives, in the order of these columns, and of the versions of a record."""
    place = attrgetter(*order, "key", "version")
    after: tuple[int, ...] = (-(2**63),) * (len(order) + 2)
    while found := ask(DueRow, statement, (*asked, *after, _PAGE)):
        after = place(found[-1])
        yield found


def _erase(tx: Transaction, subject: Subject, found: list[DueRow], *, upto: int, now: int) -> list[int]:
    """Delete versions of one subject, but for those that a hold or, by now, a rule keeps; the sizes of what went."""
    number = tx.number_of(subject)
    if number is None:  # erased meanwhile
        return []
    holds = Holds(tx, subject)
    free = [row for row in found if not _is_held(holds, row)]
    gone = [row for row in free if tx.run("versions.erase", (row.key, upto, row.version))]
    numbers: dict[str, list[int]] = {}
    for row in gone:
        numbers.setdefault(row.id, []).append(row.version)
    append(tx, number, [Event(now, Action.VERSIONS_DELETED, one, {"versions": some}) for one, some in numbers.items()])
    return [row.size for row in gone]


def _is_held(holds: Holds, row: DueRow) -> bool:
    return holds.find(row.agent_id, row.session_id, row.id, row.metadata) is not None


def is_long(row: CurrentRow) -> bool:
    """Whether versions of a record are to be deleted as one more ends. Nobody sees those that are too many, so that it
    is done now and then, for several of them.
    """
    if row.most_versions is None or row.revision <= row.most_versions:
        return False
    return (row.revision - row.most_versions) % max(1, row.most_versions // 2) == 0


def trim(batch: MoveBatch, row: CurrentRow) -> None:
    """Delete the versions of a record that are too many by their number; what is past its time waits for a sweep."""
    gone = batch.tx.all(int, "versions.trim", (row.key, 0))
    detail = {"versions": sorted(gone), "reason": "newer versions took their place"}
    with acting_as(batch.tx.author):  # who corrected it, and may be the user, is named in the history
        append(batch.tx, batch.number, [Event(batch.now, Action.VERSIONS_DELETED, row.id, detail)] if gone else [])


class RewrittenRow(NamedTuple):
    """A record whose version before the current one ended at a moment."""

    name: str
    id: str
    revision: int


def find_rewritten(tx: Transaction, number: int, kind: Kind, names: Sequence[str], at: int) -> list[RewrittenRow]:
    """The live records of these names whose versions before the current ones ended at a moment."""
    return tx.all(RewrittenRow, "versions.rewritten", (number, kind.code, to_json(names), at))
