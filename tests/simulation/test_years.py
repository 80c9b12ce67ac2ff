"""Ten years of a store in which everything goes wrong that can, checked against a plain model after every step."""

from __future__ import annotations

import os

import pytest

from effort import soak, times
from simulation.world import World

#: Another one can be tried: ``HOLDFAST_SEED=7 pytest tests/simulation``.
SEED = "HOLDFAST_SEED"
YEARS = 10


def live(engine_name: str, seed: int, steps: int, patch: pytest.MonkeyPatch) -> World:
    """A world after its years. If anything was wrong, how it came to that, and how to see it again."""
    world = World(engine_name, seed, patch)
    try:
        world.live(YEARS, steps)
        world.teardown()
    except BaseException as problem:
        steps_before = "\n".join(world.trail[-25:])
        problem.add_note(f"the last steps:\n{steps_before}\nsee it again with: {SEED}={seed} pytest tests/simulation")
        raise
    return world


@soak
@pytest.mark.timeout(3_600)
def test_ten_years_in_which_everything_goes_wrong(engine_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = int(os.environ.get(SEED, "1"))
    for seed in range(first, first + times(1)):
        live(engine_name, seed, 160 if engine_name == "sqlite" else 60, monkeypatch)
