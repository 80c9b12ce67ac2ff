"""Durable records of one scope: written, read, changed, recycled and restored in one way for every kind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.decisions import held_error
from holdfast.core.errors import AgentRemovedError, ConflictError, NotFoundError, ObjectStoreError, StaleError, quote
from holdfast.core.records import (
    LIVE,
    TYPES,
    Archive,
    Entry,
    Kind,
    MemoryType,
    Message,
    Outcome,
    Record,
    Scope,
    State,
    Subject,
    Usage,
    key_of,
)
from holdfast.core.values import NO_ORIGIN, Origin, agent_source, check_content, is_id, iso, value_class
from holdfast.lifecycle.bulk_delete import Cleared, clear, counted
from holdfast.ports.records import Added, Put, PutOutcome, Recycled

if TYPE_CHECKING:
    from holdfast.memory.services import Services
    from holdfast.recall.index import Hit, Query, SearchOptions
    from holdfast.results.memory import MemoryResult

_log = logging.getLogger("holdfast.memory")
#: A writer that finds a record changed under its hands reads it again and retries, this often.
TRIES: Final = 64


@value_class
class Draft:
    """A record to be, before it has an id and a time."""

    content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    origin: Origin = NO_ORIGIN
    body: dict[str, Any] | None = None
    name: str | None = None
    dated_at: int | None = None
    ttl: int | None = None
    created_at: int | None = None
    """When it was made elsewhere, for imports; now, if it is made here."""
    updated_at: int | None = None


class NamedDraft(NamedTuple):
    """What is to become of the record that goes by a name."""

    name: str | None
    draft: Draft | None
    expected: int | None = None


class Changed(NamedTuple):
    """The new version of a record, and what there is of its kind now."""

    record: Record
    usage: Usage


class DurableRecords:
    """The durable records that a scope selects."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self.services, self.scope = services, scope
        self.check_source: Callable[[str], None] = lambda _source: None
        """Raises where whoever calls may not name a source."""

    def origin(self, source: object, derived_from: object) -> Origin:
        """What a caller says of where a memory comes from, if it can be kept and the caller may say it. Every verb that
        takes it asks here, before it does anything.
        """
        origin = Origin.check(source, derived_from)
        if origin.source is not None:
            self.check_source(origin.source)
        return origin

    def write(
        self,
        name: MemoryType,
        drafts: Sequence[Draft],
        *,
        prune: bool = False,
        dedupe: bool = False,
        skip_kept_out: bool = False,
    ) -> tuple[list[str], Added]:
        """Add all drafts as records of a kind, or none of them; their ids. With ``dedupe``, the id of the record that
        has a draft's text already stands for it; with ``skip_kept_out``, for a text that is kept out, that of the
        memory that was deleted.
        """
        entries, now = self._make_entries(name, drafts)
        insert = partial(self.services.records.insert, prune=prune, dedupe=dedupe, skip_kept_out=skip_kept_out)
        added = insert(self.scope.subject, TYPES[name], entries, now=now)
        instead = {**added.found, **added.kept_out}
        return [instead.get(entry.record.id, entry.record.id) for entry in entries], added

    def put(self, name: MemoryType, puts: Sequence[NamedDraft]) -> list[str | None]:
        """Let each draft be a new record, or take the place of the live one that goes by its name; without a draft,
        that one goes to the recycle bin. All of it or nothing; the id of each. Of several of one name the last counts.
        """
        last = {place if put.name is None else put.name: put for place, put in enumerate(puts)}
        outcomes, _ = self.put_named(name, list(last.values()))
        ids = dict(zip(last, (outcome.id for outcome in outcomes), strict=True))
        return [ids[place if put.name is None else put.name] for place, put in enumerate(puts)]

    def put_named(
        self, name: MemoryType, puts: Sequence[NamedDraft], *, prune: bool = False
    ) -> tuple[list[PutOutcome], Added]:
        """The same, of puts of different names, with what became of each."""
        entries, now = self._make_entries(name, [put.draft for put in puts if put.draft is not None])
        made = iter(entries)
        wanted = [Put(put.name, None if put.draft is None else next(made), put.expected) for put in puts]
        outcomes, added = self.services.records.put(self.scope, TYPES[name], wanted, now=now, prune=prune)
        for record_id, pack, version in outcomes:
            if pack is not None and record_id is not None and version is not None:
                self._leave_pack(record_id, version - 1, pack, now)
            elif pack is not None:
                self._tidy(pack, now)
        return outcomes, added

    def _make_entries(self, name: MemoryType, drafts: Sequence[Draft]) -> tuple[list[Entry], int]:
        """Drafts as new records of a kind, ready to be written, and the moment that they are of."""
        self.scope.check_one()
        now = self.services.now()
        ids = self.services.ids_at([draft.created_at or now for draft in drafts])  # they sort by when records were made
        records = [
            Record(
                id=record_id,
                kind=name,
                scope=self.scope,
                content=check_content(draft.content, max_bytes=self.services.max_content_bytes),
                created_at=draft.created_at or now,
                updated_at=draft.updated_at or draft.created_at or now,
                dated_at=draft.dated_at or draft.created_at or now,
                metadata=draft.metadata,
                body=draft.body,
                name=draft.name,
                ttl=draft.ttl,
                **draft.origin.fields(self.scope.agent_id),
            )
            for draft, record_id in zip(drafts, ids, strict=True)
        ]
        encodings = self.services.recall.encode(records) if records else []
        return [Entry(*pair) for pair in zip(records, encodings, strict=True)], now

    def find(self, record_id: str) -> Record | None:
        """The record if it is within the scope, in whatever state."""
        if not is_id(record_id):
            return None
        record = self.services.records.get(self.scope.subject, record_id)
        return record if record is not None and self.selects(record) else None

    def read(self, record_id: str, only: MemoryType | None = None) -> Record:
        """The live record; ``NotFoundError`` says why there is none."""
        return self.check_live(record_id, self.find(record_id), only)

    def check_live(self, record_id: str, record: Record | None, only: MemoryType | None = None) -> Record:
        """What was found by an id, if it is live; ``NotFoundError`` says why not."""
        if record is None or (only is not None and record.kind is not only):
            raise self._no_memory(record_id, "memory" if only is None else f"{only} memory")
        if record.state is State.RECYCLED:
            raise NotFoundError(f"memory {record_id} is in the recycle bin; restore it to use it again")
        if record.state not in LIVE or (record.hidden_from is not None and record.hidden_from <= self.services.now()):
            agent = self.services.removed_agent(record.scope) if "agent" in TYPES[record.kind].scope else None
            if agent is not None:
                raise NotFoundError(
                    f"memory {record_id} belongs to agent {agent.id!r}, which was removed on "
                    f"{iso(agent.moved_at or 0)}, and follows it into the recycle bin once no hold keeps it; to see it "
                    f"again, restore the agent until {iso(agent.purge_at or 0)}: holdfast agent restore {agent.id}"
                )
            raise NotFoundError(f"memory {record_id} has come to the end of its time")
        return record

    def _no_memory(self, record_id: str, what: str = "memory") -> NotFoundError:
        return NotFoundError(f"no {what} {quote(record_id)} for user {self.scope.user_id!r}")

    def named(self, kind: MemoryType, name: str) -> Record | None:
        """The live record of a kind that goes by a name."""
        return self.services.records.named(self.scope.subject, TYPES[kind], name, now=self.services.now())

    def upsert(self, kind: MemoryType, draft: Draft, change: Callable[[Record], Record]) -> str:
        """Write a draft, or ``change`` the live record that goes by its name; the record's id."""
        for _ in range(TRIES):
            there = None if draft.name is None else self.named(kind, draft.name)
            try:
                return self.write(kind, [draft])[0][0] if there is None else change(there).id
            except AgentRemovedError:
                raise
            except ConflictError:
                continue  # another writer made or changed it; look again
        raise StaleError(f"{kind} memory {draft.name!r} keeps changing; try again")

    def change(
        self,
        record: Record,
        *,
        by_agent: bool = True,
        from_cold: bool = False,
        renew: bool = False,
        reason: str | None = None,
        **changes: Any,
    ) -> Changed:
        """Write a new version of a record, for a ``reason``; ``StaleError`` if another writer was faster,
        ``AgentRemovedError`` if it is changed by an agent that is in the recycle bin. With ``renew``, its age counts
        anew, and what says the same changes with it.

        With ``from_cold``, one in cold storage comes back with that, and its age counts anew, in one step: where it is
        refused, nothing has changed. Without, ``ConflictError``.
        """
        if not from_cold:
            check_not_cold(record)
        now, is_cold = self.services.now(), record.pack is not None
        aged_from = now if renew or is_cold else record.aged_from
        changed = replace(record, **changes, aged_from=aged_from, updated_at=now)
        check_content(changed.content, max_bytes=self.services.max_content_bytes)
        (encoding,) = self.services.recall.encode([changed])
        agent = self.scope if by_agent else None
        entry = Entry(changed, encoding)
        how = {"from_cold": is_cold, "with_twins": renew}
        usage = self.services.records.replace(entry, agent=agent, reason=reason, **how)
        if usage is None:
            raise StaleError(f"memory {record.id} was changed by another writer meanwhile; read it again and retry")
        if record.pack is not None:
            self._leave_pack(record.id, record.revision, record.pack, now)
        return Changed(replace(changed, version=record.version + 1, revision=record.revision + 1), usage)

    def _leave_pack(self, record_id: str, ended: int, pack: int, now: int) -> None:
        """A record left cold storage as it was changed: what ended is whole again, as far as it can be read."""
        try:
            packed = (self.services.archives.contents(self.scope.subject, pack) or {}).get(record_id)
            record = None if packed is None else self.find(record_id)
            if packed is not None and record is not None:
                whole = replace(record, content=packed.document["content"], metadata=packed.document["metadata"])
                (encoding,) = self.services.recall.encode([replace(whole, state=State.ACTIVE)])
                self.services.versions.complete(Entry(whole, encoding), ended)
        except ObjectStoreError as problem:
            _log.warning("version %d of memory %s is kept as its summary: %s", ended, record_id, problem)
        self._tidy(pack, now)

    def check_agent(self) -> None:
        """``AgentRemovedError`` if the scope's agent is in the recycle bin."""
        self.services.check_agent(self.scope)

    def recycle(self, record_id: str, *, reason: str) -> Recycled:
        """Move a live record into the recycle bin."""
        if not is_id(record_id):
            raise self._no_memory(record_id)

        def check(record: Record | None) -> Record:
            return self.check_live(record_id, record if record is not None and self.selects(record) else None)

        now = self.services.now()
        recycled = self.services.records.recycle(self.scope, record_id, check, reason=reason, now=now)
        if recycled.outcome is Outcome.HELD:
            raise held_error(record_id)
        return recycled

    def keep_out(self, record_id: str) -> tuple[Record, list[str]]:
        """Recycle a live record, and keep its text out; the ids of the other records that went because they have it."""
        for _ in range(TRIES):
            record = self.read(record_id)
            now = self.services.now()
            outcome, went = self.services.keep_out.add(self.scope.subject, record.id, now=now, agent=self.scope)
            if outcome is Outcome.HELD:
                raise held_error(went[0])
            if outcome is Outcome.DONE:
                return record, [one for one in went if one != record.id]
        raise StaleError(f"memory {record_id} keeps changing; try again")

    def restore(self, record_id: str) -> Record:
        """Bring a record back from the recycle bin, exactly as it was."""
        record = self.find(record_id)
        if record is None:
            raise NotFoundError(
                f"no memory {quote(record_id)} for user {self.scope.user_id!r}, in the bin or out of it"
            )
        own = "agent" in TYPES[record.kind].scope  # such a one is refused, and that written down, further on
        if not own:
            self.check_agent()
        if record.state is not State.RECYCLED:
            raise ConflictError(f"memory {record_id} is {record.state}, not in the recycle bin; nothing to restore")
        now = self.services.now()
        from holdfast.lifecycle.recycle_bin import restore_error, restore_move

        move = restore_move(record, now)
        agent = None if own else self.scope
        (outcome,) = self.services.records.transition(self.scope.subject, [move], now=now, agent=agent)
        if outcome is not Outcome.DONE:
            raise restore_error(record, outcome, self.services.registry, now)
        return replace(record, state=move.target)

    def rehydrate(self, record: Record) -> Record:
        """Bring a record back from cold storage; ``ConflictError`` if it is not there."""
        if record.pack is None:
            in_place = "was archived in place: only its summary was kept; nothing can be brought back"
            elsewhere = f"is {record.state}, not in cold storage; there is nothing to bring back"
            is_summary = record.state is State.ARCHIVED and TYPES[record.kind].archive is Archive.SUMMARY
            raise ConflictError(f"memory {record.id} {in_place if is_summary else elsewhere}")
        now = self.services.now()
        back = self.services.archives.rehydrate(record, now=now)
        self._tidy(record.pack, now)
        return back

    def _tidy(self, pack: int, now: int) -> None:
        """Take what has left a pack out of it, unless another is at work there; the next sweep does it then."""
        with self.services.leadership.held() as lease:
            if lease is not None:
                self.services.archives.tidy(self.scope.subject, pack, now=now, lease=lease)

    def search(self, name: MemoryType, query: Query, options: SearchOptions) -> list[tuple[Record, Hit]]:
        """The best matches of a kind with their records, best first."""
        pairs: list[tuple[Record, Hit]] = []
        for _ in range(3):  # a match deleted between ranking and reading would leave its place empty: rank again
            hits = self.services.recall.rank(self.scope, TYPES[name], query, options)
            records = self.services.records.fetch(self.scope.subject, [hit.id for hit in hits], now=options.now)
            pairs = [(records[hit.id], hit) for hit in hits if hit.id in records]
            if len(pairs) == len(hits):
                break
        return pairs

    def select(self, name: MemoryType, options: SearchOptions) -> list[Record]:
        """Records of a kind that pass a filter, newest first. Fewer than ``top_k`` means that there are no more."""
        found: list[Record] = []
        wanted = options
        while True:  # what is deleted between choosing and reading leaves no gap: others are chosen in its place
            ids = self.services.recall.list_newest(self.scope, TYPES[name], wanted)
            found += self.services.records.fetch(self.scope.subject, ids, now=options.now).values()
            if len(ids) < wanted.top_k or len(found) >= options.top_k:
                return found
            wanted = options._replace(top_k=options.top_k - len(found), before=ids[-1])

    def clear(self, user_id: str, name: MemoryType) -> int:
        """Send all of a user's records of a kind to the recycle bin, whichever agent they are with; how many."""
        return counted(clear_kind(self.services, Subject.check(self.scope.tenant, user_id), name), user_id)

    def export(self, user_id: str, name: MemoryType) -> list[dict[str, Any]]:
        """All of a user's records of a kind, whole, in whatever state, whichever agent they are with."""
        return self.services.exports.of_kind(self.scope.tenant, user_id, name)

    def selects(self, record: Record) -> bool:
        """Whether a record is within the scope: of some kinds, each agent has its own."""
        return "agent" not in TYPES[record.kind].scope or record.scope.agent_id == self.scope.agent_id


