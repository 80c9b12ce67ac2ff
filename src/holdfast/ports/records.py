"""Memories, where they came from, and what happened to them, in a chain that shows every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast.core.errors import KeptOutError
from holdfast.core.records import Encoding, Entry, Fact, Kind, Move, Outcome, Record, Scope, Subject, Usage

if TYPE_CHECKING:
    from holdfast.core.audit import AuditEntry, Checkpoint, Event, Finding, Sizes
    from holdfast.core.decisions import RecordFacts
    from holdfast.ports.coordination import Lease


class AuditQuery(NamedTuple):
    """Which entries are meant; ``None`` is any."""

    item: str | None = None
    actor: str | None = None
    action: str | None = None
    since: int | None = None
    until: int | None = None
    """Before this moment."""


class FoundEntry(NamedTuple):
    """An entry that was looked for."""

    entry: AuditEntry
    """As it is about the item that was asked for, or about the first."""
    items: int
    """How many it is about."""


class AuditReader(Protocol):
    """What chains say, entry by entry."""

    def of_item(self, subject: Subject, item: str) -> list[AuditEntry]:
        """What a subject's chain says of one item, oldest first."""

    def tail(self, tenant: str, *, limit: int, subject: Subject | None = None) -> list[AuditEntry]:
        """The ``limit`` latest events of a tenant's chains, or of one subject's, the newest last."""

    def page(
        self, tenant: str, query: AuditQuery, *, subject: Subject | None = None, before: int | None = None, limit: int
    ) -> tuple[list[FoundEntry], int | None]:
        """Some entries of a tenant's chains, or of one subject's, newest first, and where to go on from; ``None``, if
        there are no more. So many are looked at that it is answered soon: there may be fewer than ``limit`` and more to
        come.
        """

    def checkpoints(self, *, limit: int | None = None) -> list[Checkpoint]:
        """The checkpoints, or the ``limit`` last ones, the newest last."""

    def sizes(self) -> Sizes:
        """How many chains, entries and checkpoints there are."""


class AuditStore(AuditReader, Protocol):
    """Chains of events, one per subject, and the checkpoints that seal them."""

    def append(self, subject: Subject, events: Sequence[Event]) -> None:
        """Put events at the end of a subject's chain, in their order; all of them or none. Those in a row that differ
        only in their item share one entry.
        """

    def seal(self, at: int) -> Checkpoint:
        """Seal the heads of all chains of the store; the last checkpoint, where none has moved since.

        A chain that no longer has the entry that was sealed stays sealed as it was, so that ``verify`` goes on finding
        it. Raises ``StorageError``, changing nothing, if the sealed heads are not those of the last checkpoint.
        """

    def verify(self, progress: Callable[[int], None]) -> Iterator[Finding]:
        """Walk every chain and every checkpoint, as they are at one moment, and give what is wrong, in constant
        memory. ``progress`` hears now and then how many more entries have been read.
        """

    def cut(self, before: int, *, at: int) -> int:
        """Remove entries of before a moment: from the beginning of each chain, no further than its last sealed entry,
        and only what verifies. Each chain that is cut gets an entry that says so. How many entries went. Several
        transactions, each of them whole.
        """


#: Moves of several subjects.
Batches = Sequence[tuple[Subject, Sequence[Move]]]


class Added(NamedTuple):
    """The outcome of an insert."""

    usage: Usage
    """As it is after the insert."""
    pruned: int
    """How many old records went to the recycle bin to make room."""
    gone: tuple[str, ...] = ()
    """Which they were."""
    found: Mapping[str, str] = MappingProxyType({})
    """The ids of the records that were there already, by those of the entries that were not added for that."""
    kept_out: Mapping[str, str] = MappingProxyType({})
    """By the ids of the entries that were not added because their texts are kept out: the memories that were deleted
    for it."""
    ended: frozenset[str] = frozenset()
    """The entries among those of ``found`` whose texts the records said before, and were corrected."""


