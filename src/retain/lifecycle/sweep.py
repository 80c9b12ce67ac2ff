"""The sweep: plans what is due, and carries it out in small batches, under a lease, within a load."""

from __future__ import annotations

import logging
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from retain.core.decisions import Decision, Standing, decide, decide_all, reason_for, windows
from retain.core.errors import (
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
    PlanChangedError,
    RulesChangedError,
)
from retain.core.holds import Hold
from retain.core.records import Cause, Move, Outcome
from retain.core.rules import BIN, HISTORY, Life
from retain.core.types import TYPES, Archive, MemoryType, State
from retain.lifecycle.archive import Archives
from retain.lifecycle.plan import ACTIONS, Aside, Class, Decisions, Line, Plan, Report, sealed
from retain.lifecycle.safety import MANY, takes_too_much
from retain.ports import Census, DueStore, History, HoldStore, Lease, RecordStore

_log = logging.getLogger("retain.sweep")
#: Of whom more than this is due at once, the records are read in the order in which they lie.
_MANY: Final = 500
_PAGE: Final = 5_000
#: A transaction is to take about this long, whatever the machine.
_GOAL_SECONDS: Final = 0.06
_LEAST_BATCH, _MOST_BATCH = 50, 2_000
_MESSAGES: Final = 2_000
#: Rules that change while a sweep goes on make it look again, this often.
_TRIES: Final = 16
_NO_LIFE: Final = Life(None, None, None, "", "", None)
Progress = Callable[[int], None]
_Survey = dict[Class, list[Census]]
#: The kinds that are an agent's own.
_OWN: Final = frozenset(kind.name.value for kind in TYPES.values() if kind.durable and "agent" in kind.scope)


class Extent(NamedTuple):
    """What a sweep looks at."""

    kinds: frozenset[str] | None = None
    """``None``: every kind."""
    targets: frozenset[State] = frozenset({State.ARCHIVED, State.RECYCLED})
    bin: bool = True
    subject: str | None = None
    shorter_than: int | None = None
    """Only kinds that live for less than this."""

    def takes(self, kind: str, life: Life) -> bool:
        """Whether records of a kind with this life are within it."""
        short = [after for after in life[:2] if after is not None and after < (self.shorter_than or 0)]
        return (self.kinds is None or kind in self.kinds) and (self.shorter_than is None or bool(short))


EVERYTHING: Final = Extent()


