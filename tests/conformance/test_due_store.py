"""What every ``DueStore`` does: its answers are those of looking at each record in turn."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.engines import Engine
from conformance.samples import NOW, Person, changed, entry, message, move, new_id, propose_rule, set_rule, there
from effort import times
from holdfast.core.decisions import RecordFacts, Window, windows
from holdfast.core.records import BIN, HISTORY, LIVE, TYPES, Keeping, MemoryType, Outcome, Record, State, Subject, Terms
from holdfast.core.rules import DEFAULTS, EVERY, Rule, resolve
from holdfast.core.values import DAY, SECOND
from holdfast.ports.conversations import Session
from holdfast.ports.objects import NewPack
from holdfast.ports.rules import Census, Named, Profile, Share

LONG_TERM = TYPES[MemoryType.LONG_TERM]
ALWAYS = Window(State.RECYCLED, None, NOW + 999 * DAY)
_tenants = itertools.count()


def add(
    engine: Engine, who: Person, *contents: str, kind: MemoryType = MemoryType.LONG_TERM, **fields: Any
) -> list[Record]:
    entries = [entry(who, content, kind=kind, **fields) for content in contents]
    engine.records.insert(who.subject, TYPES[kind], entries, prune=False, now=NOW)
    return [item.record for item in entries]


def profile_of(engine: Engine, who: Person, kind: str) -> Profile:
    """The one profile that a tenant has for a kind."""
    (found,) = [profile for profile in engine.dues.profiles(who.tenant) if profile.kind == kind]
    return found


def all_due(
    engine: Engine, profile: Profile, state: State, window: Window, *, page: int = 999, tags: bool = True
) -> list[RecordFacts]:
    """Everything in a window, page by page."""
    found, last = engine.dues.due(profile, state, window, limit=page, tags=tags)
    seen = list(found)
    while found:
        assert len(found) <= page
        found, last = engine.dues.due(profile, state, window, after=last, limit=page, tags=tags)
        seen += found
    return seen


def all_binned(engine: Engine, tenant: str, now: int, *, page: int = 999, sessions: bool = False) -> list[RecordFacts]:
    found, last = engine.dues.binned(tenant, now, limit=page, tags=True, sessions=sessions)
    seen = list(found)
    while found:
        assert len(found) <= page
        found, last = engine.dues.binned(tenant, now, after=last, limit=page, tags=True, sessions=sessions)
        seen += found
    return seen


def named_by(rule: Rule) -> Named:
    scope = (rule.user_id, rule.agent_id, rule.session_id, rule.memory_id)
    return Named(*(frozenset() if part is None else frozenset({part}) for part in scope))


def shared(shares: Sequence[Share], rule: Rule) -> tuple[int, int]:
    """How much of what is shared out a rule selects."""
    selected = [share for share in shares if rule.selects(*share.thing[:4])]
    return sum(share.records for share in selected), sum(share.bytes for share in selected)


# --- against a look at every record ---------------------------------------------------------------------------------

USERS, AGENTS = ("ann", "bob"), ("planner", "writer")
KINDS = (MemoryType.LONG_TERM, MemoryType.EPISODIC, MemoryType.STRUCTURED, MemoryType.PERSONA)
#: Ages at which something happens, and just before, by the rules that are drawn and by the defaults.
AGES = (*range(7), *(days * DAY - before for days in (90, 180, 365) for before in (0, 1)))
STATES = (State.ACTIVE, State.ACTIVE, State.ARCHIVED, State.RECYCLED, State.DELETING)


class Item(NamedTuple):
    """A record that is drawn."""

    user: str
    kind: MemoryType
    agent: str
    session: str | None
    age: int
    size: int
    state: State
    purge_in: int


class Law(NamedTuple):
    """A rule that is drawn; ``memory`` is the place of a record that it is for."""

    kind: str
    user: str | None
    agent: str | None
    session: str | None
    memory: int | None
    terms: Terms


Items = st.builds(
    Item,
    st.sampled_from(USERS),
    st.sampled_from(KINDS),
    st.sampled_from(AGENTS),
    st.sampled_from([None, "s"]),
    st.sampled_from(AGES),
    st.integers(1, 9),
    st.sampled_from(STATES),
    st.integers(-1, 2),
)
Times = st.none() | st.integers(1, 6)
Laws = st.builds(
    Law,
    st.sampled_from([*KINDS, EVERY]).map(str),
    st.none() | st.sampled_from(USERS),
    st.none() | st.sampled_from(AGENTS),
    st.none() | st.just("s"),
    st.none() | st.integers(0, 9),
    st.builds(Terms, Times, Times, Times, st.none() | st.integers(0, 3), Times),
)


class World:
    """A tenant with drawn records and rules, and the plain answers about it."""

    def __init__(self, engine: Engine, steps: Sequence[Item | Law]) -> None:
        self.engine = engine
        self.tenant = f"due-{next(_tenants)}"
        self.records: list[Record] = []
        self.rules: dict[str, Rule] = {}
        for step in steps:
            if isinstance(step, Item):
                self._add(step)
            else:
                self._rule(step)

    def _add(self, item: Item) -> None:
        who = Person(self.tenant, item.user)
        (record,) = add(
            self.engine,
            who,
            "x" * item.size,
            kind=item.kind,
            agent_id=item.agent,
            session_id=item.session,
            at=NOW - item.age,
            metadata={"n": len(self.records)},
        )
        if item.state is not State.ACTIVE:
            step = move(record, item.state, purge_at=NOW + item.purge_in if item.state not in LIVE else None)
            assert self.engine.records.transition(who.subject, [step], now=NOW) == [Outcome.DONE]
        self.records.append(record)

    def _rule(self, law: Law) -> None:
        scope: dict[str, Any] = {"user_id": law.user, "agent_id": law.agent, "session_id": law.session}
        if law.memory is not None and self.records:
            scope["memory_id"] = self.records[law.memory % len(self.records)].id
        named = {part: value for part, value in scope.items() if value is not None}
        rule = set_rule(self.engine.rules, self.tenant, law.kind, law.terms, **named)
        self.rules[rule.id] = rule

    def now_there(self) -> list[Record]:
        found = (self.engine.records.get(record.scope.subject, record.id) for record in self.records)
        return [record for record in found if record is not None]

    def rules_of(self, record: Record) -> list[Rule]:
        scope = record.scope
        return [
            rule
            for rule in self.rules.values()
            if rule.selects(scope.user_id, scope.agent_id, scope.session_id, record.id)
        ]

    def due(self, state: State, target: State) -> set[str]:
        """The ids of records that are due a move, from a look at each."""
        found = set()
        for record in self.now_there():
            life = resolve(record.kind, self.rules_of(record))
            for window in windows(life, state, NOW):
                inside = window.after is None or (record.aged_from or 0) > window.after
                if record.state is state and window.target is target and inside and aged(record) <= window.upto:
                    found.add(record.id)
        return found

    def windows(self) -> Iterator[tuple[Profile, State, Window]]:
        for profile in self.engine.dues.profiles(self.tenant):
            for state in LIVE:
                for window in windows(profile.life, state, NOW):
                    yield profile, state, window


def aged(record: Record) -> int:
    assert record.aged_from is not None
    return record.aged_from


def record_facts(record: Record, *, tags: bool = True) -> tuple[Any, ...]:
    """A record as the dues show it."""
    scope = record.scope
    thing = (scope.user_id, scope.agent_id, scope.session_id, record.id, record.metadata if tags else {})
    size = len(record.content.encode())
    known = (record.id, str(record.kind), scope.subject, thing, record.state, record.version, aged(record))
    return (*known, record.purge_at if record.state not in LIVE else None, size, record.pack is not None)


def totalled(standings: Sequence[RecordFacts]) -> dict[tuple[str, str], tuple[int, int]]:
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for standing in standings:
        counts[standing.kind, standing.subject] += 1
        sizes[standing.kind, standing.subject] += standing.size
    return {key: (counts[key], sizes[key]) for key in counts}


def counted(censuses: Sequence[Census]) -> dict[tuple[str, str], tuple[int, int]]:
    found = {(census.kind, str(census.subject)): (census.records, census.bytes) for census in censuses}
    assert len(found) == len(censuses), "each subject once"
    return found


STEPS = st.lists(st.one_of(Items, Items, Items, Laws), min_size=1, max_size=14)


@settings(max_examples=times(15))
@given(steps=STEPS, page=st.integers(1, 4))
def test_what_is_due_is_what_a_look_at_every_record_finds(
    engine: Engine, elsewhere: Engine, steps: list[Item | Law], page: int
) -> None:
    world = World(engine, steps)
    known = {record.id: record for record in world.now_there()}
    for state, target in (
        (State.ACTIVE, State.ARCHIVED),
        (State.ACTIVE, State.RECYCLED),
        (State.ARCHIVED, State.RECYCLED),
    ):
        found = [
            standing
            for profile, of_state, window in world.windows()
            if (of_state, window.target) == (state, target)
            for standing in all_due(elsewhere, profile, state, window, page=page)
        ]
        assert len({standing.id for standing in found}) == len(found), "no record is due twice"
        assert {standing.id for standing in found} == world.due(state, target)
        assert [tuple(standing) for standing in found] == [record_facts(known[standing.id]) for standing in found]


@settings(max_examples=times(15))
@given(steps=STEPS, page=st.integers(1, 4), law=Laws)
def test_every_way_of_asking_gives_the_same(engine: Engine, steps: list[Item | Law], page: int, law: Law) -> None:
    world = World(engine, steps)
    rule = Rule("?", world.tenant, law.kind, law.terms, user_id=law.user, agent_id=law.agent, session_id=law.session)
    for profile, state, window in world.windows():
        due = all_due(engine, profile, state, window)
        assert [standing.aged_from for standing in due] == sorted(standing.aged_from for standing in due)
        assert all_due(engine, profile, state, window, page=page) == due, "paging changes nothing"
        bare = all_due(engine, profile, state, window, tags=False)
        assert [standing.thing.metadata for standing in bare] == [{}] * len(due)
        assert counted(engine.dues.census(profile, state, window)) == totalled(due)
        for agents in ((), AGENTS[:1], AGENTS):
            others = [standing for standing in due if standing.thing.agent_id not in agents]
            assert counted(engine.dues.census(profile, state, window, without=agents)) == totalled(others)
        assert engine.dues.census_of_agents(profile, state, window) == Counter(item.thing.agent_id for item in due)
        shares = engine.dues.shares(world.tenant, profile, state, window, named_by(rule))
        assert sum(share.records for share in shares) == len(due), "each of them once"
        selected = [item for item in due if rule.selects(*item.thing[:4])]
        assert shared(shares, rule) == (len(selected), sum(item.size for item in selected))
        for user in (*USERS, "nobody"):
            subject = Subject(world.tenant, user)
            seen: list[RecordFacts] = []
            found, after = engine.dues.due_of(subject, profile, state, window, limit=page, tags=True)
            while found:
                assert len(found) <= page
                seen += found
                found, after = engine.dues.due_of(subject, profile, state, window, after=after, limit=page, tags=True)
            assert sorted(seen) == sorted(item for item in due if item.subject == subject)


@settings(max_examples=times(10))
@given(steps=STEPS, page=st.integers(1, 4))
def test_what_has_had_its_time_in_the_bin_is_what_a_look_at_every_record_finds(
    engine: Engine, elsewhere: Engine, steps: list[Item | Law], page: int
) -> None:
    world = World(engine, steps)
    binned = [record for record in world.now_there() if record.purge_at is not None and record.purge_at <= NOW]

    found = all_binned(elsewhere, world.tenant, NOW, page=page)

    assert sorted(tuple(standing) for standing in found) == sorted(record_facts(record) for record in binned)
    assert [standing.purge_at for standing in found] == sorted(standing.purge_at or 0 for standing in found)
    assert counted(engine.dues.bin_census(world.tenant, NOW)) == totalled(found)
    for user in USERS:
        live = [item for item in world.now_there() if item.state in LIVE and item.scope.user_id == user]
        assert engine.dues.live(Subject(world.tenant, user)) == len(live)
    for agent in AGENTS:
        live = [item for item in world.now_there() if item.state in LIVE and item.scope.agent_id == agent]
        own = [item for item in live if "agent" in TYPES[item.kind].scope]
        assert engine.dues.live_of_agent(world.tenant, agent) == len(own)


@settings(max_examples=times(10))
@given(steps=STEPS)
def test_what_is_overdue_is_so_since_its_oldest_was_due(engine: Engine, steps: list[Item | Law]) -> None:
    world = World(engine, steps)
    expected: dict[str, int] = {}
    for record in world.now_there():
        if record.state in LIVE:
            life = resolve(record.kind, world.rules_of(record))
            after = [life.delete_after, life.archive_after if record.state is State.ACTIVE else None]
            times = [aged(record) + time for time in after if time is not None]
            due, kind = min(times, default=NOW + 1), str(record.kind)
        else:
            due, kind = (NOW + 1 if record.purge_at is None else record.purge_at), "bin"
        if due <= NOW:
            expected[kind] = min(due, expected.get(kind, due))

    found: dict[str, int] = {}
    for kind, since in engine.dues.overdue_since(world.tenant, NOW):
        found[kind] = min(since, found.get(kind, since))
    assert found == expected


# --- boundaries -----------------------------------------------------------------------------------------------------


def test_a_record_is_due_from_the_very_instant(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one", kind=MemoryType.EPISODIC)
    profile = profile_of(engine, me, "episodic")

    def moves(now: int) -> list[State]:
        return [
            window.target
            for window in windows(profile.life, State.ACTIVE, now)
            if record.id in {item.id for item in all_due(engine, profile, State.ACTIVE, window)}
        ]

    assert moves(NOW + 90 * DAY - 1) == []
    assert moves(NOW + 90 * DAY) == [State.ARCHIVED]
    assert moves(NOW + 365 * DAY - 1) == [State.ARCHIVED]
    assert moves(NOW + 365 * DAY) == [State.RECYCLED], "its last move, not both"


def test_the_bin_is_over_from_the_very_instant(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    engine.records.transition(me.subject, [move(record, State.RECYCLED, purge_at=NOW + BIN)], now=NOW)

    assert all_binned(engine, me.tenant, NOW + BIN - 1) == []
    assert engine.dues.bin_census(me.tenant, NOW + BIN - 1) == []
    assert [item.id for item in all_binned(engine, me.tenant, NOW + BIN)] == [record.id]


@pytest.mark.parametrize("moment", [-(2**62), -1, 0, 2**61])
def test_moments_far_from_ours_are_moments_too(engine: Engine, me: Person, moment: int) -> None:
    (record,) = add(engine, me, "one", at=moment)
    profile = profile_of(engine, me, "long_term")
    assert [
        item.id for item in all_due(engine, profile, State.ACTIVE, Window(State.ARCHIVED, None, moment), page=1)
    ] == [record.id]
    assert all_due(engine, profile, State.ACTIVE, Window(State.ARCHIVED, moment, moment + 9)) == []


@pytest.mark.parametrize("page", [1, 2, 3, 5])
def test_pages_follow_one_another_whatever_the_order_in_which_records_were_made(
    engine: Engine, me: Person, page: int
) -> None:
    ages = (5, 1, 3, 3, 9, 1, 7, 3, 5, 1)
    records = [add(engine, who, "x", at=NOW - age)[0] for age in ages for who in (me, me.other("other"))]
    profile, window = profile_of(engine, me, "long_term"), Window(State.ARCHIVED, None, NOW)
    order = {record.id: place for place, record in enumerate(records)}

    found = all_due(engine, profile, State.ACTIVE, window, page=page)

    assert [item.aged_from for item in found] == sorted(record.dated_at for record in records)
    assert sorted(order[item.id] for item in found) == list(range(len(records))), "each of them once"
    for record in records:
        subject = record.scope.subject
        engine.records.transition(subject, [move(record, State.RECYCLED, purge_at=record.dated_at)], now=NOW)
    binned = all_binned(engine, me.tenant, NOW, page=page)
    assert [item.id for item in binned] == [item.id for item in found]


@pytest.mark.parametrize(
    ("scope", "selected"),
    [
        ({}, "abcd"),
        ({"user_id": "user_123"}, "abc"),
        ({"user_id": "nobody"}, ""),
        ({"agent_id": "planner"}, "bd"),
        ({"session_id": "s"}, "c"),
        ({"user_id": "user_123", "agent_id": "planner"}, "b"),
        ({"user_id": "other", "session_id": "s"}, ""),
        ({"memory_id": "a"}, "a"),
    ],
    ids=str,
)
def test_what_is_in_a_window_is_parted_by_what_a_rule_names(
    engine: Engine, me: Person, scope: dict[str, Any], selected: str
) -> None:
    records = {
        "a": add(engine, me, "a")[0],
        "b": add(engine, me, "bb", agent_id="planner")[0],
        "c": add(engine, me, "ccc", session_id="s")[0],
        "d": add(engine, me.other("other"), "dddd", agent_id="planner")[0],
    }
    if "memory_id" in scope:
        scope = {"memory_id": records[scope["memory_id"]].id}
    rule = Rule("?", me.tenant, "long_term", Terms(delete_after=1), **scope)
    profile = profile_of(engine, me, "long_term")

    size = sum(len(records[name].content) for name in selected)
    shares = engine.dues.shares(me.tenant, profile, State.ACTIVE, ALWAYS, named_by(rule))
    assert shared(shares, rule) == (len(selected), size)
    assert sum(share.records for share in shares) == 4
    assert len(shares) <= 2 ** len(scope), "what is not named is not told apart"
    assert engine.dues.shares(me.tenant, profile, State.ARCHIVED, ALWAYS, named_by(rule)) == []
    later = Window(State.RECYCLED, NOW, NOW + 1)
    assert engine.dues.shares(me.tenant, profile, State.ACTIVE, later, named_by(rule)) == []


# --- profiles -------------------------------------------------------------------------------------------------------


def test_profiles_say_what_their_rules_come_to_now(engine: Engine, elsewhere: Engine, me: Person) -> None:
    add(engine, me, "one", session_id="s")
    wide = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=9 * DAY))
    narrow = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=5 * DAY), session_id="s")
    add(engine, me, "two")
    pending = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=DAY), user_id=me.user_id)
    assert sum(engine.rules.assign(pending)) == 2

    for profile in elsewhere.dues.profiles(me.tenant):
        assert profile.life == resolve("long_term", profile.rules)
        assert {rule.id for rule in profile.rules} >= {wide.id}
    counts = {
        profile.life.delete_after: sum(census.records for census in engine.dues.census(profile, State.ACTIVE, ALWAYS))
        for profile in elsewhere.dues.profiles(me.tenant)
        if engine.dues.census(profile, State.ACTIVE, ALWAYS)
    }
    assert counts == {9 * DAY: 1, 5 * DAY: 1}, "what is pending says nothing yet"
    assert narrow.version == 1


def test_a_tenant_is_known_once_something_of_it_was_kept(engine: Engine, me: Person) -> None:
    assert me.tenant not in engine.dues.tenants()
    assert engine.dues.profiles(me.tenant) == []
    add(engine, me, "one")
    assert engine.dues.tenants().count(me.tenant) == 1
    assert [profile.kind for profile in engine.dues.profiles(me.tenant)] == ["long_term"]


def test_tenants_are_kept_apart(engine: Engine, me: Person) -> None:
    strangers = [Person(me.tenant + suffix, me.user_id) for suffix in ("0", ".", "x")]
    for who in (me, *strangers):
        record, _ = add(engine, who, "one", "two", at=NOW - 400 * DAY)
        engine.records.transition(who.subject, [move(record, State.RECYCLED, purge_at=NOW)], now=NOW)
        add(engine, who, "who I am", kind=MemoryType.PERSONA)
    profile = profile_of(engine, me, "long_term")

    assert [census.subject for census in engine.dues.census(profile, State.ACTIVE, ALWAYS)] == [me.subject]
    assert [item.subject for item in all_due(engine, profile, State.ACTIVE, ALWAYS)] == [me.subject]
    assert [census.subject for census in engine.dues.bin_census(me.tenant, NOW)] == [me.subject]
    assert [item.subject for item in all_binned(engine, me.tenant, NOW)] == [me.subject]
    assert engine.dues.live_of_agent(me.tenant, "agent") == 1
    assert engine.dues.live(me.subject) == 2


def test_nothing_of_another_tenants_is_overdue(engine: Engine, me: Person) -> None:
    stranger = Person(me.tenant + "x", me.user_id)
    record, _ = add(engine, stranger, "one", "two", at=NOW - 400 * DAY)
    engine.records.transition(stranger.subject, [move(record, State.RECYCLED, purge_at=NOW)], now=NOW)
    add(engine, me, "mine")

    assert list(engine.dues.overdue_since(me.tenant, NOW)) == []
    assert dict(engine.dues.overdue_since(stranger.tenant, NOW)) == {"long_term": NOW - 35 * DAY, "bin": NOW}


# --- marks ----------------------------------------------------------------------------------------------------------


def test_the_marks_stay_while_nothing_changes_and_are_the_same_for_all(
    engine: Engine, elsewhere: Engine, me: Person
) -> None:
    add(engine, me, "one", "two")
    profile = profile_of(engine, me, "long_term")
    first = engine.dues.census(profile, State.ACTIVE, ALWAYS)
    add(engine, me.other("other"), "someone else's")
    assert engine.dues.census(profile, State.ACTIVE, ALWAYS)[:1] == first
    assert elsewhere.dues.census(profile, State.ACTIVE, ALWAYS)[:1] == first


def test_the_marks_change_when_any_record_does(engine: Engine, me: Person) -> None:
    records = add(engine, me, *(f"memory {n}" for n in range(20)))
    profile = profile_of(engine, me, "long_term")
    seen: list[tuple[int, int]] = []

    def note() -> None:
        (census,) = engine.dues.census(profile, State.ACTIVE, ALWAYS)
        seen.append((census.mark, census.check_mark))

    note()
    for record in records:
        assert engine.records.replace(changed(there(engine.records, me, record.id), content=record.content))
        note()
    for record in records[:10]:  # one leaves, one comes: as many and as much as before
        engine.records.transition(me.subject, [move(there(engine.records, me, record.id), State.RECYCLED)], now=NOW)
        add(engine, me, record.content)
        note()

    assert len({mark for mark, _ in seen}) == len({mark for _, mark in seen}) == len(seen)


def test_the_marks_of_the_bin_change_when_any_record_of_it_does(engine: Engine, me: Person) -> None:
    records = add(engine, me, *(f"memory {n}" for n in range(10)))
    steps = [move(record, State.RECYCLED, purge_at=NOW) for record in records]
    engine.records.transition(me.subject, steps, now=NOW)
    seen = set()
    for record in records:
        (census,) = engine.dues.bin_census(me.tenant, NOW)
        assert census.records == 10
        seen.add((census.mark, census.check_mark))
        for target in (State.ACTIVE, State.RECYCLED):  # out and back: the same record, another version
            step = move(
                there(engine.records, me, record.id), target, purge_at=NOW if target is State.RECYCLED else None
            )
            engine.records.transition(me.subject, [step], now=NOW)
    assert len({mark for mark, _ in seen}) == len({mark for _, mark in seen}) == 10


# --- where part of it lies ------------------------------------------------------------------------------------------


def test_a_standing_says_whether_part_of_it_lies_elsewhere(engine: Engine, me: Person) -> None:
    cold, warm = add(engine, me, "cold", "warm")
    (number,) = engine.packs.open([NewPack(me.subject, None, new_id(), 1, 9, b"d")], now=NOW)
    kept = engine.records.entries(me.subject, [cold.id])[cold.id].encoding
    steps = [move(cold, State.ARCHIVED, keeping=Keeping("c", None, {}, kept, number)), move(warm, State.ARCHIVED)]
    engine.records.transition(me.subject, steps, now=NOW)
    profile = profile_of(engine, me, "long_term")
    found = {item.id: item.elsewhere for item in all_due(engine, profile, State.ARCHIVED, ALWAYS)}
    assert found == {cold.id: True, warm.id: False}

    for record in (cold, warm):
        engine.records.transition(me.subject, [move(there(engine.records, me, record.id), State.RECYCLED)], now=NOW)
    assert {item.id: item.elsewhere for item in all_binned(engine, me.tenant, NOW + BIN)} == found


# --- conversations --------------------------------------------------------------------------------------------------


def talk(engine: Engine, who: Person, session_id: str | None, *, at: int, agent_id: str = "agent") -> Session:
    scope = who.scope(agent_id, session_id)
    engine.history.append(scope, [message("hello", at=at)], now=at, summarize=lambda summary, new: summary)
    found = engine.history.find(scope, now=at)
    assert found is not None
    return found


def test_conversations_are_due_as_records_are(engine: Engine, me: Person) -> None:
    other = me.other("other")
    sessions = [
        talk(engine, me, "a", at=NOW - 3),
        talk(engine, me, None, at=NOW - 2, agent_id="planner"),
        talk(engine, other, "b", at=NOW - 2),
        talk(engine, me, "c", at=NOW),
    ]
    set_rule(engine.rules, me.tenant, HISTORY, Terms(delete_after=2))
    profile = profile_of(engine, me, HISTORY)
    (window,) = windows(profile.life, State.ACTIVE, NOW)

    due = all_due(engine, profile, State.ACTIVE, window, page=1)

    assert [(item.id, item.subject, item.version, item.aged_from, item.size) for item in due] == [
        (session.id, session.subject, session.version, session.aged_from, session.size) for session in sessions[:3]
    ]
    assert [(item.kind, item.thing.agent_id, item.thing.session_id) for item in due] == [
        (HISTORY, "agent", "a"),
        (HISTORY, "planner", None),
        (HISTORY, "agent", "b"),
    ]
    assert all(item.elsewhere for item in due), "its messages are many, and go before it does"
    assert counted(engine.dues.census(profile, State.ACTIVE, window)) == totalled(due)
    assert counted(engine.dues.census(profile, State.ACTIVE, window, without=["planner"])) == totalled([due[0], due[2]])
    rule = Rule("?", me.tenant, HISTORY, Terms(), user_id=me.user_id)
    shares = engine.dues.shares(me.tenant, profile, State.ACTIVE, window, named_by(rule))
    assert shared(shares, rule) == (2, due[0].size + due[1].size)
    assert dict(engine.dues.overdue_since(me.tenant, NOW)) == {HISTORY: NOW - 1}


def test_conversations_in_the_bin_are_due_as_records_are(engine: Engine, elsewhere: Engine, me: Person) -> None:
    sessions = [talk(engine, me, name, at=NOW) for name in ("a", "b", "c")]
    for n, session in enumerate(sessions[:2]):
        step = move_of(session, State.RECYCLED, purge_at=NOW + 2 - n)
        assert engine.history.transition_all([(me.subject, [step])], now=NOW) == [[Outcome.DONE]]

    assert all_binned(engine, me.tenant, NOW, sessions=True) == []
    assert [item.id for item in all_binned(engine, me.tenant, NOW + 1, sessions=True)] == [sessions[1].id]
    found = all_binned(elsewhere, me.tenant, NOW + 2, page=1, sessions=True)
    assert [(item.id, item.state, item.purge_at) for item in found] == [
        (sessions[1].id, State.RECYCLED, NOW + 1),
        (sessions[0].id, State.RECYCLED, NOW + 2),
    ]
    assert counted(engine.dues.bin_census(me.tenant, NOW + 2)) == totalled(found)
    assert [session.id for session in engine.dues.binned_sessions(me.tenant, limit=9)] == [item.id for item in found]
    assert engine.dues.binned_sessions(me.tenant, me.other("other").subject, limit=9) == []
    assert len(engine.dues.binned_sessions(me.tenant, me.subject, limit=1)) == 1
    first = (NOW + 1, sessions[1].id)
    assert [one.id for one in engine.dues.binned_sessions(me.tenant, after=first, limit=9)] == [sessions[0].id]
    assert engine.dues.binned_sessions(me.tenant, me.subject, after=(NOW + 2, sessions[0].id), limit=9) == []
    assert dict(engine.dues.overdue_since(me.tenant, NOW + 1)) == {"bin": NOW + 1}


def move_of(session: Session, target: State, *, purge_at: int | None) -> Any:
    record = entry(Person("t", "u"), id=session.id, version=session.version, state=session.state).record
    return move(record, target, purge_at=purge_at)


# --- the whole store ------------------------------------------------------------------------------------------------


def test_counts_are_of_what_is_live_of_each_kind(engine: Engine, me: Person) -> None:
    def held() -> tuple[int, int]:
        return engine.dues.counts().live.get("structured", (0, 0))

    count, size = held()
    one, two, _ = add(engine, me, "one", "two", "three", kind=MemoryType.STRUCTURED)
    assert held() == (count + 3, size + 11)
    engine.records.transition(me.subject, [move(one, State.RECYCLED), move(two, State.ARCHIVED)], now=NOW)
    assert held() == (count + 2, size + 8)


def test_ages_are_counted_between_bounds(engine: Engine, me: Person) -> None:
    made = [NOW, NOW - 9, NOW - 10, NOW - 11, NOW - 20, NOW - 21]
    records = [add(engine, me, "one", kind=MemoryType.ENTITY, at=at)[0] for at in made]
    (gone,) = add(engine, me, "gone", kind=MemoryType.ENTITY)
    engine.records.transition(me.subject, [move(gone, State.RECYCLED), move(records[1], State.ARCHIVED)], now=NOW)
    profile = profile_of(engine, me, "entity").number

    found = [row for row in engine.dues.ages([NOW - 10, NOW - 20], NOW) if row.profile == profile]

    assert sum(row.seconds for row in found) == sum(at // SECOND for at in made)
    assert sorted((row.state, row.place, row.records, row.first) for row in found) == [
        ("active", 0, 1, NOW - 21),
        ("active", 1, 2, NOW - 20),
        ("active", 2, 2, NOW - 10),
        ("archived", 2, 1, NOW - 9),
    ]


def test_ages_tell_which_conversation_is_the_oldest(engine: Engine, me: Person) -> None:
    for name, at in (("a", NOW - 5), ("b", NOW - 9)):
        talk(engine, me, name, at=at)
    profile = profile_of(engine, me, HISTORY).number
    (found,) = (row for row in engine.dues.ages([NOW], NOW) if row.profile == profile)
    assert (found.state, found.place, found.records, found.first) == ("active", 0, 2, NOW - 9)


def test_ages_tell_since_when_something_has_had_its_time_in_the_bin(engine: Engine, me: Person) -> None:
    def since(now: int) -> list[tuple[str, int]]:
        return sorted((row.state, row.first) for row in engine.dues.ages([], now) if row.profile == 0)

    (record,) = add(engine, me, "one")
    session = talk(engine, me, "a", at=NOW)
    moment = 7_000  # before everything that other tests put there
    engine.records.transition(me.subject, [move(record, State.RECYCLED, purge_at=moment)], now=NOW)
    engine.history.transition_all([(me.subject, [move_of(session, State.RECYCLED, purge_at=moment - 1)])], now=NOW)
    assert since(moment - 2) == []
    assert min(since(moment - 1)) == ("recycled", moment - 1)
    assert min(since(NOW)) == ("recycled", moment - 1)


def test_unused_space_is_given_back_some_at_a_time(engine: Engine, me: Person) -> None:
    records = add(engine, me, *(f"{n} " + "x" * 3_000 for n in range(100)))
    for record in records:
        engine.records.transition(me.subject, [move(record, State.RECYCLED)], now=NOW)
        engine.records.transition(me.subject, [move(there(engine.records, me, record.id), State.DELETED)], now=NOW)

    left = engine.dues.give_back(1)
    while left:
        before, left = left, engine.dues.give_back(50)
        assert left < before
    assert engine.dues.give_back(50) == 0


def test_the_defaults_are_the_drawn_ages() -> None:
    ages = [DEFAULTS[kind]._replace(versions=None) for kind in KINDS]  # which is a count
    found = {time for terms in ages for time in terms if time is not None and time < 2**60}
    assert found <= set(AGES)