def kept_out_error(what: str, memory_id: str = "") -> KeptOutError:
    """The error for something that was not done because a text is kept out."""
    how = f"lift {memory_id}" if memory_id else "list (it has the ids), and lift"
    return KeptOutError(
        f"{what}: its text is kept out, because someone deleted it and asked that it does not come back; whoever may "
        f"govern can lift that: holdfast kept-out {how}"
    )


class KeptText(NamedTuple):
    """A text that is not to come back."""

    print: str
    memory_id: str
    """The memory that was deleted for it."""
    kept_at: int
    author: str


class KeptOutStore(Protocol):
    """Texts that are not to come back, as fingerprints under the user's data key. Every write of the subject's records
    is held against them.
    """

    def add(
        self,
        subject: Subject,
        record_id: str,
        *,
        now: int,
        note: Callable[[str, Sequence[KeptText]], None],
        agent: Scope | None = None,
    ) -> tuple[Outcome, list[str]]:
        """Keep the text of a live record out, and recycle every live record of the subject that has it; the ids of
        those, or why nothing was done. ``note`` is called with the pseudonym before it is committed.
        """

    def adopt(self, subject: Subject, texts: Sequence[KeptText], *, now: int) -> int:
        """Keep texts out that were kept out before, and recycle the live records that have them, whatever holds there
        are; how many records.
        """

    def list(self, subject: Subject) -> list[KeptText]:
        """The texts that are kept out, the first first."""

    def source(self, subject: Subject, memory_id: str) -> str:
        """The memory that was deleted so that the text of this one does not come back; this one, if there is none."""

    def lift(self, subject: Subject, memory_id: str, *, now: int) -> bool:
        """Keep the texts of a memory out no longer; whether there were any."""

    def find(self, subject: Subject, hashes: Sequence[int]) -> set[int]:
        """Those hashes of texts that are kept out."""


class Put(NamedTuple):
    """What is to become of a name."""

    name: str | None
    """``None``: a new record that goes by none."""
    entry: Entry | None
    """Takes the place of the live record that goes by the name, or is a new one. ``None``: that record goes to the
    recycle bin.
    """
    expected: int | None = None
    """The version that the live record must have; 0: there must be none; ``None``: either will do."""


class PutOutcome(NamedTuple):
    """What became of a put."""

    id: str | None
    """The record's; ``None`` where there was nothing to recycle."""
    pack: int | None
    """Where it lay in the object store before, if it did."""
    version: int | None = None
    """The version that is current now; ``None`` where it was recycled."""


class Content(NamedTuple):
    """What of a record goes to cold storage."""

    id: str
    metadata: str
    """JSON."""
    content: str
    body: str | None
    """JSON."""
    encoding: Encoding
    size: int
    """How many bytes the row takes for all of this."""


class RecordReader(Protocol):
    """Reads records of the kinds that ``TYPES`` calls durable."""

    def get(self, subject: Subject, record_id: str) -> Record | None:
        """The record, in whatever state it is; ``None`` if there is no such."""

    def find(self, tenant: str, record_id: str) -> Record | None:
        """The record, whoever of the tenant's users it belongs to."""

    def named(self, subject: Subject, kind: Kind, name: str, *, now: int) -> Record | None:
        """The live record of a kind that goes by a name, if it is not hidden at ``now``."""

    def find_named(self, subject: Subject, kind: Kind, names: Sequence[str], *, now: int) -> dict[str, Record]:
        """The same for several names."""

    def fetch(self, subject: Subject, record_ids: Sequence[str], *, now: int) -> dict[str, Record]:
        """Those of the records that are live and not hidden at ``now``, by id."""

    def entries(self, subject: Subject, record_ids: Sequence[str]) -> dict[str, Entry]:
        """The records with their encodings, in whatever state they are, by id."""

    def live(self, subject: Subject, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[RecordFacts], int]:
        """Some of a subject's live records of a kind, without their metadata, and where to go on from."""


