"""The pure functions that evidence is made of."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.recall import ranking


def floats(*values: float) -> ranking.Floats:
    return np.array(values, np.float32)


def test_of_a_single_vector_hardly_anything_is_common() -> None:
    assert 0 < ranking.common_share(1) < 0.2


def test_of_many_vectors_nearly_all_that_they_share_is_taken_out() -> None:
    assert 0.99 < ranking.common_share(500) < ranking.common_share(1_000) == 1


def test_no_vectors_share_nothing() -> None:
    assert ranking.common_share(0) == 0


def test_what_all_texts_share_does_not_make_them_alike() -> None:
    # Two vectors that have 0.8 in common with everything, and point in opposite directions beyond that.
    common = floats(0.8, 0.8)
    own = ranking.own_length(common, 1.0)
    close = ranking.own_cosines(floats(1.0, 0.28) / own, common / own, 0.8, 1.0)
    assert close.tolist() == pytest.approx([1.0, -1.0], abs=1e-5)


def test_a_vector_with_nothing_of_its_own_is_close_to_nothing() -> None:
    common = floats(1.0, 0.0)
    own = ranking.own_length(common, 1.0)
    close = ranking.own_cosines(floats(0.5, 0.0) / own, common / own, 0.5, 1.0)
    assert np.isfinite(close).all()
    assert close.tolist() == pytest.approx([0, 0], abs=1e-6)


def test_a_rare_word_weighs_more_than_a_common_one_in_scopes_of_any_size() -> None:
    for records in (1, 3, 10_000):
        rare, common = ranking.rarity(records, [1, records + 1])
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
    whole, half = ranking.lexical(np.array([4.0, 2.0]), np.array([1.0, 0.5]))
    assert whole > 2 * half > 0


def test_a_few_alike_neighbours_do_not_make_a_thread_and_many_do() -> None:
    assert ranking.thread(0, 0) == 0
    assert ranking.thread(0.15, 1) < 0.25
    assert ranking.thread(200 * 0.15, 200) == 1
    assert ranking.thread(200 * -0.15, 200) == 0


def test_neither_an_interjection_nor_a_treatise_owes_much_to_its_neighbours() -> None:
    interjection, turn, treatise = ranking.openness(floats(2, 30, 2_000))
    assert turn > 4 * interjection
    assert turn > 4 * treatise


def test_a_strong_neighbour_lends_more_than_several_faint_ones() -> None:
    links = np.array([-1, 0, 1, 2, 3]), np.array([1, 2, 3, 4, -1])
    strong = ranking.neighbour_evidence(floats(0, 1.5, 0, 0, 0), 0.3, links, 1.0)
    faint = ranking.neighbour_evidence(floats(0.5, 0.5, 0, 0.5, 0.5), 0.3, links, 1.0)
    assert strong[2] > 2 * faint[2] > 0
    assert strong[0] == strong[2] > strong[3] > strong[4] == 0


def test_what_any_text_may_have_is_not_lent() -> None:
    links = (np.array([-1, 0]), np.array([1, -1]))
    assert not ranking.neighbour_evidence(floats(0.25, 0.25), 0.3, links, 1.0).any()


def test_what_is_close_or_holds_the_words_is_related_and_the_best_of_many_by_chance_is_not() -> None:
    assert ranking.related(0.6, 1.0, 10_000) > 0.99
    assert ranking.related(0.7, 0.0, 100) > 0.5
    assert ranking.related(0.0, 1.0, 100) > 0.5, "the embedder may be away"
    assert ranking.related(0.0, 0.0, 1) < 0.05
    by_chance = 0.08 * float(ranking.chance(np.array([10_000]))[0])
    assert ranking.related(by_chance, 0.0, 10_000) == pytest.approx(ranking.related(0.0, 0.0, 1), abs=1e-3)


def test_the_best_of_many_passages_is_not_closer_for_being_one_of_many() -> None:
    counts = np.array([1, 20])
    by_chance = ranking.chance(counts) * np.float32(0.1)
    one, many = ranking.closeness(floats(0.3, 0.5), floats(0.3, 0.3), by_chance)
    assert one == pytest.approx(0.3)
    assert many < 0.3, "0.5 is what the best of twenty has by chance, and all of them together are no closer"


def test_words_weigh_less_where_they_spread_more_and_more_where_vectors_tell_little() -> None:
    rng = np.random.default_rng(5)
    closeness, words = rng.normal(size=(2, 1_000)).astype(np.float32)
    weight = ranking.word_weight(closeness, words)
    assert ranking.word_weight(closeness, words * 8) == pytest.approx(weight / 8 ** (1_000 / 1_100), rel=0.03)
    assert ranking.word_weight(closeness * np.float32(0.5), words) < weight
    closeness[7] = 12
    assert ranking.word_weight(closeness, words) < weight / 2, "one record stands out by its vector"


def test_a_scope_of_a_few_records_says_little_about_what_words_weigh() -> None:
    assert ranking.word_weight(floats(0.1, 0.5), floats(3, 0)) == pytest.approx(ranking.LEXICAL, rel=0.05)
    assert ranking.word_weight(floats(0.5), floats(3)) == ranking.LEXICAL
    assert ranking.word_weight(floats(0, 0), floats(3, 0)) == ranking.LEXICAL, "there are no vectors"


def test_what_is_faint_follows_what_stands_out_among_many_records() -> None:
    assert ranking.faint(floats(0.1, 0.2)) == pytest.approx(0.3, abs=0.01)
    many = np.linspace(0, 1, 10_000, dtype=np.float32)
    assert ranking.faint(many) == pytest.approx(0.5 + 2.5 * float(many.std()), rel=0.02)
