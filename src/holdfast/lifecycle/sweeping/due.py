"""What is due in a tenant at a moment: counted at once, read when it is asked for; what a sweep leaves out, and what
waits until the time is believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final, NamedTuple

from holdfast.core.clock import Belief
from holdfast.core.decisions import (
    BIN_REASON,
    Decision,
    Hold,
    Life,
    RecordFacts,
    Window,
    decide,
    find_hold,
    reason_for,
    split_window,
    windows,
)
from holdfast.core.records import HISTORY, OWN, State, Subject
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.sweeping.plan import Line, NeedsConfirmation, Waiting, add_up, join_waiting, to_line
from holdfast.ports.coordination import Lease
from holdfast.ports.rules import Census, DueStore, Profile
from holdfast.ports.stores import Tenant, read_pages

#: Of whom more than this is due at once, the records are read in the order in which they lie.
_TOGETHER: Final = 500
PAGE: Final = 5_000
#: Someone who would lose more memories than this, and more than that part of all they have, is set aside.
_MANY, _PART = 1_000, 5
Progress = Callable[[int], None]


class Extent(NamedTuple):
    """What a sweep looks at."""

    kinds: frozenset[str] | None = None
    """``None``: every kind."""
    targets: frozenset[State] = frozenset({State.ARCHIVED, State.RECYCLED})
    bin: bool = True
    subject: Subject | None = None
    shorter_than: int | None = None
    """Only kinds that live for less than this."""

    def takes(self, kind: str, life: Life) -> bool:
        """Whether records of a kind with this life are within it."""
        short = [after for after in life[:2] if after is not None and after < (self.shorter_than or 0)]
        return (self.kinds is None or kind in self.kinds) and (self.shorter_than is None or bool(short))

    def is_about(self, subject: Subject) -> bool:
        """Whether a subject is within it."""
        return self.subject in (None, subject)


EVERYTHING: Final = Extent()


@dataclass(frozen=True)
class SweepOrder:
    """What a sweep, or a plan of one, is asked for."""

    at: int
    """The moment at which things are due."""
    upto: int
    """What cannot be undone is done as far as it was due at this moment."""
    extent: Extent = EVERYTHING
    confirm: bool = False
    """Whether those go, too, who would lose much at once."""
    now: int | None = None
    """When it is carried out; ``None``: at that moment."""
    lease: Callable[[], Lease | None] = lambda: None
    progress: Progress = lambda _count: None
    note: Callable[[Decision], None] = lambda _decision: None
    """Hears of each decision that was carried out."""


class DueClass(NamedTuple):
    """Records that are due the same move for the same reason: a range of the index of what is due."""

    profile: Profile
    state: State
    window: Window

    @property
    def reason(self) -> str:
        """Why they are due."""
        return reason_for(self.profile.kind, self.profile.life, self.window.target)


@dataclass(eq=False, repr=False)
class DueRecords:
    """What is due in a tenant, as far as an order goes."""

    tenant: Tenant
    order: SweepOrder

    @cached_property
    def due(self) -> dict[DueClass, list[Census]]:
        """How much of each class each subject has."""
        targets = self.order.extent.targets
        found = [now for now, _ in self._classes() if now is not None and now.window.target in targets]
        counted = self.tenant.dues.census_all(found)
        return {one: self._within(some) for one, some in zip(found, counted, strict=True)}

    def _classes(self) -> Iterator[tuple[DueClass | None, DueClass | None]]:
        """The classes of what may move now, and of what waits until the time is believed."""
        for profile in self.tenant.dues.profiles(self.tenant.name):
            if self.order.extent.takes(profile.kind, profile.life):
                for state in (State.ACTIVE, State.ARCHIVED):
                    for whole in windows(profile.life, state, self.order.at):
                        now, later = split_window(profile.kind, profile.life, whole, self.order.upto)
                        yield now and DueClass(profile, state, now), later and DueClass(profile, state, later)

    def census(self, one: DueClass, *, without: Iterable[str] = ()) -> list[Census]:
        """How much of a class each subject has, without some agents' records."""
        return self._within(self.tenant.dues.census(*one, without=without))

    def bin_census(self) -> list[Census]:
        """How much of each subject's recycle bin has had its time."""
        return self._within(self.tenant.dues.bin_census(self.tenant.name, self.order.upto))

    def _within(self, found: Iterable[Census]) -> list[Census]:
        return [census for census in found if self.order.extent.is_about(census.subject)]

    def pages(self, one: DueClass, *, tags: bool) -> Iterator[list[RecordFacts]]:
        """The records of a class. Those of subjects who have many lie together; the others come by their age."""
        due, dues = self.due[one], self.tenant.dues
        whole = self.order.extent.subject is not None
        many = {census.subject for census in due if census.records > _TOGETHER or whole}
        if one.profile.kind == HISTORY:
            many = set()
        for subject in sorted(many):
            yield from read_pages(partial(dues.due_of, subject, *one, tags=tags), PAGE)
        if len(many) < len(due):
            for page in read_pages(partial(dues.due, *one, tags=tags), PAGE):
                yield [facts for facts in self._order(page) if facts.subject not in many]

    def binned(self, *, tags: bool) -> Iterator[list[RecordFacts]]:
        """What has had its time in the recycle bin: records, then conversations."""
        read = partial(self.tenant.dues.binned, self.tenant.name, self.order.upto, tags=tags)
        for sessions in (False, True):
            yield from map(self._order, read_pages(partial(read, sessions=sessions), PAGE))

    def _order(self, records: Iterable[RecordFacts]) -> list[RecordFacts]:
        """Those within the extent, each subject's together."""
        wanted = (facts for facts in records if self.order.extent.is_about(facts.subject))
        return sorted(wanted, key=lambda facts: facts.subject)

    def waiting_lines(self) -> Iterator[Line]:
        """What is due by the clock and waits: archiving in place, which clears what an episode was made of, and what
        has had its time in the recycle bin.
        """
        if State.ARCHIVED in self.order.extent.targets:
            for _, later in self._classes():
                if later is not None:
                    yield from (to_line(census, later.window.target, later.reason) for census in self.census(later))
        if self.order.extent.bin:
            yield from self._bin_lines(self.order.at, 1)
            yield from self._bin_lines(self.order.upto, -1)

    def _bin_lines(self, upto: int, sign: int) -> Iterator[Line]:
        name, dues = self.tenant.name, self.tenant.dues
        for census in (*dues.bin_census(name, upto), *dues.message_census(name, upto)):
            yield Line(census.kind, "delete", BIN_REASON, sign * census.records, sign * census.bytes)
        for entry in self.tenant.registry.due(name, now=upto):
            yield Line(entry.sort, "delete", BIN_REASON, sign, 0)


