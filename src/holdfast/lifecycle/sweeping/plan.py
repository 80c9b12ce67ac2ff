"""Plans and reports: what a sweep would do at a moment, or did, counted; a digest tells one plan from another."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from holdfast.core.clock import Belief
from holdfast.core.decisions import Decision
from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.records import State, Subject
from holdfast.core.values import iso, to_json
from holdfast.ports.registry import Own
from holdfast.ports.rules import Census

#: What is done to a record, in the words of reports, by the state that it leads to.
ACTIONS = {State.ARCHIVED: "archive", State.RECYCLED: "recycle", State.DELETING: "delete", State.DELETED: "delete"}


class Line(NamedTuple):
    """One line of a plan or a report."""

    memory_type: str
    action: str
    reason: str
    records: int
    bytes: int


def to_line(census: Census, target: State, reason: str) -> Line:
    """A census of what moves to a state, as a line."""
    return Line(census.kind, ACTIONS[target], reason, census.records, census.bytes)


def take_census(items: Iterable[Decision | Own]) -> list[Census]:
    """How much of each kind each subject has among some things."""
    totals: dict[tuple[str, Subject], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for one in items:
        mark = zlib.crc32(f"{one.id}/{one.version}".encode())
        total = totals[one.kind, one.subject]
        for place, amount in enumerate((1, one.size, mark, one.version)):
            total[place] += amount
    return [Census(kind, subject, *total) for (kind, subject), total in totals.items()]


def add_up(lines: Iterable[Line]) -> tuple[Line, ...]:
    """One line for each kind, action and reason, in order."""
    totals: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        total = totals[line[:3]]
        total[0] += line.records
        total[1] += line.bytes
    return tuple(Line(*key, *total) for key, total in sorted(totals.items()))


class NeedsConfirmation(NamedTuple):
    """Someone who would lose so much that a person is to look at it first."""

    user_id: str | None
    agent_id: str | None
    due: int
    of: int

    def describe(self) -> str:
        """In words."""
        whose = f"user {self.user_id!r}" if self.agent_id is None else f"agent {self.agent_id!r}"
        return f"{whose} would lose {self.due:,} of {self.of:,} memories; look at it, then confirm the sweep"


class Waiting(NamedTuple):
    """What is due by the clock, cannot be undone, and waits until the time is believed."""

    belief: Belief
    lines: tuple[Line, ...]

    @property
    def records(self) -> int:
        """How many records (and messages, agents, tools) wait; holds may keep some of them."""
        return sum(line.records for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        since = self.belief.now if self.belief.since is None else self.belief.since
        return {
            "reason": self.belief.explain(),
            "believed": iso(self.belief.upto),
            "since": iso(since),
            "records": self.records,
            "lines": [line._asdict() for line in self.lines],
        }


def join_waiting(several: Iterable[Waiting | None]) -> Waiting | None:
    """What waits, of several tenants together; ``None`` if nothing does."""
    found = [one for one in several if one is not None]
    return Waiting(found[0].belief, add_up(line for one in found for line in one.lines)) if found else None


class Decisions(Sequence[Decision]):
    """The decisions of a plan, read from the store when they are looked at: there may be millions."""

    def __init__(self, count: int, read: Callable[[], Iterator[Decision]]) -> None:
        self._count = count
        self._read = read
        self._all: list[Decision] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Decision]:
        return self._read() if self._all is None else iter(self._all)

    def __getitem__(self, index: Any) -> Any:
        if self._all is None:
            self._all = list(self._read())
        return self._all[index]


@dataclass(frozen=True)
class Account:
    """What a sweep would do, or did, by kind, action and reason."""

    at: int
    digest: str
    lines: tuple[Line, ...]
    set_aside: tuple[NeedsConfirmation, ...]
    held: int
    """Records that are due, and on hold."""
    waiting: Waiting | None = field(default=None, kw_only=True, compare=False)
    """What waits until the time is believed; ``None`` if it is."""

    @property
    def counts(self) -> dict[str, int]:
        """How many records (and messages, agents, tools) each action is for; every action is named."""
        counts: Counter[str] = Counter(dict.fromkeys(ACTIONS.values(), 0))
        for line in self.lines:
            counts[line.action] += line.records
        return dict(counts)

    @property
    def bytes(self) -> int:
        """How many bytes of content they have."""
        return sum(line.bytes for line in self.lines)

    @property
    def total(self) -> int:
        """How many records there are."""
        return sum(line.records for line in self.lines)

    def _describe(self) -> dict[str, Any]:
        return {
            "at": iso(self.at),
            "digest": self.digest,
            "counts": self.counts,
            "bytes": self.bytes,
            "lines": [line._asdict() for line in self.lines],
            "set_aside": [aside._asdict() for aside in self.set_aside],
            "held": self.held,
            "waiting": None if self.waiting is None else self.waiting.as_dict(),
        }


@dataclass(frozen=True)
class Plan(Account):
    """What a sweep would do."""

    decisions: Decisions = field(compare=False, repr=False)
    dry_run: ClassVar[bool] = True

    def to_dict(self, samples: int = 5) -> dict[str, Any]:
        """The plan as callers of a service see it."""
        some = [decision_to_dict(decision) for decision in islice(self.decisions, samples)]
        return {"dry_run": True, **self._describe(), "samples": some}


@dataclass(frozen=True)
class Report(Account):
    """What a sweep did."""

    stale: int
    """Records that changed while the sweep went on; the next one looks at them again."""
    bytes_before: int
    """What the archived records took in the store for text, metadata, vectors and words."""
    bytes_after: int
    """What they take now."""
    seconds: float
    dry_run: ClassVar[bool] = False

    def with_lines(self, tenant: str, lines: Iterable[Line], digest: str | None) -> Report:
        """The report with what was done beside; without a ``digest`` that it was done by, its own is made anew."""
        both = add_up([*self.lines, *lines])
        return replace(self, lines=both, digest=digest or plan_digest(tenant, self.at, [list(line) for line in both]))

    def to_dict(self) -> dict[str, Any]:
        """The report as callers of a service see it."""
        own = ("stale", "bytes_before", "bytes_after", "seconds")
        return {"dry_run": False, **self._describe(), **{name: getattr(self, name) for name in own}}


def decision_to_dict(decision: Decision) -> dict[str, Any]:
    """A decision as callers see it."""
    return {
        "memory_id": decision.id,
        "memory_type": decision.kind,
        "user_id": decision.subject.user_id,
        "action": ACTIONS[decision.target],
        "from": decision.source.value,
        "to": decision.target.value,
        "due_at": iso(decision.due_at),
        "rule": decision.rule,
        "reason": decision.reason,
        "bytes": decision.size,
    }


def plan_digest(tenant: str, at: int, parts: Iterable[Sequence[Any]]) -> str:
    """The digest of a plan: its moment, and a hash that changes when any record in it does."""
    seal = hashlib.sha256(to_json([tenant, at]).encode())
    for part in sorted(to_json(part) for part in parts):
        seal.update(part.encode())
    return f"{at:x}-{seal.hexdigest()[:32]}"


def digest_moment(digest: object) -> int:
    """The moment that a digest was made for."""
    try:
        text, seal = str(digest).split("-")
        if len(seal) != 32:
            raise ValueError  # noqa: TRY301 - one message for every way to be wrong
        return int(text, 16)
    except ValueError:
        raise InvalidInputError(
            f"{quote(digest)} is not the digest of a plan; take it from a dry run: holdfast sweep --dry-run"
        ) from None
