"""What was said: for an hour, and durably."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.core.records import Message, Outcome, Scope, State, Subject

if TYPE_CHECKING:
    from holdfast.core.decisions import Hold
    from holdfast.ports.coordination import Lease
    from holdfast.ports.records import Batches
    from holdfast.ports.session_parts import PartSession


class Session(NamedTuple):
    """A conversation of a user with an agent."""

    id: str
    subject: Subject
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
    number: int = 0
    """Its number in the store."""
    part_state: str | None = None
    """The state that parts have followed it to; ``None``: they hold nothing for it."""
    part_size: int = 0
    """How many bytes of its size are theirs."""


class Turn(NamedTuple):
    """A message, and the conversation that it is in."""

    message: Message
    session: Session
    purge_at: int | None
    """Until when it is in the recycle bin, if it was deleted by itself."""


class BinnedMessage(NamedTuple):
    """A message that was deleted by itself."""

    message: Message
    subject: Subject
    agent_id: str
    session_id: str | None
    purge_at: int


#: The summary of a conversation so far and its new messages, as the summary of all of it.
Summarize = Callable[[str, Sequence[Message]], str]


class Appended(NamedTuple):
    """Where messages were added."""

    session: str
    """The id of the session."""
    begun: bool
    """Whether it began with them."""
    ids: Sequence[str] = ()
    """The id of each message in the store. It is not the given one where the message was there already."""


class SessionWindow(NamedTuple):
    """Names the short-term window of a session."""

    scope: Scope
    session: str | None
    """The id of the session; ``None``: whichever session has the name."""


class MessageStore(Protocol):
    """The messages of conversations."""

    def append(self, scope: Scope, messages: Sequence[Message], *, now: int, summarize: Summarize) -> Appended:
        """Add messages to the session's conversation, all or none, and let its summary and its last activity be of the
        latest. Without messages nothing happens, and the answer names no session. A message is not added, and changes
        nothing, if one with its ``external_id`` is there and not in the recycle bin, or comes before it.

        A session whose time is over is not revived: it goes to the recycle bin (one that a hold keeps gives up its
        name), and another begins.
        """

    def together(self, subject: Subject) -> AbstractContextManager[None]:
        """What is written for a subject in the block, here and in a window of the same database, is one transaction:
        committed when the block ends, undone if it raises.
        """

    def take_back(self, scope: Scope, appended: Appended, message_ids: Sequence[str], *, summarize: Summarize) -> None:
        """Undo ``append``: remove its messages, and the session if it began with them. No entry is written about it."""

    def messages(self, scope: Scope, *, now: int, limit: int | None = None, before: str | None = None) -> list[Message]:
        """The conversation in its order; with ``limit``, its last messages; with ``before``, what was said before that
        message, be it deleted or not. Of a message that is not known, nothing was.
        """

    def remove(self, scope: Scope, message_ids: Sequence[str], *, now: int, summarize: Summarize) -> int:
        """Send messages to the recycle bin, all or (``HeldError``, audited) none; how many there were."""

    def find_message(self, subject: Subject, message_id: str) -> Turn | None:
        """A message by its id, in whatever state it and its session are. Costs what the subject has said."""


class SessionStore(Protocol):
    """The conversations themselves."""

    def touch(self, scope: Scope, *, now: int) -> Session:
        """The session of a scope, active now; begun if there is none."""

    def find(self, scope: Scope, *, now: int) -> Session | None:
        """The session of a scope, if it is to be seen."""

    def get(self, subject: Subject, item_id: str) -> Session | None:
        """A session by its id, in whatever state."""

    def sessions(self, subject: Subject, agent_id: str | None = None, *, now: int) -> list[Session]:
        """The sessions of a subject that are to be seen, the latest active first."""

    def owners(self, tenant: str, agent_id: str, session_id: str | None, *, now: int) -> list[str]:
        """The users of a tenant who have a session of this name with an agent."""

    def hold_on(self, subject: Subject, item_id: str) -> Hold | None:
        """The hold that keeps a session, or any message of it."""


class MessageBin(Protocol):
    """Messages that were deleted by themselves."""

    def restore_message(self, subject: Subject, message_id: str, *, now: int) -> bool:
        """Bring a message back to its place; whether it was in the bin. ``ConflictError`` if its session is not
        active (audited), or its time in the bin is over; ``AgentRemovedError``, audited, if its agent is there too.
        """

    def binned_messages(
        self, tenant: str, subject: Subject | None = None, *, now: int, after: tuple[int, int] = ..., limit: int
    ) -> tuple[list[BinnedMessage], tuple[int, int]]:
        """Some of the messages in the bin, those that leave it first first, and where to go on from."""

    def purge_messages(
        self, tenant: str, *, at: int | None = None, now: int, limit: int, lease: Lease | None = None
    ) -> tuple[int, int]:
        """Delete messages whose time in the bin was over ``at`` a moment (now) for good, but for those that are held;
        how many, and their bytes. Fewer than ``limit`` means that none is left.
        """


class SummaryStore(Protocol):
    """What conversations are about."""

    def to_summarize(
        self, tenant: str, *, idle_since: int, now: int, after: int = 0, limit: int
    ) -> tuple[list[Session], int]:
        """Some of the sessions that have changed since ``save_summary``, and not after ``idle_since``; and where to go
        on from. Fewer than ``limit`` means that there are no more.
        """

    def save_summary(self, session: Session, summary: str) -> bool:
        """Keep a summary of a session as it was found; ``False``, changing nothing, if it has changed since."""


class SessionMover(Protocol):
    """Moves conversations through their states, and erases them."""

    def transition_all(
        self, batches: Batches, *, now: int, lease: Lease | None = None, rules: int | None = None
    ) -> list[list[Outcome]]:
        """Move sessions as ``RecordStore.transition_all`` moves records; ``TAKEN`` if one of the name is active.

        A session is ``DELETED`` only once it has no messages. A hold on one of its messages holds the session.
        """

    def erase(self, subject: Subject, item_id: str, *, limit: int, lease: Lease | None = None) -> int:
        """Remove messages of a session that is being deleted, some at a time; how many are left."""


class PartActivity(NamedTuple):
    """What parts hold for a session, as the store notes it."""

    scope: Scope
    active_at: int
    size: int
    """In bytes."""


class FollowedStore(Protocol):
    """Sessions for which parts hold something (``ports/session_parts.py``), and how far those have followed them."""

    def has_any(self) -> bool:
        """Whether there is any session, whoever's."""

    def unnoted(self, tenant: str, found: Sequence[PartSession], *, now: int, begin: bool) -> list[int]:
        """The places in this list of what a part holds that are to be noted: those whose session is there and was not
        known to be active at that moment (now, if none is told), or to have parts; and, if others are to ``begin``,
        those that have none, and whose parts are not behind another of their name. Names are what they are, checked or
        not; the list may be long.
        """

    def note_parts(self, found: Sequence[PartActivity], *, begin: bool) -> None:
        """Let sessions be at least as active as what parts hold for them, and of its size. One that is not there is
        begun as of that moment, or left out.
        """

    def behind(self, tenant: str, *, after: int = 0, limit: int) -> list[Session]:
        """Some of the sessions whose parts have not followed them to the state that they are in, by their numbers.
        What is being deleted is not among them.
        """

    def count_behind(self) -> int:
        """How many those are, in all tenants."""

    def note_followed(self, sessions: Sequence[Session], state: State | None) -> None:
        """Note that parts have followed sessions to a state, if they are in it still; ``None``: that parts hold nothing
        for them any more.
        """

    def unknown(self, item_ids: Sequence[str]) -> set[str]:
        """Those of these ids under which there is no session, of whomever. Costs what is stored; nothing, for none."""

    def follow_anew(self) -> None:
        """Let parts follow every session for which they hold something once more, whatever they have done."""


