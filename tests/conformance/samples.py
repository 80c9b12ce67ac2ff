"""Records, messages and facts for the conformance suites."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.audit import Action, Event
from holdfast.core.clock import IdSource
from holdfast.core.decisions import Hold
from holdfast.core.records import (
    BIN,
    Encoding,
    Entry,
    Fact,
    Kind,
    MemoryType,
    Message,
    Move,
    Outcome,
    Record,
    Scope,
    State,
    Subject,
    Terms,
)
from holdfast.core.rules import Rule, resolve
from holdfast.core.values import DAY, pack
from holdfast.ports.feed import Cursor, IndexRow, RecallFeed
from holdfast.ports.records import RecordStore
from holdfast.ports.rules import HoldStore, RuleStore

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
    def subject(self) -> Subject:
        return Subject(self.tenant, self.user_id)

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
    """A record to be written, made at a moment, with its encoding; as it is read again where no rule is set."""
    dates = {"created_at": at, "updated_at": at, "dated_at": at}
    record = Record(
        id=fields.pop("id", None) or new_id(),
        kind=kind,
        scope=who.scope(agent_id, session_id),
        content=content,
        compressed=isinstance(pack(content), bytes),
        **{**dates, **fields},
    )
    return Entry(ruled(record), Encoding(model, vectors, content.encode()[:16]))


def ruled(record: Record, *rules: Rule) -> Record:
    """A record as it is read where these rules select it, and the defaults where there are none."""
    aged_from = record.dated_at if record.aged_from is None else record.aged_from
    life = resolve(record.kind, rules)
    return replace(
        record,
        aged_from=aged_from,
        archive_at=None if life.archive_after is None else aged_from + life.archive_after,
        hidden_from=None if life.delete_after is None else aged_from + life.delete_after,
    )


def changed(record: Record, **fields: Any) -> Entry:
    """A new version of a record."""
    again = replace(record, **fields)
    return Entry(again, Encoding(MODEL, b"\x00\x00\x00\x3c", again.content.encode()[:16]))


def move(
    record: Record, target: State, *, version: int | None = None, source: State | None = None, **fields: Any
) -> Move:
    """A move of a record as it was read (or, where given, from another version or state)."""
    leaving = target in (State.RECYCLED, State.DELETING)
    return Move(
        record.id,
        record.version if version is None else version,
        record.state if source is None else source,
        target,
        "because the test said so",
        **{"purge_at": NOW + BIN if leaving else None, **fields},
    )


def moved(record: Record, step: Move, *, now: int = NOW) -> Record:
    """A record as it is after a move."""
    return replace(
        record,
        state=step.target,
        previous=record.state,
        version=record.version + 1,
        moved_at=now,
        reason=step.reason,
        purge_at=step.purge_at,
        bundle=step.bundle,
    )


def bring(records: RecordStore, who: Person, record_id: str, state: State) -> Record:
    """Take a new record to a state, step by step; the record as it was there, which of a deleted one is its last."""
    record = there(records, who, record_id)
    for target in PATHS[state]:
        step = move(record, target)
        assert records.transition(who.subject, [step], now=NOW) == [Outcome.DONE]
        record = moved(record, step)
    return record


def set_rule(rules: RuleStore, tenant: str, kind: str, terms: Terms, *, now: int = NOW, **scope: Any) -> Rule:
    """Let a rule take effect; the rule as it is then."""
    proposed = propose_rule(rules, tenant, kind, terms, now=now, **scope)
    for _ in rules.assign(proposed):
        pass
    return settle_rule(rules, proposed, now=now)


def propose_rule(rules: RuleStore, tenant: str, kind: str, terms: Terms, *, now: int = NOW, **scope: Any) -> Rule:
    """Propose a rule; the rule as it is then."""
    (proposed,) = rules.propose([Rule(new_id(), tenant, kind, Terms(), pending=terms, **scope)], now=now)
    return proposed


def settle_rule(rules: RuleStore, rule: Rule, *, now: int = NOW) -> Rule:
    """Settle a rule; the rule as it is then."""
    (settled,) = rules.settle([(rule, Event(now, Action.RULE_CHANGED, None, {"author": "the test"}))], now=now)
    return settled


def put_hold(holds: HoldStore, tenant: str, *, at: int = NOW, **scope: str) -> Hold:
    """Let a hold stand."""
    hold = Hold(new_id(), tenant, "the case of the broken ski", "legal", at, **scope)  # type: ignore[arg-type]
    holds.add(hold, Event(at, Action.HOLD_ADDED, hold.id, {}))
    return hold


def lift_hold(holds: HoldStore, hold: Hold, *, now: int = NOW) -> Hold | None:
    """Release a hold; the hold as it is then, if it stood."""
    event = Event(now, Action.HOLD_RELEASED, hold.id, {})
    return holds.release(hold.tenant, hold.id, now=now, event=event)


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
        changes = self._feed.changes(*self._what, self.cursor, model=self._model, read=list)
        told = [row for page in changes.pages for row in page]
        if changes.reload:
            self.reloads += 1
            self.rows.clear()
            assert changes.gone == [], "a reload says what there is, not what went"
        for record_id in changes.gone:
            self.rows.pop(record_id, None)
        self.rows.update((row.id, row) for row in told)
        assert len({row.id for row in told}) == len(told), "each record once"
        assert not {row.id for row in told} & set(changes.gone), "a record is there or gone, not both"
        self.cursor = changes.cursor
        return self.rows
