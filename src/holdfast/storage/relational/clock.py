"""What the store has seen of the time: the ``ClockStore``."""

from __future__ import annotations

from typing import Final

from holdfast.core.chain import Event
from holdfast.core.records import Subject
from holdfast.core.times import Seen, sight
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Database, Names, Transaction

SQL: Final = Names("coordination")


class SqlClock:
    """The ``ClockStore`` of the relational engines: one row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def seen(self) -> Seen | None:
        with self._database.read() as tx:
            return _seen(tx)

    def sight(self, now: int, tolerance: int, *, trusted: bool = False, doubted: bool = False) -> Seen:
        with self._database.alone("seen") as tx:
            before = _seen(tx)
            after = sight(before, now, tolerance, trusted=trusted, doubted=doubted)
            if after != before:
                tx.run(SQL["see"], after)
        return after

    def accept(self, now: int, tenant: str, event: Event) -> None:
        with self._database.alone("seen") as tx:
            tx.run(SQL["see"], Seen(now))
            append(tx, tx.number_for(Subject(tenant)), [event])


def _seen(tx: Transaction) -> Seen | None:
    row = tx.one(SQL["seen"])
    return None if row is None else Seen(*row)
