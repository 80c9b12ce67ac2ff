"""What belongs to a session and lies outside of the store, such as the checkpoints of a LangGraph thread.

A part keeps something for sessions of one tenant, in a place of its own. The session in the store is what lives, waits
in the recycle bin and goes; a part follows it. A part is registered in the store (``PartStore``), so that every process
knows it, and is opened by its kind: ``KINDS`` of ``lifecycle/part_registry.py`` names for each kind the function
``open_part(registration, url) -> SessionPart``, in a module that is imported when a part of the kind is first needed.
``url`` is the registered one with its password, where that is known.

Sweeps, restores, exports, erasures and ``doctor`` go through all registered parts, and no part is used that is not
registered. So a part has every method here; one that lacks any is refused.

Every method may be called from several threads. All of them are asked again after a crash: what is done already is no
error. A place that does not answer, or answers wrongly, is a ``StorageError``, which says what to do;
``StoreAwayError`` where it may be back soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class PartRegistration(NamedTuple):
    """What the store knows of a part."""

    tenant: str
    name: str
    """What people call it. It names a place in a certificate of erasure, and is in an export."""
    kind: str
    """What opens it, such as ``langgraph``."""
    url: str
    """Where it lies, without a password."""
    options: dict[str, Any]
    """What its kind wants to know. It never names a user."""
    unowned_as: str | None = None
    """The user whose is what has no owner that can be read; ``None``: it is left alone. Erasing that user ends this."""


class PartSession(NamedTuple):
    """What a part holds for a session. All of it is one person's."""

    session_id: str
    """What the session is called in Holdfast, too. A part holds at most one thing under a name, whoever's it is."""
    user_id: str
    agent_id: str
    active_at: int | None
    """When it was last written, in microseconds since 1970; ``None`` if that cannot be told: it is never idle then."""


class PartMove(NamedTuple):
    """Asks a part to follow a session into the recycle bin."""

    item_id: str
    """The id of the session, under which the part keeps it in its bin. A name may be there several times."""
    session: PartSession
    """Whose it is. What has the same ``session_id`` and another user or agent is not meant."""
    upto: int | None = None
    """What was active after this moment stays where it is; ``None``: it goes whenever it was active."""


class PartReader(Protocol):
    """Shows what a part holds."""

    @property
    def place(self) -> str:
        """Where it lies, in words for people, without secrets."""

    def survey(self, session_id: str | None = None) -> Iterator[Sequence[PartSession]]:
        """What has changed since the last survey, some at a time; the first survey shows everything. It is done when
        the first are shown, whether or not anybody looks at the others. What has no owner that can be read is not
        shown, unless the registration says whose it is. With ``session_id``, only what has that
        name is looked at, and may be shown though it has not changed.
        """

    def sessions(
        self,
        *,
        idle_since: int | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Iterator[Sequence[PartSession]]:
        """What is there as of the last survey, without what is in the bin, some at a time: all of it, or what all the
        given arguments select. ``idle_since`` selects what was not active after that moment.
        """

    def sizes(self, session_ids: Sequence[str]) -> Mapping[str, int]:
        """How many bytes these take, without what is in the bin. A name that is not there may be left out."""

    def rows(self, session_ids: Sequence[str]) -> Mapping[str, int]:
        """How many things that a person would count (of LangGraph: checkpoints) these have, without what is in the bin.
        A name that is not there may be left out.
        """

    def problems(self) -> list[str]:
        """What ``holdfast doctor`` should say, a sentence each: what has no owner, tables that are wanting, …"""

    def close(self) -> None:
        """Let go of connections. It is not used afterwards."""


class PartBin(Protocol):
    """Moves what a part holds. What is in the bin cannot be read by those who use the part, and is kept whole.

    A session is moved whole or not at all, in one transaction; several may share one. A writer that goes on meanwhile
    has written before it, or fails.
    """

    def recycle(self, moves: Sequence[PartMove], *, now: int) -> Mapping[str, int]:
        """Move what is held for sessions into the bin, under their ids. Those that were active after ``upto`` stay: the
        answer has for each, by its ``item_id``, when that was. One for which nothing is there needs no move, and
        neither does one that is in the bin under this id already.
        """

    def restore(self, item_ids: Sequence[str]) -> set[str]:
        """Bring sessions back from the bin, exactly as they were; the ids of those that stay there because another was
        begun under their name. An id that is not in the bin needs no move.
        """

    def taken(self, item_ids: Sequence[str]) -> set[str]:
        """Those of these ids that ``restore`` would leave in the bin now."""

    def purge(self, item_ids: Sequence[str]) -> int:
        """Delete sessions from the bin for good; how many rows they had."""

    def binned(self, before: int) -> Mapping[str, PartSession]:
        """What has been in the bin since before a moment, and whose it is (nobody's, if no user is named), by the ids
        that it has there.
        """


class PartUser(Protocol):
    """All of a user, wherever in the part it is: in the bin too, and written since the last survey."""

    def count(self, user_id: str) -> int:
        """How many rows there are of a user. 0 means that nothing names them, not even in notes that the part made."""

    def erase(self, user_id: str) -> int:
        """Remove all of a user for good, past the bin, and let nothing of it be left in files; how many rows there
        were. What the registration counts as theirs goes with it.
        """

    def late(self, since: int) -> Sequence[PartSession]:
        """What was written after a moment and goes on from something that is not there: a run does that whose user was
        erased meanwhile. What was begun anew is not among it. ``active_at`` is when that was made from which it goes
        on; ``None`` if that cannot be told.
        """

    def erase_late(self, session_ids: Sequence[str], *, upto: int) -> int:
        """Remove these for good, past the bin, and what nobody can read since what was made up to a moment is gone; how
        many rows there were.
        """

    def export(self, user_id: str) -> Iterator[tuple[PartSession, Iterable[Mapping[str, Any]]]]:
        """All of a user, session by session: its rows as JSON objects that a person can read. A row says whether it is
        in the bin (``"in_bin": true``). The rows of one are read before the next is asked for.
        """


class SessionPart(PartReader, PartBin, PartUser, Protocol):
    """Something that belongs to sessions; see above."""


class PartStore(Protocol):
    """Which parts a store has."""

    def add(self, registration: PartRegistration) -> None:
        """Register a part; one of its name is replaced."""

    def list(self, tenant: str) -> list[PartRegistration]:
        """The parts of a tenant, by their names."""

    def remove(self, tenant: str, name: str) -> bool:
        """Let a part be registered no more; whether it was."""
