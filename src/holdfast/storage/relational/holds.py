"""Holds in a relational engine: the ``HoldStore``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from holdfast.core.audit import current_actor
from holdfast.core.chain import Event
from holdfast.core.holds import Hold
from holdfast.core.records import Subject
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Database, Names, Transaction

SQL: Final = Names("rules")


class SqlHolds:
    """The ``HoldStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, hold: Hold, event: Event) -> Hold:
        with self._database.govern(hold.tenant) as tx:
            hold = replace(hold, author=hold.author or current_actor(tx.author))
            whom = (hold.user_id, hold.agent_id, hold.session_id, hold.memory_id, hold.tag)
            tx.run(SQL["add_hold"], (hold.id, hold.tenant, hold.reason, hold.author, hold.created_at, *whom))
            _note(tx, hold, event)
            return hold

    def list(self, tenant: str, *, released: bool = False) -> list[Hold]:
        with self._database.read() as tx:
            return [Hold(*row) for row in tx.rows(SQL["holds"], (tenant, released))]

    def release(self, tenant: str, hold_id: str, *, now: int, event: Event) -> Hold | None:
        with self._database.govern(tenant) as tx:
            if not tx.run(SQL["release_hold"], (now, current_actor(tx.author), tenant, hold_id)):
                return None
            row = tx.one(SQL["hold"], (tenant, hold_id))
            hold = Hold(*(row or ()))
            _note(tx, hold, event)
            return hold


def _note(tx: Transaction, hold: Hold, event: Event) -> None:
    """On the chain of the user whom it is about, else on the tenant's."""
    append(tx, tx.number_for(Subject(hold.tenant, hold.user_id or "")), [event])
