"""The sweep: plans what is due, and has it carried out."""

from __future__ import annotations

import logging
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from holdfast.core.decisions import BIN_REASON, NO_LIFE, Decision, reason_for
from holdfast.core.errors import PlanChangedError, RulesChangedError
from holdfast.core.records import TYPES, Archive, MemoryType, State, Subject
from holdfast.lifecycle.archive import Archives
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.sweeping.batches import Batches, Progress, Stores
from holdfast.lifecycle.sweeping.due import EVERYTHING, DueClass, DueRecords, Extent
from holdfast.lifecycle.sweeping.exclusions import Exclusions, find_exclusions
from holdfast.lifecycle.sweeping.plan import ACTIONS, Decisions, Line, Plan, Report, add_up, plan_digest
from holdfast.ports.conversations import History, MessageBin
from holdfast.ports.coordination import Lease
from holdfast.ports.records import RecordStore
from holdfast.ports.rules import BinReader, Census, DueStore, HoldStore

MESSAGE: Final = "message"
_SOME: Final = 1_000


@dataclass(eq=False, repr=False)
class Purge:
    """The same for a plan, which counts it, and for a sweep, which carries it out after the moves of records."""

    tenant: str
    dues: BinReader
    history: MessageBin
    registry: Registry

    def due(self, upto: int, going: Callable[[], Container[str]]) -> Iterator[tuple[Census, State, str]]:
        """How much leaves up to a moment, where to and why. ``going`` tells what rules send to the bin before that."""
        for census in self.dues.message_census(self.tenant, upto):
            yield census, State.DELETED, BIN_REASON
        yield from self.registry.purge_census(upto, going)

    def carry_out(self, upto: int, *, now: int, lease: Callable[[], Lease | None], bin: bool) -> tuple[Line, ...]:  # noqa: A002
        """Let go what was due up to a moment, of the bin if that is swept; what went."""
        lines: list[Line] = []
        self.registry.finish_unfinished(lease(), "remove", note=lines.append)
        if bin:
            gone: Counter[str] = Counter()
            while True:
                count, size = self.history.purge_messages(self.tenant, at=upto, now=now, limit=_SOME, lease=lease())
                gone.update(records=count, bytes=size)
                if count < _SOME:
                    break
            if gone["records"]:
                lines.append(Line(MESSAGE, "delete", BIN_REASON, gone["records"], gone["bytes"]))
            self.registry.purge_due(now, lease(), at=upto, note=lines.append)
        return add_up(lines)


class Allowance:
    """How many of the records that are due to be collected may go in one sweep."""

    def __init__(self, most: int, due: int) -> None:
        self.left = most
        self.is_short = due > most

    def less(self, gone: int) -> Allowance:
        """The same, after some have gone already."""
        self.left = max(0, self.left - gone)
        return self

    def take(self, decisions: list[Decision]) -> list[Decision]:
        """The first of them, as far as it goes."""
        taken = decisions[: self.left]
        self.left -= len(taken)
        return taken


def is_collected(one: DueClass) -> bool:
    """Whether a class is of records that the memory domain's policy removes."""
    chosen = [rule.name for rule in one.profile.rules if rule.selection is not None and not rule.is_spent]
    return one.window.target is State.RECYCLED and one.profile.life.delete_by in chosen


_log = logging.getLogger("holdfast.sweep")
#: Rules that change while a sweep goes on make it look again, this often.
_TRIES: Final = 16
#: Up to a moment, given what rules send to the bin: how much of what goes, where to and why.
PurgeCensus = Callable[[int, Callable[[], Container[str]]], Iterable[tuple[Census, State, str]]]


