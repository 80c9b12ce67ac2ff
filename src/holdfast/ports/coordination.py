"""Which store this is, who may call it and what callers were told before; who does recurring work, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from holdfast.core.values import SECOND

if TYPE_CHECKING:
    from holdfast.core.access import ApiKey
    from holdfast.core.audit import Event
    from holdfast.core.clock import Seen


class Claim(NamedTuple):
    """Who carries a request out."""

    row: bytes
    """Which idempotency key of which caller it is, hashed."""
    fingerprint: bytes
    """Which request it is, hashed."""
    token: bytes
    """Whose claim it is."""
    seed: bytes
    """What ids are made from; never stored, so that nobody can tell a reply from the ids of what it is about."""
    now: int
    old: int
    """What was claimed at or before this moment counts no more."""


class StoredReply(NamedTuple):
    """What is kept of a request under its idempotency key."""

    fingerprint: bytes
    """Which request it was."""
    claimed_at: int
    """When it was first begun."""
    claim: bytes
    """Whose claim it is: only that one may keep a reply, or give the claim back."""
    body: bytes | None
    """The reply, sealed; ``None`` while the request is at work."""
    is_leased: bool
    """Whether someone is at work on it: its lease has not run out."""


class ClaimedError(Exception):
    """Another has carried the request out, or is at it. No error of a caller's: it has an answer."""

    def __init__(self, found: StoredReply) -> None:
        super().__init__("the request was claimed by another")
        self.found = found


class OnceRequest(Protocol):
    """A request that is carried out once. One thread at a time uses it."""

    @property
    def began_at(self) -> int:
        """When it was first begun, maybe by a process that was cut short; known after ``begin_steps``."""

    @property
    def in_steps(self) -> bool:
        """Whether it takes several transactions."""

    def begin_steps(self) -> None:
        """From here on each transaction is committed by itself. The claim is committed first, under a lease that the
        process renews; when a crash cuts the request short, another may take it over once the lease has run out.

        ``ClaimedError`` if it is another's. Nothing may have been written before.
        """

    def join_rest(self) -> None:
        """All that is written from here on joins one transaction again, which is committed with the reply."""

    def new_ids(self, count: int) -> list[str]:
        """Ids that are the same whenever the request is carried out, in this order; for use after ``begin_steps``."""

    def keep(self, reply: bytes) -> None:
        """Commit what was written, together with the reply. ``ClaimedError`` if another has taken the request over."""

    def release(self) -> None:
        """Commit what was written (a refusal that is on the record), and give the claim back."""

    def abandon(self) -> None:
        """Undo what has not been committed. A second time does nothing."""


#: The request that is being carried out here; ``None`` where it need not be done once.
REQUEST: ContextVar[OnceRequest | None] = ContextVar("holdfast_request", default=None)


def begin_steps() -> OnceRequest | None:
    """Say that what follows takes several transactions, or has an effect outside of the database; the request that it
    belongs to, if it must be done once.
    """
    request = REQUEST.get()
    if request is not None:
        request.begin_steps()
    return request


def join_rest() -> None:
    """Say that what follows can be one transaction with the reply, if the request must be done once."""
    request = REQUEST.get()
    if request is not None:
        request.join_rest()


class Identity(NamedTuple):
    """What a store knows of itself."""

    store: str
    """A random id that the store got when it was first opened. A copy has the same; a restored store has its own."""
    keyring: str | None
    """The id of the keyring that the store belongs to; ``None`` before anything was sealed or erased."""


class IdentityStore(Protocol):
    """What a store knows of itself."""

    def read(self) -> Identity | None:
        """The identity; ``None`` before it was made."""

    def make(self, store: str) -> Identity:
        """The identity, made with this id if there is none."""

    def bind(self, keyring: str, *, replace: bool = False) -> str:
        """The keyring that the store belongs to: this one, if it had none before (or is to ``replace`` it)."""

    def has_data(self) -> bool:
        """Whether anything was kept in the store, of a user or by an operator."""


class Witness(Protocol):
    """Knows whether a database was exchanged for another copy of it since it was last checked."""

    def confirm(self) -> None:
        """The database is up to date with the ledger of erasures as it is now."""

    def is_unbroken(self) -> bool:
        """Whether this is still the database that was confirmed, and no copy that was brought back since."""