@dataclass
class _Exceptions:
    """Who and what a sweep passes over."""

    holds: list[Hold]
    asides: list[Aside] = field(default_factory=list)
    aside_subjects: frozenset[str] = frozenset()
    aside_agents: frozenset[str] = frozenset()

    @property
    def tags(self) -> bool:
        return any(hold.tag is not None for hold in self.holds)

    @property
    def deep(self) -> bool:
        """Whether a hold may be on a single message of a conversation."""
        return any(hold.memory_id is not None or hold.tag is not None for hold in self.holds)

    @property
    def held_subjects(self) -> frozenset[str]:
        """Subjects of whom everything is on hold."""
        parts = ("agent_id", "session_id", "memory_id", "tag")
        return frozenset(
            f"{hold.tenant}/{hold.user_id}"
            for hold in self.holds
            if hold.user_id is not None and all(getattr(hold, part) is None for part in parts)
        )

    @property
    def one_by_one(self) -> bool:
        """Whether what is passed over can only be told by looking at each record."""
        held = self.held_subjects
        return any(f"{hold.tenant}/{hold.user_id}" not in held for hold in self.holds)

    def leaves(self, target: State, subject: str, agent_id: str) -> bool:
        """Whether something is left until a person has confirmed."""
        removed = target is State.RECYCLED
        return removed and (subject in self.aside_subjects or agent_id in self.aside_agents)


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
        retell: Callable[[str, list[str]], None] = lambda _subject, _ids: None,
    ) -> None:
        self._tenant = tenant
        self._dues = dues
        self._records = records
        self._history = history
        self._holds = holds
        self._archives = archives
        self._erase_session = erase_session
        self._retell = retell

    # --- planning -----------------------------------------------------------------------------------------------------

    def plan(self, at: int, extent: Extent = EVERYTHING, *, confirm: bool = False) -> Plan:
        """What a sweep would do at a moment."""
        classes = self._surveyed(at, extent)
        exceptions = self._exceptions(classes, confirm=confirm)
        lines, parts, held = self._counted(classes, at, extent, exceptions)
        digest = sealed(self._tenant, at, [*parts, list(map(list, exceptions.asides))])
        total = sum(line.records for line in lines)

        def read() -> Iterator[Decision]:
            for one, found in classes.items():
                for standings in self._pages(one, found, exceptions, extent):
                    yield from self._decided(standings, one.profile.life, exceptions, at)[0]
            if extent.bin:
                for standings in self._binned(at, exceptions, extent):
                    yield from self._decided(standings, _NO_LIFE, exceptions, at)[0]

        return Plan(at, digest, tuple(lines), tuple(exceptions.asides), held, Decisions(total, read))

    def _classes(self, at: int, extent: Extent) -> Iterator[Class]:
        for profile in self._dues.profiles(self._tenant):
            if not extent.takes(profile.kind, profile.life):
                continue
            for state in (State.ACTIVE, State.ARCHIVED):
                for window in windows(profile.life, state, at):
                    if window.target in extent.targets:
                        yield Class(profile, state, window)

    def _surveyed(self, at: int, extent: Extent) -> _Survey:
        """What is due, and how much of it each subject has."""
        return {one: self._census(one, extent) for one in self._classes(at, extent)}

    def _exceptions(self, classes: _Survey, *, confirm: bool) -> _Exceptions:
        exceptions = _Exceptions(self._holds.list(self._tenant))
        if confirm:
            return exceptions
        removed = {one: due for one, due in classes.items() if one.window.target is State.RECYCLED}
        losses: Counter[str] = Counter()
        for one, due in removed.items():
            if one.profile.kind != HISTORY:
                losses.update({census.subject: census.records for census in due})
        subjects = {}
        for subject, lost_by in losses.items():
            if lost_by > MANY and takes_too_much(lost_by, of := self._dues.live(subject)):
                subjects[subject] = Aside(subject.split("/", 1)[1], None, lost_by, of)
        own = [one for one in removed if one.profile.kind in _OWN]
        agents: Counter[str] = Counter()
        others = (census for one in own for census in removed[one] if census.subject not in subjects)
        if sum(census.records for census in others) > MANY:
            for one in own:
                agents.update(self._dues.census_of_agents(*one, without=subjects))
        lost = {}
        for agent_id, lost_by in agents.items():
            if lost_by > MANY and takes_too_much(lost_by, of := self._dues.live_of_agent(self._tenant, agent_id)):
                lost[agent_id] = Aside(None, agent_id, lost_by, of)
        exceptions.asides = [*subjects.values(), *lost.values()]
        exceptions.aside_subjects, exceptions.aside_agents = frozenset(subjects), frozenset(lost)
        return exceptions

    def _census(self, one: Class, extent: Extent, without: Iterable[str] = ()) -> list[Census]:
        found = self._dues.census(*one, without=without)
        return [census for census in found if extent.subject in (None, census.subject)]

    def _counted(
        self, classes: _Survey, at: int, extent: Extent, exceptions: _Exceptions
    ) -> tuple[list[Line], list[list[Any]], int]:
        """The lines of a plan, what its digest is made of, and how many records are due but on hold."""
        lines: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        parts: list[list[Any]] = []
        held = 0

        def add(census: Census, source: State, target: State, reason: str) -> None:
            total = lines[census.kind, ACTIONS[target], reason]
            total[0] += census.records
            total[1] += census.bytes
            parts.append([*census, source, ACTIONS[target], reason])

        for one, due in classes.items():
            reason = reason_for(one.profile.kind, one.profile.life, one.window.target)
            if exceptions.one_by_one:
                pages = self._pages(one, due, exceptions, extent)
                allowed, kept = self._looked_at(pages, one.profile.life, exceptions, at)
            else:
                allowed, kept = self._allowed(one, due, extent, exceptions)
            held += kept
            for census in allowed:
                add(census, one.state, one.window.target, reason)
        if extent.bin:
            allowed, kept = self._allowed_bin(at, extent, exceptions)
            held += kept
            for census in allowed:
                add(census, State.RECYCLED, State.DELETED, _BIN_REASON)
        return [Line(*key, *totals) for key, totals in sorted(lines.items())], parts, held

    def _allowed(
        self, one: Class, due: list[Census], extent: Extent, exceptions: _Exceptions
    ) -> tuple[list[Census], int]:
        """What of a class may move, for each subject, and how much of it is on hold."""
        found, held = [], 0
        if exceptions.aside_agents and one.window.target is State.RECYCLED:
            due = self._census(one, extent, without=exceptions.aside_agents)
        for census in due:
            if exceptions.leaves(one.window.target, census.subject, ""):
                continue
            if census.subject in exceptions.held_subjects:
                held += census.records
            else:
                found.append(census)
        return found, held

    def _allowed_bin(self, at: int, extent: Extent, exceptions: _Exceptions) -> tuple[list[Census], int]:
        if exceptions.one_by_one:
            return self._looked_at(self._binned(at, exceptions, extent), _NO_LIFE, exceptions, at)
        found = [c for c in self._dues.bin_census(self._tenant, at) if extent.subject in (None, c.subject)]
        held = exceptions.held_subjects
        return [c for c in found if c.subject not in held], sum(c.records for c in found if c.subject in held)

    def _looked_at(
        self, pages: Iterable[Sequence[Standing]], life: Life, exceptions: _Exceptions, at: int
    ) -> tuple[list[Census], int]:
        totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        held = 0
        for standings in pages:
            decisions, kept = self._decided(standings, life, exceptions, at)
            held += kept
            for decision in decisions:
                mark = zlib.crc32(f"{decision.id}/{decision.version}".encode())
                total = totals[decision.kind, decision.subject]
                for place, amount in enumerate((1, decision.size, mark, decision.version)):
                    total[place] += amount
        return [Census(kind, subject, *total) for (kind, subject), total in totals.items()], held

    def _decided(
        self, standings: Sequence[Standing], life: Life, exceptions: _Exceptions, at: int
    ) -> tuple[list[Decision], int]:
        """What is decided about records that are due, without those that are left until someone confirms; and how many
        of them a hold keeps.
        """
        decisions: list[Decision] = []
        held = 0
        decided = decide_all(standings, life, exceptions.holds, at)
        for standing, decision in zip(standings, decided, strict=True):
            if decision is not None and exceptions.deep and self._holds_message(standing):
                held += 1
            elif decision is not None:
                if not (exceptions.asides and exceptions.leaves(decision.target, *_whose(standing))):
                    decisions.append(decision)
            elif exceptions.holds and (due := decide(standing, life, (), at)) is not None:
                held += not exceptions.leaves(due.target, *_whose(standing))
        return decisions, held

    def _holds_message(self, standing: Standing) -> bool:
        """Whether a hold on a message keeps the conversation that it is in."""
        return standing.kind == HISTORY and self._history.is_held(standing.subject, standing.id)

    # --- reading what is due ------------------------------------------------------------------------------------------

    def _pages(
        self, one: Class, due: list[Census], exceptions: _Exceptions, extent: Extent
    ) -> Iterator[list[Standing]]:
        """The records of a class. Those of subjects who have many lie together; the others come by their age."""
        if not due:
            return
        many: set[str] = set()
        if one.profile.kind != HISTORY:
            many = {census.subject for census in due if census.records > _MANY or extent.subject is not None}
            few = sum(census.records for census in due if census.subject not in many)
            for subject in sorted(many):
                place = 0
                while True:
                    standings, place = self._dues.due_of(subject, *one, after=place, limit=_PAGE, tags=exceptions.tags)
                    if standings:
                        yield standings
                    if len(standings) < _PAGE:
                        break
            if not few:
                return
        after: Any = {}
        while True:
            page = self._dues.due(*one, **after, limit=_PAGE, tags=exceptions.tags)
            wanted = [
                standing
                for standing in page.standings
                if standing.subject not in many and extent.subject in (None, standing.subject)
            ]
            if wanted:
                yield sorted(wanted, key=lambda standing: standing.subject)
            if len(page.standings) < _PAGE:
                return
            after = {"after": page.last}

    def _binned(self, at: int, exceptions: _Exceptions, extent: Extent) -> Iterator[list[Standing]]:
        for sessions in (False, True):
            after: Any = {}
            while True:
                page = self._dues.binned(
                    self._tenant, at, **after, limit=_PAGE, tags=exceptions.tags, sessions=sessions
                )
                wanted = [s for s in page.standings if extent.subject in (None, s.subject)]
                if wanted:
                    yield sorted(wanted, key=lambda standing: standing.subject)
                if len(page.standings) < _PAGE:
                    break
                after = {"after": page.last}

    # --- sweeping -----------------------------------------------------------------------------------------------------

    def apply(
        self,
        at: int,
        extent: Extent = EVERYTHING,
        *,
        now: int | None = None,
        digest: str | None = None,
        confirm: bool = False,
        lease: Callable[[], Lease | None] = lambda: None,
        load: float = 1.0,
        progress: Progress = lambda _count: None,
    ) -> Report:
        """Carry out ``now`` what was due at a moment. With a digest, only if that is still what was planned."""
        began = time.monotonic()
        if digest is not None and (again := self.plan(at, extent, confirm=confirm)).digest != digest:
            raise PlanChangedError(
                f"{again.total:,} memories are due now, and they are not those of the plan {digest}; nothing was "
                "changed: look at a new plan"
            )
        stores = _Stores(self._records, self._history, self._archives, self._erase_session, self._retell)
        run = _Run(stores, at=at, now=at if now is None else now, lease=lease, load=load, progress=progress)
        for _ in range(_TRIES):
            try:
                exceptions = self._carry_out(run, extent, confirm=confirm)
                break
            except RulesChangedError as changed:
                _log.info("%s", changed)
                run.drop()
        else:
            raise RulesChangedError("the rules keep changing while what is due by them is carried out; sweep again")
        asides = tuple(exceptions.asides)
        for aside in asides:
            _log.warning("%s", aside.told())
        if run.trouble is not None:
            run.trouble.add_note("everything else that was due was done")
            raise run.trouble
        sweep_digest = digest or sealed(self._tenant, at, [list(line) for line in run.lines()])
        return Report(at, sweep_digest, run.lines(), asides, run.held, run.stale, time.monotonic() - began)

    def _carry_out(self, run: _Run, extent: Extent, *, confirm: bool) -> _Exceptions:
        """Look up what is due, and carry it out, under the rules that are in force now."""
        run.rules = self._dues.rules_version(self._tenant)
        classes = self._surveyed(run.at, extent)
        exceptions = self._exceptions(classes, confirm=confirm)
        if extent.bin or any(_is_cold(one) and found for one, found in classes.items()):
            self._settle_packs(run)
        for one, found in classes.items():
            for standings in self._pages(one, found, exceptions, extent):
                decisions, held = self._decided(standings, one.profile.life, exceptions, run.at)
                run.note_held(held)
                run.take(decisions)
            run.flush()
        if extent.bin:
            self._empty_bin(run, run.at, exceptions, extent)
        return exceptions

    def _settle_packs(self, run: _Run) -> None:
        with run.coping():
            self._archives.settle_all(self._tenant, now=run.now, lease=run.lease())

    def _empty_bin(self, run: _Run, at: int, exceptions: _Exceptions, extent: Extent) -> None:
        """Claim, erase, confirm: what lies elsewhere goes before its record does."""
        for standings in self._binned(at, exceptions, extent):
            decisions, held = self._decided(standings, _NO_LIFE, exceptions, at)
            run.note_held(held)
            run.take([d for d in decisions if d.target is State.DELETING or d.source is State.RECYCLED])
        run.flush()
        self._settle_packs(run)
        for standings in self._binned(at, exceptions, extent):
            run.confirm([s for s in standings if s.state is State.DELETING])
        run.flush()


