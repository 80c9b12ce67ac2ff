"""A store from before records said where they come from is opened, and its records come from their agents."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

import raw
from clocks import FakeClock
from databases import postgres_server
from homes import ENGINES
from retain import Retain
from storage.older import take_back

CRM = "import:crm"


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture
def url(engine_name: str, tmp_path: Path) -> str:
    """A store of the test's own, which nobody uses afterwards."""
    return f"sqlite:///{tmp_path}/retain.db" if engine_name == "sqlite" else postgres_server().new_database()


def columns_of(retain: Retain) -> set[str]:
    return {name for name in raw.columns(retain, "records") if "dropped" not in name}


def test_old_records_come_from_their_agents_and_life_goes_on(
    url: str, home: Path, engine_name: str, clock: FakeClock
) -> None:
    with Retain.open(url, home=home, clock=clock) as retain:
        memory = retain.manager("user_123", "travel_agent")
        old = memory.add("Ann lives in Rome", "long_term", {"n": 1})["memory_id"]
        binned = retain.manager("user_123", "another").add("Formal", "persona")["memory_id"]
        retain.manager("user_123", "another").delete(binned)
        before = memory.get(old)
        columns = columns_of(retain)
        take_back(retain, engine_name, 4)
        assert columns_of(retain) == columns - {"source", "derived_from"}

    with Retain.open(url, home=home, clock=clock) as retain:
        memory = retain.manager("user_123", "travel_agent")
        assert columns_of(retain) == columns
        assert memory.get(old) == before
        assert (before["source"], before["derived_from"]) == ("agent:travel_agent", [])
        assert retain.manager("user_123", "another").restore(binned)["source"] == "agent:another"
        new = memory.add("Knows Rome", derived_from=[old], source=CRM)["memory_id"]
        assert [one["memory_id"] for one in memory.derived(old)] == [new]
        assert retain.forget_source("agent:travel_agent")["by_kind"] == {"long_term": 2}