class KeyStore(Protocol):
    """API keys of all tenants. A secret never comes here, only its hash."""

    def add(self, key: ApiKey, hashed: bytes, event: Event) -> None:
        """Let a key stand, and write the event into the audit chain of its tenant (an operator's: of ``default``)."""

    def get(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        """A key and the hash of its secret, be it valid or not."""

    def list(self, tenant: str | None = None) -> list[ApiKey]:
        """The keys of a tenant, or all of them, oldest first, with those that were revoked or are over."""

    def revoke(self, key_id: str, *, now: int, event: Event) -> ApiKey | None:
        """Let a key stand no longer; ``None``, changing nothing, if there is no such key standing."""

    def note_use(self, key_id: str, *, now: int) -> None:
        """Note that a key was used; an older moment changes nothing."""

    def any(self, *, now: int) -> bool:
        """Whether any key lets anyone in."""


class SignInStore(Protocol):
    """Browsers that act for an API key. A token never comes here, only its hash."""

    def add(self, hashed: bytes, key_id: str, *, now: int, until: int) -> None:
        """Let the token of a hash stand for a key until then, and forget those whose time is over."""

    def find(self, hashed: bytes, *, now: int) -> ApiKey | None:
        """The key that a token stands for now, be the key valid or not."""

    def end(self, hashed: bytes, *, now: int) -> None:
        """Let a token stand for nothing, and forget those whose time is over."""


#: So long it is kept what came of a job of the console.
CONSOLE_JOBS_KEPT: Final = 3_600 * SECOND


class ConsoleJob(NamedTuple):
    """What is known of something that takes long and was begun in the console."""

    said: str
    content: str | None
    is_cleared: bool
    """Somebody was erased since it began who may be in its content, which is not kept."""
    seen_at: int


class ConsoleJobStore(Protocol):
    """What takes long and was begun in the console, for every process to see."""

    def save(self, job_id: str, owner: bytes, said: str, content: str | None, *, now: int, is_nameless: bool) -> None:
        """Keep how far a job is, and its content, unless that may name somebody who was erased meanwhile."""

    def find(self, job_id: str, owner: bytes) -> ConsoleJob | None:
        """A job of a browser."""

    def forget(self, before: int) -> int:
        """Remove those that nobody has said anything of since then; how many."""


class ReplyStore(Protocol):
    """Replies to requests that may come again. What is kept here is sealed and hashed by those who use it."""

    def find(self, row: bytes, *, old: int) -> StoredReply | None:
        """What is kept of a request; nothing, if it was begun at or before ``old``."""

    def begin(self, claim: Claim, leased: Callable[[Claim], None], *, joins: bool = True) -> OnceRequest:
        """A request that is to be carried out once. It is claimed with what it writes first, or with its reply; of any
        number of callers at once, one succeeds, and the others raise ``ClaimedError`` when they write.

        ``leased`` hears of a claim that needs renewing. Without ``joins`` the request takes several transactions to its
        end: ``join_rest`` does nothing.
        """

    def renew(self, claims: Sequence[Claim]) -> None:
        """Let claims that are still theirs stand for as long again."""

    def forget(self, old: int, *, limit: int) -> int:
        """Remove rows that were claimed at or before ``old``, at most ``limit``; how many went."""


class Lease(NamedTuple):
    """The right to sweep, until it expires or is released."""

    name: str
    holder: str
    epoch: int
    """Counts the changes of hands; checked inside every batch."""
    expires_at: int
    """By the real time of the machine; a renewal moves it."""


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
    """When it last ran, be it for that slot or for none; so with how that went."""
    finished_at: int | None
    """``None`` while it runs, or if it was cut short."""
    result: dict[str, Any] | None
    error: str | None
    """Why it failed; of an unfinished slot: that it is on its second run."""


class JobRun(NamedTuple):
    """A run of a job that did something, or failed."""

    name: str
    started_at: int
    finished_at: int
    slot: int | None
    """``None``: it was run by hand."""
    result: dict[str, Any] | None
    error: str | None


#: What a job says of its run; nothing, if it failed.
JobNote = dict[str, Any] | None


class JobRuns(Protocol):
    """How the runs of jobs went."""

    def keep_run(self, run: JobRun) -> None:
        """Keep how a run went; the last hundred of each job are kept."""

    def runs(self, name: str | None) -> list[JobRun]:
        """The runs that are kept, of a job or of all, those that began last first."""


class JobStore(JobRuns, Protocol):
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
        self, name: str, slot: int, *, now: int, result: JobNote, error: str | None, lease: Lease | None = None
    ) -> bool:
        """Record how the last slot went; ``False``, changing nothing, if it is not the last, or finished already."""

    def note(
        self, name: str, *, started: int, finished: int, result: JobNote, error: str | None, lease: Lease | None = None
    ) -> bool:
        """Record how a run went that was for no slot; ``False``, changing nothing, while a slot is not finished."""

    def take_back(self, *, now: int, beyond: int, name: str | None = None) -> list[str]:
        """Let jobs (or one) whose latest slot lies ``beyond`` a moment go on from ``now``, as if they had run until
        then; their names.
        """


class ClockStore(Protocol):
    """What the store has seen of the time, whichever process it was that came with it."""

    def seen(self) -> Seen | None:
        """What it has seen; ``None`` of a store in which nothing was ever written."""

    def sight(self, now: int, tolerance: int, *, trusted: bool = False, doubted: bool = False) -> Seen:
        """Note that a process has come with a time, as ``core.clock.sight`` says; what the store has seen then."""

    def accept(self, now: int, tenant: str, event: Event) -> None:
        """Believe a time, be it earlier or far ahead, and forget what was sighted; the event is put on the tenant's
        audit chain.
        """
