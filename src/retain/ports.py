"""The contracts between what Retain does and the engines that it runs on.

Each protocol is narrow, speaks the domain and states its contract; engines satisfy it by shape, not by inheritance.
One conformance suite per protocol (``tests/conformance``) runs over every engine. Moments are whole microseconds
since 1970. Each method is one transaction: when it returns, its effect is durable; when it raises, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from retain.core.chain import Checkpoint, Event, Finding, Sizes
from retain.core.chain import Entry as AuditEntry
from retain.core.decisions import Standing, Window
from retain.core.filters import Filter
from retain.core.holds import Hold
from retain.core.records import Encoding, Entry, Fact, Message, Move, Outcome, Record, Scope, Usage
from retain.core.rules import Life, Rule
from retain.core.tombstones import Tombstone
from retain.core.types import Kind, State

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors of one space."""

    @property
    def id(self) -> str:
        """Names the space: two embedders share an id only if their vectors may be compared."""

    @property
    def dim(self) -> int:
        """How long each vector is."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit-length float32 row per text (all zeros where a text has nothing to embed).

        Raises ``EmbedderError``; ``EmbedderUnavailableError`` where trying again may help.
        """


class Summarizer(Protocol):
    """Makes a short text of a long one."""

    def summarize(self, texts: Sequence[str], *, max_chars: int) -> str:
        """A summary of ``texts``, in their order, of at most ``max_chars`` characters."""


class IndexRow(NamedTuple):
    """What the recall index needs to know of a record; all of it lies in the record's own row."""

    id: str
    agent_id: str
    session_id: str | None
    created_at: int
    updated_at: int
    hidden_from: int | None
    """The moment from which the record must not be seen, whether or not a sweep has run."""
    archived_from: int | None
    """The moment from which it counts as archived, whether or not a sweep has run."""
    metadata: str
    """JSON text."""
    vectors: bytes | None
    """float16, one row per passage, in the space of the index's embedder; ``None`` if not embedded in that space."""
    terms: bytes
    """The passages' terms, as ``recall.terms.encode`` wrote them."""


#: How far an index has followed a scope; means something to the engine only.
Cursor = tuple[int, ...]


class Changes(NamedTuple):
    """What happened to a scope since a caller last looked."""

    cursor: Cursor
    """Hand this back next time. Empty, if there are more live records than were asked for, and nothing else is said."""
    reload: bool
    """``rows`` is everything there is; what the caller had is to be forgotten."""
    rows: list[IndexRow]
    """Live records that are new or changed, or (``reload``) all of them."""
    gone: list[str]
    """Ids that are no longer live."""


class Added(NamedTuple):
    """The outcome of an insert."""

    usage: Usage
    """As it is after the insert."""
    pruned: int
    """How many old records went to the recycle bin to make room."""
    gone: tuple[str, ...] = ()
    """Which they were."""


