"""Readers: the parts of an export, and how each is read, a page at a time.

The catalogue (``storage/catalog.py``) says which part has the rows of which table, and why some tables are in none.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import resources
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.core.decisions import Hold
from holdfast.core.errors import HoldfastError, KeyMissingError, ObjectDamagedError, ObjectMissingError, StaleError
from holdfast.core.packs import Packed
from holdfast.core.records import DURABLE, TYPES, MemoryType, Message, Record, Scope, State, Subject
from holdfast.core.rules import Rule, terms_to_dict
from holdfast.core.values import iso
from holdfast.lifecycle.archive import Archives
from holdfast.lifecycle.holds import hold_to_dict
from holdfast.lifecycle.previews import rule_to_dict
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.ports.conversations import Session, WindowStore
from holdfast.ports.records import RecordReader, SchemaStore
from holdfast.ports.rules import HoldStore, RuleStore, VersionStore
from holdfast.ports.subjects import SubjectReader
from holdfast.storage.catalog import LOCATIONS, TABLES

Line = dict[str, Any]
#: How a value becomes JSON, where it is not JSON already.
_CONVERT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "when": iso,
    "when?": lambda moment: None if moment is None else iso(moment),
    "texts": list,
    "state": lambda state: state.value,
    "durable": lambda kind: kind.value,
    "kind": lambda kind: kind.value,
}


class _Field(NamedTuple):
    name: str
    type: str
    read: Callable[[Any], Any]
    convert: Callable[[Any], Any] | None


@cache
def _form() -> dict[str, Any]:
    """What ``lines.toml`` says."""
    return tomllib.loads(resources.files(__package__).joinpath("lines.toml").read_text(encoding="utf-8"))


@cache
def _fields(kind: str) -> list[_Field]:
    """The fields of a kind of line."""
    fields = ((name, *said.partition(" ")) for name, said in _form()["lines"][kind].items())
    return [_Field(name, sort, attrgetter(of or name), _CONVERT.get(sort)) for name, sort, _, of in fields]


def describe(kind: str, thing: object = None, **given: Any) -> Line:
    """The line of a thing. What is ``given`` is taken as it is; the other fields are read from the thing."""
    line: Line = {"type": kind}
    for name, _, read, convert in _fields(kind):
        if name in given:
            line[name] = given[name]
        else:
            line[name] = read(thing) if convert is None else convert(read(thing))
    return line


def line_schema() -> dict[str, Any]:
    """A JSON Schema for the lines of an export. All fields are always there; what does not apply is ``null``."""
    form = _form()
    types = {
        **form["types"],
        "state": {"enum": [state.value for state in State if state is not State.DELETED]},
        "durable": {"enum": [kind.value for kind in DURABLE]},
        "kind": {"enum": [kind.value for kind in TYPES]},
    }
    schemas = {}
    for kind in form["lines"]:
        words = form["descriptions"].get(kind, {})
        fields = {
            one.name: types[one.type] | ({"description": words[one.name]} if one.name in words else {})
            for one in _fields(kind)
        }
        schemas[kind] = {
            "type": "object",
            "properties": {"type": {"const": kind}, **fields},
            "required": ["type", *fields],
            "additionalProperties": False,
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of an export",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in schemas],
        "$defs": schemas,
    }


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
    versions: VersionStore
    short_term: WindowStore
    schemas: SchemaStore
    rules: RuleStore
    holds: HoldStore
    archives: Archives
    working: Callable[[Subject], Sequence[tuple[Scope, Sequence[Message]]]]
    """The working memory of this process, by subject."""
    parts: Callable[[str], SessionParts]
    """What belongs to a tenant's sessions and lies elsewhere."""


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

    def sessions(self) -> Iterator[Session]:
        """The user's conversations."""
        reader = self.sources.reader
        return _read_pages(lambda after: reader.sessions(self.subject, after=after, limit=_PAGE), 0)

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

    def is_named_by(self, one: Rule | Hold) -> bool:
        """Whether a rule or a hold is on the user, on a session of the user alone, or on something that was read."""
        theirs = one.session_id in self.own_sessions or one.memory_id in self.named_items
        return one.user_id == self.user_id or (one.user_id is None and theirs)

    def note(self, item_id: str) -> None:
        """Note that something of the user was read."""
        if item_id in self._named:
            self.named_items.add(item_id)

    def pack(self, number: int) -> dict[str, Packed] | None:
        """What lies in a cold object, by id; ``None`` if it is not there any more."""
        if number not in self._packs:
            while len(self._packs) >= _CACHED_PACKS:
                self._packs.pop(next(iter(self._packs)))
            self._packs[number] = self.sources.archives.contents(self.subject, number)
        return self._packs[number]


def _read_pages(read: Callable[[Any], tuple[list[T], Any]], after: Any) -> Iterator[T]:
    while True:
        found, after = read(after)
        if not found:
            return
        yield from found


# --- memories -----------------------------------------------------------------------------------------------------


def read_memories(person: Person, name: MemoryType) -> Iterator[Line]:
    """Every record of a kind, whole, in whatever state it is."""
    reader, kind = person.sources.reader, TYPES[name]
    for record in _read_pages(lambda after: reader.records(person.subject, kind, after=after, limit=_PAGE), 0):
        whole, note = _whole(person, record)
        if whole is None:
            continue  # deleted for good meanwhile
        person.note(whole.id)
        collection = whole.metadata.get("collection")
        if name is MemoryType.STRUCTURED and isinstance(collection, str):
            person.collections.add(collection)
        yield describe("memory", whole, note=note, versions=_ended(person, whole))


