"""``holdfast.sign_ins``: browsers in which someone signed in with an API key, and so acts for it for a while."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final

from holdfast.access.keys import Access
from holdfast.core.access import ApiKey
from holdfast.core.values import DAY
from holdfast.ports.coordination import SignInStore

#: How long a browser acts for a key before someone has to sign in again.
SIGNED_IN: Final = DAY // 2


class SignIns:
    """Tokens that browsers keep instead of a secret. Of each, only a hash is stored."""

    def __init__(self, store: SignInStore, access: Access, now: Callable[[], int]) -> None:
        self._store = store
        self._access = access
        self._now = now

    def begin(self, secret: str) -> str:
        """The token of a new sign-in with a key's secret; ``UnauthenticatedError`` if the key lets nobody in."""
        key = self._access.look_up(secret)
        if self._access.is_use_due(key):
            self._access.note_use(key)
        token = secrets.token_urlsafe(32)
        now = self._now()
        self._store.add(_hash(token), key.id, now=now, until=now + SIGNED_IN)
        return token

    def find(self, token: str) -> ApiKey | None:
        """The key that a token stands for. It is read each time: a key that was revoked lets nobody in at once."""
        now = self._now()
        key = self._store.find(_hash(token), now=now)
        return key if key is not None and key.is_valid(now) else None

    def end(self, token: str) -> None:
        """Sign out: the token stands for nothing any more."""
        self._store.end(_hash(token), now=self._now())


def _hash(token: str) -> bytes:
    return hashlib.sha256(b"holdfast-sign-in" + token.encode("utf-8", "backslashreplace")).digest()
