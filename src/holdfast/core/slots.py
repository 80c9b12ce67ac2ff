"""Slots: the moments at which a cron expression fires in a time zone.

An expression has five fields (minute, hour, day of month, month, day of week) and is read as Debian's cron reads it,
on the two nights a year when clocks are changed as well:

- a job at fixed times (neither the minute nor the hour begins with ``*``) fires once for each time on the calendar:
  at the first of two equal times, and where the time is left out, at the first instant after the gap (on that same
  date: if the gap ends on the next one, in the last minute before it);
- any other job goes on as time passes: through both passes of a repeated hour, and not in an hour that is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.values import EPOCH, SECOND, moment, when

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

#: ``missed`` counts no further.
MOST_MISSED: Final = 1_000
_MOST_CHARS: Final = 200
_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_UTC: Final = "UTC"


def check_cron(cron: object) -> str:
    """The expression with single spaces, if it has five fields and fires at all."""
    example = "; write minute hour day month weekday, such as '0 3 * * *' (daily at 03:00)"
    if not isinstance(cron, str) or len(cron) > _MOST_CHARS:
        raise InvalidInputError(f"cron must be a text of at most {_MOST_CHARS} characters, not {quote(cron)}{example}")
    fields = cron.split()
    if len(fields) != 5:
        raise InvalidInputError(f"cron {quote(cron)} does not have five fields{example}")
    from cronsim import CronSim, CronSimError

    text = " ".join(fields)
    try:
        fires = next(CronSim(text, _SOME_DAY), None) is not None
    except (CronSimError, AssertionError, ValueError) as problem:
        raise InvalidInputError(f"cron {quote(cron)} is not understood: {problem}{example}") from problem
    if not fires:
        raise InvalidInputError(f"cron {quote(cron)} names a day that never comes{example}")
    return text


def check_timezone(timezone: object) -> str:
    """The name of the time zone, if it is known."""
    return _UTC if timezone == _UTC else _zone(timezone).key


def slots_between(cron: str, timezone: str, after: int, upto: int) -> Iterator[int]:
    """The slots s with ``after < s <= upto``, strictly increasing; found one at a time, as they are asked for."""
    for slot in _slots(check_cron(cron), _zone(timezone), after, back=False):
        if slot > upto:
            return
        if slot > after:
            yield slot


def latest_slot(cron: str, timezone: str, *, after: int, now: int) -> int | None:
    """The latest slot s with ``after < s <= now``; found from ``now`` backwards, however long ago ``after`` is."""
    slots = _slots(check_cron(cron), _zone(timezone), now, back=True)
    latest = next((slot for slot in slots if slot <= now), None)
    return latest if latest is not None and latest > after else None


def next_slot(cron: str, timezone: str, after: int) -> int:
    """The first slot after a moment."""
    slots = _slots(check_cron(cron), _zone(timezone), after, back=False)
    first = next((slot for slot in slots if slot > after), None)
    if first is None:
        raise InvalidInputError(f"cron {quote(cron)} has no slot after {when(after)} that the calendar can tell")
    return first


def count_missed(cron: str, timezone: str, *, after: int, upto: int, most: int = MOST_MISSED) -> int:
    """How many slots s there are with ``after < s <= upto``; ``most`` stands for that many or more."""
    return sum(1 for _ in islice(slots_between(cron, timezone, after, upto), most))


def _zone(timezone: object) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        if isinstance(timezone, str) and timezone:
            return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # no such name, not a name, or a folder of names
        pass
    raise InvalidInputError(f"timezone {quote(timezone)} is not known; use a name such as 'UTC' or 'Europe/Berlin'")


def _slots(cron: str, zone: ZoneInfo, start: int, *, back: bool) -> Iterator[int]:
    """The slots from ``start`` on, in order (with ``back``: backwards), after at most a few on its other side.

    Times on the wall are read from one end to the other, once for the first and once for the second pass of a
    repeated hour: each reading gives moments in their order.
    """
    minute, hour, *_ = cron.split()
    fixed = not minute.startswith("*") and not hour.startswith("*")
    try:
        spare = _shift(zone, start) + timedelta(minutes=1)  # how far the wall's order and time's can differ here
        wall = _wall(zone, start) + (spare if back else -spare)
    except OverflowError:  # at an end of the calendar
        return
    folds = (0,) if fixed else (0, 1)
    readings = [_read_wall(cron, zone, wall, fold, fixed=fixed, back=back) for fold in folds]
    yield from (slot for slot, _ in groupby(merge(*readings, reverse=back)))


def _read_wall(cron: str, zone: ZoneInfo, start: datetime, fold: int, *, fixed: bool, back: bool) -> Iterator[int]:
    """The moments of the times on the wall from ``start`` on; in order, and one may come several times."""
    from cronsim import CronSim

    try:
        for wall in CronSim(cron, start, reverse=back):
            utc = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if utc.astimezone(zone).replace(tzinfo=None) == wall:
                yield moment(utc)
            elif fixed and (substitute := _find_substitute(zone, wall)) is not None:
                yield substitute
    except OverflowError:  # the end of the calendar
        return


def _find_substitute(zone: ZoneInfo, left_out: datetime) -> int | None:
    """The moment that takes the place of a time that no clock shows; ``None`` where the whole date is left out."""
    early, late = (left_out.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    seconds = range((early - EPOCH) // timedelta(seconds=1), (late - EPOCH) // timedelta(seconds=1) + 1)
    changed = late.astimezone(zone).utcoffset()
    end = seconds[bisect_left(seconds, True, key=lambda second: _offset(zone, second * SECOND) == changed)] * SECOND
    if _wall(zone, end).date() == left_out.date():
        return end
    last = when(end - 1).astimezone(zone).replace(second=0, microsecond=0)
    return moment(last) if last.date() == left_out.date() else None


def _shift(zone: ZoneInfo, at: int) -> timedelta:
    """By how much clocks are changed around a moment; nothing, on most days."""
    offsets = [_offset(zone, moment(when(at) + days)) for days in (-_DAY, 0 * _DAY, _DAY)]
    return max(offsets) - min(offsets)


def _offset(zone: ZoneInfo, at: int) -> timedelta:
    return when(at).astimezone(zone).utcoffset() or timedelta()


def _wall(zone: ZoneInfo, at: int) -> datetime:
    """What a clock in the zone shows."""
    return when(at).astimezone(zone).replace(tzinfo=None)
