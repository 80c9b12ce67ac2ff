"""How long things live, what is due, and what keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from holdfast.core.audit import Event
    from holdfast.core.decisions import Held, Hold, Life, RecordFacts, Window
    from holdfast.core.records import Entry, Scope, State, Subject, Terms, Version
    from holdfast.core.rules import Labels, Rule
    from holdfast.ports.conversations import Session
    from holdfast.ports.coordination import Lease


class Profile(NamedTuple):
    """What the rules come to for all records of a kind that the same rules select."""

    number: int
    kind: str
    life: Life
    rules: tuple[Rule, ...]
    """The rules that it comes from."""


class RuleStore(Protocol):
    """Retention rules, and the profiles through which records follow them.

    A rule takes effect at once for all its records, for reads and sweeps alike: it is proposed, every record that it
    selects is given a profile that knows it, and then it is settled. Several rules of a tenant take effect as one:
    they are proposed together, and settled together once the records of each know it.

    Of the rules with a selection one is in force at a time: to settle one ends the others in the same moment. One that
    has ended selects nothing until it is proposed anew, so that its records have to be assigned again.
    """

    def rules(self, tenant: str) -> list[Rule]:
        """Every rule that a tenant has, or had."""

    def defaults(self, tenant: str) -> Mapping[str, Terms]:
        """How long each kind lives where no rule of the tenant says otherwise."""

    def adopt_defaults(self, *, now: Callable[[], int]) -> list[str]:
        """Let the defaults of this version of Holdfast hold for each tenant that has those of an older one, for reads
        and sweeps alike, and write that into its audit chain; for which tenants. Those of a newer version stay.
        """

    def life(
        self,
        kind: str,
        scope: Scope,
        memory_id: str | None = None,
        *,
        labels: Labels | None = None,
        ttl: int | None = None,
    ) -> Life:
        """How long something of a scope lives; for a record, with the labels that its metadata carry and the time to
        live that it has itself.
        """

    def propose(self, rules: Sequence[Rule], *, now: int) -> list[Rule]:
        """Note ``pending`` as what each of a tenant's rules will say, all or none; the rules as they are now. Nothing
        changes yet, but what is written from now on is given a profile that knows the rules.
        """

    def assign(self, rule: Rule) -> Iterator[int]:
        """Give the records that a rule selects profiles that know it, batch by batch; how many each time."""

    def settle(self, changes: Sequence[tuple[Rule, Event]], *, now: int) -> list[Rule]:
        """Let what is pending of a tenant's rules take effect in one instant, and write each one's event (with the new
        version) into the audit chain; the rules as they are then. One that another has settled stays as it is.
        """


class Census(NamedTuple):
    """How much of a subject is due a move, with two marks that change when any of it does."""

    kind: str
    subject: Subject
    records: int
    bytes: int
    mark: int
    check_mark: int


class DayCensus(NamedTuple):
    """How much of a subject (with an agent, where that was asked) becomes due on a day; day 0 is all up to now."""

    kind: str
    subject: Subject
    agent_id: str
    day: int
    records: int
    bytes: int


class Named(NamedTuple):
    """Whom and what rules and holds name, by which records are to be told apart."""

    users: frozenset[str]
    agents: frozenset[str]
    sessions: frozenset[str]
    memories: frozenset[str]


class Share(NamedTuple):
    """Records that are the same in all that was named; what is not named of them is empty."""

    thing: Held
    records: int
    bytes: int


class Page(NamedTuple):
    """Some of what is due, and where to go on from."""

    records: list[RecordFacts]
    last: tuple[int, int]


class StoreCounts(NamedTuple):
    """What is counted of the whole store."""

    moves: dict[tuple[str, str, str], int]
    """How many records ever moved, by kind, target state and cause."""
    live: dict[str, tuple[int, int]]
    """Live records of each kind, and their bytes."""
    behind: int
    """Sessions that parts have not followed."""


class AgeCount(NamedTuple):
    """Live records (or sessions) of a profile and a state that age from between two moments. Those in the recycle bin
    have profile 0, and leave it then.
    """

    profile: int
    state: State
    place: int
    """How many of the bounds are not after it."""
    records: int
    seconds: int
    """The sum of these moments, each in whole seconds."""
    first: int
    """The earliest of them."""


class DueReader(Protocol):
    """What is due, by the rules."""

    def rules_version(self, tenant: str) -> int:
        """The version of a tenant's rules: another, and what is due may be something else."""

    def profiles(self, tenant: str) -> list[Profile]:
        """Every profile of a tenant, with what its rules come to now."""

    def census(self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()) -> list[Census]:
        """How much of each subject is in a window, without some agents' records."""

    def census_all(self, classes: Sequence[tuple[Profile, State, Window]]) -> list[list[Census]]:
        """The same of several windows, of whichever profiles and states."""

    def census_of_agents(
        self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()
    ) -> dict[str, int]:
        """How many records of each agent are in a window, without some subjects'."""

    def by_day(self, profile: Profile, state: State, *, upto: int, days: int) -> list[DayCensus]:
        """How many records (or sessions) age from a moment up to ``upto``, and how many more for each day after it."""

    def due(
        self, profile: Profile, state: State, window: Window, *, after: tuple[int, int] = ..., limit: int, tags: bool
    ) -> Page:
        """Records (or sessions) in a window, in a fixed order; metadata only with ``tags``."""

    def due_of(
        self,
        subject: Subject,
        profile: Profile,
        state: State,
        window: Window,
        *,
        after: int = 0,
        limit: int,
        tags: bool,
    ) -> tuple[list[RecordFacts], int]:
        """The records of one subject in a window, in a fixed order, and where to go on from. Costs what the subject
        has, so it is for one of whom much is due.
        """


