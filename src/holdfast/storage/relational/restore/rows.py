"""Bringing rows back into a store that is in use: what a backup holds of a subject, in batches, each whole or not.

A batch has the subject to itself, and asks within whether its owner was erased: an erasure locks the tenant, so that it
comes before a batch, which then writes nothing, or after it, and finds what was written. What is there is told
by its id; so a restore that was cut short is finished by doing it again. Quotas are not asked, and nothing is counted
as a move: it was all there before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from holdfast.core.audit import Action, Event
from holdfast.core.errors import ConflictError, StaleError
from holdfast.core.records import Cause, State, Subject
from holdfast.core.values import to_json
from holdfast.ports.backups import ConversationRows, ErasedError, Merged, Origin, Owner, PackRow, StrangerError, Values
from holdfast.ports.objects import ObjectStore
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.moves import StandingRow
from holdfast.storage.relational.profiles import Profiles
from holdfast.storage.relational.record_rows import KINDS, RecordRow
from holdfast.storage.relational.restore.records import PackState, RecordBatch, WantedError
from holdfast.storage.relational.restore.sessions import SessionBatch
from holdfast.storage.relational.scopes import read_alias

#: A cold object that a sweep lets go of again, before its records are there, is noted anew so many times.
_TRIES: Final = 5


class SqlMerger:
    """The ``RowMerger`` of the relational engines."""

    def __init__(
        self,
        database: Database,
        origin: Origin,
        *,
        is_erased: Callable[[str], bool],
        cold: Callable[[], ObjectStore],
        now: int,
    ) -> None:
        self._database = database
        self._origin = origin
        self._is_erased = is_erased
        self._cold = cold
        self._now = now
        self._profiles = Profiles()

    # --- what a subject has ------------------------------------------------------------------------------------------

    def records(
        self,
        owner: Owner,
        rows: Sequence[Values],
        packs: Mapping[int, PackRow],
        *,
        overwrite: bool,
        alone: bool = False,
    ) -> Merged:
        objects: dict[str, bytes | None] = {}
        for _ in range(_TRIES):
            try:
                with self._writing(owner) as (tx, number):
                    batch = RecordBatch(tx, owner.subject, number, self._profiles, now=self._now)
                    batch.take(rows, overwrite=overwrite)
                    put = batch.find_packs(packs, objects)
                    for name in put:
                        self._cold().put(name, objects[name] or b"")
                    counts, entities, replaced = batch.save(self._origin.models)
                    counts["objects"] = len(put)
                    self._note(tx, number, counts, rows[0] if alone else None)
                    return Merged(counts, entities, replaced)
            except WantedError as wanted:
                self._note_packs(owner, wanted.packs, objects)
        raise StaleError("a sweep keeps letting go of cold objects that are being brought back; try again after it")

    def _note_packs(self, owner: Owner, packs: Sequence[PackRow], objects: dict[str, bytes | None]) -> None:
        """Fetch cold objects, and note them before they are put: a crash leaves a note for the next sweep to settle."""
        objects |= {pack.name: self._origin.fetch(pack.name) for pack in packs}
        fetched = [pack for pack in packs if objects[pack.name] is not None]
        if not fetched:
            return
        self._cold().prepare()
        with self._writing(owner) as (tx, number):
            for pack in fetched:
                row = tx.find(PackState, "restore.pack", (number, pack.name))
                if row is not None and row.state == "leaving":
                    raise ConflictError(
                        f"the cold object {pack.name} is just being removed; try again after the next sweep"
                    )
                if row is None:
                    tx.number("packs.open", (number, pack.name, pack.records, pack.size, pack.digest, pack.made_at))

    def conversations(self, owner: Owner, conversations: Sequence[ConversationRows]) -> Merged:
        with self._writing(owner) as (tx, number):
            batch = SessionBatch(tx, owner.subject, number, self._profiles, now=self._now)
            for conversation in conversations:
                batch.add(conversation)
            self._note(tx, number, batch.counts)
            return Merged(batch.counts)

    def facts(self, owner: Owner, rows: Sequence[Values], made: Container[str]) -> Merged:
        with self._writing(owner) as (tx, number):
            ends = {row[end] for row in rows for end in ("source", "target")} - {None}
            found = tx.all(StandingRow, "records.standing_all", (to_json(sorted(ends)), number, False))
            known = {entity.id for entity in found if entity.state != State.DELETING}
            there = set(tx.values("restore.facts_there", (to_json([row["id"] for row in rows]), number)))
            new = [row for row in rows if row["id"] not in there and row["source"] in known]
            columns = ("id", "source", "name", "target", "value", "since", "until", "recorded_at")
            tx.run_many("facts.add", [(number, *(row[column] for column in columns)) for row in new])
            counts = Counter(facts=len(new))
            self._note(tx, number, counts)
        unsaid = {
            row["source"]
            for row in new
            if row["source"] not in made or (row["target"] is not None and row["target"] not in known)
        }
        return Merged(counts, outdated=frozenset(unsaid))

    def holds(self, owner: Owner, rows: Sequence[Values]) -> Merged:
        with self._database.govern(owner.tenant) as tx:
            number = self._number(tx, owner)
            counts = Counter(holds=sum(_insert_hold(tx, row) for row in rows))
            self._note(tx, number, counts)
        return Merged(counts)

    def common_holds(self, tenant: str, rows: Sequence[Values]) -> Merged:
        with self._database.govern(tenant) as tx:
            on_nobody = [row for row in rows if row["user_id"] is None and _is_on_something(tx, row)]
            counts = Counter(holds=sum(_insert_hold(tx, row) for row in on_nobody))
            if counts["holds"]:
                self._note(tx, tx.number_for(Subject(tenant)), counts)
        return Merged(counts)

    # --- within ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, owner: Owner) -> Iterator[tuple[Transaction, int]]:
        with self._database.write(owner.subject) as tx:
            yield tx, self._number(tx, owner)

    def _number(self, tx: Transaction, owner: Owner) -> int:
        """The number of an owner. If nobody goes by that name they are made known, under their pseudonym: a later
        erasure is to find the key of what was backed up. The ledger is asked once no erasure can come between.
        """
        number = tx.number_of(owner.subject)
        if self._is_erased(owner.alias):
            raise ErasedError
        if number is None:
            number = tx.number_for(owner.subject, alias=bytes.fromhex(owner.alias))
        if read_alias(tx, number) != owner.alias:
            raise StrangerError
        return number

    def _note(self, tx: Transaction, number: int, counts: Counter[str], one: Values | None = None) -> None:
        """Write into the subject's chain what came back, if anything did; of one record, which it is."""
        brought = {
            what: counts[what]
            for what in ("memories", "expired", "sessions", "messages", "facts", "holds")
            if counts[what]
        }
        if brought:
            detail = {
                "kind": "backup" if one is None else KINDS[one["kind"]].name.value,
                "cause": Cause.RESTORE.value,
                "reason": f"restored from backup {self._origin.backup_id}",
                "backup": self._origin.backup_id,
                **brought,
            }
            append(tx, number, [Event(self._now, Action.RESTORED, None if one is None else one["id"], detail)])


def _is_on_something(tx: Transaction, hold: Values) -> bool:
    """Whether what a hold is on is there, if it is on one thing."""
    where = (hold["memory_id"], hold["tenant"])
    return (
        hold["memory_id"] is None
        or tx.find(RecordRow, "records.find", where) is not None
        or tx.value("restore.session_anywhere", where) is not None
        or tx.value("restore.message_anywhere", where) is not None
    )


def _insert_hold(tx: Transaction, row: Values) -> int:
    columns = ("id", "tenant", "user_id", "agent_id", "session_id", "memory_id", "tag", "reason", "author")
    moments = ("created_at", "released_at", "released_by")
    return tx.run("restore.insert_hold", [row[column] for column in (*columns, *moments)])
