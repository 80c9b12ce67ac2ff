"""The audit chain can be looked through: by user, item, actor, action and time, newest first, and written to a file."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError
from holdfast.storage.relational import audit as relational_audit


def entries(holdfast: Holdfast, limit: int = 3, **which: Any) -> list[Any]:
    found: list[Any] = []
    before = None
    while True:
        page, before = holdfast.audit.page(limit=limit, before=before, **which)
        found += page
        if before is None:
            return found


def fill(holdfast: Holdfast, clock: FakeClock) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for user in ("ann", "ben"):
        memory = holdfast.manager(user, "guide")
        ids[user] = memory.add_many([f"{user} {number}" for number in range(12)])["memory_ids"]
        for one in ids[user][:3]:
            clock.advance(hours=3)
            with holdfast.acting_as("support"):
                memory.delete(one)
        memory.restore(ids[user][0])
    holdfast.manager("ann", "guide").delete_user_memories("ann")
    holdfast.holds.add(user_id="ben", reason="Case", author="legal")
    return ids


def test_entries_are_found_by_each_filter_and_by_all_of_them(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(holdfast, clock)
    everything = entries(holdfast)
    assert everything == entries(holdfast, 1_000)
    assert [one["at"] for one in everything] == sorted((one["at"] for one in everything), reverse=True)
    of_ann = entries(holdfast, user_id="ann")
    assert of_ann == [one for one in everything if one["chain"] == of_ann[0]["chain"]]
    assert max(one["items"] for one in of_ann) == 10
    assert [one["action"] for one in entries(holdfast, user_id="ann", item=ids["ann"][0])] == [
        "recycled",
        "restored",
        "recycled",
    ]
    assert [one["item"] for one in entries(holdfast, item=ids["ann"][5])] == [ids["ann"][5]], "it shares an entry"
    assert {one["action"] for one in entries(holdfast, actor="support")} == {"recycled"}
    assert len(entries(holdfast, actor="support", action="recycled")) == 6
    assert [one["actor"] for one in entries(holdfast, action="hold.added")] == ["legal"]
    recycled = entries(holdfast, action="recycled", actor="support")
    since, until = recycled[4]["at"], recycled[1]["at"]
    assert entries(holdfast, action="recycled", actor="support", since=since, until=until) == recycled[2:5]
    assert entries(holdfast, since=until, until=since) == []
    monkeypatch.setattr(relational_audit, "_MOST_LOOKED", 2)
    assert entries(holdfast, action="hold.added", limit=1) == [
        one for one in everything if one["action"] == "hold.added"
    ]
    with pytest.raises(InvalidInputError, match="no action 'gone'"):
        entries(holdfast, action="gone")


def test_entries_are_written_as_lines_of_json(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock)
    file = io.BytesIO()
    count = holdfast.audit.write(file, user_id="ben")
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert lines == entries(holdfast, user_id="ben")
    assert len(lines) == count > 0


def test_an_erasure_can_be_looked_at_before_it_is_carried_out(holdfast: Holdfast) -> None:
    memory = holdfast.manager("ann", "guide", "s1")
    memory.add_many(["One", "Two"])
    memory.delete(memory.add("Three")["memory_id"])
    memory.short_term.add_message("user", "Hello")
    tagged = memory.add("Four", metadata={"case": "7"})["memory_id"]
    preview = holdfast.preview_erasure("ann")
    assert (preview["is_known"], preview["is_refused"], preview["waiting_for"]) == (True, False, [])
    assert preview["memories"] == {"long_term": 4}
    places = {place["name"]: place["found"] for place in preview["places"]}
    assert (places["memories"], places["messages"], places["conversations"]) == (4, 1, 1)
    hold = holdfast.holds.add(tag="case=7", reason="Case 7", author="legal")
    holdfast.holds.add(agent_id="another", reason="Case 8", author="legal")
    refused = holdfast.preview_erasure("ann")
    assert [one["hold_id"] for one in refused["holds"]] == [hold.id]
    assert refused["is_refused"]
    assert memory.get(tagged)["content"] == "Four", "nothing was changed"
    holdfast.holds.release(hold.id)
    erased = holdfast.erase_user("ann")
    assert {"long_term": erased.kinds["long_term"]} == preview["memories"]
    assert holdfast.preview_erasure("nobody")["is_known"] is False