class GroupReader(Protocol):
    """Reads records of several subjects, each with the ids that are wanted."""

    def entries_of(self, wanted: Sequence[tuple[Subject, Sequence[str]]]) -> list[dict[str, Entry]]:
        """The records of each with their encodings, by their ids."""

    def contents_of(self, wanted: Sequence[tuple[Subject, Sequence[str]]]) -> list[dict[str, Content]]:
        """What of each subject's records goes to cold storage, by their ids, without what is not there."""


class Recycled(NamedTuple):
    """What became of a record that was to go to the recycle bin."""

    record: Record
    """As it was before."""
    outcome: Outcome
    is_source: bool
    """Whether anything was derived from it."""


class RecordWriter(Protocol):
    """Adds, changes and moves records."""

    def insert(
        self,
        subject: Subject,
        kind: Kind,
        entries: Sequence[Entry],
        *,
        prune: bool,
        now: int,
        dedupe: bool = False,
        skip_kept_out: bool = False,
    ) -> Added:
        """Add all entries, or none of them. With ``dedupe``, without those whose text an active record of the scope
        has, which is looked for in the same transaction, or another entry; nor those whose text a live one had in a
        version that has ended and is kept.

        A text that is kept out is not added: ``KeptOutError``, or, with ``skip_kept_out``, the others are.

        Raises ``QuotaExceededError`` where they would exceed the quota of the subject for the kind, counted exactly,
        whatever other writers do, and ``ConflictError`` where a live record goes by the name of one of them. With
        ``prune``, the oldest tenth of the live records is recycled first, as often as it takes; what cannot be made
        room for is refused.
        """

    def put(
        self, scope: Scope, kind: Kind, puts: Sequence[Put], *, now: int, prune: bool = False
    ) -> tuple[list[PutOutcome], Added]:
        """Carry out all puts, of different names, or none of them; who writes is in ``scope``.

        A record that takes another's place is its next version: what is kept of that is its id, its scope, and when it
        was made. Its age, and a time to live, count from the put. One in cold storage is brought back with that. What
        says the same follows, as with ``replace``.
        Raises what ``insert`` and ``replace`` raise, ``StaleError`` where a version is not the expected one, and
        ``HeldError`` where a hold keeps what is to be recycled.
        """

    def refresh(
        self, subject: Subject, kind: Kind, record_ids: Sequence[str], *, now: int, agent: Scope | None = None
    ) -> int:
        """Let the time to live of those of the records that have one, and whose time is not over, count from now; how
        many. What has expired stays gone. ``AgentRemovedError`` if the agent who asks for it is in the recycle bin.
        """

    def replace(
        self,
        entry: Entry,
        *,
        from_cold: bool = False,
        agent: Scope | None = None,
        reason: str | None = None,
        with_twins: bool = False,
    ) -> Usage | None:
        """Write a new version of a live record; what there is of its kind then, or ``None``, changing nothing, if it
        moved or changed meanwhile. The one before ends, for a ``reason``, and is kept as long as its rules say.

        ``entry.record.version`` is the version it was made from; the stored one counts one more. A record in cold
        storage is changed only with ``from_cold``, which brings it back in the same transaction; its age counts anew
        then, as a time to live does that the record has itself. ``HeldError`` if the change would take it out of a hold
        that it is under; ``KeptOutError`` if its text is kept out; ``AgentRemovedError`` if the ``agent`` that acts is
        in the recycle bin.

        With ``with_twins``, active records of the kind and scope that are texts, say the same and go by no name say the
        new text too, each as a version of its own.
        """

    def recycle(
        self, scope: Scope, record_id: str, check: Callable[[Record | None], Record], *, reason: str, now: int
    ) -> Recycled:
        """Move a record of a scope's user to the recycle bin, as ``transition`` does, by one look at it. ``check`` is
        given the record as it is then, and returns it, or raises; nothing is changed in that case.
        """

    def transition(
        self, subject: Subject, moves: Sequence[Move], *, now: int, agent: Scope | None = None
    ) -> list[Outcome]:
        """Carry out each move, or say why not and change nothing of that record.

        The only way from one state to another: state, version and holds are checked, and the audit entry (of the move,
        or of its refusal; of a stale one, none) is written, in the same transaction. A record whose target is
        ``DELETED`` is gone, with all that is known of it. ``AgentRemovedError`` if the ``agent`` that does it is in the
        recycle bin.
        """

    @property
    def writers(self) -> int:
        """How many of these can be under way at the same time."""

    def transition_all(
        self, batches: Batches, *, now: int, lease: Lease | None = None, rules: int | None = None
    ) -> list[list[Outcome]]:
        """The same for several subjects, all in one transaction.

        With a lease, ``LeaseLostError`` if it is no longer the current one; with the version of the rules that the
        moves were decided by, ``RulesChangedError`` if it is no longer that. Both are checked in the same transaction.
        """


