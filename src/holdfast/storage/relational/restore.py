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
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import find_hold
from holdfast.core.errors import ConflictError, StaleError, StoreFullError
from holdfast.core.records import BIN, HISTORY, LIVE, Cause, Scope, State, Subject
from holdfast.core.rules import Labels
from holdfast.core.values import to_json
from holdfast.ports.backups import ConversationRows, ErasedError, Merged, Origin, Owner, PackRow, StrangerError, Values
from holdfast.ports.objects import ObjectStore
from holdfast.ports.registry import Registered
from holdfast.storage.catalog import MESSAGE_BITS
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.moves import CurrentRow, MoveBatch, held_of, model_code
from holdfast.storage.relational.rows import KINDS, RecordRow, note_derivations, read_alias
from holdfast.storage.relational.rules import Profiles
from holdfast.storage.relational.sessions import SessionRow, find_by_id, message_keys

_PLACES: Final = (1 << MESSAGE_BITS) - 1
#: No session has this number: it steps aside before it has one.
_ASIDE: Final = -1
_SESSION_AS_IT_WAS: Final = (
    *("version", "created_at", "updated_at", "aged_from", "moved_at", "purge_at", "id", "agent_id", "session_id"),
    *("state", "reason", "bundle", "summary"),
)


class PlacedMessage(NamedTuple):
    """A message that is there, and its key."""

    id: str
    key: int


