"""Days: what was added, archived, recycled, restored and deleted on each of them.

Counters say how often something was ever done, and never fall. What they say is noted once a day, by the first sweep,
job or look of the day, so that the difference of two days is what happened between them. Nothing is written with the
moves themselves, so nobody waits for a row that all users share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Final

from holdfast.core.errors import StoreReadOnlyError
from holdfast.core.records import Cause, State
from holdfast.core.values import DAY, iso
from holdfast.ports.figures import ADDED, DayCount
from holdfast.ports.stores import Tenant
from holdfast.results.figures import DayResult

ACTIONS: Final = (ADDED, "archived", "recycled", "restored", "deleted")
_MOST_DAYS: Final = 400


def note_day(tenant: Tenant, now: int) -> None:
    """Note what is counted by now as what was counted by the beginning of the day, unless that is noted. A store that
    is for reading only goes without.
    """
    day = now // DAY
    last = tenant.figures.last_day(tenant.name)
    if last is None or last < day:
        first = last is None  # what happened before anybody looked counts with that day
        counts = [DayCount(day, *key, 0 if first else count) for key, count in _count(tenant).items()]
        if counts:
            with suppress(StoreReadOnlyError):
                tenant.figures.note_day(tenant.name, counts, forget=day - _MOST_DAYS)


def read_days(tenant: Tenant, now: int, days: int, erased: Iterable[int]) -> list[DayResult]:
    """What happened on each of the last days, the oldest first; ``erased`` are the moments of erasures. Where nobody
    looked on the day after, what happened until the next look counts with a day.
    """
    today = now // DAY
    noted: dict[int, Counter[str]] = {}
    for one in tenant.figures.days(tenant.name, since=today - days):
        noted.setdefault(one.day, Counter())[one.action] += one.times
    latest: Counter[str] = Counter()
    for (_, action), count in _count(tenant).items():
        latest[action] += count
    noted[today + 1] = latest
    happened: dict[int, Counter[str]] = {}
    for (day, before), (_, after) in pairwise(sorted(noted.items())):
        happened[day] = Counter({action: max(0, after[action] - before[action]) for action in ACTIONS})
    for at in erased:
        happened.setdefault(at // DAY, Counter())["erased"] += 1
    return [_describe(day, happened.get(day, Counter())) for day in range(today - days + 1, today + 1)]


def _describe(day: int, counts: Counter[str]) -> DayResult:
    return {
        "day": iso(day * DAY)[:10],
        "added": counts[ADDED],
        "archived": counts["archived"],
        "recycled": counts["recycled"],
        "restored": counts["restored"],
        "deleted": counts["deleted"],
        "erased": counts["erased"],
    }


def _count(tenant: Tenant) -> Counter[tuple[str, str]]:
    """How often each action was ever taken, by kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for holding in tenant.figures.holdings(tenant.name):
        counts[holding.kind.value, ADDED] += holding.added
    for kind, state, cause, count in tenant.figures.moves(tenant.name):
        counts[kind, _action(state, cause)] += count
    return counts


def _action(state: str, cause: str) -> str:
    """What a move to a state is called."""
    if state in (State.ACTIVE, State.ARCHIVED) and cause != Cause.RULE:
        return "restored"
    return "deleted" if state == State.DELETING else state
