"""When two texts are the same text."""

from __future__ import annotations

import unicodedata
from typing import Any

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


@pytest.mark.parametrize("mark", "。、।॥؟،۔։።။។!?…‽")
def test_the_closing_punctuation_of_any_script_makes_no_difference(mark: str) -> None:
    assert normalize_text(f"Ann likes tea {mark}{mark}") == normalize_text("Ann likes tea")


#: Letters that are folded, marks that join with what is before them, and what cannot be seen.
FORMS = st.text(
    "aeiIß\u0130\u0149\u03b1\u03a3\u1fb3\ufb01\u2126\uac00\u1100\uffa0 .\u0300\u0301\u0307\u0323\u0328\u0345",
    max_size=8,
)
UNSEEN = st.sampled_from("\x07\xad\u034f\u180b\u200b\u200d\u2060\ufe0f\ufeff\u3164\U0001d173")


@given(st.text() | FORMS)
def test_what_was_normalized_stays_as_it_is(text: str) -> None:
    once = normalize_text(text)
    assert normalize_text(once) == once


@given(FORMS, UNSEEN, st.data())
def test_what_cannot_be_seen_makes_no_difference_wherever_it_is(text: str, unseen: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    assert normalize_text(text[:place] + unseen + text[place:]) == normalize_text(text)


@pytest.mark.parametrize("unseen", ["\u200b", "\u034f", "\ufe0f"])
def test_nothing_unseen_keeps_a_letter_and_its_accent_apart(unseen: str) -> None:
    assert normalize_text(f"Cafe{unseen}\u0301") == normalize_text("caf\xe9")


@given(FORMS, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_a_text_is_the_same_in_each_form_of_unicode(text: str, form: Any) -> None:
    assert normalize_text(unicodedata.normalize(form, text)) == normalize_text(text)


def test_a_hash_fits_into_a_column_of_whole_numbers() -> None:
    hashes = [hash_text(str(number)) for number in range(1_000)]
    assert len(set(hashes)) == len(hashes)
    assert all(-(2**63) <= one < 2**63 for one in hashes)
    assert min(hashes) < 0 < max(hashes)
