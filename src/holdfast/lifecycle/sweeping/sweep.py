"""The sweep: plans what is due, and has it carried out."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from holdfast.core.decisions import BIN_REASON, NO_LIFE, VERSION_REASON, Decision
from holdfast.core.errors import PlanChangedError, RulesChangedError
from holdfast.core.records import TYPES, Archive, MemoryType, State
from holdfast.lifecycle.archive import Archives
from holdfast.lifecycle.domains import Domains
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.sweeping.batches import Batches, Refresh
from holdfast.lifecycle.sweeping.due import DueClass, DueRecords, Exclusions, Progress, SweepOrder, find_exclusions
from holdfast.lifecycle.sweeping.plan import (
    ACTIONS,
    Decisions,
    Line,
    NeedsConfirmation,
    Plan,
    Report,
    add_up,
    plan_digest,
    take_census,
    to_line,
)
from holdfast.ports.rules import Census
from holdfast.ports.stores import Tenant

_log = logging.getLogger("holdfast.sweep")
#: Rules that change while a sweep goes on make it look again, this often.
_TRIES: Final = 16
_SOME: Final = 1_000
_TURN_SECONDS: Final = 0.0001


@dataclass(slots=True)
class Allowance:
    """How many of the records that are due to be collected may go in one sweep."""

    left: int
    is_short: bool

    def take(self, decisions: list[Decision]) -> list[Decision]:
        """The first of them, as far as it goes."""
        taken = decisions[: self.left]
        self.left -= len(taken)
        return taken


def is_collected(one: DueClass) -> bool:
    """Whether a class is of records that the memory domain's policy removes."""
    chosen = [rule.name for rule in one.profile.rules if rule.selection is not None and not rule.is_spent]
    return one.window.target is State.RECYCLED and one.profile.life.delete_by in chosen


