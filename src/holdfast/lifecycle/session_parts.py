"""How what belongs to sessions and lies outside of the store follows them.

The session in the store is what is decided about; every path that moves one leaves its parts behind by a step. What has
not been followed is a difference in the session's row, so that a crash anywhere is made good by the next ``follow``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.audit import Action
from holdfast.core.decisions import NO_LIFE, Held, Life
from holdfast.core.errors import InvalidScopeError, StorageError
from holdfast.core.records import BIN, HISTORY, Cause, Move, Outcome, Scope, State, Subject
from holdfast.core.values import DAY, FOREVER, SECOND, iso
from holdfast.lifecycle.part_registry import PartRegistry, name_part
from holdfast.ports.conversations import PartActivity, Session
from holdfast.ports.session_parts import PartMove, PartSession, SessionPart
from holdfast.ports.subjects import MARK_DAYS, ErasureMark

if TYPE_CHECKING:
    from holdfast.results.memory import PartContentResult

_log = logging.getLogger("holdfast.parts")
#: Parts move sessions in transactions of about this duration, and of so many at first and at most.
_GOAL_SECONDS: Final = 0.08
_FIRST, _MOST = 25, 500
#: Two machines' clocks differ by less than this, in microseconds.
_SLACK: Final = 60 * SECOND


@dataclass(eq=False, repr=False)
class SessionParts(PartRegistry):
    """``holdfast.parts``: what belongs to a tenant's sessions and lies elsewhere."""

    # --- what they hold -----------------------------------------------------------------------------------------------

    def refresh(self, **selected: Any) -> None:
        """Let sessions be as active as what their parts hold. What has no session and is selected (see
        ``PartReader.sessions``) gets one, from which on it is in plans, under holds, and goes by the rules.
        """

        def note(part: SessionPart) -> None:
            history = self.tenant.history
            for some in part.survey(selected.get("session_id")):
                if not history.has_any():
                    break  # no session is there that would have to be as active
                history.note_parts(self._find_unnoted(part, some, begin=False), begin=False)
            found = part.sessions(**selected) if selected else ()
            history.note_parts(
                [one for some in found for one in self._find_unnoted(part, some, begin=True)], begin=True
            )

        self.ask(note)

    def contents(self, user_id: str) -> Sequence[PartContentResult]:
        """What parts hold of a user's sessions, the last active first, and what is theirs in the recycle bin. Changes
        nothing, but notes what belongs to sessions. ``StoreAwayError`` if a part does not answer.
        """
        subject, now = Subject.check(self.tenant.name, user_id), self.tenant.now()
        self.refresh(user_id=user_id)
        known = {(one.agent_id, one.session_id): one for one in self.tenant.history.sessions(subject, now=now)}

        def read(part: SessionPart) -> list[PartContentResult]:
            live = [one for some in part.sessions(user_id=user_id) for one in some]
            ids = [one.session_id for one in live]
            rows, sizes = (part.rows(ids), part.sizes(ids)) if ids else ({}, {})
            listed = [
                _describe(one, known.get((one.agent_id, one.session_id)), rows.get(name), sizes.get(name))
                for name, one in zip(ids, live, strict=True)
            ]
            binned = {key: one for key, one in part.binned(now + 1).items() if one.user_id == user_id}
            return listed + [_describe(one, self.tenant.history.get(subject, key)) for key, one in binned.items()]

        found: list[PartContentResult] = [
            {**one, "part": name} for name, some in self.ask(read).items() for one in some
        ]
        return sorted(found, key=lambda one: (one["state"] == State.ACTIVE, one["active_at"] or ""), reverse=True)

    def refresh_due(self, at: int, takes: Callable[[str, Life], bool]) -> None:
        """The same for a sweep at a moment: what is idle for longer than any conversation may be gets a session, if the
        sweep takes conversations at all. A part that is away is left for the next one.
        """
        tenant = self.tenant
        if not self._registered():
            return
        terms = [rule.terms for rule in tenant.rules.rules(tenant.name) if rule.version and rule.governs(HISTORY)]
        terms += [tenant.rules.defaults(tenant.name)[HISTORY]]
        shortest = min((one.delete_after for one in terms if one.delete_after is not None), default=FOREVER)
        if shortest < FOREVER and takes(HISTORY, NO_LIFE._replace(delete_after=shortest)):
            with _log_trouble("not all sessions are as active as what belongs to them"):
                self.refresh(idle_since=at - shortest)

    def _find_unnoted(self, part: SessionPart, found: Sequence[PartSession], *, begin: bool) -> Sequence[PartActivity]:
        now = self.tenant.now()
        named = [one for one in found if one.session_id.isprintable()]  # no session is called otherwise
        places = self.tenant.history.unnoted(self.tenant.name, named, now=now, begin=begin)
        known = [(scope, named[place]) for place in places if (scope := self._scope_of(named[place])) is not None]
        sizes = part.sizes([one.session_id for _, one in known]) if known else {}
        return [
            PartActivity(scope, now if one.active_at is None else one.active_at, sizes.get(one.session_id, 0))
            for scope, one in known
        ]

    def _scope_of(self, one: PartSession) -> Scope | None:
        """The scope of what a part holds; ``None`` if no session can have such a name: it is left alone."""
        try:
            return Scope.check(self.tenant.name, one.user_id, one.agent_id, one.session_id)
        except InvalidScopeError:
            return None

    # --- following ----------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Let parts go where their sessions went. ``StoreAwayError``, once the others have, if one is away."""
        after, most = 0, _FIRST
        while found := self.tenant.history.behind(self.tenant.name, after=after, limit=most):
            took = self._follow(found)
            after = found[-1].number
            most = int(min(max(most * min(2.0, _GOAL_SECONDS / max(took, 1e-4)), 1), _MOST))

    def try_to_follow(self, upto: int) -> None:
        """The same at the end of a sweep. What lies in the bin of a part though no session has known it since long
        before a moment, because it was a piece of one, or the store is another now, is deleted, unless a hold keeps it.
        """

        def purge(part: SessionPart) -> int:
            binned = part.binned(upto - BIN - DAY)
            unknown = self.tenant.history.unknown(list(binned))
            gone = [item_id for item_id in sorted(unknown) if not self.is_held(binned[item_id])]
            if gone:
                part.purge(gone)
            return len(gone)

        with _log_trouble("something has not followed its session yet"):
            self.follow()
            self._erase_late()
            for name, count in self.ask(purge).items():
                if count:
                    reason = "their time in the bin was over, and no session has them"
                    self._note(Action.DELETED, name, count=count, reason=reason)

    def find_late(self) -> dict[str, list[str]]:
        """What runs wrote that went on after their users were erased, in the last days: the names of sessions by those
        of parts. What a user wrote who came back is not among it.
        """
        erased = self._erased()
        if not erased:
            return {}

        def is_late(one: PartSession) -> bool:
            subject = Subject(self.tenant.name, one.user_id)
            return any(mark.is_of(subject) and (one.active_at or 0) <= at + _SLACK for at, mark in erased)

        since = min(at for at, _ in erased) - _SLACK
        found = self.ask(lambda part: [one.session_id for one in part.late(since) if is_late(one)])
        return {name: late for name, late in found.items() if late}

    def _erased(self) -> list[tuple[int, ErasureMark]]:
        """Who was erased in the last days, and when."""
        marks = self.tenant.subjects.erased_within(MARK_DAYS * DAY / SECOND) if self._registered() else []
        return [(self.tenant.now() - int(mark.age_seconds * SECOND), mark) for mark in marks]

    def _erase_late(self) -> None:
        """Erase what ``find_late`` finds, with an entry in the chain."""
        if not (erased := self._erased()):
            return
        late, upto = self.find_late(), max(at for at, _ in erased)
        for registration in self._registered():
            with name_part(registration):
                rows = self._open(registration).erase_late(late.get(registration.name, []), upto=upto)
            if rows:
                reason = "runs went on and wrote them after their users were erased"
                self._note(Action.DELETED, registration.name, rows=rows, reason=reason)

    def is_held(self, held: PartSession) -> bool:
        """Whether a hold keeps what a part has for a session."""
        holds = self.tenant.holds.list(self.tenant.name)
        if not holds:
            return False
        session_id = held.session_id
        if any(hold.covers(Held(held.user_id, held.agent_id, session_id, session_id, {})) for hold in holds):
            return True
        scope = self._scope_of(held)
        known = None if scope is None else self.tenant.history.find(scope, now=self.tenant.now())
        return known is not None and self.tenant.history.hold_on(known.subject, known.id) is not None

    def follow_session(self, subject: Subject, item_id: str) -> Outcome:
        """Let parts follow one session; ``TAKEN`` or ``STALE`` if it had to go back to where it was."""
        session = self.tenant.history.get(subject, item_id)
        if session is None or session.part_state in (None, session.state):
            return Outcome.DONE
        self._follow([session])
        again = self.tenant.history.get(subject, item_id)
        if again is None or again.state is session.state:
            return Outcome.DONE
        return Outcome.STALE if again.state is State.ACTIVE else Outcome.TAKEN

    def is_taken(self, session: Session) -> bool:
        """Whether a session cannot be restored, because in one of its parts another was begun under its name."""
        return session.part_state is not None and any(self.ask(lambda part: part.taken([session.id])).values())

    def purge(self, session: Session) -> None:
        """Delete what parts hold for a session that is being deleted."""
        if session.part_state is not None:
            self.ask(lambda part: part.recycle([_move(session)], now=self.tenant.now()))
            self.ask(lambda part: part.purge([session.id]))

    def _follow(self, sessions: Sequence[Session]) -> float:
        """Let parts follow these sessions; how long the parts took for it, in seconds."""
        history, now, began = self.tenant.history, self.tenant.now(), time.monotonic()
        going = [session for session in sessions if session.state is State.RECYCLED]
        coming = [session for session in sessions if session.state is State.ACTIVE]
        stayed: dict[str, int] = {}
        taken: set[str] = set()
        if going:
            for active in self.ask(lambda part: part.recycle([_move(one) for one in going], now=now)).values():
                stayed |= active
        if coming:
            taken = taken.union(*self.ask(lambda part: part.restore([one.id for one in coming])).values())
        took = time.monotonic() - began
        history.note_followed([one for one in going if one.id not in stayed], State.RECYCLED)
        history.note_followed([one for one in coming if one.id not in taken], State.ACTIVE)
        for session in going:
            if session.id in stayed:
                self._keep_active(session, stayed[session.id])
        for session in coming:
            if session.id in taken:
                self._put_back(session)
        return took

    def _keep_active(self, session: Session, active_at: int) -> None:
        """A session went to the bin, and a part of it was active meanwhile: it comes back, and counts from then. One
        whose name another has by now leaves its parts to that one; one of a removed agent takes them along.
        """
        history = self.tenant.history
        self.ask(lambda part: part.restore([session.id]))
        outcome = self._transition(session, State.ACTIVE, "it was active meanwhile", aged_from=active_at)
        if outcome is Outcome.DONE:
            history.note_parts([PartActivity(_scope(session), active_at, session.part_size)], begin=False)
        elif outcome is Outcome.TAKEN:
            history.note_followed([session], None)
        elif outcome is Outcome.PARTED:
            self.ask(lambda part: part.recycle([_move(session)._replace(upto=None)], now=self.tenant.now()))
            history.note_followed([session], State.RECYCLED)

    def _put_back(self, session: Session) -> None:
        """A session came back, and in one of its parts another was begun under its name: it returns to the bin."""
        self.ask(
            lambda part: part.recycle([_move(session)] if not part.taken([session.id]) else [], now=self.tenant.now())
        )
        purge_at = self.tenant.now() + BIN
        self._transition(session, State.RECYCLED, "another was begun under its name", purge_at=purge_at)

    def _transition(self, session: Session, target: State, reason: str, **more: Any) -> Outcome:
        move = Move(session.id, session.version, session.state, target, reason, Cause.RESTORE, **more)
        ((outcome,),) = self.tenant.history.transition_all([(session.subject, [move])], now=self.tenant.now())
        return outcome


@contextmanager
def _log_trouble(what: str) -> Iterator[None]:
    """Where a part is away, or the store cannot be written, the next sweep tries again."""
    try:
        yield
    except StorageError as problem:
        _log.warning("%s: %s", what, problem)


def _scope(session: Session) -> Scope:
    return Scope(session.subject.tenant, session.subject.user_id, session.agent_id, session.session_id)


def _describe(
    one: PartSession, session: Session | None, rows: int | None = None, size: int | None = None
) -> PartContentResult:
    """What a part holds for a session, as callers see it; without a count, it is in the recycle bin."""
    leaves = None if session is None else session.hidden_from if rows is not None else session.purge_at
    return {
        "part": "",
        "session_id": one.session_id,
        "agent_id": one.agent_id,
        "state": (State.RECYCLED if rows is None else State.ACTIVE).value,
        "active_at": None if one.active_at is None else iso(one.active_at),
        "due_at": None if leaves is None else iso(leaves),
        "rows": rows,
        "bytes": size,
    }


def _move(session: Session) -> PartMove:
    """How a part follows a session into the bin: with all that was not active after the session was."""
    held = PartSession(session.session_id or "", session.subject.user_id, session.agent_id, session.updated_at)
    return PartMove(session.id, held, session.updated_at)
