"""The pure functions that evidence is made of."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.recall import ranking


def floats(*values: float) -> ranking.Floats:
    return np.array(values, np.float32)


def test_of_a_single_vector_hardly_anything_is_common() -> None:
    direction, removed = ranking.common_direction(np.array([3.0, 4.0]), 1)
    assert direction.tolist() == pytest.approx([0.6, 0.8])
    assert removed < 0.2


def test_of_many_vectors_nearly_all_that_they_share_is_taken_out() -> None:
    assert ranking.common_direction(np.array([900.0, 0.0]), 1_000)[1] > 0.99


def test_no_vectors_share_nothing() -> None:
    direction, removed = ranking.common_direction(np.zeros(3), 0)
    assert not direction.any()
    assert removed == 0


def test_what_all_texts_share_does_not_make_them_alike() -> None:
    # Two vectors that have 0.8 in common with everything, and point in opposite directions beyond that.
    common = floats(0.8, 0.8)
    own = ranking.own_length(common, 1.0)
    close = ranking.cosines(floats(1.0, 0.28), common, own, 0.8, 1.0)
    assert close.tolist() == pytest.approx([1.0, -1.0], abs=1e-5)


def test_a_vector_with_nothing_of_its_own_is_close_to_nothing() -> None:
    common = floats(1.0, 0.0)
    close = ranking.cosines(floats(0.5, 0.0), common, ranking.own_length(common, 1.0), 0.5, 1.0)
    assert np.isfinite(close).all()
    assert close.tolist() == pytest.approx([0, 0], abs=1e-6)


def test_a_rare_word_weighs_more_than_a_common_one_in_scopes_of_any_size() -> None:
    for records in (1, 3, 10_000):
        rare, common = ranking.rarity(records, np.array([1, records + 1]))
        assert rare > common > 0


def test_repeating_a_word_adds_less_each_time_and_length_dilutes_it() -> None:
    once, twice, often = ranking.saturation(floats(1, 2, 100), floats(10, 10, 10), 10.0)
    assert once < twice < often < ranking.K1 + 1
    assert twice - once < once
    short, long = ranking.saturation(floats(1, 1), floats(5, 500), 50.0)
    assert short > long


def test_the_usual_length_is_within_two_percent_of_the_mean() -> None:
    assert ranking.usual_length(0, 0) == 1
    assert ranking.usual_length(1_234, 100) == pytest.approx(12.34, rel=0.02)


def test_a_record_that_holds_the_whole_question_beats_the_sum_of_its_words() -> None:
    whole, half = ranking.lexical(floats(4, 2), floats(4, 2), 4.0)
    assert whole > 2 * half > 0
    assert not ranking.lexical(floats(0, 0), floats(0, 0), 0.0).any()


def test_a_few_alike_neighbours_do_not_make_a_thread_and_many_do() -> None:
    assert ranking.thread(floats()) == 0
    assert ranking.thread(floats(0.15)) < 0.25
    assert ranking.thread(np.full(200, 0.15, np.float32)) == 1
    assert ranking.thread(np.full(200, -0.15, np.float32)) == 0


def test_neither_an_interjection_nor_a_treatise_owes_much_to_its_neighbours() -> None:
    interjection, turn, treatise = ranking.openness(floats(2, 30, 2_000))
    assert turn > 4 * interjection
    assert turn > 4 * treatise


def test_a_strong_neighbour_lends_more_than_several_faint_ones() -> None:
    before, after = np.array([-1, 0, 1, 2, 3]), np.array([1, 2, 3, 4, -1])
    far_before, far_after = np.array([-1, -1, 0, 1, 2]), np.array([2, 3, 4, -1, -1])
    strong = ranking.neighbour_evidence(floats(0, 1.5, 0, 0, 0), (before, after), (far_before, far_after))
    faint = ranking.neighbour_evidence(floats(0.5, 0.5, 0, 0.5, 0.5), (before, after), (far_before, far_after))
    assert strong[2] > 2 * faint[2] > 0
    assert strong[0] == strong[2] > strong[3] > strong[4] == 0


def test_what_any_text_may_have_is_not_lent() -> None:
    links = (np.array([-1, 0]), np.array([1, -1]))
    assert not ranking.neighbour_evidence(floats(0.25, 0.25), links, (np.array([-1, -1]), np.array([-1, -1]))).any()


def test_scores_rise_with_evidence_from_nought_to_one() -> None:
    scores = [ranking.score(step / 10) for step in range(-10, 30)]
    assert scores == sorted(scores)
    assert scores[0] < 0.001
    assert scores[-1] > 0.999
