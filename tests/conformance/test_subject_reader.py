"""What every ``SubjectReader`` does: all of a subject, page by page, in whatever state, and nothing of another's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, bring, entry, fact, message, there
from holdfast.core.audit import Action, Event
from holdfast.core.records import TYPES, MemoryType, State
from holdfast.ports.conversations import Summarize
from holdfast.ports.records import NO_LIMIT
from holdfast.ports.subjects import SubjectReader, UserDirectory

LONG_TERM = TYPES[MemoryType.LONG_TERM]
STATES = (State.ACTIVE, State.ARCHIVED, State.RECYCLED, State.DELETING)


@pytest.fixture
def reader(engine: Engine) -> SubjectReader:
    return engine.reader


def every(read: Callable[..., tuple[list[Any], Any]], *args: Any, limit: int = 2) -> list[Any]:
    """All of it, in small pages."""
    found: list[Any] = []
    page, after = read(*args, limit=limit)
    while page:
        assert len(page) <= limit
        found += page
        page, after = read(*args, after=after, limit=limit)
    return found


def about(name: str) -> Summarize:
    return lambda _summary, _messages: f"about {name}"


def test_records_of_every_state_come_once_each_in_the_order_they_were_made(
    engine: Engine, reader: SubjectReader, me: Person
) -> None:
    made = [entry(me, f"memory {n}") for n in range(7)]
    engine.records.insert(me.subject, LONG_TERM, made, prune=False, now=NOW)
    other = entry(me.other("x"))
    engine.records.insert(me.other("x").subject, LONG_TERM, [other], prune=False, now=NOW)
    persona = entry(me, kind=MemoryType.PERSONA)
    engine.records.insert(me.subject, TYPES[MemoryType.PERSONA], [persona], prune=False, now=NOW)
    for one, state in zip(made, STATES, strict=False):
        bring(engine.records, me, one.record.id, state)

    found = every(reader.records, me.subject, LONG_TERM)

    assert found == [there(engine.records, me, one.record.id) for one in made]
    assert [record.state for record in found[:4]] == [*STATES]
    assert [record.id for record in every(reader.records, me.subject, TYPES[MemoryType.PERSONA])] == [persona.record.id]
    assert reader.size(me.subject) == 8


def test_conversations_and_their_messages_come_in_their_order_with_those_in_the_bin(
    engine: Engine, reader: SubjectReader, me: Person
) -> None:
    said = [message(f"turn {n}", at=NOW + n, n=n) for n in range(5)]
    for name in ("one", "two", "three"):
        engine.history.append(me.scope(session_id=name), said[:1], now=NOW, summarize=about(name))
    scope = me.scope(session_id="one")
    engine.history.append(scope, said[1:], now=NOW, summarize=about("one"))
    engine.history.remove(scope, [said[2].id], now=NOW, summarize=about("one"))
    engine.history.append(me.other("x").scope(session_id="one"), said, now=NOW, summarize=lambda *_: "")

    sessions = every(reader.sessions, me.subject)

    assert [(one.session_id, one.summary) for one in sessions] == [(n, f"about {n}") for n in ("one", "two", "three")]
    kept = every(reader.messages, me.subject, sessions[0].id)
    assert [one.message for one in kept] == said
    assert [one.purge_at is not None for one in kept] == [False, False, True, False, False]
    assert every(reader.messages, me.other("y").subject, sessions[0].id) == [], "another's conversation is not found"
    assert every(reader.messages, me.subject, "no such conversation") == []


def test_facts_come_once_each_current_and_ended(engine: Engine, reader: SubjectReader, me: Person) -> None:
    told = [fact("city", name, day=day) for day, name in enumerate(("Rome", "Oslo", "Bern"))]
    engine.facts.record(me.subject, told, replacing=True)
    engine.facts.record(me.other("x").subject, [fact("city", "Paris")], replacing=True)

    found = every(reader.facts, me.subject)

    assert sorted(found) == sorted(engine.facts.facts(me.subject, ["ann"]))
    assert len(found) == 3


def test_the_subjects_own_chain_is_told_from_its_beginning(engine: Engine, reader: SubjectReader, me: Person) -> None:
    engine.audit.append(me.subject, [Event(NOW + n, Action.CHANGED, f"item {n}", {"n": n}) for n in range(5)])
    engine.audit.append(me.other("x").subject, [Event(NOW, Action.CHANGED, "another's", {})])

    found = every(reader.audit, me.subject)

    assert found == engine.audit.tail(me.tenant, limit=100, subject=me.subject)
    assert [found_one.seq for found_one in found] == [1, 2, 3, 4, 5]


def test_an_entry_about_several_items_is_read_whole(engine: Engine, reader: SubjectReader, me: Person) -> None:
    detail = {"reason": "old"}
    engine.audit.append(me.subject, [Event(NOW, Action.ARCHIVED, f"item {n}", detail) for n in range(5)])
    engine.audit.append(me.subject, [Event(NOW, Action.CHANGED, "item 9", {})])

    first, after = reader.audit(me.subject, limit=1)
    rest, _ = reader.audit(me.subject, after=after, limit=1)

    assert [(one.item, one.seq) for one in first] == [(f"item {n}", 1) for n in range(5)]
    assert [one.item for one in rest] == ["item 9"]


def test_limits_are_those_that_were_set_for_the_user(engine: Engine, reader: SubjectReader, me: Person) -> None:
    engine.records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 1})
    engine.records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 5, "max_bytes": NO_LIMIT})
    engine.records.set_quota(me.tenant, "another", LONG_TERM, {"max_memories": 7})

    (found,) = reader.quotas(me.tenant, me.user_id)

    assert found == (LONG_TERM, 5, NO_LIMIT)


def test_who_was_never_seen_has_nothing_and_stays_unseen(engine: Engine, reader: SubjectReader, me: Person) -> None:
    assert reader.alias(me.subject) is None
    assert reader.size(me.subject) == 0
    assert every(reader.records, me.subject, LONG_TERM) == every(reader.sessions, me.subject) == []
    assert every(reader.facts, me.subject) == every(reader.audit, me.subject) == []
    assert reader.alias(me.subject) is None
    engine.records.insert(me.subject, LONG_TERM, [entry(me)], prune=False, now=NOW)
    assert reader.alias(me.subject) == engine.packs.alias(me.subject)


def test_short_term_messages_are_told_session_by_session_expired_or_not(engine: Engine, me: Person) -> None:
    said = [message(f"turn {n}", at=NOW + n) for n in range(3)]
    engine.short_term.append(me.scope("a", "one"), said[:2], ttl=10, now=NOW, most=9)
    engine.short_term.append(me.scope("a"), said[2:], ttl=10**9, now=NOW, most=9)
    engine.short_term.append(me.other("x").scope("a", "one"), said, ttl=10**9, now=NOW, most=9)

    found = {window.session_id: window for window in engine.short_term.windows(me.tenant, me.user_id, known=())}

    assert {name: [one.id for one in window.messages] for name, window in found.items()} == {
        "one": [one.id for one in said[:2]], None: [said[2].id],
    }  # fmt: skip
    assert found["one"].expires_at == NOW + 10
    assert {window.agent_id for window in found.values()} == {"a"}


def test_users_are_listed_in_order_of_their_ids_with_what_is_kept_of_each(
    engine: Engine, reader: UserDirectory, me: Person
) -> None:
    ann, bob, cem, dan = (me.other(name) for name in ("ann", "bob", "cem", "dan/0"))
    for who, count in ((ann, 3), (bob, 1)):
        engine.records.insert(who.subject, LONG_TERM, [entry(who) for _ in range(count)], prune=False, now=NOW)
    engine.records.insert(
        bob.subject, TYPES[MemoryType.PERSONA], [entry(bob, kind=MemoryType.PERSONA, at=NOW + 7)], prune=False, now=NOW
    )
    engine.history.append(cem.scope(), [message(at=NOW + 9)], now=NOW + 9, summarize=about("hello"))
    gone = entry(dan, at=NOW + 5)
    engine.records.insert(dan.subject, LONG_TERM, [gone], prune=False, now=NOW)
    bring(engine.records, dan, gone.record.id, State.RECYCLED)

    found = reader.users(me.tenant, limit=10)

    assert [(user.user_id, user.memories, user.sessions, user.last_active_at) for user in found] == [
        ("ann", {MemoryType.LONG_TERM: 3}, 0, NOW),
        ("bob", {MemoryType.LONG_TERM: 1, MemoryType.PERSONA: 1}, 0, NOW + 7),
        ("cem", {}, 1, NOW + 9),
        ("dan/0", {MemoryType.LONG_TERM: 0}, 0, NOW + 5),
    ]


def test_pages_of_users_follow_one_another_and_leave_out_whoever_has_nothing(
    engine: Engine, reader: UserDirectory, me: Person
) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        one = entry(me.other(name))
        engine.records.insert(me.other(name).subject, LONG_TERM, [one], prune=False, now=NOW)
        if name in "bcd":
            bring(engine.records, me.other(name), one.record.id, State.DELETED)

    assert [user.user_id for user in reader.users(me.tenant, limit=2)] == ["a", "e"]
    assert [user.user_id for user in reader.users(me.tenant, after="e", limit=2)] == ["f"]
    assert reader.users(me.tenant, after="f", limit=2) == []
    assert reader.users(f"{me.tenant}0", limit=2) == []
