"""Readers: the parts of an export, and how each is read, a page at a time.

The catalogue (``storage/catalog.py``) says which part has the rows of which table, and why some tables are in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.core.errors import HoldfastError, KeyMissingError, ObjectDamagedError, ObjectMissingError, StaleError
from holdfast.core.packs import Packed
from holdfast.core.records import DURABLE, TYPES, MemoryType, Message, Record, Scope, Subject
from holdfast.lifecycle.archive import Archives
from holdfast.ports.conversations import WindowStore
from holdfast.ports.records import RecordReader, SchemaStore
from holdfast.ports.rules import HoldStore, RuleStore
from holdfast.ports.subjects import SubjectReader
from holdfast.privacy.export import rows
from holdfast.privacy.export.rows import Line
from holdfast.storage.catalog import LOCATIONS, TABLES

T = TypeVar("T")
_PAGE: Final = 500
#: A record that moves to another cold object whenever it is read is looked up again, this often.
_TRIES: Final = 16
#: Cold objects that are kept in memory: records that follow one another mostly lie in the same one.
_CACHED_PACKS: Final = 2


@dataclass(frozen=True, slots=True)
class Sources:
    """The stores that hold something of users."""

    reader: SubjectReader
    records: RecordReader
    short_term: WindowStore
    schemas: SchemaStore
    rules: RuleStore
    holds: HoldStore
    archives: Archives
    working: Callable[[Subject], Sequence[tuple[Scope, Sequence[Message]]]]
    """The working memory of this process, by subject."""


class File(NamedTuple):
    """A file of an export: ``.jsonl`` has a line for each thing, ``.json`` a list of them."""

    name: str
    lines: Iterator[Line]


@dataclass(frozen=True)
class Person:
    """A user to export."""

    sources: Sources
    tenant: str
    user_id: str
    collections: set[str] = field(default_factory=set)
    """The collections of the user's documents, noted as these are read."""
    named_items: set[str] = field(default_factory=set)
    """The user's memories, conversations and messages that rules or holds name, noted as they are read."""
    _packs: dict[int, dict[str, Packed] | None] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        """The user as the stores know them."""
        return Subject(self.tenant, self.user_id)

    @cached_property
    def sessions(self) -> frozenset[tuple[str, str | None]]:
        """The agents and sessions of the user's conversations."""
        reader = self.sources.reader
        found = _paged(lambda after: reader.sessions(self.subject, after=after, limit=_PAGE), 0)
        return frozenset((session.agent_id, session.session_id) for session in found)

    @cached_property
    def own_sessions(self) -> frozenset[str]:
        """The sessions that rules and holds name and that no other user has. Erasing removes those rules and holds."""
        rules = {rule.session_id for rule in self.sources.rules.rules(self.tenant) if rule.user_id is None}
        holds = {hold.session_id for hold in self.sources.holds.list(self.tenant, released=True) if not hold.user_id}
        return self.sources.reader.own_sessions(self.subject, sorted({name for name in rules | holds if name}))

    @cached_property
    def _named(self) -> frozenset[str]:
        """The ids that rules and holds name, of any user."""
        rules = {rule.memory_id for rule in self.sources.rules.rules(self.tenant)}
        holds = {hold.memory_id for hold in self.sources.holds.list(self.tenant, released=True)}
        return frozenset(item for item in rules | holds if item is not None)

    def note(self, item_id: str) -> None:
        """Note that something of the user was read."""
        if item_id in self._named:
            self.named_items.add(item_id)

    def pack(self, number: int) -> dict[str, Packed] | None:
        """What lies in a cold object, by id; ``None`` if it is not there any more."""
        if number not in self._packs:
            while len(self._packs) >= _CACHED_PACKS:
                self._packs.pop(next(iter(self._packs)))
            self._packs[number] = self.sources.archives.contents(number)
        return self._packs[number]


def _paged(read: Callable[[Any], tuple[list[T], Any]], after: Any) -> Iterator[T]:
    while True:
        found, after = read(after)
        if not found:
            return
        yield from found


# --- memories -----------------------------------------------------------------------------------------------------


def read_memories(person: Person, name: MemoryType) -> Iterator[Line]:
    """Every record of a kind, whole, in whatever state it is."""
    reader, kind = person.sources.reader, TYPES[name]
    for record in _paged(lambda after: reader.records(person.subject, kind, after=after, limit=_PAGE), 0):
        whole, note = _whole(person, record)
        if whole is None:
            continue  # deleted for good meanwhile
        person.note(whole.id)
        collection = whole.metadata.get("collection")
        if name is MemoryType.STRUCTURED and isinstance(collection, str):
            person.collections.add(collection)
        yield rows.describe_memory(whole, note)


def _whole(person: Person, record: Record) -> tuple[Record | None, str | None]:
    """A record with what lies of it in cold storage, or with a note of why that is lost.

    A store that does not answer is an error: it has lost nothing. A record that was restored, or moved to another
    cold object, since it was read is read again.
    """
    for _ in range(_TRIES):
        if record.pack is None:
            return record, None
        problem: HoldfastError | str = "it does not lie where it should in cold storage"
        try:
            packed = (person.pack(record.pack) or {}).get(record.id)
        except (KeyMissingError, ObjectMissingError, ObjectDamagedError) as error:
            packed, problem = None, error
        if packed is not None:
            document = packed.document
            whole = {name: document[name] for name in ("content", "body", "metadata")}
            return replace(record, **whole), None
        again = person.sources.records.get(person.subject, record.id)
        if again is None or again.pack == record.pack:
            return again, f"only this is left of it; the rest cannot be read: {problem}"
        record = again
    raise StaleError(f"memory {record.id} keeps moving in cold storage; try again when the sweep is done")