def memory_result(record: Record, now: int) -> MemoryResult:
    """A record as callers see it."""
    metadata = {**record.metadata, "is_compressed": True} if record.compressed else dict(record.metadata)
    scope, created = record.scope, iso(record.created_at)
    result: MemoryResult = {
        "memory_id": record.id,
        "content": record.content,
        "memory_type": str(record.kind),
        "metadata": metadata,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "created_at": created,
        "updated_at": created if record.updated_at == record.created_at else iso(record.updated_at),
        "is_archived": record.is_archived(now),
        "source": record.source or agent_source(scope.agent_id),
        "derived_from": list(record.derived_from),
        "version": record.revision,
    }
    if record.name is not None and (key := key_of(TYPES[record.kind], record.name)) is not None:
        result["key"] = key
    return result


def item_result(scope: Scope, kind: Kind, item: Message) -> MemoryResult:
    """A working note or a short-term message as callers see it."""
    role = {} if kind.name is MemoryType.WORKING else {"role": item.role}
    moments = (item.created_at,) * 3
    return memory_result(Record(item.id, kind.name, scope, item.content, *moments, deepcopy(item.metadata) | role), 0)


def clear_kind(services: Services, subject: Subject, name: MemoryType) -> Cleared:
    """Send all of a user's memories of a durable kind to the recycle bin; how many went, and how many holds kept."""
    return clear(services.records, subject, name, now=services.now(), whose=services.pseudonym(subject))


def check_not_cold(record: Record) -> None:
    """``ConflictError`` where a record cannot be changed because the rest of it lies in cold storage."""
    if record.pack is not None:
        raise ConflictError(f"memory {record.id} is archived in cold storage; bring it back first: rehydrate()")
