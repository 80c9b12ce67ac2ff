"""A conversation in, facts out: what an extractor makes is added, says where it is from, and overwrites nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, MemoryManager, aio
from holdfast.core.errors import InvalidInputError

TALK = [
    {"role": "user", "content": "I moved to Lyon last week"},
    {"role": "assistant", "content": "How do you like it?"},
]


def test_facts_are_added_and_say_which_messages_they_are_from(memory: MemoryManager) -> None:
    seen: list[dict[str, Any]] = []

    def extract(messages: list[dict[str, Any]]) -> list[Any]:
        seen.extend(messages)
        second = {
            "content": "Ann likes questions",
            "memory_type": "persona",
            "derived_from": [messages[1]["message_id"]],
        }
        return ["Ann lives in Lyon", second]

    first, second = memory.remember(TALK, extract)
    kept = memory.short_term.get_conversation_history()
    assert [(one["role"], one["content"]) for one in kept] == [(one["role"], one["content"]) for one in TALK]
    ids = [one["message_id"] for one in kept]
    assert [one["message_id"] for one in seen] == ids
    assert (first["operation"], first["content"], first["derived_from"]) == ("add", "Ann lives in Lyon", ids)
    assert memory.get(first["memory_id"])["derived_from"] == ids
    assert (second["memory_type"], second["derived_from"]) == ("persona", ids[1:])
    assert {one["memory_id"] for one in memory.derived(ids[1])} == {first["memory_id"], second["memory_id"]}


def test_messages_that_are_kept_already_are_not_kept_again(memory: MemoryManager) -> None:
    memory.short_term.add_messages(TALK)
    history = memory.short_term.get_conversation_history()
    (fact,) = memory.remember(history, lambda _messages: ["Ann lives in Lyon"])
    assert memory.short_term.get_conversation_history() == history
    assert fact["derived_from"] == [one["message_id"] for one in history]


def test_a_fact_overwrites_nothing_and_proposes_what_it_may_correct(memory: MemoryManager) -> None:
    old = memory.add("Ann lives in Paris")["memory_id"]
    memory.add("Ann's dog is called Rex")
    facts = ["Ann lives in Lyon", "Ann lives in Nice"]
    first, second = memory.remember(TALK, lambda _messages: facts)
    assert [one["memory_id"] for one in first["similar"]] == [old]
    assert [one["memory_id"] for one in second["similar"]] == [old], "not what was added with it"
    assert memory.get(old)["content"] == "Ann lives in Paris"
    (again, _) = memory.remember(TALK, lambda _messages: facts)
    assert (again["operation"], again["memory_id"]) == ("exists", first["memory_id"])


def test_nothing_is_asked_of_nothing_and_nothing_comes_of_nothing(memory: MemoryManager) -> None:
    assert memory.remember([], lambda _messages: pytest.fail("there is nothing to extract from")) == []
    assert memory.remember(TALK, lambda _messages: []) == []
    assert memory.count_memories() == 0


@pytest.mark.parametrize(
    "facts",
    [
        "Ann likes tea",
        {"content": "Ann likes tea"},
        None,
        ["fine", 7],
        ["fine", {"text": "Ann"}],
        ["fine", {"content": "Ann", "key": "home"}],
        ["fine", {"content": " "}],
        ["fine", {"content": "Ann", "derived_from": ["0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"]}],
    ],
)
def test_a_fact_that_is_none_is_refused_before_any_is_added(memory: MemoryManager, facts: Any) -> None:
    with pytest.raises(InvalidInputError):
        memory.remember(TALK, lambda _messages: facts)
    assert memory.count_memories() == 0
    assert len(memory.short_term.messages()) == 2, "what was said stays"


@pytest.mark.parametrize(
    "messages", ["hello", [7], {"role": "user"}, [{"role": "user", "content": "x", "message_id": "7"}]]
)
def test_what_is_no_conversation_is_refused(memory: MemoryManager, messages: Any) -> None:
    with pytest.raises(InvalidInputError):
        memory.remember(messages, lambda _messages: ["x"])
    with pytest.raises(InvalidInputError):
        memory.remember(TALK, "an LLM")  # type: ignore[arg-type]


def test_async_callers_bring_either_kind_of_extractor(holdfast: Holdfast) -> None:
    async def slow(messages: list[dict[str, Any]]) -> list[str]:
        await asyncio.sleep(0)
        return [f"Ann said {len(messages)} things"]

    async def program() -> list[str]:
        memory = aio.Holdfast(holdfast).manager("user", "agent", "session")
        plain = await memory.remember(TALK, lambda _messages: ["Ann lives in Lyon"])
        waited = await memory.remember(TALK, slow)
        with pytest.raises(InvalidInputError):
            await memory.remember(TALK, lambda _messages: [7])  # type: ignore[list-item]
        return [one["content"] for one in (*plain, *waited)]

    assert asyncio.run(program()) == ["Ann lives in Lyon", "Ann said 2 things"]
