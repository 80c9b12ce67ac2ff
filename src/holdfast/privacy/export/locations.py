"""The parts of an export, and how each is read. The catalogue (``storage/catalog.py``) says which part has the rows of
which table, and why some tables are in none.
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
from holdfast.storage.catalog import LOCATIONS, TABLES


class Place(NamedTuple):
    """Where some of what is held on a person lies."""

    name: str
    title: str
    """As a heading for people."""
    files: Callable[[Person], Iterator[File]]
    is_memory: bool = False
    """Whether it is a kind of memory."""


def _in(name: str, read: Callable[[Person], Iterator[Line]], person: Person) -> Iterator[File]:
    """All of a place in one file."""
    yield File(name, read(person))


def _place(name: str, title: str, file: str, read: Callable[[Person], Iterator[Line]]) -> Place:
    return Place(name, title, partial(_in, file, read), is_memory=file.startswith("memories/"))


_KINDS: Final = tuple(
    _place(
        kind.value,
        f"{kind.value.replace('_', '-').capitalize()} memory",
        f"memories/{kind.value}.jsonl",
        partial(readers.memories, name=kind),
    )
    for kind in DURABLE
)

#: Every place, in the order in which they are read: collections come after the documents that are in them, rules and
#: holds after the memories that they may be on.
PLACES: Final = (
    *_KINDS,
    _place("working", "Working memory", "memories/working.jsonl", readers.working),
    _place("short_term", "Short-term memory", "short_term.jsonl", readers.short_term)._replace(is_memory=True),
    Place("conversations", "Conversations", readers.conversations),
    _place("facts", "Facts", "facts.jsonl", readers.facts),
    _place("collections", "Collections of documents", "collections.json", readers.collections),
    _place("quotas", "Quotas", "quotas.json", readers.quotas),
    _place("rules", "Retention rules", "rules.json", readers.rules),
    _place("holds", "Holds", "holds.json", readers.holds),
    _place("audit", "What was done with this data", "audit.jsonl", readers.audit),
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
