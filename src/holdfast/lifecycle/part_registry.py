"""Which parts a store has: they are registered in it, opened by their kind, and asked all together.

A part is something that belongs to sessions and lies outside of the store (``ports/session_parts.py``).
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from holdfast.core.audit import Action, Event
from holdfast.core.errors import (
    ConfirmationNeededError,
    ConflictError,
    HoldfastError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    StoreAwayError,
    StoreUnavailableError,
    quote,
)
from holdfast.core.records import Subject
from holdfast.core.values import FOREVER, check_id
from holdfast.ports.coordination import begin_steps
from holdfast.ports.session_parts import PartRegistration, PartSession, SessionPart
from holdfast.settings import drop_password

if TYPE_CHECKING:
    from holdfast.ports.stores import Tenant
    from holdfast.results.lifecycle import PartResult

T = TypeVar("T")
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
def name_part(registration: PartRegistration) -> Iterator[None]:
    """Whatever is wrong with a part, it is away for now, and the error says which one it is."""
    try:
        yield
    except HoldfastError as problem:
        raise StoreAwayError(
            f"part {registration.name!r} ({registration.url}) cannot be used now: {problem}"
        ) from problem


@dataclass(eq=False, repr=False)
class PartRegistry:
    """The parts of a tenant's sessions."""

    tenant: Tenant

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
            raise NotFoundError(
                f"there is no part {quote(name)}; list them with: holdfast langgraph status, or holdfast.parts.list()"
            )
        if not confirm:
            try:
                binned = len(self._open(registration).binned(FOREVER))
            except StorageError as problem:
                raise ConfirmationNeededError(f"{problem}; nothing was changed", needs=("confirm",)) from problem
            if binned:
                raise ConfirmationNeededError(
                    f"{binned:,} sessions, or earlier states of some, are in the recycle bin of part {name!r}, and "
                    "would stay there; restore them first, or wait; nothing was changed",
                    needs=("confirm",),
                )
        self.tenant.parts.remove(self.tenant.name, name)
        self._note(Action.DELETED, name)
        return _describe(registration)

    def _note(self, action: Action, name: str, **more: Any) -> None:
        detail = {"kind": "part", **more}
        self.tenant.audit.append(Subject(self.tenant.name), [Event(self.tenant.now(), action, name, detail)])

    def _registered(self) -> Sequence[PartRegistration]:
        return self.tenant.parts.list(self.tenant.name)

    def _open(self, registration: PartRegistration) -> SessionPart:
        with name_part(registration):
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
                with name_part(registration):
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
            with name_part(registration):
                for session, rows in part.export(user_id):
                    yield registration.name, session, rows


def _describe(registration: PartRegistration) -> PartResult:
    return {
        "name": registration.name,
        "part_type": registration.kind,
        "url": registration.url,
        "options": registration.options,
        "unowned_as": registration.unowned_as,
    }
