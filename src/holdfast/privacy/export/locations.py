"""Where data on a person lies: every place, and how it is read. Nothing else knows.

An export reads every place of ``PLACES``; a table that holds something of a person's and is not read has its reason in
``LEFT_OUT``. Erasure reaches all of them: a test holds both against the tables of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.core.types import DURABLE
from holdfast.privacy.export import readers
from holdfast.privacy.export.readers import File, Person
from holdfast.privacy.export.rows import Line


class Place(NamedTuple):
    """Where some of what is held on a person lies."""

    name: str
    title: str
    """As a heading for people."""
    tables: tuple[str, ...]
    """The tables that it is read from."""
    files: Callable[[Person], Iterator[File]]
    is_memory: bool = False
    """Whether it is a kind of memory."""


def _in(name: str, read: Callable[[Person], Iterator[Line]], person: Person) -> Iterator[File]:
    """All of a place in one file."""
    yield File(name, read(person))


def _place(name: str, title: str, file: str, read: Callable[[Person], Iterator[Line]], *tables: str) -> Place:
    return Place(name, title, tables, partial(_in, file, read), is_memory=file.startswith("memories/"))


_KINDS: Final = tuple(
    _place(
        kind.value,
        f"{kind.value.replace('_', '-').capitalize()} memory",
        f"memories/{kind.value}.jsonl",
        partial(readers.memories, name=kind),
        "records",
        "packs",
    )
    for kind in DURABLE
)

#: Every place, in the order in which they are read: collections come after the documents that are in them, rules and
#: holds after the memories that they may be on.
PLACES: Final = (
    *_KINDS,
    _place("working", "Working memory", "memories/working.jsonl", readers.working),
    _place(
        "short_term", "Short-term memory", "short_term.jsonl", readers.short_term, "short_windows", "short_messages"
    )._replace(is_memory=True),
    Place("conversations", "Conversations", ("sessions", "history"), readers.conversations),
    _place("facts", "Facts", "facts.jsonl", readers.facts, "facts"),
    _place("collections", "Collections of documents", "collections.json", readers.collections, "schemas"),
    _place("quotas", "Quotas", "quotas.json", readers.quotas, "quotas"),
    _place("rules", "Retention rules", "rules.json", readers.rules, "rules"),
    _place("holds", "Holds", "holds.json", readers.holds, "holds"),
    _place("audit", "What was done with this data", "audit.jsonl", readers.audit, "audit"),
)

#: Tables with something of a person's in them that an export does not read, and why.
LEFT_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "subjects": "the user's id, and the pseudonym that the manifest gives",
        "turns": "a lock for each user; nothing is in it",
        "scopes": "counts of the memories that are exported",
        "changes": "ids of memories that changed lately, for search indexes to follow",
        "derivations": "what exported memories say they were derived from, to be looked up the other way round",
        "totals": "counts of how often memories moved",
        "profiles": "what the exported rules come to",
        "chains": "the length and the last hash of the exported audit chain",
        "sealed": "the same, as of the last checkpoint",
        "jobs": "how the last run of each job went; one that set users aside for confirmation names them",
        "api_keys": "which callers may reach whose memory; nothing is in it that was said by or about the user",
        "replies": "sealed under keys that are not in the store, so that nobody can tell whose they are; gone in a day",
        "passages": "made from exported memories, for search: numbers",
        "fillings": "how far search has been made ready",
        "witness": "which server last agreed with the ledger of erasures; nothing of a user is in it",
        "recent_erasures": "that someone was erased in the last days, as a salted digest of the name",
    }
)

#: The same for what lies in no table.
ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vectors and terms": "made from the texts of exported memories, for search: numbers",
        "data key": "a secret; what is sealed under it is exported as it was before",
        "backups": "copies of what is exported",
        "working memory of other processes": "each process has its own, in memory, until its task ends",
    }
)
