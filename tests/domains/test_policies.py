"""What a policy can be, and what it makes of resources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.samples import NOW, configs, resources, wild_configs
from effort import times
from holdfast.core.domains import (
    DEFAULT_POLICY,
    DOMAINS,
    FIELDS,
    GC_FIELDS,
    MAX_KEPT,
    SOURCE_TYPES,
    RetentionPolicy,
    check_domain,
    creation_time,
    evaluate,
    normalize,
    resolve_parameters,
)
from holdfast.core.errors import InvalidInputError
from holdfast.core.records import MemoryType, Terms
from holdfast.core.rules import Rule, Selection, labels_of, resolve
from holdfast.core.values import DAY, iso, moment

some = settings(max_examples=times(50))
policies = configs.map(lambda config: normalize(config, DEFAULT_POLICY))


# --- the default ------------------------------------------------------------------------------------------------------


def test_the_default_policy_keeps_thirty_days_and_collects_nothing_by_itself() -> None:
    assert DEFAULT_POLICY.as_dict() == {
        "older_than_days": 30,
        "source_types": ["context", "action", "thought"],
        "keep_session_ids": [],
        "keep_context_ids": [],
        "limit": 5_000,
        "vacuum": False,
        "auto_gc": False,
    }


@some
@given(configs)
def test_inv_ret_6_the_default_cannot_be_changed_and_every_change_makes_another(config: dict[str, Any]) -> None:
    before = repr(DEFAULT_POLICY)
    changed = normalize(config, DEFAULT_POLICY)
    shown = DEFAULT_POLICY.as_dict()
    for name in FIELDS:
        with pytest.raises(FrozenInstanceError):
            setattr(DEFAULT_POLICY, name, getattr(changed, name))
        assert isinstance(hash(getattr(DEFAULT_POLICY, name)), int), "nothing in it can be changed, either"
    shown["source_types"].append("else")
    assert repr(DEFAULT_POLICY) == before
    assert changed is not DEFAULT_POLICY


@pytest.mark.parametrize(
    "field",
    [
        {"older_than_days": 0},
        {"older_than_days": 3_651},
        {"older_than_days": 30.0},
        {"older_than_days": True},
        {"limit": 0},
        {"limit": 20_001},
        {"source_types": ()},
        {"source_types": ("else",)},
        {"source_types": ["context"]},
        {"keep_session_ids": ("a", "a")},
        {"keep_context_ids": (0,)},
        {"keep_context_ids": (1.0,)},
        {"vacuum": 1},
        {"auto_gc": None},
    ],
    ids=str,
)
def test_a_policy_that_is_out_of_bounds_cannot_be_made(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(field))):
        replace(DEFAULT_POLICY, **field)


# --- normalisation ----------------------------------------------------------------------------------------------------


@some
@given(wild_configs, policies)
def test_inv_ret_3_only_known_source_types_are_in_a_policy(config: dict[str, Any], before: RetentionPolicy) -> None:
    found = normalize(config, before).source_types
    wanted = config.get("source_types")
    usable = [item for item in SOURCE_TYPES if isinstance(wanted, list | tuple) and item in wanted]
    assert set(found) == set(usable or before.source_types), "where none is usable, the ones before stay"
    assert len(set(found)) == len(found)


def bounded(value: Any, least: int, most: int, before: int, whole: Any) -> int:
    if type(value) not in {int, float} or not -math.inf < value < math.inf:
        return before
    return least if value < least else most if value > most else int(whole(value))


@some
@given(wild_configs, policies)
def test_inv_ret_4_numbers_are_within_their_bounds(config: dict[str, Any], before: RetentionPolicy) -> None:
    found = normalize(config, before)
    assert 1 <= found.older_than_days <= 3_650
    assert 1 <= found.limit <= 20_000
    days, limit = config.get("older_than_days"), config.get("limit")
    assert found.older_than_days == bounded(days, 1, 3_650, before.older_than_days, math.ceil)
    assert found.limit == bounded(limit, 1, 20_000, before.limit, math.floor)


@some
@given(wild_configs, policies)
def test_what_is_kept_has_no_doubles_and_nothing_that_cannot_be_kept(
    config: dict[str, Any], before: RetentionPolicy
) -> None:
    found = normalize(config, before)
    for name, valid in (
        ("keep_session_ids", lambda item: type(item) is str and item),
        ("keep_context_ids", lambda item: type(item) in {int, float} and item > 0 and item % 1 == 0 and item < 2**63),
    ):
        wanted, kept = config.get(name), getattr(found, name)
        if isinstance(wanted, list | tuple):
            assert list(kept) == list(dict.fromkeys(item for item in wanted if valid(item)))
        else:
            assert kept == getattr(before, name)


@some
@given(wild_configs, policies)
def test_what_is_neither_true_nor_false_leaves_a_switch_as_it_is(
    config: dict[str, Any], before: RetentionPolicy
) -> None:
    found = normalize(config, before)
    for name in ("vacuum", "auto_gc"):
        wanted = config.get(name)
        assert getattr(found, name) is (wanted if isinstance(wanted, bool) else getattr(before, name))


@some
@given(wild_configs, policies)
def test_a_policy_is_its_own_normal_form(config: dict[str, Any], before: RetentionPolicy) -> None:
    found = normalize(config, before)
    assert normalize(found.as_dict(), DEFAULT_POLICY) == found
    assert normalize({}, found) == found == normalize(config, found)


def test_a_field_that_no_policy_has_is_an_error_that_names_those_that_there_are() -> None:
    with pytest.raises(InvalidInputError, match=r"unknown fields older_then.*older_than_days, source_types"):
        normalize({"older_then": 3}, DEFAULT_POLICY)
    with pytest.raises(InvalidInputError, match="config must be an object"):
        normalize([("limit", 3)], DEFAULT_POLICY)
    with pytest.raises(InvalidInputError, match=r"keep_session_ids has 10,001 entries"):
        normalize({"keep_session_ids": [f"s{n}" for n in range(MAX_KEPT + 1)]}, DEFAULT_POLICY)


@pytest.mark.parametrize("domain", ["", "Memory", "audit", None, 3, ["memory"]])
def test_there_are_two_domains_and_no_other(domain: Any) -> None:
    assert DOMAINS == ("memory", "rag")
    with pytest.raises(InvalidInputError, match="use one of: memory, rag"):
        check_domain(domain)


# --- evaluation -------------------------------------------------------------------------------------------------------


def naive(policy: RetentionPolicy, resource: Mapping[str, Any], made: datetime | None) -> str | None:
    """Why a resource is protected, in the simplest words."""
    context = resource.get("context_id")
    if any(resource.get("session_id") == kept for kept in policy.keep_session_ids):
        return "protected_session"
    if not isinstance(context, bool) and any(context == kept for kept in policy.keep_context_ids):
        return "protected_context"
    if not any(resource.get("source_type") == known for known in ("context", "action", "thought")):
        return "invalid_source_type"
    if made is None or NOW - made < timedelta(days=policy.older_than_days):
        return "within_retention_period"
    return None


@some
@given(policies, st.lists(resources(), max_size=12), st.integers(1, 6))
def test_resources_are_sorted_as_the_simplest_reading_of_the_rules_sorts_them(
    policy: RetentionPolicy, given_resources: list[tuple[dict[str, Any], datetime | None]], limit: int
) -> None:
    policy = replace(policy, limit=limit)
    said = [(resource, naive(policy, resource, made)) for resource, made in given_resources]
    before = repr(given_resources)
    found = evaluate(policy, [resource for resource, _ in said], moment(NOW)).to_dict("memory")
    assert repr(found["eligible"]) == repr([resource for resource, reason in said if reason is None][:limit])
    assert repr([(one["resource"], one["reason"]) for one in found["protected"]]) == repr(
        [(resource, reason) for resource, reason in said if reason is not None]
    )
    assert found["counts"] == {
        "eligible": len(found["eligible"]),
        "protected": len(found["protected"]),
        "total": len(said),
    }
    assert found["cutoff_date"] == iso(moment(NOW - timedelta(days=policy.older_than_days)))
    assert found["policy_applied"] == policy.as_dict()
    assert repr(given_resources) == before, "the caller's resources are as they were"


@some
@given(policies, resources(), st.booleans())
def test_inv_ret_5_what_is_kept_is_never_eligible(
    policy: RetentionPolicy, sample: tuple[dict[str, Any], datetime | None], by_session: bool
) -> None:
    resource = {**sample[0], "source_type": "context", "created_at": "1999-01-01T00:00:00+00:00"}
    if by_session:
        policy, resource = replace(policy, keep_session_ids=("kept",)), {**resource, "session_id": "kept"}
    else:
        policy = replace(policy, keep_session_ids=(), keep_context_ids=(5,))
        resource = {**resource, "context_id": 5}
    found = evaluate(policy, [resource], moment(NOW))
    assert found.eligible == []
    assert found.protected[0][1] == ("protected_session" if by_session else "protected_context")


def test_reasons_are_tried_in_their_order() -> None:
    policy = normalize({"keep_session_ids": ["s"], "keep_context_ids": [1]}, DEFAULT_POLICY)
    resource: dict[str, Any] = {
        "session_id": "s",
        "context_id": 1,
        "source_type": "else",
        "created_at": iso(moment(NOW)),
    }
    seen = []
    for name, value in (("session_id", "t"), ("context_id", 2), ("source_type", "thought"), ("created_at", 0)):
        seen.append(evaluate(policy, [resource], moment(NOW)).protected[0][1].value)
        resource[name] = value
    assert seen == ["protected_session", "protected_context", "invalid_source_type", "within_retention_period"]
    assert evaluate(policy, [resource], moment(NOW)).eligible == [resource]


def test_what_is_as_old_as_the_cutoff_may_go_and_what_is_younger_by_an_instant_may_not() -> None:
    cutoff = DEFAULT_POLICY.cutoff(moment(NOW))
    old, young = ({"source_type": "action", "created_at": iso(at)} for at in (cutoff, cutoff + 1))
    found = evaluate(DEFAULT_POLICY, [old, young], moment(NOW))
    assert (found.eligible, [resource for resource, _ in found.protected]) == ([old], [young])


def test_a_source_type_that_the_policy_does_not_name_is_valid_all_the_same() -> None:
    policy = normalize({"source_types": ["action"]}, DEFAULT_POLICY)
    assert evaluate(policy, [{"source_type": "thought", "created_at": 0}], moment(NOW)).eligible


@some
@given(st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.lists(st.integers()), st.datetimes()))
def test_when_something_was_made_is_told_or_it_is_not_and_never_an_error(value: Any) -> None:
    found = creation_time(value)
    assert found is None or isinstance(found, int)


@pytest.mark.parametrize("wrong", ["[]", {"id": 1}, 3, None, [1], [{"id": 1}, "x"], [{1: 2}]])
def test_what_is_no_list_of_resources_is_an_error(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"resource"):
        evaluate(DEFAULT_POLICY, wrong, moment(NOW))


# --- the parameters of a collection -----------------------------------------------------------------------------------


@some
@given(policies, configs, st.booleans())
def test_what_a_caller_gives_wins_over_the_policy_and_the_policy_has_the_rest(
    policy: RetentionPolicy, raw: dict[str, Any], dry_run: bool
) -> None:
    found = resolve_parameters(policy, raw, {**raw, "dry_run": dry_run})
    wanted = normalize(raw, policy).as_dict()
    assert {name: found[name] for name in GC_FIELDS} == {name: wanted[name] for name in GC_FIELDS}
    assert found["dry_run"] is dry_run, "what else was validated is handed on"
    assert None not in found.values()


def test_what_was_validated_counts_and_only_where_the_caller_gave_it() -> None:
    defaults = {"limit": 10, "older_than_days": 7}  # what validation fills in is not what a caller gave
    found = resolve_parameters(DEFAULT_POLICY, {"limit": "10"}, defaults)
    assert (found["limit"], found["older_than_days"]) == (10, 30)
    assert resolve_parameters(DEFAULT_POLICY, {"limit": None}, defaults)["limit"] == 5_000


# --- for records of our own -------------------------------------------------------------------------------------------


@some
@given(st.integers(1, 800), st.sampled_from(list(MemoryType)))
def test_a_policy_never_lets_anything_live_longer(days: int, kind: MemoryType) -> None:
    selection = Selection(frozenset({"context"}), frozenset(), frozenset())
    rule = Rule("r", "default", "*", Terms(delete_after=days * DAY), version=1, selection=selection)
    without, by = resolve(kind.value, ()), resolve(kind.value, [rule])
    times = [after for after in (without.delete_after, days * DAY if rule.governs(kind.value) else None) if after]
    assert by.delete_after == (min(times) if times else None)
    assert rule.selects("u", "a", None, None, labels_of({"source_type": "context"}))
    assert not rule.selects("u", "a", None, None)
