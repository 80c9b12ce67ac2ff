"""The archive: in place, where all but the summary is cleared, and cold, where the content goes to the object store.

Cold records of one subject are packed together. A pack is noted, written, read back and compared before any record
moves into it, and a pack that holds more than it should is written anew without that; a crash anywhere leaves a note
that the next sweep goes on from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
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
from holdfast.core.values import parse_json_object, stored_size, to_json
from holdfast.installation import upgrade_command
from holdfast.ports.coordination import Lease
from holdfast.ports.feed import Summarizer
from holdfast.ports.objects import NewPack, ObjectStore, Pack, PackKey, PackPlan, PackStore, Swap
from holdfast.ports.records import Content, RecordStore
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
#: So many objects are written at the same time, and so many packs are settled together.
_AT_ONCE, _PACKS = 8, 100


class Run(NamedTuple):
    """One run of archiving: when, and what must still hold then."""

    now: int
    lease: Lease | None = None
    rules: int | None = None
    """The version of the rules that it was decided by."""
    most: int = 1_000
    """How many records move in one transaction."""
    timed: Callable[[int, float], None] = lambda _records, _seconds: None
    """Hears how long it took to move so many in one transaction."""
    note: Callable[[errors.ObjectStoreError], None] = lambda _problem: None
    """Hears what went wrong with an object. What was to lie in it stays where it is."""


class Kept(NamedTuple):
    """What became of a record that was to be archived, and what its row takes for text, metadata and recall."""

    outcome: Outcome
    before: int = 0
    """Bytes; 0 where nothing was done."""
    after: int = 0


Found = Sequence[tuple[Decision, Content]]


@dataclass(eq=False, repr=False)
class _Draft:
    """A pack that is to be written: the one whose place it takes, what stays of that, and what is new. What was read of
    one subject is never written for whoever has the name later: those have another alias.
    """

    subject: Subject
    alias: str
    old: Pack | None = None
    staying: Sequence[Packed] = ()
    new: Found = ()
    number: int = 0
    name: str = ""

    def seal(self) -> bytes:
        """The bytes of the object."""
        lines = (packs.to_line(one.id, found.kind, one.content, one.body, one.metadata) for found, one in self.new)
        return packs.seal_pack(self.alias, [*self.staying, *lines])


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

    def keep(self, batches: Sequence[tuple[Subject, Sequence[Decision]]], run: Run) -> list[list[Kept]]:
        """Archive records of several subjects, all of one kind, as decided; what became of each. All that is read is
        held until it has moved: whoever calls this bounds how much that is.
        """
        wanted = [(subject, [one.id for one in decisions]) for subject, decisions in batches]
        if TYPES[MemoryType(batches[0][1][0].kind)].archive is Archive.SUMMARY:
            entries = zip(batches, self.records.entries_of(wanted), strict=True)
            done = self._move(
                run,
                [
                    (subject, _archive(decision, _in_place(known[decision.id])), _stored_bytes(known[decision.id]))
                    for (subject, decisions), known in entries
                    for decision in decisions
                    if decision.id in known
                ],
            )
        else:
            plans = self.packs.plans([(subject, None) for subject, _ in batches], below=_SMALL)
            contents = zip(batches, plans, self.records.contents_of(wanted), strict=True)
            drafts: list[_Draft] = []
            for (subject, decisions), plan, known in contents:
                if plan is not None:  # else erased meanwhile
                    found = [(decision, known[decision.id]) for decision in decisions if decision.id in known]
                    drafts += self._draft(subject, plan, found)
            done = self._pack(run, drafts)
        return [[done.get(decision.id, Kept(Outcome.STALE)) for decision in decisions] for _, decisions in batches]

    def _draft(self, subject: Subject, plan: PackPlan, found: Found) -> Iterator[_Draft]:
        """The packs that a subject's records go into. A small one is written anew with what is added to it, so that no
        crumbs are left.
        """
        sizes = [len(one.content) + 256 for _, one in found]
        for part in packs.groups(sizes):
            draft = _Draft(subject, plan.alias, new=found[part])
            try:
                if plan.pack is not None:
                    draft.old, draft.staying = plan.pack, self._staying(plan)
            except (errors.ObjectDamagedError, errors.ObjectMissingError) as problem:  # what is new is not to suffer
                draft.old = None
                _log.warning("%s", problem)
            yield draft
            plan = plan._replace(pack=None)

    def _staying(self, plan: PackPlan) -> list[Packed]:
        """What is in a pack and is to stay."""
        return [] if plan.pack is None else [item for item in self._read(plan.pack) if item.id in plan.members]

    def _pack(self, run: Run, drafts: Sequence[_Draft]) -> dict[str, Kept]:
        """Write packs, let what is new and what stays lie in them, and let go those whose places they take."""
        written = self._write(run, drafts) if drafts else []
        moves = [
            (draft.subject, _archive(decision, self._cold(draft.number, one)), one.size)
            for draft in written
            for decision, one in draft.new
        ]
        done = self._move(run, moves)
        joined = [(draft, draft.old) for draft in written if draft.old is not None]
        if joined:
            swaps = [Swap(one.subject, old.number, one.number, len(one.staying)) for one, old in joined]
            self.packs.swap(swaps, lease=run.lease)
        new = [(draft.subject, draft.number) for draft in written]
        self._settle(run, [*new, *((draft.subject, old.number) for draft, old in joined)], anew=bool(moves))
        return done

    def _write(self, run: Run, drafts: Sequence[_Draft]) -> list[_Draft]:
        """Note objects, write them, read them back; those that are whole. Those of the erased are left out."""
        objects = self.objects()
        objects.prepare()
        sealed = [draft.seal() for draft in drafts]
        new: list[NewPack] = []
        for draft, data in zip(drafts, sealed, strict=True):
            draft.name = packs.pack_name(draft.alias, self.new_id(run.now))
            counted = (len(draft.staying) + len(draft.new), len(data), packs.pack_digest(data))
            new.append(NewPack(draft.subject, draft.alias, draft.name, *counted))
        opened = []
        for number, draft, data in zip(self.packs.open(new, now=run.now), drafts, sealed, strict=True):
            if number is not None:  # else erased meanwhile
                draft.number = number
                opened.append((draft, data))
        problems = _do_at_once([partial(_put, objects, draft.name, data) for draft, data in opened])
        written = [draft for (draft, _), problem in zip(opened, problems, strict=True) if problem is None]
        for problem in filter(None, problems):
            run.note(problem)
        still = self.packs.are_open([(draft.subject, draft.number) for draft in written])
        lost = [draft for draft, is_open in zip(written, still, strict=True) if not is_open]
        if lost:  # it took so long that another process has taken over, and given them up
            objects.delete([draft.name for draft in lost])
            raise errors.LeaseLostError(f"another process has taken over; {len(lost)} objects were given up")
        return written

    def _cold(self, number: int, one: Content) -> Keeping:
        metadata = {} if one.metadata == "{}" else parse_json_object(one.metadata)
        metadata.pop("document", None)
        return Keeping(self._summary(one.content), None, metadata, compact(None, one.encoding), number)

    def _summary(self, content: str) -> str:
        most = min(_MOST, max(_LEAST, len(content) // _PART))
        if len(content) <= most:
            return content
        if len(content) <= _SHORT:
            return shorten(content, most)
        return self.summarizer.summarize([content[:_READ]], max_chars=most) or shorten(content, most)

    def _move(self, run: Run, moves: Sequence[tuple[Subject, Move, int]]) -> dict[str, Kept]:
        """Archive records as they were read, with the bytes that they took then, each subject's together."""
        done: dict[str, Kept] = {}
        for start in range(0, len(moves), run.most):
            some = moves[start : start + run.most]
            batches: dict[Subject, list[Move]] = {}
            for subject, move, _ in some:
                batches.setdefault(subject, []).append(move)
            how: Any = {"now": run.now, "lease": run.lease, "rules": run.rules}
            began = time.monotonic()
            answers = self.records.transition_all(list(batches.items()), **how)
            run.timed(len(some), time.monotonic() - began)
            outcomes = (outcome for answered in answers for outcome in answered)
            for (_, move, before), outcome in zip(some, outcomes, strict=True):
                is_done = outcome is Outcome.DONE
                done[move.id] = Kept(outcome, before, _kept_bytes(move)) if is_done else Kept(outcome)
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
            self._settle(Run(now, lease), [(subject, number)])
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
        unsettled = [(pack.subject, pack.number) for pack in self.packs.unsettled(tenant)]
        troubles: list[errors.ObjectStoreError] = []
        for start in range(0, len(unsettled), _PACKS):
            self._settle(Run(now, lease, note=troubles.append), unsettled[start : start + _PACKS])
        if troubles:
            raise troubles[0]
        return len(unsettled)

    def _settle(self, run: Run, keys: Sequence[PackKey], *, anew: bool = True) -> None:
        """Bring packs to what they should be: kept as they are, written ``anew`` without what left them, or gone."""
        states = self.packs.settle(keys) if keys else []
        stale = [key for key, state in zip(keys, states, strict=True) if state == "stale"]
        if anew and stale:
            self._pack(run, self._drafts_of(run, stale))
        gone = [key for key, state in zip(keys, states, strict=True) if state != "kept"]
        if gone and (leaving := self.packs.leaving(gone)):
            self.objects().delete([pack.name for pack in leaving])
            self.packs.forget([(pack.subject, pack.number) for pack in leaving])

    def _drafts_of(self, run: Run, keys: Sequence[PackKey]) -> list[_Draft]:
        """Packs that are to be written again, with what is to stay."""
        drafts: list[_Draft] = []
        for (subject, _), plan in zip(keys, self.packs.plans(keys), strict=True):
            if plan is not None and plan.pack is not None and not is_tombstone(subject):
                try:
                    drafts.append(_Draft(subject, plan.alias, plan.pack, self._staying(plan)))
                except (errors.ObjectDamagedError, errors.ObjectMissingError) as problem:
                    run.note(problem)
        return drafts


