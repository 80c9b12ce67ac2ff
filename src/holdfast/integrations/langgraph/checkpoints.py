"""LangGraph's threads in its own tables, and the recycle bin that lies beside them in the same database.

A thread is moved by copying its rows and deleting them in one transaction. Nothing is deserialized, so that what comes
back is what was there, byte for byte. A trigger refuses what a run writes onto a thread that is in the bin: such a run
fails, and no half of a thread comes to be.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from holdfast.core.errors import InvalidScopeError, NotAStoreError, StoreTooNewError
from holdfast.core.values import DAY, check_id
from holdfast.installation import upgrade_command
from holdfast.integrations.langgraph.databases import BIN, Database
from holdfast.ports.session_parts import PartMove, PartSession

T = TypeVar("T")
#: The newest version of LangGraph's tables in PostgreSQL that this was tried with.
_NEWEST: Final = 9
#: What a table of LangGraph must have.
_NEEDED: Final = {
    "checkpoints": {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"},
    "checkpoint_writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "blob"},
    "checkpoint_blobs": {"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"},
    "writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"},
}
#: A transaction is to take about this long, whatever the machine; so many threads are moved in the first one.
_GOAL_SECONDS: Final = 0.1
_TOGETHER: Final = 50
_MOST_TOGETHER: Final = 400
#: So many are noted in one.
_NOTED: Final = 10_000
#: Whose agent a thread is that names none.
AGENT: Final = "langgraph"
#: The time of a UUID of version 6 counts in tenths of microseconds from 1582-10-15.
_EPOCH: Final = 0x01B21DD213814000


class Thread(NamedTuple):
    """A thread, as its newest checkpoint tells."""

    thread_id: str
    head: str
    """The id of its newest checkpoint, of whichever namespace."""
    user_id: str | None
    agent_id: str | None
    active_at: int | None
    """When that was made, in microseconds; ``None`` if its id does not tell."""


def to_sessions(threads: Iterable[Thread]) -> Iterator[PartSession]:
    """The sessions of those threads that have an owner."""
    return (
        PartSession(thread_id, user_id, agent_id or AGENT, active_at)
        for thread_id, _, user_id, agent_id, active_at in threads
        if user_id is not None
    )


class ThreadCounts(NamedTuple):
    """What a database holds, as the last survey found it."""

    threads: int
    users: int
    unowned: int
    """Threads whose owner cannot be read."""
    undated: int
    """Threads that do not tell when they were active."""
    oldest: int | None
    """When the thread was active that was idle for longest."""
    in_bin: int
    thinned: int
    """Threads of which earlier checkpoints are in the bin."""


class BinnedThread(NamedTuple):
    """A thread in the recycle bin."""

    bin_id: str
    thread_id: str
    head: str
    user_id: str | None
    agent_id: str | None
    active_at: int | None
    recycled_at: int


class CheckpointTables:
    """The threads of one database."""

    def __init__(
        self,
        database: Database,
        *,
        user_from: str = "user_id",
        agent_from: str = "assistant_id",
        unowned_as: str | None = None,
    ) -> None:
        """``user_from`` and ``agent_from`` name the fields of a checkpoint's metadata that say whose it is. A thread
        whose owner cannot be read belongs to ``unowned_as``; without that, to nobody.
        """
        self.database = database
        self.unowned_as = None if unowned_as is None else check_id(unowned_as, "unowned_as")
        self.fields = {"user_from": database.field(user_from), "agent_from": database.field(agent_from)}
        self.columns: dict[str, list[str]] = {}
        self._together = _TOGETHER

    def prepare(self) -> None:
        """Check that LangGraph's tables are there, and make ours beside them."""
        found = self.database.columns(self.database.tables)
        for table in self.database.tables:
            missing = sorted(_NEEDED[table] - set(found.get(table, ())))
            if missing:
                what = f"column {missing[0]!r} in table {table!r}" if table in found else f"table {table!r}"
                raise NotAStoreError(
                    f"{self.database.place} has no {what}; name the database that LangGraph's saver writes, "
                    "and call the saver's setup() first"
                )
        if self.database.version > _NEWEST:
            raise StoreTooNewError(
                f"{self.database.place} has version {self.database.version} of LangGraph's tables, Holdfast knows up "
                f"to {_NEWEST}; nothing was changed: {upgrade_command()}"
            )
        with self.database.transaction():
            self._make_bin(found)
            for statement in self.database.setup:
                self.database.run(statement)
        self.columns = {table: list(found[table]) for table in self.database.tables}

    def _make_bin(self, found: Mapping[str, Mapping[str, str]]) -> None:
        """Make a table for each of LangGraph's, with its columns; those that it got since are added."""
        binned = self.database.columns([BIN + table for table in self.database.tables])
        for table in self.database.tables:
            there = binned.get(BIN + table, {})
            columns = [f'"{name}" {kind}' for name, kind in found[table].items() if name not in there]
            if not there:
                self.database.run(f"CREATE TABLE @{BIN}{table} (bin bigint NOT NULL, {', '.join(columns)})")
            for column in columns if there else ():
                self.database.run(f"ALTER TABLE @{BIN}{table} ADD COLUMN {column}")

    # --- looking ------------------------------------------------------------------------------------------------------

    def note_changes(self) -> list[Thread]:
        """Note what has changed since it was last noted; the threads that have, whoever's they are. What changes
        meanwhile is found the next time.
        """
        found = self.database.all("changed", **self.fields)
        changed = [
            Thread(thread_id, head, *_read_owners(names), read_time(head))
            for thread_id, head, names in found
            if head is not None
        ]
        unread = [thread.thread_id for thread in changed if thread.user_id is None or thread.agent_id is None]
        if unread:  # most threads are named by their newest checkpoint, the others by earlier ones
            read: dict[str, Thread] = {}
            for start in range(0, len(unread), _NOTED):
                read |= self._find(unread[start : start + _NOTED])
            changed = [read.get(thread.thread_id, thread) for thread in changed]
        self._note(changed, gone=[thread_id for thread_id, head, _ in found if head is None])
        return [self.with_owner(thread) for thread in changed]

    def note(self, thread_id: str) -> list[Thread]:
        """The same for one thread, whether or not it has changed."""
        found = list(self._find([thread_id]).values())
        self._note(found, gone=[] if found else [thread_id])
        return [self.with_owner(thread) for thread in found]

    def forget_notes(self) -> None:
        """Let the next survey show everything, and read again whose it is."""
        self.database.run("DELETE FROM @holdfast_threads")

    def _note(self, threads: Sequence[Thread], *, gone: Sequence[str]) -> None:
        for start in range(0, len(threads), _NOTED):
            with self.database.transaction():
                self.database.insert("holdfast_threads", Thread._fields, threads[start : start + _NOTED])
        for start in range(0, len(gone), _NOTED):
            with self.database.transaction():
                self.database.run("forget", threads=gone[start : start + _NOTED])

    def with_owner(self, thread: Thread) -> Thread:
        """A thread with the owner that it is given where it names none."""
        if thread.user_id and thread.agent_id:
            return thread
        return thread._replace(user_id=thread.user_id or self.unowned_as, agent_id=thread.agent_id or AGENT)

    def find(self, thread_ids: Sequence[str]) -> dict[str, Thread]:
        """Threads as they are now, by their ids."""
        return {name: self.with_owner(thread) for name, thread in self._find(thread_ids).items()}

    def _find_noted(self, thread_ids: Sequence[str]) -> dict[str, Thread]:
        """The same, from what is noted of those that have not changed since."""
        rows = self.database.all("noted_heads", threads=list(thread_ids))
        found = {row[0]: self.with_owner(Thread(*row[:-1])) for row in rows if row[-1]}
        changed = [thread_id for thread_id, *_, is_noted in rows if not is_noted]
        return found | self.find(changed) if changed else found

    def _find(self, thread_ids: Sequence[str]) -> dict[str, Thread]:
        found = (_read_thread(*row) for row in self.database.all("found", threads=list(thread_ids), **self.fields))
        return {thread.thread_id: thread for thread in found}

    def has_checkpoint(self, thread_id: str, checkpoint_id: str) -> bool:
        """Whether a thread has a checkpoint."""
        asked = "SELECT 1 FROM @checkpoints WHERE thread_id = :thread AND checkpoint_id = :id"
        return bool(self.database.all(asked, thread=thread_id, id=checkpoint_id))

    def sizes(self, session_ids: Sequence[str]) -> dict[str, int]:
        """How many bytes threads take."""
        sizes: dict[str, int] = dict.fromkeys(session_ids, 0)
        for table in self.database.tables:
            for thread_id, size in self.database.all(f"sizes_of_{table}", threads=list(session_ids)):
                sizes[thread_id] += int(size or 0)
        return sizes

    def rows(self, session_ids: Sequence[str]) -> dict[str, int]:
        """How many checkpoints threads have."""
        return {name: int(count) for name, count in self.database.all("checkpoints_of", threads=list(session_ids))}

    def counts(self) -> ThreadCounts:
        """What there is, as the last survey found it."""
        return ThreadCounts(*self.database.all("counts")[0])

    def ungoverned(self, *, limit: int) -> list[Thread]:
        """Some of the threads whose owner cannot be read, or that do not tell when they were active."""
        return [Thread(*row) for row in self.database.all("ungoverned", limit=limit)]

    # --- moving -------------------------------------------------------------------------------------------------------

    def recycle(self, moves: Sequence[PartMove], *, now: int) -> dict[str, int]:
        """Move threads to the bin, each under the id it has there; when those were active that stay because of it."""
        stayed: dict[str, int] = {}
        for some in self.batches(moves):
            with self.database.transaction():
                names = sorted({move.session.session_id for move in some})
                self.database.lock(names)
                found = self._find_noted(names)
                there = {binned.bin_id for binned in self.find_binned([move.item_id for move in some])}
                moved: dict[str, Thread] = {}
                for move in some:
                    thread = found.get(move.session.session_id)
                    if thread is None or move.item_id in there or not _is_owner(thread, move.session):
                        continue
                    if move.upto is None or (thread.active_at is not None and thread.active_at <= move.upto):
                        moved[move.item_id] = found.pop(thread.thread_id)
                    else:
                        stayed[move.item_id] = thread.active_at or now
                self._move(moved, now)
        return stayed

    def _move(self, threads: Mapping[str, Thread], now: int) -> None:
        if not threads:
            return
        binned = [BinnedThread(bin_id, *thread, now) for bin_id, thread in threads.items()]
        self.database.insert("holdfast_bin", BinnedThread._fields, binned)
        which = dict.fromkeys(self.database.tables, "bin_id IN LIST(:bins)")
        names = [thread.thread_id for thread in threads.values()]
        self.database.move_to_bin(self.columns, which, threads=names, bins=list(threads))

    def restore(self, item_ids: Sequence[str]) -> set[str]:
        """Bring threads back from the bin; the ids of those that stay, because another of the name was begun since."""
        stayed: set[str] = set()
        for some in self.batches(item_ids):
            with self.database.transaction():
                binned = self.find_binned(some)
                self.database.lock(sorted({thread.thread_id for thread in binned}))
                taken = self._taken(binned)
                back = [thread.bin_id for thread in binned if thread.bin_id not in taken]
                self.bring_back(back)
                stayed |= taken
        return stayed

    def bring_back(self, bin_ids: Sequence[str]) -> int:
        """Move rows from the bin to where they were, within a transaction; how many."""
        self.database.run("let_pass")
        for table in self.database.tables:
            self.database.run(
                f"INSERT INTO @{table} ({self.names(table)}) SELECT {self.names(table)} "  # noqa: S608 - our names
                f"FROM @{BIN}{table} WHERE bin IN ENTRIES(:bins) ON CONFLICT DO NOTHING",
                bins=list(bin_ids),
            )
        return self._purge([*bin_ids, ""])

    def taken(self, item_ids: Sequence[str]) -> set[str]:
        """Those of these ids in the bin whose thread was begun anew."""
        return self._taken(self.find_binned(item_ids))

    def _taken(self, binned: Sequence[BinnedThread]) -> set[str]:
        """A name can be had once: by a thread that is there, or by the first of those that want it back."""
        names = {thread.thread_id for thread in binned}
        free = names - {thread_id for thread_id, _ in self.database.all("heads", threads=sorted(names))}
        taken = set()
        for thread in binned:
            if thread.thread_id not in free:
                taken.add(thread.bin_id)
            free.discard(thread.thread_id)
        return taken

    def purge(self, item_ids: Sequence[str]) -> int:
        """Delete threads from the bin for good, and what a run wrote too late onto them; how many rows they had."""
        removed = 0
        for some in self.batches(item_ids):
            with self.database.transaction():
                binned = self.find_binned(some)
                removed += self._purge(some)
                until = max((thread.recycled_at for thread in binned), default=0) + DAY
                removed += self.remove_late([thread.thread_id for thread in binned], make_id(until))
        return removed

    def binned(self, before: int) -> dict[str, PartSession]:
        """What has been in the bin since before a moment, by the ids that it has there: threads, and earlier
        checkpoints of threads.
        """
        found = self.database.all("binned_before", before=before)
        return {
            bin_id: PartSession(thread_id, user_id or "", agent_id or AGENT, active_at)
            for bin_id, thread_id, user_id, agent_id, active_at in found
        }

    def find_binned(self, bin_ids: Sequence[str]) -> list[BinnedThread]:
        """What is in the bin under these ids."""
        return [BinnedThread(*row) for row in self.database.all("binned", bins=list(bin_ids))]

    def remove_late(self, thread_ids: Sequence[str], before: str) -> int:
        """Delete the writes of checkpoints that the bin's guard refused; they are made just before a refused one."""
        return self.database.run(
            f"DELETE FROM @{self.database.tables[1]} AS late WHERE thread_id IN LIST(:threads) "  # noqa: S608
            "AND checkpoint_id < :before AND NOT EXISTS (SELECT 1 FROM @checkpoints AS live WHERE "
            "live.thread_id = late.thread_id AND live.checkpoint_ns = late.checkpoint_ns "
            "AND live.checkpoint_id = late.checkpoint_id)",
            threads=list(thread_ids),
            before=before,
        )

    def _purge(self, bin_ids: Sequence[str]) -> int:
        deletes = (f"DELETE FROM @{BIN}{table} WHERE bin IN ENTRIES(:bins)" for table in self.database.tables)  # noqa: S608
        removed = sum(self.database.run(delete, bins=list(bin_ids)) for delete in deletes)
        self.database.run("DELETE FROM @holdfast_bin WHERE bin_id IN LIST(:bins)", bins=list(bin_ids))
        return removed

    def remove(self, thread_ids: Sequence[str]) -> int:
        """Delete threads for good, within a transaction; how many rows they had."""
        self.database.run("forget", threads=list(thread_ids))
        deletes = (f"DELETE FROM @{table} WHERE thread_id IN LIST(:threads)" for table in self.database.tables)  # noqa: S608
        return sum(self.database.run(delete, threads=list(thread_ids)) for delete in deletes)

    def batches(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Items in batches that take about the same time each, as the last ones did."""
        left = items
        while left:
            some, left = left[: self._together], left[self._together :]
            began = time.monotonic()
            yield some
            took = max(time.monotonic() - began, 1e-4)
            if len(some) == self._together or took > _GOAL_SECONDS:
                size = len(some) * min(2.0, _GOAL_SECONDS / took)
                self._together = int(min(max(size, 1), _MOST_TOGETHER))

    def names(self, table: str) -> str:
        """The columns of a table, for a statement."""
        return ", ".join(f'"{column}"' for column in self.columns[table])


def _is_owner(thread: Thread, session: PartSession) -> bool:
    return (thread.user_id, thread.agent_id) == (session.user_id, session.agent_id)


def _read_thread(thread_id: str, head: str, user_id: str | None, agent_id: str | None) -> Thread:
    """A thread as its newest checkpoints tell. A name that Holdfast cannot use is none."""
    return Thread(thread_id, head, _read_owner(user_id), _read_owner(agent_id), read_time(head))


def read_name(name: str | None) -> str | None:
    """A name that Holdfast can use; ``None`` for any other."""
    try:
        return check_id(name, "name")
    except InvalidScopeError:
        return None


#: Many threads have the same users and agents.
_read_owner: Final = lru_cache(maxsize=100_000)(read_name)


@lru_cache(maxsize=100_000)
def _read_owners(names: str | None) -> tuple[str | None, str | None]:
    """The user and the agent of a JSON list. A whole number is a name, too; anything else is none."""
    try:
        user_id, agent_id = (str(one) if type(one) in (str, int) else None for one in json.loads(names or "[0.0, 0.0]"))
    except (ValueError, RecursionError):
        return None, None
    return read_name(user_id), read_name(agent_id)


def make_id(moment: int) -> str:
    """How the ids of checkpoints begin that are made at a moment, in microseconds."""
    ticks = f"{moment * 10 + _EPOCH:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}"


def read_time(checkpoint_id: str) -> int | None:
    """When a checkpoint was made, in microseconds, by its id; ``None`` if that is no UUID of version 6."""
    if len(checkpoint_id) != 36 or checkpoint_id[14] != "6":
        return None
    try:
        ticks = int(checkpoint_id[:8] + checkpoint_id[9:13] + checkpoint_id[15:18], 16)
    except ValueError:
        return None
    return (ticks - _EPOCH) // 10