class BinReader(Protocol):
    """What is due to leave the recycle bin, and what is in it."""

    def bin_census(self, tenant: str, now: int) -> list[Census]:
        """How much of each subject's recycle bin has had its time."""

    def bin_by_day(self, tenant: str, *, upto: int, days: int) -> list[DayCensus]:
        """How many memories and conversations leave the recycle bin up to a moment, and how many more on each day."""

    def message_census(self, tenant: str, now: int) -> list[Census]:
        """How many single messages of each subject leave the bin and are not on hold, without those that go with their
        whole conversation.
        """

    def binned(
        self, tenant: str, now: int, *, after: tuple[int, int] = ..., limit: int, tags: bool, sessions: bool = False
    ) -> Page:
        """Records (or sessions) whose time in the bin is over, in a fixed order."""

    def binned_sessions(
        self, tenant: str, subject: Subject | None = None, *, after: tuple[int, str] | None = None, limit: int
    ) -> list[Session]:
        """Sessions in the recycle bin, those that leave it first first; with ``after`` (the time at which one leaves,
        and its id), those that come after that, be it there or not.
        """


class LiveCounter(Protocol):
    """How much is live, of whom."""

    def live(self, subject: Subject) -> int:
        """How many live records a subject has."""

    def expired(self, subject: Subject, kind: str, now: int) -> int:
        """How many of a subject's live records of a kind are past their time, and wait for a sweep."""

    def live_of_agent(self, tenant: str, agent_id: str) -> int:
        """How many live records are an agent's own."""

    def shares(self, tenant: str, profile: Profile, state: State, window: Window, named: Named) -> list[Share]:
        """How many records are in a window, and their bytes, parted by what is named."""


class StoreFigures(Protocol):
    """What metrics and checks say of the whole store."""

    def tenants(self) -> list[str]:
        """Every tenant of whom anything was ever kept."""

    def first_due(self, tenant: str) -> list[tuple[str, int]]:
        """When what has waited longest by each profile, in each state, is due, or was; of which kind that is."""

    def overdue_since(self, tenant: str, now: int) -> Iterator[tuple[str, int]]:
        """For each kind of which something is due: since when."""

    def counts(self) -> StoreCounts:
        """What there is, by one statement: on a cluster each is asked of all nodes."""

    def ages(self, bounds: Sequence[int], now: int) -> list[AgeCount]:
        """All that is live, by what it ages from: before the first bound, from there on before the next, and so on; and
        what has had its time in the recycle bin. Reads an entry of an index for each. Bounds matter to live records.
        """

    def give_back(self, pages: int) -> int:
        """Give unused space back to the disk, some at a time; how much is left."""


class DueStore(DueReader, BinReader, LiveCounter, StoreFigures, Protocol):
    """What is due, by index: every answer costs what is in it, not what is stored."""


class HoldStore(Protocol):
    """Holds of a tenant."""

    def add(self, hold: Hold, event: Event) -> Hold:
        """Let a hold stand from now on."""

    def list(self, tenant: str, *, released: bool = False) -> list[Hold]:
        """The holds that stand; with ``released``, those that were lifted too."""

    def release(self, tenant: str, hold_id: str, *, now: int, event: Event) -> Hold | None:
        """Lift a hold; ``None`` if there is no such hold standing."""


class VersionStore(Protocol):
    """Versions of records that have ended. They go with their record, wherever it goes."""

    def ended(self, subject: Subject, record_id: str, *, now: int | None = None) -> list[Version]:
        """The ended versions of a record, oldest first: those that its rules keep at ``now``, or all that are there."""

    def at(self, subject: Subject, record_ids: Sequence[str], *, at: int, now: int) -> list[Version]:
        """The ended versions that were current at a moment, of those of these records that are changed since; as far as
        rules keep them at ``now``.
        """

    def complete(self, entry: Entry, version: int) -> None:
        """Let an ended version say all that the entry does: it was a summary of that, as it lay in cold storage."""

    def census(self, tenant: str, now: int) -> list[Census]:
        """How many versions of each subject's records the rules keep no longer, and no hold keeps."""

    def newly_due(
        self, profile: int, versions: int | None, versions_for: int | None, *, now: int
    ) -> Iterator[tuple[Held, int]]:
        """What the records of a profile would lose if that kept so many versions, for so long, and keeps at ``now``:
        of each version, what it is of and its bytes.
        """

    def trim(self, tenant: str, *, upto: int, now: int, lease: Lease | None = None) -> tuple[int, int]:
        """Delete those, with an audit entry for each record; how many, and their bytes."""
