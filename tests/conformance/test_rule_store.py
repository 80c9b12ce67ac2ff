"""What every ``RuleStore`` does: a rule takes effect at once for all its records, for reads and sweeps alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.engines import Engine
from conformance.samples import (
    MODEL,
    NOW,
    Follower,
    Person,
    bring,
    entry,
    message,
    move,
    new_id,
    propose_rule,
    ruled,
    set_rule,
    settle_rule,
    there,
)
from holdfast.core.audit import Action, Event
from holdfast.core.decisions import windows
from holdfast.core.records import DURABLE, HISTORY, TYPES, MemoryType, Outcome, Record, Scope, State, Subject, Terms
from holdfast.core.rules import DEFAULTS, EVERY, Rule, Selection, labels_of, resolve
from holdfast.core.values import DAY, FOREVER
from holdfast.ports.rules import RuleStore

LONG_TERM = TYPES[MemoryType.LONG_TERM]


@pytest.fixture
def rules(engine: Engine) -> RuleStore:
    return engine.rules


def add(
    engine: Engine, who: Person, *contents: str, kind: MemoryType = MemoryType.LONG_TERM, **fields: Any
) -> list[Record]:
    entries = [entry(who, content, kind=kind, **fields) for content in contents]
    engine.records.insert(who.subject, TYPES[kind], entries, prune=False, now=NOW)
    return [item.record for item in entries]


def assign_all(rules: RuleStore, rule: Rule) -> int:
    return sum(rules.assign(rule))


def times(engine: Engine, who: Person, record: Record) -> tuple[int | None, int | None]:
    """From when on a record is archived and hidden, from when it was made; the same by every way of reading it."""
    got = there(engine.records, who, record.id)
    kind = TYPES[record.kind]
    rows = Follower(engine.feed, record.scope, kind).look()
    assert engine.records.find(who.tenant, record.id) == got
    assert engine.records.entries(who.subject, [record.id])[record.id].record == got
    assert (rows[record.id].archived_from, rows[record.id].hidden_from) == (got.archive_at, got.hidden_from)
    if got.hidden_from is not None:
        for moment, seen in ((got.hidden_from - 1, True), (got.hidden_from, False)):
            assert (record.id in engine.records.fetch(who.subject, [record.id], now=moment)) is seen
    archive, hide = (None if at is None else at - record.dated_at for at in (got.archive_at, got.hidden_from))
    first = None if archive is not None and hide is not None and hide <= archive else archive  # gone before that
    assert due_times(engine, who, record) == (first, hide), "reads and sweeps agree"
    return archive, hide


def due_times(engine: Engine, who: Person, record: Record) -> tuple[int | None, int | None]:
    """The same as the dues know it: the record is in the window of a move from an instant on, and not before."""
    found: dict[State, int] = {}
    for profile in engine.dues.profiles(who.tenant):
        for target, after in (
            (State.ARCHIVED, profile.life.archive_after),
            (State.RECYCLED, profile.life.delete_after),
        ):
            if after is None:
                continue
            at = record.dated_at + after
            due = [_in_window(engine, profile, record.id, moment, target) for moment in (at - 1, at)]
            if any(due):
                assert due == [False, True]
                found[target] = after
    return found.get(State.ARCHIVED), found.get(State.RECYCLED)


def _in_window(engine: Engine, profile: Any, record_id: str, now: int, target: State) -> bool:
    found = [window for window in windows(profile.life, State.ACTIVE, now) if window.target is target]
    pages = [engine.dues.due(profile, State.ACTIVE, window, limit=9_999, tags=False) for window in found]
    return any(standing.id == record_id for page in pages for standing in page.records)


# --- the defaults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*DURABLE, "short_term", HISTORY, "audit"])
def test_without_a_rule_the_defaults_hold(rules: RuleStore, me: Person, kind: str) -> None:
    assert rules.rules(me.tenant) == []
    life = rules.life(kind, me.scope())
    default = DEFAULTS[kind]
    assert life.stored == default
    assert life == resolve(kind, ())


@pytest.mark.parametrize("kind", DURABLE)
def test_records_are_read_with_the_defaults(engine: Engine, me: Person, kind: MemoryType) -> None:
    (record,) = add(engine, me, "one", kind=kind)
    default = DEFAULTS[kind]
    assert times(engine, me, record) == (default.archive_after, default.delete_after)


# --- a change -----------------------------------------------------------------------------------------------------


def test_a_rule_comes_back_as_it_was_set(rules: RuleStore, elsewhere: Engine, me: Person) -> None:
    terms = Terms(archive_after=5, delete_after=FOREVER, keep_for=7)
    scope: dict[str, Any] = {"user_id": me.user_id, "agent_id": "agent", "session_id": "s/1", "memory_id": new_id()}
    wanted = Rule(new_id(), me.tenant, "long_term", Terms(), pending=terms, **scope)

    (proposed,) = rules.propose([wanted], now=NOW)
    assert proposed == Rule(wanted.id, me.tenant, "long_term", Terms(), **scope, pending=terms, updated_at=NOW)
    assert elsewhere.rules.rules(me.tenant) == [proposed]

    settled = settle_rule(rules, proposed, now=NOW + 9)
    assert settled == Rule(wanted.id, me.tenant, "long_term", terms, **scope, version=1, updated_at=NOW + 9)
    assert elsewhere.rules.rules(me.tenant) == [settled]
    assert elsewhere.rules.rules(me.tenant + "x") == []


def test_a_rule_of_the_same_kind_and_scope_is_the_same_rule(rules: RuleStore, me: Person) -> None:
    first = set_rule(rules, me.tenant, "long_term", Terms(delete_after=5), user_id="a")
    other = set_rule(rules, me.tenant, "long_term", Terms(delete_after=6), agent_id="a")
    kind = set_rule(rules, me.tenant, "entity", Terms(delete_after=7), user_id="a")

    again = set_rule(rules, me.tenant, "long_term", Terms(delete_after=8), user_id="a")

    assert (again.id, again.version, again.terms) == (first.id, 2, Terms(delete_after=8))
    assert rules.rules(me.tenant) == [again, other, kind]


# --- selections ---------------------------------------------------------------------------------------------------


def selecting(*source_types: str, keep: str = "kept") -> Any:
    return Selection(frozenset(source_types), frozenset({keep}), frozenset({7}))


def test_a_selection_is_for_records_by_their_labels_those_of_before_and_those_to_come(
    engine: Engine, elsewhere: Engine, me: Person
) -> None:
    def write() -> list[Record]:
        chosen: dict[str, Any] = {"metadata": {"source_type": "action", "context_id": 8}}
        others = [{}, {"source_type": "else"}, {"source_type": "action", "context_id": 7}, {"source_type": 3}]
        return [
            *add(engine, me, "chosen", session_id="s", **chosen),
            *add(engine, me, "kept", session_id="kept", **chosen),
            *(record for metadata in others for record in add(engine, me, "another", metadata=metadata)),
        ]

    before = write()
    default = (DEFAULTS["long_term"].archive_after, None)
    rule = propose_rule(elsewhere.rules, me.tenant, EVERY, Terms(delete_after=9), selection=selecting("action"))
    meanwhile = write()
    assert assign_all(elsewhere.rules, rule) > 0
    assert {times(engine, me, record) for record in (*before, *meanwhile)} == {default}, "it says nothing yet"
    settle_rule(elsewhere.rules, rule)
    for written in (before, meanwhile, write()):
        assert [times(engine, me, record)[1] for record in written] == [9, None, None, None, None, None]
        labels = labels_of(written[0].metadata)
        assert engine.rules.life("long_term", written[0].scope, labels=labels).delete_after == 9
    assert engine.rules.life("long_term", me.scope()).delete_after is None


def test_one_selection_is_in_force_at_a_time_and_the_last_one_settled_is(
    engine: Engine, elsewhere: Engine, me: Person
) -> None:
    rules = elsewhere.rules
    actions, thoughts = (
        add(engine, me, "one", metadata={"source_type": source_type})[0] for source_type in ("action", "thought")
    )
    first = set_rule(rules, me.tenant, EVERY, Terms(delete_after=5), selection=selecting("action"))
    second = propose_rule(rules, me.tenant, EVERY, Terms(delete_after=6), selection=selecting("thought"))
    assign_all(rules, second)
    third = propose_rule(rules, me.tenant, EVERY, Terms(delete_after=7), selection=selecting("thought", keep="s"))
    assert [times(engine, me, record)[1] for record in (actions, thoughts)] == [5, None]
    assert settle_rule(rules, second).version == first.version + 1
    assert [times(engine, me, record)[1] for record in (actions, thoughts)] == [None, 6]
    assert settle_rule(rules, third).is_spent, "what was proposed before another was settled has ended with the rest"
    assert [rule.id for rule in rules.rules(me.tenant) if not rule.is_spent] == [second.id]

    (later,) = add(engine, me, "later", metadata={"source_type": "action"})
    again = set_rule(rules, me.tenant, EVERY, Terms(delete_after=8), selection=selecting("action"))
    assert (again.id, again.version) == (first.id, 3)
    assert [times(engine, me, record)[1] for record in (actions, thoughts, later)] == [8, None, 8]


SCOPES: list[dict[str, Any]] = [
    {},
    {"user_id": "user_123"},
    {"agent_id": "agent"},
    {"session_id": "sess_1"},
    {"user_id": "user_123", "agent_id": "agent", "session_id": "sess_1"},
]


@pytest.mark.parametrize("scope", [*SCOPES, {"memory_id": "?"}], ids=str)
def test_a_change_takes_effect_with_settle_for_all_its_records_and_not_before(
    engine: Engine, elsewhere: Engine, me: Person, scope: dict[str, Any]
) -> None:
    (record,) = add(engine, me, "old", session_id="sess_1")
    strangers = [
        *add(engine, Person(me.tenant + "x", me.user_id), "another tenant's", session_id="sess_1"),
        *add(engine, me, "another kind", kind=MemoryType.STRUCTURED, session_id="sess_1"),
    ]
    before, default = times(engine, me, record), DEFAULTS["long_term"].archive_after
    assert before == (default, None)
    scope = {"memory_id": record.id} if "memory_id" in scope else scope
    proposed = propose_rule(elsewhere.rules, me.tenant, "long_term", Terms(archive_after=7, delete_after=100), **scope)
    assert times(engine, me, record) == before, "proposing changes nothing"
    (while_pending,) = add(engine, me, "written meanwhile", session_id="sess_1")

    for _ in elsewhere.rules.assign(proposed):
        assert times(engine, me, record) == before, "and neither does assigning"
    assert times(engine, me, while_pending) == before
    (assigned,) = add(engine, me, "written after that", session_id="sess_1")

    settle_rule(elsewhere.rules, proposed)
    (new,) = add(engine, me, "written under the rule", session_id="sess_1")

    selected = [record] if "memory_id" in scope else [record, while_pending, assigned, new]
    assert [times(engine, me, item) for item in selected] == [(7, 100)] * len(selected)
    assert times(engine, Person(me.tenant + "x", me.user_id), strangers[0]) == before
    assert times(engine, me, strangers[1]) == (DEFAULTS["structured"].archive_after, None)


@pytest.mark.parametrize(
    ("scope", "selected"),
    [
        ({"user_id": "user_12"}, False),
        ({"user_id": "user_1234"}, False),
        ({"agent_id": "agent_2"}, False),
        ({"agent_id": "agen"}, False),
        ({"session_id": "sess"}, False),
        ({"session_id": "sess_1", "agent_id": "agent_2"}, False),
        ({"user_id": "someone", "session_id": "sess_1"}, False),
        ({"agent_id": "agent", "session_id": "sess_1"}, True),
    ],
    ids=str,
)
def test_a_rule_selects_by_whole_parts_and_by_all_of_them(
    engine: Engine, me: Person, scope: dict[str, Any], selected: bool
) -> None:
    (record,) = add(engine, me, "one", session_id="sess_1")
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), **scope)
    (later,) = add(engine, me, "two", session_id="sess_1")

    hidden = 100 if selected else None
    assert [times(engine, me, item)[1] for item in (record, later)] == [hidden, hidden]
    assert engine.rules.life("long_term", record.scope).delete_after == hidden


def test_a_record_of_no_session_is_of_no_sessions_rule(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), session_id="sess_1")
    assert times(engine, me, record)[1] is None


def test_a_rule_that_says_nothing_any_more_gives_way_to_the_wider_ones(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=50))
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=500), user_id=me.user_id)
    assert times(engine, me, record)[1] == 500

    set_rule(engine.rules, me.tenant, "long_term", Terms(), user_id=me.user_id)
    assert times(engine, me, record)[1] == 50
    set_rule(engine.rules, me.tenant, "long_term", Terms())
    assert times(engine, me, record)[1] is None


def test_a_record_in_the_bin_comes_back_under_the_rules_of_now(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    binned = bring(engine.records, me, record.id, State.RECYCLED)
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), user_id=me.user_id)

    assert engine.records.transition(me.subject, [move(binned, State.ACTIVE)], now=NOW) == [Outcome.DONE]

    assert times(engine, me, record)[1] == 100


def test_an_update_stays_under_its_rules(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), memory_id=record.id)
    now = there(engine.records, me, record.id)
    assert engine.records.replace(entry(me, "two", id=record.id, version=now.version, updated_at=NOW + 50))
    assert times(engine, me, record)[1] == 100, "counted from when it was made"


def test_more_records_than_one_batch_are_all_given_their_profile(engine: Engine, me: Person) -> None:
    records = add(engine, me, *(f"{n}" for n in range(2_001)))
    others = add(engine, me, *(f"{n}" for n in range(20)), agent_id="agent_2")

    proposed = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), agent_id="agent")
    counts = list(engine.rules.assign(proposed))
    settle_rule(engine.rules, proposed)

    assert len(counts) > 1
    assert sum(counts) == 2_001
    ids = [record.id for record in (*records, *others)]
    assert set(engine.records.fetch(me.subject, ids, now=NOW + 99)) == set(ids)
    assert set(engine.records.fetch(me.subject, ids, now=NOW + 100)) == {record.id for record in others}


def test_a_record_that_comes_back_under_its_id_comes_back_under_its_rule(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), memory_id=record.id)
    binned = bring(engine.records, me, record.id, State.RECYCLED)
    engine.records.transition(me.subject, [move(binned, State.DELETED)], now=NOW)

    (again, other) = [entry(me, "one", id=record.id), entry(me, "another")]
    engine.records.insert(me.subject, LONG_TERM, [other, again], prune=False, now=NOW)

    assert times(engine, me, again.record)[1] == 100
    assert times(engine, me, other.record)[1] is None


# --- cut short ----------------------------------------------------------------------------------------------------


def test_a_change_that_was_cut_short_changes_nothing_and_can_be_gone_on_with(
    engine: Engine, elsewhere: Engine, me: Person
) -> None:
    records = add(engine, me, *(f"{n}" for n in range(1_500)))
    old = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=500), user_id=me.user_id)
    proposed = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), user_id=me.user_id)
    assert (proposed.terms, proposed.version) == (old.terms, old.version)
    batches = engine.rules.assign(proposed)
    next(batches)  # and then the process is gone
    del batches

    assert times(engine, me, records[0])[1] == times(engine, me, records[-1])[1] == 500
    assert engine.rules.life("long_term", me.scope()).delete_after == 500
    (found,) = elsewhere.rules.rules(me.tenant)
    assert found == proposed

    assert assign_all(elsewhere.rules, found) == 1_500
    assert settle_rule(elsewhere.rules, found).version == 2
    assert times(engine, me, records[0])[1] == times(engine, me, records[-1])[1] == 100


def test_a_first_rule_that_was_cut_short_says_nothing(engine: Engine, elsewhere: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one", session_id="s")
    scopes: list[dict[str, Any]] = [{}, {"user_id": me.user_id}, {"session_id": "s"}, {"memory_id": record.id}]
    for scope in scopes:
        proposed = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=1), **scope)
        assign_all(engine.rules, proposed)
        assert proposed.version == 0
    assert times(elsewhere, me, record)[1] is None
    assert engine.rules.life("long_term", record.scope, record.id).delete_by == "the default for long_term"


def test_another_proposal_takes_the_place_of_one_that_was_cut_short(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    first = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=1), user_id=me.user_id)
    second = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=77), user_id=me.user_id)
    assert (second.id, second.version, second.pending) == (first.id, 1, None)
    assert times(engine, me, record)[1] == 77


def test_assigning_twice_is_assigning_once(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    rule = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=77), user_id=me.user_id)
    assert assign_all(engine.rules, rule) == 1
    assert times(engine, me, record)[1] == 77


def test_rules_that_are_pending_together_take_effect_one_by_one(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one", session_id="s")
    by_user = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=50), user_id=me.user_id)
    by_session = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=90), session_id="s")
    (meanwhile,) = add(engine, me, "two", session_id="s")
    assign_all(engine.rules, by_session)
    settle_rule(engine.rules, by_session)
    assert [times(engine, me, item)[1] for item in (record, meanwhile)] == [90, 90]
    assign_all(engine.rules, by_user)
    settle_rule(engine.rules, by_user)
    assert [times(engine, me, item)[1] for item in (record, meanwhile)] == [90, 90], "the session's comes first"

    set_rule(engine.rules, me.tenant, "long_term", Terms(), session_id="s")
    assert [times(engine, me, item)[1] for item in (record, meanwhile)] == [50, 50]


def test_rules_that_are_settled_together_take_effect_in_one_instant(
    engine: Engine, elsewhere: Engine, me: Person
) -> None:
    vip = me.other("vip")
    mine, theirs = add(engine, me, "mine")[0], add(engine, vip, "theirs")[0]
    before = [times(engine, me, mine), times(engine, vip, theirs)]
    wanted = [
        Rule(new_id(), me.tenant, "long_term", Terms(), pending=Terms(delete_after=30)),
        Rule(new_id(), me.tenant, "long_term", Terms(), pending=Terms(keep_for=FOREVER), user_id="vip"),
        Rule(new_id(), me.tenant, EVERY, Terms(), pending=Terms(delete_after=20), user_id=me.user_id),
    ]
    proposed = elsewhere.rules.propose(wanted, now=NOW)
    assert [rule.pending for rule in proposed] == [rule.pending for rule in wanted]
    for rule in proposed:
        assign_all(elsewhere.rules, rule)
        assert [times(engine, me, mine), times(engine, vip, theirs)] == before, "not yet"

    event = Event(NOW + 1, Action.RULE_CHANGED, None, {"author": "the test"})
    settled = elsewhere.rules.settle([(rule, event) for rule in proposed], now=NOW + 1)
    assert [(rule.terms, rule.version, rule.pending) for rule in settled] == [(r.pending, 1, None) for r in wanted]
    assert [times(engine, me, mine)[1], times(engine, vip, theirs)[1]] == [20, None]
    for rule in settled:
        (found,) = engine.audit.of_item(Subject(me.tenant, rule.user_id or ""), rule.id)
        assert (found.at, found.action, found.detail["version"]) == (NOW + 1, "rule.changed", 1)


def test_of_rules_that_are_settled_together_one_that_another_has_settled_stays(engine: Engine, me: Person) -> None:
    scopes: list[dict[str, Any]] = [{}, {"user_id": me.user_id}]
    proposed = [propose_rule(engine.rules, me.tenant, "entity", Terms(delete_after=9), **scope) for scope in scopes]
    done = settle_rule(engine.rules, proposed[0], now=NOW + 1)
    event = Event(NOW + 2, Action.RULE_CHANGED, None, {})
    settled = engine.rules.settle([(rule, event) for rule in proposed], now=NOW + 2)
    assert settled[0] == done
    assert (settled[1].version, settled[1].updated_at) == (1, NOW + 2)
    assert len(engine.audit.of_item(Subject(me.tenant), done.id)) == 1
    assert engine.rules.propose([], now=NOW) == engine.rules.settle([], now=NOW) == []


# --- where rules meet ---------------------------------------------------------------------------------------------


def test_the_most_specific_rule_that_removes_decides(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one", session_id="s")
    levels: list[dict[str, Any]] = [
        {},
        {"user_id": me.user_id},
        {"agent_id": "agent"},
        {"session_id": "s"},
        {"memory_id": record.id},
    ]
    for n, scope in enumerate(levels):
        set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=(n + 1) * 100), **scope)
        assert times(engine, me, record)[1] == (n + 1) * 100
    for n, scope in enumerate(levels):  # in the other order, each leaves the last word where it was
        set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=(n + 1) * 10), **scope)
        assert times(engine, me, record)[1] == (500 if n < 4 else 50)


def test_removal_happens_at_the_later_of_what_removes_and_what_keeps(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    set_rule(engine.rules, me.tenant, "long_term", Terms(keep_for=80))
    set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=20), memory_id=record.id)
    assert times(engine, me, record)[1] == 80
    set_rule(engine.rules, me.tenant, "long_term", Terms(keep_for=FOREVER), user_id=me.user_id)
    assert times(engine, me, record)[1] is None


def test_a_rule_for_every_kind_governs_all_but_persona(engine: Engine, me: Person) -> None:
    records = {kind: add(engine, me, f"{kind}", kind=kind)[0] for kind in DURABLE}
    set_rule(engine.rules, me.tenant, EVERY, Terms(delete_after=100))
    found = {kind: times(engine, me, record)[1] for kind, record in records.items()}
    assert found == {kind: None if kind is MemoryType.PERSONA else 100 for kind in DURABLE}

    set_rule(engine.rules, me.tenant, "persona", Terms(delete_after=200), user_id=me.user_id)
    assert times(engine, me, records[MemoryType.PERSONA])[1] == 200, "a rule that names it does govern it"


@pytest.mark.parametrize("scope", [{}, {"user_id": "user_123"}], ids=str)
def test_a_rule_that_names_the_kind_beats_one_for_every_kind_of_the_same_scope(
    engine: Engine, elsewhere: Engine, me: Person, scope: dict[str, Any]
) -> None:
    (record,) = add(engine, me, "one")
    set_rule(elsewhere.rules, me.tenant, EVERY, Terms(delete_after=30), **scope)
    assert times(engine, me, record)[1] == 30
    set_rule(elsewhere.rules, me.tenant, "long_term", Terms(delete_after=FOREVER), **scope)
    (later,) = add(engine, me, "two")
    assert [times(engine, me, item)[1] for item in (record, later)] == [None, None]


@pytest.mark.parametrize("kind", ["long_term", "episodic", "short_term", HISTORY])
def test_the_life_of_a_scope_is_what_its_rules_come_to(rules: RuleStore, me: Person, kind: str) -> None:
    wide = set_rule(rules, me.tenant, kind, Terms(delete_after=5 * DAY))
    narrow = set_rule(rules, me.tenant, kind, Terms(delete_after=6 * DAY), agent_id="agent", session_id="s")
    assert rules.life(kind, me.scope("agent", "s")) == resolve(kind, [wide, narrow])
    assert rules.life(kind, me.scope("agent", "t")) == resolve(kind, [wide])
    assert rules.life(kind, Scope(me.tenant + "x", me.user_id, "agent")) == resolve(kind, [])


# --- conversations ------------------------------------------------------------------------------------------------


def test_a_rule_for_history_takes_effect_for_sessions_at_once(engine: Engine, elsewhere: Engine, me: Person) -> None:
    def talk(session_id: str) -> None:
        engine.history.append(
            me.scope("agent", session_id), [message("hi")], now=NOW, summarize=lambda summary, new: summary
        )

    def seen(session_id: str, now: int) -> bool:
        return bool(elsewhere.history.messages(me.scope("agent", session_id), now=now))

    talk("one")
    talk("two")
    proposed = propose_rule(engine.rules, me.tenant, HISTORY, Terms(delete_after=100), session_id="one")
    talk("three")
    assert assign_all(engine.rules, proposed) == 1
    assert seen("one", NOW + 100), "not yet"
    settle_rule(engine.rules, proposed)

    assert [seen("one", NOW + 99), seen("one", NOW + 100)] == [True, False]
    assert seen("two", NOW + 100)
    assert seen("two", NOW + 30 * DAY - 1)
    assert not seen("two", NOW + 30 * DAY)


# --- followers, and the audit chain -------------------------------------------------------------------------------


def test_followers_read_their_scope_again_when_rules_change(engine: Engine, elsewhere: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    index = Follower(engine.feed, me.scope(), LONG_TERM)
    assert index.look()[record.id].hidden_from is None

    set_rule(elsewhere.rules, me.tenant, "long_term", Terms(delete_after=100), user_id=me.user_id)

    assert index.look()[record.id].hidden_from == NOW + 100
    assert index.reloads == 2
    cursor = index.cursor
    index.look()
    assert index.cursor == cursor


def test_another_tenants_rules_disturb_no_follower(engine: Engine, me: Person) -> None:
    add(engine, me, "one")
    cursor = engine.feed.changes(me.scope(), LONG_TERM, None, model=MODEL, read=list).cursor
    set_rule(engine.rules, me.tenant + "x", "long_term", Terms(delete_after=100))
    assert engine.feed.changes(me.scope(), LONG_TERM, cursor, model=MODEL, read=list) == (cursor, False, [], [])


@pytest.mark.parametrize("scope", [{}, {"agent_id": "agent"}, {"user_id": "user_123"}], ids=str)
def test_a_change_is_on_the_chain_of_whom_it_is_about(engine: Engine, me: Person, scope: dict[str, Any]) -> None:
    rule = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), now=NOW + 3, **scope)
    again = set_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=101), now=NOW + 4, **scope)

    whose = Subject(me.tenant, scope.get("user_id", ""))
    found = engine.audit.of_item(whose, rule.id)
    assert [(item.at, item.action, item.detail) for item in found] == [
        (NOW + 3, "rule.changed", {"author": "the test", "version": 1}),
        (NOW + 4, "rule.changed", {"author": "the test", "version": 2}),
    ]
    assert again.id == rule.id


def test_a_proposal_is_not_on_the_chain(engine: Engine, me: Person) -> None:
    rule = propose_rule(engine.rules, me.tenant, "long_term", Terms(delete_after=100), user_id=me.user_id)
    assert engine.audit.of_item(me.subject, rule.id) == []


# --- the same as the rules say, whatever is set in whatever order ---------------------------------------------------


def test_ruled_records_are_those_that_the_store_reads(engine: Engine, me: Person) -> None:
    (record,) = add(engine, me, "one")
    set_rules = [
        set_rule(engine.rules, me.tenant, kind, terms, **scope) for kind, terms, scope in _some_rules(me, record.id)
    ]
    latest = {rule.id: rule for rule in set_rules}
    assert there(engine.records, me, record.id) == ruled(record, *latest.values())


def _some_rules(me: Person, record_id: str) -> Iterator[tuple[str, Terms, dict[str, Any]]]:
    yield EVERY, Terms(delete_after=9 * DAY), {}
    yield "long_term", Terms(archive_after=2 * DAY), {"agent_id": "agent"}
    yield "long_term", Terms(keep_for=20 * DAY), {"user_id": me.user_id}
    yield EVERY, Terms(delete_after=30 * DAY), {"memory_id": record_id}
    yield EVERY, Terms(delete_after=25 * DAY), {"memory_id": record_id}