def find_waiting(tenant: Tenant, at: int, belief: Belief, extent: Extent = EVERYTHING) -> Waiting | None:
    """What of a sweep for a moment waits; ``None`` if nothing does. Nothing is read while the time is believed."""
    upto = belief.until(at)
    if upto >= at:
        return None
    lines = add_up(DueRecords(tenant, SweepOrder(at, upto, extent)).waiting_lines())
    waiting = tuple(line for line in lines if line.records)
    return Waiting(belief, waiting) if waiting else None


def find_all_waiting(tenant: Tenant, at: int, belief: Belief) -> Waiting | None:
    """The same, of every tenant of the store."""
    names = [] if belief.is_whole else tenant.dues.tenants()
    return join_waiting(find_waiting(replace(tenant, name=name), at, belief) for name in names)


def find_overdue(dues: DueStore, now: int) -> dict[str, int]:
    """For each kind of which something is due, in any tenant: for how long, in microseconds."""
    overdue: dict[str, int] = {}
    for tenant in dues.tenants():
        for kind, since in dues.overdue_since(tenant, now):
            overdue[kind] = max(overdue.get(kind, 0), now - since)
    return overdue


# --- what is left out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exclusions:
    """The holds of a tenant, what goes with removed agents, and those who would lose too much at once."""

    holds: list[Hold]
    leaving: frozenset[str] = frozenset()
    """The ids of what the same sweep sends to the bin with its agent: no rule archives it before."""
    confirmations: tuple[NeedsConfirmation, ...] = ()

    @cached_property
    def tags(self) -> bool:
        """Whether metadata have to be looked at."""
        return any(hold.tag is not None for hold in self.holds)

    @cached_property
    def held_subjects(self) -> frozenset[Subject]:
        """Subjects of whom everything is on hold."""
        whole = (hold for hold in self.holds if [*hold.scope] == ["user_id"])
        return frozenset(Subject(hold.tenant, hold.user_id or "") for hold in whole)

    @cached_property
    def held_agents(self) -> frozenset[str]:
        """Agents of whom everything is on hold."""
        return frozenset(hold.agent_id or "" for hold in self.holds if [*hold.scope] == ["agent_id"])

    @cached_property
    def one_by_one(self) -> bool:
        """Whether what is passed over can only be told by looking at each record."""
        held = self.held_subjects
        return bool(self.leaving) or any(
            hold.user_id is None or Subject(hold.tenant, hold.user_id) not in held for hold in self.holds
        )

    @cached_property
    def agents(self) -> frozenset[str]:
        """Agents that are set aside."""
        return frozenset(aside.agent_id for aside in self.confirmations if aside.agent_id is not None)

    @cached_property
    def users(self) -> frozenset[str]:
        """Users who are set aside."""
        return frozenset(aside.user_id for aside in self.confirmations if aside.user_id is not None)

    @cached_property
    def messages(self) -> bool:
        """Whether a hold may keep a single message, and with it a conversation."""
        return any(hold.memory_id is not None or hold.tag is not None for hold in self.holds)

    def keeps(self, facts: RecordFacts, hold_on: Callable[[Subject, str], Hold | None]) -> bool:
        """Whether a hold keeps a record, or a message of a conversation, as ``hold_on`` finds it. What had begun to be
        deleted before is finished.
        """
        if not self.holds or facts.state is State.DELETING:
            return False
        if find_hold(facts.thing, self.holds) is not None:
            return True
        return self.messages and facts.kind == HISTORY and hold_on(facts.subject, facts.id) is not None

    def decide(
        self, records: list[RecordFacts], life: Life, at: int, hold_on: Callable[[Subject, str], Hold | None]
    ) -> tuple[list[Decision], int]:
        """What is decided about records that are due, without those that are left until someone confirms or go with
        their agents; and how many of them a hold keeps. ``hold_on`` finds a hold on a message of a conversation.
        """
        decisions: list[Decision] = []
        held = 0
        for facts in records:
            due = decide(facts, life, (), at)
            removed = due is not None and due.target is State.RECYCLED
            if due is None or (removed and (facts.thing.user_id in self.users or facts.thing.agent_id in self.agents)):
                continue
            if due.target is State.ARCHIVED and facts.id in self.leaving:
                continue
            if self.keeps(facts, hold_on):
                held += 1
            else:
                decisions.append(due)
        return decisions, held


