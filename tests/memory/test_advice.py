"""A refusal says what to do, in words that fit what was asked."""

from __future__ import annotations

import pytest

from holdfast import (
    ConflictError,
    Holdfast,
    InvalidContentError,
    InvalidInputError,
    InvalidScopeError,
    KeptOutError,
    MemoryType,
)


def test_history_takes_an_id_or_a_key(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide")
    for which in ({}, {"memory_id": memory.add("tea")["memory_id"], "key": "drink"}):
        with pytest.raises(InvalidInputError, match=r"^give the id of a memory or its key: one of the two$"):
            memory.history(**which)


@pytest.mark.parametrize("kind", [MemoryType.LONG_TERM, MemoryType.PERSONA])
def test_what_cannot_come_back_because_its_key_is_taken_names_the_key(holdfast: Holdfast, kind: MemoryType) -> None:
    memory = holdfast.manager("alice", "guide")
    first = memory.add("Lives in Leeds", kind, key="home")["memory_id"]
    memory.delete(first)
    memory.add("Lives in Lyon", kind, key="home")
    with pytest.raises(ConflictError, match=r"goes by its name \('home'\) now"):
        memory.restore(first)


def test_what_is_kept_out_names_the_memory_to_lift(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide")
    kept, other = (memory.add(text)["memory_id"] for text in ("Has the flu", "Skis"))
    memory.delete(kept, keep_out=True)
    for refuse in (
        lambda: memory.correct(other, "Has the flu"),
        lambda: memory.update(other, "Has the flu"),
        lambda: memory.add("Has the flu", key="health"),
        lambda: memory.restore(kept),
    ):
        with pytest.raises(KeptOutError, match=f"holdfast kept-out lift {kept}$"):
            refuse()
    with pytest.raises(KeptOutError, match="holdfast kept-out list"):
        holdfast.recycle.restore(user_id="alice")


def test_only_a_content_that_is_too_long_is_to_be_summed_up(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide")
    one = memory.add("tea")["memory_id"]
    with pytest.raises(InvalidContentError, match=r"remember a summary with a link$"):
        memory.add("x" * 9_000_000)
    for refuse in (lambda: memory.retrieve("x" * 70_000), lambda: memory.correct(one, "y", reason="x" * 5_000)):
        with pytest.raises(InvalidContentError, match=r"shorten it$"):
            refuse()


def test_a_collection_without_a_name_is_refused_and_none_is_the_default(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide")
    for refuse in (
        lambda: memory.structured.put("", {"a": 1}),
        lambda: memory.add({"a": 1}, "structured", {"collection": ""}),
        lambda: memory.structured.find(""),
    ):
        with pytest.raises(InvalidScopeError, match="collection must be a text that is not empty"):
            refuse()
    memory.add({"a": 1}, "structured")
    assert [one["collection"] for one in memory.structured.collections()] == ["default"]