def _put(objects: ObjectStore, name: str, data: bytes) -> None:
    """Write an object, and read it back."""
    objects.put(name, data)
    if objects.get(name) != data:
        raise errors.ObjectDamagedError(
            f"{objects.url} gave back something else than was written to {name}; nothing was moved there"
        )


def _do_at_once(tasks: Sequence[Callable[[], None]]) -> list[errors.ObjectStoreError | None]:
    """Do several things at the same time, since each waits for a disk or a server; what went wrong with each. Once the
    store itself is out of reach, those that have not begun share the error.
    """
    down: list[errors.ObjectStoreError] = []

    def attempt(task: Callable[[], None]) -> errors.ObjectStoreError | None:
        if down:
            return down[0]
        try:
            task()
        except (errors.ObjectDamagedError, errors.ObjectMissingError) as problem:
            return problem
        except errors.ObjectStoreError as problem:
            down.append(problem)
            return problem
        return None

    if len(tasks) < 2:
        return [attempt(task) for task in tasks]
    with ThreadPoolExecutor(min(_AT_ONCE, len(tasks)), "holdfast-archive") as pool:
        return [one.result() for one in [pool.submit(copy_context().run, attempt, task) for task in tasks]]


def to_move(decision: Decision, cause: Cause, rule: str | None = None, **effects: Any) -> Move:
    """The move that carries a decision out."""
    whose, states = (decision.id, decision.version), (decision.source, decision.target)
    return Move(*whose, *states, decision.reason, cause, rule, **effects)


def _archive(decision: Decision, keeping: Keeping) -> Move:
    return to_move(decision, Cause.RULE, decision.rule, keeping=keeping)


def _in_place(entry: Entry) -> Keeping:
    """Only the summary stays, and what recall needs of it."""
    record, encoding = entry
    return Keeping(record.content, None, record.metadata, compact(record, encoding), None)


def _stored_bytes(entry: Entry) -> int:
    record = entry.record
    return _count_bytes(Keeping(record.content, record.body, record.metadata, entry.encoding, None))


def _kept_bytes(move: Move) -> int:
    return 0 if move.keeping is None else _count_bytes(move.keeping)


def _count_bytes(keeping: Keeping) -> int:
    """What a row takes for text, metadata and recall."""
    body = 0 if keeping.body is None else stored_size(to_json(keeping.body))
    recall = len(keeping.encoding.terms) + len(keeping.encoding.vectors or b"")
    noted = len(to_json(keeping.metadata).encode()) if keeping.metadata else 2
    return stored_size(keeping.content) + body + noted + recall
