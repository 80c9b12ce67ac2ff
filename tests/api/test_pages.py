"""Lists are read page by page: nothing twice, nothing missed, whatever happens in between."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.client import Client
from clocks import FakeClock
from effort import times
from holdfast import Holdfast, InvalidInputError
from holdfast.edges.operations.models import read_cursor, write_cursor
from homes import ENGINES

WHO: dict[str, Any] = {"user_id": "alice", "agent_id": "guide"}
on_every_engine = pytest.mark.parametrize("engine_name", ENGINES)


def pages(client: Client, path: str, **asked: Any) -> list[list[Any]]:
    """All pages of a list."""
    found, cursor = [], None
    while True:
        response = client.get(path, params=asked if cursor is None else {**asked, "cursor": cursor})
        assert response.status_code == 200, response.text
        page = response.json()
        assert len(page["items"]) <= asked["limit"]
        found.append(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            return found
        assert len(found) < 100, "a list that does not end"


def items(client: Client, path: str, **asked: Any) -> list[Any]:
    return [one for page in pages(client, path, **asked) for one in page]


@on_every_engine
def test_the_pages_of_a_list_are_the_list(client: Client, holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("alice", "guide", "s1")
    for number in range(7):
        memory.add(f"Note {number}", metadata={"even": number % 2 == 0})
        clock.advance(seconds=number % 2)  # some of them at the same instant
    listed = [one["memory_id"] for one in memory.list_memories(limit=100)]
    even = [one["memory_id"] for one in memory.list_memories(filters={"even": True}, limit=100)]
    for limit in (1, 3, 7, 8, 1_000):
        assert [one["memory_id"] for one in items(client, "/v1/memories", **WHO, limit=limit)] == listed
        found = items(client, "/v1/memories", **WHO, filters='{"even": true}', limit=limit)
        assert [one["memory_id"] for one in found] == even


@on_every_engine
def test_what_is_added_and_deleted_meanwhile_neither_repeats_nor_hides_anything(
    client: Client, holdfast: Holdfast
) -> None:
    memory = holdfast.manager("alice", "guide")
    ids = memory.add_many([f"Note {number}" for number in range(20)])["memory_ids"]
    first = client.get("/v1/memories", params={**WHO, "limit": 5}).json()
    memory.delete(ids[15])  # the last that was shown
    memory.delete(ids[10])
    memory.add("Another")
    seen = [one["memory_id"] for one in first["items"]]
    cursor = first["next_cursor"]
    while cursor is not None:
        page = client.get("/v1/memories", params={**WHO, "limit": 5, "cursor": cursor}).json()
        seen += [one["memory_id"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [one for one in reversed(ids) if one != ids[10]]


def test_memories_of_a_source_are_listed_page_by_page(client: Client, holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide")
    ids = [memory.add(f"Note {number}", source="import:crm")["memory_id"] for number in range(5)]
    memory.add("Not from there")
    found = items(client, "/v1/memories", **WHO, source="import:crm", limit=2)
    assert [one["memory_id"] for one in found] == ids[::-1]


@on_every_engine
def test_what_is_kept_of_a_user_is_browsed_page_by_page(client: Client, holdfast: Holdfast) -> None:
    for number in range(7):
        kind = "persona" if number % 2 else "long_term"
        holdfast.manager("alice", f"agent{number}").add(f"Note {number}", kind)
    shown = items(client, "/v1/users/alice/memories", limit=3)
    assert [one["content"] for one in shown] == [f"Note {number}" for number in reversed(range(7))]
    assert items(client, "/v1/users/alice/memories", limit=3, memory_type="persona", agent_id="agent3") == [shown[3]]
    assert client.get("/v1/users/alice/facets").json()["kinds"] == {"long_term": 4, "persona": 3}


@on_every_engine
def test_a_conversation_is_read_backwards_page_by_page(client: Client, holdfast: Holdfast) -> None:
    short_term = holdfast.manager("alice", "guide", "s1").short_term
    ids = [short_term.add_message("user", f"Message {number}") for number in range(7)]
    for which in ("history", "window"):
        asked = {**WHO, "which": which, "limit": 3}
        found = pages(client, "/v1/sessions/s1/messages", **asked)
        assert [[one["message_id"] for one in page] for page in found] == [ids[4:], ids[1:4], ids[:1]]
    first = client.get("/v1/sessions/s1/messages", params={**WHO, "limit": 3}).json()
    short_term.delete(ids[4])  # where the next page begins
    rest = client.get("/v1/sessions/s1/messages", params={**WHO, "limit": 9, "cursor": first["next_cursor"]}).json()
    assert [one["message_id"] for one in rest["items"]] == ids[:4]


@on_every_engine
def test_the_recycle_bin_is_listed_page_by_page(client: Client, holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("alice", "guide")
    ids = memory.add_many([f"Note {number}" for number in range(5)])["memory_ids"]
    for number, one in enumerate(ids):
        memory.delete(one)
        clock.advance(seconds=number % 2)
    for number in range(5):
        talk = holdfast.manager("alice", "guide", f"s{number}").short_term
        message = talk.add_message("user", "Hello")
        talk.add_message("user", "Bye")
        talk.delete(message)
        if number < 3:
            holdfast.sessions.remove("guide", f"s{number}", user_id="alice")
        holdfast.tools.add(f"tool {number}")
        holdfast.tools.remove(f"tool {number}")
    asked = {"limit": 2}
    assert [one["memory_id"] for one in items(client, "/v1/recycle", user_id="alice", **asked)] == ids
    assert [one["memory_id"] for one in items(client, "/v1/recycle", **asked)] == ids
    sessions = items(client, "/v1/recycle", type="session", **asked)
    assert {one["session_id"] for one in sessions} == {"s0", "s1", "s2"}
    assert len(sessions) == 3
    assert len(items(client, "/v1/recycle", type="message", **asked)) == 2
    tools = [one["tool_id"] for one in items(client, "/v1/recycle", type="tool", **asked)]
    assert tools == [f"tool {number}" for number in range(5)]
    assert items(client, "/v1/recycle", type="tool", user_id="alice", **asked) == []


def test_other_lists_are_whole_too(client: Client, holdfast: Holdfast, clock: FakeClock) -> None:
    for number in range(5):
        holdfast.holds.add(tag=f"case={number}", reason="Case", author="legal")
        holdfast.agents.add(f"agent {number}")
        holdfast.policies.set("long_term", agent_id=f"agent {number}", archive_after_days=400, confirm=True)
        holdfast.manager("alice", f"agent {number}", "s1").short_term.add_message("user", "Hello")
        holdfast.manager(f"user {number}", "guide").add("Hello")
        holdfast.erase_user(f"user {number}")
        clock.advance(seconds=1)
    holds = [hold.id for hold in holdfast.holds.list()]
    assert [one["hold_id"] for one in items(client, "/v1/holds", limit=2)] == holds
    agents = [f"agent {number}" for number in range(5)]
    assert [one["agent_id"] for one in items(client, "/v1/agents", limit=2)] == agents
    assert items(client, "/v1/policies", limit=2) == holdfast.policies.list()
    known = [one["user_id"] for one in holdfast.users()]
    assert [one["user_id"] for one in items(client, "/v1/users", limit=2)] == known
    sessions = items(client, "/v1/sessions", user_id="alice", limit=2)
    assert [one["agent_id"] for one in sessions] == agents[::-1]
    certificates = [one["id"] for one in items(client, "/v1/certificates", limit=2)]
    assert certificates == [one["id"] for one in holdfast.certificates.list()[::-1]]


# --- cursors ----------------------------------------------------------------------------------------------------------


@given(
    listing=st.text(max_size=20),
    asked=st.lists(st.none() | st.text() | st.booleans(), max_size=4),
    place=st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**63 - 1), max_size=3),
)
def test_a_cursor_leads_back_to_its_place(listing: str, asked: list[Any], place: list[Any]) -> None:
    try:
        listing.encode()
    except UnicodeEncodeError:
        return
    cursor = write_cursor(listing, asked, place)
    assert read_cursor(cursor, listing, asked, *map(type, place)) == place


@settings(max_examples=times(40))
@given(cursor=st.text(max_size=80) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInputError, match="not a cursor"):
        read_cursor(cursor, "memories", ("alice",), str)


def test_a_cursor_is_for_one_list_and_one_question(client: Client, holdfast: Holdfast) -> None:
    holdfast.manager("alice", "guide").add_many(["One", "Two", "Three"])
    cursor = client.get("/v1/memories", params={**WHO, "limit": 1}).json()["next_cursor"]
    others: list[tuple[str, dict[str, Any]]] = [
        ("/v1/memories", {**WHO, "memory_type": "persona"}),
        ("/v1/memories", {**WHO, "filters": "{}"}),
        ("/v1/memories", {"user_id": "bob", "agent_id": "guide"}),
        ("/v1/holds", {}),
        ("/v1/recycle", {}),
        ("/v1/sessions/s1/messages", WHO),
    ]
    for path, asked in others:
        response = client.get(path, params={**asked, "cursor": cursor})
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input"), path
    other = client.get("/v1/memories", params={**WHO, "cursor": cursor}, headers={"X-Holdfast-Tenant": "globex"})
    assert other.status_code == 422


def test_a_cursor_with_any_of_its_characters_changed_is_refused() -> None:
    cursor = write_cursor("memories", ("alice",), ["0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"])
    rng = random.Random(4711)
    for _ in range(200):
        place = rng.randrange(len(cursor) - 1)  # of the last one not every bit counts
        changed = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
        with pytest.raises(InvalidInputError):
            read_cursor(changed, "memories", ("alice",), str)


def test_a_page_has_a_size_within_bounds(client: Client) -> None:
    for limit in ("0", "-1", "1001", "1e3", "9" * 5_000, "", "x", "NaN"):
        response = client.get("/v1/memories", params={**WHO, "limit": limit})
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input"), limit
