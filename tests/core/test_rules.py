"""Which rule applies where several meet, and which rules are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidRuleError
from holdfast.core.records import AUDIT, HISTORY, TYPES, MemoryType, Terms
from holdfast.core.rules import (
    DEFAULTS,
    EVERY,
    EpisodicRetentionPolicy,
    Rule,
    Selection,
    check_ruled,
    check_terms,
    days,
    resolve,
    terms_to_dict,
)
from holdfast.core.values import DAY, FOREVER, SECOND, describe_duration

KINDS = tuple(DEFAULTS)
PARTS = ("user_id", "agent_id", "session_id", "memory_id")

Durations = st.sampled_from([1, SECOND, DAY, 2 * DAY, 30 * DAY, 90 * DAY, 400 * DAY, 10_000 * DAY, FOREVER])
AnyTerms = st.builds(Terms, st.none() | Durations, st.none() | Durations, st.none() | Durations)


@st.composite
def rules(draw: st.DrawFn, kinds: Sequence[str] = (EVERY, *KINDS)) -> Rule:
    scope: dict[str, Any] = {part: draw(st.none() | st.just(f"some {part}")) for part in PARTS}
    number = draw(st.integers(0, 10**9))
    terms, version = draw(AnyTerms), draw(st.integers(0, 3))
    return Rule(f"rule {number}", "acme", draw(st.sampled_from(kinds)), terms, version=version, **scope)


Several = st.lists(rules(), max_size=6)
Kinds = st.sampled_from(KINDS)


def in_force(kind: str, several: Sequence[Rule]) -> list[Rule]:
    """Written out by hand: a rule for every kind is for each durable kind of memory but persona."""
    wide = {MemoryType.LONG_TERM, MemoryType.EPISODIC, MemoryType.ENTITY, MemoryType.STRUCTURED}
    return [r for r in several if r.version > 0 and (r.kind == kind or (r.kind == EVERY and kind in wide))]


def most_specific(several: Sequence[Rule], field: str) -> list[int]:
    """What the most specific of the rules that say something about ``field`` say about it."""

    def rank(rule: Rule) -> int:
        weights = {"memory_id": 16, "session_id": 8, "agent_id": 4, "user_id": 2}
        return sum(weight for part, weight in weights.items() if getattr(rule, part) is not None) + (rule.kind != EVERY)

    said = [rule for rule in several if getattr(rule.terms, field) is not None]
    top = max(map(rank, said), default=0)
    return [getattr(rule.terms, field) for rule in said if rank(rule) == top]


# --- where rules meet ----------------------------------------------------------------------------------------------------


@given(Kinds, Several)
def test_the_most_specific_rule_that_removes_decides_and_the_earliest_among_equals(
    kind: str, several: list[Rule]
) -> None:
    found = in_force(kind, several)
    said = most_specific(found, "delete_after")
    asked = min(said) if said else DEFAULTS[kind].delete_after
    assume(not any(rule.terms.keep_for for rule in found) and DEFAULTS[kind].keep_for is None)
    assert resolve(kind, several).delete_after == (None if asked is None or asked >= FOREVER else asked)


@given(Kinds, Several)
def test_removal_comes_at_the_later_of_what_removes_and_the_longest_that_keeps(kind: str, several: list[Rule]) -> None:
    found = in_force(kind, several)
    said = most_specific(found, "delete_after")
    removes = min(said) if said else DEFAULTS[kind].delete_after
    keeps = [rule.terms.keep_for for rule in found if rule.terms.keep_for is not None]
    if kind == MemoryType.PERSONA and not any(rule.terms.delete_after is not None for rule in found):
        keeps.append(FOREVER)
    life = resolve(kind, several)
    assert life.keep_for == max(keeps, default=None)
    later = None if removes is None or removes >= FOREVER else max([removes, *keeps])
    assert life.delete_after == (None if later is None or later >= FOREVER else later)


@given(Kinds, Several)
def test_the_most_specific_rule_that_archives_decides_for_kinds_that_have_an_archive(
    kind: str, several: list[Rule]
) -> None:
    said = most_specific(in_force(kind, several), "archive_after")
    asked = min(said) if said else DEFAULTS[kind].archive_after
    if kind in TYPES and TYPES[MemoryType(kind)].archive is None:
        asked = None
    assert resolve(kind, several).archive_after == (None if asked is None or asked >= FOREVER else asked)


@given(Kinds, Several, st.randoms(use_true_random=False))
def test_the_order_in_which_rules_are_read_does_not_matter(kind: str, several: list[Rule], chance: Any) -> None:
    shuffled = list(several)
    chance.shuffle(shuffled)
    assert resolve(kind, shuffled)[:3] == resolve(kind, several)[:3]


@given(Kinds, Several)
def test_a_rule_that_has_not_taken_effect_changes_nothing(kind: str, several: list[Rule]) -> None:
    assert resolve(kind, several) == resolve(kind, [rule for rule in several if rule.version])


@given(st.lists(rules([EVERY]), max_size=6))
def test_no_rule_for_every_kind_touches_persona_memory(several: list[Rule]) -> None:
    assert resolve("persona", several) == resolve("persona", [])
    assert resolve("persona", []).delete_after is None


@given(st.lists(rules([EVERY]), max_size=6), st.sampled_from([HISTORY, AUDIT]))
def test_a_rule_for_every_kind_of_memory_is_not_for_conversations_or_the_audit_chain(
    several: list[Rule], kind: str
) -> None:
    assert resolve(kind, several) == resolve(kind, [])


@given(Kinds, Several)
def test_what_is_decided_names_who_decided_it(kind: str, several: list[Rule]) -> None:
    life = resolve(kind, several)
    names = {f"the default for {kind}", *(rule.name for rule in several)}
    assert {life.archive_by, life.delete_by} <= names
    assert life.keep_by is None or life.keep_by in names


def test_a_memory_beats_a_session_beats_an_agent_beats_a_user_beats_the_tenant() -> None:
    wide = Rule("1", "acme", "long_term", Terms(delete_after=DAY), version=1)
    ladder = [wide]
    for part, duration in (("user_id", 2), ("agent_id", 3), ("session_id", 4), ("memory_id", 5)):
        scope: dict[str, Any] = {part: "x"}
        ladder.append(Rule(part, "acme", "long_term", Terms(delete_after=duration * DAY), version=1, **scope))
    for upto in range(1, 6):
        assert resolve("long_term", ladder[:upto]).delete_after == upto * DAY
    assert [rule.level for rule in ladder] == ["tenant", "user", "agent", "session", "memory"]


@pytest.mark.parametrize("field", ["archive_after", "delete_after"])
@pytest.mark.parametrize("scope", [{}, {"user_id": "ann"}, {"agent_id": "guide", "session_id": "trip"}], ids=str)
def test_in_the_same_scope_a_rule_that_names_the_kind_beats_one_for_every_kind(field: str, scope: Any) -> None:
    every = Rule("1", "acme", EVERY, Terms(**{field: 5 * DAY}), version=1, **scope)
    named = Rule("2", "acme", "long_term", Terms(**{field: FOREVER}), version=1, **scope)
    wider = Rule("3", "acme", "long_term", Terms(**{field: 9 * DAY}), version=1)
    for rules in ([every, named], [named, every]):
        assert getattr(resolve("long_term", rules), field) is None
        assert getattr(resolve("structured", rules), field) == 5 * DAY
    if scope:
        assert getattr(resolve("long_term", [every, wider]), field) == 5 * DAY, "what is more specific comes first"


@pytest.mark.parametrize(("every", "named", "comes_to"), [(10, 365, 30), (10, None, 10), (50, None, 30), (5, 20, 20)])
def test_a_domains_policy_removes_sooner_whether_or_not_the_tenants_rule_names_the_kind(
    every: int, named: int | None, comes_to: int
) -> None:
    selection = Selection(frozenset({"action"}), frozenset(), frozenset())
    rules = [
        Rule("1", "acme", EVERY, Terms(delete_after=30 * DAY), version=1, selection=selection),
        Rule("2", "acme", EVERY, Terms(delete_after=every * DAY), version=1),
        *([] if named is None else [Rule("3", "acme", "long_term", Terms(delete_after=named * DAY), version=1)]),
    ]
    assert resolve("long_term", rules).delete_after == comes_to * DAY


def test_persona_memory_ends_only_where_a_rule_names_it_and_says_when() -> None:
    keep = Rule("1", "acme", "persona", Terms(keep_for=DAY), version=1)
    assert resolve("persona", [keep]).delete_after is None
    ends = Rule("2", "acme", "persona", Terms(delete_after=30 * DAY), version=1)
    assert resolve("persona", [ends]).delete_after == 30 * DAY


def test_scope_parts_are_compared_whole() -> None:
    rule = Rule("1", "acme", "long_term", Terms(delete_after=DAY), user_id="ann", version=1)
    assert rule.selects("ann", "a", None, None)
    assert not rule.selects("anna", "a", None, None)
    assert not rule.selects("an", "a", None, None)


# --- refused -------------------------------------------------------------------------------------------------------------


@given(st.sampled_from([EVERY, *KINDS]), AnyTerms)
def test_a_rule_is_refused_if_and_only_if_it_says_nothing_or_contradicts_itself(kind: str, terms: Terms) -> None:
    archive, delete, keep = terms[:3]
    bad = (
        kind == MemoryType.WORKING
        or terms == Terms()
        or (kind in (MemoryType.SHORT_TERM, HISTORY, AUDIT) and terms[0:1] + terms[2:] != (None,) * 4)
        or (kind == MemoryType.SHORT_TERM and delete == FOREVER)
        or (archive is not None and kind in TYPES and TYPES[MemoryType(kind)].archive is None)
        or (archive is not None and delete is not None and archive != FOREVER and delete <= archive)
        or (keep is not None and delete is not None and delete < keep)
        or (kind == MemoryType.PERSONA and delete is None and keep is not None and keep != FOREVER)
    )
    if bad:
        with pytest.raises(InvalidRuleError):
            check_terms(kind, terms)
    else:
        assert check_terms(kind, terms) == terms


@given(st.sampled_from([EVERY, *KINDS]), AnyTerms)
def test_an_accepted_rule_alone_removes_no_earlier_than_it_archives_or_keeps(kind: str, terms: Terms) -> None:
    try:
        check_terms(kind, terms)
    except InvalidRuleError:
        assume(False)
    for governed in KINDS if kind == EVERY else [kind]:
        life = resolve(governed, [Rule("1", "acme", kind, terms, version=1)])
        if life.delete_after is not None and life.keep_for is not None:
            assert life.delete_after >= life.keep_for


@pytest.mark.parametrize("kind", ["", "Long_Term", "semantic", None, 7, ["long_term"], "working"])
def test_there_are_no_rules_for_what_is_no_kind_or_is_working_memory(kind: object) -> None:
    with pytest.raises(InvalidRuleError):
        check_ruled(kind)


@pytest.mark.parametrize("value", [0, -1, 1e-9, 400_000, True, None, "soon", float("nan"), float("inf"), [1], {}])
def test_days_are_a_number_above_0_or_never(value: object) -> None:
    with pytest.raises(InvalidRuleError, match="delete_after_days"):
        days(value, "delete_after_days")


@given(st.integers(1, 365_000) | st.floats(1e-3, 365_000))
def test_days_come_back_as_they_were_given(value: float) -> None:
    duration = days(value, "delete_after_days")
    shown = terms_to_dict(Terms(delete_after=duration))["delete_after_days"]
    assert days(shown, "delete_after_days") == duration
    assert shown == pytest.approx(value, rel=1e-6)


def test_a_contradiction_is_told_in_words() -> None:
    with pytest.raises(InvalidRuleError, match="it keeps for ever, but deletes after 1 day"):
        check_terms("long_term", Terms(delete_after=DAY, keep_for=FOREVER))
    with pytest.raises(InvalidRuleError, match="it keeps for 2 days, but deletes after 1 day"):
        check_terms("long_term", Terms(delete_after=DAY, keep_for=2 * DAY))


def test_durations_are_told_in_words() -> None:
    assert describe_duration(90 * DAY) == "90 days"
    assert describe_duration(DAY) == "1 day"
    assert describe_duration(36 * 3_600 * SECOND) == "1.5 days"
    assert describe_duration(3_600 * SECOND) == "1 hour"
    assert describe_duration(FOREVER) == "for ever"
    assert days("never", "delete_after_days") == days("forever", "keep_days") == FOREVER


# --- the four knobs of episodes ------------------------------------------------------------------------------------------


def test_the_four_knobs_are_by_default_the_default_of_episodic_memory() -> None:
    assert EpisodicRetentionPolicy().terms()[:3] == DEFAULTS["episodic"][:3]


@given(st.integers(1, 1_000), st.integers(1, 1_000))
def test_the_four_knobs_say_when_episodes_are_archived_and_deleted(active: int, whole: int) -> None:
    assume(whole > active)
    for policy, said in (
        (EpisodicRetentionPolicy(active, whole), (active * DAY, whole * DAY)),
        (EpisodicRetentionPolicy(active, delete_after_archival_period=False), (active * DAY, None)),
        (EpisodicRetentionPolicy(active, archive_on_expiry=False), (None, active * DAY)),
    ):
        rule = Rule("1", "acme", "episodic", check_terms("episodic", policy.terms()), agent_id="a", version=1)
        life = resolve("episodic", [rule])
        assert (life.archive_after, life.delete_after) == said


@pytest.mark.parametrize(
    "policy",
    [
        EpisodicRetentionPolicy(active_retention_days=365),
        EpisodicRetentionPolicy(active_retention_days=400),
        EpisodicRetentionPolicy(active_retention_days=0),
        EpisodicRetentionPolicy(archive_retention_days=-1),
        EpisodicRetentionPolicy(archive_on_expiry="yes"),  # type: ignore[arg-type]
        EpisodicRetentionPolicy(delete_after_archival_period=1),  # type: ignore[arg-type]
        EpisodicRetentionPolicy(archive_on_expiry=False, delete_after_archival_period=False),
        EpisodicRetentionPolicy(40, 60, archive_on_expiry=False),
        EpisodicRetentionPolicy(40, 60, delete_after_archival_period=False),
    ],
)
def test_knobs_that_make_no_sense_are_refused(policy: EpisodicRetentionPolicy) -> None:
    with pytest.raises(InvalidRuleError):
        policy.terms()
