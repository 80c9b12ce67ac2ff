"""One open store serves every tenant, and none of them sees another."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.core.errors import ClosedError, InvalidScopeError


def test_another_tenant_of_an_open_store_sees_nothing_of_the_first(holdfast: Holdfast) -> None:
    other = holdfast.of_tenant("acme")
    holdfast.manager("ann", "helper").add("Ann likes tea", "long_term")
    other.manager("ann", "helper").add("Ann likes coffee", "long_term")
    assert [one["content"] for one in holdfast.manager("ann", "helper").retrieve("likes")] == ["Ann likes tea"]
    assert [one["content"] for one in other.manager("ann", "helper").retrieve("likes")] == ["Ann likes coffee"]
    other.erase_user("ann")
    assert holdfast.manager("ann", "helper").count_memories("long_term") == 1


def test_the_same_tenant_is_the_same_engine_and_a_wrong_name_is_refused(holdfast: Holdfast) -> None:
    assert holdfast.of_tenant(holdfast.tenant) is holdfast
    with pytest.raises(InvalidScopeError):
        holdfast.of_tenant("a/b")


def test_closing_a_store_closes_it_for_every_tenant(holdfast: Holdfast) -> None:
    other = holdfast.of_tenant("acme")
    holdfast.close()
    with pytest.raises(ClosedError):
        other.manager("ann", "helper").add("too late", "long_term")
