"""Recall ranks well on every shape of text: the labelled sets of ``bench/data``, ranked in every way."""

from __future__ import annotations

import pytest
from bench.quality import DATA, labelled

#: Questions are few, so that one answer more or less is worth so much.
NOISE = 0.02


@pytest.mark.parametrize("name", ["code", "languages", "lists", "long_messages", "preferences", "implied", "topics"])
def test_both_together_rank_at_least_as_well_as_the_better_of_the_two(name: str) -> None:
    figures = labelled(DATA / f"{name}.json").figures
    better = max(figures["vectors"].recall10, figures["words"].recall10)
    assert figures["both + neighbours"].recall10 >= better - NOISE
    assert figures["both"].recall10 >= better - NOISE