def find_exclusions(survey: DueRecords) -> Exclusions:
    """What a sweep of what was surveyed passes over: what is on hold, what goes with its agent instead, and, unless
    that is confirmed, who would lose too much. What is wholly on hold is not at risk.
    """
    tenant = survey.tenant
    outlooks = Registry(tenant).outlooks(survey.order.upto) if survey.order.extent.bin else ()
    leaving = frozenset(one.id for _, outlook in outlooks for one in outlook.own)
    kept = Exclusions(tenant.holds.list(tenant.name), leaving)
    if survey.order.confirm:
        return kept
    removed = {one: due for one, due in survey.due.items() if one.window.target is State.RECYCLED}
    users = _find_users(survey, removed, kept)
    aside = kept.held_subjects | {Subject(tenant.name, user.user_id) for user in users if user.user_id}
    agents = [one for one in _find_agents(tenant, removed, aside) if one.agent_id not in kept.held_agents]
    return replace(kept, confirmations=(*users, *agents))


def _find_users(survey: DueRecords, removed: dict[DueClass, list[Census]], kept: Exclusions) -> list[NeedsConfirmation]:
    """Users who would lose too much."""
    losses: Counter[Subject] = Counter()
    for one, due in removed.items():
        if one.profile.kind != HISTORY:
            free = survey.census(one, without=kept.held_agents) if kept.held_agents else due
            losses.update({found.subject: found.records for found in free if found.subject not in kept.held_subjects})
    return [
        NeedsConfirmation(subject.user_id, None, lost, of)
        for subject, lost in losses.items()
        if lost > _MANY and is_too_much(lost, of := survey.tenant.dues.live(subject))
    ]


def _find_agents(
    tenant: Tenant, removed: dict[DueClass, list[Census]], aside: frozenset[Subject]
) -> list[NeedsConfirmation]:
    """Agents that would lose too much of what is their own, counted without users who are on hold, or aside already."""
    own = [one for one in removed if one.profile.kind in OWN]
    if sum(census.records for one in own for census in removed[one] if census.subject not in aside) <= _MANY:
        return []
    losses: Counter[str] = Counter()
    for one in own:
        losses.update(tenant.dues.census_of_agents(*one, without=aside))
    return [
        NeedsConfirmation(None, agent_id, lost, of)
        for agent_id, lost in losses.items()
        if lost > _MANY and is_too_much(lost, of := tenant.dues.live_of_agent(tenant.name, agent_id))
    ]


def is_too_much(due: int, of: int) -> bool:
    """Whether so much of someone's memories going at once is to be confirmed first."""
    return due > _MANY and due * _PART > of
