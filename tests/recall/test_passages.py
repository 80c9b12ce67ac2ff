"""The passages of a text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retain.core.records import Encoding, Record, Scope
from retain.core.types import MemoryType
from retain.ports import Embedder
from retain.recall import terms
from retain.recall.embedders.static import StaticEmbedder
from retain.recall.passages import (
    MAX_PASSAGES,
    MAX_SUMMARY_PASSAGES,
    SUMMARY_TARGET,
    TARGET,
    kept_encoding,
    of_record,
    of_summary,
    split,
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


def encode(record: Record, embedder: Embedder | None) -> Encoding:
    """As recall encodes a record; without vectors where there is no embedder."""
    passages = of_record(record)
    if embedder is None:
        return Encoding(None, None, terms.encode(passages))
    return Encoding("model", embedder.embed(passages).astype(np.float16).tobytes(), terms.encode(passages))


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return StaticEmbedder()


def test_the_passages_of_an_episode_are_its_summary_and_then_what_was_said() -> None:
    record = episode(
        "Night trains to Oslo.", ["Which train?", " ", "The night train."], steps=[{"content": "searched"}]
    )
    assert of_record(record) == ["Plan a trip\nNight trains to Oslo.", "searched", "Which train?", "The night train."]
    assert of_record(archived(record)) == of_summary(record) == ["Plan a trip\nNight trains to Oslo."]
    assert of_record(replace(record, body={"task": "Plan a trip"})) == of_summary(record)


def test_a_summary_that_says_the_task_does_not_repeat_it() -> None:
    assert of_summary(episode("Plan a trip to Oslo", [])) == ["Plan a trip to Oslo"]
    assert of_summary(episode("Night trains", [], task=None)) == ["Night trains"]


def test_the_summary_of_a_long_conversation_is_one_passage_and_one_longer_than_that_is_cut() -> None:
    assert len(of_summary(episode("x" * (SUMMARY_TARGET + 100), []))) == 1
    passages = of_summary(episode(SENTENCE * 60, []))
    assert len(passages) > 2
    assert all(SUMMARY_TARGET / 2 < len(passage) < SUMMARY_TARGET * 2 for passage in passages)


def test_however_long_a_summary_is_messages_have_passages_of_their_own() -> None:
    record = episode(SENTENCE * 5_000, [f"message {number}" for number in range(500)])
    assert len(of_summary(record)) == MAX_SUMMARY_PASSAGES
    assert len(of_summary(record)) + 10 < len(of_record(record)) <= MAX_PASSAGES
    assert "message 499" in of_record(record)[-1]


TEXTS = st.lists(st.sampled_from(["Oslo", "night train", "7 May.", "!", "\n", "ski", SENTENCE * 9]), max_size=9).map(
    " ".join
)


@given(TEXTS, st.lists(TEXTS, max_size=80), st.sampled_from([None, "", "Oslo", "Plan a trip"]), st.booleans())
def test_archiving_an_episode_is_keeping_the_first_of_its_encoding(
    embedder: Embedder,
    summary: str,
    messages: list[str],
    task: str | None,
    embedded: bool,
) -> None:
    record = episode(summary, messages, task=task)
    with_vectors = embedder if embedded else None
    assert kept_encoding(record, encode(record, with_vectors)) == encode(archived(record), with_vectors)


def test_no_word_of_a_message_stays_with_an_archived_episode(embedder: Embedder) -> None:
    record = episode("Night trains to Oslo.", ["Theodor collects barometers", "Oslo is cold"])
    kept = kept_encoding(record, encode(record, embedder))
    said = set(terms.decode([kept.terms]).term.tolist())
    assert said.isdisjoint(terms.query_terms("Theodor collects barometers cold").tolist())
    assert said.issuperset(terms.query_terms("night trains Oslo").tolist())
    assert kept.vectors is not None
    assert len(kept.vectors) == 2 * embedder.dim


def test_keeping_twice_is_keeping_once(embedder: Embedder) -> None:
    record = episode("Night trains to Oslo.", ["Which train?"])
    kept = kept_encoding(record, encode(record, embedder))
    assert kept_encoding(archived(record), kept) == kept


def test_of_an_encoding_made_by_other_rules_nothing_is_kept(embedder: Embedder) -> None:
    record = episode("Night trains to Oslo.", ["Which train?", "Theodor collects barometers"])
    foreign = Encoding(
        "model", bytes(2 * embedder.dim * 2), terms.encode(["Night trains", "Theodor collects barometers"])
    )
    assert kept_encoding(record, foreign) == encode(archived(record), None)
