"""Moments: aware UTC datetimes at the edges, whole microseconds since 1970 inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from holdfast.core.errors import InvalidInputError, quote

#: A clock is a callable without arguments that returns an aware datetime.
Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
SECOND = 1_000_000
DAY = 86_400 * SECOND


def moment(when: datetime | float | str, *, what: str = "time") -> int:
    """Microseconds since 1970 for an aware datetime, seconds since 1970, or an ISO 8601 text.

    A text that is only a date means its first instant in UTC.
    """
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(f"{when}T00:00:00+00:00" if _DATE.fullmatch(when) else when)
        except ValueError:
            raise InvalidInputError(f"{what} {quote(when)} is not an ISO 8601 date and time") from None
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidInputError(
                f"{what} {when.isoformat()} has no time zone; add one, such as +00:00 or tzinfo=UTC"
            )
        micros = (when - EPOCH) // _MICROSECOND
        if not _FIRST <= micros <= _LAST:
            raise InvalidInputError(f"{what} {when.isoformat()} is outside the years 1 to 9999 in UTC")
        return micros
    if isinstance(when, bool) or not isinstance(when, int | float) or not -6e10 < when < 2.5e11:
        raise InvalidInputError(
            f"{what} {quote(when)} is not a time; use a datetime with a time zone, or seconds since 1970"
        )
    return round(when * SECOND)


def when(micros: int) -> datetime:
    """The aware UTC datetime of a moment."""
    return EPOCH + timedelta(microseconds=micros)


def iso(micros: int) -> str:
    """A moment as ISO 8601 text in UTC."""
    return when(micros).isoformat()
