"""Who and what a sweep leaves out, because of a hold or because a person has to confirm it first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from holdfast.core.decisions import Decision, Hold, Life, RecordFacts, decide
from holdfast.core.records import HISTORY, OWN, State, Subject
from holdfast.lifecycle.clock import MANY, is_too_much
from holdfast.lifecycle.sweeping.due import DueRecords
from holdfast.lifecycle.sweeping.plan import NeedsConfirmation
from holdfast.ports.conversations import SessionStore
from holdfast.ports.rules import DueStore

_PARTS: Final = ("user_id", "agent_id", "session_id", "memory_id", "tag")


@dataclass(frozen=True)
class Exclusions:
    """The holds that stand in a tenant, and those who would lose too much at once."""

    holds: list[Hold]
    confirmations: tuple[NeedsConfirmation, ...] = ()

    @property
    def tags(self) -> bool:
        """Whether metadata have to be looked at."""
        return any(hold.tag is not None for hold in self.holds)

    @property
    def held_subjects(self) -> frozenset[Subject]:
        """Subjects of whom everything is on hold."""
        return frozenset(
            Subject(hold.tenant, hold.user_id) for hold in self.holds if hold.user_id and _parts(hold) == {"user_id"}
        )

    @property
    def held_agents(self) -> frozenset[str]:
        """Agents of whom everything is on hold."""
        return frozenset(hold.agent_id for hold in self.holds if hold.agent_id and _parts(hold) == {"agent_id"})

    @property
    def one_by_one(self) -> bool:
        """Whether what is on hold can only be told by looking at each record."""
        held = self.held_subjects
        return any(hold.user_id is None or Subject(hold.tenant, hold.user_id) not in held for hold in self.holds)

    @property
    def agents(self) -> frozenset[str]:
        """Agents that are set aside."""
        return frozenset(aside.agent_id for aside in self.confirmations if aside.agent_id is not None)

    @property
    def users(self) -> frozenset[str]:
        """Users who are set aside."""
        return frozenset(aside.user_id for aside in self.confirmations if aside.user_id is not None)

    def decide(
        self, standings: list[RecordFacts], life: Life, at: int, history: SessionStore
    ) -> tuple[list[Decision], int]:
        """What is decided about records that are due, without those that are left until someone confirms; and how many
        of them a hold keeps.
        """
        users, agents = self.users, self.agents
        messages = any(hold.memory_id is not None or hold.tag is not None for hold in self.holds)
        decisions: list[Decision] = []
        held = 0
        for standing in standings:
            due = decide(standing, life, (), at)
            removed = due is not None and due.target is State.RECYCLED
            if due is None or (removed and (standing.thing.user_id in users or standing.thing.agent_id in agents)):
                continue
            kept = bool(self.holds) and decide(standing, life, self.holds, at) is None
            whole = messages and standing.kind == HISTORY and standing.state is not State.DELETING
            if kept or (whole and history.hold_on(standing.subject, standing.id) is not None):
                held += 1
            else:
                decisions.append(due)
        return decisions, held


def find_exclusions(survey: DueRecords, dues: DueStore, tenant: str, holds: list[Hold], *, confirm: bool) -> Exclusions:
    """Whom a sweep of what was surveyed passes over; with ``confirm``, for holds alone."""
    if confirm:
        return Exclusions(holds)
    kept = Exclusions(holds)  # what is wholly on hold is not at risk
    users = _users(survey, dues, kept)
    aside = kept.held_subjects | {Subject(tenant, user.user_id) for user in users if user.user_id}
    agents = _agents(survey, dues, tenant, aside)
    return Exclusions(holds, (*users, *(agent for agent in agents if agent.agent_id not in kept.held_agents)))


def _parts(hold: Hold) -> set[str]:
    """What a hold names."""
    return {part for part in _PARTS if getattr(hold, part) is not None}


def _users(survey: DueRecords, dues: DueStore, kept: Exclusions) -> list[NeedsConfirmation]:
    """Users who would lose too much."""
    losses: Counter[Subject] = Counter()
    held, agents = kept.held_subjects, kept.held_agents
    for one, due in survey.due.items():
        if one.window.target is State.RECYCLED and one.profile.kind != HISTORY:
            free = survey.census(one, without=agents) if agents else due
            losses.update({census.subject: census.records for census in free if census.subject not in held})
    return [
        NeedsConfirmation(subject.user_id, None, lost, of)
        for subject, lost in losses.items()
        if lost > MANY and is_too_much(lost, of := dues.live(subject))
    ]


def _agents(survey: DueRecords, dues: DueStore, tenant: str, aside: frozenset[Subject]) -> list[NeedsConfirmation]:
    """Agents that would lose too much of what is their own, counted without users who are on hold, or aside already."""
    own = [one for one in survey.due if one.window.target is State.RECYCLED and one.profile.kind in OWN]
    if sum(census.records for one in own for census in survey.due[one] if census.subject not in aside) <= MANY:
        return []
    losses: Counter[str] = Counter()
    for one in own:
        losses.update(dues.census_of_agents(*one, without=aside))
    return [
        NeedsConfirmation(None, agent_id, lost, of)
        for agent_id, lost in losses.items()
        if lost > MANY and is_too_much(lost, of := dues.live_of_agent(tenant, agent_id))
    ]
