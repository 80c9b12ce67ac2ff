"""``holdfast.access``: API keys, each a secret that is shown once, and what it allows."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.core.access import (
    MAX_NAME_CHARS,
    ApiKey,
    Principal,
    Right,
    check_bounds,
    check_key_tenant,
    check_rights,
    list_rights,
)
from holdfast.core.audit import Action, Event
from holdfast.core.errors import InvalidInputError, NotFoundError, StorageError, UnauthenticatedError, quote
from holdfast.core.records import ALL
from holdfast.core.values import SECOND, check_id, is_id, iso, moment
from holdfast.ports.coordination import KeyStore

_log = logging.getLogger("holdfast.access")
#: How long a key that was read is trusted without reading it again: a key revoked elsewhere lets nobody in after that.
TRUSTED_SECONDS: Final = 3.0
_MAX_TRUSTED: Final = 1_024
#: The use of a key is written down at most this often.
_NOTED_EVERY: Final = 60 * SECOND
_SECRET: Final = re.compile(r"holdfast_([0-9a-f]{32})_([0-9A-Za-z_-]{43})")
#: The same words for all that is refused: they tell nobody whether a key exists.
_REFUSED: Final = "the API key is unknown, revoked or expired; make one with: holdfast access create"


class _Trusted(NamedTuple):
    """A key that was read a moment ago."""

    key: ApiKey
    hashed: bytes
    until: float


@dataclass(eq=False, repr=False)
class Access:
    """API keys of all tenants. Safe for many threads. ``note`` writes down, outside the store, that one is revoked."""

    store: KeyStore
    now: Callable[[], int]
    new_id: Callable[[int], str]
    monotonic: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    note: Callable[[str], None] = field(default=lambda _key_id: None, kw_only=True)
    _trusted: dict[str, _Trusted] = field(default_factory=dict, init=False)
    _noted: dict[str, int] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def create(
        self,
        name: str,
        *,
        rights: Iterable[Right | str],
        tenant: str,
        users: Iterable[str] | None = None,
        agents: Iterable[str] | None = None,
        expires_at: datetime | float | str | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key and its secret, which is shown nowhere else and cannot be shown again.

        ``tenant`` ``*`` makes an operator's key: for every tenant and the whole store. ``users`` and ``agents`` bind
        it to some of the tenant's; ``expires_at`` (an aware datetime, seconds since 1970 or ISO 8601) ends it.
        """
        now = self.now()
        key = ApiKey(
            self.new_id(now),
            check_key_tenant(tenant),
            _check_name(name),
            check_rights(rights),
            check_bounds(users, "user"),
            check_bounds(agents, "agent"),
            now,
            None if expires_at is None else _check_expiry(expires_at, now),
        )
        if key.tenant == ALL and (key.users is not None or key.agents is not None):
            raise InvalidInputError(
                "an operator's key is for every tenant, and users and agents are one tenant's; bind it to neither, or "
                "name the tenant"
            )
        random = secrets.token_urlsafe(32)
        self.store.add(key, _hash(random), Event(now, Action.KEY_CREATED, key.id, _public(key)))
        return key, f"holdfast_{key.id.replace('-', '')}_{random}"

    def list(self, tenant: str | None = None) -> list[ApiKey]:
        """The keys of a tenant (``*``: the operators'), or all keys, oldest first; what was revoked is among them."""
        return self.store.list(None if tenant is None else check_key_tenant(tenant))

    def get(self, key_id: str) -> ApiKey:
        """One key, be it valid or not."""
        found = self.store.get(key_id) if is_id(key_id) else None
        if found is None:
            raise NotFoundError(f"there is no API key {quote(key_id)}; see them with: holdfast access list")
        return found[0]

    def revoke(self, key_id: str) -> ApiKey:
        """Let a key in no longer: here at once, in other processes within seconds. For good."""
        key = self.get(key_id)
        now = self.now()
        try:
            self.note(key.id)
        except StorageError as problem:  # it is revoked all the same; a backup of before could bring it back
            _log.warning("that API key %s is revoked was not noted outside of the store: %s", key.id, problem)
        event = Event(now, Action.KEY_REVOKED, key.id, {"name": key.name})
        revoked = self.store.revoke(key.id, now=now, event=event)
        with self._lock:
            self._trusted.pop(key.id, None)
        if revoked is None:
            raise NotFoundError(f"the API key {key.id} ({key.name}) was revoked before")
        return revoked

    def any(self) -> bool:
        """Whether there is a key that lets anyone in."""
        return self.store.any(now=self.now())

    def identify(self, secret: str) -> Principal:
        """Who calls with a secret; ``UnauthenticatedError`` if nobody does. That it was used is written down."""
        key = self.look_up(secret)
        if self.is_use_due(key):
            self.note_use(key)
        return key.principal

    def find_cached(self, secret: str) -> ApiKey | None:
        """The valid key of a secret if it was looked up a moment ago, without asking the store."""
        return self._match(secret, self._cached)

    def look_up(self, secret: str) -> ApiKey:
        """The valid key of a secret; ``UnauthenticatedError`` if there is none. Nothing is written."""
        if not isinstance(secret, str) or _SECRET.fullmatch(secret) is None:
            raise UnauthenticatedError(
                "this is no API key; one looks like holdfast_<id>_<random>, as it was shown once"
            )
        key = self._match(secret, self._find)
        if key is None:
            raise UnauthenticatedError(_REFUSED)
        return key

    def is_use_due(self, key: ApiKey) -> bool:
        """Whether that a key was used is to be written down again; whoever is told so does it."""
        now = self.now()
        with self._lock:
            last = max(self._noted.get(key.id, 0), key.last_used_at or 0)
            if last <= now < last + _NOTED_EVERY:
                return False
            if len(self._noted) >= _MAX_TRUSTED:
                self._noted.clear()
            self._noted[key.id] = now
        return True

    def note_use(self, key: ApiKey) -> None:
        """Write down that a key was used now."""
        try:
            self.store.note_use(key.id, now=self.now())
        except StorageError as problem:  # a store that is full or busy can be read; nobody is kept out for a note
            _log.warning("the use of API key %s was not noted: %s", key.id, problem)

    # --- within -------------------------------------------------------------------------------------------------------

    def _match(self, secret: str, find: Callable[[str], _Trusted | None]) -> ApiKey | None:
        parts = _SECRET.fullmatch(secret)
        if parts is None:
            return None
        found = find(str(UUID(parts[1])))
        # Compared with something in any case, and whole: how long it takes says nothing of what is stored.
        matches = hmac.compare_digest(_hash(parts[2]), _hash("") if found is None else found.hashed)
        return found.key if found is not None and matches and found.key.is_valid(self.now()) else None

    def _find(self, key_id: str) -> _Trusted | None:
        """A key as it was a few seconds ago at most. What is unknown is not remembered: it may be made any moment."""
        present = self.monotonic()
        known = self._cached(key_id)
        if known is not None:
            return known
        found = self.store.get(key_id)
        if found is None:
            return None
        trusted = _Trusted(*found, present + TRUSTED_SECONDS)  # counted from before it was read
        with self._lock:
            if len(self._trusted) >= _MAX_TRUSTED:
                self._trusted.clear()
            self._trusted[key_id] = trusted
        return trusted

    def _cached(self, key_id: str) -> _Trusted | None:
        with self._lock:
            known = self._trusted.get(key_id)
        return known if known is not None and self.monotonic() < known.until else None


def _hash(random: str) -> bytes:
    """What is kept of a secret. It is 256 random bits, which nobody can guess however fast the hash: a slow one, made
    for passwords, would only slow every request.
    """
    return hashlib.sha256(random.encode()).digest()


def _check_name(name: object) -> str:
    checked = check_id(name, "name")
    if len(checked) > MAX_NAME_CHARS:
        raise InvalidInputError(f"name of {len(checked):,} characters is too long (max: {MAX_NAME_CHARS})")
    return checked


def _check_expiry(expires_at: datetime | float | str, now: int) -> int:
    ends = moment(expires_at, what="expires_at")
    if ends <= now:
        raise InvalidInputError(f"{iso(ends)} is not in the future; the key would let nobody in", about="expires_at")
    return ends


def _public(key: ApiKey) -> dict[str, Any]:
    """What the audit chain says of a key: nothing of its secret, and not which users it is for."""
    return {
        "name": key.name,
        "rights": list_rights(key.rights),
        "operator": key.tenant == ALL,
        "users": None if key.users is None else len(key.users),
        "agents": None if key.agents is None else sorted(key.agents),
        "expires_at": None if key.expires_at is None else iso(key.expires_at),
    }
