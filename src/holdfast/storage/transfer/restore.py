"""Bringing rows back into a store that is in use: what a backup holds of a subject, in batches, each whole or not.

A batch has the subject to itself, and asks within whether its owner was erased: an erasure locks the tenant, so that it
comes before a batch, which then writes nothing, or after it, and finds what was written. What is there is told
by its id; so a restore that was cut short is finished by doing it again. Quotas are not asked, and nothing is counted
as a move: it was all there before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import removal_reason
from holdfast.core.errors import ConflictError, StaleError, StoreFullError
from holdfast.core.records import BIN, COUNT_BITS, HISTORY, LAST_KIND, LIVE, MESSAGE_BITS, Cause, State, Subject
from holdfast.core.rules import Labels
from holdfast.core.values import is_id, to_json
from holdfast.ports.backups import ConversationRows, ErasedError, Merged, Origin, Owner, PackRow, StrangerError, Values
from holdfast.ports.objects import ObjectStore
from holdfast.ports.records import KeptText
from holdfast.ports.registry import Registered
from holdfast.storage.catalog import table_of
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Transaction, Transactions
from holdfast.storage.relational.moves import MoveBatch, model_code
from holdfast.storage.relational.rows import (
    KEPT_OUT_REASON,
    KINDS,
    CurrentRow,
    RecordRow,
    ScopeCounter,
    find_kept_out,
    note_derivations,
    read_alias,
)
from holdfast.storage.relational.rules import Profiles, scope_of
from holdfast.storage.relational.sessions import find_active, find_by_id, message_keys

#: A cold object that a sweep lets go of again, before its records are there, is noted anew so many times.
_TRIES: Final = 5
_PLACES: Final = (1 << MESSAGE_BITS) - 1
#: No session has this number: it gives up its name before it has one.
_NAMELESS: Final = -1


class PlacedMessage(NamedTuple):
    """A message that is there, and its key."""

    id: str
    key: int


class PackState(NamedTuple):
    """A cold object as it is here, and whether records lie in it."""

    number: int
    state: str
    is_filled: bool


class HolderRow(NamedTuple):
    """A record that goes by a name."""

    kind: int
    name: str
    id: str


class WantedError(Exception):
    """Cold objects have to be noted and fetched before records can lie in them."""

    def __init__(self, packs: Sequence[PackRow]) -> None:
        self.packs = packs


class _RestoreBatch:
    """Something of one subject that comes back, by the rules that are in force."""

    def __init__(self, tx: Transaction, subject: Subject, number: int, profiles: Profiles, *, now: int) -> None:
        self._tx = tx
        self._subject = subject
        self._number = number
        self._now = now
        self._book = profiles.book(tx, subject.tenant)
        self._find_profile = cache(partial(profiles.find, tx, book=self._book))
        self._find_end = cache(
            lambda ttl, *about: self._book.life(about[0], self._book.selecting(*about), ttl).delete_after
        )
        self._follow_agent = cache(partial(_follow_agent, tx, subject.tenant, now))
        self.counts: Counter[str] = Counter()

    def _about(self, kind: str, row: Values, metadata: str = "{}") -> tuple[str, Any, str | None, Labels | None]:
        """What a profile is found by: kind, scope, the record if a rule is for it alone, and its labels."""
        scope = scope_of(self._subject, row["agent_id"], row["session_id"] or None)
        return kind, scope, row["id"] if row["id"] in self._book.singled else None, self._book.labels(metadata)


class SessionBatch(_RestoreBatch):
    """Some conversations of one subject."""

    def add(self, conversation: ConversationRows) -> None:
        """Add a conversation, or what is missing of it. One that is being deleted is left to that."""
        session, messages = conversation
        there = find_by_id(self._tx, self._number, session["id"])
        if session["state"] == State.DELETING or (there is not None and there.state is State.DELETING):
            return
        if there is None:
            self._write(self._make(session, messages), messages)
            self.counts["sessions"] += 1
        else:
            known = dict(
                self._tx.all(PlacedMessage, "restore.messages_there", message_keys(self._number, there.number))
            )
            messages = [message for message in messages if message["id"] not in known]
            if not messages:
                return
            self._write(there.number, messages, frozenset(known.values()))
            counts = _count(messages)
            self._tx.run("sessions.count_messages", (self._number, *counts, None, there.number))
        self.counts["messages"] += len(messages)

    def _make(self, session: Values, messages: Sequence[Values]) -> int:
        """Make a session that is missing; its number."""
        session = self._as_it_can_be(session)
        is_nameless = bool(session["aside"]) and session["state"] == State.ACTIVE
        live, size = _count(messages)
        own = {"subject": self._number, "profile": self._find_profile(*self._about(HISTORY, session))}
        own |= {"messages": live, "size": size, "part_size": 0, "aside": _NAMELESS if is_nameless else 0}
        number = self._tx.number("restore.insert_session", _to_values("sessions", session, own, ("no", "summarized")))
        if is_nameless:
            self._tx.run("sessions.give_up_name", (self._number, number))
        return number

    def _as_it_can_be(self, session: Values) -> Values:
        """A session as it was; but where its agent is, and in the recycle bin if another goes by its name."""
        if session["state"] != State.ACTIVE:
            return _extend_bin_time(session, self._now)
        following = self._follow_agent(session["agent_id"])
        if following is not None:
            return {**session, **following}
        who = (self._number, session["agent_id"], session["session_id"])
        if session["aside"] or find_active(self._tx, *who) is None:
            return session
        reason = "it came back from a backup, and another session goes by its name"
        moved = {"moved_at": self._now, "purge_at": self._now + BIN, "reason": reason}
        return {**session, **moved, "state": State.RECYCLED.value}

    def _write(self, session: int, messages: Sequence[Values], taken: frozenset[int] = frozenset()) -> None:
        """Write messages of a session, each at its old place if that is free, else at the end."""
        subject, first, last = message_keys(self._number, session)
        old = [first | message["key"] & _PLACES for message in messages]
        after = max((*taken, *old), default=first - 1) + 1
        rows = []
        for key, message in zip(old, messages, strict=True):
            place = key
            if key in taken:
                place, after = after, after + 1
            if place > last:
                raise StoreFullError("a session has as many messages as it can hold; not all of it can be restored")
            rows.append(_to_values("history", message, {"subject": subject, "key": place}))
        self._tx.run_many("restore.insert_message", rows)


def _count(messages: Sequence[Values]) -> tuple[int, int]:
    """How many messages are not in the recycle bin, and how many bytes their content takes as it is stored."""
    live = [message["content"] for message in messages if message["purge_at"] is None]
    return len(live), sum(len(content) - (content[:1] == b"\0") for content in live)


class RecordBatch(_RestoreBatch):
    """Some records of one subject: ``take`` chooses, ``find_packs`` looks for where they lie, ``save`` writes."""

    def __init__(self, tx: Transaction, subject: Subject, number: int, profiles: Profiles, *, now: int) -> None:
        super().__init__(tx, subject, number, profiles, now=now)
        self._batch = MoveBatch(tx, subject, number, now=now)
        self._rows: list[Values] = []
        self._there: dict[str, CurrentRow] = {}
        self._packs: dict[int, int] = {}
        self._kept_out: Mapping[int, str] = {}

    def take(self, rows: Sequence[Mapping[str, Any]], *, overwrite: bool) -> None:
        """Choose the records that are to come back."""
        whole = [row for row in rows if row["state"] != State.DELETING]
        self._kept_out = find_kept_out(self._tx, self._number, (row["text_hash"] for row in whole))
        asked = (to_json([row["id"] for row in whole]), self._number, True)
        self._there = {row.id: row for row in self._tx.all(CurrentRow, "records.current_all", asked)}
        missing = [row for row in whole if self._gives_way(row["id"], overwrite=overwrite)]
        self._rows = self._with_free_names([self._as_it_can_be(row) for row in missing])
        chosen = {row["id"] for row in self._rows}
        left = [self._there.get(row["id"]) for row in whole if row["id"] not in chosen]
        self.counts["binned"] = sum(row is not None and row.state == State.RECYCLED for row in left)
        self.counts["kept"] = len(left) - self.counts["binned"]

    def _gives_way(self, record_id: str, *, overwrite: bool) -> bool:
        """Whether what is there of a record, if anything, may become what it was. What is being deleted is on its way
        out, hold or not.
        """
        row = self._there.get(record_id)
        if row is None or row.state == State.DELETING:
            return True
        return overwrite and self._batch.holds.covering(row) is None

    def _as_it_can_be(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A record as it was; but what is an agent's own is where the agent is, and nothing comes into the recycle bin
        to be gone from there at once.
        """
        if row["state"] in LIVE and row["text_hash"] in self._kept_out:
            self.counts["kept_out"] += 1
            moved = {"moved_at": self._now, "purge_at": self._now + BIN, "reason": KEPT_OUT_REASON, "bundle": None}
            return {**row, **moved, "state": State.RECYCLED.value, "previous": row["state"]}
        if row["state"] in LIVE and "agent" in KINDS[row["kind"]].scope:
            following = self._follow_agent(row["agent_id"])
            return {**row, **following, "previous": row["state"]} if following else row
        return _extend_bin_time(row, self._now)

    def _with_free_names(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Without those whose name another has by now, who does not give it up with this very batch."""
        named = {(row["kind"], row["name"]): row["id"] for row in rows if row["name"] and row["state"] in LIVE}
        coming = {row["id"] for row in rows}
        holders = self._holders(named)
        others = [place for place, holder in holders.items() if holder not in coming]
        for code, name in others:
            self._batch.free_names(KINDS[code], [name])
        if others:
            holders = self._holders(named)
        while taken := {
            record_id
            for place, record_id in named.items()
            if record_id in coming and holders.get(place, record_id) not in coming
        }:
            coming -= taken
        return [row for row in rows if row["id"] in coming]

    def _holders(self, named: Mapping[tuple[int, str], str]) -> dict[tuple[int, str], str]:
        if not named:
            return {}
        found = self._tx.all(HolderRow, "restore.holders", (to_json([list(place) for place in named]), self._number))
        return {(row.kind, row.name): row.id for row in found}

    def find_packs(self, packs: Mapping[int, PackRow], objects: Mapping[str, bytes | None]) -> list[str]:
        """Find the cold objects that the records lie in; the names of those that are to be put back.

        ``objects`` has those that were fetched and noted; ``WantedError`` for others that are not there. A record whose
        object is nowhere is left out: there is but a summary of it.
        """
        put: list[str] = []
        wanted: list[PackRow] = []
        for old in sorted({row["pack"] for row in self._rows} - {None}):
            pack = packs.get(old)
            if pack is None:
                continue
            live = self._tx.find(PackState, "restore.pack", (self._number, pack.name))
            is_leaving = live is None or live.state == "leaving"
            if live is not None and not is_leaving and live.is_filled:  # records lie in it, so it is there
                self._packs[old] = live.number
                self._tx.run("packs.mark_stale", (self._number, live.number))
            elif pack.name not in objects or (is_leaving and objects[pack.name] is not None):
                wanted.append(pack)
            elif live is not None and objects[pack.name] is not None:
                self._packs[old] = live.number
                self._tx.run("packs.set_state", (self._number, live.number, "stale"))  # the next sweep settles it
                put.append(pack.name)
        if wanted:
            raise WantedError(wanted)
        lost = [row for row in self._rows if row["pack"] is not None and row["pack"] not in self._packs]
        self.counts["lost"] = len(lost)
        self._rows = [row for row in self._rows if row["pack"] is None or row["pack"] in self._packs]
        return put

    def save(self, models: Mapping[int, str]) -> tuple[frozenset[str], frozenset[str]]:
        """Write them; which entities are new, and which are as they were before."""
        self._remove([self._there[row["id"]] for row in self._rows if row["id"] in self._there])
        find_code = cache(lambda code: model_code(self._tx, models.get(code)))
        keyed: list[tuple[int, Sequence[str]]] = []
        stored: list[Sequence[Any]] = []
        for row in self._rows:
            kind = KINDS[row["kind"]]
            counter = self._batch.counter(kind)
            about = self._about(kind.name.value, row, row["metadata"])
            before = self._there.get(row["id"])
            own = {
                "key": counter.new_key(),
                "subject": self._number,
                "profile": self._find_profile(*about, ttl=row["ttl"]),
                "pack": None if row["pack"] is None else self._packs[row["pack"]],
                "model": None if row["model"] is None else find_code(row["model"]),
                "version": row["version"] if before is None else max(row["version"], before.version + 1),
            }
            stored.append(_to_values("records", row, own))
            keyed.append((own["key"], json.loads(row["derived_from"] or "[]")))
            self._batch.shift(kind, State(row["state"]), 1, row["size"])
            if row["state"] in LIVE:  # past its time nobody sees it, and the next sweep takes it
                counter.count(1, row["size"])
                end = self._find_end(row["ttl"], *about)
                self.counts["expired"] += end is not None and int(row["aged_from"]) + end <= self._now
        self._tx.run_many("restore.insert_record", stored)
        note_derivations(self._tx, self._number, keyed)
        self._batch.save()
        self.counts["memories"] = len(self._rows) - self.counts["expired"] - self.counts["kept_out"]
        entities = {row["id"] for row in self._rows if KINDS[row["kind"]].has_facts}
        return frozenset(entities - self._there.keys()), frozenset(entities & self._there.keys())

    def _remove(self, rows: Sequence[CurrentRow]) -> None:
        """Remove what is there of records that come back, in this very transaction; indexes are told."""
        for row in rows:
            counter = self._batch.counter(KINDS[row.kind])
            counter.note_change(row.id)
            self._batch.shift(KINDS[row.kind], row.state, -1, -row.size)
            if row.state in LIVE:
                counter.count(-1, -row.size)
            if row.pack is not None:
                self._tx.run("packs.mark_stale", (self._number, row.pack))
        if rows:
            self._tx.run("restore.remove_records", (self._number, to_json([row.key for row in rows])))


def _follow_agent(tx: Transaction, tenant: str, now: int, agent_id: str) -> Values | None:
    """What becomes of something live that is an agent's own, if the agent is in the recycle bin: it is there, too."""
    agent = tx.find(Registered, "registry.get", (tenant, "agent", agent_id))
    if agent is None or agent.state is State.ACTIVE:
        return None
    purge_at = agent.purge_at if agent.purge_at is not None and agent.purge_at > now else now + BIN
    moved = {"state": State.RECYCLED.value, "moved_at": now, "reason": removal_reason(agent_id)}
    return {**moved, "purge_at": purge_at, "bundle": agent.bundle}


def _extend_bin_time(row: Values, now: int) -> Values:
    """What was in the recycle bin has its time there again, if that is over: it would be gone at once otherwise."""
    is_over = row["state"] == State.RECYCLED and (row["purge_at"] or 0) <= now
    return {**row, "purge_at": now + BIN} if is_over else row


def _to_values(table: str, row: Values, own: Values, without: Container[str] = ()) -> list[Any]:
    """A canonical row, with what it has of its own here, as statements take it: columns as the catalogue lists them."""
    given = {**row, **own}
    columns = table_of(table).columns.items()
    return [_unpack(given[name]) if kind == "packed" else given[name] for name, kind in columns if name not in without]


def _unpack(value: bytes | None) -> str | bytes | None:
    """A text that may be compressed, as statements take it."""
    return value[1:].decode() if value is not None and value[:1] == b"\0" else value


class SqlMerger:
    """The ``RowMerger`` of the relational engines."""

    def __init__(
        self,
        database: Transactions,
        origin: Origin,
        *,
        is_erased: Callable[[str], bool],
        cold: Callable[[], ObjectStore],
        now: int,
        kept_out: Mapping[str, Sequence[KeptText]],
    ) -> None:
        self._database, self._kept_out = database, kept_out
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
                with self._write(owner) as (tx, number):
                    batch = RecordBatch(tx, owner.subject, number, self._profiles, now=self._now)
                    batch.take(rows, overwrite=overwrite)
                    put = batch.find_packs(packs, objects)
                    for name in put:
                        self._cold().put(name, objects[name] or b"")
                    entities, replaced = batch.save(self._origin.models)
                    batch.counts["objects"] = len(put)
                    self._note(tx, number, batch.counts, rows[0] if alone else None)
                    return Merged(batch.counts, entities, replaced)
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
        with self._write(owner) as (tx, number):
            for pack in fetched:
                row = tx.find(PackState, "restore.pack", (number, pack.name))
                if row is not None and row.state == "leaving":
                    raise ConflictError(
                        f"the cold object {pack.name} is just being removed; try again after the next sweep"
                    )
                if row is None:
                    tx.number("packs.open", (number, pack.name, pack.records, pack.size, pack.digest, pack.made_at))

    def versions(self, owner: Owner, rows: Sequence[Values], ids: Mapping[int, str]) -> None:
        with self._write(owner) as (tx, number):
            find_code = cache(lambda code: None if code is None else model_code(tx, self._origin.models.get(code)))
            own = ({"subject": number, "key": ids[row["key"]], "model": find_code(row["model"])} for row in rows)
            stored = [_to_values("versions", *pair) for pair in zip(rows, own, strict=True)]
            tx.run_many("restore.insert_version", stored)
            changed = sorted({(row["key"] >> COUNT_BITS & LAST_KIND, ids[row["key"]]) for row in rows})
            for code, theirs in groupby(changed, key=itemgetter(0)):  # indexes are told
                counter = ScopeCounter(tx, number, KINDS[code])
                for _, record_id in theirs:
                    counter.note_change(record_id)
                counter.save()

    def conversations(self, owner: Owner, conversations: Sequence[ConversationRows]) -> Merged:
        with self._write(owner) as (tx, number):
            batch = SessionBatch(tx, owner.subject, number, self._profiles, now=self._now)
            for conversation in conversations:
                batch.add(conversation)
            self._note(tx, number, batch.counts)
            return Merged(batch.counts)

    def facts(self, owner: Owner, rows: Sequence[Values], made: Container[str]) -> Merged:
        with self._write(owner) as (tx, number):
            ends = {row[end] for row in rows for end in ("source", "target")} - {None}
            found = tx.all(CurrentRow, "records.current_all", (to_json(sorted(ends)), number, False))
            known = {entity.id for entity in found if entity.state != State.DELETING}
            there = set(tx.all(str, "restore.facts_there", (to_json([row["id"] for row in rows]), number)))
            new = [row for row in rows if row["id"] not in there and row["source"] in known]
            tx.run_many("facts.add", [_to_values("facts", row, {"subject": number}) for row in new])
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
    def _write(self, owner: Owner) -> Iterator[tuple[Transaction, int]]:
        with self._database.write(owner.subject) as tx:
            number = self._number(tx, owner)
            for text in self._kept_out.get(owner.alias, ()):  # also what was kept out after the backup
                tx.run("kept_out.add", (number, *text))
            yield tx, number

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
        said = ("memories", "expired", "sessions", "messages", "facts", "holds")
        brought = {what: counts[what] for what in said if counts[what]}
        if brought:
            detail = {
                "kind": "backup" if one is None else KINDS[one["kind"]].name.value,
                "cause": Cause.RESTORE.value,
                "reason": f"restored from backup {self._origin.backup_id}",
                "backup": self._origin.backup_id,
                **brought,
            }
            append(tx, number, [Event(self._now, Action.RESTORED, None if one is None else one["id"], detail)])


class HoldOnId(NamedTuple):
    """A hold on one thing, without a word of whose that is."""

    id: str
    tenant: str
    memory_id: str


def forget_holds(tx: Transaction) -> None:
    """Remove the holds on memories that are not there."""
    for hold in tx.all(HoldOnId, "restore.holds_on_ids"):
        if is_id(hold.memory_id) and not _is_on_something(tx, hold._asdict()):
            tx.run("subjects.remove_hold", (hold.id,))


def _is_on_something(tx: Transaction, hold: Values) -> bool:
    """Whether what a hold is on is there, if it is on one thing."""
    where = (hold["memory_id"], hold["tenant"])
    elsewhere = ("restore.session_anywhere", "restore.message_anywhere")
    return (
        hold["memory_id"] is None
        or tx.find(RecordRow, "records.find", where) is not None
        or any(tx.all(int, statement, where) for statement in elsewhere)
    )


def _insert_hold(tx: Transaction, row: Values) -> int:
    return tx.run("restore.insert_hold", _to_values("holds", row, {}))
