"""Replies to writes that may come again: the same request under the same idempotency key is carried out once.

Nothing that is kept can be read from the store alone. A row is found by a hash of caller and key, and a reply is sealed
under a key that is made of the idempotency key and the request, neither of which is stored: whoever sends both again
can read it, and nobody else; and nobody any more, once someone was erased who may be in it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from retain.core.errors import (
    ConflictError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    RequestInProgressError,
    told,
)
from retain.core.times import DAY, SECOND
from retain.ports import ReplyStore
from retain.privacy.sealing import DataKey, SealBrokenError, seal, unseal

#: How long a reply is kept.
KEPT: Final = DAY
#: A larger reply is not kept, only that there was one.
MAX_REPLY_BYTES: Final = 1024 * 1024
_MAX_KEY_CHARS: Final = 256
_TIDIED_EVERY: Final = SECOND
_TIDIED_AT_ONCE: Final = 500


class Reply(NamedTuple):
    """What a caller was told."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Claim(NamedTuple):
    token: bytes
    at: int


def fingerprint(method: str, target: str, body: bytes, *, tenant: str = "") -> bytes:
    """What tells one request from another: method, target (path and query), body, and the tenant it is for."""
    digest = hashlib.sha256()
    for part in (method.encode(), target.encode(errors="surrogatepass"), tenant.encode(), body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


class Replies:
    """Replies that are kept for a day. Safe for many threads.

    ``time_limit`` (seconds) is how long a request may take: one that another process began and did not finish within
    it was cut short, and is carried out again. One that this process is still at is never begun twice. ``erasures``
    counts who was erased: a reply of before the last of them may tell of that person, and is told nobody any more.
    """

    def __init__(
        self,
        store: ReplyStore,
        now: Callable[[], int],
        *,
        time_limit: float = 60.0,
        erasures: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self._erasures = erasures
        self._now = now
        self._limit = round(time_limit * SECOND)
        self._mine: dict[bytes, _Claim] = {}
        self._tidied = 0
        self._lock = threading.Lock()

    def claim(self, principal_id: str, key: str, fingerprint: bytes) -> Reply | None:
        """Begin a request, or the reply that it had before. After ``None``, ``keep`` or ``release`` must follow.

        ``RequestInProgressError`` while it is at work elsewhere; ``IdempotencyKeyReusedError`` if the key was another
        request's; ``ConflictError`` if it was carried out but its reply was too large to keep.
        """
        row = _row(principal_id, _check_key(key))
        now = self._now()
        self._tidy(now)
        claim = _Claim(secrets.token_bytes(16), now)
        with self._lock:
            if now - self._mine.get(row, _NEVER).at < KEPT:
                raise _in_progress(key)
            self._mine[row] = claim
        try:
            reply = self._claim(row, key, fingerprint, claim)
        except BaseException:
            self._drop(row, claim)
            raise
        if reply is not None:
            self._drop(row, claim)
        return reply

    def keep(self, principal_id: str, key: str, fingerprint: bytes, reply: Reply) -> None:
        """Keep what the caller was told, for when it asks again. Nothing, if the request was begun anew meanwhile."""
        row = _row(principal_id, key)
        claim = self._claimed(row)
        if claim is None:
            return
        is_large = len(reply.body) > MAX_REPLY_BYTES
        said = {"status": reply.status, "headers": dict(reply.headers), "large": is_large}
        said["erasures"] = self._erasures()
        content = json.dumps(said).encode() + b"\n" + (b"" if is_large else reply.body)
        try:
            self._store.keep(row, claim.token, seal(_sealing_key(row, key, fingerprint), _NAME, content))
        finally:
            self._drop(row, claim)

    def release(self, principal_id: str, key: str) -> None:
        """Give a claim back: the request had no effect, and may be sent again. Not for one that may still have one."""
        row = _row(principal_id, key)
        claim = self._claimed(row)
        if claim is None:
            return
        try:
            self._store.release(row, claim.token)
        finally:
            self._drop(row, claim)

    # --- within -------------------------------------------------------------------------------------------------------

    def _claim(self, row: bytes, key: str, fingerprint: bytes, claim: _Claim) -> Reply | None:
        mark, now = _mark(key, fingerprint), claim.at
        found = self._store.claim(row, mark, claim.token, now=now, stale=now - self._limit, old=now - KEPT)
        if found.fingerprint != mark:
            raise IdempotencyKeyReusedError(
                f"the idempotency key {told(key)} was used for another request within the last day; "
                "use a new key for each request, and the same one only to repeat it as it was"
            )
        if found.body is not None:
            return _opened(row, key, fingerprint, found.body, self._erasures())
        if found.claim != claim.token:
            raise _in_progress(key)
        return None

    def _claimed(self, row: bytes) -> _Claim | None:
        with self._lock:
            return self._mine.get(row)

    def _drop(self, row: bytes, claim: _Claim) -> None:
        with self._lock:
            if self._mine.get(row) is claim:
                del self._mine[row]

    def _tidy(self, now: int) -> None:
        """Remove some of what has had its time, by the way: more than can be added meanwhile, and never many."""
        with self._lock:
            if self._tidied <= now < self._tidied + _TIDIED_EVERY:
                return
            self._tidied = now
            for row in [row for row, claim in self._mine.items() if now - claim.at >= KEPT]:
                del self._mine[row]
        self._store.forget(now - KEPT, limit=_TIDIED_AT_ONCE)


_NAME: Final = "reply"
_NEVER: Final = _Claim(b"", -(2**62))


def _check_key(key: object) -> str:
    """A printable text has no lone surrogates either, so that it can be hashed."""
    if not isinstance(key, str) or not key.strip() or not key.isprintable() or len(key) > _MAX_KEY_CHARS:
        raise InvalidInputError(
            f"an idempotency key is a text of 1 to {_MAX_KEY_CHARS} printable characters, such as a random UUID, "
            f"not {told(key)}"
        )
    return key


def _row(principal_id: str, key: str) -> bytes:
    return _digest(b"row", principal_id.encode(), key.encode())


def _mark(key: str, fingerprint: bytes) -> bytes:
    """What is stored of a request: only who has its key can tell whether it was a certain one."""
    return _digest(b"request", key.encode(), fingerprint)


def _sealing_key(row: bytes, key: str, fingerprint: bytes) -> DataKey:
    return DataKey(row.hex()[:32], _digest(b"seal", key.encode(), fingerprint))


def _digest(*parts: bytes) -> bytes:
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hashlib.sha256(b"retain-reply" + framed).digest()


def _opened(row: bytes, key: str, fingerprint: bytes, sealed: bytes, erasures: int) -> Reply:
    try:
        content = unseal(_sealing_key(row, key, fingerprint), _NAME, sealed)
    except SealBrokenError as problem:
        raise ConflictError(
            f"the request with the idempotency key {told(key)} was carried out, but its reply is damaged: {problem}"
        ) from problem
    head, _, body = content.partition(b"\n")
    said = json.loads(head)
    if said.get("erasures", 0) != erasures:
        raise ConflictError(
            f"the request with the idempotency key {told(key)} was carried out; its reply is no longer told, since "
            "someone was erased meanwhile, and it is not carried out again"
        )
    if said["large"]:
        raise ConflictError(
            f"the request with the idempotency key {told(key)} was carried out; its reply was too large to keep "
            f"(max: {MAX_REPLY_BYTES:,} bytes), and it is not carried out again"
        )
    return Reply(said["status"], said["headers"], body)


def _in_progress(key: str) -> RequestInProgressError:
    return RequestInProgressError(
        f"the request with the idempotency key {told(key)} is still at work; ask again a little later"
    )