def read_working(person: Person) -> Iterator[Line]:
    """The notes that this process has in memory."""
    for scope, items in person.sources.working(person.subject):
        yield from (rows.describe_working(scope, item) for item in items)


def read_short_term(person: Person) -> Iterator[Line]:
    """Messages that expire."""
    found = person.sources.short_term.windows(person.tenant, person.user_id, known=person.sessions)
    for window in found:
        yield from (rows.describe_short_term(window, message) for message in window.messages)


# --- conversations ------------------------------------------------------------------------------------------------


def read_conversations(person: Person) -> Iterator[File]:
    """A file for each conversation."""
    reader = person.sources.reader
    found = _paged(lambda after: reader.sessions(person.subject, after=after, limit=_PAGE), 0)
    for number, session in enumerate(found, 1):
        yield File(f"conversations/{number:06}.jsonl", _conversation(person, rows.describe("conversation", session)))


def _conversation(person: Person, head: Line) -> Iterator[Line]:
    """The conversation itself, then its messages."""
    reader, item_id = person.sources.reader, head["conversation_id"]
    person.note(item_id)
    yield head
    for kept in _paged(lambda after: reader.messages(person.subject, item_id, after=after, limit=_PAGE), 0):
        person.note(kept.message.id)
        yield rows.describe("message", kept)


# --- what is known of them ----------------------------------------------------------------------------------------


def read_facts(person: Person) -> Iterator[Line]:
    """Facts of the user's entities, current and ended."""
    after = ""
    while True:
        found, after = person.sources.reader.facts(person.subject, after=after, limit=_PAGE)
        if not found:
            return
        ids = sorted({end for fact in found for end in (fact.source, fact.target) if end is not None})
        entries = person.sources.records.entries(person.subject, ids)
        names = {entity: str(entry.record.metadata.get("name")) for entity, entry in entries.items()}
        yield from (rows.describe_fact(fact, names) for fact in found)


def read_collections(person: Person) -> Iterator[Line]:
    """The collections of the documents that have been read, with their schemas."""
    for name in sorted(person.collections):
        yield rows.describe_collection(name, person.sources.schemas.get(person.tenant, name))


def read_quotas(person: Person) -> Iterator[Line]:
    """Limits that were set for the user."""
    yield from (rows.describe("quota", limit) for limit in person.sources.reader.quotas(person.tenant, person.user_id))


def read_rules(person: Person) -> Iterator[Line]:
    """Rules that name the user, a session of the user alone, or a memory of the user that was read."""
    for rule in person.sources.rules.rules(person.tenant):
        theirs = rule.session_id in person.own_sessions or rule.memory_id in person.named_items
        if rule.user_id == person.user_id or (rule.user_id is None and theirs):
            yield rows.describe_rule(rule)


def read_holds(person: Person) -> Iterator[Line]:
    """Holds, also released ones, on the user, on a session of the user alone, or on something of the user that was
    read.
    """
    for hold in person.sources.holds.list(person.tenant, released=True):
        theirs = hold.session_id in person.own_sessions or hold.memory_id in person.named_items
        if hold.user_id == person.user_id or (hold.user_id is None and theirs):
            yield rows.describe_hold(hold)


def read_audit(person: Person) -> Iterator[Line]:
    """The user's audit chain."""
    reader = person.sources.reader
    found = _paged(lambda after: reader.audit(person.subject, after=after, limit=_PAGE), 0)
    yield from (rows.describe("audit", entry) for entry in found)


# --- the parts of an export ---------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of an export."""

    name: str
    title: str
    """As a heading for people."""
    files: Callable[[Person], Iterator[File]]
    is_memory: bool = False
    """Whether it is a kind of memory."""


def _in_one_file(name: str, read: Callable[[Person], Iterator[Line]], person: Person) -> Iterator[File]:
    """All of a part in one file."""
    yield File(name, read(person))


def _part(name: str, title: str, file: str, read: Callable[[Person], Iterator[Line]]) -> Part:
    return Part(name, title, partial(_in_one_file, file, read), is_memory=file.startswith("memories/"))


_KINDS: Final = tuple(
    _part(
        kind.value,
        f"{kind.value.replace('_', '-').capitalize()} memory",
        f"memories/{kind.value}.jsonl",
        partial(read_memories, name=kind),
    )
    for kind in DURABLE
)

#: Every part, in the order in which they are read: collections come after the documents that are in them, rules and
#: holds after the memories that they may be on.
PARTS: Final = (
    *_KINDS,
    _part("working", "Working memory", "memories/working.jsonl", read_working),
    _part("short_term", "Short-term memory", "short_term.jsonl", read_short_term)._replace(is_memory=True),
    Part("conversations", "Conversations", read_conversations),
    _part("facts", "Facts", "facts.jsonl", read_facts),
    _part("collections", "Collections of documents", "collections.json", read_collections),
    _part("quotas", "Quotas", "quotas.json", read_quotas),
    _part("rules", "Retention rules", "rules.json", read_rules),
    _part("holds", "Holds", "holds.json", read_holds),
    _part("audit", "What was done with this data", "audit.jsonl", read_audit),
)

#: What holds something of a user and is in no part of an export, and why.
LEFT_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{table.name: table.left_out_because for table in TABLES if table.left_out_because},
        **{one.what: one.left_out_because for one in LOCATIONS if one.left_out_because},
        "vectors and terms": "made from the texts of exported memories, for search: numbers",
        "working memory of other processes": "each process has its own, in memory, until its task ends",
    }
)
