"""What every ``RecordStore`` does with holds, with what is kept of an archived record, with packs and with leases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.engines import Engine
from conformance.samples import (
    MODEL,
    NOW,
    Follower,
    Person,
    bring,
    changed,
    entry,
    fact,
    lift_hold,
    move,
    moved,
    new_id,
    put_hold,
    ruled,
    set_rule,
    there,
)
from holdfast.core.errors import ConflictError, LeaseLostError, NotFoundError, QuotaExceededError
from holdfast.core.records import (
    BIN,
    LIVE,
    NEXT,
    TYPES,
    Cause,
    Encoding,
    Keeping,
    MemoryType,
    Outcome,
    Record,
    State,
    Terms,
)
from holdfast.core.values import DAY, FOREVER, SECOND
from holdfast.ports.objects import NewPack

LONG_TERM = TYPES[MemoryType.LONG_TERM]
PERSONA = TYPES[MemoryType.PERSONA]
ENTITY = TYPES[MemoryType.ENTITY]


def add(
    engine: Engine, who: Person, *contents: str, kind: MemoryType = MemoryType.LONG_TERM, **fields: Any
) -> list[Record]:
    entries = [entry(who, content, kind=kind, **fields) for content in contents]
    engine.records.insert(who.subject, TYPES[kind], entries, prune=False, now=NOW)
    return [item.record for item in entries]


def usage(engine: Engine, who: Person) -> tuple[int, int]:
    found = engine.records.usage(who.subject, LONG_TERM)
    return found.memories, found.bytes


# --- to the recycle bin at one look -------------------------------------------------------------------------------


def take(record: Record | None) -> Record:
    if record is None:
        raise NotFoundError("no such memory")
    return record


def test_a_record_goes_to_the_bin_as_it_is_found(engine: Engine, elsewhere: Engine, me: Person) -> None:
    source, other = add(engine, me, "one", "two")
    add(engine, me, "three", derived_from=(source.id,))

    done = engine.records.recycle(me.scope(), source.id, take, reason="deleted by the user", now=NOW + 5)

    assert (done.record, done.outcome, done.is_source) == (source, Outcome.DONE, True)
    binned = there(elsewhere.records, me, source.id)
    assert (binned.state, binned.moved_at, binned.purge_at) == (State.RECYCLED, NOW + 5, NOW + 5 + BIN)
    assert usage(elsewhere, me) == (2, len("two" + "three"))
    (found,) = elsewhere.audit.of_item(me.subject, source.id)
    assert (found.action, found.detail["cause"], found.detail["reason"]) == ("recycled", "user", "deleted by the user")
    assert engine.records.recycle(me.scope(), other.id, take, reason="", now=NOW + 6).is_source is False
    assert list(engine.audit.verify(lambda _count: None)) == []


def test_what_is_looked_at_and_refused_stays_as_it_is(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")

    def refuse(found: Record | None) -> Record:
        assert found == record
        raise ConflictError("not this one")

    with pytest.raises(ConflictError):
        engine.records.recycle(me.scope(), record.id, refuse, reason="", now=NOW + 5)
    for who, what in ((me.other("ben"), record.id), (me, new_id())):
        with pytest.raises(NotFoundError):
            engine.records.recycle(who.scope(), what, take, reason="", now=NOW + 5)
    put_hold(engine.holds, me.tenant, user_id=me.user_id)
    assert engine.records.recycle(me.scope(), record.id, take, reason="", now=NOW + 5).outcome is Outcome.HELD
    assert there(engine.records, me, record.id) == record
    assert usage(engine, me) == (1, 3)
    assert [found.action for found in engine.audit.of_item(me.subject, record.id)] == ["refused"]


# --- the audit chain ----------------------------------------------------------------------------------------------


def test_a_move_is_on_the_subjects_chain_with_why_it_was_made(engine: Engine, elsewhere: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    step = move(record, State.RECYCLED, cause=Cause.RULE, rule="the tenant's rule for long_term, version 3")

    engine.records.transition(me.subject, [step], now=NOW + 5)

    (found,) = elsewhere.audit.of_item(me.subject, record.id)
    assert (found.at, found.action, found.item) == (NOW + 5, "recycled", record.id)
    assert found.detail == {
        "kind": "long_term",
        "from": "active",
        "to": "recycled",
        "cause": "rule",
        "reason": step.reason,
        "rule": step.rule,
    }
    assert list(engine.audit.verify(lambda _count: None)) == []


def test_each_move_says_what_it_was(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    path = (State.ARCHIVED, State.ACTIVE, State.RECYCLED, State.ARCHIVED, State.RECYCLED, State.DELETING, State.DELETED)
    for target in path:
        step = move(record, target)
        assert engine.records.transition(me.subject, [step], now=NOW) == [Outcome.DONE]
        record = moved(record, step)

    actions = [found.action for found in engine.audit.of_item(me.subject, record.id)]
    assert actions == ["archived", "rehydrated", "recycled", "restored", "recycled", "deleting", "deleted"]


@pytest.mark.parametrize("outcome", [Outcome.STALE, Outcome.TAKEN, Outcome.FULL])
def test_a_restore_that_was_refused_is_on_the_chain_and_a_stale_one_is_not(
    engine: Engine, me: Person, outcome: Outcome
) -> None:
    (record,) = add(engine, me, "one", name="the name")
    binned = bring(engine.records, me, record.id, State.RECYCLED)
    step = move(binned, State.ACTIVE)
    if outcome is Outcome.TAKEN:
        add(engine, me, "two", name="the name")
    if outcome is Outcome.FULL:
        engine.records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 0})
    if outcome is Outcome.STALE:
        step = move(binned, State.ACTIVE, version=9)

    assert engine.records.transition(me.subject, [step], now=NOW) == [outcome]

    actions = [found.action for found in engine.audit.of_item(me.subject, record.id)]
    assert actions == ["recycled"] + ([] if outcome is Outcome.STALE else ["refused"])
    assert there(engine.records, me, record.id) == binned


def test_moves_are_counted_by_kind_target_and_cause(engine: Engine, me: Person) -> None:
    before = engine.dues.counts().moves
    one, two = add(engine, me, "one", "two")
    moves = [move(one, State.RECYCLED, cause=Cause.AGENT), move(two, State.RECYCLED, cause=Cause.AGENT)]
    engine.records.transition(me.subject, moves, now=NOW)
    engine.records.transition(me.subject, moves, now=NOW)  # stale
    key = ("long_term", "recycled", "agent")

    assert engine.dues.counts().moves[key] == before.get(key, 0) + 2


# --- what is left of a deleted record ---------------------------------------------------------------------------


@pytest.mark.parametrize("source", [State.ACTIVE, State.ARCHIVED, State.RECYCLED])
def test_what_was_claimed_stays_where_a_sweep_looks_for_it(engine: Engine, me: Person, source: State) -> None:
    (record,) = add(engine, me, "one")
    before = bring(engine.records, me, record.id, source)

    engine.records.transition(me.subject, [move(before, State.DELETING, purge_at=None)], now=NOW + BIN)

    page = engine.dues.binned(me.tenant, NOW + BIN, limit=9, tags=False)
    assert [(standing.id, standing.state) for standing in page.records] == [(record.id, State.DELETING)]


@pytest.mark.parametrize("source", [State.RECYCLED, State.DELETING])
def test_a_deleted_record_is_gone_from_every_answer(engine: Engine, me: Person, source: State) -> None:
    (record,) = add(engine, me, "gone", name="the name")
    last = bring(engine.records, me, record.id, source)

    assert engine.records.transition(me.subject, [move(last, State.DELETED)], now=NOW) == [Outcome.DONE]

    assert engine.records.get(me.subject, record.id) is None
    assert engine.records.find(me.tenant, record.id) is None
    assert engine.records.entries(me.subject, [record.id]) == {}
    assert engine.records.binned(me.tenant, limit=9)[0] == []
    assert Follower(engine.feed, me.scope(), LONG_TERM).look() == {}
    assert usage(engine, me) == (0, 0)
    again = entry(me, "the same id and name again", id=record.id, name="the name")
    engine.records.insert(me.subject, LONG_TERM, [again], prune=False, now=NOW)
    assert there(engine.records, me, record.id) == again.record


def test_the_facts_of_a_deleted_entity_go_with_it_and_no_others(engine: Engine, me: Person) -> None:
    ann, bob = add(engine, me, "Ann", "Bob", kind=MemoryType.ENTITY)
    facts = [
        fact("city", "Rome", source=ann.id),
        fact("knows", source=bob.id, target=ann.id),
        fact("city", "Oslo", source=bob.id),
    ]
    engine.facts.record(me.subject, facts, replacing=False)
    other = me.other("other")
    engine.facts.record(other.subject, [fact("city", "Bern", source=ann.id)], replacing=False)
    last = bring(engine.records, me, ann.id, State.RECYCLED)
    assert len(engine.facts.facts(me.subject, [ann.id])) == 2, "in the bin it still has them"

    engine.records.transition(me.subject, [move(last, State.DELETED)], now=NOW)

    assert engine.facts.facts(me.subject, [ann.id]) == []
    assert engine.facts.facts(me.subject, [bob.id]) == facts[2:]
    assert len(engine.facts.facts(other.subject, [ann.id])) == 1


# --- holds --------------------------------------------------------------------------------------------------------

REMOVALS = [
    (State.ACTIVE, State.ARCHIVED),
    (State.ACTIVE, State.RECYCLED),
    (State.ACTIVE, State.DELETING),
    (State.ARCHIVED, State.RECYCLED),
    (State.ARCHIVED, State.DELETING),
    (State.RECYCLED, State.DELETING),
    (State.RECYCLED, State.DELETED),
]
RETURNS = [
    (State.ARCHIVED, State.ACTIVE),
    (State.RECYCLED, State.ACTIVE),
    (State.RECYCLED, State.ARCHIVED),
    (State.DELETING, State.DELETED),
]


@pytest.mark.parametrize(("source", "target"), REMOVALS)
def test_a_held_record_is_neither_archived_nor_removed_and_the_refusal_is_audited(
    engine: Engine, elsewhere: Engine, me: Person, source: State, target: State
) -> None:
    record, free = add(engine, me, "held", "free")
    before = bring(engine.records, me, record.id, source)
    hold = put_hold(elsewhere.holds, me.tenant, memory_id=record.id)
    counted = usage(engine, me)

    moves = [move(before, target, cause=Cause.CLEANUP), move(free, State.ARCHIVED)]
    assert engine.records.transition(me.subject, moves, now=NOW + 1) == [Outcome.HELD, Outcome.DONE]

    assert there(engine.records, me, record.id) == before
    assert usage(engine, me) == counted
    refusal = engine.audit.of_item(me.subject, record.id)[-1]
    assert (refusal.at, refusal.action) == (NOW + 1, "refused")
    assert refusal.detail == {
        "kind": "long_term",
        "from": source.value,
        "to": target.value,
        "cause": "cleanup",
        "hold": hold.id,
    }


@pytest.mark.parametrize(("source", "target"), RETURNS)
def test_a_held_record_may_come_back_and_what_had_begun_to_go_is_finished(
    engine: Engine, me: Person, source: State, target: State
) -> None:
    (record,) = add(engine, me, "held")
    before = bring(engine.records, me, record.id, source)
    put_hold(engine.holds, me.tenant, memory_id=record.id)

    assert engine.records.transition(me.subject, [move(before, target)], now=NOW) == [Outcome.DONE]


def test_every_legal_move_is_a_removal_or_a_return() -> None:
    assert set(REMOVALS) | set(RETURNS) == {(source, target) for source in State for target in NEXT[source]}


@pytest.mark.parametrize(
    ("hold", "held"),
    [
        ({"user_id": "user_123"}, {"plain", "planner", "in session", "tagged"}),
        ({"agent_id": "planner"}, {"planner"}),
        ({"session_id": "sess_1"}, {"in session"}),
        ({"tag": "legal"}, {"tagged"}),
        ({"tag": "case=7"}, {"tagged"}),
        ({"tag": "case=77"}, set()),
        ({"user_id": "user_123", "agent_id": "planner"}, {"planner"}),
        ({"user_id": "user_12"}, set()),
        ({"user_id": "user_1234"}, set()),
        ({"agent_id": "plan"}, set()),
        ({"user_id": "someone", "agent_id": "planner"}, set()),
    ],
    ids=lambda value: "-".join(sorted(map(str, value))) or "nothing",
)
def test_a_hold_covers_what_all_its_parts_name(
    engine: Engine, me: Person, hold: dict[str, Any], held: set[str]
) -> None:
    records = [
        *add(engine, me, "plain"),
        *add(engine, me, "planner", agent_id="planner"),
        *add(engine, me, "in session", session_id="sess_1"),
        *add(engine, me, "tagged", metadata={"tags": ["legal", "x"], "case": 7}),
    ]
    put_hold(engine.holds, me.tenant, **hold)

    outcomes = engine.records.transition(me.subject, [move(record, State.RECYCLED) for record in records], now=NOW)

    found = {record.content for record, outcome in zip(records, outcomes, strict=True) if outcome is Outcome.HELD}
    assert found == held


def test_a_hold_is_the_tenants_own_and_ends_when_it_is_released(engine: Engine, elsewhere: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    stranger = Person(me.tenant + "x", me.user_id)
    put_hold(engine.holds, stranger.tenant, user_id=me.user_id)
    hold = put_hold(engine.holds, me.tenant, user_id=me.user_id)
    assert engine.records.transition(me.subject, [move(record, State.RECYCLED)], now=NOW) == [Outcome.HELD]

    lift_hold(elsewhere.holds, hold)

    assert engine.records.transition(me.subject, [move(record, State.RECYCLED)], now=NOW) == [Outcome.DONE]


# --- pruning ------------------------------------------------------------------------------------------------------


def prune(engine: Engine, who: Person, kind: MemoryType = MemoryType.LONG_TERM) -> int:
    new = entry(who, "new", kind=kind)
    return engine.records.insert(who.subject, TYPES[kind], [new], prune=True, now=NOW).pruned


def test_a_prune_passes_over_what_is_held_and_takes_the_next_oldest(engine: Engine, me: Person) -> None:
    engine.records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 20})
    records = [add(engine, me, f"{n:02}", at=NOW - 100 + n)[0] for n in range(20)]
    for record in (records[0], records[2]):
        put_hold(engine.holds, me.tenant, memory_id=record.id)

    assert prune(engine, me) == 2

    gone = [record for record in records if there(engine.records, me, record.id).state is State.RECYCLED]
    assert [record.content for record in gone] == ["01", "03"]
    pruned = there(engine.records, me, gone[0].id)
    assert pruned.purge_at == NOW + BIN
    (noted,) = engine.audit.of_item(me.subject, pruned.id)
    assert (noted.action, noted.detail["cause"]) == ("recycled", "prune")
    assert engine.audit.of_item(me.subject, records[0].id) == [], "passed over is not refused"


def test_where_all_is_held_a_prune_makes_no_room_and_the_add_is_refused(engine: Engine, me: Person) -> None:
    engine.records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 3})
    records = add(engine, me, "one", "two", "three")
    hold = put_hold(engine.holds, me.tenant, user_id=me.user_id)

    with pytest.raises(QuotaExceededError):
        prune(engine, me)

    assert [there(engine.records, me, record.id) for record in records] == records
    lift_hold(engine.holds, hold)
    assert prune(engine, me) == 1


def test_a_prune_passes_over_what_a_rule_keeps_until_its_time_is_over(engine: Engine, me: Person) -> None:
    engine.records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 2})
    (kept,) = add(engine, me, "kept", at=NOW - 5, session_id="precious")
    (other,) = add(engine, me, "other")
    set_rule(engine.rules, me.tenant, "long_term", Terms(keep_for=6), session_id="precious")
    assert prune(engine, me) == 1
    assert there(engine.records, me, other.id).state is State.RECYCLED
    assert there(engine.records, me, kept.id).state is State.ACTIVE

    late = entry(me, "late", at=NOW + 1)
    assert engine.records.insert(me.subject, LONG_TERM, [late], prune=True, now=NOW + 1).pruned == 1

    assert there(engine.records, me, kept.id).state is State.RECYCLED, "kept for six microseconds, and they are over"


def test_a_prune_never_touches_persona_unless_a_rule_says_when_it_ends(engine: Engine, me: Person) -> None:
    engine.records.set_quota(me.tenant, None, PERSONA, {"max_memories": 1})
    (who_i_am,) = add(engine, me, "I am a ski instructor", kind=MemoryType.PERSONA, at=NOW - 9_999 * DAY)

    with pytest.raises(QuotaExceededError):
        prune(engine, me, MemoryType.PERSONA)
    assert there(engine.records, me, who_i_am.id) == who_i_am

    set_rule(engine.rules, me.tenant, "persona", Terms(delete_after=FOREVER))
    assert prune(engine, me, MemoryType.PERSONA) == 1


def test_a_held_record_whose_time_is_over_gives_up_a_name_that_is_wanted_and_stays(engine: Engine, me: Person) -> None:
    set_rule(engine.rules, me.tenant, "entity", Terms(delete_after=100))
    (first,) = add(engine, me, "Ann", kind=MemoryType.ENTITY, name="ann")
    put_hold(engine.holds, me.tenant, memory_id=first.id)
    second = entry(me, "another", kind=MemoryType.ENTITY, name="ann", at=NOW + 100)

    engine.records.insert(me.subject, ENTITY, [second], prune=False, now=NOW + 100)

    kept = there(engine.records, me, first.id)
    assert (kept.state, kept.content, kept.name) == (State.ACTIVE, "Ann", None)
    assert there(engine.records, me, second.record.id).name == "ann"


# --- what is kept -------------------------------------------------------------------------------------------------


def keeping(content: str, *, pack: int | None = None, body: dict[str, Any] | None = None) -> Keeping:
    return Keeping(content, body, {"kept": True}, Encoding(MODEL, b"\x00\x00\x00\x3c", b"kept"), pack)


def open_pack(engine: Engine, who: Person, records: int = 1, size: int = 1_000) -> int:
    new = NewPack(who.subject, None, f"archive/{new_id()}", records, size, b"d" * 32)
    (number,) = engine.packs.open([new], now=NOW)
    assert number is not None
    return number


def test_an_archived_record_is_what_is_kept_of_it(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "a long story", body={"steps": ["x" * 50]}, metadata={"a": 1})
    index = Follower(engine.feed, me.scope(), LONG_TERM)
    index.look()
    step = move(record, State.ARCHIVED, keeping=keeping("a story"))

    assert engine.records.transition(me.subject, [step], now=NOW) == [Outcome.DONE]

    expected = replace(moved(record, step), content="a story", body=None, metadata={"kept": True})
    assert there(engine.records, me, record.id) == expected
    assert usage(engine, me) == (1, len("a story"))
    (row,) = index.look().values()
    assert (row.archived_from, row.terms, row.vectors) == (0, b"kept", b"\x00\x00\x00\x3c")
    assert engine.records.entries(me.subject, [record.id])[record.id].encoding == (MODEL, b"\x00\x00\x00\x3c", b"kept")


def test_what_comes_back_whole_counts_whole_and_needs_room(engine: Engine, me: Person) -> None:
    engine.records.set_quota(me.tenant, None, LONG_TERM, {"max_bytes": 20})
    (record,) = add(engine, me, "1234567890")
    engine.records.transition(me.subject, [move(record, State.ARCHIVED, keeping=keeping("1234"))], now=NOW)
    (filler,) = add(engine, me, "x" * 12)
    cold = there(engine.records, me, record.id)
    back = move(cold, State.ACTIVE, keeping=keeping("1234567890"), aged_from=NOW + 9)

    assert engine.records.transition(me.subject, [back], now=NOW) == [Outcome.FULL]
    assert there(engine.records, me, record.id) == cold
    assert usage(engine, me) == (2, 16)

    moves = [move(filler, State.RECYCLED), back]
    assert engine.records.transition(me.subject, moves, now=NOW + 9) == [Outcome.DONE] * 2
    whole = there(engine.records, me, record.id)
    assert (whole.content, whole.aged_from, whole.dated_at) == ("1234567890", NOW + 9, NOW)
    assert whole.archive_at == NOW + 9 + 365 * DAY, "its age counts anew"
    assert usage(engine, me) == (1, 10)


@pytest.mark.parametrize("source", [State.ACTIVE, State.ARCHIVED, State.RECYCLED])
@pytest.mark.parametrize("content", ["12", "1234567890 and more"], ids=["less", "more"])
def test_what_is_kept_of_a_record_that_goes_does_not_count(
    engine: Engine, me: Person, source: State, content: str
) -> None:
    record, _ = add(engine, me, "1234567890", "stays")
    before = bring(engine.records, me, record.id, source)

    step = move(before, State.DELETING, keeping=keeping(content))
    assert engine.records.transition(me.subject, [step], now=NOW) == [Outcome.DONE]

    assert usage(engine, me) == (1, len("stays"))


# --- packs --------------------------------------------------------------------------------------------------------


def test_a_record_lies_in_its_pack_until_it_is_brought_back(engine: Engine, elsewhere: Engine, me: Person) -> None:
    (record,) = add(engine, me, "a long story")
    number = open_pack(engine, me)

    engine.records.transition(me.subject, [move(record, State.ARCHIVED, keeping=keeping("a", pack=number))], now=NOW)
    assert engine.packs.settle([(me.subject, number)]) == ["kept"]
    cold = there(engine.records, me, record.id)
    assert cold.pack == number
    assert elsewhere.packs.members(me.subject, number) == [record.id]
    assert engine.records.replace(changed(cold, content="changed")) is None, "it is brought back before it is changed"

    back = move(cold, State.ACTIVE, keeping=keeping("a long story"))
    assert engine.records.transition(me.subject, [back], now=NOW) == [Outcome.DONE]

    assert there(engine.records, me, record.id).pack is None
    assert engine.packs.members(me.subject, number) == []
    found = engine.packs.get(me.subject, number)
    assert found is not None
    assert found.state == "stale", "the object holds a record that does not lie in it any more"
    assert engine.packs.settle([(me.subject, number)]) == ["leaving"]


def test_no_record_moves_into_a_pack_that_was_given_up(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "a long story")
    number = open_pack(engine, me)
    assert engine.packs.settle([(me.subject, number)]) == ["leaving"], "nothing lies in it"

    step = move(record, State.ARCHIVED, keeping=keeping("a", pack=number))
    assert engine.records.transition(me.subject, [step], now=NOW) == [Outcome.STALE]

    assert there(engine.records, me, record.id) == record


def test_a_record_is_not_deleted_while_part_of_it_lies_elsewhere(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "a long story")
    number = open_pack(engine, me)
    engine.records.transition(me.subject, [move(record, State.ARCHIVED, keeping=keeping("a", pack=number))], now=NOW)
    engine.packs.settle([(me.subject, number)])
    cold = there(engine.records, me, record.id)
    engine.records.transition(me.subject, [move(cold, State.RECYCLED)], now=NOW)
    binned = there(engine.records, me, record.id)
    assert binned.pack == number
    assert engine.records.transition(me.subject, [move(binned, State.DELETED)], now=NOW) == [Outcome.STALE]

    engine.records.transition(me.subject, [move(binned, State.DELETING)], now=NOW)
    leaving = there(engine.records, me, record.id)
    assert engine.records.transition(me.subject, [move(leaving, State.DELETED)], now=NOW) == [Outcome.STALE]
    assert engine.packs.settle([(me.subject, number)]) == ["leaving"]
    assert there(engine.records, me, record.id).pack is None

    assert engine.records.transition(me.subject, [move(leaving, State.DELETED)], now=NOW) == [Outcome.DONE]
    assert engine.records.get(me.subject, record.id) is None


def test_a_restore_that_was_not_made_leaves_the_pack_as_it_was(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "a long story", name="the story")
    number = open_pack(engine, me)
    engine.records.transition(me.subject, [move(record, State.ARCHIVED, keeping=keeping("a", pack=number))], now=NOW)
    engine.packs.settle([(me.subject, number)])
    engine.records.transition(me.subject, [move(there(engine.records, me, record.id), State.RECYCLED)], now=NOW)
    add(engine, me, "another", name="the story")
    binned = there(engine.records, me, record.id)

    back = move(binned, State.ACTIVE, keeping=keeping("a long story"))
    assert engine.records.transition(me.subject, [back], now=NOW) == [Outcome.TAKEN]

    assert there(engine.records, me, record.id) == binned
    found = engine.packs.get(me.subject, number)
    assert found is not None
    assert found.state == "kept"


# --- several subjects, and leases ---------------------------------------------------------------------------------


def test_moves_of_several_subjects_are_each_made_for_their_own(engine: Engine, me: Person) -> None:
    other, nobody = me.other("other"), me.other("nobody")
    (mine,), (theirs,) = add(engine, me, "mine"), add(engine, other, "theirs")

    outcomes = engine.records.transition_all(
        [
            (me.subject, [move(mine, State.RECYCLED), move(theirs, State.RECYCLED)]),
            (other.subject, [move(theirs, State.ARCHIVED)]),
            (nobody.subject, [move(mine, State.RECYCLED)]),
            (me.subject, [move(mine, State.ARCHIVED)]),
            (other.subject, []),
        ],
        now=NOW,
    )

    done, stale = Outcome.DONE, Outcome.STALE
    assert outcomes == [[done, stale], [done], [stale], [stale], []]
    assert there(engine.records, me, mine.id).state is State.RECYCLED
    assert there(engine.records, other, theirs.id).state is State.ARCHIVED


def test_a_lease_that_changed_hands_moves_nothing(engine: Engine, elsewhere: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    name = f"sweep {me.tenant}"
    old = engine.leases.acquire(name, "host:1:a", now=NOW, ttl=SECOND)
    assert old is not None
    new = elsewhere.leases.acquire(name, "host:2:b", now=NOW + SECOND, ttl=SECOND)
    assert new is not None
    batch = [(me.subject, [move(record, State.RECYCLED)])]

    with pytest.raises(LeaseLostError):
        engine.records.transition_all(batch, now=NOW, lease=old)
    assert there(engine.records, me, record.id) == record
    assert engine.audit.of_item(me.subject, record.id) == []

    assert engine.records.transition_all(batch, now=NOW, lease=new) == [[Outcome.DONE]]


# --- finding ------------------------------------------------------------------------------------------------------


def test_a_record_is_found_whoever_of_the_tenants_users_it_belongs_to(engine: Engine, me: Person) -> None:
    other = me.other("user/with/slash")
    (mine,), (theirs,) = add(engine, me, "mine"), add(engine, other, "theirs")
    bring(engine.records, other, theirs.id, State.RECYCLED)

    assert engine.records.find(me.tenant, mine.id) == mine
    assert engine.records.find(me.tenant, theirs.id) == there(engine.records, other, theirs.id)
    for tenant in (me.tenant + "x", me.tenant[:-1], me.tenant + "0", me.tenant + "/user", ""):
        assert engine.records.find(tenant, mine.id) is None
    assert engine.records.find(me.tenant, new_id()) is None


@pytest.mark.parametrize("state", [state for state in State if state is not State.DELETED])
def test_entries_come_with_their_encodings_in_any_state(engine: Engine, me: Person, state: State) -> None:
    made = [entry(me, "one", vectors=b"abcd"), entry(me, "two", model=None, vectors=None)]
    engine.records.insert(me.subject, LONG_TERM, made, prune=False, now=NOW)
    ids = [item.record.id for item in made]
    now = [bring(engine.records, me, record_id, state) for record_id in ids]

    found = engine.records.entries(me.subject, [*ids, new_id()])

    assert found == {record.id: (record, item.encoding) for record, item in zip(now, made, strict=True)}
    assert engine.records.entries(me.other("other").subject, ids) == {}


@pytest.mark.parametrize("whole", [False, True], ids=["one user's", "the tenant's"])
def test_the_bin_is_paged_in_the_order_in_which_it_empties(engine: Engine, me: Person, whole: bool) -> None:
    records = add(engine, me, *(f"{n}" for n in range(7)))
    for n, record in enumerate(records[:6]):
        purge_at = NOW + (n * 5) % 3  # several leave at the same moment
        engine.records.transition(me.subject, [move(record, State.RECYCLED, purge_at=purge_at)], now=NOW)
    (stranger,) = add(engine, Person(me.tenant + "0", me.user_id), "a stranger's")
    bring(engine.records, Person(me.tenant + "0", me.user_id), stranger.id, State.RECYCLED)
    (other,) = add(engine, me.other("other"), "another's")
    bring(engine.records, me.other("other"), other.id, State.RECYCLED)
    subject = None if whole else me.subject

    seen: list[Record] = []
    page, after = engine.records.binned(me.tenant, subject, limit=2)
    while page:
        assert len(page) <= 2
        seen += page
        page, after = engine.records.binned(me.tenant, subject, after=after, limit=2)

    assert [record.purge_at for record in seen] == sorted(record.purge_at or 0 for record in seen)
    assert [record.content for record in seen] == ["0", "3", "2", "5", "1", "4", *(["another's"] if whole else [])]
    assert {record.scope.tenant for record in seen} == {me.tenant}


def test_what_is_live_of_a_kind_is_paged(engine: Engine, me: Person) -> None:
    number = open_pack(engine, me)
    records = add(engine, me, *(f"{n}" for n in range(5)))
    add(engine, me, "an entity", kind=MemoryType.ENTITY)
    add(engine, me.other("other"), "theirs")
    (planned,) = add(engine, me, "planned", agent_id="planner", session_id="s")
    bring(engine.records, me, records[1].id, State.RECYCLED)
    step = move(records[2], State.ARCHIVED, keeping=keeping("2", pack=number))
    engine.records.transition(me.subject, [step], now=NOW)

    seen = []
    page, after = engine.records.live(me.subject, LONG_TERM, limit=2)
    while page:
        seen += page
        page, after = engine.records.live(me.subject, LONG_TERM, after=after, limit=2)

    expected = [there(engine.records, me, record.id) for record in (*records, planned)]
    assert [(found.id, found.state, found.version, found.elsewhere) for found in seen] == [
        (record.id, record.state, record.version, record.pack is not None)
        for record in expected
        if record.state in LIVE
    ]
    assert all(found.thing.user_id == me.user_id and found.subject == me.subject for found in seen)
    last = seen[-1]
    assert (last.id, last.thing.agent_id, last.thing.session_id) == (planned.id, "planner", "s")
    assert engine.records.live(me.other("nobody").subject, LONG_TERM, limit=9) == ([], 0)


def test_a_restore_may_let_its_rules_count_anew(engine: Engine, me: Person) -> None:
    rule = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=10))
    (record,) = add(engine, me, "one")
    binned = bring(engine.records, me, record.id, State.RECYCLED)

    engine.records.transition(me.subject, [move(binned, State.ACTIVE, aged_from=NOW + 50)], now=NOW + 50)

    after = there(engine.records, me, record.id)
    assert after == ruled(replace(after, aged_from=NOW + 50), rule)
    assert after.hidden_from == NOW + 60
    assert after.dated_at == NOW, "when it was made stays what it was"
    assert set(engine.records.fetch(me.subject, [record.id], now=NOW + 59)) == {record.id}
