"""The forecast: what a sweep would do on each of the days to come, as the plan for that moment would say it.

What becomes due is counted once, by days. What is due by a moment is the sum of the days before it; who would lose too
much by then is set aside, as in a plan. Where there is a hold on an agent, a session, a tag or a memory, each record is
looked at, once. Where a policy bounds what one sweep takes, or something is to go with a removed agent, each day is
planned by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

from holdfast.core.decisions import BIN_REASON, Life, RecordFacts, Window, reason_for
from holdfast.core.records import HISTORY, OWN, State, Subject
from holdfast.core.values import DAY, iso
from holdfast.lifecycle.sweeping.due import (
    PAGE,
    DueRecords,
    Exclusions,
    Progress,
    SweepOrder,
    find_exclusions,
    is_too_much,
)
from holdfast.lifecycle.sweeping.plan import ACTIONS, Line, NeedsConfirmation, add_up, to_line
from holdfast.lifecycle.sweeping.sweep import Sweeper
from holdfast.ports.rules import DayCensus, Profile
from holdfast.ports.stores import read_pages
from holdfast.results.figures import DayForecastResult, LineResult, SetAsideResult

MOST_DAYS: Final = 740


class DayForecast(NamedTuple):
    """What a sweep would do at a moment to come."""

    at: int
    lines: tuple[Line, ...]
    set_aside: tuple[NeedsConfirmation, ...]
    held: int

    def to_dict(self, before: DayForecast | None) -> DayForecastResult:
        """The same for callers, with what is more than on the day before."""
        counts = _count(self.lines)
        earlier = _count(before.lines) if before is not None else Counter[str]()
        return {
            "at": iso(self.at),
            "counts": {action: counts[action] for action in _ACTIONS},
            "new": {action: max(0, counts[action] - earlier[action]) for action in _ACTIONS},
            "bytes": sum(line.bytes for line in self.lines),
            "lines": [cast("LineResult", line._asdict()) for line in self.lines],
            "set_aside": [cast("SetAsideResult", one._asdict()) for one in self.set_aside],
            "held": self.held,
        }


_ACTIONS: Final = tuple(dict.fromkeys(ACTIONS.values()))


def _count(lines: Iterable[Line]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts[line.action] += line.records
    return counts


class _Series:
    """What is due by each day of something: numbers and bytes, summed up from the days before."""

    def __init__(self, days: int) -> None:
        self.records, self.bytes = [0] * (days + 1), [0] * (days + 1)

    def add(self, one: DayCensus, sign: int = 1) -> None:
        """Count what becomes due on a day."""
        self.records[one.day] += sign * one.records
        self.bytes[one.day] += sign * one.bytes

    def sum_up(self) -> None:
        """Let each day have what was due before it, too."""
        self.records, self.bytes = list(accumulate(self.records)), list(accumulate(self.bytes))


class _Due(NamedTuple):
    """What becomes due on a day, and whether a hold on some of a user's things keeps it."""

    census: DayCensus
    is_held: bool = False


class _Class(NamedTuple):
    """What is due the same move for the same reason."""

    kind: str
    target: State
    reason: str