class ShortTurns:
    """While a sweep goes on, threads of this process take turns every tenth of a millisecond, and not every five.

    A recall lets go of the interpreter some ten times, when it asks the store or multiplies. Each time it waited for
    the whole turn of a sweep that goes on in another thread. Where nobody waits, nothing changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sweeps = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._sweeps:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _TURN_SECONDS))
            self._sweeps += 1

    def __exit__(self, *_problem: object) -> None:
        with self._lock:
            self._sweeps -= 1
            if not self._sweeps:
                sys.setswitchinterval(self._before)


TURNS: Final = ShortTurns()


@dataclass(eq=False, repr=False)
class Sweeper:
    """Plans and sweeps for one tenant."""

    tenant: Tenant
    archives: Archives
    erase_session: Callable[..., int] = lambda *_args, **_options: 0
    refresh: Refresh = lambda _subject, _ids: None
    domains: Domains | None = None
    load: float = 1.0

    # --- planning -----------------------------------------------------------------------------------------------------

    def plan(self, order: SweepOrder, progress: Progress = lambda _count: None) -> Plan:
        """What a sweep would do. ``progress`` hears how many records more were counted."""
        survey = DueRecords(self.tenant, order)
        exclusions = find_exclusions(survey)
        lines: list[Line] = []
        parts: list[list[Any]] = [list(map(list, exclusions.confirmations))]
        held = 0
        for source, target, reason, allowed, kept in self._count(survey, exclusions):
            held += kept
            lines += [to_line(census, target, reason) for census in allowed]
            progress(sum(census.records for census in allowed))
            parts += [[*census, source, ACTIONS[target], reason] for census in allowed]
        decisions = Decisions(sum(line.records for line in lines), lambda: self._decisions(survey, exclusions))
        if order.extent.bin:
            recycled = cache(lambda: self.find_recycled(survey, exclusions))
            for census, target, reason in self.purge_census(order.upto, recycled):
                lines.append(to_line(census, target, reason))
                parts.append([*census, "", ACTIONS[target], reason])
        digest = plan_digest(self.tenant.name, order.at, parts)
        return Plan(order.at, digest, add_up(lines), exclusions.confirmations, held, decisions)

    def _decisions(self, survey: DueRecords, exclusions: Exclusions) -> Iterator[Decision]:
        allowance = self._allowance(survey)
        for one in survey.due:
            for decisions, _ in self._decide(survey, one, exclusions, allowance):
                yield from decisions
        if survey.order.extent.bin:
            for decisions, _ in self._decide_bin(survey, exclusions):
                yield from decisions

    def find_recycled(self, survey: DueRecords, exclusions: Exclusions) -> set[str]:
        """The ids of what rules send to the bin."""
        return {one.id for one in self._decisions(survey, exclusions) if one.target is State.RECYCLED}

    def is_bounded(self, survey: DueRecords) -> bool:
        """Whether the memory domain's policy takes less in one sweep than is due by it."""
        return self._allowance(survey).is_short

    def _allowance(self, survey: DueRecords, gone: int = 0) -> Allowance:
        """How many records may go by the memory domain's policy, after some have gone already."""
        due = sum(census.records for one, found in survey.due.items() if is_collected(one) for census in found)
        most = self.domains.most_collected() if due and self.domains is not None else due
        return Allowance(max(0, most - gone), is_short=due > most)

    def _decide(
        self, survey: DueRecords, one: DueClass, exclusions: Exclusions, allowance: Allowance
    ) -> Iterator[tuple[list[Decision], int]]:
        """What is decided of a class, page by page, and how many of each a hold keeps; of what the memory domain's
        policy removes, as many as one sweep may. A plan and what carries it out both come from here.
        """
        bounded, at = is_collected(one), survey.order.at
        for page in survey.pages(one, tags=exclusions.tags):
            if bounded and not allowance.left:
                return
            decisions, held = exclusions.decide(page, one.profile.life, at, self.tenant.history.hold_on)
            yield (allowance.take(decisions) if bounded else decisions), held

    def _decide_bin(self, survey: DueRecords, exclusions: Exclusions) -> Iterator[tuple[list[Decision], int]]:
        """The same of what has had its time in the recycle bin."""
        for page in survey.binned(tags=exclusions.tags):
            yield exclusions.decide(page, NO_LIFE, survey.order.at, self.tenant.history.hold_on)

    def _count(
        self, survey: DueRecords, exclusions: Exclusions
    ) -> Iterator[tuple[State, State, str, list[Census], int]]:
        """For each move: from where to where, why, how much of each subject may go, and how much is on hold."""
        allowance = self._allowance(survey)
        for one, due in survey.due.items():
            if exclusions.one_by_one or (allowance.is_short and is_collected(one)):
                counted = _count_each(self._decide(survey, one, exclusions, allowance))
            else:
                counted = _count_allowed(survey, one, due, exclusions)
            yield one.state, one.window.target, one.reason, *counted
        if survey.order.extent.bin:
            if exclusions.one_by_one:
                counted = _count_each(self._decide_bin(survey, exclusions))
            else:
                counted = _split_held(survey.bin_census(), exclusions)
            yield State.RECYCLED, State.DELETED, BIN_REASON, *counted

    def purge_census(self, upto: int, going: Callable[[], Container[str]]) -> Iterator[tuple[Census, State, str]]:
        """How much leaves up to a moment beside memories and conversations, where to and why. ``going`` tells what
        rules send to the bin before that.
        """
        for census in self.tenant.dues.message_census(self.tenant.name, upto):
            yield census, State.DELETED, BIN_REASON
        for census in self.tenant.versions.census(self.tenant.name, upto):
            yield census, State.DELETED, VERSION_REASON
        yield from Registry(self.tenant).purge_census(upto, going)

    # --- sweeping -----------------------------------------------------------------------------------------------------

    def apply(self, order: SweepOrder, digest: str | None = None) -> Report:
        """Carry out what is due; with a digest, only if that is still what was planned."""
        with TURNS:
            return self._apply(order, digest)

    def _apply(self, order: SweepOrder, digest: str | None) -> Report:
        began, name = time.monotonic(), self.tenant.name
        rules = self.tenant.dues.rules_version(name)
        if digest is not None and self.plan(order).digest != digest:
            raise PlanChangedError(
                f"what is due is no longer what was planned ({digest}); nothing was changed: look at a new plan"
            )
        batches = Batches(self.tenant, self.archives, self.erase_session, self.refresh, self.load, order)
        for _ in range(_TRIES):
            try:
                confirmations = self._carry_out(batches, rules)
                break
            except RulesChangedError as changed:
                if digest is not None:
                    raise PlanChangedError(
                        f"the rules were changed while the plan {digest} was carried out; what was done by then is "
                        "done, the rest is not: look at a new plan"
                    ) from changed
                _log.info("%s", changed)
                batches.drop()
                rules = self.tenant.dues.rules_version(name)
            finally:
                batches.end()
        else:
            raise RulesChangedError("the rules keep changing while what is due by them is carried out; sweep again")
        if batches.trouble is not None:
            batches.trouble.add_note("everything else that was due was done")
            raise batches.trouble
        lines = batches.lines()
        made = digest or plan_digest(name, order.at, [list(line) for line in lines])
        done = (batches.held, batches.stale, batches.bytes_before, batches.bytes_after)
        return Report(order.at, made, lines, confirmations, *done, time.monotonic() - began)

    def _carry_out(self, batches: Batches, rules: int) -> tuple[NeedsConfirmation, ...]:
        """Look up what is due, and carry it out, under one version of the rules; who was set aside."""
        batches.rules = rules
        survey = DueRecords(self.tenant, batches.order)
        exclusions = find_exclusions(survey)
        if batches.order.extent.bin or any(_is_cold(one) and due for one, due in survey.due.items()):
            self._settle_packs(batches)
        allowance = self._allowance(survey, batches.collected)
        for one in survey.due:
            for decisions, held in self._decide(survey, one, exclusions, allowance):
                batches.held += held
                batches.collected += len(decisions) if is_collected(one) else 0
                batches.take(decisions)
            batches.flush()
        if batches.order.extent.bin:
            self._empty_bin(batches, survey, exclusions)
        for aside in exclusions.confirmations:
            _log.warning("%s", aside.describe())
        return exclusions.confirmations

    def _settle_packs(self, batches: Batches) -> None:
        with batches.coping():
            self.archives.settle_all(self.tenant.name, now=batches.now, lease=batches.order.lease())

    def _empty_bin(self, batches: Batches, survey: DueRecords, exclusions: Exclusions) -> None:
        """Claim, erase, confirm: what lies elsewhere goes before its record does, and so does what is a part of it."""
        self._trim_versions(batches)
        for decisions, held in self._decide_bin(survey, exclusions):
            batches.held += held
            batches.take([decision for decision in decisions if decision.source is State.RECYCLED])
        batches.flush()
        self._settle_packs(batches)
        for page in survey.binned(tags=exclusions.tags):
            batches.confirm([facts for facts in page if facts.state is State.DELETING])
        batches.flush()

    def _trim_versions(self, batches: Batches) -> None:
        """Remove ended versions: before the memories that they are of, with which nobody would count them."""
        order, tenant = batches.order, self.tenant
        trimmed = tenant.versions.trim(tenant.name, upto=order.upto, now=batches.now, lease=order.lease())
        batches.note(Line("version", "delete", VERSION_REASON, *trimmed))

    def purge(self, order: SweepOrder) -> tuple[Line, ...]:
        """Let go what a sweep removes beside memories and conversations: what belongs to a removed agent and has not
        followed it yet; and of the recycle bin, if that is swept, single messages, agents and tools. What went.
        """
        tenant, now = self.tenant, order.at if order.now is None else order.now
        registry, lines = Registry(tenant), list[Line]()
        registry.finish_unfinished(order.lease(), "remove", note=lines.append)
        if order.extent.bin:
            count = _SOME
            while count == _SOME:
                count, size = tenant.history.purge_messages(
                    tenant.name, at=order.upto, now=now, limit=_SOME, lease=order.lease()
                )
                lines += [Line("message", "delete", BIN_REASON, count, size)] if count else []
            registry.purge_due(now, order.lease(), at=order.upto, note=lines.append)
        return add_up(lines)