def _ended(person: Person, record: Record) -> list[Line]:
    """What a record said before, as far as it is there."""
    ended = person.sources.versions.ended(person.subject, record.id) if record.revision > 1 else ()
    return [describe("version", one) for one in ended]


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
        owner = {"agent_id": scope.agent_id, "session_id": scope.session_id}
        yield from (describe("working", item, memory_type="working", **owner) for item in items)


def read_short_term(person: Person) -> Iterator[Line]:
    """Messages that expire."""
    known = frozenset((session.agent_id, session.session_id) for session in person.sessions())
    for window in person.sources.short_term.windows(person.tenant, person.user_id, known=known):
        note = "the store keeps only a digest of the agent and the session" if window.agent_id is None else None
        owner = {"agent_id": window.agent_id, "session_id": window.session_id}
        about = {**owner, "expires_at": iso(window.expires_at), "note": note}
        for message in window.messages:
            yield describe("short_term", message, memory_type="short_term", **about)


# --- conversations ------------------------------------------------------------------------------------------------


def read_conversations(person: Person) -> Iterator[File]:
    """A file for each conversation."""
    for number, session in enumerate(person.sessions(), 1):
        yield File(f"conversations/{number:06}.jsonl", _conversation(person, describe("conversation", session)))


def _conversation(person: Person, head: Line) -> Iterator[Line]:
    """The conversation itself, then its messages."""
    reader, item_id = person.sources.reader, head["conversation_id"]
    person.note(item_id)
    yield head
    for kept in _read_pages(lambda after: reader.messages(person.subject, item_id, after=after, limit=_PAGE), 0):
        person.note(kept.message.id)
        yield describe("message", kept)


def read_threads(person: Person) -> Iterator[File]:
    """A file for each session of which something lies elsewhere: the session, then its rows there."""
    found = person.sources.parts(person.tenant).export(person.user_id)
    for number, (part, session, rows) in enumerate(found, 1):
        lines = (describe("thread_row", values=dict(row)) for row in rows)
        yield File(f"threads/{number:06}.jsonl", chain([describe("thread", session, part=part)], lines))


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
        for fact in found:
            target = None if fact.target is None else names.get(fact.target)
            yield describe("fact", fact, entity=names.get(fact.source), target=target)


def read_collections(person: Person) -> Iterator[Line]:
    """The collections of the documents that have been read, with their schemas."""
    schemas = person.sources.schemas.find(person.tenant, sorted(person.collections))
    for name in sorted(person.collections):
        schema = schemas.get(name)
        yield describe("collection", collection=name, schema=None if schema is None else json.loads(schema))


def read_quotas(person: Person) -> Iterator[Line]:
    """Limits that were set for the user."""
    yield from (describe("quota", limit) for limit in person.sources.reader.quotas(person.tenant, person.user_id))


def read_rules(person: Person) -> Iterator[Line]:
    """Rules on the user."""
    absent = {field.name: None for field in _fields("rule")}
    for rule in filter(person.is_named_by, person.sources.rules.rules(person.tenant)):
        pending = None if rule.pending is None else terms_to_dict(rule.pending)
        yield describe("rule", **{**absent, **rule_to_dict(rule), "pending": pending})


def read_holds(person: Person) -> Iterator[Line]:
    """Holds on the user, also released ones."""
    absent = {field.name: None for field in _fields("hold")}
    for hold in filter(person.is_named_by, person.sources.holds.list(person.tenant, released=True)):
        yield describe("hold", **{**absent, **hold_to_dict(hold)})


def read_audit(person: Person) -> Iterator[Line]:
    """The user's audit chain."""
    reader = person.sources.reader
    found = _read_pages(lambda after: reader.audit(person.subject, after=after, limit=_PAGE), 0)
    yield from (describe("audit", entry) for entry in found)


# --- the parts of an export ---------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of an export."""

    name: str
    title: str
    """As a heading for people."""
    read: Callable[[Person], Iterator[Any]]
    """Reads the lines of its file; or, where it has no name of a file, the files."""
    file: str = ""

    def files(self, person: Person) -> Iterator[File]:
        """Its files."""
        return iter([File(self.file, self.read(person))]) if self.file else self.read(person)


#: Every part, in the order in which they are read: collections come after the documents that are in them, rules and
#: holds after the memories that they may be on.
PARTS: Final = (
    *(
        Part(
            kind.value,
            f"{kind.value.replace('_', '-').capitalize()} memory",
            partial(read_memories, name=kind),
            f"memories/{kind.value}.jsonl",
        )
        for kind in DURABLE
    ),
    Part("working", "Working memory", read_working, "memories/working.jsonl"),
    Part("short_term", "Short-term memory", read_short_term, "short_term.jsonl"),
    Part("conversations", "Conversations", read_conversations),
    Part("threads", "What belongs to sessions elsewhere", read_threads),
    Part("facts", "Facts", read_facts, "facts.jsonl"),
    Part("collections", "Collections of documents", read_collections, "collections.json"),
    Part("quotas", "Quotas", read_quotas, "quotas.json"),
    Part("rules", "Retention rules", read_rules, "rules.json"),
    Part("holds", "Holds", read_holds, "holds.json"),
    Part("audit", "What was done with this data", read_audit, "audit.jsonl"),
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
