"""A part of sessions for tests: notes in a SQLite file of its own, several under the name of a session.

Whoever uses it writes and reads notes by the session's name, as an application would; the rest is the port.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.errors import StoreAwayError
from holdfast.lifecycle.part_registry import KINDS
from holdfast.ports.session_parts import PartMove, PartRegistration, PartSession

KIND = "notes"
KINDS[KIND] = "notes_part:open_part"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (session_id TEXT, user_id TEXT, agent_id TEXT, at INTEGER, text TEXT);
CREATE TABLE IF NOT EXISTS seen (session_id TEXT PRIMARY KEY, user_id TEXT, agent_id TEXT, active_at INTEGER);
CREATE TABLE IF NOT EXISTS bin (item_id TEXT, recycled_at INTEGER, session_id TEXT, user_id TEXT, agent_id TEXT,
                                at INTEGER, text TEXT);
"""
#: Called before each effect of any notes with what it is; a test may let it raise.
effects: list[Callable[[str], object]] = []


def open_part(registration: PartRegistration, url: str) -> Notes:
    path = Path(url.removeprefix("sqlite:///"))
    if not path.parent.is_dir():
        raise StoreAwayError(f"there is no folder {path.parent}; mount it")
    return Notes(path, registration.unowned_as)


class Notes:
    """The part; also what an application does with it."""

    def __init__(self, path: Path, unowned_as: str | None = None) -> None:
        self.place = str(path)
        self._unowned_as = unowned_as
        self._lock = threading.RLock()
        with self._open() as connection:
            connection.executescript(_SCHEMA)

    @contextmanager
    def _open(self, effect: str = "") -> Iterator[sqlite3.Connection]:
        """A transaction; with the name of an ``effect``, one that changes something."""
        for hear in effects if effect else ():
            hear(effect)
        with self._lock, closing(sqlite3.connect(self.place, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            if connection.in_transaction:
                connection.execute("COMMIT")

    def _all(self, query: str, *values: object) -> list[Any]:
        with self._open() as connection:
            return connection.execute(query, values).fetchall()

    # --- the application ----------------------------------------------------------------------------------------------

    def write(self, session_id: str, user_id: str | None, agent_id: str, at: int, text: str) -> None:
        with self._open() as connection:
            connection.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?)", (session_id, user_id, agent_id, at, text))

    def read(self, session_id: str) -> list[str]:
        return [text for (text,) in self._all("SELECT text FROM notes WHERE session_id = ? ORDER BY rowid", session_id)]

    # --- the port -----------------------------------------------------------------------------------------------------

    def survey(self, session_id: str | None = None) -> Iterator[Sequence[PartSession]]:
        del session_id  # all of them are looked at
        with self._open("a survey") as connection:
            found = connection.execute(
                "SELECT session_id, max(user_id), max(agent_id), max(at) FROM notes GROUP BY session_id "
                "EXCEPT SELECT session_id, user_id, agent_id, active_at FROM seen"
            ).fetchall()
            connection.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", found)
            connection.execute("DELETE FROM seen WHERE session_id NOT IN (SELECT session_id FROM notes)")
        yield self._owned(found)

    def _owned(self, found: Iterable[Any]) -> list[PartSession]:
        named = (PartSession(name, user or self._unowned_as or "", agent, at) for name, user, agent, at in found)
        return [session for session in named if session.user_id]

    def sessions(
        self,
        *,
        idle_since: int | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Iterator[Sequence[PartSession]]:
        asked = PartSession(session_id or "", user_id or "", agent_id or "", idle_since)
        yield [
            one
            for one in self._owned(self._all("SELECT * FROM seen ORDER BY session_id"))
            if (session_id is None or one.session_id == asked.session_id)
            and (user_id is None or one.user_id == asked.user_id)
            and (agent_id is None or one.agent_id == asked.agent_id)
            and (idle_since is None or (one.active_at is not None and one.active_at <= idle_since))
        ]

    def sizes(self, session_ids: Sequence[str]) -> Mapping[str, int]:
        sizes = dict(self._all("SELECT session_id, sum(length(text)) FROM notes GROUP BY session_id"))
        return {name: sizes[name] for name in session_ids if name in sizes}

    def rows(self, session_ids: Sequence[str]) -> Mapping[str, int]:
        rows = dict(self._all("SELECT session_id, count(*) FROM notes GROUP BY session_id"))
        return {name: rows[name] for name in session_ids if name in rows}

    def problems(self) -> list[str]:
        unowned = 0 if self._unowned_as else self._all("SELECT count(*) FROM notes WHERE user_id IS NULL")[0][0]
        return [f"{unowned} notes have no owner"] if unowned else []

    def close(self) -> None:
        """Nothing stays open."""

    def recycle(self, moves: Sequence[PartMove], *, now: int) -> Mapping[str, int]:
        stayed = {}
        with self._open("a move to the bin") as connection:
            for item_id, session, upto in moves:
                found = connection.execute(
                    "SELECT session_id, max(user_id), max(agent_id), max(at) FROM notes WHERE session_id = ? "
                    "GROUP BY session_id",
                    (session.session_id,),
                ).fetchall()
                for one in self._owned(found):
                    if (one.user_id, one.agent_id) != (session.user_id, session.agent_id):
                        continue
                    if upto is not None and one.active_at is not None and one.active_at > upto:
                        stayed[item_id] = one.active_at
                        continue
                    where = (one.session_id,)
                    connection.execute(
                        f"INSERT INTO bin SELECT '{item_id}', {now}, * FROM notes WHERE session_id = ?",  # noqa: S608
                        where,
                    )
                    connection.execute("DELETE FROM notes WHERE session_id = ?", where)
                    connection.execute("DELETE FROM seen WHERE session_id = ?", where)
        return stayed

    def restore(self, item_ids: Sequence[str]) -> set[str]:
        taken = self.taken(item_ids)
        with self._open("a move from the bin") as connection:
            for item_id in set(item_ids) - taken:
                connection.execute(
                    "INSERT INTO notes SELECT session_id, user_id, agent_id, at, text FROM bin WHERE item_id = ? "
                    "ORDER BY rowid",
                    (item_id,),
                )
                connection.execute("DELETE FROM bin WHERE item_id = ?", (item_id,))
        return taken

    def taken(self, item_ids: Sequence[str]) -> set[str]:
        found = self._all("SELECT item_id FROM bin WHERE session_id IN (SELECT session_id FROM notes)")
        return {item_id for (item_id,) in found} & set(item_ids)

    def purge(self, item_ids: Sequence[str]) -> int:
        with self._open("a purge") as connection:
            return sum(connection.execute("DELETE FROM bin WHERE item_id = ?", (one,)).rowcount for one in item_ids)

    def binned(self, before: int) -> Mapping[str, PartSession]:
        found = self._all("SELECT item_id, session_id, user_id, agent_id, at FROM bin WHERE recycled_at < ?", before)
        return {one: PartSession(name, user or "", agent, at) for one, name, user, agent, at in found}

    def _is_theirs(self, user_id: str) -> str:
        return "(user_id = ? OR user_id IS NULL)" if user_id == self._unowned_as else "user_id = ?"

    def count(self, user_id: str) -> int:
        where = self._is_theirs(user_id)
        tables = ("notes", "seen", "bin")
        counts = (self._all(f"SELECT count(*) FROM {table} WHERE {where}", user_id) for table in tables)  # noqa: S608
        return sum(found[0][0] for found in counts)

    def erase(self, user_id: str) -> int:
        where, count = self._is_theirs(user_id), self.count(user_id)
        with self._open("an erasure") as connection:
            for table in ("notes", "seen", "bin"):
                connection.execute(f"DELETE FROM {table} WHERE {where}", (user_id,))  # noqa: S608
        return count

    def late(self, since: int) -> Sequence[PartSession]:
        del since  # a note goes on from nothing
        return []

    def erase_late(self, session_ids: Sequence[str], *, upto: int) -> int:
        del session_ids, upto
        return 0

    def export(self, user_id: str) -> Iterator[tuple[PartSession, Iterable[Mapping[str, Any]]]]:
        where = self._is_theirs(user_id)
        for table, key in (("notes", "session_id"), ("bin", "item_id")):
            found = self._all(
                f"SELECT {key}, session_id, max(agent_id), max(at) FROM {table} WHERE {where} GROUP BY {key}",  # noqa: S608
                user_id,
            )
            for one, name, agent_id, at in found:
                rows = self._all(f"SELECT at, text FROM {table} WHERE {key} = ? ORDER BY rowid", one)  # noqa: S608
                shown = [{"at": at, "text": text, "in_bin": table == "bin"} for at, text in rows]
                yield PartSession(name, user_id, agent_id, at), shown
