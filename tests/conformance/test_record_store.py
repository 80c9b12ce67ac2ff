"""What every ``RecordStore`` does."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, PATHS, Person, bring, changed, entry, move, moved, new_id, ruled, set_rule, there
from holdfast.core.errors import ConflictError, QuotaExceededError, StaleError
from holdfast.core.records import BIN, LIVE, NEXT, TYPES, MemoryType, Outcome, Record, State, Subject, Terms
from holdfast.core.values import DAY
from holdfast.ports.records import NO_LIMIT, Put, RecordStore

LONG_TERM = TYPES[MemoryType.LONG_TERM]
ENTITY = TYPES[MemoryType.ENTITY]
EPISODIC = TYPES[MemoryType.EPISODIC]


@pytest.fixture
def records(engine: Engine) -> RecordStore:
    return engine.records


def add(records: RecordStore, who: Person, *contents: str, prune: bool = False, at: int = NOW) -> list[Record]:
    """Add long-term records; as they are stored."""
    entries = [entry(who, content, at=at) for content in contents]
    records.insert(who.subject, LONG_TERM, entries, prune=prune, now=NOW)
    return [item.record for item in entries]


def held(records: RecordStore, who: Person) -> tuple[int, int]:
    usage = records.usage(who.subject, LONG_TERM)
    return usage.memories, usage.bytes


# --- inserting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", ["short", "Grüße aus 東京 🎿", "long " * 1_000, "123", "1e5", "'; DROP TABLE x; --"]
)
def test_a_record_comes_back_exactly_as_it_was_written(records: RecordStore, me: Person, content: str) -> None:
    made = entry(
        me,
        content,
        kind=MemoryType.EPISODIC,
        agent_id="planner",
        session_id="sess_1",
        at=NOW,
        updated_at=NOW + 1,
        dated_at=NOW - 5,
        metadata={"tags": ["a", 1, 1.5, True, None], "näme": {"inner": "ß"}},
        body={"task": "plan", "steps": [{"content": "look " * 500}]},
        name="the plan",
        aged_from=NOW - 3,
    )

    records.insert(me.subject, EPISODIC, [made], prune=False, now=NOW)

    assert records.get(me.subject, made.record.id) == made.record


def test_an_insert_is_there_for_another_process_once_it_returned(
    records: RecordStore, elsewhere: Engine, me: Person
) -> None:
    (record,) = add(records, me, "User enjoys skiing")

    assert elsewhere.records.get(me.subject, record.id) == record
    assert elsewhere.records.usage(me.subject, LONG_TERM) == records.usage(me.subject, LONG_TERM)


def test_all_entries_are_added_or_none(records: RecordStore, me: Person) -> None:
    (first,) = add(records, me, "the first")
    new, same = entry(me, "a new one"), entry(me, "the same id again", id=first.id)

    with pytest.raises(ConflictError):
        records.insert(me.subject, LONG_TERM, [new, same], prune=False, now=NOW)
    with pytest.raises(ConflictError):
        records.insert(me.subject, LONG_TERM, [new, new], prune=False, now=NOW)

    assert records.get(me.subject, new.record.id) is None
    assert there(records, me, first.id) == first
    assert held(records, me) == (1, len("the first"))


def test_two_users_may_have_records_of_the_same_id(records: RecordStore, me: Person) -> None:
    other = me.other("someone_else")
    record_id = new_id()
    for who, content in ((me, "mine"), (other, "theirs")):
        records.insert(who.subject, LONG_TERM, [entry(who, content, id=record_id)], prune=False, now=NOW)

    assert there(records, me, record_id).content == "mine"
    assert there(records, other, record_id).content == "theirs"


def test_an_insert_says_what_is_held_afterwards(records: RecordStore, me: Person) -> None:
    added = records.insert(me.subject, LONG_TERM, [entry(me, "one"), entry(me, "zwölf")], prune=False, now=NOW)

    assert added.pruned == 0
    assert added.usage == records.usage(me.subject, LONG_TERM)
    assert (added.usage.memories, added.usage.bytes) == (2, 3 + 6), "bytes are those of the text in UTF-8"
    assert (added.usage.max_memories, added.usage.max_bytes) == (LONG_TERM.max_memories, LONG_TERM.max_bytes)


def test_inserting_nothing_changes_nothing(records: RecordStore, me: Person) -> None:
    assert records.insert(me.subject, LONG_TERM, [], prune=True, now=NOW).usage.memories == 0
    assert held(records, me) == (0, 0)


# --- quotas ------------------------------------------------------------------------------------------------------


def test_the_quota_of_memories_is_exact(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 3})
    add(records, me, "one", "two")

    with pytest.raises(QuotaExceededError, match=r"max: 3\)"):
        add(records, me, "three", "four")
    assert held(records, me) == (2, 6), "none of them was added"

    add(records, me, "three")
    assert records.usage(me.subject, LONG_TERM).remaining == 0
    with pytest.raises(QuotaExceededError):
        add(records, me, "four")


def test_the_quota_of_bytes_is_exact(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_bytes": 10})
    add(records, me, "12345")

    with pytest.raises(QuotaExceededError, match="max: 10 bytes"):
        add(records, me, "123456")
    with pytest.raises(QuotaExceededError):
        add(records, me, "äöü")  # three characters, six bytes
    add(records, me, "äö1")

    assert held(records, me) == (2, 10)


def test_what_is_kept_beside_the_content_counts_towards_the_bytes(records: RecordStore, me: Person) -> None:
    made = entry(me, "summary", kind=MemoryType.EPISODIC, body={"steps": ["x" * 5_000]})
    records.insert(me.subject, EPISODIC, [made], prune=False, now=NOW)

    assert records.usage(me.subject, EPISODIC).bytes >= 5_000 + len("summary")


def test_a_users_quota_comes_before_the_tenants_and_the_tenants_before_the_default(
    records: RecordStore, me: Person
) -> None:
    def quota(who: Person) -> tuple[int | None, int | None]:
        usage = records.usage(who.subject, LONG_TERM)
        return usage.max_memories, usage.max_bytes

    other, default = me.other("other"), (LONG_TERM.max_memories, LONG_TERM.max_bytes)
    assert quota(me) == default

    records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 7, "max_bytes": 700})
    assert quota(me) == quota(other) == (7, 700)

    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 5})
    assert quota(me) == (5, 700), "a limit that was not given stays what it was"
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_bytes": NO_LIMIT})
    assert quota(me) == (5, None), "without limit is a limit of their own"
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 0})
    assert quota(me) == (0, None), "none at all is a limit too"
    assert quota(other) == (7, 700)
    was = records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": None, "max_bytes": None})
    assert (was, quota(me)) == ({"max_memories": 0, "max_bytes": NO_LIMIT}, (7, 700)), "none of their own any more"

    assert quota(Person(me.tenant + "x", me.user_id)) == default, "another tenant has its own"
    assert records.usage(me.subject, ENTITY).max_memories == ENTITY.max_memories, "and so has another kind"


def test_without_limit_more_than_the_default_fits(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 1})
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": NO_LIMIT})

    add(records, me, "one", "two")

    assert records.usage(me.subject, LONG_TERM).remaining is None


def test_a_lower_quota_removes_nothing_and_stops_further_memories(records: RecordStore, me: Person) -> None:
    one, *_ = add(records, me, "one", "two", "three")
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 2})

    assert held(records, me) == (3, 11)
    assert records.usage(me.subject, LONG_TERM).remaining == 0
    with pytest.raises(QuotaExceededError):
        add(records, me, "four")
    assert records.replace(changed(one, content="one, in more words")), "an update is not one more memory"


def test_quotas_of_kinds_and_users_do_not_mix(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, None, LONG_TERM, {"max_memories": 1})
    other = me.other("other")
    add(records, me, "mine")
    add(records, other, "theirs")
    records.insert(me.subject, ENTITY, [entry(me, kind=MemoryType.ENTITY)], prune=False, now=NOW)

    assert held(records, me) == (1, 4)
    assert held(records, other) == (1, 6)


# --- pruning -----------------------------------------------------------------------------------------------------


def test_a_prune_recycles_the_oldest_tenth_by_the_date_age_counts_from(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 20})
    dates = list(range(20))
    random.Random(7).shuffle(dates)
    entries = [entry(me, f"{day:02}", dated_at=NOW + day) for day in dates]
    records.insert(me.subject, LONG_TERM, entries, prune=False, now=NOW)

    added = records.insert(me.subject, LONG_TERM, [entry(me, "new")], prune=True, now=NOW + 50)

    assert added.pruned == 2
    states = {item.record.content: there(records, me, item.record.id).state for item in entries}
    assert {content for content, state in states.items() if state is not State.ACTIVE} == {"00", "01"}
    assert states["00"] is states["01"] is State.RECYCLED
    assert held(records, me) == (19, 18 * 2 + 3)
    assert added.usage == records.usage(me.subject, LONG_TERM)


def test_a_prune_goes_on_until_there_is_room(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 20})
    add(records, me, *(f"{n:02}" for n in range(20)))

    added = records.insert(me.subject, LONG_TERM, [entry(me, f"new {n}") for n in range(5)], prune=True, now=NOW)

    assert (added.pruned, added.usage.memories) == (5, 20), "2 of 20, then one at a time"


def test_a_prune_makes_room_for_bytes(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_bytes": 100})
    add(records, me, *("1234567890" for _ in range(10)))

    added = records.insert(me.subject, LONG_TERM, [entry(me, "x" * 25)], prune=True, now=NOW)

    assert added.pruned == 3
    assert held(records, me) == (8, 95)


def test_nothing_is_pruned_while_there_is_room(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 2})
    add(records, me, "one")

    assert records.insert(me.subject, LONG_TERM, [entry(me)], prune=True, now=NOW).pruned == 0


@pytest.mark.parametrize("limit", [{"max_memories": 2}, {"max_bytes": 10}])
def test_what_cannot_be_made_room_for_is_refused_and_nothing_is_pruned(
    records: RecordStore, me: Person, limit: dict[str, int | None]
) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, limit)
    mine = add(records, me, "one", "two")

    with pytest.raises(QuotaExceededError):
        add(records, me, "three", "four", "five", prune=True)

    assert [there(records, me, record.id) for record in mine] == mine
    assert held(records, me) == (2, 6)


def test_a_prune_takes_live_records_of_this_kind_and_user_only(records: RecordStore, me: Person) -> None:
    other = me.other("other")
    old = NOW - 1_000
    binned, archived = add(records, me, "binned", "archived", at=old)
    bring(records, me, binned.id, State.RECYCLED)
    bring(records, me, archived.id, State.ARCHIVED)
    (theirs,) = add(records, other, "theirs", at=old - 1)
    entity = entry(me, kind=MemoryType.ENTITY, at=old - 1)
    records.insert(me.subject, ENTITY, [entity], prune=False, now=NOW)
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 1})

    (new,) = add(records, me, "new", prune=True)

    pruned = there(records, me, archived.id)
    assert (pruned.state, pruned.previous) == (State.RECYCLED, State.ARCHIVED)
    assert there(records, me, binned.id).version == 2, "what is in the bin already stays as it is"
    assert there(records, me, entity.record.id).state is State.ACTIVE
    assert there(records, other, theirs.id).state is State.ACTIVE
    assert there(records, me, new.id).state is State.ACTIVE


# --- names -------------------------------------------------------------------------------------------------------


def named(records: RecordStore, who: Person, name: str, kind: MemoryType = MemoryType.ENTITY) -> Record:
    made = entry(who, f"about {name}", kind=kind, name=name)
    records.insert(who.subject, TYPES[kind], [made], prune=False, now=NOW)
    return made.record


def test_a_record_is_found_by_its_name(records: RecordStore, me: Person) -> None:
    record = named(records, me, "ann")

    assert records.named(me.subject, ENTITY, "ann", now=NOW) == record
    for subject, kind, name in (
        (me.subject, ENTITY, "an"),
        (me.subject, ENTITY, "anna"),
        (me.subject, LONG_TERM, "ann"),
        (me.other("user_1234").subject, ENTITY, "ann"),
        (Subject(f"{me.tenant}x", me.user_id), ENTITY, "ann"),
    ):
        assert records.named(subject, kind, name, now=NOW) is None


def test_one_live_record_of_a_kind_goes_by_a_name(records: RecordStore, me: Person) -> None:
    named(records, me, "ann")

    with pytest.raises(ConflictError):
        named(records, me, "ann")
    assert records.usage(me.subject, ENTITY).memories == 1

    named(records, me, "ann", MemoryType.STRUCTURED)
    named(records, me.other("other"), "ann")


def test_a_name_is_free_again_once_its_record_is_in_the_bin(records: RecordStore, me: Person) -> None:
    first = named(records, me, "ann")
    bring(records, me, first.id, State.RECYCLED)
    assert records.named(me.subject, ENTITY, "ann", now=NOW) is None

    second = named(records, me, "ann")

    assert records.named(me.subject, ENTITY, "ann", now=NOW) == second


def test_a_record_whose_name_was_taken_stays_in_the_bin(records: RecordStore, me: Person) -> None:
    first = named(records, me, "ann")
    binned = bring(records, me, first.id, State.RECYCLED)
    named(records, me, "ann")

    bob = named(records, me, "bob")

    moves = [move(binned, State.ACTIVE), move(bob, State.RECYCLED)]
    assert records.transition(me.subject, moves, now=NOW) == [Outcome.TAKEN, Outcome.DONE]

    assert there(records, me, first.id) == binned
    assert records.usage(me.subject, ENTITY).memories == 1


def test_a_record_cannot_be_renamed_to_a_name_that_is_taken(records: RecordStore, me: Person) -> None:
    named(records, me, "ann")
    bob = named(records, me, "bob")

    with pytest.raises(ConflictError):
        records.replace(changed(bob, name="ann"))
    assert there(records, me, bob.id) == bob

    assert records.replace(changed(bob, name="rob"))
    assert records.named(me.subject, ENTITY, "bob", now=NOW) is None
    assert records.named(me.subject, ENTITY, "rob", now=NOW) == there(records, me, bob.id)


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_a_record_can_be_got_in_any_state_and_fetched_while_it_is_live(
    records: RecordStore, me: Person, state: State
) -> None:
    (record,) = add(records, me, "User enjoys skiing")
    now = bring(records, me, record.id, state)

    assert records.get(me.subject, record.id) == (now if state is not State.DELETED else None), "deleted is gone"
    assert now.state is state
    assert now.content == record.content
    assert records.fetch(me.subject, [record.id], now=NOW) == ({record.id: now} if state in LIVE else {})


def test_what_a_store_remembers_of_users_names_nobody(records: RecordStore, me: Person) -> None:
    """It stays in the process after they are erased, by whichever process."""
    (record,) = add(records, me, "one")
    assert records.fetch(me.subject, [record.id], now=NOW) == {record.id: record}
    remembered = vars(records)["_numbers"]
    assert remembered
    assert me.tenant not in repr(remembered)


def test_a_record_is_hidden_from_the_very_instant(engine: Engine, records: RecordStore, me: Person) -> None:
    made = entry(me, kind=MemoryType.ENTITY, name="ann")
    records.insert(me.subject, ENTITY, [made], prune=False, now=NOW)
    record = ruled(made.record, set_rule(engine.rules, me.tenant, "entity", Terms(delete_after=100)))

    assert record.hidden_from == NOW + 100
    assert records.fetch(me.subject, [record.id], now=NOW + 99) == {record.id: record}
    assert records.named(me.subject, ENTITY, "ann", now=NOW + 99) == record
    for later in (NOW + 100, NOW + 101):
        assert records.fetch(me.subject, [record.id], now=later) == {}
        assert records.named(me.subject, ENTITY, "ann", now=later) is None
    assert records.get(me.subject, record.id) == record, "hidden is not gone"


def test_by_default_an_episode_is_archived_at_90_days_and_hidden_at_365_and_a_fact_never_hidden(
    records: RecordStore, me: Person
) -> None:
    episode = entry(me, kind=MemoryType.EPISODIC, at=NOW, dated_at=NOW - DAY)
    (fact,) = add(records, me, "User enjoys skiing")
    records.insert(me.subject, EPISODIC, [episode], prune=False, now=NOW)
    ids = [episode.record.id, fact.id]

    found = records.fetch(me.subject, ids, now=NOW + 364 * DAY - 1)
    assert (found[ids[0]].archive_at, found[ids[0]].hidden_from) == (NOW + 89 * DAY, NOW + 364 * DAY)
    assert (found[ids[1]].archive_at, found[ids[1]].hidden_from) == (NOW + 365 * DAY, None)
    assert not found[ids[0]].is_archived(NOW + 89 * DAY - 1)
    assert found[ids[0]].is_archived(NOW + 89 * DAY), "swept or not"
    assert set(records.fetch(me.subject, ids, now=NOW + 364 * DAY)) == {fact.id}


def test_a_name_is_free_once_the_time_of_its_record_is_over(engine: Engine, records: RecordStore, me: Person) -> None:
    set_rule(engine.rules, me.tenant, "entity", Terms(delete_after=100))
    first = named(records, me, "ann")
    second = entry(me, "about another ann", kind=MemoryType.ENTITY, name="ann", at=NOW + 100)
    with pytest.raises(ConflictError):
        records.insert(me.subject, ENTITY, [second], prune=False, now=NOW + 99)
    assert there(records, me, first.id).state is State.ACTIVE, "an instant before, it was there"

    records.insert(me.subject, ENTITY, [second], prune=False, now=NOW + 100)

    binned = there(records, me, first.id)
    assert (binned.state, binned.purge_at) == (State.RECYCLED, NOW + 100 + BIN)
    assert records.usage(me.subject, ENTITY).memories == 1
    found = records.named(me.subject, ENTITY, "ann", now=NOW + 100)
    assert found is not None
    assert found.id == second.record.id


def test_fetch_gives_those_that_are_there(records: RecordStore, me: Person) -> None:
    one, two, three = add(records, me, "one", "two", "three")
    (theirs,) = add(records, me.other("other"), "theirs")
    bring(records, me, two.id, State.RECYCLED)

    found = records.fetch(me.subject, [three.id, two.id, theirs.id, new_id(), one.id, one.id], now=NOW)

    assert found == {one.id: one, three.id: three}
    assert records.fetch(me.subject, [], now=NOW) == {}


@pytest.mark.parametrize("user_id", ["user_12", "user_1234", "USER_123", "user_123 ", "%", "user?123", "user_123/x"])
def test_users_are_compared_whole(records: RecordStore, me: Person, user_id: str) -> None:
    (record,) = add(records, me, "User enjoys skiing")
    other = me.other(user_id)

    assert records.get(other.subject, record.id) is None
    assert records.fetch(other.subject, [record.id], now=NOW) == {}
    assert records.transition(other.subject, [move(record, State.RECYCLED)], now=NOW) == [Outcome.STALE]
    stolen = replace(record, scope=other.scope())
    assert records.replace(changed(stolen, content="taken over")) is None
    assert records.usage(other.subject, LONG_TERM).memories == 0
    assert there(records, me, record.id) == record


# --- replacing ---------------------------------------------------------------------------------------------------


def test_replacing_writes_a_new_version(records: RecordStore, me: Person) -> None:
    (record,) = add(records, me, "User enjoys skiing")
    new = changed(
        record, content="User loves skiing", metadata={"sure": True}, body={"steps": []}, name="ski", updated_at=NOW + 5
    )

    assert records.replace(new) is not None

    assert there(records, me, record.id) == replace(new.record, version=2, revision=2)
    assert there(records, me, record.id).dated_at == record.dated_at, "an update does not make it younger"


def test_replacing_counts_the_bytes_anew(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_bytes": 12})
    record, _ = add(records, me, "12345", "67890")

    with pytest.raises(QuotaExceededError):
        records.replace(changed(record, content="12345678"))
    assert there(records, me, record.id) == record
    assert held(records, me) == (2, 10)

    assert records.replace(changed(record, content="1234567"))
    assert held(records, me) == (2, 12)
    assert records.replace(changed(there(records, me, record.id), content="1"))
    assert held(records, me) == (2, 6)


def test_replacing_from_an_older_version_changes_nothing(records: RecordStore, me: Person) -> None:
    (record,) = add(records, me, "first")
    records.replace(changed(record, content="second"))
    second = there(records, me, record.id)

    assert records.replace(changed(record, content="written by someone who read the first")) is None
    assert records.replace(changed(replace(record, version=9), content="from the future")) is None

    assert there(records, me, record.id) == second
    assert held(records, me) == (1, 6)


@pytest.mark.parametrize("state", sorted(set(State) - LIVE))
def test_a_record_that_is_not_live_cannot_be_replaced(records: RecordStore, me: Person, state: State) -> None:
    (record,) = add(records, me, "first")
    now = bring(records, me, record.id, state)

    assert records.replace(changed(now, content="second")) is None
    assert records.get(me.subject, record.id) == (now if state is not State.DELETED else None)


def test_an_archived_record_can_be_replaced_and_stays_archived(records: RecordStore, me: Person) -> None:
    (record,) = add(records, me, "first")
    archived = bring(records, me, record.id, State.ARCHIVED)

    assert records.replace(changed(archived, content="second"))
    assert there(records, me, record.id).state is State.ARCHIVED


def test_a_record_that_never_was_cannot_be_replaced(records: RecordStore, me: Person) -> None:
    assert records.replace(entry(me)) is None
    assert held(records, me) == (0, 0)


# --- moving ------------------------------------------------------------------------------------------------------

LEGAL = [(source, target) for source in State for target in sorted(NEXT[source])]
ILLEGAL = [pair for pair in product(State, State) if pair not in LEGAL]


@pytest.mark.parametrize(("source", "target"), LEGAL)
def test_a_legal_move_is_made(records: RecordStore, me: Person, source: State, target: State) -> None:
    (record,) = add(records, me, "User enjoys skiing")
    before = bring(records, me, record.id, source)
    step = move(before, target)

    assert records.transition(me.subject, [step], now=NOW + 7) == [Outcome.DONE]

    after = None if target is State.DELETED else moved(before, step, now=NOW + 7)
    assert records.get(me.subject, record.id) == after
    assert held(records, me) == ((1, 18) if target in LIVE else (0, 0))


@pytest.mark.parametrize(("source", "target"), ILLEGAL)
def test_an_illegal_move_is_refused(records: RecordStore, me: Person, source: State, target: State) -> None:
    (record,) = add(records, me, "User enjoys skiing")
    before = bring(records, me, record.id, source)
    usage = held(records, me)

    assert records.transition(me.subject, [move(before, target)], now=NOW) == [Outcome.STALE]

    assert records.get(me.subject, record.id) == (before if source is not State.DELETED else None)
    assert held(records, me) == usage


def test_a_stale_move_changes_nothing(records: RecordStore, me: Person) -> None:
    (record,) = add(records, me, "first")
    records.replace(changed(record, content="second"))
    now = there(records, me, record.id)

    stale = [
        move(record, State.RECYCLED),
        move(now, State.RECYCLED, version=now.version + 1),
        move(now, State.RECYCLED, source=State.ARCHIVED),
        move(replace(now, id=new_id()), State.RECYCLED),
    ]
    assert records.transition(me.subject, stale, now=NOW) == [Outcome.STALE] * 4

    assert there(records, me, record.id) == now
    assert held(records, me) == (1, 6)


def test_each_move_has_its_own_answer(records: RecordStore, me: Person) -> None:
    one, two, three = add(records, me, "one", "two", "three")
    bring(records, me, two.id, State.RECYCLED)

    moves = [move(one, State.RECYCLED), move(two, State.RECYCLED), move(three, State.ARCHIVED), move(one, State.ACTIVE)]
    done, stale = Outcome.DONE, Outcome.STALE
    assert records.transition(me.subject, moves, now=NOW) == [done, stale, done, stale]

    states = [there(records, me, record.id).state for record in (one, two, three)]
    assert states == [State.RECYCLED, State.RECYCLED, State.ARCHIVED]
    assert held(records, me) == (1, 5)
    assert records.transition(me.subject, [], now=NOW) == []


def test_records_of_several_kinds_move_together(records: RecordStore, me: Person) -> None:
    (record,) = add(records, me, "long term")
    entity = named(records, me, "ann")

    assert records.transition(me.subject, [move(record, State.RECYCLED), move(entity, State.RECYCLED)], now=NOW) == [
        Outcome.DONE,
        Outcome.DONE,
    ]

    assert held(records, me) == (0, 0)
    assert records.usage(me.subject, ENTITY).memories == 0


@pytest.mark.parametrize("state", [State.ACTIVE, State.ARCHIVED])
def test_a_restore_leads_back_to_the_state_before_the_bin(records: RecordStore, me: Person, state: State) -> None:
    made = entry(me, "User enjoys skiing " * 200, metadata={"a": [1]}, name="ski")
    records.insert(me.subject, LONG_TERM, [made], prune=False, now=NOW)
    before = bring(records, me, made.record.id, state)
    records.transition(me.subject, [move(before, State.RECYCLED)], now=NOW)
    binned = there(records, me, made.record.id)
    assert binned.previous is state

    assert records.transition(me.subject, [move(binned, state)], now=NOW) == [Outcome.DONE]

    after = there(records, me, made.record.id)
    history = {name: getattr(before, name) for name in ("version", "previous", "moved_at", "reason")}
    assert replace(after, **history) == before
    assert records.named(me.subject, LONG_TERM, "ski", now=NOW) == after


def test_leaving_the_bin_needs_room_and_what_has_none_stays_while_the_rest_goes_on(
    records: RecordStore, me: Person
) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 2})
    one, two = add(records, me, "one", "two")
    binned = [bring(records, me, record.id, State.RECYCLED) for record in (one, two)]
    (three,) = add(records, me, "three")
    entity = named(records, me, "ann")

    moves = [*(move(record, State.ACTIVE) for record in binned), move(entity, State.RECYCLED)]
    assert records.transition(me.subject, moves, now=NOW) == [Outcome.DONE, Outcome.FULL, Outcome.DONE]

    assert there(records, me, one.id).state is State.ACTIVE, "one fits"
    assert there(records, me, two.id) == binned[1]
    assert there(records, me, entity.id).state is State.RECYCLED
    assert there(records, me, three.id) == three
    assert held(records, me) == (2, 8)
    assert records.usage(me.subject, ENTITY).memories == 0


def test_leaving_the_bin_needs_room_for_the_bytes(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_bytes": 9})
    (one,) = add(records, me, "12345")
    binned = bring(records, me, one.id, State.RECYCLED)
    (two,) = add(records, me, "67890")

    assert records.transition(me.subject, [move(binned, State.ACTIVE)], now=NOW) == [Outcome.FULL]
    assert there(records, me, one.id) == binned

    moves = [move(two, State.RECYCLED), move(binned, State.ACTIVE)]
    assert records.transition(me.subject, moves, now=NOW) == [Outcome.DONE] * 2, (
        "room made by the move before it counts"
    )


def test_archiving_at_the_quota_needs_no_room(records: RecordStore, me: Person) -> None:
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 1})
    (record,) = add(records, me, "one")
    archived = bring(records, me, record.id, State.ARCHIVED)
    records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 0})

    assert records.transition(me.subject, [move(archived, State.ACTIVE)], now=NOW) == [Outcome.DONE]
    assert held(records, me) == (1, 3)


def test_every_state_has_a_path() -> None:
    assert set(PATHS) == set(State)


# --- putting under names ---------------------------------------------------------------------------------------------


def test_puts_add_change_and_recycle_in_one_transaction(records: RecordStore, me: Person) -> None:
    old, gone = (entry(me, name, kind=MemoryType.ENTITY, name=name) for name in ("old", "gone"))
    records.put(me.scope(), ENTITY, [Put("old", old), Put("gone", gone)], now=NOW)
    again = entry(me, "again", kind=MemoryType.ENTITY, name="old", agent_id="other", at=NOW + 5)
    new = entry(me, "new", kind=MemoryType.ENTITY, name="new", at=NOW + 5)
    puts = [Put("old", again, 1), Put("new", new, 0), Put("gone", None), Put("nothing", None)]
    outcomes, _ = records.put(me.scope(), ENTITY, puts, now=NOW + 5)
    assert [outcome.id for outcome in outcomes] == [old.record.id, new.record.id, gone.record.id, None]
    changed = there(records, me, old.record.id)
    assert (changed.content, changed.version, changed.scope.agent_id) == ("again", 2, "agent")
    assert (changed.created_at, changed.updated_at, changed.written_by) == (NOW, NOW + 5, "agent:other")
    assert there(records, me, gone.record.id).state is State.RECYCLED
    assert records.usage(me.subject, ENTITY).memories == 2


def test_a_put_that_expects_another_version_undoes_them_all(records: RecordStore, me: Person) -> None:
    old = entry(me, "old", kind=MemoryType.ENTITY, name="old")
    records.put(me.scope(), ENTITY, [Put("old", old)], now=NOW)
    for expected in (0, 2):
        new = entry(me, "new", kind=MemoryType.ENTITY, name="new")
        with pytest.raises(StaleError):
            records.put(me.scope(), ENTITY, [Put("new", new), Put("old", old, expected)], now=NOW)
    assert (there(records, me, old.record.id).version, records.usage(me.subject, ENTITY).memories) == (1, 1)


def test_a_time_to_live_hides_a_record_and_can_be_begun_anew(records: RecordStore, me: Person) -> None:
    short, lasting = (entry(me, kind=MemoryType.ENTITY, name=name, ttl=ttl) for name, ttl in (("a", 100), ("b", None)))
    records.put(me.scope(), ENTITY, [Put("a", short), Put("b", lasting)], now=NOW)
    ids = [short.record.id, lasting.record.id]
    assert set(records.fetch(me.subject, ids, now=NOW + 99)) == set(ids)
    assert set(records.fetch(me.subject, ids, now=NOW + 100)) == {ids[1]}
    assert records.refresh(me.subject, ENTITY, ids, now=NOW + 99) == 1
    assert there(records, me, ids[0]).hidden_from == NOW + 199
    assert records.refresh(me.subject, ENTITY, ids, now=NOW + 199) == 0
    assert set(records.fetch(me.subject, ids, now=NOW + 199)) == {ids[1]}
    assert there(records, me, ids[0]).version == 1