@dataclass(eq=False)
class Forecast:
    """Forecasts what sweeps of a tenant will do."""

    sweeper: Sweeper
    now: int
    days: int
    confirm: bool = False
    progress: Progress = lambda _count: None

    def read(self) -> list[DayForecast]:
        """Now, and each of the days to come."""
        horizon = DueRecords(self.sweeper.tenant, self._order(self.days))
        exclusions = find_exclusions(horizon)
        if self.sweeper.is_bounded(horizon) or exclusions.leaving:
            return [self._plan(day) for day in range(self.days + 1)]
        self._exclusions = exclusions
        self._totals: dict[_Class, _Series] = defaultdict(lambda: _Series(self.days))
        self._removed: dict[_Class, list[_Due]] = defaultdict(list)
        self._kept = _Series(self.days)
        for profile in self.sweeper.tenant.dues.profiles(self.sweeper.tenant.name):
            self._take(profile)
        self._take_bin()
        for series in (*self._totals.values(), self._kept):
            series.sum_up()
        losses = {} if self.confirm else self._find_losses()
        ever = {key for who in losses.values() for found in who.values() for key in found}
        self._asides = [
            (group, one)
            for group, found in self._removed.items()
            for one in found
            if one.census.subject in ever or one.census.agent_id in ever
        ]
        beside = list(self._read_beside(is_held=bool(exclusions.holds)))
        return [self._describe(day, losses, beside[day]) for day in range(self.days + 1)]

    def _order(self, day: int) -> SweepOrder:
        at = self.now + day * DAY
        return SweepOrder(at, at, confirm=self.confirm)

    def _plan(self, day: int) -> DayForecast:
        plan = self.sweeper.plan(self._order(day))
        self.progress(1)
        return DayForecast(plan.at, plan.lines, plan.set_aside, plan.held)

    # --- counting -----------------------------------------------------------------------------------------------------

    def _take(self, profile: Profile) -> None:
        """Count what a profile makes due. What is due to be removed is no longer due to be archived."""
        life: Life = profile.life
        for state in (State.ACTIVE,) if profile.kind == HISTORY else (State.ACTIVE, State.ARCHIVED):
            removed = self._read(profile, state, life.delete_after)
            self._add(profile, State.RECYCLED, removed)
            archives = state is State.ACTIVE and life.archive_after is not None
            if archives and (life.delete_after is None or (life.archive_after or 0) < life.delete_after):
                self._add(profile, State.ARCHIVED, self._read(profile, state, life.archive_after))
                self._add(profile, State.ARCHIVED, removed, -1)

    def _read(self, profile: Profile, state: State, after: int | None) -> list[_Due]:
        if after is None:
            return []
        dues, upto = self.sweeper.tenant.dues, self.now - after
        if self._exclusions.one_by_one:
            window = Window(State.RECYCLED, None, upto + self.days * DAY)
            read = partial(dues.due, profile, state, window, tags=self._exclusions.tags)
            return self._look_at_each(read_pages(read, PAGE), lambda facts: facts.aged_from - upto)
        found = dues.by_day(profile, state, upto=upto, days=self.days)
        self.progress(sum(one.records for one in found))
        return [_Due(one) for one in found]

    def _look_at_each(self, pages: Iterable[Sequence[RecordFacts]], ahead: Callable[[RecordFacts], int]) -> list[_Due]:
        """Records one by one, and then counted: how far ahead of now each is due, and whether a hold keeps it."""
        totals: dict[tuple[str, Subject, str, int, bool], list[int]] = defaultdict(lambda: [0, 0])
        hold_on = self.sweeper.tenant.history.hold_on
        for page in pages:
            for facts in page:
                day = max(0, -(-ahead(facts) // DAY))
                is_held = self._exclusions.keeps(facts, hold_on)
                total = totals[facts.kind, facts.subject, facts.thing.agent_id or "", day, is_held]
                total[0] += 1
                total[1] += facts.size
            self.progress(len(page))
        return [
            _Due(DayCensus(kind, subject, agent_id, day, *total), is_held)
            for (kind, subject, agent_id, day, is_held), total in totals.items()
        ]

    def _add(self, profile: Profile, target: State, found: Sequence[_Due], sign: int = 1) -> None:
        one = _Class(profile.kind, target, reason_for(profile.kind, profile.life, target) if found else "")
        for due in found:
            self._series(one, due).add(due.census, sign)
        if target is State.RECYCLED:
            self._removed[one] += [due for due in found if due.census.subject not in self._exclusions.held_subjects]

    def _series(self, one: _Class, due: _Due) -> _Series:
        is_kept = due.is_held or due.census.subject in self._exclusions.held_subjects
        return self._kept if is_kept else self._totals[one]

    def _take_bin(self) -> None:
        tenant, end = self.sweeper.tenant, self.now + self.days * DAY
        if self._exclusions.one_by_one:
            survey = DueRecords(tenant, SweepOrder(end, end))
            binned = survey.binned(tags=self._exclusions.tags)
            found = self._look_at_each(binned, lambda facts: (facts.purge_at or 0) - self.now)
        else:
            found = [_Due(one) for one in tenant.dues.bin_by_day(tenant.name, upto=self.now, days=self.days)]
        for due in found:
            self._series(_Class(due.census.kind, State.DELETED, BIN_REASON), due).add(due.census)

    # --- who is set aside ---------------------------------------------------------------------------------------------

    def _find_losses(self) -> dict[str, dict[int, dict[Any, NeedsConfirmation]]]:
        """Who would lose too much by each day: users, and, without what those have, agents."""
        live = cache(self.sweeper.tenant.dues.live)
        users = self._find(
            (
                (census.subject, census)
                for group, found in self._removed.items()
                if group.kind != HISTORY
                for census, _ in found
                if census.agent_id not in self._exclusions.held_agents
            ),
            lambda subject, lost: NeedsConfirmation(subject.user_id, None, lost, live(subject)),
        )
        name = self.sweeper.tenant.name
        live_of = cache(lambda agent_id: self.sweeper.tenant.dues.live_of_agent(name, agent_id))
        own = [
            census
            for group, found in self._removed.items()
            if group.kind in OWN
            for census, _ in found
            if census.agent_id not in self._exclusions.held_agents
        ]
        agents: dict[int, dict[Any, NeedsConfirmation]] = {}
        aside: frozenset[Subject] | None = None
        for day in range(self.days + 1):  # who is set aside seldom changes
            if (now := frozenset(users.get(day, {}))) != aside:
                aside = now
                found = self._find(
                    ((one.agent_id, one) for one in own if one.subject not in now),
                    lambda agent_id, lost: NeedsConfirmation(None, agent_id, lost, live_of(agent_id)),
                )
            agents[day] = found.get(day, {})
        return {"users": users, "agents": agents}

    def _find(
        self, items: Iterable[tuple[Any, DayCensus]], describe: Callable[[Any, int], NeedsConfirmation]
    ) -> dict[int, dict[Any, NeedsConfirmation]]:
        losses: dict[Any, _Series] = defaultdict(lambda: _Series(self.days))
        for key, one in items:
            losses[key].add(one)
        found: dict[int, dict[Any, NeedsConfirmation]] = defaultdict(dict)
        for key, series in losses.items():
            if sum(series.records) and is_too_much(sum(series.records), 0):
                series.sum_up()
                for day, lost in enumerate(series.records):
                    if is_too_much(lost, 0) and is_too_much(lost, (asked := describe(key, lost)).of):
                        found[day][key] = asked
        return found

    # --- a day --------------------------------------------------------------------------------------------------------

    def _describe(self, day: int, losses: Any, beside: tuple[Line, ...]) -> DayForecast:
        users = losses["users"].get(day, {}) if losses else {}
        agents = losses["agents"].get(day, {}) if losses else {}
        lines = [
            Line(one.kind, ACTIONS[one.target], one.reason, series.records[day], series.bytes[day])
            for one, series in self._totals.items()
        ]
        held = self._kept.records[day]
        for group, (one, is_held) in self._asides:
            if one.day <= day and (one.subject in users or one.agent_id in agents):
                if is_held:
                    held -= one.records
                else:
                    lines.append(Line(group.kind, ACTIONS[group.target], group.reason, -one.records, -one.bytes))
        kept = tuple(line for line in add_up([*lines, *beside]) if line.records)
        asked = (*users.values(), *agents.values())
        return DayForecast(self.now + day * DAY, kept, asked, held)

    def _read_beside(self, *, is_held: bool) -> Iterator[tuple[Line, ...]]:
        """What leaves beside memories and conversations by each day: messages, versions, agents and tools."""
        tenant = self.sweeper.tenant
        known: dict[int, tuple[Line, ...]] = {}

        def look(day: int) -> tuple[Line, ...]:
            if day not in known:
                known[day] = self._look_beside(day)
            return known[day]

        registry, end = tenant.registry, self.now + self.days * DAY
        steady = not (is_held or registry.unfinished(tenant.name) or registry.due(tenant.name, now=end))

        def fill(first: int, last: int) -> None:
            """Where nothing was added between two days, nothing was on the days between."""
            if steady and look(first) == look(last):
                known.update(dict.fromkeys(range(first, last + 1), look(first)))
            elif last - first > 1:
                fill(first, (first + last) // 2)
                fill((first + last) // 2, last)
            else:
                look(first), look(last)

        fill(0, self.days)
        yield from (known[day] for day in range(self.days + 1))

    def _look_beside(self, day: int) -> tuple[Line, ...]:
        order = self._order(day)
        survey = DueRecords(self.sweeper.tenant, order)

        @cache
        def going() -> set[str]:
            exclusions: Exclusions = find_exclusions(survey)
            return self.sweeper.find_recycled(survey, exclusions)

        found = self.sweeper.purge_census(order.upto, going)
        return add_up(to_line(census, target, reason) for census, target, reason in found)
