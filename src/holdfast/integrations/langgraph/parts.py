"""LangGraph's threads as parts of sessions: the thread's id is the session's, and its rows follow the session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from holdfast.core.values import SECOND
from holdfast.integrations.langgraph.checkpoints import AGENT, Thread, make_id, read_time, to_sessions
from holdfast.integrations.langgraph.databases import BIN, open_database
from holdfast.integrations.langgraph.thinned_threads import ThinnedTables
from holdfast.integrations.langgraph.values import to_plain
from holdfast.ports.session_parts import PartRegistration, PartSession

#: So many threads are shown at a time.
_PAGE: Final = 1_000
#: Greater than every id of a checkpoint.
_LAST: Final = "~"
#: A thread whose own checkpoints were not written within this time, in microseconds, has none.
_SETTLED: Final = 3_600 * SECOND


def open_part(registration: PartRegistration, url: str) -> ThreadPart:
    """Open the threads of a database that is registered."""
    options = registration.options
    database = open_database(url, options.get("schema", "public"))
    try:
        part = ThreadPart(
            database,
            user_from=options.get("user_from", "user_id"),
            agent_from=options.get("agent_from", "assistant_id"),
            unowned_as=registration.unowned_as,
        )
        part.prepare()
    except BaseException:
        database.close()
        raise
    return part


class ThreadPart(ThinnedTables):
    """The ``SessionPart`` of a database with LangGraph's threads."""

    @property
    def place(self) -> str:
        """Which database it is, without secrets."""
        return self.database.place

    def close(self) -> None:
        """Close the connection."""
        self.database.close()

    def survey(self, session_id: str | None = None) -> Iterator[Sequence[PartSession]]:
        """Note what has changed since the last survey; the threads with an owner that have, some at a time."""
        found = self.note_changes() if session_id is None else self.note(session_id)
        return _pages(to_sessions(found))

    def sessions(
        self,
        *,
        idle_since: int | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Iterator[Sequence[PartSession]]:
        """The threads with an owner that all arguments select, as the last survey found them, some at a time."""
        conditions = {
            "active_at <= :idle_since": idle_since,
            "(user_id = :user_id OR user_id IS NULL)" if user_id == self.unowned_as else "user_id = :user_id": user_id,
            "(agent_id = :agent_id OR agent_id IS NULL)" if agent_id == AGENT else "agent_id = :agent_id": agent_id,
            "thread_id = :session_id": session_id,
        }
        where = " AND ".join(["thread_id > :after", *(text for text, value in conditions.items() if value is not None)])
        is_binned = (
            "SELECT 1 FROM @holdfast_bin AS bin "
            "WHERE bin.thread_id = known.thread_id AND bin.head = known.head AND bin.cut IS NULL"
        )
        asked = {"idle_since": idle_since, "user_id": user_id, "agent_id": agent_id, "session_id": session_id}
        after = ""
        while found := [
            Thread(*row)
            for row in self.database.all(
                f"SELECT thread_id, head, user_id, agent_id, active_at FROM @holdfast_threads AS known "  # noqa: S608
                f"WHERE {where} AND NOT EXISTS ({is_binned}) ORDER BY thread_id LIMIT :limit",
                after=after,
                limit=_PAGE,
                **asked,
            )
        ]:
            yield list(to_sessions(map(self.with_owner, found)))
            after = found[-1].thread_id

    def problems(self) -> list[str]:
        """What should be said of the threads that are not governed."""
        counts, problems = self.counts(), []
        if counts.unowned and self.unowned_as is None:
            problems.append(
                f"{self.place}: {counts.unowned:,} threads have no owner that can be read, and are left alone; list "
                "them with: holdfast langgraph status, and say whose they are with: holdfast langgraph govern "
                "--unowned-as USER"
            )
        if counts.undated:
            problems.append(
                f"{self.place}: {counts.undated:,} threads have checkpoints whose ids tell no time (they are no UUIDs "
                "of version 6), and are never idle; delete them with the saver's delete_thread"
            )
        return problems

    def _named(self, user_id: str) -> tuple[list[str], list[str]]:
        """The threads of which any checkpoint names a user, and those in the bin, by their ids there. Threads without a
        readable owner are of the user who was named for them.
        """
        asked = {"user_from": self.fields["user_from"], "user_id": user_id}
        live = [thread_id for (thread_id,) in self.database.all("named", **asked)]
        if user_id == self.unowned_as:
            self.note_changes()
            live += [thread_id for (thread_id,) in self.database.all("unowned")]
        return sorted(set(live)), [bin_id for (bin_id,) in self.database.all("named_in_bin", **asked)]

    def _noted(self, user_id: str) -> list[str]:
        return [thread_id for (thread_id,) in self.database.all("noted", user_id=user_id)]

    def count(self, user_id: str) -> int:
        """How many rows there are of a user, with those in the bin and those that note whose a thread is."""
        live, binned = self._named(user_id)
        counted = (
            self.database.all(f"SELECT count(*) FROM @{prefix}{table} WHERE {which}", threads=live, bins=binned)[0][0]  # noqa: S608
            for which, prefix in (("thread_id IN LIST(:threads)", ""), ("bin IN ENTRIES(:bins)", BIN))
            for table in self.database.tables
        )
        return int(sum(counted)) + len(binned) + len(self._noted(user_id))

    def export(self, user_id: str) -> Iterator[tuple[PartSession, Iterable[Mapping[str, Any]]]]:
        """Every row of a user's threads as plain data, thread by thread."""
        live, binned = self._named(user_id)
        found = self.find(live)
        kept = [(thread.thread_id, thread) for thread in found.values()]
        gone = [(thread.bin_id, Thread(*thread[1:6])) for thread in self.find_binned(binned)]
        for threads, which, prefix in ((kept, "thread_id IN LIST(:bins)", ""), (gone, "bin IN ENTRIES(:bins)", BIN)):
            for one, thread in threads:
                session = PartSession(thread.thread_id, user_id, thread.agent_id or AGENT, thread.active_at)
                yield session, self._rows(prefix, which, one)

    def _rows(self, prefix: str, which: str, one: str) -> Iterator[dict[str, Any]]:
        for table in self.database.tables:
            asked = f"SELECT {self.names(table)} FROM @{prefix}{table} WHERE {which}"  # noqa: S608 - names of tables
            for values in self.database.all(asked, bins=[one]):
                row = dict(zip(self.columns[table], values, strict=True))
                kind = row.get("type")
                plain = {name: to_plain(None if name == "metadata" else kind, value) for name, value in row.items()}
                yield {"table": table, "in_bin": bool(prefix), **plain}

    def late(self, since: int) -> list[PartSession]:
        """The threads that were written after a moment and go on from a checkpoint that is not there."""
        self.note_changes()
        found = self.database.all("late", since=since, settled=since + _SETTLED)
        threads = (Thread(name, "", user, agent, read_time(parent or "")) for name, user, agent, parent in found)
        return list(to_sessions(map(self.with_owner, threads)))

    def erase_late(self, session_ids: Sequence[str], *, upto: int) -> int:
        """Delete threads for good, and the writes of checkpoints up to a moment whose threads are gone."""
        removed = 0
        for some in self.batches(session_ids):
            with self.database.transaction():
                self.database.lock(some)
                removed += self.remove(some)
        writes = self.database.tables[1]
        removed += self.database.run(
            f"DELETE FROM @{writes} AS late WHERE checkpoint_id < :upto AND NOT EXISTS "  # noqa: S608 - our names
            "(SELECT 1 FROM @checkpoints AS live WHERE live.thread_id = late.thread_id)",
            upto=make_id(upto),
        )
        if removed:
            self.database.scrub()
        return removed

    def erase(self, user_id: str) -> int:
        """Delete every thread of which any checkpoint names a user, for good, from the bin too; how many rows."""
        live, binned = self._named(user_id)
        noted = self._noted(user_id)
        late = {*live, *noted, *(thread.thread_id for thread in self.find_binned(binned))}
        removed = len(binned) + len(noted)
        for some in self.batches(live):
            with self.database.transaction():
                self.database.lock(some)
                removed += self.remove(some)
        removed += self.purge(binned)
        with self.database.transaction():
            self.database.run("forget", threads=noted)
            removed += self.remove_late(sorted(late), _LAST)
        self.database.scrub()
        return removed


def _pages(sessions: Iterable[PartSession]) -> Iterator[list[PartSession]]:
    left = iter(sessions)
    while page := list(islice(left, _PAGE)):
        yield page
