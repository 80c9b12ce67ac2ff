"""What every ``RecallFeed`` does: an index that follows it knows exactly what is live."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest

from conformance.engines import Engine
from conformance.samples import MODEL, NOW, Follower, Person, bring, changed, entry, move, set_rule, there
from holdfast.core.errors import AgentRemovedError
from holdfast.core.records import LIVE, TYPES, Encoding, Kind, MemoryType, Outcome, Record, State, Terms
from holdfast.ports.feed import Cursor, PackedRows
from holdfast.storage.relational import feed as stored_feed

LONG_TERM = TYPES[MemoryType.LONG_TERM]
OTHER_MODEL = "model-b"
SHARED = [kind for kind in TYPES.values() if kind.durable and "agent" not in kind.scope]
PER_AGENT = [kind for kind in TYPES.values() if kind.durable and "agent" in kind.scope]


def add(
    engine: Engine, who: Person, *contents: str, kind: MemoryType = MemoryType.LONG_TERM, **fields: Any
) -> list[Record]:
    entries = [entry(who, content, kind=kind, **fields) for content in contents]
    engine.records.insert(who.subject, TYPES[kind], entries, prune=False, now=NOW)
    return [item.record for item in entries]


@pytest.fixture
def index(engine: Engine, me: Person) -> Follower:
    return Follower(engine.feed, me.scope(), LONG_TERM)


# --- the cursor --------------------------------------------------------------------------------------------------


def test_the_first_look_shows_everything(engine: Engine, index: Follower, me: Person) -> None:
    one, two = add(engine, me, "one", "two")

    first = engine.feed.changes(me.scope(), LONG_TERM, None, model=MODEL, read=list)

    assert first.reload is True
    assert [row.id for page in first.pages for row in page] == [one.id, two.id]
    assert first.gone == []


def test_a_large_scope_is_read_in_pages(engine: Engine, me: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_feed, "_PAGE", 2)
    monkeypatch.setattr(stored_feed, "_TOGETHER", 2)
    records = add(engine, me, "one", "two", "three", "four", "five")

    first = engine.feed.changes(me.scope(), LONG_TERM, None, model=MODEL, read=lambda rows: [row.id for row in rows])

    ids = [record.id for record in records]
    assert first.pages == [ids[:4], ids[4:]]


def test_where_nothing_is_new_the_cursor_stays(engine: Engine, me: Person) -> None:
    add(engine, me, "one")
    cursor = engine.feed.changes(me.scope(), LONG_TERM, None, model=MODEL, read=list).cursor

    for _ in range(2):
        assert engine.feed.changes(me.scope(), LONG_TERM, cursor, model=MODEL, read=list) == (cursor, False, [], [])


def test_several_kinds_tell_at_once_which_of_them_have_not_changed(engine: Engine, me: Person) -> None:
    kinds = [TYPES[name] for name in (MemoryType.LONG_TERM, MemoryType.ENTITY, MemoryType.PERSONA, MemoryType.EPISODIC)]
    for kind in kinds[:3]:
        add(engine, me, "one", kind=kind.name)

    def cursors() -> dict[MemoryType, Cursor]:
        found = {kind: engine.feed.changes(me.scope(), kind, None, model=MODEL, read=list) for kind in kinds}
        return {kind.name: changes.cursor for kind, changes in found.items()}

    before = cursors()
    asked = [(TYPES[name], cursor) for name, cursor in before.items()]
    assert engine.feed.unchanged(me.scope(), asked) == before
    assert engine.feed.unchanged(me.scope(), []) == {}
    assert engine.feed.unchanged(replace(me.scope(), user_id="somebody else"), asked) == {}

    add(engine, me, "two", kind=MemoryType.ENTITY)
    assert engine.feed.unchanged(me.scope(), asked) == {name: before[name] for name in before if name != "entity"}
    set_rule(engine.rules, me.tenant, "persona", Terms(delete_after=9))
    assert engine.feed.unchanged(me.scope(), asked) == {}, "the rules say for how long each of them is seen"
    assert engine.feed.unchanged(me.scope(), [(TYPES[name], cursor) for name, cursor in cursors().items()]) == cursors()


def test_a_user_who_has_nothing_yet_can_be_followed(engine: Engine, index: Follower, me: Person) -> None:
    assert index.look() == {}
    before = index.cursor
    assert index.look() == {}
    assert index.cursor == before

    (record,) = add(engine, me, "the first")

    assert set(index.look()) == {record.id}


def test_a_follower_of_one_kind_is_not_disturbed_by_another(engine: Engine, index: Follower, me: Person) -> None:
    add(engine, me, "one")
    index.look()
    cursor = index.cursor

    add(engine, me, "Ann", kind=MemoryType.ENTITY)

    index.look()
    assert (index.cursor, len(index.rows)) == (cursor, 1)


# --- what is seen ------------------------------------------------------------------------------------------------


def test_a_row_has_what_the_index_needs(engine: Engine, index: Follower, me: Person) -> None:
    made = entry(
        me,
        agent_id="planner",
        session_id="sess_1",
        metadata={"tags": ["ä", 1, True, None]},
        updated_at=NOW + 3,
        vectors=b"\x01\x02\x03\x04",
    )
    engine.records.insert(me.subject, LONG_TERM, [made], prune=False, now=NOW)
    set_rule(engine.rules, me.tenant, "long_term", Terms(archive_after=7, delete_after=9))

    (row,) = index.look().values()

    assert (row.id, row.agent_id, row.session_id) == (made.record.id, "planner", "sess_1")
    assert (row.created_at, row.updated_at, row.hidden_from) == (NOW, NOW + 3, NOW + 9)
    assert row.archived_from == NOW + 7
    assert json.loads(row.metadata) == made.record.metadata
    assert (row.vectors, row.terms) == (made.encoding.vectors, made.encoding.terms)


def test_a_whole_scope_says_the_same_of_each_record_as_one_by_one(
    engine: Engine, index: Follower, me: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_feed, "_PAGE", 4)
    monkeypatch.setattr(stored_feed, "_MANY", 4)
    set_rule(engine.rules, me.tenant, "long_term", Terms(archive_after=7, delete_after=9))
    add(engine, me, "first")
    index.look()
    gone = add(engine, me, *(f"gone {number}" for number in range(30)))
    plain, *_ = add(engine, me, "plain", "twice", "twice")
    add(engine, me, "in a session", agent_id="planner", session_id="sess_ä", metadata={"of": ["ä", "a\x1fb", None]})
    add(engine, me, "of another model", vectors=b"\x01\x02\x03\x04", model=OTHER_MODEL)
    add(engine, me, "long", vectors=b"\x00\x3c" * 6)
    add(engine, me, "lives by its own wish", ttl=5)
    add(engine, me, "of another day", dated_at=NOW - 11)
    kept = add(engine, me, "archived, with terms")
    add(engine, me, "")
    index.look()
    moves = [move(record, State.RECYCLED) for record in gone] + [move(record, State.ARCHIVED) for record in kept]
    engine.records.transition(me.subject, moves, now=NOW)
    engine.records.replace(changed(plain, content="fancy"))
    followed = index.look()
    assert (len(followed), index.reloads) == (11, 1)

    whole = engine.feed.changes(me.scope(), LONG_TERM, None, model=MODEL, read=lambda rows: rows)

    assert {row.id: row for page in whole.pages for row in page} == followed
    packed = [page for page in whole.pages if isinstance(page, PackedRows)]
    assert sum(page.count for page in packed) == len(followed) - 1, "the one without terms is by itself"


def test_a_second_reader_that_sees_a_later_state_is_not_believed(
    engine: Engine, elsewhere: Engine, me: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LateReader(Thread):
        def start(self) -> None:
            bring(elsewhere.records, me, records[-1].id, State.RECYCLED)
            super().start()

    monkeypatch.setattr(stored_feed, "_MANY", 4)
    monkeypatch.setattr(stored_feed, "Thread", LateReader)
    records = add(engine, me, *(f"memory {number}" for number in range(9)))

    first = engine.feed.changes(me.scope(), LONG_TERM, None, model=MODEL, read=list)

    assert [row.id for page in first.pages for row in page] == [record.id for record in records]
    late = engine.feed.changes(me.scope(), LONG_TERM, first.cursor, model=MODEL, read=list)
    assert late.gone in ([records[-1].id], []), "an engine may have no second reader"


def test_adds_are_seen(engine: Engine, index: Follower, me: Person) -> None:
    index.look()
    (one,) = add(engine, me, "one")
    assert set(index.look()) == {one.id}
    (two,) = add(engine, me, "two")
    assert set(index.look()) == {one.id, two.id}


def test_only_what_is_new_is_read_again(engine: Engine, me: Person) -> None:
    add(engine, me, "one", "two")
    cursor = engine.feed.changes(me.scope(), LONG_TERM, None, model=MODEL, read=list).cursor
    (three,) = add(engine, me, "three")

    changes = engine.feed.changes(me.scope(), LONG_TERM, cursor, model=MODEL, read=list)

    assert (changes.reload, [row.id for page in changes.pages for row in page], changes.gone) == (False, [three.id], [])


def test_updates_are_seen(engine: Engine, index: Follower, me: Person) -> None:
    one, two = add(engine, me, "one", "two")
    index.look()

    engine.records.replace(changed(one, content="uno", metadata={"lang": "es"}, updated_at=NOW + 1))

    rows = index.look()
    assert json.loads(rows[one.id].metadata) == {"lang": "es"}
    assert (rows[one.id].terms, rows[one.id].vectors, rows[one.id].updated_at) == (b"uno", b"\x00\x00\x00\x3c", NOW + 1)
    assert rows[two.id].terms == b"two"
    assert index.reloads == 1


@pytest.mark.parametrize("state", State)
def test_moves_are_seen(engine: Engine, index: Follower, me: Person, state: State) -> None:
    one, two = add(engine, me, "one", "two")
    index.look()

    bring(engine.records, me, one.id, state)

    rows = index.look()
    assert set(rows) == ({one.id, two.id} if state in LIVE else {two.id})
    if state in LIVE:
        assert (rows[one.id].archived_from == 0) is (state is State.ARCHIVED)


def test_a_restore_is_seen(engine: Engine, index: Follower, me: Person) -> None:
    (one,) = add(engine, me, "one")
    index.look()
    binned = bring(engine.records, me, one.id, State.RECYCLED)
    assert index.look() == {}

    engine.records.transition(me.subject, [move(binned, State.ACTIVE)], now=NOW)

    (row,) = index.look().values()
    assert (row.id, row.terms, row.vectors) == (one.id, b"one", b"\x00\x3c\x00\x00")


def test_a_prune_is_seen(engine: Engine, index: Follower, me: Person) -> None:
    engine.records.set_quota(me.tenant, me.user_id, LONG_TERM, {"max_memories": 2})
    (one,) = add(engine, me, "one", at=NOW - 1)
    (two,) = add(engine, me, "two")
    index.look()
    three = entry(me, "three")
    engine.records.insert(me.subject, LONG_TERM, [three], prune=True, now=NOW)

    assert set(index.look()) == {two.id, three.record.id}
    assert there(engine.records, me, one.id).state is State.RECYCLED


def test_what_came_and_went_between_two_looks_is_not_there(engine: Engine, index: Follower, me: Person) -> None:
    index.look()
    (one,) = add(engine, me, "one")
    bring(engine.records, me, one.id, State.RECYCLED)

    assert index.look() == {}


def test_several_changes_between_two_looks_add_up(engine: Engine, index: Follower, me: Person) -> None:
    (one,) = add(engine, me, "one")
    index.look()
    engine.records.replace(changed(one, content="two"))
    engine.records.replace(changed(there(engine.records, me, one.id), content="three"))
    bring(engine.records, me, one.id, State.ARCHIVED)

    (row,) = index.look().values()

    assert (row.terms, row.archived_from == 0) == (b"three", True)


def test_a_write_that_was_refused_is_not_seen(engine: Engine, index: Follower, me: Person) -> None:
    (one,) = add(engine, me, "one")
    index.look()
    cursor = index.cursor
    assert engine.records.replace(changed(replace(one, version=7), content="stale")) is None

    index.look()
    assert (index.rows[one.id].terms, index.cursor) == (b"one", cursor)


def test_what_another_process_did_is_seen_at_once(
    engine: Engine, elsewhere: Engine, index: Follower, me: Person
) -> None:
    one, two = add(engine, me, "one", "two")
    index.look()

    bring(elsewhere.records, me, one.id, State.RECYCLED)
    elsewhere.records.replace(changed(two, content="changed there"))
    (three,) = add(elsewhere, me, "three")

    assert {row.id: row.terms for row in index.look().values()} == {two.id: b"changed there", three.id: b"three"}


# --- followers ---------------------------------------------------------------------------------------------------


def test_two_followers_each_see_everything_at_their_own_pace(engine: Engine, elsewhere: Engine, me: Person) -> None:
    quick, slow = (Follower(where.feed, me.scope(), LONG_TERM) for where in (engine, elsewhere))
    one, two = add(engine, me, "one", "two")
    quick.look()
    slow.look()
    bring(engine.records, me, one.id, State.RECYCLED)
    quick.look()
    (three,) = add(engine, me, "three")
    engine.records.replace(changed(two, content="zwei"))
    quick.look()

    assert slow.look() == quick.rows
    assert set(slow.rows) == {two.id, three.id}


def test_a_follower_far_behind_catches_up(engine: Engine, index: Follower, me: Person) -> None:
    one, two, three = add(engine, me, "one", "two", "three")
    index.look()
    bring(engine.records, me, three.id, State.RECYCLED)
    for n in range(600):
        assert engine.records.replace(changed(there(engine.records, me, one.id), content=f"version {n}"))

    assert {row.id: row.terms for row in index.look().values()} == {one.id: b"version 599", two.id: b"two"}
    cursor = index.cursor
    index.look()
    assert index.cursor == cursor, "and is then up to date"


def test_a_follower_catches_up_with_a_change_of_very_many_records(engine: Engine, index: Follower, me: Person) -> None:
    records = add(engine, me, *(f"memory {n}" for n in range(2_500)))
    assert len(index.look()) == 2_500

    moves = [move(record, State.RECYCLED) for record in records[1:]]
    assert engine.records.transition(me.subject, moves, now=NOW) == [Outcome.DONE] * 2_499
    assert set(index.look()) == {records[0].id}

    engine.records.replace(changed(records[0], content="still followed"))
    assert index.look()[records[0].id].terms == b"still followed"


# --- scopes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PER_AGENT, ids=lambda kind: str(kind.name))
def test_an_agent_follows_its_own_records_where_the_kind_is_per_agent(engine: Engine, me: Person, kind: Kind) -> None:
    mine = Follower(engine.feed, me.scope("agent"), kind)
    theirs = Follower(engine.feed, me.scope("agent_2"), kind)
    (one,) = add(engine, me, "one", kind=kind.name, agent_id="agent")
    (two,) = add(engine, me, "two", kind=kind.name, agent_id="agent_2")
    assert (set(mine.look()), set(theirs.look())) == ({one.id}, {two.id})

    add(engine, me, "three", kind=kind.name, agent_id="agent_2")
    engine.records.replace(changed(two, content="zwei"))
    cursor = mine.cursor
    changes = engine.feed.changes(me.scope("agent"), kind, cursor, model=MODEL, read=list)

    assert (changes.reload, changes.pages, changes.gone) == (False, [], []), "another agent's records never appear"
    assert theirs.look()[two.id].terms == b"zwei"
    assert len(theirs.rows) == 2

    bring(engine.records, me, one.id, State.RECYCLED)
    assert mine.look() == {}
    assert len(theirs.look()) == 2

    zwei = there(engine.records, me, two.id)
    engine.feed.embed(me.subject, kind, [(two.id, zwei.version, Encoding(MODEL, b"v", b""))])
    for ended in (False, True):  # a page has at least one row, also where all that is read is another's
        whole = engine.feed.changes(me.scope("agent"), kind, None, model=MODEL, read=list, ended=ended)
        assert whole.pages == []


@pytest.mark.parametrize("kind", SHARED, ids=lambda kind: str(kind.name))
def test_agents_share_the_records_of_the_other_kinds(engine: Engine, me: Person, kind: Kind) -> None:
    (one,) = add(engine, me, "one", kind=kind.name, agent_id="agent")
    (two,) = add(engine, me, "two", kind=kind.name, agent_id="agent_2")

    assert set(Follower(engine.feed, me.scope("agent_3", "sess"), kind).look()) == {one.id, two.id}


@pytest.mark.parametrize("user_id", ["user_12", "user_1234", "USER_123", "user_123/a", "%"])
def test_other_peoples_writes_never_appear(engine: Engine, index: Follower, me: Person, user_id: str) -> None:
    (one,) = add(engine, me, "one")
    index.look()
    cursor = index.cursor

    for stranger in (me.other(user_id), Person(me.tenant + "2", me.user_id)):
        (theirs, gone) = add(engine, stranger, "theirs", "gone")
        engine.records.replace(changed(theirs, content="changed"))
        bring(engine.records, stranger, gone.id, State.RECYCLED)

    assert set(index.look()) == {one.id}
    assert index.cursor == cursor


# --- agents that were removed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PER_AGENT, ids=lambda kind: str(kind.name))
def test_the_records_of_a_removed_agent_are_gone_at_once_and_back_when_it_is(
    engine: Engine, elsewhere: Engine, me: Person, kind: Kind
) -> None:
    mine, theirs = (Follower(engine.feed, me.scope(agent), kind) for agent in ("agent", "agent_2"))
    (one,) = add(engine, me, "one", kind=kind.name, agent_id="agent")
    (two,) = add(engine, me, "two", kind=kind.name, agent_id="agent_2")
    assert (set(mine.look()), set(theirs.look())) == ({one.id}, {two.id})
    elsewhere.registry.put(me.tenant, "agent", "agent", description="", metadata={}, now=NOW)
    assert set(mine.look()) == {one.id}

    elsewhere.registry.remove(me.tenant, "agent", "agent", now=NOW, reason="retired", bundle="b")
    assert (mine.look(), set(theirs.look())) == ({}, {two.id})
    cursor = mine.cursor
    assert mine.look() == {}
    assert mine.cursor == cursor
    stranger = Person(me.tenant + "x", me.user_id)
    (other,) = add(engine, stranger, "another tenant's", kind=kind.name)
    assert set(Follower(engine.feed, stranger.scope(), kind).look()) == {other.id}

    elsewhere.registry.restore(me.tenant, "agent", "agent", now=NOW)
    assert set(mine.look()) == {one.id}


@pytest.mark.parametrize("kind", [kind for kind in TYPES.values() if kind.durable], ids=lambda kind: str(kind.name))
def test_nothing_is_written_for_a_removed_agent(engine: Engine, me: Person, kind: Kind) -> None:
    engine.registry.put(me.tenant, "agent", "agent", description="", metadata={}, now=NOW)
    engine.registry.remove(me.tenant, "agent", "agent", now=NOW, reason="retired", bundle="b")

    with pytest.raises(AgentRemovedError, match="'agent' is in the recycle bin"):
        add(engine, me, "one", kind=kind.name)
    assert len(add(engine, me, "two", kind=kind.name, agent_id="agent_2")) == 1


# --- models ------------------------------------------------------------------------------------------------------


def test_vectors_of_another_model_are_not_shown(engine: Engine, me: Person) -> None:
    add(engine, me, "one")
    add(engine, me, "two", model=OTHER_MODEL, vectors=b"bbbb")
    add(engine, me, "three", model=None, vectors=None)

    def seen(model: str) -> dict[bytes, bytes | None]:
        rows = Follower(engine.feed, me.scope(), LONG_TERM, model=model).look().values()
        return {row.terms: row.vectors for row in rows}

    assert seen(MODEL) == {b"one": b"\x00\x3c\x00\x00", b"two": None, b"three": None}
    assert seen(OTHER_MODEL) == {b"one": None, b"two": b"bbbb", b"three": None}
    assert set(seen("a model never seen").values()) == {None}


def test_a_record_without_terms_is_shown_with_its_text(engine: Engine, index: Follower, me: Person) -> None:
    short, long, other = add(engine, me, "Ann", "Ann likes tea. " * 200, "with terms")
    assert {row.text for row in index.look().values()} == {None}

    bare = Encoding(MODEL, b"v", b"")
    engine.feed.embed(me.subject, LONG_TERM, [(record.id, record.version, bare) for record in (short, long)])

    expected = {short.id: short.content, long.id: long.content, other.id: None}
    assert {row.id: row.text for row in index.look().values()} == expected, "as one of a few that changed"
    again = Follower(engine.feed, me.scope(), LONG_TERM).look()
    assert {row.id: row.text for row in again.values()} == expected, "as one of all"


def test_what_a_model_has_not_embedded_is_listed(engine: Engine, me: Person) -> None:
    add(engine, me, "one")
    (two,) = add(engine, me, "two", model=OTHER_MODEL)
    (three,) = add(engine, me, "three", model=None, vectors=None)
    (four,) = add(engine, me, "four", model=None, vectors=None)
    bring(engine.records, me, four.id, State.RECYCLED)
    (five,) = add(engine, me, "five", model=None, vectors=None)
    archived = bring(engine.records, me, five.id, State.ARCHIVED)
    add(engine, me, "Ann", kind=MemoryType.ENTITY, model=None, vectors=None)
    add(engine, me.other("other"), "theirs", model=None, vectors=None)

    def unembedded(model: str, limit: int = 10) -> list[Record]:
        return engine.feed.unembedded(me.subject, LONG_TERM, model=model, limit=limit)

    assert {record.id: record for record in unembedded(MODEL)} == {two.id: two, three.id: three, five.id: archived}
    assert len(unembedded("a model never seen")) == 4
    assert len(unembedded("a model never seen", limit=3)) == 3
    assert engine.feed.unembedded(me.other("nobody").subject, LONG_TERM, model=MODEL, limit=10) == []


def test_embedding_gives_records_vectors_and_followers_see_it(engine: Engine, me: Person) -> None:
    one, two = add(engine, me, "one", "two")
    index = Follower(engine.feed, me.scope(), LONG_TERM, model=OTHER_MODEL)
    index.look()

    encodings = [(one.id, one.version, Encoding(OTHER_MODEL, b"bbbb", b"uno"))]
    assert engine.feed.embed(me.subject, LONG_TERM, iter(encodings)) == 1

    rows = index.look()
    assert (rows[one.id].vectors, rows[one.id].terms) == (b"bbbb", b"uno")
    assert rows[two.id].vectors is None
    assert engine.feed.unembedded(me.subject, LONG_TERM, model=OTHER_MODEL, limit=9) == [two]
    assert there(engine.records, me, one.id) == one, "an embedding is not a change of the record"


def test_embedding_passes_over_what_changed_meanwhile(engine: Engine, index: Follower, me: Person) -> None:
    one, two, three = add(engine, me, "one", "two", "three")
    index.look()
    engine.records.replace(changed(one, content="uno"))
    bring(engine.records, me, two.id, State.RECYCLED)
    fresh = [(record.id, record.version, Encoding(MODEL, b"new!", b"old text")) for record in (one, two, three)]
    unknown = (entry(me).record.id, 1, Encoding(MODEL, b"new!", b"x"))

    assert engine.feed.embed(me.subject, LONG_TERM, [*fresh, unknown]) == 1

    assert {row.terms: row.vectors for row in index.look().values()} == {
        b"uno": b"\x00\x00\x00\x3c",
        b"old text": b"new!",
    }
    assert set(index.rows) == {one.id, three.id}


# --- subjects ----------------------------------------------------------------------------------------------------


def test_the_subjects_of_a_tenant_are_its_own(engine: Engine, me: Person) -> None:
    mine = [me, me.other("a"), me.other("user/with/slashes"), me.other("ü"), me.other("0")]
    strangers = [Person(me.tenant + suffix, "x") for suffix in ("0", ".a", "-", "a")]
    for who in (*mine, *strangers):
        add(engine, who, "something")

    assert sorted(engine.feed.subjects(me.tenant)) == sorted(who.subject for who in mine)
    assert list(engine.feed.subjects("no-such-tenant")) == []


def test_the_model_that_was_adopted_last_is_the_current_one(engine: Engine, elsewhere: Engine) -> None:
    engine.feed.adopt("model-a")
    assert elsewhere.feed.is_current("model-a")

    elsewhere.feed.adopt("model-b")

    assert engine.feed.is_current("model-b")
    assert not engine.feed.is_current("model-a")
