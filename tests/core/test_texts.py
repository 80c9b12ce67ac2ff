"""When two texts are the same text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.texts import hash_text, normalize_text


@pytest.mark.parametrize(
    "other",
    [
        "ann likes tea",
        "Ann likes tea.",
        "ANN\tlikes \n tea",
        " Ann likes tea!? ",
        "Ann likes tea …",
        "Ａｎｎ likes tea。",
    ],
)
def test_case_width_white_space_and_closing_punctuation_make_no_difference(other: str) -> None:
    assert normalize_text(other) == "ann likes tea"
    assert hash_text(other) == hash_text("Ann likes tea")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ann likes tea", "Ann likes teas"),
        ("Ann, likes tea", "Ann likes tea"),
        ("It grew by 5", "It grew by 5%"),
        ("He is no-one", "He is no one"),
        (".", "!"),
        ("résumé", "resume"),
    ],
)
def test_words_numbers_and_what_stands_within_do(one: str, other: str) -> None:
    assert hash_text(one) != hash_text(other)


def test_signs_that_fold_into_others_are_compared_as_those() -> None:
    assert normalize_text("STRASSE ﬁne ①") == normalize_text("straße fine 1")
    assert normalize_text("re\u0301sume\u0301") == normalize_text("RÉSUMÉ")


@given(st.text())
def test_what_was_normalized_stays_as_it_is(text: str) -> None:
    once = normalize_text(text)
    assert normalize_text(once) == once


def test_a_hash_fits_into_a_column_of_whole_numbers() -> None:
    hashes = [hash_text(str(number)) for number in range(1_000)]
    assert len(set(hashes)) == len(hashes)
    assert all(-(2**63) <= one < 2**63 for one in hashes)
    assert min(hashes) < 0 < max(hashes)
