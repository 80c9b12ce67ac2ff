"""The passages of a text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retain.recall.passages import MAX_PASSAGES, TARGET, split

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
