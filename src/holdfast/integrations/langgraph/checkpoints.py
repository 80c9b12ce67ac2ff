"""LangGraph's threads in its own tables, and the recycle bin that lies beside them in the same database.

A thread is moved by copying its rows and deleting them in one transaction. Nothing is deserialized, so that what comes
back is what was there, byte for byte. A trigger refuses what a run writes onto a thread that is in the bin: such a run
fails, and no half of a thread comes to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from holdfast.core.errors import NotAStoreError, StoreTooNewError
from holdfast.installation import upgrade_command
from holdfast.integrations.langgraph.databases import Database
from holdfast.integrations.langgraph.kept_checkpoints import Checkpoint, choose_kept

#: The newest version of LangGraph's tables in PostgreSQL that this was tried with.
_NEWEST: Final = 9
#: What a table of LangGraph must have.
_NEEDED: Final = {
    "checkpoints": {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"},
    "checkpoint_writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "blob"},
    "checkpoint_blobs": {"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"},
    "writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"},
}
_BIN: Final = "holdfast_bin_"
#: So many threads are erased in one transaction.
_TOGETHER: Final = 100
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

    def __init__(self, database: Database, *, user_from: str = "user_id", agent_from: str = "assistant_id") -> None:
        self._database = database
        self._fields = {"user_from": database.field(user_from), "agent_from": database.field(agent_from)}
        self._columns: dict[str, list[str]] = {}

    def prepare(self) -> None:
        """Check that LangGraph's tables are there, and make ours beside them."""
        found = self._database.columns(self._database.tables)
        for table in self._database.tables:
            missing = sorted(_NEEDED[table] - set(found.get(table, ())))
            if missing:
                what = f"column {missing[0]!r} in table {table!r}" if table in found else f"table {table!r}"
                raise NotAStoreError(
                    f"{self._database.place} has no {what}; name the database that LangGraph's saver writes, "
                    "and call the saver's setup() first"
                )
        if self._database.version > _NEWEST:
            raise StoreTooNewError(
                f"{self._database.place} has version {self._database.version} of LangGraph's tables, Holdfast knows up "
                f"to {_NEWEST}; nothing was changed: {upgrade_command()}"
            )
        with self._database.transaction():
            self._make_bin(found)
            for statement in self._database.setup:
                self._database.run(statement)
        self._columns = {table: list(found[table]) for table in self._database.tables}

    def _make_bin(self, found: Mapping[str, Mapping[str, str]]) -> None:
        """Make a table for each of LangGraph's, with its columns; those that it got since are added."""
        binned = self._database.columns([_BIN + table for table in self._database.tables])
        for table in self._database.tables:
            there = binned.get(_BIN + table, {})
            columns = [f'"{name}" {kind}' for name, kind in found[table].items() if name not in there]
            if not there:
                self._database.run(f"CREATE TABLE @{_BIN}{table} (bin_id text NOT NULL, {', '.join(columns)})")
            for column in columns if there else ():
                self._database.run(f"ALTER TABLE @{_BIN}{table} ADD COLUMN {column}")

    # --- looking ------------------------------------------------------------------------------------------------------

    def survey(self) -> list[Thread]:
        """Note what has changed since the last survey; the threads that have."""
        with self._database.transaction():
            changed = [
                Thread(thread_id, head, user_id, agent_id, read_time(head))
                for thread_id, head, user_id, agent_id in self._database.all("changed", **self._fields)
            ]
            if changed:
                self._database.insert("holdfast_threads", Thread._fields, changed)
            gone = [thread_id for (thread_id,) in self._database.all("gone")]
            if gone:
                self._database.run("forget", threads=gone)
        return changed

    def idle(self, before: int, *, page: int = 1_000) -> Iterator[list[Thread]]:
        """The threads that were not active after a moment, as the last survey found them, some at a time."""
        after = ""
        while found := [Thread(*row) for row in self._database.all("idle", before=before, after=after, limit=page)]:
            yield found
            after = found[-1].thread_id

    def sizes(self, thread_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """How many rows threads have, and how many bytes."""
        sizes: dict[str, tuple[int, int]] = dict.fromkeys(thread_ids, (0, 0))
        for table in self._database.tables:
            for thread_id, rows, size in self._database.all(f"sizes_of_{table}", threads=list(thread_ids)):
                before = sizes[thread_id]
                sizes[thread_id] = (before[0] + int(rows), before[1] + int(size or 0))
        return sizes

    def binned(self, bin_ids: Sequence[str]) -> list[BinnedThread]:
        """What is in the bin under these ids."""
        return [BinnedThread(*row) for row in self._database.all("binned", bins=list(bin_ids))]

    # --- moving -------------------------------------------------------------------------------------------------------

    def recycle(self, threads: Mapping[str, Thread], *, now: int) -> set[str]:
        """Move threads to the bin, all in one transaction, each under the id it has there; the ids of those that went.

        A thread stays if its newest checkpoint is not the one that is given: it was active meanwhile.
        """
        with self._database.transaction():
            names = sorted(thread.thread_id for thread in threads.values())
            self._database.lock(names)
            heads: dict[str, str] = dict(self._database.all("heads", threads=names))
            moved = {bin_id: one for bin_id, one in threads.items() if heads.get(one.thread_id) == one.head}
            if moved:
                binned = [BinnedThread(bin_id, *thread, now) for bin_id, thread in moved.items()]
                self._database.insert("holdfast_bin", BinnedThread._fields, binned)
                for table in self._database.tables:
                    self._database.run(
                        f"INSERT INTO @{_BIN}{table} (bin_id, {self._names(table)}) "  # noqa: S608 - names of columns
                        f"SELECT bin_id, {self._names(table, 'moved.')} FROM @holdfast_bin AS bin "
                        f"JOIN @{table} AS moved ON moved.thread_id = bin.thread_id WHERE bin_id IN LIST(:bins)",
                        bins=list(moved),
                    )
                self._remove([thread.thread_id for thread in moved.values()])
        return set(moved)

    def restore(self, bin_ids: Sequence[str]) -> set[str]:
        """Bring threads back from the bin, all in one transaction; the ids of those that came.

        A thread stays in the bin if another one of its name was begun since.
        """
        with self._database.transaction():
            binned = self.binned(bin_ids)
            names = sorted(thread.thread_id for thread in binned)
            self._database.lock(names)
            taken: dict[str, str] = dict(self._database.all("heads", threads=names))
            back = [thread.bin_id for thread in binned if thread.thread_id not in taken]
            self._database.run("DELETE FROM @holdfast_bin WHERE bin_id IN LIST(:bins)", bins=back)
            for table in self._database.tables:
                self._database.run(
                    f"INSERT INTO @{table} ({self._names(table)}) SELECT {self._names(table)} "  # noqa: S608
                    f"FROM @{_BIN}{table} WHERE bin_id IN LIST(:bins)",
                    bins=back,
                )
            self._purge(back)
        return set(back)

    def purge(self, bin_ids: Sequence[str]) -> int:
        """Delete threads from the bin for good; how many rows they had."""
        with self._database.transaction():
            return self._purge(bin_ids)

    def _purge(self, bin_ids: Sequence[str]) -> int:
        self._database.run("DELETE FROM @holdfast_bin WHERE bin_id IN LIST(:bins)", bins=list(bin_ids))
        deletes = (f"DELETE FROM @{_BIN}{table} WHERE bin_id IN LIST(:bins)" for table in self._database.tables)  # noqa: S608
        return sum(self._database.run(delete, bins=list(bin_ids)) for delete in deletes)

    def _remove(self, thread_ids: Sequence[str]) -> int:
        self._database.run("forget", threads=list(thread_ids))
        deletes = (f"DELETE FROM @{table} WHERE thread_id IN LIST(:threads)" for table in self._database.tables)  # noqa: S608
        return sum(self._database.run(delete, threads=list(thread_ids)) for delete in deletes)

    def _names(self, table: str, of: str = "") -> str:
        return ", ".join(f'{of}"{column}"' for column in self._columns[table])

    # --- thinning -----------------------------------------------------------------------------------------------------

    def thin(self, thread: Thread, *, keep_last: int) -> int:
        """Delete the checkpoints of a thread that are not needed beside its last ones, for good; how many rows went.

        The thread resumes as before, and its history is as long as what was kept. One that was active meanwhile is left
        as it is.
        """
        with self._database.transaction():
            self._database.lock([thread.thread_id])
            checkpoints = self._database.checkpoints(thread.thread_id)
            if max((one.id for one in checkpoints), default=None) != thread.head:
                return 0
            kept = choose_kept(checkpoints, keep_last)
            return sum(
                self._keep(
                    thread.thread_id, namespace, [one for one in kept if one.namespace == namespace], checkpoints
                )
                for namespace in {one.namespace for one in checkpoints}
            )

    def _keep(self, thread_id: str, namespace: str, kept: list[Checkpoint], checkpoints: list[Checkpoint]) -> int:
        """Delete the other checkpoints of a namespace, their writes, and values that only they refer to."""
        ids = {one.id for one in kept}
        others = [one for one in checkpoints if one.namespace == namespace and one.id not in ids]
        if not others:
            return 0
        where = {"thread": thread_id, "namespace": namespace, "ids": [one.id for one in others]}
        removed = sum(self._database.run(f"thin_{table}", **where) for table in self._database.tables[:2])
        cut = [one.id for one in kept if one.parent is not None and one.parent not in ids]
        self._database.run("cut_parents", thread=thread_id, namespace=namespace, ids=cut)
        if "checkpoint_blobs" in self._columns:
            needed = {value for one in kept for value in one.versions.items()}
            unneeded = {value for one in others for value in one.versions.items()} - needed
            for channel in {channel for channel, _ in unneeded}:
                versions = [version for name, version in unneeded if name == channel]
                where = {"thread": thread_id, "namespace": namespace, "channel": channel, "versions": versions}
                removed += self._database.run("thin_checkpoint_blobs", **where)
        return removed

    # --- a user -------------------------------------------------------------------------------------------------------

    def named(self, user_id: str) -> tuple[list[str], list[str]]:
        """The threads of which any checkpoint names a user, and those in the bin, by their ids there."""
        asked = {"user_from": self._fields["user_from"], "user_id": user_id}
        live = [thread_id for (thread_id,) in self._database.all("named", **asked)]
        return live, [bin_id for (bin_id,) in self._database.all("named_in_bin", **asked)]

    def erase(self, user_id: str) -> int:
        """Delete every thread of which any checkpoint names a user, for good, from the bin too; how many rows."""
        removed = 0
        live, binned = self.named(user_id)
        for start in range(0, len(live), _TOGETHER):
            with self._database.transaction():
                names = sorted(live[start : start + _TOGETHER])
                self._database.lock(names)
                removed += self._remove(names)
        for start in range(0, len(binned), _TOGETHER):
            removed += self.purge(binned[start : start + _TOGETHER])
        if removed:
            self._database.scrub()
        return removed


def read_time(checkpoint_id: str) -> int | None:
    """When a checkpoint was made, in microseconds, by its id; ``None`` if that is no UUID of version 6."""
    if len(checkpoint_id) != 36 or checkpoint_id[14] != "6":
        return None
    with suppress(ValueError):
        ticks = int(checkpoint_id[:8] + checkpoint_id[9:13] + checkpoint_id[15:18], 16)
        return (ticks - _EPOCH) // 10
    return None