class History(MessageStore, SessionStore, MessageBin, SummaryStore, SessionMover, FollowedStore, Protocol):
    """Conversations, kept durably: a session of each name, and those before it in the recycle bin.

    A session whose time is over is not to be seen from that instant on, and neither are those of a removed agent. The
    short-term window of a session ends when the session is moved out of the active state, by whatever path.
    """


class ShortWindow(NamedTuple):
    """The short-term messages of a session."""

    agent_id: str | None
    """``None``, if only a digest of it is kept, and it is not known whose that is; ``session_id`` is ``None`` then."""
    session_id: str | None
    expires_at: int
    messages: list[Message]


class WindowStore(Protocol):
    """The window of each session."""

    @property
    def is_outside(self) -> bool:
        """Whether they are kept outside of the database, so that no transaction is both theirs and the history's."""

    def append(
        self, scope: Scope, messages: Sequence[Message], *, ttl: int, now: int, most: int, session: str = ""
    ) -> int:
        """Add messages and keep the whole window for ``ttl`` microseconds from ``now``.

        A window slides: it holds the last ``most`` messages, and the oldest leave it. The answer is how many it held
        before they left, which is more than ``most`` by as many as left. A message
        that the window holds already, the same in every part, is not added again.
        """

    def window(
        self, scope: Scope, *, now: int, session: str | None = None, held: Mapping[str, Message] | None = None
    ) -> list[Message]:
        """The messages in their order; empty from the instant of expiry on. With ``session``, those of that session.

        ``held`` are messages of an earlier window, by their ids and in their order: what has not changed need not be
        read again, since a message is never written twice.
        """

    def expires_at(self, scope: Scope, *, now: int, session: str | None = None) -> int | None:
        """When the session expires; ``None`` if it holds nothing."""

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        """Take messages out for good; how many there were."""

    def windows(self, tenant: str, user_id: str, *, known: Iterable[tuple[str, str | None]]) -> Iterator[ShortWindow]:
        """All messages of a user that are kept, session by session, also those that have expired and have not been
        cleared away. Where only digests of ids are kept, ``known`` are agents and sessions to tell them by.
        """


class WindowEnd(Protocol):
    """Ends windows before their time."""

    def end(self, windows: Sequence[SessionWindow]) -> int:
        """Let the messages of sessions expire now; how many of the windows there were."""

    def end_agent(self, tenant: str, agent_id: str) -> int:
        """Let the messages of all of an agent's sessions expire now; how many sessions."""

    def end_user(self, tenant: str, user_id: str) -> int:
        """Let the messages of all of a user's sessions expire now; how many sessions."""

    def end_expired(self, now: int, limit: int) -> int:
        """Remove what has expired, some at a time; how many sessions."""


class ShortTermStore(WindowStore, WindowEnd, Protocol):
    """Messages of a session that are gone ``ttl`` after the session's last write.

    A window belongs to the session whose id it was written under. What was written under the id of an earlier session
    of the same name is not shown, and goes with the next write.
    """
