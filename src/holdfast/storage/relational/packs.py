"""Cold objects as a relational engine knows them: the ``PackStore``."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.errors import NotFoundError
from holdfast.core.records import Subject
from holdfast.ports.objects import Pack
from holdfast.ports.work import Lease
from holdfast.storage.relational.database import Database, Names, Transaction
from holdfast.storage.relational.jobs import check_lease

SQL: Final = Names("packs")


class SqlPacks:
    """The ``PackStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alias(self, subject: Subject) -> str:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            return _alias(tx, number)

    def open(
        self,
        subject: Subject,
        *,
        name: str,
        records: int,
        size: int,
        digest: bytes,
        now: int,
        alias: str | None = None,
    ) -> int:
        with self._database.write() as tx:
            number = tx.number_for(subject) if alias is None else tx.number_of(subject)
            if alias is not None and _alias(tx, number) != alias:
                raise _erased()
            return tx.value(SQL["open"], (number, name, records, size, digest, now))

    def get(self, number: int) -> Pack | None:
        with self._database.read() as tx:
            row = tx.one(SQL["get"], (number,))
        return None if row is None or row[3] == "leaving" else _pack(row)

    def unsettled(self, tenant: str) -> list[Pack]:
        with self._database.read() as tx:
            return [_pack(row) for row in tx.rows(SQL["unsettled"], (tenant,))]

    def members(self, number: int) -> list[str]:
        with self._database.read() as tx:
            return [row[0] for row in tx.rows(SQL["members"], (number,))]

    def small(self, subject: Subject, *, below: int) -> Pack | None:
        with self._database.read() as tx:
            row = tx.one(SQL["small"], (subject, below))
        return None if row is None else _pack(row)

    def oldest(self, limit: int) -> list[Pack]:
        with self._database.read() as tx:
            return [_pack(row) for row in tx.rows(SQL["oldest"], (limit,))]

    def swap(self, old: int, new: int, *, members: int, lease: Lease | None = None) -> bool:
        with self._database.write() as tx:
            check_lease(tx, lease)
            _have(tx, old)
            whole = tx.value(SQL["count_members"], (old,)) == members
            if not whole or tx.one(SQL["is_writing"], (new,)) is None:
                return False
            tx.run(SQL["move_members"], (new, old))
            tx.run(SQL["let_go"], (old,))
            tx.run(SQL["set_state"], ("leaving", old))
            return True

    def settle(self, number: int) -> str | None:
        with self._database.write() as tx:
            _have(tx, number)
            row = tx.one(SQL["settle"], (number,))
            if row is not None and row[0] == "leaving":
                tx.run(SQL["let_go"], (number,))
        return None if row is None else str(row[0])

    def leaving(self, number: int) -> list[Pack]:
        with self._database.read() as tx:
            row = tx.one(SQL["get"], (number,))
        return [_pack(row)] if row is not None and row[3] == "leaving" else []

    def forget(self, number: int) -> None:
        with self._database.write() as tx:
            tx.run(SQL["forget"], (number,))


def _alias(tx: Transaction, number: int | None) -> str:
    row = None if number is None else tx.one(SQL["alias"], (number,))
    if row is None:
        raise _erased()
    return str(row[0].hex())


def _erased() -> NotFoundError:
    return NotFoundError("nothing is kept of that user, or not any more: they were erased meanwhile")


def _have(tx: Transaction, number: int) -> None:
    """Have the subject of a pack to itself."""
    row = tx.one(SQL["get"], (number,))
    if row is not None:
        tx.number_of(Subject.parse(row[1]))


def _pack(row: tuple[Any, ...]) -> Pack:
    number, subject, *rest = row
    return Pack(number, Subject.parse(subject), *rest)
