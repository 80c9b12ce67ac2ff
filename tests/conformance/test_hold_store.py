"""What every ``HoldStore`` does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, lift_hold, new_id, put_hold
from holdfast.core.audit import Action, Event
from holdfast.core.decisions import Hold
from holdfast.core.errors import HoldfastError
from holdfast.core.records import Subject
from holdfast.ports.rules import HoldStore

SCOPES: list[dict[str, Any]] = [
    {"user_id": "user_123"},
    {"agent_id": "agent"},
    {"session_id": "sess/1"},
    {"memory_id": "019bc186-de03-7a10-8000-000000000001"},
    {"tag": "case=Ü/7 ' --"},
    {"user_id": "u", "agent_id": "a", "session_id": "s", "memory_id": "m", "tag": "t"},
]


@pytest.fixture
def holds(engine: Engine) -> HoldStore:
    return engine.holds


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_a_hold_comes_back_as_it_was_added(
    holds: HoldStore, elsewhere: Engine, me: Person, scope: dict[str, Any]
) -> None:
    hold = put_hold(holds, me.tenant, **scope)

    assert holds.list(me.tenant) == [hold]
    assert elsewhere.holds.list(me.tenant) == [hold]
    assert holds.list(me.tenant, released=True) == [hold]


def test_holds_are_listed_oldest_first(holds: HoldStore, me: Person) -> None:
    late, early = put_hold(holds, me.tenant, at=NOW + 5, user_id="a"), put_hold(holds, me.tenant, at=NOW, user_id="b")

    assert holds.list(me.tenant) == [early, late]


def test_a_tenant_sees_its_own_holds_only(holds: HoldStore, me: Person) -> None:
    put_hold(holds, me.tenant + "x", user_id=me.user_id)
    mine = put_hold(holds, me.tenant, user_id=me.user_id)

    assert holds.list(me.tenant) == [mine]
    assert holds.list("no such tenant") == []


def test_a_hold_that_was_released_stands_no_more_and_is_not_forgotten(
    holds: HoldStore, elsewhere: Engine, me: Person
) -> None:
    hold, stays = put_hold(holds, me.tenant, user_id="a"), put_hold(holds, me.tenant, user_id="b")

    released = lift_hold(elsewhere.holds, hold, now=NOW + 7)

    assert released == replace(hold, released_at=NOW + 7, released_by="python")
    assert holds.list(me.tenant) == [stays]
    assert holds.list(me.tenant, released=True) == [released, stays]


def test_a_hold_is_released_once_and_by_its_own_tenant(holds: HoldStore, engine: Engine, me: Person) -> None:
    hold = put_hold(holds, me.tenant, user_id=me.user_id)
    assert lift_hold(holds, replace(hold, tenant=me.tenant + "x")) is None
    assert lift_hold(holds, replace(hold, id=new_id())) is None
    assert holds.list(me.tenant) == [hold]

    first = lift_hold(holds, hold, now=NOW + 1)
    assert lift_hold(holds, hold, now=NOW + 2) is None

    assert holds.list(me.tenant, released=True) == [first], "a second release changes nothing"
    actions = [found.action for found in engine.audit.of_item(me.subject, hold.id)]
    assert actions == ["hold.added", "hold.released"], "what was not done is not on the chain"


def test_a_hold_is_added_once(holds: HoldStore, engine: Engine, me: Person) -> None:
    hold = put_hold(holds, me.tenant, user_id=me.user_id)

    with pytest.raises(HoldfastError):
        holds.add(hold, Event(NOW, Action.HOLD_ADDED, hold.id, {}))

    assert holds.list(me.tenant) == [hold]
    assert len(engine.audit.of_item(me.subject, hold.id)) == 1


@pytest.mark.parametrize(("scope", "user_id"), [(SCOPES[0], "user_123"), (SCOPES[1], ""), (SCOPES[4], "")], ids=str)
def test_a_hold_is_on_the_chain_of_whom_it_is_about_else_on_the_tenants(
    holds: HoldStore, engine: Engine, me: Person, scope: dict[str, Any], user_id: str
) -> None:
    hold = put_hold(holds, me.tenant, **scope)
    lift_hold(holds, hold, now=NOW + 3)

    found = engine.audit.of_item(Subject(me.tenant, user_id), hold.id)
    assert [(entry.at, entry.action) for entry in found] == [(NOW, "hold.added"), (NOW + 3, "hold.released")]
    assert list(engine.audit.verify(lambda _count: None)) == []


def test_a_hold_may_stand_for_someone_of_whom_nothing_is_known_yet(holds: HoldStore, me: Person) -> None:
    hold = Hold(new_id(), me.tenant, "to come", "legal", NOW, user_id="not here yet")
    holds.add(hold, Event(NOW, Action.HOLD_ADDED, hold.id, {}))
    assert holds.list(me.tenant) == [hold]