def _is_cold(one: Class) -> bool:
    """Whether a class is of records that are to go to cold storage."""
    archived = one.window.target is State.ARCHIVED
    return archived and TYPES[MemoryType(one.profile.kind)].archive is Archive.COLD


_BIN_REASON: Final = "15 days in the recycle bin"


def _whose(standing: Standing) -> tuple[str, str]:
    return standing.subject, standing.thing.agent_id


class _Stores(NamedTuple):
    """Where a sweep carries things out."""

    records: RecordStore
    history: History
    archives: Archives
    erase_session: Callable[..., int]
    retell: Callable[[str, list[str]], None]
    """Entities went: let those that are related to them tell what holds now."""


class _Run:
    """One sweep under way: gathers moves into transactions of about the same duration, and counts."""

    def __init__(
        self,
        stores: _Stores,
        *,
        at: int,
        now: int,
        lease: Callable[[], Lease | None],
        load: float,
        progress: Progress,
    ) -> None:
        self._stores = stores
        self.at = at
        self.now = now
        self.lease = lease
        self._load = min(1.0, max(0.01, load))
        self._progress = progress
        self._batch = 250
        self._waiting: list[Decision] = []
        self._done: dict[tuple[str, State, str], list[int]] = defaultdict(lambda: [0, 0])
        self.held = 0
        self.stale = 0
        self.trouble: ObjectStoreError | None = None
        self.rules: int | None = None
        """The version of the rules that is swept by."""
        self._without_cold = False

    def note_held(self, count: int) -> None:
        """So many were due, and on hold."""
        self.held += count

    def lines(self) -> tuple[Line, ...]:
        """What was done so far."""
        lines: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        for (kind, target, reason), (records, size) in self._done.items():
            total = lines[kind, ACTIONS[target], _BIN_REASON if target is State.DELETED else reason]
            total[0] += records
            total[1] += size
        return tuple(Line(*key, *totals) for key, totals in sorted(lines.items()))

    def take(self, decisions: Sequence[Decision]) -> None:
        """Carry decisions out, now or with the next ones. Those of one call can be carried out together."""
        if not decisions:
            return
        if self._waiting and _way(self._waiting[0]) != _way(decisions[0]):
            self.flush()
        archived = decisions[0].target is State.ARCHIVED
        start = 0
        while start < len(decisions):
            room = (_PAGE if archived else self._batch) - len(self._waiting)
            self._waiting += decisions[start : start + room]
            start += room
            if len(self._waiting) >= (_PAGE if archived else self._batch):
                self.flush()

    def drop(self) -> None:
        """Leave what is waiting: it was decided by rules that are no longer in force."""
        self._waiting = []
        self.held = 0

    def flush(self) -> None:
        """Carry out what is waiting."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        began = time.monotonic()
        if waiting[0].target is State.ARCHIVED:
            for subject, some in _by_subject(waiting):
                self._archive(subject, some)
            return
        store = self._stores.history if waiting[0].kind == HISTORY else self._stores.records
        grouped = _by_subject(waiting)
        batches = [(subject, [_as_move(decision, self.now) for decision in some]) for subject, some in grouped]
        outcomes = store.transition_all(batches, now=self.now, lease=self.lease(), rules=self.rules)
        for (subject, some), answers in zip(grouped, outcomes, strict=True):
            self._count(some, answers)
            gone = [decision.id for decision in some if decision.kind == MemoryType.ENTITY]
            if gone:
                self._stores.retell(subject, gone)
        took = time.monotonic() - began
        self._batch = int(min(max(self._batch * min(2.0, _GOAL_SECONDS / max(took, 1e-4)), _LEAST_BATCH), _MOST_BATCH))
        self._rest(took)

    def _archive(self, subject: str, decisions: Sequence[Decision]) -> None:
        """Archive records of one subject; without cold storage, those that need it wait for the next sweep."""
        began = time.monotonic()
        cold = TYPES[MemoryType(decisions[0].kind)].archive is Archive.COLD
        outcomes = [Outcome.STALE for _ in decisions]
        if not (cold and self._without_cold):
            with self.coping():
                outcomes = self._stores.archives.keep(
                    subject, decisions, now=self.now, lease=self.lease(), rules=self.rules
                )
        self._count(decisions, outcomes)
        self._rest(time.monotonic() - began)

    @contextmanager
    def coping(self) -> Iterator[None]:
        """Where cold storage fails, go on without it; the sweep says so in the end."""
        try:
            yield
        except ObjectStoreError as problem:
            self.trouble = self.trouble or problem
            one_object = isinstance(problem, ObjectDamagedError | ObjectMissingError)
            self._without_cold = self._without_cold or not one_object

    def _rest(self, took: float) -> None:
        """Leave the machine to others for a while."""
        if self._load < 1.0:
            time.sleep(took * (1.0 / self._load - 1.0))

    def confirm(self, standings: Sequence[Standing]) -> None:
        """What was claimed and lies nowhere else any more is gone."""
        gone: list[Decision] = []
        for standing in standings:
            if standing.kind == HISTORY:
                while self._stores.erase_session(standing.subject, standing.id, limit=_MESSAGES, lease=self.lease()):
                    self._rest(0.01)
            if standing.elsewhere and standing.kind != HISTORY:
                continue
            decision = decide(standing, _NO_LIFE, (), self.at)
            gone += [] if decision is None else [decision]
        self.take(gone)

    def _count(self, decisions: Sequence[Decision], outcomes: Sequence[Outcome]) -> None:
        for decision, outcome in zip(decisions, outcomes, strict=True):
            if outcome is not Outcome.DONE:
                self.held += outcome is Outcome.HELD
                self.stale += outcome is not Outcome.HELD
            elif decision.target is not State.DELETING:
                total = self._done[decision.kind, decision.target, decision.reason]
                total[0] += 1
                total[1] += decision.size
        self._progress(len(decisions))


def _way(decision: Decision) -> tuple[bool, bool, str]:
    """What can be carried out together."""
    archived = decision.target is State.ARCHIVED
    return decision.kind == HISTORY, archived, decision.kind if archived else ""


def _by_subject(decisions: Sequence[Decision]) -> list[tuple[str, list[Decision]]]:
    grouped: dict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        grouped[decision.subject].append(decision)
    return list(grouped.items())


def _as_move(decision: Decision, now: int) -> Move:
    binned = decision.target is State.RECYCLED
    purge_at = now + BIN if binned else decision.due_at if decision.target is State.DELETING else None
    cause = Cause.RULE if binned else Cause.BIN
    return Move(
        decision.id,
        decision.version,
        decision.source,
        decision.target,
        decision.reason,
        cause,
        decision.rule if binned else None,
        purge_at=purge_at,
    )
