"""Moments: aware datetimes outside, whole microseconds since 1970 inside, nothing lost between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidInputError
from holdfast.core.values import DAY, EPOCH, SECOND, iso, moment, when

Offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
Aware = st.datetimes(timezones=Offsets).filter(lambda time: 1 < time.year < 9999)


@given(Aware)
def test_a_datetime_goes_in_and_comes_out_to_the_microsecond(given_time: datetime) -> None:
    assert when(moment(given_time)) == given_time
    assert when(moment(given_time)).tzinfo is UTC


@given(Aware)
def test_iso_text_means_the_same_as_its_datetime(given_time: datetime) -> None:
    assert moment(given_time.isoformat()) == moment(given_time)
    assert moment(iso(moment(given_time))) == moment(given_time)
    assert iso(moment(given_time)) == given_time.astimezone(UTC).isoformat()


@given(Aware, Aware)
def test_moments_keep_the_order_of_time(one: datetime, other: datetime) -> None:
    assert (moment(one) < moment(other)) == (one < other)


def test_seconds_since_1970_are_understood() -> None:
    assert moment(0) == 0
    assert moment(1.5) == 1_500_000
    assert moment(-1) == -SECOND
    assert moment(EPOCH + timedelta(days=1)) == DAY
    assert moment("2026-01-15T12:00:00Z") == moment(1_768_478_400) == 1_768_478_400 * SECOND


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-15T25:00:00Z", "12:00", "\ud800", "5"]
)
def test_text_that_is_no_time_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^since .* is not an ISO 8601 date and time$"):
        moment(text, what="since")


@pytest.mark.parametrize("naive", [EPOCH.replace(tzinfo=None), "2026-01-15T12:00:00"])
def test_a_time_without_a_zone_is_refused_with_advice(naive: datetime | str) -> None:
    with pytest.raises(InvalidInputError, match="has no time zone; add one"):
        moment(naive)


def test_a_date_is_its_first_instant_in_utc() -> None:
    assert moment("2026-01-15") == moment("2026-01-15T00:00:00Z")


@pytest.mark.parametrize(
    "value", [True, False, None, [], {}, b"2026", float("nan"), float("inf"), float("-inf"), 1e300, 10**400, -(10**400)]
)
def test_whatever_else_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(InvalidInputError, match="is not a time; use a datetime with a time zone"):
        moment(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_that_utc_cannot_express_is_refused_where_it_comes_in(text: str) -> None:
    with pytest.raises(InvalidInputError, match="outside the years 1 to 9999"):
        moment(text)


@given(st.floats(allow_nan=False) | st.integers() | Aware)
def test_every_moment_that_is_accepted_can_be_shown(value: float | datetime) -> None:
    try:
        accepted = moment(value)
    except InvalidInputError:
        return
    assert moment(iso(accepted)) == accepted
