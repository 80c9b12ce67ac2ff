"""What a store believes of the time, as pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.clock import Belief, Seen, believe, sight
from holdfast.core.decisions import NO_LIFE, Window, split_window
from holdfast.core.records import State
from holdfast.core.values import DAY, SECOND

NOW = 1_800_000_000 * SECOND
TOLERANCE = 3 * DAY


def after(seen: Seen | None, *days: float) -> Seen:
    for day in days:
        seen = sight(seen, NOW + int(day * DAY), TOLERANCE)
    assert seen is not None
    return seen


def days(at: float, sighted: float | None = None) -> Seen:
    return Seen(NOW + int(at * DAY), None if sighted is None else NOW + int(sighted * DAY))


@pytest.mark.parametrize(
    ("came", "seen"),
    [
        ((0,), days(0)),
        ((0, 3), days(3)),
        ((0, 3.1), days(0, 3.1)),
        ((0, 2, 4, 6, 8), days(8)),
        ((0, 30, 30.9), days(0, 30)),
        ((0, 30, 31), days(31)),
        ((0, 30, 60), days(30, 60)),
        ((0, 30, 60, 90), days(60, 90)),
        ((0, 30, 60, 61), days(61)),
        ((0, 20, 0.1), days(0.1)),
        ((0, 20, 0.1, 21.5), days(0.1, 21.5)),
        ((0, 3_650, 30), days(0, 30)),
        ((0, 3_650, 30, 31), days(31)),
        ((0, 20, -1, 20.5), days(0, 20)),
    ],
)
def test_what_a_store_has_seen_after_these_times(came: tuple[float, ...], seen: Seen) -> None:
    assert after(None, *came) == seen


def test_a_trusted_time_is_believed_however_far_ahead_and_a_doubted_one_is_not_however_near() -> None:
    assert sight(Seen(NOW), NOW + 99 * DAY, TOLERANCE, trusted=True) == Seen(NOW + 99 * DAY)
    assert sight(Seen(NOW), NOW + SECOND, TOLERANCE, doubted=True) == Seen(NOW, NOW + SECOND)


@given(st.lists(st.integers(0, 10**4), min_size=2, max_size=30))
def test_a_time_is_believed_only_if_it_was_near_or_borne_out(hours: list[int]) -> None:
    seen: Seen | None = None
    came: list[int] = []
    for hour in hours:
        now = NOW + hour * 3_600 * SECOND
        before, seen = seen, sight(seen, now, TOLERANCE)
        if before is not None and seen.at > before.at:
            near = seen.at == now and now - before.at <= TOLERANCE
            borne_out = any(one <= now - DAY and one > before.at for one in came) and seen.at <= now
            assert near or borne_out
        assert before is None or seen.at >= before.at
        assert believe(seen, now).upto <= max(seen.at, now)
        came.append(now)


def test_a_forecast_takes_the_time_to_be_believed_by_then() -> None:
    belief = Belief(NOW, NOW - 20 * DAY, NOW)
    assert belief.until(NOW) == NOW - 20 * DAY
    assert belief.until(NOW - 30 * DAY) == NOW - 30 * DAY
    assert belief.until(NOW + DAY) == NOW + DAY
    assert Belief(NOW, NOW).until(NOW) == NOW


def test_only_archiving_in_place_is_parted_among_the_moves_of_live_records() -> None:
    life = NO_LIFE._replace(archive_after=90 * DAY, delete_after=365 * DAY)
    window = Window(State.ARCHIVED, NOW - 365 * DAY, NOW - 90 * DAY)
    done, later = split_window("episodic", life, window, NOW - 20 * DAY)
    assert done == window._replace(upto=NOW - 110 * DAY)
    assert later == window._replace(after=NOW - 110 * DAY)
    assert split_window("episodic", life, window, NOW) == (window, None)
    assert split_window("episodic", life, window, NOW - 3_650 * DAY) == (None, window)
    assert split_window("long_term", life, window, NOW - 20 * DAY) == (window, None)
    binned = window._replace(target=State.RECYCLED)
    assert split_window("episodic", life, binned, NOW - 20 * DAY) == (binned, None)
