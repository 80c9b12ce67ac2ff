"""Threads of which only the last checkpoints stay: the earlier ones go to the recycle bin, and come back from it."""

from __future__ import annotations

import json

from holdfast.core.errors import ConflictError, quote
from holdfast.integrations.langgraph.checkpoints import BinnedThread, CheckpointTables
from holdfast.integrations.langgraph.databases import BIN
from holdfast.integrations.langgraph.kept_checkpoints import Checkpoint, choose_kept


class ThinnedTables(CheckpointTables):
    """Thins the threads of one database."""

    def thin(self, thread_id: str, bin_id: str, *, keep_last: int, now: int) -> int:
        """Move the checkpoints of a thread that are not needed beside its last ones to the bin; how many rows went.

        The thread resumes as before, and its history is as long as what was kept.
        """
        with self.database.transaction():
            self.database.lock([thread_id])
            checkpoints = self.database.checkpoints(thread_id)
            kept = choose_kept(checkpoints, keep_last)
            if len(kept) == len(checkpoints):
                return 0
            there = {(one.namespace, one.id) for one in kept}
            cut = [
                (one.namespace, one.id, one.parent)
                for one in kept
                if one.parent is not None and (one.namespace, one.parent) not in there
            ]
            entry = BinnedThread(bin_id, *self.find([thread_id])[thread_id], now)
            self.database.insert("holdfast_bin", (*BinnedThread._fields, "cut"), [(*entry, json.dumps(cut))])
            for namespace in {one.namespace for one in checkpoints}:
                self._keep(entry, namespace, kept, [one for one in checkpoints if one.namespace == namespace])
                ids = [one for where, one, _ in cut if where == namespace]
                self.database.run("cut_parents", thread=thread_id, namespace=namespace, ids=ids)
            counts = (f"SELECT count(*) FROM @{BIN}{table} WHERE bin IN ENTRIES(:bins)" for table in self.columns)  # noqa: S608
            return sum(int(self.database.all(count, bins=[bin_id])[0][0]) for count in counts)

    def _keep(self, entry: BinnedThread, namespace: str, kept: list[Checkpoint], checkpoints: list[Checkpoint]) -> None:
        """Move the other checkpoints of a namespace, their writes, and values that only they refer to."""
        mine = [one for one in kept if one.namespace == namespace]
        ids = {one.id for one in mine}
        others = [one for one in checkpoints if one.id not in ids]
        where = {"threads": [entry.thread_id], "bins": [entry.bin_id], "namespace": namespace}
        which = "bin_id IN LIST(:bins) AND moved.checkpoint_ns = :namespace AND moved."
        both = dict.fromkeys(self.database.tables[:2], f"{which}checkpoint_id IN LIST(:ids)")
        self.database.move_to_bin(self.columns, both, **where, ids=[one.id for one in others])
        needed = {value for one in mine for value in one.versions.items()}
        unneeded = {value for one in others for value in one.versions.items()} - needed
        for blobs in self.database.tables[2:]:  # in SQLite, values are in their checkpoints
            for channel in {channel for channel, _ in unneeded}:
                versions = [version for name, version in unneeded if name == channel]
                values = {blobs: f"{which}channel = :channel AND moved.version IN LIST(:versions)"}
                self.database.move_to_bin(self.columns, values, **where, channel=channel, versions=versions)

    def restore_earlier(self, thread_id: str) -> int:
        """Bring the earlier checkpoints of a thread back from the bin; how many rows came. ``ConflictError`` if they
        are there, and the thread is not the one that they were taken from, or is in the bin itself.
        """
        came = 0
        with self.database.transaction():
            self.database.lock([thread_id])
            while found := self.database.all("thinned", thread=thread_id):  # the last first: it has the head of others
                ((bin_id, cut),) = found
                came += self.bring_back([bin_id])
                for namespace, one, parent in json.loads(cut):
                    self.database.run("tie_parent", thread=thread_id, namespace=namespace, id=one, parent=parent)
            left = "SELECT 1 FROM @holdfast_bin WHERE thread_id = :thread AND cut IS NOT NULL"
            if not came and self.database.all(left, thread=thread_id):
                raise ConflictError(
                    f"earlier checkpoints of thread {quote(thread_id)} are in the recycle bin, and the thread that "
                    "they were taken from is not there; restore that first"
                )
        return came