class SessionBatch:
    """Some conversations of one subject."""

    def __init__(self, tx: Transaction, subject: Subject, number: int, profiles: Profiles, *, now: int) -> None:
        self._tx = tx
        self._number = number
        self._profiles = ProfilesOf(tx, profiles, subject)
        self._now = now
        self._agents = Agents(tx, subject, now)
        self.counts: Counter[str] = Counter()

    def add(self, conversation: ConversationRows) -> None:
        """Add a conversation, or what is missing of it. One that is being deleted is left to that."""
        session, messages = conversation
        there = find_by_id(self._tx, self._number, session["id"])
        if session["state"] == State.DELETING or (there is not None and there.state == State.DELETING):
            return
        if there is None:
            number = self._make(session, messages)
            self._write(message_keys(self._number, number), messages)
            self.counts["sessions"] += 1
        else:
            keys = message_keys(self._number, there.no)
            known = dict(self._tx.all(PlacedMessage, "restore.messages_there", keys))
            messages = [message for message in messages if message["id"] not in known]
            if not messages:
                return
            self._write(keys, messages, frozenset(known.values()))
            live, size = _counted(messages)
            self._tx.run("sessions.count_messages", (self._number, live, size, None, there.no))
        self.counts["messages"] += len(messages)

    def _make(self, session: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> int:
        """Make a session that is missing; its number."""
        session = self._as_it_can_be(session)
        profile = self._profiles.find(HISTORY, session)
        steps_aside = bool(session["aside"]) and session["state"] == State.ACTIVE
        own = (self._number, profile, *_counted(messages), _ASIDE if steps_aside else 0)
        number = self._tx.number("restore.insert_session", (*own, *(session[column] for column in _SESSION_AS_IT_WAS)))
        if steps_aside:
            self._tx.run("sessions.give_up_name", (self._number, number))
        return number

    def _as_it_can_be(self, session: Mapping[str, Any]) -> Mapping[str, Any]:
        """A session as it was; but where its agent is, and in the recycle bin if another goes by its name."""
        if session["state"] != State.ACTIVE:
            return extend_bin_time(session, self._now)
        if self._agents.has_gone(session):
            return self._agents.followed(session)
        who = (self._number, session["agent_id"], session["session_id"])
        if session["aside"] or self._tx.find(SessionRow, "sessions.session", who) is None:
            return session
        return {
            **session,
            "state": State.RECYCLED.value,
            "moved_at": self._now,
            "purge_at": self._now + BIN,
            "reason": "it came back from a backup, and another session goes by its name",
        }

    def _write(
        self, keys: tuple[int, int, int], messages: Sequence[Mapping[str, Any]], taken: frozenset[int] = frozenset()
    ) -> None:
        """Write messages, each at its old place if that is free, else at the end."""
        subject, first, last = keys
        rows = list(_placed(messages, first, last, taken))
        self._tx.run_many("restore.insert_message", [(subject, *row) for row in rows])


def _placed(
    messages: Sequence[Mapping[str, Any]], first: int, last: int, taken: frozenset[int]
) -> Iterator[tuple[Any, ...]]:
    old = [first | message["key"] & _PLACES for message in messages]
    after = max((*taken, *old), default=first - 1) + 1
    for key, message in zip(old, messages, strict=True):
        place = key
        if key in taken:
            place, after = after, after + 1
        if place > last:
            raise StoreFullError("a session has as many messages as it can hold; not all of it can be restored")
        content = from_canonical(message["content"])
        columns = ("created_at", "purge_at", "id", "role", "metadata")
        yield (place, *(message[column] for column in columns), content)


def _counted(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many messages are not in the recycle bin, and how many bytes their content takes as it is stored."""
    sizes = [len(message["content"]) for message in messages if message["purge_at"] is None]
    plain = sum(message["purge_at"] is None and message["content"][:1] == b"\0" for message in messages)
    return len(sizes), sum(sizes) - plain


#: What is written of a record as it was, in the order of the statement, after what it has of its own here.
_AS_IT_WAS: Final = (
    *("aged_from", "created_at", "updated_at", "dated_at", "moved_at", "purge_at", "size", "id", "state", "previous"),
    *("agent_id", "session_id", "name", "reason", "bundle", "metadata", "terms", "vectors"),
)


#: What a profile is found by: kind, scope, the record if a rule is for it alone, and its labels.
_Whose = tuple[str, Scope, str | None, Labels | None]


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


class Removed(NamedTuple):
    """An agent that is in the recycle bin."""

    purge_at: int
    bundle: str | None


class RecordBatch:
    """Some records of one subject: ``take`` chooses, ``find_packs`` looks for where they lie, ``save`` writes."""

    def __init__(self, tx: Transaction, subject: Subject, number: int, profiles: Profiles, *, now: int) -> None:
        self._tx = tx
        self._subject = subject
        self._number = number
        self._profiles = profiles
        self._now = now
        self._batch = MoveBatch(tx, subject, number, now=now)
        self._agents = Agents(tx, subject, now)
        self._rows: list[Mapping[str, Any]] = []
        self._there: dict[str, CurrentRow] = {}
        self._packs: dict[int, int] = {}
        self._counts: Counter[str] = Counter()

    def take(self, rows: Sequence[Mapping[str, Any]], *, overwrite: bool) -> None:
        """Choose the records that are to come back."""
        whole = [row for row in rows if row["state"] != State.DELETING]
        asked = (to_json([row["id"] for row in whole]), self._number, True)
        self._there = {row.id: row for row in self._tx.all(CurrentRow, "records.current_all", asked)}
        missing = [row for row in whole if self._gives_way(row["id"], overwrite=overwrite)]
        self._rows = self._with_free_names([self._as_it_can_be(row) for row in missing])
        chosen = {row["id"] for row in self._rows}
        left = [self._there.get(row["id"]) for row in whole if row["id"] not in chosen]
        self._counts["binned"] = sum(row is not None and row.state == State.RECYCLED for row in left)
        self._counts["kept"] = len(left) - self._counts["binned"]

    def _gives_way(self, record_id: str, *, overwrite: bool) -> bool:
        """Whether what is there of a record, if anything, may become what it was. What is being deleted is on its way
        out, hold or not.
        """
        row = self._there.get(record_id)
        if row is None or row.state == State.DELETING:
            return True
        thing = held_of(self._subject, row.agent_id, row.session_id, record_id, row.metadata)
        return overwrite and find_hold(thing, self._batch.holds) is None

    def _as_it_can_be(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A record as it was; but what is an agent's own is where the agent is, and nothing comes into the recycle bin
        to be gone from there at once.
        """
        kind = KINDS[row["kind"]]
        if row["state"] in LIVE and "agent" in kind.scope:
            return self._agents.followed(row) | {"previous": row["state"]} if self._agents.has_gone(row) else row
        return extend_bin_time(row, self._now)

    def _with_free_names(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Without those whose name another has by now, who does not give it up with this very batch."""
        named = {(row["kind"], row["name"]): row["id"] for row in rows if row["name"] and row["state"] in LIVE}
        coming = {row["id"] for row in rows}
        holders = self._holders(named)
        others = [place for place, holder in holders.items() if holder not in coming]
        for code, name in others:
            self._batch.free_name(KINDS[code], name)
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
                self._tx.run("packs.mark_stale", (live.number,))
            elif pack.name not in objects or (is_leaving and objects[pack.name] is not None):
                wanted.append(pack)
            elif live is not None and objects[pack.name] is not None:
                self._packs[old] = live.number
                self._tx.run("packs.set_state", ("stale", live.number))  # the next sweep settles it
                put.append(pack.name)
        if wanted:
            raise WantedError(wanted)
        lost = [row for row in self._rows if row["pack"] is not None and row["pack"] not in self._packs]
        self._counts["lost"] = len(lost)
        self._rows = [row for row in self._rows if row["pack"] is None or row["pack"] in self._packs]
        return put

    def save(self, models: Mapping[int, str]) -> tuple[Counter[str], frozenset[str], frozenset[str]]:
        """Write them; how many, which entities are new, and which are as they were before."""
        replaced = [self._there[row["id"]] for row in self._rows if row["id"] in self._there]
        self._remove(replaced)
        codes: dict[int | None, int | None] = {None: None}
        keyed: list[tuple[int, Sequence[str]]] = []
        stored: list[Sequence[Any]] = []
        profiles = ProfilesOf(self._tx, self._profiles, self._subject)
        for row in self._rows:
            kind = KINDS[row["kind"]]
            counter = self._batch.counter(kind)
            if row["model"] not in codes:
                codes[row["model"]] = model_code(self._tx, models.get(row["model"]))
            model = codes[row["model"]]
            before = self._there.get(row["id"])
            version = row["version"] if before is None else max(row["version"], before.version + 1)
            key = counter.new_key()
            pack = None if row["pack"] is None else self._packs[row["pack"]]
            own = (
                key,
                self._number,
                kind.code,
                profiles.find(kind.name.value, row, row["metadata"]),
                pack,
                model,
                version,
            )
            kept = [row[column] for column in _AS_IT_WAS]
            texts = (from_canonical(row["content"]), from_canonical(row["body"]), row["source"], row["derived_from"])
            stored.append((*own, *kept, *texts))
            keyed.append((key, json.loads(row["derived_from"] or "[]")))
            if row["state"] in LIVE:
                counter.count(1, row["size"])
                self._counts["expired"] += profiles.is_over(kind.name.value, row, row["metadata"], self._now)
        self._tx.run_many("restore.insert_record", stored)
        note_derivations(self._tx, self._number, keyed)
        self._batch.save()
        self._counts["memories"] = len(self._rows) - self._counts["expired"]
        entities = {row["id"] for row in self._rows if KINDS[row["kind"]].has_facts}
        return self._counts, frozenset(entities - self._there.keys()), frozenset(entities & self._there.keys())

    def _remove(self, rows: Sequence[CurrentRow]) -> None:
        """Remove what is there of records that come back, in this very transaction; indexes are told."""
        for row in rows:
            counter = self._batch.counter(KINDS[row.kind])
            counter.note_change(row.id)
            if row.state in LIVE:
                counter.count(-1, -row.size)
            if row.pack is not None:
                self._tx.run("packs.mark_stale", (row.pack,))
        if rows:
            self._tx.run("restore.remove_records", (self._number, to_json([row.key for row in rows])))


class Agents:
    """The agents of a subject's tenant, as far as they are in the recycle bin: what is their own is there, too."""

    def __init__(self, tx: Transaction, subject: Subject, now: int) -> None:
        self._tx = tx
        self._tenant = subject.tenant
        self._now = now
        self._known: dict[str, Removed | None] = {}

    def has_gone(self, row: Mapping[str, Any]) -> bool:
        """Whether the agent of a record or a conversation is in the recycle bin."""
        return self._removed(row["agent_id"]) is not None

    def followed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A record or a conversation where its agent is, to come back with it."""
        removed = self._removed(row["agent_id"])
        if removed is None:
            return dict(row)
        return dict(row) | {
            "state": State.RECYCLED.value,
            "moved_at": self._now,
            "reason": f"agent {row['agent_id']} was removed",
            "purge_at": removed.purge_at,
            "bundle": removed.bundle,
        }

    def _removed(self, agent_id: str) -> Removed | None:
        if agent_id not in self._known:
            agent = self._tx.find(Registered, "registry.get", (self._tenant, "agent", agent_id))
            if agent is None or agent.state == State.ACTIVE:
                self._known[agent_id] = None
            else:
                later = max(agent.purge_at or 0, self._now)
                self._known[agent_id] = Removed(later if later > self._now else self._now + BIN, agent.bundle)
        return self._known[agent_id]


class ProfilesOf:
    """The profiles of what comes back, by the rules that are in force; each is looked up once in a batch."""

    def __init__(self, tx: Transaction, profiles: Profiles, subject: Subject) -> None:
        self._tx = tx
        self._profiles = profiles
        self._tenant, self._user_id = subject.tenant, subject.user_id
        self._book = profiles.book(tx, self._tenant)
        self._found: dict[_Whose, int] = {}
        self._ends: dict[_Whose, int | None] = {}

    def find(self, kind: str, row: Mapping[str, Any], metadata: str = "{}") -> int:
        """The number of the profile of a record or a session."""
        whose = self._whose(kind, row, metadata)
        if whose not in self._found:
            self._found[whose] = self._profiles.find(self._tx, *whose, book=self._book)
        return self._found[whose]

    def is_over(self, kind: str, row: Mapping[str, Any], metadata: str, now: int) -> bool:
        """Whether a live record is past its time by those rules: then nobody sees it, and the next sweep takes it."""
        whose = self._whose(kind, row, metadata)
        if whose not in self._ends:
            self._ends[whose] = self._book.life(kind, self._book.selecting(*whose)).delete_after
        ends = self._ends[whose]
        return ends is not None and int(row["aged_from"]) + ends <= now

    def _whose(self, kind: str, row: Mapping[str, Any], metadata: str) -> _Whose:
        scope = Scope(self._tenant, self._user_id, row["agent_id"], row["session_id"] or None)
        singled = row["id"] if row["id"] in self._book.singled else None
        return kind, scope, singled, self._book.labels(metadata)


def extend_bin_time(row: Mapping[str, Any], now: int) -> Mapping[str, Any]:
    """What was in the recycle bin has its time there again, if that is over: it would be gone at once otherwise."""
    over = row["state"] == State.RECYCLED and (row["purge_at"] or 0) <= now
    return {**row, "purge_at": now + BIN} if over else row


def from_canonical(value: bytes | None) -> str | bytes | None:
    """A text that may be compressed, as statements take it."""
    return value[1:].decode() if value is not None and value[:1] == b"\0" else value


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
                with self._write(owner) as (tx, number):
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
        with self._write(owner) as (tx, number):
            for pack in fetched:
                row = tx.find(PackState, "restore.pack", (number, pack.name))
                if row is not None and row.state == "leaving":
                    raise ConflictError(
                        f"the cold object {pack.name} is just being removed; try again after the next sweep"
                    )
                if row is None:
                    tx.number("packs.open", (number, pack.name, pack.records, pack.size, pack.digest, pack.made_at))

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
    def _write(self, owner: Owner) -> Iterator[tuple[Transaction, int]]:
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
