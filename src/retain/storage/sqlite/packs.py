"""Cold objects as SQLite knows them: the ``PackStore``."""

from __future__ import annotations

from typing import Any, Final

from retain.ports import Lease, Pack
from retain.storage.sql import statements
from retain.storage.sqlite.database import Database, one, rows, value
from retain.storage.sqlite.jobs import check_lease
from retain.storage.sqlite.scopes import ensure_subject

SQL: Final = statements("retain.storage.sqlite", "packs.sql")


class SqlitePacks:
    """The ``PackStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alias(self, subject: str) -> str:
        with self._database.write() as connection:
            row = one(connection, SQL["alias"], (ensure_subject(connection, subject),))
        return str((row or (b"",))[0].hex())

    def open(self, subject: str, *, name: str, records: int, size: int, digest: bytes, now: int) -> int:
        with self._database.write() as connection:
            number = ensure_subject(connection, subject)
            return value(connection, SQL["open"], (number, name, records, size, digest, now))

    def get(self, number: int) -> Pack | None:
        with self._database.read() as connection:
            row = one(connection, SQL["get"], (number,))
        return None if row is None or row[3] == "leaving" else _pack(row)

    def unsettled(self, tenant: str) -> list[Pack]:
        with self._database.read() as connection:
            return [_pack(row) for row in rows(connection, SQL["unsettled"], {"tenant": tenant})]

    def members(self, number: int) -> list[str]:
        with self._database.read() as connection:
            return [row[0] for row in rows(connection, SQL["members"], (number,))]

    def small(self, subject: str, *, below: int) -> Pack | None:
        with self._database.read() as connection:
            row = one(connection, SQL["small"], (subject, below))
        return None if row is None else _pack(row)

    def swap(self, old: int, new: int, *, members: int, lease: Lease | None = None) -> bool:
        with self._database.write() as connection:
            check_lease(connection, lease)
            whole = value(connection, SQL["count_members"], (old,)) == members
            if not whole or one(connection, SQL["is_writing"], (new,)) is None:
                return False
            connection.execute(SQL["move_members"], (new, old))
            connection.execute(SQL["let_go"], (old,))
            connection.execute(SQL["set_state"], ("leaving", old))
            return True

    def settle(self, number: int) -> str | None:
        with self._database.write() as connection:
            row = one(connection, SQL["settle"], (number,))
            if row is not None and row[0] == "leaving":
                connection.execute(SQL["let_go"], (number,))
        return None if row is None else str(row[0])

    def leaving(self, number: int) -> list[Pack]:
        with self._database.read() as connection:
            row = one(connection, SQL["get"], (number,))
        return [_pack(row)] if row is not None and row[3] == "leaving" else []

    def forget(self, number: int) -> None:
        with self._database.write() as connection:
            connection.execute(SQL["forget"], (number,))


def _pack(row: tuple[Any, ...]) -> Pack:
    return Pack(*row)
