"""The passages of a text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.records import MemoryType, Record, Scope
from holdfast.recall.passages import (
    MAX_PASSAGES,
    MAX_SUMMARY_PASSAGES,
    SUMMARY_TARGET,
    TARGET,
    split,
    split_record,
    split_summary,
)

SENTENCE = "The committee agreed on the second of the three proposals. "


def test_a_short_text_is_one_passage_without_the_space_around_it() -> None:
    assert split("  User enjoys skiing\n") == ["User enjoys skiing"]


def test_a_text_without_content_is_one_empty_passage() -> None:
    assert split("") == [""]
    assert split(" \n ") == [""]


def test_a_text_a_little_over_the_usual_size_stays_whole() -> None:
    assert len(split("x" * (TARGET + 100))) == 1


def test_a_long_text_is_cut_into_passages_of_about_the_usual_size() -> None:
    passages = split(SENTENCE * 60)
    assert len(passages) > 5
    assert all(TARGET / 2 < len(passage) < TARGET * 2 for passage in passages)


def test_passages_end_where_sentences_end() -> None:
    assert all(passage.endswith(".") for passage in split(SENTENCE * 60))


def test_items_of_a_list_are_kept_whole() -> None:
    items = [f"- item {number} with some words about it, and a price of {number} euros" for number in range(40)]
    listed = {line for passage in split("\n".join(items)) for line in passage.splitlines()}
    assert listed == set(items)


def test_text_in_a_script_without_spaces_is_cut_at_its_full_stops() -> None:
    passages = split("今日は天気がよいので、公園を散歩しました。" * 80)
    assert len(passages) > 3
    assert all(passage.endswith("。") for passage in passages)


def test_a_text_of_any_length_has_a_bounded_number_of_passages() -> None:
    assert len(split(SENTENCE * 5_000)) <= MAX_PASSAGES
    assert len(split("x" * 200_000)) <= MAX_PASSAGES
    assert len(split("x\n" * 50_000)) <= MAX_PASSAGES


@given(st.text(alphabet=st.sampled_from("ab.!\n 。é"), max_size=3_000))
def test_together_passages_are_the_text(text: str) -> None:
    passages = split(text)
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert len(passages) <= MAX_PASSAGES
    assert all(passages) or passages == [""]


# --- episodes ---------------------------------------------------------------------------------------------------------


def episode(summary: str, messages: list[str], *, task: str | None = "Plan a trip", **body: Any) -> Record:
    return Record(
        id="00000000-0000-7000-8000-000000000000",
        kind=MemoryType.EPISODIC,
        scope=Scope("default", "ann", "agent"),
        content=summary,
        created_at=0,
        updated_at=0,
        dated_at=0,
        metadata={} if task is None else {"task": task},
        body={
            "task": task,
            "steps": [],
            "messages": [{"content": text} for text in messages],
            "tool_calls": [],
            **body,
        },
    )


def archived(record: Record) -> Record:
    return replace(record, body=None)


def test_the_passages_of_an_episode_are_its_summary_and_then_what_was_said() -> None:
    record = episode(
        "Night trains to Oslo.", ["Which train?", " ", "The night train."], steps=[{"content": "searched"}]
    )
    assert split_record(record) == [
        "Plan a trip\nNight trains to Oslo.",
        "searched",
        "Which train?",
        "The night train.",
    ]
    assert split_record(archived(record)) == split_summary(record) == ["Plan a trip\nNight trains to Oslo."]
    assert split_record(replace(record, body={"task": "Plan a trip"})) == split_summary(record)


def test_a_summary_that_says_the_task_does_not_repeat_it() -> None:
    assert split_summary(episode("Plan a trip to Oslo", [])) == ["Plan a trip to Oslo"]
    assert split_summary(episode("Night trains", [], task=None)) == ["Night trains"]


def test_the_summary_of_a_long_conversation_is_one_passage_and_one_longer_than_that_is_cut() -> None:
    assert len(split_summary(episode("x" * (SUMMARY_TARGET + 100), []))) == 1
    passages = split_summary(episode(SENTENCE * 60, []))
    assert len(passages) > 2
    assert all(SUMMARY_TARGET / 2 < len(passage) < SUMMARY_TARGET * 2 for passage in passages)


def test_however_long_a_summary_is_messages_have_passages_of_their_own() -> None:
    record = episode(SENTENCE * 5_000, [f"message {number}" for number in range(500)])
    assert len(split_summary(record)) == MAX_SUMMARY_PASSAGES
    assert len(split_summary(record)) + 10 < len(split_record(record)) <= MAX_PASSAGES
    assert "message 499" in split_record(record)[-1]
