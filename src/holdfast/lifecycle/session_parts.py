"""What belongs to sessions and lies outside of the store: which parts there are, and how they are opened."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from holdfast.core.errors import InvalidInputError, StoreUnavailableError, quote
from holdfast.ports.session_parts import PartRegistration, PartStore, SessionPart

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

    def __init__(self, store: PartStore, known: str) -> None:
        """``known`` is a URL whose password opens parts of the same user on the same server, too."""
        self._store, self._known = store, known
        self._open: dict[tuple[str, str, int], tuple[PartRegistration, SessionPart]] = {}
        self._lock = threading.Lock()

    def of(self, tenant: str) -> list[PartRegistration]:
        """What parts a tenant has."""
        return self._store.list(tenant)

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