class Sweeper:
    """Plans and sweeps for one tenant."""

    def __init__(
        self,
        tenant: str,
        *,
        dues: DueStore,
        records: RecordStore,
        history: History,
        holds: HoldStore,
        archives: Archives,
        erase_session: Callable[..., int],
        refresh: Callable[[Subject, list[str]], None] = lambda _subject, _ids: None,
        most_collected: Callable[[], int] | None = None,
        purge: PurgeCensus | None = None,
    ) -> None:
        """``purge`` says what else goes with a sweep, for a plan to count."""
        self._tenant = tenant
        self._dues = dues
        self._holds = holds
        self._history = history
        self._archives = archives
        self._stores = Stores(records, history, archives, erase_session, refresh)
        self._most_collected = most_collected
        self._purge = purge

    # --- planning -----------------------------------------------------------------------------------------------------

    def plan(self, at: int, extent: Extent = EVERYTHING, *, upto: int, confirm: bool = False) -> Plan:
        """What a sweep would do at a moment; of what cannot be undone, what was due ``upto`` another."""
        survey, exclusions = self._survey(at, extent, upto=upto, confirm=confirm)
        lines: list[Line] = []
        parts: list[list[Any]] = [list(map(list, exclusions.confirmations))]
        held = 0
        for source, target, reason, allowed, kept in self._count(survey, exclusions):
            held += kept
            for census in allowed:
                lines.append(Line(census.kind, ACTIONS[target], reason, census.records, census.bytes))
                parts.append([*census, source, ACTIONS[target], reason])
        decisions = Decisions(sum(line.records for line in lines), lambda: self._decisions(survey, exclusions))
        if extent.bin and self._purge is not None:
            recycled = cache(lambda: {one.id for one in decisions if one.target is State.RECYCLED})
            for census, target, reason in self._purge(upto, recycled):
                lines.append(Line(census.kind, ACTIONS[target], reason, census.records, census.bytes))
                parts.append([*census, "", ACTIONS[target], reason])
        return Plan(at, plan_digest(self._tenant, at, parts), add_up(lines), exclusions.confirmations, held, decisions)

    def _survey(self, at: int, extent: Extent, *, upto: int, confirm: bool) -> tuple[DueRecords, Exclusions]:
        survey = DueRecords(self._dues, self._tenant, at, extent, upto=upto)
        holds = self._holds.list(self._tenant)
        return survey, find_exclusions(survey, self._dues, self._tenant, holds, confirm=confirm)

    def _decisions(self, survey: DueRecords, exclusions: Exclusions) -> Iterator[Decision]:
        allowance = self._allowance(survey)
        for one in survey.due:
            for decisions, _ in self._decide(survey, one, exclusions, allowance):
                yield from decisions
        if survey.extent.bin:
            for standings in survey.binned(tags=exclusions.tags):
                yield from exclusions.decide(standings, NO_LIFE, survey.at, self._history)[0]

    def _allowance(self, survey: DueRecords) -> Allowance:
        """How many records may go by the memory domain's policy."""
        due = sum(census.records for one, found in survey.due.items() if is_collected(one) for census in found)
        return Allowance(self._most_collected() if due and self._most_collected is not None else due, due)

    def _decide(
        self, survey: DueRecords, one: DueClass, exclusions: Exclusions, allowance: Allowance
    ) -> Iterator[tuple[list[Decision], int]]:
        """What is decided of a class, page by page, and how many of each a hold keeps; of what the memory domain's
        policy removes, as many as one sweep may. A plan and what carries it out both come from here.
        """
        bounded = is_collected(one)
        for standings in survey.pages(one, tags=exclusions.tags):
            if bounded and not allowance.left:
                return
            decisions, held = exclusions.decide(standings, one.profile.life, survey.at, self._history)
            yield (allowance.take(decisions) if bounded else decisions), held

    def _count(
        self, survey: DueRecords, exclusions: Exclusions
    ) -> Iterator[tuple[State, State, str, list[Census], int]]:
        """For each move: from where to where, why, how much of each subject may go, and how much is on hold."""
        allowance = self._allowance(survey)
        for one, due in survey.due.items():
            life, target = one.profile.life, one.window.target
            reason = reason_for(one.profile.kind, life, target)
            if exclusions.one_by_one or (allowance.is_short and is_collected(one)):
                counted = _count_each(self._decide(survey, one, exclusions, allowance))
            else:
                counted = _count_allowed(survey, one, due, exclusions)
            yield one.state, target, reason, *counted
        if survey.extent.bin:
            if exclusions.one_by_one:
                pages = survey.binned(tags=exclusions.tags)
                counted = _count_each(exclusions.decide(page, NO_LIFE, survey.at, self._history) for page in pages)
            else:
                counted = _split_held(survey.bin_census(), exclusions)
            yield State.RECYCLED, State.DELETED, BIN_REASON, *counted

    # --- sweeping -----------------------------------------------------------------------------------------------------

    def apply(
        self,
        at: int,
        extent: Extent = EVERYTHING,
        *,
        upto: int,
        now: int | None = None,
        digest: str | None = None,
        confirm: bool = False,
        lease: Callable[[], Lease | None] = lambda: None,
        load: float = 1.0,
        progress: Progress = lambda _count: None,
        note: Callable[[Decision], None] = lambda _decision: None,
    ) -> Report:
        """Carry out ``now`` what was due at a moment; of what cannot be undone, what was due ``upto`` another. With a
        digest, only if that is still what was planned. ``note`` is told of each decision that was carried out.
        """
        began = time.monotonic()
        rules = self._dues.rules_version(self._tenant)
        if digest is not None and self.plan(at, extent, upto=upto, confirm=confirm).digest != digest:
            raise PlanChangedError(
                f"what is due is no longer what was planned ({digest}); nothing was changed: look at a new plan"
            )
        batches = Batches(
            self._stores,
            at=at,
            upto=upto,
            now=at if now is None else now,
            lease=lease,
            load=load,
            progress=progress,
            note=note,
        )
        for _ in range(_TRIES):
            try:
                confirmations = self._carry_out(batches, extent, rules, confirm=confirm)
                break
            except RulesChangedError as changed:
                if digest is not None:
                    raise PlanChangedError(
                        f"the rules were changed while the plan {digest} was carried out; what was done by then is "
                        "done, the rest is not: look at a new plan"
                    ) from changed
                _log.info("%s", changed)
                batches.drop()
                rules = self._dues.rules_version(self._tenant)
        else:
            raise RulesChangedError("the rules keep changing while what is due by them is carried out; sweep again")
        if batches.trouble is not None:
            batches.trouble.add_note("everything else that was due was done")
            raise batches.trouble
        lines = batches.lines()
        sweep_digest = digest or plan_digest(self._tenant, at, [list(line) for line in lines])
        done = (batches.held, batches.stale, batches.bytes_before, batches.bytes_after)
        return Report(at, sweep_digest, lines, confirmations, *done, time.monotonic() - began)

    def _carry_out(self, batches: Batches, extent: Extent, rules: int, *, confirm: bool) -> tuple[Any, ...]:
        """Look up what is due, and carry it out, under one version of the rules; who was set aside."""
        batches.rules = rules
        survey, exclusions = self._survey(batches.at, extent, upto=batches.upto, confirm=confirm)
        if extent.bin or any(_is_cold(one) and due for one, due in survey.due.items()):
            self._settle_packs(batches)
        allowance = self._allowance(survey).less(batches.collected)
        for one in survey.due:
            for decisions, held in self._decide(survey, one, exclusions, allowance):
                batches.held += held
                batches.collected += len(decisions) if is_collected(one) else 0
                batches.take(decisions)
            batches.flush()
        if extent.bin:
            self._empty_bin(batches, survey, exclusions)
        for aside in exclusions.confirmations:
            _log.warning("%s", aside.describe())
        return exclusions.confirmations

    def _settle_packs(self, batches: Batches) -> None:
        with batches.coping():
            self._archives.settle_all(self._tenant, now=batches.now, lease=batches.lease())

    def _empty_bin(self, batches: Batches, survey: DueRecords, exclusions: Exclusions) -> None:
        """Claim, erase, confirm: what lies elsewhere goes before its record does."""
        for standings in survey.binned(tags=exclusions.tags):
            decisions, held = exclusions.decide(standings, NO_LIFE, survey.at, self._history)
            batches.held += held
            batches.take([decision for decision in decisions if decision.source is State.RECYCLED])
        batches.flush()
        self._settle_packs(batches)
        for standings in survey.binned(tags=exclusions.tags):
            batches.confirm([standing for standing in standings if standing.state is State.DELETING])
        batches.flush()


def _count_each(decided: Iterable[tuple[list[Decision], int]]) -> tuple[list[Census], int]:
    """What may move, for each subject, by looking at each record; and how much is on hold."""
    totals: dict[tuple[str, Subject], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    held = 0
    for decisions, kept in decided:
        held += kept
        for decision in decisions:
            mark = zlib.crc32(f"{decision.id}/{decision.version}".encode())
            total = totals[decision.kind, decision.subject]
            for place, amount in enumerate((1, decision.size, mark, decision.version)):
                total[place] += amount
    return [Census(kind, subject, *total) for (kind, subject), total in totals.items()], held


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
