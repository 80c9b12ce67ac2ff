"""How much the tests try: little with ``--quick``, enough to judge a change by default, and much with ``--soak``."""

from __future__ import annotations

import time
from typing import Final

import pytest

#: For a test that tries more with ``--soak`` and is not written with ``@given``: a state machine, kills, a large store.
soak: Final = pytest.mark.soak
#: For a test whose many parameters do not depend on the engine: the places at which something breaks, the verbs that are
#: refused, wrong inputs. On a server, which takes longer, a fifth of them are tried; all of them with ``--soak``.
sampled: Final = pytest.mark.sampled
#: For a test of services that is to run on every engine each time: histories that are compared with a model.
everywhere: Final = pytest.mark.everywhere
QUICK: Final = 0.1
SOAK: Final = 10.0
_scale = 1.0
_end = 0.0


def set_scale(scale: float) -> None:
    """Try so many times as much as by default, from here on."""
    global _scale  # noqa: PLW0603 - one run of the tests has one scale
    _scale = scale


def set_end(end: float) -> None:
    """Say when ``--soak`` is over, by ``time.monotonic``."""
    global _end  # noqa: PLW0603 - one run of the tests has one end
    _end = end


def is_soaking() -> bool:
    return _scale == SOAK


def has_time() -> bool:
    """Whether ``--soak`` goes on."""
    return time_left() > 0


def time_left() -> float:
    """Seconds until ``--soak`` is over: a test that never comes to its end by itself takes a part of them."""
    return _end - time.monotonic()


def times(count: int, engine_name: str = "sqlite") -> int:
    """How often to try something that ``make test`` tries ``count`` times; a quarter of it on a server, which takes longer."""
    return max(1, round(count * _scale * (1 if engine_name == "sqlite" else 0.25)))


def stride(engine_name: str) -> int:
    """At every how manieth effect to let a process die. What it does is the same on every engine, and a server takes longer."""
    return 1 if engine_name == "sqlite" or _scale == SOAK else 5


def every(count: int) -> int:
    """At every how manieth place to try something: ``count``, and at each of them with ``--soak``."""
    return 1 if _scale == SOAK else count
