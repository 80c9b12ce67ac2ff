"""Moments: aware UTC datetimes at the edges, whole microseconds since 1970 inside."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from retain.core.errors import InvalidInputError

#: A clock is a callable without arguments that returns an aware datetime.
Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
SECOND = 1_000_000
DAY = 86_400 * SECOND


def moment(when: datetime | float | str, *, what: str = "time") -> int:
    """Microseconds since 1970 for an aware datetime, seconds since 1970, or an ISO 8601 text with an offset."""
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise InvalidInputError(f"{what} {when!r} is not an ISO 8601 date and time") from None
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidInputError(f"{what} {when.isoformat()} has no time zone; use datetime(..., tzinfo=UTC)")
        micros = (when - EPOCH) // _MICROSECOND
        if not _FIRST <= micros <= _LAST:
            raise InvalidInputError(f"{what} {when.isoformat()} is outside the years 1 to 9999 in UTC")
        return micros
    if isinstance(when, bool) or not isinstance(when, int | float) or not -6e10 < when < 2.5e11:
        raise InvalidInputError(
            f"{what} {when!r} is not a time; use a datetime with a time zone, or seconds since 1970"
        )
    return round(when * SECOND)


def when(micros: int) -> datetime:
    """The aware UTC datetime of a moment."""
    return EPOCH + timedelta(microseconds=micros)


def iso(micros: int) -> str:
    """A moment as ISO 8601 text in UTC."""
    return when(micros).isoformat()
