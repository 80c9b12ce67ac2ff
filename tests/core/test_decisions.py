"""What is due, and why: one pure function, whatever calls it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.decisions import (
    Decision,
    Held,
    Hold,
    Life,
    RecordFacts,
    decide,
    explain_decision,
    next_move,
    reason_for,
    windows,
)
from holdfast.core.records import BIN, LIVE, NEXT, State, Subject
from holdfast.core.rules import DEFAULTS, resolve
from holdfast.core.values import DAY

NOW = 1_800_000_000 * 10**6
Spans = st.none() | st.integers(1, 20).map(lambda n: n * DAY)
#: Ages around the boundaries, to the microsecond.
Ages = st.builds(lambda n, off: n * DAY + off, st.integers(-2, 40), st.sampled_from([-1, 0, 1]))
Lives = st.builds(Life, Spans, Spans, Spans, st.just("rule A"), st.just("rule D"), st.none())
States = st.sampled_from([State.ACTIVE, State.ARCHIVED, State.RECYCLED, State.DELETING])
Kinds = st.sampled_from(["long_term", "episodic", "history", "entity"])
HOLD = Hold("h", "acme", "a lawsuit", "ann", 0, user_id="bob")


@st.composite
def standings(draw: st.DrawFn) -> RecordFacts:
    state = draw(States)
    binned = state in (State.RECYCLED, State.DELETING)
    return RecordFacts(
        "id-1",
        draw(Kinds),
        Subject("acme", "bob"),
        Held("bob", "agent", None, "id-1", {}),
        state,
        draw(st.integers(1, 5)),
        NOW - draw(Ages),
        NOW - draw(Ages) if binned else None,
        100,
        draw(st.booleans()),
    )


def applied(record: RecordFacts, decision: Decision, now: int) -> RecordFacts | None:
    """The record after its move; ``None`` once it is gone."""
    if decision.target is State.DELETED:
        return None
    purge_at = now + BIN if decision.target is State.RECYCLED else record.purge_at
    return record._replace(state=decision.target, version=record.version + 1, purge_at=purge_at)


@given(standings(), Lives)
def test_every_decision_is_a_legal_move_that_is_due_and_says_why(record: RecordFacts, life: Life) -> None:
    decision = decide(record, life, (), NOW)
    if decision is None:
        return
    assert decision.target in NEXT[record.state]
    assert decision.due_at <= NOW
    assert (decision.id, decision.version, decision.source) == (record.id, record.version, record.state)
    assert len(decision.reason.split()) > 2
    assert decision.rule
    assert decision.reason in explain_decision(decision)


@given(standings(), Lives)
def test_what_is_on_hold_never_moves(record: RecordFacts, life: Life) -> None:
    begun = record.state is State.DELETING  # before the hold stood
    assert decide(record, life, [HOLD], NOW) is None or begun


@given(standings(), Lives)
def test_a_hold_on_someone_else_changes_nothing(record: RecordFacts, life: Life) -> None:
    other = Hold("h", "acme", "a lawsuit", "ann", 0, user_id="bo")
    assert decide(record, life, [other], NOW) == decide(record, life, (), NOW)


@given(standings(), Lives)
def test_nothing_is_left_to_decide_once_a_live_record_has_moved(record: RecordFacts, life: Life) -> None:
    decision = decide(record, life, (), NOW)
    if decision is not None and record.state in LIVE:
        after = applied(record, decision, NOW)
        assert after is not None
        assert decide(after, life, (), NOW) is None


@given(standings(), Lives)
def test_what_is_to_be_deleted_is_gone_after_two_moves_at_most(record: RecordFacts, life: Life) -> None:
    moves = 0
    now: RecordFacts | None = record
    while now is not None and now.state not in LIVE and (decision := decide(now, life, (), NOW)) is not None:
        now = applied(now, decision, NOW)
        moves += 1
    assert moves <= 2
    assert now is None or record.state in LIVE or (record.state is State.RECYCLED and (record.purge_at or 0) > NOW)


@given(standings(), Lives, st.integers(0, 100 * DAY))
def test_once_due_for_removal_always_due_for_removal(record: RecordFacts, life: Life, later: int) -> None:
    decision = decide(record, life, (), NOW)
    if decision is not None and decision.target is not State.ARCHIVED:
        again = decide(record, life, (), NOW + later)
        assert again is not None
        assert again.target is decision.target


@given(standings(), Lives)
def test_decisions_agree_with_the_windows_that_sweeps_read_by(record: RecordFacts, life: Life) -> None:
    found = [
        window.target
        for window in windows(life, record.state, NOW)
        if record.aged_from <= window.upto and (window.after is None or record.aged_from > window.after)
    ]
    assert len(found) <= 1
    decision = decide(record, life, (), NOW)
    if record.state in LIVE:
        assert found == ([] if decision is None else [decision.target])
    else:
        assert found == []


@given(standings(), Lives, st.integers(0, 60 * DAY))
def test_what_comes_next_is_what_is_decided_at_its_time(record: RecordFacts, life: Life, wait: int) -> None:
    """Looking ahead and waiting come to the same, unless a later move overtakes an earlier one meanwhile."""
    coming = next_move(record, life, NOW)
    if coming is None:
        assert decide(record, life, (), NOW + wait) is None
        return
    moment = max(NOW, coming.due_at)
    assert decide(record, life, (), moment) is not None
    if record.state is not State.DELETING and moment > NOW:
        assert decide(record, life, (), moment - 1) is None


@pytest.mark.parametrize(
    ("kind", "age", "target"),
    [
        ("long_term", 365, State.ARCHIVED),
        ("structured", 180, State.ARCHIVED),
        ("episodic", 90, State.ARCHIVED),
        ("episodic", 365, State.RECYCLED),
        ("history", 30, State.RECYCLED),
        ("persona", 100_000, None),
        ("entity", 100_000, None),
    ],
)
def test_each_kind_lives_as_long_as_the_design_says_to_the_microsecond(
    kind: str, age: int, target: State | None
) -> None:
    life = resolve(kind, ())
    assert kind in DEFAULTS
    record = RecordFacts(
        "i", kind, Subject("t", "u"), Held("u", "a", None, "i", {}), State.ACTIVE, 1, NOW - age * DAY, None, 1
    )
    decision = decide(record, life, (), NOW)
    assert (decision and decision.target) == target
    if target is not None:
        younger = decide(record._replace(aged_from=record.aged_from + 1), life, (), NOW)
        assert younger is None or younger.target is not target


def test_a_record_long_unswept_moves_once() -> None:
    life = resolve("episodic", ())
    record = RecordFacts("i", "episodic", Subject("t", "u"), Held("u", "a", None, "i", {}), State.ACTIVE, 1, 0, None, 1)
    decision = decide(record, life, (), NOW)
    assert decision is not None
    assert decision.target is State.RECYCLED
    assert decision.due_at == 365 * DAY
    assert decision.reason == "365 days after it ended, by the default for episodic"


def test_a_reason_says_what_the_age_counts_from() -> None:
    life = Life(None, 30 * DAY, None, "", "the user's rule for history, version 2", None)
    assert "last active" in reason_for("history", life, State.RECYCLED)
    assert "version 2" in reason_for("history", life, State.RECYCLED)