class RecordBin(Protocol):
    """Reads what is in the recycle bin."""

    def binned(
        self, tenant: str, subject: Subject | None = None, *, after: tuple[int, int] = ..., limit: int
    ) -> tuple[list[Record], tuple[int, int]]:
        """Some of the records in the recycle bin, those that leave it first first, and where to go on from."""

    def bundled(self, tenant: str, bundle: str, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        """Some of the records in the recycle bin that went there together, each user's together, and where to go on
        from.
        """


#: A limit that is none.
NO_LIMIT: Final = -1


class QuotaStore(Protocol):
    """How much a user holds, and may hold."""

    def usage(self, subject: Subject, kind: Kind) -> Usage:
        """What the subject holds of a kind, live records only."""

    def set_quota(
        self, tenant: str, user_id: str | None, kind: Kind, limits: Mapping[str, int | None]
    ) -> dict[str, int | None]:
        """Set ``max_memories`` and ``max_bytes`` (those that are given; ``NO_LIMIT``, or ``None``: none of their own)
        for a user or a tenant; what both were.
        """


class RecordStore(RecordReader, GroupReader, RecordWriter, RecordBin, QuotaStore, Protocol):
    """Durable records of the kinds that ``TYPES`` calls durable."""


class Written(NamedTuple):
    """A record that is there, in whatever state, and who or what wrote it."""

    facts: RecordFacts
    """Without the record's metadata."""
    source: str


class ProvenanceStore(Protocol):
    """Where records came from: who or what wrote them, and what they were derived from. Each record says it itself."""

    def derived(self, subject: Subject, source_ids: Sequence[str]) -> list[Written]:
        """The subject's records that say they were derived from any of these memories and messages, each once."""

    def of_source(
        self, tenant: str, source: str, subject: Subject | None = None, *, after: int = 0, limit: int
    ) -> tuple[list[Written], int]:
        """Some of the records that a source wrote, of a subject or of all of a tenant's, each subject's together, and
        where to go on from. Costs what the source wrote; of an agent's own, what there is.
        """


class FactStore(Protocol):
    """Facts of a subject's entities."""

    def record(
        self, subject: Subject, facts: Sequence[Fact], *, replacing: bool, agent: Scope | None = None
    ) -> list[str]:
        """Let each fact join what is known, as ``succession`` says, together; the ids that were added.

        ``AgentRemovedError`` if the ``agent`` that does it is in the recycle bin.
        """

    def end(self, subject: Subject, fact_ids: Sequence[str], *, at: int, agent: Scope | None = None) -> int:
        """End those of the facts that still hold; how many there were. The ``agent`` is checked as in ``record``."""

    def facts(self, subject: Subject, entity_ids: Sequence[str]) -> list[Fact]:
        """Every fact, current and ended, that has one of the entities as source or target, oldest first."""


class SchemaStore(Protocol):
    """JSON Schemas of a tenant's collections."""

    def put(self, tenant: str, collection: str, schema: str | None) -> None:
        """Set (or, with ``None``, remove) the schema of a collection, as JSON text."""

    def find(self, tenant: str, collections: Sequence[str]) -> dict[str, str]:
        """The schemas of those collections that have one, as JSON text."""
