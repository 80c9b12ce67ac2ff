"""Text into terms, and terms into a record's row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.recall import terms
from holdfast.recall.terms import (
    ENTRY,
    Terms,
    count_passages,
    decode,
    encode,
    encode_each,
    query_terms,
    query_terms_of,
    tokenize,
)


def shared(query: str, text: str) -> set[str]:
    return set(tokenize(query)) & set(tokenize(text))


def decode_all(records: list[list[str]]) -> Terms:
    """The terms of several records, through what their rows hold."""
    blobs = [encode(passages) for passages in records]
    return decode(b"".join(blobs), np.array([len(blob) for blob in blobs], np.int64))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("STRASSE", "Die Straße ist gesperrt"),
        ("ｆｕｌｌｗｉｄｔｈ", "fullwidth letters"),
        ("cafe", "a table at the café"),
        ("Garcon", "le garçon"),
        ("hike", "we hiked, they were hiking, many hikes"),
        ("studies", "she studied a study"),
        ("Caroline", "Caroline’s car"),
        ("eau", "un verre d'eau"),
        ("email", "her e-mail address"),
        ("covid", "COVID-19"),
        ("42", "room 42b? no, 42"),
        ("東京", "東京都に住む"),
        ("สวัสดี", "สวัสดีครับ"),
        ("서울", "서울에서"),
        ("हिन्दी", "वह हिन्दी बोलता है"),
        ("кофе", "Кофе без сахара"),
    ],
)
def test_a_word_is_found_however_it_is_written(query: str, text: str) -> None:
    assert shared(query, text)


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("snake_case_name", {"snake", "case", "name"}),
        ("camelCaseName", {"camel", "case", "name"}),
        ("HTTPServer", {"http", "server"}),
        ("os.path.join", {"os", "path", "join"}),
        ("kebab-case", {"kebab", "case"}),
        ("getHTTPResponse2", {"get", "http"}),
    ],
)
def test_an_identifier_is_found_whole_and_in_part(identifier: str, parts: set[str]) -> None:
    for part in parts:
        assert shared(part, f"call {identifier}() first")
    whole = set(tokenize(identifier)) - {token for part in parts for token in tokenize(part)}
    assert whole & set(tokenize(f"({identifier})"))


def test_camel_case_and_lower_case_spellings_of_a_name_meet() -> None:
    assert shared("username", "the userName field")


def test_words_that_only_look_inflected_stay_apart() -> None:
    assert not shared("string", "str")
    assert not shared("speed", "spe")
    assert not shared("bring", "br")


@given(st.lists(st.text(st.sampled_from("ab .é京都\n1"), max_size=40), max_size=6))
def test_many_texts_are_encoded_at_once_as_each_would_be(texts: list[str]) -> None:
    def entries(blob: bytes) -> list[Any]:
        return sorted(np.frombuffer(blob, ENTRY).tolist())

    assert [entries(blob) for blob in encode_each(texts)] == [entries(encode([text])) for text in texts]


@given(st.lists(st.text(st.sampled_from("ab ."), max_size=9), min_size=1, max_size=256))
def test_the_number_of_passages_is_read_from_the_last_entry(passages: list[str]) -> None:
    assert count_passages(encode(passages)) == len(passages)


def test_a_text_without_a_word_has_no_terms() -> None:
    assert tokenize("… --- !?") == []
    assert query_terms("…").tolist() == []


def test_a_query_is_about_its_telling_words() -> None:
    assert query_terms("What does the user like about skiing?").tolist() == query_terms("user skiing").tolist()
    assert query_terms("¿Dónde está la estación?").tolist() == query_terms("estación").tolist()


@given(
    st.lists(st.sampled_from(["the", "Who", "is", "night", "trains", "…", "夜行列車", "e-mail"]), max_size=9).map(
        " ".join
    )
)
@example("")
def test_what_a_text_asks_for_can_be_read_from_its_stored_terms(text: str) -> None:
    assert query_terms_of(encode([text])).tolist() == query_terms(text).tolist()


@pytest.mark.parametrize("word", ["Sam", "Ben", "Mia", "Don", "AI", "EU", "May", "war", "son", "bin", "door"])
def test_a_name_is_not_taken_for_a_common_word_of_another_language(word: str) -> None:
    assert set(query_terms(word).tolist()) <= set(query_terms(f"what about {word} and Lisbon?").tolist())


def test_a_query_of_nothing_but_common_words_is_taken_at_its_word() -> None:
    assert len(query_terms("to be or not to be")) == 4
    assert len(query_terms("The Who")) == 2


def test_terms_are_the_same_on_every_machine_and_in_every_release() -> None:
    assert query_terms("Lisbon").tolist() == [543_183_029]
    assert encode(["Lisbon"]).hex() == "b55060200001"


def test_what_is_encoded_comes_back_by_passage() -> None:
    said = decode_all([["tea tea milk", "", "milk"], ["…"], ["sugar"]])
    tea, milk, sugar = (int(query_terms(word)[0]) for word in ("tea", "milk", "sugar"))
    entries = zip(said.passage.tolist(), said.term.tolist(), said.times.tolist(), strict=True)
    assert set(entries) == {(0, tea, 2), (0, milk, 1), (2, milk, 1), (4, sugar, 1)}
    assert said.passages.tolist() == [3, 1, 1]


def test_a_word_repeated_without_end_takes_no_more_room_than_one() -> None:
    assert len(encode(["spam " * 5_000])) == len(encode(["spam"])) == terms.ENTRY.itemsize
    assert decode(encode(["spam " * 5_000])).times.tolist() == [255]


def test_nothing_encoded_is_nothing_decoded() -> None:
    assert decode_all([]).passages.tolist() == []


@given(st.lists(st.lists(st.text(max_size=40), min_size=1, max_size=4), max_size=5))
def test_any_text_can_be_encoded_and_every_query_term_of_it_is_there(records: list[list[str]]) -> None:
    said = decode_all(records)
    assert said.passages.tolist() == [len(passages) for passages in records]
    for number, passage in enumerate(passage for passages in records for passage in passages):
        assert set(query_terms(passage).tolist()) <= set(said.term[said.passage == number].tolist())
    assert np.all(said.times > 0)
