"""The archive: in place, where all but the summary is cleared, and cold, where the content goes to the object store.

Cold records of one subject are packed together. A pack is noted, written, read back and compared before any record
moves into it, and a pack that holds more than it should is written anew without that; a crash anywhere leaves a note
that the next sweep goes on from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.core import errors, packs
from holdfast.core.decisions import Decision
from holdfast.core.packs import Packed
from holdfast.core.records import (
    TYPES,
    Archive,
    Cause,
    Encoding,
    Entry,
    Keeping,
    MemoryType,
    Move,
    Outcome,
    Record,
    State,
    Subject,
)
from holdfast.core.values import stored_size, to_json
from holdfast.installation import upgrade_command
from holdfast.ports.coordination import Lease
from holdfast.ports.feed import Summarizer
from holdfast.ports.objects import ObjectStore, Pack, PackStore
from holdfast.ports.records import RecordStore
from holdfast.ports.subjects import is_tombstone
from holdfast.recall.passages import compact
from holdfast.recall.summaries import shorten

_log = logging.getLogger("holdfast.archive")
#: A pack smaller than this is written anew together with what its subject archives next.
_SMALL: Final = 256 * 1024
#: What stays of a cold record's text: a quarter, a line at least, and a paragraph at most.
_PART, _LEAST, _MOST = 4, 80, 400
#: Of a text longer than this, the beginning is summed up.
_READ: Final = 20_000
#: Of a text up to this length, a sentence or two, the beginning stays: to sum it up would cost more than it saves.
_SHORT: Final = 160
_BATCH: Final = 1_000


class Run(NamedTuple):
    """One run of archiving: for whom, when, and what must still hold then. What was read of one subject is never
    written for whoever has the name later: those have another alias.
    """

    subject: Subject
    alias: str
    now: int
    lease: Lease | None = None
    rules: int | None = None
    """The version of the rules that it was decided by."""


class Kept(NamedTuple):
    """What became of a record that was to be archived, and what its row takes for text, metadata and recall."""

    outcome: Outcome
    before: int = 0
    """Bytes; 0 where nothing was done."""
    after: int = 0


@dataclass(eq=False, repr=False)
class Archives:
    """Carries out what was decided about archiving, and brings cold records back."""

    records: RecordStore
    packs: PackStore
    objects: Callable[[], ObjectStore]
    summarizer: Summarizer
    _: KW_ONLY
    new_id: Callable[[int], str]
    encode: Callable[[Sequence[Record]], Sequence[Encoding]]
    """``encode`` makes of records what recall needs of them."""

    # --- into the archive ---------------------------------------------------------------------------------------------

    def keep(
        self,
        subject: Subject,
        decisions: Sequence[Decision],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[Kept]:
        """Archive records of one subject and kind as decided; what became of each."""
        archive = TYPES[MemoryType(decisions[0].kind)].archive
        try:
            run = Run(subject, self.packs.alias(subject), now, lease, rules)
        except errors.NotFoundError:
            return [Kept(Outcome.STALE) for _ in decisions]
        kept: list[Kept] = []
        for start in range(0, len(decisions), _BATCH * 4):
            some = decisions[start : start + _BATCH * 4]
            entries = self.records.entries(subject, [decision.id for decision in some])
            found = [(decision, entries[decision.id]) for decision in some if decision.id in entries]
            done = self._carry_out(run, found, _in_place) if archive is Archive.SUMMARY else self._pack(run, found)
            kept += [done.get(decision.id, Kept(Outcome.STALE)) for decision in some]
        return kept

    def _pack(self, run: Run, found: Sequence[tuple[Decision, Entry]]) -> dict[str, Kept]:
        done: dict[str, Kept] = {}
        items = [_packed(entry) for _, entry in found]
        sizes = [len(item.document["content"]) + 256 for item in items]
        for part in packs.groups(sizes):
            joined, old = self._to_join(run.subject)
            try:
                number = self._write(run, [*old, *items[part]])
            except errors.NotFoundError:  # erased meanwhile
                return done
            done |= self._carry_out(run, found[part], partial(self._cold, number))
            if joined is not None:
                self.packs.swap(run.subject, joined.number, number, members=len(old), lease=run.lease)
            self._settle(run.subject, number, run.lease, run.now)
            if joined is not None:
                self._settle(run.subject, joined.number, run.lease, run.now)
        return done

    def _to_join(self, subject: Subject) -> tuple[Pack | None, list[Packed]]:
        """A small pack that is written anew with what is added to it, so that no crumbs are left; and what is in it."""
        pack = self.packs.small(subject, below=_SMALL)
        try:
            return pack, [] if pack is None else self._copied(pack)
        except (
            errors.ObjectDamagedError,
            errors.ObjectMissingError,
        ) as problem:  # what is new is not to suffer from it
            _log.warning("%s", problem)
            return None, []

    def _copied(self, pack: Pack) -> list[Packed]:
        """What is in a pack and is to stay."""
        members = set(self.packs.members(pack.subject, pack.number))
        return [item for item in self._read(pack) if item.id in members]

    def _write(self, run: Run, items: Sequence[Packed]) -> int:
        """Note an object, write it, read it back; its number. ``NotFoundError`` if its owner was erased."""
        data = packs.seal_pack(run.alias, items)
        name = packs.pack_name(run.alias, self.new_id(run.now))
        digest = packs.pack_digest(data)
        objects = self.objects()
        objects.prepare()
        pack: Any = {"name": name, "records": len(items), "size": len(data), "digest": digest}
        number = self.packs.open(run.subject, **pack, now=run.now, alias=run.alias)
        objects.put(name, data)
        if packs.pack_digest(objects.get(name)) != digest:
            raise errors.ObjectDamagedError(
                f"{objects.url} gave back something else than was written to {name}; nothing was moved there"
            )
        if (
            self.packs.get(run.subject, number) is None
        ):  # it took so long that another process has taken over, and given it up
            objects.delete([name])
            raise errors.LeaseLostError(f"another process has taken over; the object {name} was given up")
        return number

    def _cold(self, number: int, entry: Entry) -> Keeping:
        record = entry.record
        metadata = {name: value for name, value in record.metadata.items() if name != "document"}
        return Keeping(self._summary(record.content), None, metadata, compact(record, entry.encoding), number)

    def _summary(self, content: str) -> str:
        most = min(_MOST, max(_LEAST, len(content) // _PART))
        if len(content) <= most:
            return content
        if len(content) <= _SHORT:
            return shorten(content, most)
        return self.summarizer.summarize([content[:_READ]], max_chars=most) or shorten(content, most)

    def _carry_out(
        self, run: Run, found: Sequence[tuple[Decision, Entry]], keep: Callable[[Entry], Keeping]
    ) -> dict[str, Kept]:
        """Archive records as they were read; ``keep`` says what stays of each."""
        done: dict[str, Kept] = {}
        for start in range(0, len(found), _BATCH):
            some = found[start : start + _BATCH]
            moves = [to_move(decision, Cause.RULE, decision.rule, keeping=keep(entry)) for decision, entry in some]
            batches = [(run.subject, moves)]
            (outcomes,) = self.records.transition_all(batches, now=run.now, lease=run.lease, rules=run.rules)
            for (_, entry), move, outcome in zip(some, moves, outcomes, strict=True):
                done[move.id] = _kept(outcome, entry, move)
        return done

    # --- and back -----------------------------------------------------------------------------------------------------

    def read(self, record: Record) -> Packed:
        """The whole of a cold record, from the object store."""
        pack = None if record.pack is None else self.packs.get(record.scope.subject, record.pack)
        if pack is None:
            raise errors.ConflictError(f"memory {record.id} is not in cold storage; there is nothing to bring back")
        for item in self._read(pack):
            if item.id == record.id:
                return item
        raise errors.ObjectDamagedError(f"memory {record.id} is not in the object {pack.name}, where it should be")

    def contents(self, subject: Subject, number: int) -> dict[str, Packed] | None:
        """All that lies in a pack, by id; ``None`` if there is no such pack (any more)."""
        pack = self.packs.get(subject, number)
        return None if pack is None else {item.id: item for item in self._read(pack)}

    def rehydrate(self, record: Record, *, now: int) -> Record:
        """Bring a cold record back: all of it lies in the store again, and its age counts anew.

        What is left of it in cold storage goes with ``tidy``, or with the next sweep.
        """
        whole = self.read(record).document
        content, body, metadata = whole["content"], whole["body"], whole["metadata"]
        back = replace(record, state=State.ACTIVE, content=content, body=body, metadata=metadata)
        (encoding,) = self.encode([back])
        keeping = Keeping(content, body, metadata, encoding, None)
        reason, whose = "brought back from cold storage", (record.id, record.version)
        move = Move(*whose, record.state, State.ACTIVE, reason, Cause.RESTORE, aged_from=now, keeping=keeping)
        (outcome,) = self.records.transition(record.scope.subject, [move], now=now)
        if outcome is Outcome.FULL:
            raise errors.QuotaExceededError(
                f"memory {record.id} cannot be brought back: the quota for {record.kind} memories of user "
                f"{record.scope.user_id!r} has no room for all of it; delete old memories or upgrade the quota first"
            )
        if outcome is not Outcome.DONE:
            raise errors.StaleError(f"memory {record.id} was changed by another writer meanwhile; try again")
        found = self.records.get(record.scope.subject, record.id)
        return record if found is None else found

    def tidy(self, subject: Subject, number: int, *, now: int, lease: Lease) -> None:
        """Write a pack that a record has left anew without it. Only whoever has the lease writes to cold storage."""
        try:
            self._settle(subject, number, lease, now)
        except errors.ObjectStoreError as problem:  # the next sweep tries again
            _log.warning("%s", problem)

    def _read(self, pack: Pack) -> list[Packed]:
        data = self.objects().get(pack.name)
        try:
            if packs.pack_digest(data) != pack.digest:
                raise packs.PackDamagedError("it is not what was written")  # noqa: TRY301 - one message for both
            return packs.open_pack(data)
        except packs.PackTooNewError as problem:
            raise errors.ObjectDamagedError(f"{pack.name}: {problem}; upgrade with: {upgrade_command()}") from problem
        except packs.PackDamagedError as problem:
            raise errors.ObjectDamagedError(
                f"the object {pack.name} in {self.objects().url} is damaged ({problem}); restore it from a backup"
            ) from problem

    # --- keeping packs as they should be ----------------------------------------------------------------------------

    def settle_all(self, tenant: str, *, now: int, lease: Lease | None = None) -> int:
        """Do what is left to do with packs, of this sweep or of one that was cut short; how many there were.

        A pack that is damaged or missing keeps none of the others; it is an error in the end.
        """
        unsettled = self.packs.unsettled(tenant)
        trouble: errors.ObjectStoreError | None = None
        for pack in unsettled:
            try:
                self._settle(pack.subject, pack.number, lease, now)
            except (errors.ObjectDamagedError, errors.ObjectMissingError) as problem:
                trouble = trouble or problem
        if trouble is not None:
            raise trouble
        return len(unsettled)

    def _settle(self, subject: Subject, number: int, lease: Lease | None, now: int) -> None:
        """Bring a pack to what it should be: kept as it is, written anew without what left it, or gone."""
        state = self.packs.settle(subject, number)
        if state == "stale":
            with suppress(errors.NotFoundError):  # erased meanwhile
                self._write_anew(subject, number, lease, now)
        self._finish(subject, number)

    def _write_anew(self, subject: Subject, number: int, lease: Lease | None, now: int) -> None:
        """Write a pack again, with what is to stay."""
        pack = self.packs.get(subject, number)
        if pack is None or is_tombstone(pack.subject):
            return
        run = Run(subject, self.packs.alias(subject), now, lease)
        if self.packs.get(subject, number) != pack:  # another may have the name by now
            return
        staying = self._copied(pack)
        again = self._write(run, staying)
        self.packs.swap(subject, number, again, members=len(staying), lease=lease)
        self._finish(subject, again)

    def _finish(self, subject: Subject, number: int) -> None:
        """Settle a pack once more, and let its object go if no record lies in it."""
        self.packs.settle(subject, number)
        for pack in self.packs.leaving(subject, number):
            self.objects().delete([pack.name])
            self.packs.forget(subject, number)


def to_move(decision: Decision, cause: Cause, rule: str | None = None, **effects: Any) -> Move:
    """The move that carries a decision out."""
    whose, states = (decision.id, decision.version), (decision.source, decision.target)
    return Move(*whose, *states, decision.reason, cause, rule, **effects)


def _in_place(entry: Entry) -> Keeping:
    """Only the summary stays, and what recall needs of it."""
    record, encoding = entry
    return Keeping(record.content, None, record.metadata, compact(record, encoding), None)


def _kept(outcome: Outcome, entry: Entry, move: Move) -> Kept:
    if outcome is not Outcome.DONE or move.keeping is None:
        return Kept(outcome)
    record = entry.record
    before = Keeping(record.content, record.body, record.metadata, entry.encoding, None)
    return Kept(outcome, _stored_bytes(before), _stored_bytes(move.keeping))


def _stored_bytes(keeping: Keeping) -> int:
    """What a row takes for text, metadata and recall."""
    packed = [keeping.content] + ([] if keeping.body is None else [to_json(keeping.body)])
    recall = len(keeping.encoding.terms) + len(keeping.encoding.vectors or b"")
    return sum(map(stored_size, packed)) + len(to_json(keeping.metadata).encode()) + recall


def _packed(entry: Entry) -> Packed:
    record = entry.record
    document = {"kind": record.kind.value, "content": record.content, "body": record.body, "metadata": record.metadata}
    return Packed(record.id, document)
