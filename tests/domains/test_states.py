"""Policies are kept: each change whole, each domain and each tenant by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from domains.samples import configs, wild_configs
from domains.tenants import Tenants
from effort import times
from holdfast import Holdfast
from holdfast.core.domains import DEFAULT_POLICY, DOMAINS, normalize
from holdfast.core.errors import InvalidInputError, ObjectDamagedError, StoreFullError, StoreTooNewError
from holdfast.lifecycle.domains import UNSET, Domains, DomainStates
from holdfast.storage.objects.local import LocalObjects

some = settings(max_examples=times(15))


def file_of(home: Path) -> Path:
    return home / "state" / "retention-policies.json"


# --- changes ----------------------------------------------------------------------------------------------------------


@some
@given(st.lists(st.tuples(st.sampled_from(DOMAINS), wild_configs), min_size=1, max_size=4))
def test_inv_ret_2_a_change_of_one_domain_never_shows_in_the_other(
    tenants: Tenants, changes: list[tuple[str, dict[str, Any]]]
) -> None:
    domains = tenants.new()
    model = dict.fromkeys(DOMAINS, DEFAULT_POLICY)
    for domain, config in changes:
        given_config = deepcopy(config)
        done = domains.configure(domain, config, confirm=True)
        model[domain] = normalize(config, model[domain])
        assert repr(config) == repr(given_config)
        assert (done["success"], done["domain"], done["policy"]) == (True, domain, model[domain].as_dict())
        assert {name: domains.get(name) for name in DOMAINS} == {name: one.as_dict() for name, one in model.items()}


@some
@given(st.lists(st.tuples(st.sampled_from(DOMAINS), configs, st.integers(0, 10**9)), min_size=1, max_size=4))
def test_inv_ret_8_updated_at_is_iso_8601_and_set_on_every_change(
    tenants: Tenants, changes: list[tuple[str, dict[str, Any], int]]
) -> None:
    domains = tenants.new()
    for domain, config, microseconds in changes:
        tenants.clock.advance(microseconds=microseconds)
        done = domains.configure(domain, config, confirm=True)
        assert datetime.fromisoformat(done["updated_at"] or "never") == tenants.clock()
        domains.get(domain)
        tenants.clock.advance(seconds=1)
        with pytest.warns(DeprecationWarning, match="policies"):
            shown = domains.get_retention_policies()
        assert shown["updated_at"] == done["updated_at"], "looking is no change"


@some
@given(configs)
def test_inv_ret_7_what_is_saved_carries_a_version(tenants: Tenants, config: dict[str, Any]) -> None:
    domains = tenants.new()
    before = set((tenants.holdfast.settings.home / "state").rglob("*.json"))
    domains.configure("rag", config)
    (new,) = set((tenants.holdfast.settings.home / "state").rglob("*.json")) - before
    kept = json.loads(new.read_bytes())
    assert list(kept) == ["tenant", "version", "updated_at", "memory", "rag"]
    assert kept["version"] == 1
    assert (kept["memory"], kept["rag"]) == (domains.get("memory"), domains.get("rag"))


def test_policies_are_kept_under_the_home_and_outlive_the_engine(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert not file_of(home).exists(), "looking at the default writes nothing"
        holdfast.domains.get("memory")
        assert not file_of(home).exists()
        holdfast.domains.configure("memory", {"older_than_days": 7, "keep_session_ids": ["sess_abc123"]})
    assert file_of(home).stat().st_mode & 0o077 == 0
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.domains.get("memory")["older_than_days"] == 7
        assert holdfast.domains.get("memory")["keep_session_ids"] == ["sess_abc123"]


def test_where_nothing_was_ever_kept_the_default_holds_and_looking_makes_nothing(tmp_path: Path) -> None:
    states = DomainStates(LocalObjects(tmp_path / "home"), "default")
    assert states.read() == UNSET
    assert not (tmp_path / "home").exists()


def test_tenants_have_policies_of_their_own(holdfast: Holdfast) -> None:
    others = [holdfast.of_tenant(name).domains for name in ("acme", "ACME", "..x", "ü", "state")]
    for number, domains in enumerate([holdfast.domains, *others], 1):
        domains.configure("rag", {"limit": number})
    assert [domains.get("rag")["limit"] for domains in [holdfast.domains, *others]] == [1, 2, 3, 4, 5, 6]


def test_what_is_refused_changes_nothing(holdfast: Holdfast, home: Path) -> None:
    holdfast.domains.configure("rag", {"limit": 7})
    before = file_of(home).read_bytes()
    wrong: list[tuple[Any, Any]] = [("rag", {"limits": 3}), ("rag", None), ("rag", [1]), ("else", {}), ("rag", {3: 4})]
    for domain, config in wrong:
        with pytest.raises(InvalidInputError):
            holdfast.domains.configure(domain, config)
    assert file_of(home).read_bytes() == before


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    holdfast: Holdfast, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.domains.configure("memory", {"limit": 7})
    before = file_of(home).read_bytes()

    def no_room(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(StoreFullError):
        holdfast.domains.configure("memory", {"limit": 8})
    monkeypatch.undo()
    assert file_of(home).read_bytes() == before
    assert [path.name for path in home.rglob(".incoming/*")] == []
    assert holdfast.domains.get("memory")["limit"] == 7


def changed(**fields: Any) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps({**json.loads(data), **fields}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda _data: b"",
        lambda _data: b"\xff\xfe\x00",
        lambda _data: b"[]",
        lambda _data: b"null",
        lambda data: data.replace(b'"rag"', b'"rug"'),
        lambda data: data.replace(b'"limit": 5000', b'"limit": 50000'),
        lambda data: data.replace(b'"limit": 5000', b'"limit": "many"'),
        changed(version=0),
        changed(version="1"),
        changed(updated_at="yesterday"),
        changed(tenant="acme"),
        changed(rag={}),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it_and_stays_as_it_is(
    holdfast: Holdfast, home: Path, damage: Callable[[bytes], bytes]
) -> None:
    holdfast.domains.configure("memory", {"older_than_days": 7})
    damaged = damage(file_of(home).read_bytes())
    file_of(home).write_bytes(damaged)
    calls: list[Callable[[], object]] = [
        lambda: holdfast.domains.get("rag"),
        lambda: holdfast.domains.configure("rag", {"limit": 3}),
        lambda: holdfast.domains.apply("memory", []),
    ]
    for call in calls:
        with pytest.raises(ObjectDamagedError, match=r"state/retention-policies\.json is damaged"):
            call()
    assert file_of(home).read_bytes() == damaged
    holdfast.sweep()  # goes on by the rules that are in force


def test_a_file_of_a_newer_version_is_left_alone(holdfast: Holdfast, home: Path) -> None:
    holdfast.domains.configure("memory", {"older_than_days": 7})
    newer = changed(version=2, shape="another")(file_of(home).read_bytes())
    file_of(home).write_bytes(newer)
    with pytest.raises(StoreTooNewError, match=r"state/retention-policies\.json has version 2"):
        holdfast.domains.configure("memory", {"older_than_days": 8})
    assert file_of(home).read_bytes() == newer


# --- sorting and collecting by them -----------------------------------------------------------------------------------


def test_resources_are_sorted_by_the_domain_s_policy_at_the_engine_s_time(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.domains.configure("rag", {"older_than_days": 10, "keep_session_ids": ["kept"]})
    made = clock() - timedelta(days=10)
    resource = {"id": 1, "source_type": "context", "created_at": made, "session_id": "other"}
    found = holdfast.domains.apply("rag", [resource, {**resource, "session_id": "kept"}])
    assert (found["success"], found["domain"], found["cutoff_date"]) == (True, "rag", made.isoformat())
    assert found["eligible"] == [resource]
    assert [one["reason"] for one in found["protected"]] == ["protected_session"]
    assert holdfast.domains.apply("memory", [resource])["counts"] == {"eligible": 0, "protected": 1, "total": 1}


def test_options_are_for_once_and_cannot_give_up_what_is_kept(holdfast: Holdfast) -> None:
    holdfast.domains.configure("rag", {"keep_session_ids": ["kept"]})
    resources = [{"source_type": "action", "created_at": 0, "session_id": name} for name in ("kept", "also", "other")]
    found = holdfast.domains.apply("rag", resources, {"keep_session_ids": ["also"], "limit": 1, "older_than_days": 1})
    assert [one["session_id"] for one in found["eligible"]] == ["other"]
    assert found["policy_applied"]["keep_session_ids"] == ["kept", "also"]
    assert holdfast.domains.get("rag") == {**DEFAULT_POLICY.as_dict(), "keep_session_ids": ["kept"]}
    with pytest.raises(InvalidInputError, match="options has unknown fields auto_gc"):
        holdfast.domains.apply("rag", resources, {"auto_gc": True})


def test_sorting_deletes_nothing(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("alice", "agent")
    kept = memory.add("an old thought", "long_term", {"source_type": "thought"})["memory_id"]
    clock.advance(days=4_000)
    found = holdfast.domains.apply(
        "memory", [{"id": kept, "source_type": "thought", "created_at": "2026-01-15T12:00Z"}]
    )
    assert [one["id"] for one in found["eligible"]] == [kept]
    holdfast.domains.archive("memory", found["eligible"])
    assert memory.get(kept)["content"] == "an old thought"


def test_a_collection_s_parameters_come_from_the_call_and_then_from_the_policy(holdfast: Holdfast) -> None:
    holdfast.domains.configure("rag", {"limit": 70, "vacuum": True})
    found = holdfast.domains.resolve_gc_params("rag", {"older_than_days": 5}, {"older_than_days": 5, "dry_run": True})
    assert found == {
        "older_than_days": 5,
        "source_types": ["context", "action", "thought"],
        "keep_session_ids": [],
        "keep_context_ids": [],
        "limit": 70,
        "vacuum": True,
        "dry_run": True,
    }
    with pytest.raises(InvalidInputError, match="raw_args must be an object"):
        holdfast.domains.resolve_gc_params("rag", 3)  # type: ignore[arg-type]


# --- names of before --------------------------------------------------------------------------------------------------


def test_names_of_before_do_the_same_and_say_what_to_use_instead(holdfast: Holdfast) -> None:
    domains: Domains = holdfast.domains
    with pytest.warns(DeprecationWarning, match=r"use configure\(domain, config\)"):
        assert domains.set_retention_policy("rag", {"limit": 4})["policy"]["limit"] == 4
    assert domains.get("rag")["limit"] == 4, "and it is kept"
    with pytest.warns(DeprecationWarning, match=r"use get\(domain\)") as told:
        both = domains.get_retention_policies()
    assert told[0].filename == __file__
    assert both["rag"] == domains.get("rag")
    assert list(both) == ["version", "updated_at", "memory", "rag"]
