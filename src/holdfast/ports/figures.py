"""What is looked at as a whole: what there is of a user, in whatever state, and what there is of a tenant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from holdfast.core.decisions import Hold
    from holdfast.core.records import MemoryType, State, Subject


class Selection(NamedTuple):
    """Which records of a user are meant; ``None`` is any."""

    kind: MemoryType | None = None
    state: State | None = None
    agent_id: str | None = None
    session_id: str | None = None
    source: str | None = None
    """Who or what wrote it; a record that says nothing of it was written by its agent."""
    created_from: int | None = None
    created_before: int | None = None


class RecordSummary(NamedTuple):
    """What a list shows of a record."""

    id: str
    kind: MemoryType
    state: State
    revision: int
    agent_id: str
    session_id: str | None
    name: str | None
    created_at: int
    updated_at: int
    archive_at: int | None
    hidden_from: int | None
    moved_at: int | None
    purge_at: int | None
    reason: str | None
    source: str | None
    size: int
    text_hash: int
    metadata: dict[str, object]
    """Only where it was asked for."""
    beginning: str
    """Of its content."""


class FacetCount(NamedTuple):
    """How many records of a user are alike in all of this."""

    kind: MemoryType
    state: State
    agent_id: str
    session_id: str | None
    source: str | None
    records: int
    bytes: int


class Holding(NamedTuple):
    """How much a tenant's users have of a kind, and how many records were ever added."""

    kind: MemoryType
    added: int
    memories: int
    """Live ones: active and archived."""
    bytes: int
    archived: int
    archived_bytes: int
    binned: int
    binned_bytes: int


class DueCount(NamedTuple):
    """How many things of a kind are due a move, as far as they were counted."""

    kind: str
    action: str
    records: int


class BinEnds(NamedTuple):
    """When the first and the last memory leave the recycle bin; ``None``, if it is empty."""

    first: int | None
    last: int | None


class DayCount(NamedTuple):
    """How often something had been done to records of a kind, by the beginning of a day."""

    day: int
    """Days since 1970, UTC."""
    kind: str
    action: str
    times: int


class ErasureTime(NamedTuple):
    """When an erasure came how far."""

    requested_at: int
    hidden_at: int | None
    gone_at: int | None
    certified_at: int | None


class ErasureCount(NamedTuple):
    """How many erasures took longer than all bounds before one, and at most as long as that, for a stage."""

    stage: str
    bound: int
    """The number of the bound, from 0; one more than the last, if it took longer than all of them."""
    erasures: int
    total: int
    """How long they took together."""


class ErasureRecord(NamedTuple):
    """How erasures did against an objective."""

    in_time: int
    late: int
    """Those that are pending after that time, too."""
    oldest: int | None
    """When the oldest was asked for that is not certified."""


#: The action under which an erasure keeps the count of what was added.
ADDED: Final = "added"
#: For each kind that is kept, the place that a list has come to in it.
Places = tuple[int, ...]


class Browser(Protocol):
    """Lists and counts a user's records in every state that people know: active, archived, recycled."""

    def page(
        self, subject: Subject, which: Selection, *, after: Places | None = None, limit: int, chars: int, tags: bool
    ) -> tuple[list[RecordSummary], Places | None]:
        """Some of a user's records, those that were stored last first, with so many characters of their content (and
        metadata only with ``tags``), and where to go on from; ``None``, if these are the last. A page costs the same
        wherever it is, and what it passes over, which is bounded: it may have fewer than ``limit`` and more may come.
        """

    def facets(self, subject: Subject, *, most: int) -> tuple[list[FacetCount], bool]:
        """How many records of a user are alike, among the ``most`` newest of each kind, and whether those are all."""


class TenantFigures(Protocol):
    """What there is of a tenant, from counters and indexes: nothing is read that is not counted."""

    def holdings(self, tenant: str) -> list[Holding]:
        """How much there is of each kind, and how many records were ever added, but for those of erased users."""

    def users(self, tenant: str) -> int:
        """How many users there are of whom something is kept, in whatever state."""

    def sessions(self, tenant: str) -> dict[str, int]:
        """How many conversations there are, by state."""

    def due(self, tenant: str, at: int, *, most: int) -> list[DueCount]:
        """How much is due at a moment, up to ``most`` for each action, whatever holds keep."""

    def bin_ends(self, tenant: str) -> BinEnds:
        """When memories leave the recycle bin."""

    def covered(self, hold: Hold, *, most: int) -> tuple[dict[str, int], bool]:
        """How many live memories (and, without a tag, sessions) a hold on a user, an agent, a session or a tag covers,
        among the first ``most`` of each that are the tenant's, or the user's; and whether these are all.
        """

    def moves(self, tenant: str) -> list[tuple[str, str, str, int]]:
        """How often records were moved: kind, target state (or ``added``), cause, count. It never falls."""


class DayStore(Protocol):
    """What was counted by the beginning of each day, and how long erasures took."""

    def last_day(self, tenant: str) -> int | None:
        """The last day for which something is noted."""

    def note_day(self, tenant: str, counts: Iterable[DayCount], *, forget: int) -> None:
        """Note what is counted by the beginning of a day, unless it is noted; forget days before one."""

    def days(self, tenant: str, *, since: int) -> list[DayCount]:
        """What is noted, from a day on."""

    def erasures(self, tenant: str, *, since: int) -> list[ErasureTime]:
        """The erasures that were asked for since a moment, or are not certified yet."""

    def count_erasures(self, bounds: Sequence[int]) -> list[ErasureCount]:
        """Of all tenants: how many erasures took how long, by eight bounds."""

    def judge_erasures(self, objective: int, *, now: int) -> ErasureRecord:
        """Of all tenants: how many erasures were certified in time."""


class FigureStore(Browser, TenantFigures, DayStore, Protocol):
    """What is looked at as a whole."""
