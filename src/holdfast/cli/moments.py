"""Moments as people type them: an ISO moment, a date, or so much time from now."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from holdfast.core.errors import InvalidInputError, told

_OFFSET: Final = re.compile(r"([+-])(\d+(?:\.\d+)?)([hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


def read_moment(text: str, *, now: datetime) -> datetime | str:
    """The moment that a text means: ``+90d``, ``-12h`` and ``+2w`` count from ``now``; anything else is given back as
    it is, for the engine to read.
    """
    if text[:1] not in ("+", "-"):
        return text
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"the moment {told(text)} is not understood; write hours, days or weeks from now as +12h, +90d or +2w"
        )
    sign, amount, unit = found.groups()
    try:
        return now + timedelta(**{_UNITS[unit]: float(sign + amount)})
    except OverflowError:
        raise InvalidInputError(f"the moment {told(text)} is outside the years 1 to 9999") from None
