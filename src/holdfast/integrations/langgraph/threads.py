"""``Threads``: the threads of a LangGraph database live by Holdfast's rules, without a change to the application."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, cast

from holdfast.core.audit import Action, Event
from holdfast.core.errors import ConflictError, HeldError, quote
from holdfast.core.records import HISTORY, Scope, Subject
from holdfast.core.values import DAY, SECOND, check_count, iso
from holdfast.engine import Holdfast, default_engine
from holdfast.integrations.langgraph.checkpoints import Thread, read_name, to_sessions
from holdfast.integrations.langgraph.databases import resolve_url
from holdfast.integrations.langgraph.parts import ThreadPart
from holdfast.memory.working import LEASE_SECONDS
from holdfast.ports.session_parts import PartRegistration, PartSession
from holdfast.ports.subjects import MARK_DAYS, ErasureMark
from holdfast.settings import drop_password

_KIND: Final = "langgraph"
#: So many threads are listed by name.
_LISTED: Final = 100
_MOST_KEPT: Final = 1_000_000


class LeftThread(TypedDict):
    """A thread that is left alone, and why."""

    thread_id: str
    reason: str


class ThreadStatus(TypedDict):
    """What a governed database holds."""

    name: str
    place: str
    user_from: str
    agent_from: str
    unowned_as: str | None
    threads: int
    users: int
    in_bin: int
    thinned: int
    """Threads of which earlier checkpoints are in the recycle bin."""
    longest_idle_since: str | None
    without_owner: int
    without_time: int
    left_alone: list[LeftThread]


class Thinned(TypedDict):
    """What thinning did."""

    name: str
    threads: int
    """Threads that have fewer checkpoints now."""
    rows: int
    held: int
    """Threads that a hold keeps as they are."""
    left_alone: list[LeftThread]


class Threads:
    """The threads of a database that LangGraph's saver writes. A thread is a session of the user and the agent that its
    checkpoints name, and lives by the rules for conversations: sweeps, the recycle bin, holds, exports and erasures
    take it along.
    """

    def __init__(
        self,
        url: str,
        *,
        user_from: str = "user_id",
        agent_from: str = "assistant_id",
        unowned_as: str | None = None,
        schema: str = "public",
        name: str = _KIND,
        engine: Holdfast | None = None,
    ) -> None:
        """Govern the database at ``url`` from now on, whichever process sweeps; without an ``engine``, by the store
        that the settings name.

        ``user_from`` and ``agent_from`` are the keys of ``configurable`` (or ``metadata``) that say whose a thread is.
        A thread whose owner cannot be read is left alone, or belongs to ``unowned_as``.
        """
        engine, url = engine or default_engine(), resolve_url(url)
        options = {"user_from": user_from, "agent_from": agent_from, "schema": schema}
        wanted = PartRegistration(engine.tenant, name, _KIND, drop_password(url), options, unowned_as)
        is_new = wanted not in engine.services.parts.list(engine.tenant)
        if is_new:
            engine.parts.add(_KIND, url, name=name, options=options, unowned_as=unowned_as)
        self._bind(engine, wanted, url)
        if is_new:
            self._part.forget_notes()  # they may have been read by other keys

    def _bind(self, engine: Holdfast, registration: PartRegistration, url: str | None) -> None:
        self._engine, self._registration, self._url = engine, registration, url
        self._tenant = engine.services.tenant(engine.tenant)
        self._erased: tuple[float, Sequence[ErasureMark]] = float("-inf"), ()

    @classmethod
    def governed(cls, engine: Holdfast) -> list[Threads]:
        """The databases that a tenant's store governs already, by their names."""
        found = []
        for registration in engine.services.parts.list(engine.tenant):
            if registration.kind == _KIND:
                threads = cls.__new__(cls)
                threads._bind(engine, registration, None)
                found.append(threads)
        return found

    @property
    def name(self) -> str:
        """What the database is governed as."""
        return self._registration.name

    @property
    def _part(self) -> ThreadPart:
        return cast("ThreadPart", self._tenant.open_part(self._registration, self._url))

    # --- all of them --------------------------------------------------------------------------------------------------

    def status(self) -> ThreadStatus:
        """What there is now, and which threads are left alone."""
        part, registration = self._part, self._registration
        part.note_changes()
        counts = part.counts()
        left: list[LeftThread] = [
            {"thread_id": thread.thread_id, "reason": _explain_left(thread)}
            for thread in part.ungoverned(limit=_LISTED)
            if thread.active_at is None or registration.unowned_as is None
        ]
        return {
            "name": self.name,
            "place": part.place,
            "user_from": registration.options["user_from"],
            "agent_from": registration.options["agent_from"],
            "unowned_as": registration.unowned_as,
            "threads": counts.threads,
            "users": counts.users,
            "in_bin": counts.in_bin,
            "thinned": counts.thinned,
            "longest_idle_since": None if counts.oldest is None else iso(counts.oldest),
            "without_owner": counts.unowned,
            "without_time": counts.undated,
            "left_alone": left,
        }

    def thin(
        self,
        *,
        keep_last: int,
        thread_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> Thinned:
        """Send the checkpoints that threads do not need beside their last ones to the recycle bin.

        A thread resumes as before; what is gone is the way back to states before, until ``restore``. Threads under a
        hold stay whole.
        """
        check_count(keep_last, "keep_last", most=_MOST_KEPT)
        part = self._part
        part.note_changes()
        done: Thinned = {"name": self.name, "threads": 0, "rows": 0, "held": 0, "left_alone": []}
        found = [] if thread_ids is None else list(to_sessions(part.find(list(thread_ids)).values()))
        for page in part.sessions() if thread_ids is None else [found]:
            events: dict[Subject, list[Event]] = defaultdict(list)
            try:
                for session in page:
                    events[self._scope(session).subject] += self._thin(part, session, keep_last, done)
            finally:
                self._note(events)
            progress(len(page))
        return done

    def _thin(self, part: ThreadPart, session: PartSession, keep_last: int, done: Thinned) -> list[Event]:
        if self.is_held(session):
            done["held"] += 1
            return []
        now = self._tenant.now()
        bin_id = self._tenant.new_id(now)
        try:
            removed = part.thin(session.session_id, bin_id, keep_last=keep_last, now=now)
        except ConflictError as problem:
            done["left_alone"].append({"thread_id": session.session_id, "reason": str(problem)})
            return []
        done["threads"] += removed > 0
        done["rows"] += removed
        reason = f"not needed beside the last {keep_last:,}"
        return [_event(now, Action.RECYCLED, bin_id, removed, reason)] if removed else []

    def restore(self, thread_id: str) -> int:
        """Bring the earlier checkpoints of a thread back that ``thin`` or ``prune`` sent to the recycle bin; how many
        rows came. A thread that is in the bin as a whole comes back with its session: ``holdfast.recycle``.
        """
        came = self._part.restore_earlier(thread_id)
        session = self.find(thread_id)
        if came and session is not None:
            event = _event(self._tenant.now(), Action.RESTORED, None, came, "restored by the user")
            self._note({self._scope(session).subject: [event]})
        return came

    def _note(self, events: Mapping[Subject, Sequence[Event]]) -> None:
        for subject, mine in events.items():
            self._tenant.audit.append(subject, mine)

    # --- one ----------------------------------------------------------------------------------------------------------

    def find(self, thread_id: str) -> PartSession | None:
        """The session of a thread, as it is now; ``None`` if there is no such thread, or nobody's, or if no session can
        have its name.
        """
        return next(to_sessions(self._part.find([thread_id]).values()), None) if read_name(thread_id) else None

    def is_held(self, session: PartSession) -> bool:
        """Whether a hold keeps a thread."""
        return self._engine.parts.is_held(session)

    def is_over(self, thread_id: str) -> bool:
        """Whether a thread is past its time: it is not to be seen, whether or not a sweep has taken it."""
        session = self.find(thread_id)
        if session is None or session.active_at is None:
            return False
        scope, now = self._scope(session), self._tenant.now()
        lives = self._tenant.rules.life(HISTORY, scope).delete_after
        if lives is None or session.active_at + lives > now:
            return False
        known = self._tenant.history.find(scope, now=now)  # what was said in the session counts, unless it began later
        return known is None or known.created_at >= session.active_at + lives

    def begin_anew(self, thread_id: str) -> None:
        """Make way for another thread of the name, if the one that has it is past its time: it goes to the bin."""
        session = self.find(thread_id)
        if session is None or not self.is_over(thread_id):
            return
        self._engine.parts.refresh(session_id=thread_id)
        self._engine.sessions.touch(self._scope(session))
        self._engine.parts.follow()
        if self.is_over(thread_id):
            raise HeldError(
                f"thread {quote(thread_id)} is past its time, and a hold keeps it; begin one with another id"
            )

    def check_not_erased(self, thread_id: str, checkpoint_id: str, named: Mapping[str, Any]) -> None:
        """``ConflictError`` if a checkpoint that a run goes on from was erased in the last days, with the user that the
        run names. Erasures of the last seconds may not be known yet; what is written then goes with the next sweep.
        """
        user_id = str(named.get(self._registration.options["user_from"], ""))
        if self._was_erased(user_id) and not self._part.has_checkpoint(thread_id, checkpoint_id):
            raise ConflictError(
                f"thread {quote(thread_id)} was erased with its user while this run went on; begin another thread"
            )

    def _was_erased(self, user_id: str) -> bool:
        looked, marks = self._erased
        if time.monotonic() - looked > LEASE_SECONDS:
            marks = self._tenant.subjects.erased_within(MARK_DAYS * DAY / SECOND)
            self._erased = time.monotonic(), marks
        return any(mark.is_of(Subject(self._tenant.name, user_id)) for mark in marks)

    def remove(self, thread_id: str) -> bool:
        """Send a thread to the recycle bin, with what was said in its session; whether its owner can be read.
        ``HeldError`` while a hold keeps it.
        """
        session = self.find(thread_id)
        if session is None:
            return False
        if not self.is_over(thread_id):  # else the next sweep takes it
            self._engine.sessions.remove(session.agent_id, thread_id, user_id=session.user_id)
        return True

    def _scope(self, session: PartSession) -> Scope:
        return Scope(self._tenant.name, session.user_id, session.agent_id, session.session_id)


def _event(at: int, action: Action, bin_id: str | None, rows: int, reason: str) -> Event:
    return Event(at, action, bin_id, {"kind": "checkpoints", "rows": rows, "reason": reason})


def _explain_left(thread: Thread) -> str:
    if thread.active_at is None:
        return "its checkpoints do not tell when it was active"
    return "no owner can be read from its checkpoints"
