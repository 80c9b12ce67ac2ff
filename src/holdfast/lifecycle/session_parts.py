"""What belongs to sessions and lies outside of the store: which parts there are, and how they follow their sessions.

The session in the store is what is decided about; every path that moves one leaves its parts behind by a step. What has
not been followed is a difference in the session's row, so that a crash anywhere is made good by the next ``follow``.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import NO_LIFE, Life
from holdfast.core.errors import (
    ConfirmationNeededError,
    ConflictError,
    HoldfastError,
    InvalidInputError,
    InvalidScopeError,
    NotFoundError,
    StorageError,
    StoreAwayError,
    StoreUnavailableError,
    quote,
)
from holdfast.core.records import BIN, HISTORY, Cause, Move, Outcome, Scope, State, Subject
from holdfast.core.values import DAY, FOREVER, check_id
from holdfast.ports.conversations import PartActivity, Session
from holdfast.ports.coordination import begin_steps
from holdfast.ports.session_parts import PartMove, PartRegistration, PartSession, SessionPart
from holdfast.ports.stores import Tenant
from holdfast.results.lifecycle import PartResult
from holdfast.settings import drop_password

_log = logging.getLogger("holdfast.parts")
T = TypeVar("T")
#: Parts move sessions in transactions of about this duration, and of so many at first and at most.
_GOAL_SECONDS: Final = 0.08
_FIRST, _MOST = 25, 500
#: What opens a part of each kind: ``module:function``. The module is imported when one is first needed.
KINDS: Final = {"langgraph": "holdfast.integrations.langgraph.parts:open_part"}
#: What a part has to have.
METHODS: Final = frozenset(name for name in dir(SessionPart) if not name.startswith("_"))


class OpenPart(Protocol):
    """What ``KINDS`` names."""

    def __call__(self, registration: PartRegistration, url: str) -> SessionPart:
        """Open a part; a ``StorageError`` says why it cannot be, and what to do."""


def check_kind(kind: object) -> str:
    """A kind of which parts can be opened."""
    if kind not in KINDS:
        raise InvalidInputError(f"there is no kind {quote(kind)} of parts; the kinds are: {', '.join(sorted(KINDS))}")
    return str(kind)


def open_part(registration: PartRegistration, url: str) -> SessionPart:
    """Open a part by its kind. One that lacks a method is refused: nothing is used that erasure cannot reach."""
    if registration.kind not in KINDS:
        raise StoreUnavailableError(
            f"part {registration.name!r} is of a kind that this version does not know ({quote(registration.kind)}); "
            f"use the version that registered it, or remove it: holdfast.parts.remove({registration.name!r})"
        )
    module, _, function = KINDS[registration.kind].partition(":")
    part = cast("OpenPart", getattr(importlib.import_module(module), function))(registration, url)
    missing = sorted(name for name in METHODS if not hasattr(part, name))
    if missing:
        raise TypeError(f"{type(part).__name__} is no part of sessions: it has no {', '.join(missing)}")
    return part


class OpenParts:
    """The parts of a store, for all tenants, opened when they are first needed."""

    def __init__(self, known: str) -> None:
        """``known`` is a URL whose password opens parts of the same user on the same server, too."""
        self._known = known
        self._open: dict[tuple[str, str, int], tuple[PartRegistration, SessionPart]] = {}
        self._lock = threading.Lock()

    def open(self, registration: PartRegistration, url: str | None = None) -> SessionPart:
        """A part, ready to be used; what is registered under its name may have changed meanwhile."""
        key = (registration.tenant, registration.name, os.getpid())  # connections do not survive a fork
        with self._lock:
            known, part = self._open.get(key, (None, None))
            if part is None or known != registration:
                if part is not None:
                    part.close()
                    del self._open[key]
                part = open_part(registration, url or self._with_password(registration.url))
                self._open[key] = registration, part
            return part

    def _with_password(self, url: str) -> str:
        """A registered URL, with the password of the store if it is of the same user on the same server."""
        known = urlsplit(self._known)
        wanted = urlsplit(url)
        is_same = (known.scheme, known.username, known.hostname, known.port) == (
            wanted.scheme,
            wanted.username,
            wanted.hostname,
            wanted.port,
        )
        return wanted._replace(netloc=known.netloc).geturl() if is_same and known.password else url

    def close(self) -> None:
        """Close those that are open."""
        with self._lock:
            for _, part in self._open.values():
                part.close()
            self._open.clear()


@contextmanager
def _name_part(registration: PartRegistration) -> Iterator[None]:
    """Whatever is wrong with a part, it is away for now, and the error says which one it is."""
    try:
        yield
    except HoldfastError as problem:
        raise StoreAwayError(
            f"part {registration.name!r} ({registration.url}) cannot be used now: {problem}"
        ) from problem


@dataclass(eq=False, repr=False)
class SessionParts:
    """``holdfast.parts``: what belongs to a tenant's sessions and lies elsewhere."""

    tenant: Tenant

    # --- which there are ----------------------------------------------------------------------------------------------

    def add(
        self,
        kind: str,
        url: str,
        *,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        unowned_as: str | None = None,
    ) -> PartResult:
        """Let what lies at a URL live and go with the tenant's sessions from now on, whichever process sees to it.

        ``name`` (the kind, if none is given) is what certificates and exports call it. ``options`` are what its kind
        wants to know. What has no owner that can be read is left alone, or is the user's ``unowned_as``. The password
        of the URL is not kept: other processes take that of the store, if it is of the same user on the same server.
        """
        called = check_id(check_kind(kind) if name is None else name, "name")
        owner = None if unowned_as is None else check_id(unowned_as, "unowned_as")
        new = PartRegistration(
            self.tenant.name, called, check_kind(kind), drop_password(url), {**(options or {})}, owner
        )
        known = next((one for one in self._registered() if one.name == called), None)
        if known is not None and (known.kind, known.url) != (new.kind, new.url):
            raise ConflictError(
                f"part {called!r} lies at {known.url} already; remove that first, or give this one another name"
            )
        self.tenant.open_part(new, url)
        self.tenant.parts.add(new)
        self._note(Action.REGISTERED if known is None else Action.CHANGED, called)
        return _describe(new)

    def list(self) -> list[PartResult]:
        """The parts that the tenant's sessions have, by their names."""
        return [_describe(registration) for registration in self._registered()]

    def remove(self, name: str, *, confirm: bool = False) -> PartResult:
        """Let a part live without the sessions again: nothing of it is removed, and nothing is looked after any more.

        ``ConfirmationNeededError`` while something is in its recycle bin, or if it cannot be looked at.
        """
        registration = next((one for one in self._registered() if one.name == name), None)
        if registration is None:
            raise NotFoundError(f"there is no part {quote(name)}; see holdfast.parts.list()")
        if not confirm:
            try:
                binned = len(self._open(registration).binned(FOREVER))
            except StorageError as problem:
                raise ConfirmationNeededError(f"{problem}; nothing was changed", needs=("confirm",)) from problem
            if binned:
                raise ConfirmationNeededError(
                    f"{binned:,} sessions are in the recycle bin of part {name!r}, and would stay there; restore them "
                    "first, or wait; nothing was changed",
                    needs=("confirm",),
                )
        self.tenant.parts.remove(self.tenant.name, name)
        self._note(Action.DELETED, name)
        return _describe(registration)

    def _note(self, action: Action, name: str) -> None:
        detail = {"kind": "part"}
        self.tenant.audit.append(Subject(self.tenant.name), [Event(self.tenant.now(), action, name, detail)])

    def _registered(self) -> Sequence[PartRegistration]:
        return self.tenant.parts.list(self.tenant.name)

    def _open(self, registration: PartRegistration) -> SessionPart:
        with _name_part(registration):
            return self.tenant.open_part(registration, None)

    def begin_steps(self) -> None:
        """Say that what follows takes more than a transaction of the store, if there are parts."""
        if self._registered():
            begin_steps()

    def ask(self, do: Callable[[SessionPart], T]) -> dict[str, T]:
        """What each part answers, by its name. All of them are asked; then ``StoreAwayError`` if one did not answer."""
        answers: dict[str, T] = {}
        trouble: StoreAwayError | None = None
        for registration in self._registered():
            begin_steps()  # what a part does is outside of any transaction of the store
            try:
                with _name_part(registration):
                    answers[registration.name] = do(self._open(registration))
            except StoreAwayError as problem:
                trouble = trouble or problem
        if trouble is not None:
            raise trouble
        return answers

    def export(self, user_id: str) -> Iterator[tuple[str, PartSession, Iterable[Mapping[str, Any]]]]:
        """All that parts hold of a user: the part's name, and the rest as it says."""
        for registration in self._registered():
            part = self._open(registration)
            with _name_part(registration):
                for session, rows in part.export(user_id):
                    yield registration.name, session, rows

    # --- what they hold -----------------------------------------------------------------------------------------------

    def refresh(self, **selected: Any) -> None:
        """Let sessions be as active as what their parts hold. What has no session and is selected (see
        ``PartReader.sessions``) gets one, from which on it is in plans, under holds, and goes by the rules.
        """

        def note(part: SessionPart) -> None:
            history = self.tenant.history
            for some in part.survey(selected.get("session_id")):
                history.note_parts(self._find_unnoted(part, some, begin=False), begin=False)
            found = part.sessions(**selected) if selected else ()
            history.note_parts(
                [one for some in found for one in self._find_unnoted(part, some, begin=True)], begin=True
            )

        self.ask(note)

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
        before a moment, because the store is another now, is deleted.
        """
        with _log_trouble("something has not followed its session yet"):
            self.follow()
            lost = self.ask(lambda part: part.binned(upto - BIN - DAY))
            unknown = self.tenant.history.unknown([one for some in lost.values() for one in some])
            if unknown:
                self.ask(lambda part: part.purge(sorted(unknown)))

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


def _move(session: Session) -> PartMove:
    """How a part follows a session into the bin: with all that was not active after the session was."""
    held = PartSession(session.session_id or "", session.subject.user_id, session.agent_id, session.updated_at)
    return PartMove(session.id, held, session.updated_at)


def _describe(registration: PartRegistration) -> PartResult:
    return {
        "name": registration.name,
        "part_type": registration.kind,
        "url": registration.url,
        "options": registration.options,
        "unowned_as": registration.unowned_as,
    }
