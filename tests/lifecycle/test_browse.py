"""What is kept of a user can be looked through: every kind, agent, session and state, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError

KINDS = ("long_term", "persona", "structured")


def fill(holdfast: Holdfast, clock: FakeClock) -> list[str]:
    """Memories of ann with two agents, in three sessions, of three kinds; their ids in the order they were made."""
    made = []
    for number in range(24):
        agent, session = f"agent{number % 2}", (None, "s1", "s2")[number % 3]
        memory = holdfast.manager("ann", agent, session)
        kind = KINDS[number % len(KINDS)]
        content: Any = {"note": f"Note {number}"} if kind == "structured" else f"Note {number}"
        metadata = {"collection": "notes"} if kind == "structured" else None
        source = "import:crm" if number % 4 == 0 else None
        made.append(memory.add(content, kind, metadata, source=source)["memory_id"])
        clock.advance(minutes=1)
    return made


def browse(holdfast: Holdfast, limit: int = 5, **asked: Any) -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    after = None
    while True:
        page, after = holdfast.memories.page("ann", after=after, limit=limit, **asked)
        found += page
        if after is None:
            return found
        assert len(page) == limit


def test_pages_of_any_size_are_the_whole_list_newest_first(holdfast: Holdfast, clock: FakeClock) -> None:
    made = fill(holdfast, clock)
    for limit in (1, 5, 23, 24, 25):
        assert [one["memory_id"] for one in browse(holdfast, limit)] == made[::-1]
    assert browse(holdfast, memory_type="episodic") == []
    assert holdfast.memories.page("nobody") == ([], None)


def test_each_filter_takes_what_it_names(holdfast: Holdfast, clock: FakeClock) -> None:
    made = fill(holdfast, clock)
    holdfast.manager("ann", "agent0").delete(made[2])

    def numbers(**asked: Any) -> list[int]:
        return sorted(made.index(one["memory_id"]) for one in browse(holdfast, **asked))

    assert numbers(memory_type="persona") == [n for n in range(24) if n % 3 == 1]
    assert numbers(agent_id="agent1") == [n for n in range(24) if n % 2 == 1]
    assert numbers(session_id="s2") == [n for n in range(24) if n % 3 == 2]
    assert numbers(source="import:crm") == [n for n in range(24) if n % 4 == 0]
    assert numbers(source="agent:agent0") == [n for n in range(24) if n % 4 == 2]
    assert numbers(state="recycled") == [2]
    assert numbers(state="active", agent_id="agent0", session_id="s2") == [8, 14, 20]
    from_four, before_six = (browse(holdfast)[-1 - place]["created_at"] for place in (4, 6))
    assert numbers(created_from=from_four, created_before=before_six) == [4, 5]
    with pytest.raises(InvalidInputError, match="no state 'gone'"):
        numbers(state="gone")
    with pytest.raises(InvalidInputError, match="cannot be browsed"):
        numbers(memory_type="working")


def test_what_is_added_and_removed_meanwhile_neither_repeats_nor_hides_anything(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    made = fill(holdfast, clock)
    first, after = holdfast.memories.page("ann", limit=10)
    holdfast.manager("ann", "agent1").delete(made[13])
    holdfast.manager("ann", "agent1").add("Another")
    rest, after = holdfast.memories.page("ann", limit=100, after=after)
    assert [one["memory_id"] for one in first + rest] == made[::-1]
    assert after is None


def test_a_list_shows_what_is_to_become_of_each_and_no_content_that_nobody_may_read(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("ann", "guide")
    long = memory.add("word " * 2_000, "long_term", key="tale")["memory_id"]
    secret = memory.add("The code is 4711.")["memory_id"]
    same = memory.add("The key is under the pot.")["memory_id"]
    own = memory.add("I am your guide.", "persona")["memory_id"]
    episode = memory.episodic.record_episode("Book a train", ["looked"])
    holdfast.holds.add(memory_id=secret, reason="Case 1", author="legal")
    memory.delete(same, keep_out=True)
    shown = {one["memory_id"]: one for one in browse(holdfast)}
    assert shown[long]["content"] == ("word " * 60)
    assert shown[long]["is_cut"]
    assert shown[long]["key"] == "tale"
    assert shown[long]["bytes"] == 10_000
    assert shown[long]["archive_at"] is not None
    assert (shown[secret]["is_held"], shown[long]["is_held"]) == (True, False)
    assert shown[same]["state"] == "recycled"
    assert shown[same]["content"] is None
    assert shown[same]["purge_at"] is not None
    assert shown[episode]["is_visible"]
    clock.advance(days=400)
    assert {one["memory_id"]: one for one in browse(holdfast)}[episode]["content"] is None, "its time is over"
    assert not {one["memory_id"]: one for one in browse(holdfast)}[episode]["is_visible"]
    holdfast.agents.add("guide", "A guide")
    holdfast.agents.remove("guide")
    assert {one["memory_id"]: one for one in browse(holdfast)}[own]["state"] == "recycled"


def test_facets_count_what_there_is(holdfast: Holdfast, clock: FakeClock) -> None:
    made = fill(holdfast, clock)
    holdfast.manager("ann", "agent1").delete(made[3])
    facets = holdfast.memories.facets("ann")
    assert (facets["memories"], facets["is_whole"]) == (24, True)
    assert facets["kinds"] == {"long_term": 8, "persona": 8, "structured": 8}
    assert facets["states"] == {"active": 23, "recycled": 1}
    assert facets["agents"] == {"agent0": 12, "agent1": 12}
    assert facets["sessions"] == {"s1": 8, "s2": 8}
    assert facets["sources"] == {"agent:agent1": 12, "import:crm": 6, "agent:agent0": 6}
    assert facets["bytes"] == sum(one["bytes"] for one in browse(holdfast))


def test_the_beginning_of_a_text_is_shown_as_it_is(holdfast: Holdfast) -> None:
    memory = holdfast.manager("ben", "guide")
    for text in ("x", "é" * 299, "é" * 300, "🙂" * 301, "noon " * 9_000, "".join(map(chr, range(0x4E00, 0x5200)))):
        memory_id = memory.add(text)["memory_id"]
        ((shown, *_), _) = holdfast.memories.page("ben", limit=1)
        assert (shown["memory_id"], shown["content"]) == (memory_id, text[:300])
        assert shown["is_cut"] == (len(text) > 300)


def test_a_place_in_the_list_of_one_user_shows_nothing_of_another(holdfast: Holdfast) -> None:
    for user in ("ann", "ben", "cas"):
        holdfast.manager(user, "guide").add_many([f"{user} {number}" for number in range(4)])
    lists = {user: holdfast.memories.page(user, limit=2) for user in ("ann", "ben", "cas")}
    for _, after in lists.values():
        shown, _ = holdfast.memories.page("ben", limit=100, after=after)
        assert all(str(one["content"]).startswith("ben") for one in shown)
    shown, _ = holdfast.memories.page("ben", limit=100, after=(2**62,) * 5)
    assert len(shown) == 4


def test_a_page_passes_over_a_bounded_number_and_says_where_to_go_on(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(holdfast, clock)
    whole = [one["memory_id"] for one in browse(holdfast, agent_id="agent1")]
    monkeypatch.setattr("holdfast.storage.relational.figures._PASSED_OVER", 3)
    found: list[Any] = []
    pages, after = 0, None
    while True:
        page, after = holdfast.memories.page("ann", after=after, limit=5, source="import:crm", agent_id="agent0")
        found += page
        pages += 1
        if after is None:
            break
    assert pages > 2
    assert sorted(one["memory_id"] for one in found) == sorted(made[0::4])
    assert len(whole) == 12