def _count_each(decided: Iterable[tuple[list[Decision], int]]) -> tuple[list[Census], int]:
    """What may move, for each subject, by looking at each record; and how much is on hold."""
    held = 0

    def allowed() -> Iterator[Decision]:
        nonlocal held
        for decisions, kept in decided:
            held += kept
            yield from decisions

    return take_census(allowed()), held


def _count_allowed(
    survey: DueRecords, one: DueClass, due: list[Census], exclusions: Exclusions
) -> tuple[list[Census], int]:
    """What of a class may move, for each subject, and how much of it is on hold."""
    if one.window.target is State.RECYCLED and exclusions.confirmations:
        if exclusions.agents:
            due = survey.census(one, without=exclusions.agents)
        due = [census for census in due if census.subject.user_id not in exclusions.users]
    return _split_held(due, exclusions)


def _split_held(due: list[Census], exclusions: Exclusions) -> tuple[list[Census], int]:
    """Those of whom not everything is on hold, and how much the others have."""
    held = exclusions.held_subjects
    kept = sum(census.records for census in due if census.subject in held)
    return [census for census in due if census.subject not in held], kept


def _is_cold(one: DueClass) -> bool:
    """Whether a class is of records that are to go to cold storage."""
    archived = one.window.target is State.ARCHIVED
    return archived and TYPES[MemoryType(one.profile.kind)].archive is Archive.COLD
