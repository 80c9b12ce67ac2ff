"""Cold objects as a relational engine knows them: the ``PackStore``."""

from __future__ import annotations

from holdfast.core.errors import NotFoundError
from holdfast.core.records import Subject
from holdfast.ports.objects import Pack
from holdfast.ports.work import Lease
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.scopes import read_alias


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
            return tx.number("packs.open", (number, name, records, size, digest, now))

    def get(self, number: int) -> Pack | None:
        with self._database.read() as tx:
            pack = tx.find(Pack, "packs.get", (number,))
        return None if pack is None or pack.state == "leaving" else pack

    def unsettled(self, tenant: str) -> list[Pack]:
        with self._database.read() as tx:
            return tx.all(Pack, "packs.unsettled", (tenant,))

    def members(self, number: int) -> list[str]:
        with self._database.read() as tx:
            return tx.values("packs.members", (number,))

    def small(self, subject: Subject, *, below: int) -> Pack | None:
        with self._database.read() as tx:
            return tx.find(Pack, "packs.small", (subject, below))

    def oldest(self, limit: int) -> list[Pack]:
        with self._database.read() as tx:
            return tx.all(Pack, "packs.oldest", (limit,))

    def swap(self, old: int, new: int, *, members: int, lease: Lease | None = None) -> bool:
        with self._database.write() as tx:
            check_lease(tx, lease)
            _lock_subject(tx, old)
            whole = tx.number("packs.count_members", (old,)) == members
            if not whole or tx.value("packs.is_writing", (new,)) is None:
                return False
            tx.run("packs.move_members", (new, old))
            tx.run("packs.let_go", (old,))
            tx.run("packs.set_state", ("leaving", old))
            return True

    def settle(self, number: int) -> str | None:
        with self._database.write() as tx:
            _lock_subject(tx, number)
            state: str | None = tx.value("packs.settle", (number,))
            if state == "leaving":
                tx.run("packs.let_go", (number,))
        return state

    def leaving(self, number: int) -> list[Pack]:
        with self._database.read() as tx:
            pack = tx.find(Pack, "packs.get", (number,))
        return [pack] if pack is not None and pack.state == "leaving" else []

    def forget(self, number: int) -> None:
        with self._database.write() as tx:
            tx.run("packs.forget", (number,))


def _alias(tx: Transaction, number: int | None) -> str:
    alias = read_alias(tx, number)
    if alias is None:
        raise _erased()
    return alias


def _erased() -> NotFoundError:
    return NotFoundError("nothing is kept of that user, or not any more: they were erased meanwhile")


def _lock_subject(tx: Transaction, number: int) -> None:
    """Have the subject of a pack to itself."""
    pack = tx.find(Pack, "packs.get", (number,))
    if pack is not None:
        tx.number_of(pack.subject)
