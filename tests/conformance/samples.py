"""Records, messages and facts for the conformance suites."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from retain.core.content import pack
from retain.core.ids import IdSource
from retain.core.records import Encoding, Entry, Fact, Message, Move, Record, Scope
from retain.core.times import DAY
from retain.core.types import Kind, MemoryType, State
from retain.ports import Cursor, IndexRow, RecallFeed, RecordStore

#: A moment in 2026; tests count from here.
NOW = 1_768_478_400_000_000
MODEL = "model-a"

#: How to reach each state from the first.
PATHS: dict[State, tuple[State, ...]] = {
    State.ACTIVE: (),
    State.ARCHIVED: (State.ARCHIVED,),
    State.RECYCLED: (State.RECYCLED,),
    State.DELETING: (State.DELETING,),
    State.DELETED: (State.DELETING, State.DELETED),
}

_ids = IdSource(lambda bits: 1)
_moments = itertools.count(NOW)


def new_id() -> str:
    """An id that sorts after all before it."""
    return _ids.next(next(_moments))


@dataclass(frozen=True)
class Person:
    """A user of a tenant."""

    tenant: str
    user_id: str

    @property
    def subject(self) -> str:
        return f"{self.tenant}/{self.user_id}"

    def scope(self, agent_id: str = "agent", session_id: str | None = None) -> Scope:
        return Scope(self.tenant, self.user_id, agent_id, session_id)

    def other(self, user_id: str) -> Person:
        """Another user of the same tenant."""
        return Person(self.tenant, user_id)


def entry(
    who: Person,
    content: str = "User enjoys skiing",
    *,
    kind: MemoryType = MemoryType.LONG_TERM,
    agent_id: str = "agent",
    session_id: str | None = None,
    at: int = NOW,
    model: str | None = MODEL,
    vectors: bytes | None = b"\x00\x3c\x00\x00",
    **fields: Any,
) -> Entry:
    """A record to be written, made at a moment, with its encoding."""
    dates = {"created_at": at, "updated_at": at, "dated_at": at}
    record = Record(
        id=fields.pop("id", None) or new_id(),
        kind=kind,
        scope=who.scope(agent_id, session_id),
        content=content,
        compressed=isinstance(pack(content), bytes),
        **{**dates, **fields},
    )
    return Entry(record, Encoding(model, vectors, content.encode()[:16]))


def changed(record: Record, **fields: Any) -> Entry:
    """A new version of a record."""
    again = replace(record, **fields)
    return Entry(again, Encoding(MODEL, b"\x00\x00\x00\x3c", again.content.encode()[:16]))


def move(record: Record, target: State, *, version: int | None = None, source: State | None = None) -> Move:
    """A move of a record as it was read (or, where given, from another version or state)."""
    return Move(
        record.id,
        record.version if version is None else version,
        record.state if source is None else source,
        target,
        "because the test said so",
    )


def bring(records: RecordStore, who: Person, record_id: str, state: State) -> Record:
    """Take a new record to a state, step by step; the record as it is then."""
    for step in PATHS[state]:
        assert records.transition(who.subject, [move(there(records, who, record_id), step)], now=NOW) == [True]
    return there(records, who, record_id)


def there(records: RecordStore, who: Person, record_id: str) -> Record:
    """The record, which is known to exist."""
    record = records.get(who.subject, record_id)
    assert record is not None
    return record


def message(content: str = "How much is a flight?", *, role: str = "user", at: int = NOW, **metadata: Any) -> Message:
    return Message(new_id(), role, content, at, metadata)


def fact(name: str, value: Any = None, *, source: str = "ann", target: str | None = None, **fields: Any) -> Fact:
    """An attribute, or (with ``target``) a relation; ``day`` is when it began, ``until_day`` when it ended."""
    since = NOW + fields.pop("day", 0) * DAY
    until_day = fields.pop("until_day", None)
    until = None if until_day is None else NOW + until_day * DAY
    return Fact(fields.pop("id", None) or new_id(), source, name, target, value, since, until, NOW)


class Follower:
    """An index that follows a scope as the feed's contract says, and keeps what it was told."""

    def __init__(self, feed: RecallFeed, scope: Scope, kind: Kind, *, model: str = MODEL) -> None:
        self._feed = feed
        self._what = (scope, kind)
        self._model = model
        self.cursor: Cursor | None = None
        self.rows: dict[str, IndexRow] = {}
        self.reloads = 0

    def look(self) -> dict[str, IndexRow]:
        """Catch up; everything that is live in the scope."""
        changes = self._feed.changes(*self._what, self.cursor, model=self._model)
        if changes.reload:
            self.reloads += 1
            self.rows.clear()
            assert changes.gone == [], "a reload says what there is, not what went"
        for record_id in changes.gone:
            self.rows.pop(record_id, None)
        self.rows.update((row.id, row) for row in changes.rows)
        assert len({row.id for row in changes.rows}) == len(changes.rows), "each record once"
        assert not {row.id for row in changes.rows} & set(changes.gone), "a record is there or gone, not both"
        self.cursor = changes.cursor
        return self.rows
