"""Ten years of a store in which everything goes wrong that can, checked against a plain model after every step."""

from __future__ import annotations

import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest

import effort
from effort import soak
from homes import ENGINES, on_sqlite
from simulation.world import World

#: Another one can be tried: ``HOLDFAST_SEED=7 pytest tests/simulation``.
SEED = "HOLDFAST_SEED"
YEARS = 10
#: In so many seeds everything goes wrong that can.
ENOUGH = 8
STEPS = {"sqlite": 160, "postgres": 50}
#: What goes wrong in them.
FAULTS = {
    "sqlite": {"it dies", "the disk is full"},
    "postgres": {"it dies", "the server goes away", "an answer is lost"},
}


def live(engine_name: str, seed: int, patch: pytest.MonkeyPatch, years: int = YEARS) -> World:
    """A world after its years. If anything was wrong, how it came to that, and how to see it again."""
    world = World(engine_name, seed, patch)
    try:
        world.live(years, STEPS[engine_name] * years // YEARS)
        world.teardown()
    except BaseException as problem:
        within = [frame.name for frame in traceback.extract_tb(problem.__traceback__) if frame.name in world.words]
        steps_before = "\n".join(world.trail[-25:])
        problem.add_note(f"wrong after {len(world.trail)} steps: {within[-1] if within else 'the end'}")
        problem.add_note(f"the last steps:\n{steps_before}\nsee it again with: {SEED}={seed} pytest tests/simulation")
        raise
    return world


def seeds() -> Iterator[int]:
    """The one that is asked for, or the first; with ``--soak``, new ones without end."""
    asked = os.environ.get(SEED)
    if asked is not None or not effort.is_soaking():
        yield int(asked or 1)
    else:
        yield from count(random.SystemRandom().randrange(1_000, 10**6))


@soak
def test_ten_years_in_which_everything_goes_wrong(
    engine_name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    wanted = set() if SEED in os.environ else FAULTS[engine_name]
    done: Counter[str] = Counter()
    tried: list[int] = []
    # what is left of the time of --soak is shared with the engines that come after this one
    end = time.monotonic() + effort.time_left() / (len(ENGINES) - ENGINES.index(engine_name))
    for seed in seeds():
        done += live(engine_name, seed, monkeypatch).done
        tried.append(seed)
        missing = {name for name in wanted if not done[name]}
        if time.monotonic() > end and (not missing or len(tried) >= ENOUGH):
            break
    went_wrong = Counter({name: done.pop(name, 0) for name in FAULTS[engine_name]})
    record_property("seeds", f"{tried[0]} to {tried[-1]}")
    record_property("what went wrong", _list(went_wrong))
    record_property("steps", _list(done))
    assert not missing, f"in seeds {tried[0]} to {tried[-1]}, this never happened: {', '.join(sorted(missing))}"


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {times:,}" for name, times in counts.most_common())


@soak
@on_sqlite
def test_a_seed_leads_to_the_same_steps_again(engine_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    years = YEARS if effort.is_soaking() else 1
    first, again = (live(engine_name, 1, monkeypatch, years) for _ in range(2))
    assert first.trail == again.trail
    assert first.done == again.done