class RecordStore(Protocol):
    """Durable records of the kinds that ``TYPES`` calls durable."""

    def insert(self, subject: str, kind: Kind, entries: Sequence[Entry], *, prune: bool, now: int) -> Added:
        """Add all entries, or none of them.

        Raises ``QuotaExceededError`` where they would exceed the quota of the subject for the kind, counted exactly,
        whatever other writers do, and ``ConflictError`` where a live record goes by the name of one of them. With
        ``prune``, the oldest tenth of the live records is recycled first, as often as it takes; what cannot be made
        room for is refused.
        """

    def get(self, subject: str, record_id: str) -> Record | None:
        """The record, in whatever state it is; ``None`` if there is no such."""

    def find(self, tenant: str, record_id: str) -> Record | None:
        """The record, whoever of the tenant's users it belongs to."""

    def named(self, subject: str, kind: Kind, name: str, *, now: int) -> Record | None:
        """The live record of a kind that goes by a name, if it is not hidden at ``now``."""

    def fetch(self, subject: str, record_ids: Sequence[str], *, now: int) -> dict[str, Record]:
        """Those of the records that are live and not hidden at ``now``, by id."""

    def entries(self, subject: str, record_ids: Sequence[str]) -> dict[str, Entry]:
        """The records with their encodings, in whatever state they are, by id."""

    def replace(self, entry: Entry) -> bool:
        """Write a new version of a live record; ``False``, changing nothing, if it moved or changed meanwhile.

        ``entry.record.version`` is the version it was made from; the stored one counts one more.
        """

    def transition(self, subject: str, moves: Sequence[Move], *, now: int) -> list[Outcome]:
        """Carry out each move, or say why not and change nothing of that record.

        The only way from one state to another: state, version and holds are checked, and the audit entry is written,
        in the same transaction. A record whose target is ``DELETED`` is gone, with all that is known of it.
        """

    def transition_all(
        self,
        batches: Sequence[tuple[str, Sequence[Move]]],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[list[Outcome]]:
        """The same for several subjects; each subject's moves are one transaction, or share one with others'.

        With a lease, ``LeaseLostError`` if it is no longer the current one; with the version of the rules that the
        moves were decided by, ``RulesChangedError`` if it is no longer that. Both are checked in the same transaction.
        """

    def binned(
        self, tenant: str, subject: str | None = None, *, after: tuple[int, int] = ..., limit: int
    ) -> tuple[list[Record], tuple[int, int]]:
        """Some of the records in the recycle bin, those that leave it first first, and where to go on from."""

    def bundled(self, tenant: str, bundle: str, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        """Some of the records in the recycle bin that went there together, each user's together, and where to go on
        from.
        """

    def live(self, subject: str, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[Standing], int]:
        """Some of a subject's live records of a kind, without their metadata, and where to go on from."""

    def usage(self, subject: str, kind: Kind) -> Usage:
        """What the subject holds of a kind, live records only."""

    def set_quota(self, tenant: str, user_id: str | None, kind: Kind, limits: dict[str, int | None]) -> None:
        """Set ``max_memories`` and ``max_bytes`` (those that are given; ``None``: no limit) for a user or a tenant."""


class Written(NamedTuple):
    """A record that is there, in whatever state, and who or what wrote it."""

    standing: Standing
    """Without the record's metadata."""
    source: str


class ProvenanceStore(Protocol):
    """Where records came from: who or what wrote them, and what they were derived from. Each record says it itself."""

    def derived(self, subject: str, source_ids: Sequence[str]) -> list[Written]:
        """The subject's records that say they were derived from any of these memories and messages, each once."""

    def of_source(
        self, tenant: str, source: str, subject: str | None = None, *, after: int = 0, limit: int
    ) -> tuple[list[Written], int]:
        """Some of the records that a source wrote, of a subject or of all of a tenant's, each subject's together, and
        where to go on from. Costs what the source wrote; of an agent's own, what there is.
        """


class Lease(NamedTuple):
    """The right to sweep, until it expires or is released."""

    name: str
    holder: str
    epoch: int
    """Counts the changes of hands; checked inside every batch."""
    expires_at: int
    """By the real time of the machine; a renewal moves it."""


class Profile(NamedTuple):
    """What the rules come to for all records of a kind that the same rules select."""

    number: int
    kind: str
    life: Life
    rules: tuple[Rule, ...]
    """The rules that it comes from."""


class Census(NamedTuple):
    """How much of a subject is due a move, with two marks that change when any of it does."""

    kind: str
    subject: str
    records: int
    bytes: int
    mark: int
    check_mark: int


class Page(NamedTuple):
    """Some of what is due, and where to go on from."""

    standings: list[Standing]
    last: tuple[int, int]


class RuleStore(Protocol):
    """Retention rules, and the profiles through which records follow them.

    A rule takes effect at once for all its records, for reads and sweeps alike: it is proposed, every record that it
    selects is given a profile that knows it, and then it is settled.
    """

    def rules(self, tenant: str) -> list[Rule]:
        """Every rule that a tenant has, or had."""

    def life(self, kind: str, scope: Scope, memory_id: str | None = None) -> Life:
        """How long something of a scope lives."""

    def propose(self, rule: Rule, *, now: int) -> Rule:
        """Note ``rule.pending`` as what a rule will say; the rule as it is now. It changes nothing yet, but what is
        written from now on is given a profile that knows the rule.
        """

    def assign(self, rule: Rule) -> Iterator[int]:
        """Give the records that a rule selects profiles that know it, batch by batch; how many each time."""

    def settle(self, rule: Rule, *, now: int, event: Event) -> Rule:
        """Let what is pending take effect, and write the event (with the new version) into the audit chain."""


class DueStore(Protocol):
    """What is due, by index: every answer costs what is in it, not what is stored."""

    def rules_version(self, tenant: str) -> int:
        """The version of a tenant's rules: another, and what is due may be something else."""

    def tenants(self) -> list[str]:
        """Every tenant of whom anything was ever kept."""

    def profiles(self, tenant: str) -> list[Profile]:
        """Every profile of a tenant, with what its rules come to now."""

    def census(self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()) -> list[Census]:
        """How much of each subject is in a window, without some agents' records."""

    def census_of_agents(
        self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()
    ) -> dict[str, int]:
        """How many records of each agent are in a window, without some subjects'."""

    def due(
        self, profile: Profile, state: State, window: Window, *, after: tuple[int, int] = ..., limit: int, tags: bool
    ) -> Page:
        """Records (or sessions) in a window, in a fixed order; metadata only with ``tags``."""

    def due_of(
        self, subject: str, profile: Profile, state: State, window: Window, *, after: int = 0, limit: int, tags: bool
    ) -> tuple[list[Standing], int]:
        """The records of one subject in a window, in a fixed order, and where to go on from. Costs what the subject
        has, so it is for one of whom much is due.
        """

    def bin_census(self, tenant: str, now: int) -> list[Census]:
        """How much of each subject's recycle bin has had its time."""

    def binned(
        self, tenant: str, now: int, *, after: tuple[int, int] = ..., limit: int, tags: bool, sessions: bool = False
    ) -> Page:
        """Records (or sessions) whose time in the bin is over, in a fixed order."""

    def binned_sessions(self, tenant: str, subject: str | None = None, *, limit: int) -> list[Session]:
        """Sessions in the recycle bin, those that leave it first first."""

    def live(self, subject: str) -> int:
        """How many live records a subject has."""

    def expired(self, subject: str, kind: str, now: int) -> int:
        """How many of a subject's live records of a kind are past their time, and wait for a sweep."""

    def live_of_agent(self, tenant: str, agent_id: str) -> int:
        """How many live records are an agent's own."""

    def effect(self, profile: Profile, state: State, window: Window, rule: Rule) -> tuple[int, int]:
        """How many records that a rule selects are in a window, and their bytes."""

    def overdue_since(self, tenant: str, now: int) -> Iterator[tuple[str, int]]:
        """For each kind of which something is due: since when."""

    def seen(self) -> int | None:
        """The latest time that a sweep has seen."""

    def see(self, now: int) -> None:
        """Note a time."""

    def totals(self) -> list[tuple[str, str, str, int]]:
        """How many records ever moved: kind, target state, cause, count."""

    def holdings(self) -> list[tuple[str, int, int]]:
        """Bytes and number of the live records of each kind."""

    def ages(self, bounds: Sequence[int]) -> dict[str, tuple[list[int], int]]:
        """How many live records of each kind age from before each bound and after the next older one, the newest first
        (so one count more than there are bounds), and the sum of the moments that they age from, each to the second.
        """

    def give_back(self, pages: int) -> int:
        """Give unused space back to the disk, some at a time; how much is left."""


class HoldStore(Protocol):
    """Holds of a tenant."""

    def add(self, hold: Hold, event: Event) -> None:
        """Let a hold stand from now on."""

    def list(self, tenant: str, *, released: bool = False) -> list[Hold]:
        """The holds that stand; with ``released``, those that were lifted too."""

    def release(self, tenant: str, hold_id: str, *, now: int, author: str, event: Event) -> Hold | None:
        """Lift a hold; ``None`` if there is no such hold standing."""


class ObjectStore(Protocol):
    """Whole objects under names, written once, read rarely, deleted for good.

    A name is parts of lower-case letters, digits, ``.``, ``_``, ``=`` and ``-`` with ``/`` between them; none may be
    the beginning (up to a ``/``) of another. ``InvalidInputError`` for any other name, before anything is done.

    What fails in passing is tried again for some seconds. Then every method raises ``ObjectStoreUnavailableError``
    (retryable) where the store does not answer in time, ``StoreFullError`` (retryable) where it has no room, and
    ``ObjectStoreError`` where it refuses. To ``get`` and ``delete``, a place that is gone is never an empty one: an
    archive on a disk that is not mounted has lost nothing, and nothing in it has been erased.

    A write that raises has left what had the name before; where it was unavailable, the new object may be there
    instead. Either is whole. An object that is written on a condition is never written without one.
    """

    @property
    def url(self) -> str:
        """Where it is, as it may be shown: without secrets."""

    def prepare(self) -> None:
        """Make the place ready to be written, before it is noted anywhere that something lies there."""

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        """Write an object; it is durable when this returns, and at no moment can part of it be read. Its tag.

        What had the name before is replaced; writing the same again changes nothing. With ``absent``, only if nothing
        has the name: else ``ConflictError``. With ``match``, only if what has the name is what ``get_with_tag`` gave
        that tag: else ``StaleError``. Of any number of writers on the same condition, one succeeds.
        """

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> tuple[int, bytes]:
        """Write an object that need not fit into memory, as ``put`` does; its size and its SHA-256.

        If the chunks raise, or anything else does, nothing of them stays.
        """

    def get(self, name: str) -> bytes:
        """All of an object; ``ObjectMissingError`` if there is none of this name."""

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        """All of an object, and the tag by which ``put`` knows whether it is still the same."""

    def get_stream(self, name: str) -> Iterator[bytes]:
        """An object in chunks, in their order, read as they are asked for; ``ObjectMissingError`` at once.

        It ends only at the object's end: one that breaks off raises, and so does one that is replaced meanwhile
        (``StaleError``), unless the old one can be read to its end. What it holds is for the reader to verify.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects, durably; those that are not there are passed over, so that it can be repeated.

        If it raises, any of them may be left. It also clears away what puts that were killed left behind, where that
        can be seen.
        """

    def names(self, prefix: str = "") -> Iterator[str]:
        """The names of all objects below a prefix of whole parts (``archive/ab/``), in no particular order.

        They are read as they are asked for, a thousand or a folder at a time.
        """

    def check(self) -> Sequence[str]:
        """Write, read, list and delete an object of its own; raises what goes wrong, and leaves nothing behind.

        What works and should be known nonetheless is the answer: that deleted objects are kept as old versions, that
        conditions are not heeded, that nothing is encrypted on its way.
        """


class Pack(NamedTuple):
    """A cold object: records of one subject, packed together."""

    number: int
    subject: str
    name: str
    state: str
    records: int
    digest: bytes


class PackStore(Protocol):
    """Which cold objects there are, and what is to become of them.

    A pack is ``writing`` until records have moved into it, then ``kept``; ``stale`` while it holds more than the
    records that still lie in it, and ``leaving`` until its object is gone.
    """

    def alias(self, subject: str) -> str:
        """The subject's pseudonym; ``NotFoundError`` if nothing is kept of it, because it was erased or never seen."""

    def open(
        self,
        subject: str,
        *,
        name: str,
        records: int,
        size: int,
        digest: bytes,
        now: int,
        alias: str | None = None,
    ) -> int:
        """Note an object before it is written; its number. Records move into it by ``RecordStore.transition``.

        ``NotFoundError``, if the subject does not go by the pseudonym ``alias`` (any more).
        """

    def get(self, number: int) -> Pack | None:
        """A pack that is kept, or stale."""

    def unsettled(self, tenant: str) -> list[Pack]:
        """The packs that something is to be done with."""

    def members(self, number: int) -> list[str]:
        """The records that lie in a pack and are to stay."""

    def small(self, subject: str, *, below: int) -> Pack | None:
        """The smallest pack of a subject that is kept and has fewer bytes than that."""

    def swap(self, old: int, new: int, *, members: int, lease: Lease | None = None) -> bool:
        """Let the members of one pack lie in another, and those being deleted in none; the old pack is leaving.

        ``False``, changing nothing, if there are not so many members any more, or the new pack was given up.
        """

    def settle(self, number: int) -> str | None:
        """The state that a pack is in by the records that lie in it, set; ``None`` if it is leaving already."""

    def leaving(self, number: int) -> list[Pack]:
        """The pack, if it is leaving."""

    def forget(self, number: int) -> None:
        """The object is gone."""


class AuditStore(Protocol):
    """Chains of events, one per subject, and the checkpoints that seal them."""

    def append(self, subject: str, events: Sequence[Event]) -> None:
        """Put events at the end of a subject's chain, in their order; all of them or none."""

    def of_item(self, subject: str, item: str) -> list[AuditEntry]:
        """What a subject's chain says of one item, oldest first."""

    def tail(self, tenant: str, *, limit: int, subject: str | None = None) -> list[AuditEntry]:
        """The ``limit`` latest entries of a tenant's chains, or of one subject's, the newest last."""

    def seal(self, at: int) -> Checkpoint:
        """Seal the heads of all chains of the store; the last checkpoint, where none has moved since.

        A chain that no longer has the entry that was sealed stays sealed as it was, so that ``verify`` goes on finding
        it. Raises ``StorageError``, changing nothing, if the sealed heads are not those of the last checkpoint.
        """

    def checkpoints(self, *, limit: int | None = None) -> list[Checkpoint]:
        """The checkpoints, or the ``limit`` last ones, the newest last."""

    def sizes(self) -> Sizes:
        """How many chains, entries and checkpoints there are."""

    def verify(self, progress: Callable[[int], None]) -> Iterator[Finding]:
        """Walk every chain and every checkpoint, as they are at one moment, and give what is wrong, in constant
        memory. ``progress`` hears now and then how many more entries have been read.
        """

    def cut(self, before: int, *, at: int) -> int:
        """Remove entries of before a moment: from the beginning of each chain, no further than its last sealed entry,
        and only what verifies. Each chain that is cut gets an entry that says so. How many entries went. Several
        transactions, each of them whole.
        """


class JobRow(NamedTuple):
    """What the store knows of a job."""

    name: str
    cron: str | None
    """``None``: the default; so with ``timezone``."""
    timezone: str | None
    enabled: bool
    since: int
    """Slots up to this moment are not missed ones."""
    slot: int | None
    """The last slot that was claimed."""
    started_at: int | None
    finished_at: int | None
    """``None`` while it runs, or if it was cut short."""
    result: dict[str, Any] | None
    error: str | None
    """Why it failed; of an unfinished slot: that it is on its second run."""


class JobStore(Protocol):
    """What is set about jobs, and how their last slot went."""

    def enrol(self, name: str, *, now: int) -> None:
        """Know a job from ``now`` on; nothing, if it is known already."""

    def rows(self) -> list[JobRow]:
        """Every job that is known, by name."""

    def configure(self, name: str, *, cron: str | None, timezone: str | None, enabled: bool | None, now: int) -> None:
        """Set what is given: ``None`` leaves it, an empty text goes back to the default.

        Where that gives a job new slots (another cron or zone, or enabled again), those up to ``now`` are not missed.
        """

    def claim(self, name: str, slot: int, *, now: int, lease: Lease | None = None) -> bool:
        """Begin a slot; ``False``, changing nothing, unless it is later than every slot claimed before.

        Of any number of callers exactly one is told ``True``. With a lease that changed hands: ``LeaseLostError``.
        """

    def reclaim(self, name: str, slot: int, *, now: int, lease: Lease) -> bool:
        """Begin the last slot again, because it was cut short; ``False`` if it was finished, or begun again before."""

    def finish(
        self,
        name: str,
        slot: int,
        *,
        now: int,
        result: dict[str, Any] | None,
        error: str | None,
        lease: Lease | None = None,
    ) -> bool:
        """Record how the last slot went; ``False``, changing nothing, if it is not the last, or finished already."""


class LeaseStore(Protocol):
    """Who may do what only one may do. Times are the machine's real ones, whatever the engine's clock says."""

    def acquire(self, name: str, holder: str, *, now: int, ttl: int) -> Lease | None:
        """The lease, until ``now + ttl``; ``None`` while another holder has it.

        Its holder gets it again, longer, with the same epoch. One that expired, was released, or belongs to a dead
        process of this host changes hands at once, and the epoch counts one more.
        """

    def renew(self, lease: Lease, *, now: int, ttl: int) -> bool:
        """Keep it until ``now + ttl``; ``False``, changing nothing, if it has changed hands."""

    def release(self, lease: Lease) -> None:
        """Give it back; nothing, if it has changed hands. The next to acquire it gets a new epoch."""

    def current(self, name: str, *, now: int) -> Lease | None:
        """The lease as it is held now; ``None`` if anyone may have it."""


class RecallFeed(Protocol):
    """What an in-process index follows."""

    def changes(
        self, scope: Scope, kind: Kind, since: Cursor | None, *, model: str, most: int | None = None
    ) -> Changes:
        """What changed in a scope since ``since`` (``None``: everything), as ``model`` sees it; with ``most``, nothing
        (an empty cursor) if the user has more live records of the kind.

        Writes and deletes of any process are in the answer once they have committed.
        """

    def unembedded(self, subject: str, kind: Kind, *, model: str, limit: int) -> list[Record]:
        """Live records of a kind that have no vectors of this model."""

    def embed(self, subject: str, kind: Kind, encodings: Iterable[tuple[str, int, Encoding]]) -> int:
        """Give records (id, version) their new encoding; those that changed meanwhile are passed over."""

    def adopt(self, model: str) -> None:
        """Make this the model that records without its vectors are to be embedded with."""

    def is_current(self, model: str) -> bool:
        """Whether this model was the last to be adopted."""

    def subjects(self, tenant: str) -> Iterator[str]:
        """Every subject of a tenant."""


class Said(NamedTuple):
    """What a record's encoding says of its text."""

    terms: npt.NDArray[np.uint32]
    """The distinct ones."""
    length: int
    """How many words it has."""
    passages: int


class Space(NamedTuple):
    """How records are encoded: by which model, in how many dimensions, and how their terms are read."""

    model: str
    dim: int
    read: Callable[[Sequence[bytes]], Sequence[Said]]


class Wanted(NamedTuple):
    """What candidates are looked for, and what the scope is like."""

    vector: Vectors | None
    """What their vectors should point to."""
    terms: npt.NDArray[np.uint32]
    holding: npt.NDArray[np.float64]
    """How many records hold each term; NaN where that is to be counted."""
    records: float
    """How many there are in the scope."""
    usual: float
    """How many words they have."""
    enough: int
    """How many candidates there should be of each sort."""
    now: int
    where: Filter | None
    include_archived: bool


class Candidates(NamedTuple):
    """Records among which the best matches are."""

    rows: list[IndexRow]
    holding: npt.NDArray[np.float64]
    """As in ``Wanted``, with those that were counted."""


class Neighbours(NamedTuple):
    """Live records that stand next to others in their sessions."""

    rows: list[IndexRow]
    before: dict[str, str]
    """By id, which record stands right before which."""


class LargeScopes(Protocol):
    """Scopes with too many records to be held in memory, searched where they are kept.

    What is searched is made from the records, in batches, some time after they were written. What has not been made
    yet is among the candidates all the same, so that every answer is of the records as they are.
    """

    @property
    def most(self) -> int:
        """A scope with more live records than this is a large one."""

    def standing(self, scope: Scope, kind: Kind) -> tuple[int, int]:
        """How many live records a user has of a kind (0: none that the agent may see), and how many of all of them are
        still to be made ready for search.
        """

    def fill(self, scope: Scope, kind: Kind, space: Space, *, limit: int) -> int:
        """Make some records ready for search; how many. 0: all are."""

    def sample(self, scope: Scope, kind: Kind, *, model: str, limit: int) -> tuple[list[IndexRow], float]:
        """Live records in runs spread over the scope, about ``limit`` at most, and the part of the scope that they are;
        1 if they are all there are.
        """

    def candidates(self, scope: Scope, kind: Kind, space: Space, wanted: Wanted) -> Candidates:
        """Records that pass the filter and are to be seen: those closest in meaning, and in words. Where few pass, all
        of them.
        """

    def around(self, scope: Scope, kind: Kind, rows: Sequence[IndexRow], *, model: str, reach: int) -> Neighbours:
        """The records up to ``reach`` places before and after these in their sessions."""

    def select(
        self, scope: Scope, kind: Kind, top_k: int, *, now: int, where: Filter | None, include_archived: bool
    ) -> list[str]:
        """Ids of records that pass the filter and are to be seen, newest first."""

    def tend(self, tenant: str, space: Space, *, thorough: bool) -> int:
        """Make a tenant's large scopes ready, with the index that makes their search fast, and let go of what was made
        for scopes that have become small; how many records were made ready.

        ``thorough``: all of the large scopes, not only those that were searched before. It looks at every scope.
        """


class Session(NamedTuple):
    """A conversation of a user with an agent."""

    id: str
    subject: str
    agent_id: str
    session_id: str | None
    state: State
    version: int
    created_at: int
    updated_at: int
    aged_from: int
    hidden_from: int | None
    moved_at: int | None
    reason: str | None
    purge_at: int | None
    bundle: str | None
    messages: int
    size: int
    summary: str


class BinnedMessage(NamedTuple):
    """A message that was deleted by itself."""

    message: Message
    subject: str
    agent_id: str
    session_id: str | None
    purge_at: int


#: The summary of a conversation so far and its new messages, as the summary of all of it.
Summarize = Callable[[str, Sequence[Message]], str]


class History(Protocol):
    """Conversations, kept durably: a session of each name, and those before it in the recycle bin.

    A session whose time is over is not to be seen from that instant on, and neither are those of a removed agent.
    """

    def append(self, scope: Scope, messages: Sequence[Message], *, now: int, summarize: Summarize) -> None:
        """Add messages to the session's conversation, and let its summary and its last activity be of now.

        A session whose time is over is not revived: it goes to the recycle bin (one that a hold keeps gives up its
        name), and another begins.
        """

    def touch(self, scope: Scope, *, now: int) -> Session:
        """The session of a scope, active now; begun if there is none."""

    def find(self, scope: Scope, *, now: int) -> Session | None:
        """The session of a scope, if it is to be seen."""

    def messages(self, scope: Scope, *, now: int, limit: int | None = None) -> list[Message]:
        """The conversation in its order; with ``limit``, its last messages."""

    def owners(self, tenant: str, agent_id: str, session_id: str | None, *, now: int) -> list[str]:
        """The users of a tenant who have a session of this name with an agent."""

    def sessions(self, subject: str, agent_id: str | None = None, *, now: int) -> list[Session]:
        """The sessions of a subject that are to be seen, the latest active first."""

    def remove(self, scope: Scope, message_ids: Sequence[str], *, now: int, summarize: Summarize) -> int:
        """Send messages to the recycle bin, all or (``HeldError``, audited) none; how many there were."""

    def restore_message(self, subject: str, message_id: str, *, now: int) -> bool:
        """Bring a message back to its place; whether it was in the bin. ``ConflictError`` if its session is not
        active, or its time in the bin is over.
        """

    def binned_messages(
        self, tenant: str, subject: str | None = None, *, now: int, after: tuple[int, int] = ..., limit: int
    ) -> tuple[list[BinnedMessage], tuple[int, int]]:
        """Some of the messages in the bin, those that leave it first first, and where to go on from."""

    def purge_messages(self, tenant: str, *, now: int, limit: int, lease: Lease | None = None) -> int:
        """Delete messages whose time in the bin is over for good, but for those that are held; how many. Fewer than
        ``limit`` means that none is left.
        """

    def get(self, subject: str, item_id: str) -> Session | None:
        """A session by its id, in whatever state."""

    def is_held(self, subject: str, item_id: str) -> bool:
        """Whether a hold keeps a session, or any message of it."""

    def transition_all(
        self,
        batches: Sequence[tuple[str, Sequence[Move]]],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[list[Outcome]]:
        """Move sessions as ``RecordStore.transition_all`` moves records; ``TAKEN`` if one of the name is active.

        A session is ``DELETED`` only once it has no messages. A hold on one of its messages holds the session.
        """

    def erase(self, subject: str, item_id: str, *, limit: int, lease: Lease | None = None) -> int:
        """Remove messages of a session that is being deleted, some at a time; how many are left."""


class Registered(NamedTuple):
    """An agent or a tool."""

    tenant: str
    sort: str
    id: str
    state: State
    version: int
    description: str
    metadata: dict[str, Any]
    created_at: int
    updated_at: int
    moved_at: int | None
    reason: str | None
    purge_at: int | None
    bundle: str | None
    unfinished: str | None
    """``remove`` or ``restore``, until all that is its own has followed."""


class Followed(NamedTuple):
    """How much of an agent's own went with it, how much did not and why, and where to go on from."""

    moved: dict[str, int]
    left: dict[str, int]
    after: tuple[str, int] | None


class RegistryStore(Protocol):
    """Agents and tools of a tenant. Every change is on the tenant's audit chain."""

    def put(
        self, tenant: str, sort: str, entry_id: str, *, description: str, metadata: dict[str, Any], now: int
    ) -> Registered:
        """Make one known, or say anew what is known; ``ConflictError`` if it is in the recycle bin."""

    def get(self, tenant: str, sort: str, entry_id: str) -> Registered | None:
        """One, in whatever state."""

    def list(self, tenant: str, sort: str, *, include_removed: bool = False) -> list[Registered]:
        """Those that are known, by id."""

    def remove(self, tenant: str, sort: str, entry_id: str, *, now: int, reason: str, bundle: str) -> Registered:
        """Move one to the recycle bin: out of sight at once, with its own still to follow. ``HeldError`` is audited."""

    def restore(self, tenant: str, sort: str, entry_id: str, *, now: int) -> Registered:
        """Bring one back, with its own still to follow."""

    def follow(
        self,
        entry: Registered,
        what: str,
        *,
        after: tuple[str, int] = ...,
        now: int,
        limit: int,
        lease: Lease | None = None,
    ) -> Followed:
        """Move some of an agent's ``records`` or ``sessions`` where it went; ``StaleError`` if it went elsewhere."""

    def finish(self, entry: Registered, *, lease: Lease | None = None) -> bool:
        """All has followed; ``False`` if it went elsewhere meanwhile."""

    def unfinished(self, tenant: str) -> Sequence[Registered]:
        """Those whose own has not followed yet."""

    def due(self, tenant: str, *, now: int) -> Sequence[Registered]:
        """Those whose time in the recycle bin is over."""

    def erase(self, entry: Registered, *, now: int, lease: Lease | None = None) -> bool:
        """Forget one for good, once nothing of its own is left; whether it is gone."""


class ShortWindow(NamedTuple):
    """The short-term messages of a session."""

    agent_id: str | None
    """``None``, if only a digest of it is kept, and it is not known whose that is; ``session_id`` is ``None`` then."""
    session_id: str | None
    expires_at: int
    messages: list[Message]


class ShortTermStore(Protocol):
    """Messages of a session that are gone ``ttl`` after the session's last write."""

    def append(self, scope: Scope, messages: Sequence[Message], *, ttl: int, now: int, most: int) -> int:
        """Add messages and keep the whole session for ``ttl`` microseconds from ``now``.

        A session holds the last ``most`` messages; the answer is how many it holds now.
        """

    def window(self, scope: Scope, *, now: int) -> list[Message]:
        """The messages in their order; empty from the instant of expiry on."""

    def end(self, scope: Scope) -> bool:
        """Let a session's messages expire now; whether there were any."""

    def end_agent(self, tenant: str, agent_id: str) -> int:
        """Let the messages of all of an agent's sessions expire now; how many sessions."""

    def end_user(self, tenant: str, user_id: str) -> int:
        """Let the messages of all of a user's sessions expire now; how many sessions."""

    def end_expired(self, now: int, limit: int) -> int:
        """Remove what has expired, some at a time; how many sessions."""

    def expires_at(self, scope: Scope, *, now: int) -> int | None:
        """When the session expires; ``None`` if it holds nothing."""

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        """Take messages out for good; how many there were."""

    def windows(self, tenant: str, user_id: str, *, known: Iterable[tuple[str, str | None]]) -> Iterator[ShortWindow]:
        """All messages of a user that are kept, session by session, also those that have expired and have not been
        cleared away. Where only digests of ids are kept, ``known`` are agents and sessions to tell them by.
        """


class FactStore(Protocol):
    """Facts of a subject's entities."""

    def record(self, subject: str, facts: Sequence[Fact], *, replacing: bool) -> list[str]:
        """Let each fact join what is known, as ``core.facts.succession`` says, together; the ids that were added."""

    def end(self, subject: str, fact_ids: Sequence[str], *, at: int) -> int:
        """End those of the facts that still hold; how many there were."""

    def facts(self, subject: str, entity_ids: Sequence[str]) -> list[Fact]:
        """Every fact, current and ended, that has one of the entities as source or target, oldest first."""


class SchemaStore(Protocol):
    """JSON Schemas of a tenant's collections."""

    def put(self, tenant: str, collection: str, schema: str | None) -> None:
        """Set (or, with ``None``, remove) the schema of a collection, as JSON text."""

    def get(self, tenant: str, collection: str) -> str | None:
        """The schema of a collection, as JSON text."""


class KeptMessage(NamedTuple):
    """A message of a conversation, and until when it is in the recycle bin, if it was deleted by itself."""

    message: Message
    purge_at: int | None


class SetQuota(NamedTuple):
    """A limit that was set for a user. ``None``: nothing was set; -1: no limit."""

    kind: Kind
    max_memories: int | None
    max_bytes: int | None


class SubjectReader(Protocol):
    """All that a store keeps of a subject, in whatever state, to be read from beginning to end.

    It is read in pages, each of them consistent, of ``limit`` at most and fewer where they are large; ``after`` is
    where the page before ended, and an empty page is the end. What is there from the first page to the last is given
    exactly once, whatever happens to it meanwhile.
    """

    def alias(self, subject: str) -> str | None:
        """The subject's pseudonym; ``None`` if nothing was ever kept of it. Another, and it was erased meanwhile."""

    def size(self, subject: str) -> int:
        """How many records and messages there are, more or less."""

    def records(self, subject: str, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        """Some records of a kind, and where to go on from."""

    def sessions(self, subject: str, *, after: int = 0, limit: int) -> tuple[list[Session], int]:
        """Some conversations, and where to go on from."""

    def messages(self, subject: str, item_id: str, *, after: int = 0, limit: int) -> tuple[list[KeptMessage], int]:
        """Some messages of a conversation, in their order, and where to go on from."""

    def facts(self, subject: str, *, after: str = "", limit: int) -> tuple[list[Fact], str]:
        """Some facts, current and ended, and where to go on from."""

    def audit(self, subject: str, *, after: int = 0, limit: int) -> tuple[list[AuditEntry], int]:
        """Some entries of the subject's chain, oldest first, and where to go on from."""

    def quotas(self, tenant: str, user_id: str) -> list[SetQuota]:
        """The limits that were set for a user."""


class Found(NamedTuple):
    """What there was of a subject."""

    rows: dict[str, int]
    """By what they are."""
    kinds: dict[str, int]
    """Memories of each durable kind, in whatever state."""


class SubjectStore(Protocol):
    """How a subject is erased: the name first, then what there is of it in batches, the tombstone last.

    Every step can be repeated, and several may take it at once.
    """

    def detach(
        self, subject: str, *, alias: str | None = None, now: int, begin: Callable[[str], None]
    ) -> tuple[Tombstone | None, Found]:
        """Take a subject's name away, with all that is found by it: from that instant nobody finds anything of it, and
        a user who comes back under the name begins anew. ``None``, if there is no such subject.

        ``HeldError`` (audited), changing nothing, while a hold stands that names the user or covers anything of theirs.
        ``begin`` is called with the pseudonym once that is settled, before anything is changed, while nobody can add a
        hold. With ``alias``, an erasure that began before is done again: for the subject of that pseudonym only,
        whatever is held by now.
        """

    def having(self, aliases: Sequence[str]) -> list[tuple[str, str]]:
        """Those of the pseudonyms that a subject goes by which is not being erased, and the subject."""

    def tombstones(self) -> list[Tombstone]:
        """Every subject that is being erased."""

    def found(self, tombstone: Tombstone) -> Found:
        """What there was when the name was taken away."""

    def forget_name(self, tombstone: Tombstone) -> None:
        """Nothing is left that is found by the name only."""

    def objects(self, tombstone: Tombstone) -> list[str]:
        """The names of the cold objects that are noted."""

    def forget_objects(self, tombstone: Tombstone) -> None:
        """The cold objects are gone."""

    def remove(self, tombstone: Tombstone, *, limit: int) -> int:
        """Remove some rows; how many. Fewer than ``limit`` means that none is left."""

    def left(self, tombstone: Tombstone) -> dict[str, int]:
        """How many rows there still are, by what they are."""

    def scrub(self) -> bool:
        """Leave nothing of removed rows in the store's files, as far as the engine can; ``False`` while somebody's
        reading prevents it.
        """

    def bury(self, tombstone: Tombstone) -> None:
        """Remove the tombstone: nothing is left."""

    def ledger_seen(self) -> tuple[int, str] | None:
        """The last entry of the ledger that the store has been held against: its number and hash."""

    def see_ledger(self, number: int, entry_hash: str) -> None:
        """The store has been held against the ledger up to this entry."""
