"""Holds in SQLite: the ``HoldStore``."""

from __future__ import annotations

from typing import Final

import apsw

from retain.core.chain import Event
from retain.core.holds import Hold
from retain.storage.sql import statements
from retain.storage.sqlite.audit import append
from retain.storage.sqlite.database import Database, one, rows
from retain.storage.sqlite.scopes import ensure_subject

SQL: Final = statements("retain.storage.sqlite", "holds.sql")


class SqliteHolds:
    """The ``HoldStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, hold: Hold, event: Event) -> None:
        with self._database.write() as connection:
            whom = (hold.user_id, hold.agent_id, hold.session_id, hold.memory_id, hold.tag)
            connection.execute(SQL["add"], (hold.id, hold.tenant, hold.reason, hold.author, hold.created_at, *whom))
            _note(connection, hold, event)

    def list(self, tenant: str, *, released: bool = False) -> list[Hold]:
        with self._database.read() as connection:
            return [Hold(*row) for row in rows(connection, SQL["list"], (tenant, released))]

    def release(self, tenant: str, hold_id: str, *, now: int, author: str, event: Event) -> Hold | None:
        with self._database.write() as connection:
            connection.execute(SQL["release"], (now, author, tenant, hold_id))
            if not connection.changes():
                return None
            row = one(connection, SQL["get"], (tenant, hold_id))
            hold = Hold(*(row or ()))
            _note(connection, hold, event)
            return hold


def _note(connection: apsw.Connection, hold: Hold, event: Event) -> None:
    """On the chain of the user whom it is about, else on the tenant's."""
    append(connection, ensure_subject(connection, f"{hold.tenant}/{hold.user_id or ''}"), [event])
