"""Every state that a record can be in, under every two rules and every hold, at every moment at which something changes.

What must then be true is said once more in plain words and plain code, without the functions that are tried. There are
more than a million states; ``make test`` looks at one in some of them, ``make soak`` at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from effort import every, soak
from holdfast.core.decisions import (
    Decision,
    Held,
    Hold,
    Life,
    RecordFacts,
    Window,
    decide,
    next_move,
    split_window,
    windows,
)
from holdfast.core.errors import InvalidRuleError
from holdfast.core.records import BIN, HISTORY, LIVE, State, Subject, Terms
from holdfast.core.rules import DEFAULTS, EVERY, Rule, check_terms, resolve
from holdfast.core.values import DAY, FOREVER

NOW: Final = 1_800_000_000 * 10**6
KINDS: Final = ("long_term", "persona", "episodic", "entity", "structured", HISTORY)
#: What a kind can become without being removed, said anew.
ARCHIVED: Final = {"long_term", "episodic", "structured"}
#: What archiving clears for good.
CLEARED: Final = {"episodic"}
LEVELS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"user_id": "bob"},
    {"agent_id": "guide"},
    {"user_id": "bob", "agent_id": "guide"},
    {"session_id": "trip"},
    {"user_id": "bob", "memory_id": "id-1"},
)
TERMS: Final = (
    Terms(delete_after=10 * DAY),
    Terms(5 * DAY, 30 * DAY),
    Terms(20 * DAY),
    Terms(delete_after=FOREVER),
    Terms(FOREVER, 40 * DAY),
    Terms(keep_for=60 * DAY),
    Terms(delete_after=90 * DAY, keep_for=60 * DAY),
    Terms(keep_for=FOREVER),
)
STATES: Final = (State.ACTIVE, State.ARCHIVED, State.RECYCLED, State.DELETING)
THING: Final = Held("bob", "guide", "trip", "id-1", {"case": "7"})
HOLDS: Final = {
    "none": (),
    "its own": (Hold("h", "acme", "a lawsuit", "ann", 0, memory_id="id-1"),),
    "by its tag": (Hold("h", "acme", "a lawsuit", "ann", 0, user_id="bob", tag="case=7"),),
    "one that is released": (Hold("h", "acme", "a lawsuit", "ann", 0, user_id="bob", released_at=1),),
    "by another tag": (Hold("h", "acme", "a lawsuit", "ann", 0, tag="case=8"),),
    "another's": (Hold("h", "acme", "a lawsuit", "ann", 0, user_id="eve", memory_id="id-1"),),
}
KEEPING: Final = {"its own", "by its tag"}
MILLION: Final = 1_000_000


class Place(NamedTuple):
    """A record, the rules and the hold that it is under, and a moment."""

    kind: str
    rules: tuple[Rule, ...]
    life: Life
    hold: str
    record: RecordFacts
    age: int
    """From which its time counts; of what is in the recycle bin, how long it has been there."""

    @property
    def now(self) -> int:
        return NOW + self.age

    def decide(self, later: int = 0) -> Decision | None:
        return decide(self.record, self.life, HOLDS[self.hold], self.now + later)


def rules_of(kind: str) -> list[Rule]:
    """Every rule that can be made for a kind, or for every kind."""
    found: list[Rule] = []
    for named in (EVERY, kind):
        for terms in TERMS:
            for level in LEVELS:
                try:
                    check_terms(named, terms)
                except InvalidRuleError:
                    continue
                scope: Any = level
                found.append(Rule(f"r{len(found)}", "acme", named, terms, version=1, **scope))
    return found


# --- the same, in plain code -----------------------------------------------------------------------------------------------


def strength(rule: Rule) -> int:
    """How specific a rule is, as a number: a memory beats a session beats an agent beats a user beats the tenant."""
    said = [rule.memory_id, rule.session_id, rule.agent_id, rule.user_id]
    return sum(weight for weight, part in zip((32, 16, 8, 4), said, strict=True) if part) + (rule.kind != EVERY)


def plain_terms(kind: str, rules: tuple[Rule, ...]) -> tuple[int | None, int | None]:
    """After how long a record is archived and removed; ``None`` is never."""
    heard = [rule for rule in rules if rule.kind == kind or (kind not in ("persona", HISTORY))]
    default = DEFAULTS[kind]
    said = {}
    for field in ("archive_after", "delete_after"):
        values: dict[int, int] = {}
        for rule in heard:
            value = getattr(rule.terms, field)
            if value is not None:
                level = strength(rule)
                values[level] = min(values.get(level, value), value)
        said[field] = values[max(values)] if values else getattr(default, field)
    keeps = [rule.terms.keep_for for rule in heard if rule.terms.keep_for is not None]
    named = any(rule.kind == kind and rule.terms.delete_after is not None for rule in heard)
    if default.keep_for is not None and not named:
        keeps.append(default.keep_for)
    archive, delete = said["archive_after"], said["delete_after"]
    if delete is not None and keeps:
        delete = max(delete, *keeps)
    if kind not in ARCHIVED or (archive is not None and archive >= FOREVER):
        archive = None
    return archive, None if delete is None or delete >= FOREVER else delete


def plain_move(place: Place) -> State | None:
    """Where a record is to go at this moment."""
    if place.record.state is State.DELETING:
        return State.DELETED
    if place.hold in KEEPING:
        return None
    if place.record.state is State.RECYCLED:
        over = place.age >= BIN
        return (State.DELETING if place.record.elsewhere else State.DELETED) if over else None
    archive, delete = plain_terms(place.kind, place.rules)
    if delete is not None and place.age >= delete:
        return State.RECYCLED
    if archive is not None and place.age >= archive and place.record.state is State.ACTIVE:
        return State.ARCHIVED
    return None


# --- what must be true in each of them ---------------------------------------------------------------------------------------


def is_decided_as_said(place: Place) -> bool:
    """The most specific rule decides, what keeps wins over what removes, and nothing is moved before its time."""
    found = place.decide()
    return (None if found is None else found.target) is plain_move(place)


def is_held(place: Place) -> bool:
    """Nothing moves while a hold covers it, unless its deletion had begun."""
    return place.hold not in KEEPING or place.record.state is State.DELETING or place.decide() is None


def is_due_by_then(place: Place) -> bool:
    """A move names a moment that has come, and the state that it leaves."""
    found = place.decide()
    return found is None or (found.due_at <= place.now and found.source is place.record.state)


def stays_due(place: Place) -> bool:
    """What is due stays due, and goes no less far later."""
    found, later = place.decide(), place.decide(365 * DAY)
    order = (State.ACTIVE, State.ARCHIVED, State.RECYCLED, State.DELETING, State.DELETED)
    return found is None or (later is not None and order.index(later.target) >= order.index(found.target))


def is_in_one_window(place: Place) -> bool:
    """What a sweep asks the store for is what a decision says of each record."""
    if place.record.state not in LIVE:
        return not windows(place.life, place.record.state, place.now)
    since = place.record.aged_from
    asked = windows(place.life, place.record.state, place.now)
    found = [window.target for window in asked if _is_inside(window, since)]
    free = decide(place.record, place.life, (), place.now)
    return found == ([] if free is None else [free.target])


def is_foretold(place: Place) -> bool:
    """What is said to come next is what comes, at that moment and not a microsecond sooner."""
    coming = next_move(place.record, place.life, place.now)
    if coming is None or coming.due_at <= place.now:
        return True
    before = decide(place.record, place.life, (), coming.due_at - 1)
    then = decide(place.record, place.life, (), coming.due_at)
    return before is None and then is not None and then.target is coming.target


def is_undoable_in_doubt(place: Place) -> bool:
    """While the time is in doubt, what nobody can bring back waits and the rest goes on: no record does both."""
    doubt = place.now - 3 * DAY
    for window in windows(place.life, place.record.state, place.now):
        may, waits = split_window(place.kind, place.life, window, doubt)
        parts = [part for part in (may, waits) if part is not None]
        inside = [_is_inside(part, place.record.aged_from) for part in parts]
        if sum(inside) != _is_inside(window, place.record.aged_from):
            return False
        clears = window.target is State.ARCHIVED and place.kind in CLEARED
        if clears and may is not None and _is_inside(may, place.record.aged_from):
            archive, _ = plain_terms(place.kind, place.rules)
            if archive is None or place.record.aged_from + archive > doubt:
                return False
    return True


def _is_inside(window: Window, since: int) -> bool:
    return since <= window.upto and (window.after is None or since > window.after)


INVARIANTS: Final[tuple[Callable[[Place], bool], ...]] = (
    is_decided_as_said,
    is_held,
    is_due_by_then,
    stays_due,
    is_in_one_window,
    is_foretold,
    is_undoable_in_doubt,
)


# --- the walk ------------------------------------------------------------------------------------------------------------------


def lives(step: int) -> Iterator[tuple[str, tuple[Rule, ...], Life]]:
    """Each kind under no rule, one and two; of two, one pair in so many."""
    number = 0
    for kind in KINDS:
        rules = rules_of(kind)
        sets = [(), *((rule,) for rule in rules), *combinations(rules, 2)]
        for some in sets:
            number += 1
            if len(some) < 2 or number % step == 0:
                yield kind, some, resolve(kind, some)


def places(step: int) -> Iterator[Place]:
    """Every state, hold and moment under each of these lives."""
    for kind, rules, life in lives(step):
        ends = sorted({after for after in life[:3] if after is not None and after < FOREVER // 2} or {DAY})
        ages = [0, *(end + off for end in ends for off in (-1, 0)), ends[-1] + 3 * DAY, ends[-1] + 400 * DAY]
        for state in STATES:
            binned = state in (State.RECYCLED, State.DELETING)
            for age in (0, BIN - 1, BIN, BIN + DAY) if binned else ages:
                purge_at = NOW + BIN if binned else None
                record = RecordFacts(
                    "id-1", kind, Subject("acme", "bob"), THING, state, 1, NOW, purge_at, 9, age % 2 == 0
                )
                for hold in HOLDS:
                    yield Place(kind, rules, life, hold, record, age)


@soak
@pytest.mark.timeout(1_800)
def test_in_every_state_all_that_is_promised_holds() -> None:
    step, count = every(90), 0
    for place in places(step):
        count += 1
        for invariant in INVARIANTS:
            assert invariant(place), f"{invariant.__doc__} Not so of {place}"
    assert count >= MILLION or step > 1


def test_each_of_these_is_a_promise() -> None:
    page = (Path(__file__).parents[2] / "docs" / "promises.md").read_text(encoding="utf-8")
    for invariant in INVARIANTS:
        assert str(invariant.__doc__).removesuffix(".") in page
