"""Replies to writes that may come again: the same request under the same idempotency key is carried out once.

Its claim, its effect and its reply are one transaction, which a crash leaves done or not done. A request that takes
several transactions is claimed under a lease, and whoever goes on with it after a crash finds what was done.

Nothing that is kept can be read from the store alone. A row is found by a hash of caller and key, and a reply is sealed
under a key that is made of the idempotency key and the request, neither of which is stored: whoever sends both again
can read it, and nobody else; and nobody any more, once someone was erased who may be in it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.core.clock import without_deadline
from holdfast.core.errors import (
    ClosedError,
    ConflictError,
    HoldfastError,
    IdempotencyKeyReusedError,
    InDoubtError,
    InvalidInputError,
    RequestInProgressError,
    quote,
)
from holdfast.core.values import DAY, SECOND
from holdfast.ports.coordination import REQUEST, Claim, ClaimedError, OnceRequest, ReplyStore, StoredReply
from holdfast.privacy.keys.encryption import DataKey, SealBrokenError, seal, unseal

#: How long a reply is kept.
KEPT: Final = DAY
#: A larger reply is not kept, only that there was one.
MAX_REPLY_BYTES: Final = 1024 * 1024
_MAX_KEY_CHARS: Final = 256
_CLEAN_EVERY: Final = SECOND
_CLEAN_AT_ONCE: Final = 500
#: Well within the lease of a claim, so that one renewal may fail.
_RENEW_SECONDS: Final = 1.5
_log = logging.getLogger("holdfast.replies")


class Reply(NamedTuple):
    """What a caller was told."""

    status: int
    headers: dict[str, str]
    body: bytes


def fingerprint(method: str, target: str, body: bytes, *, tenant: str = "") -> bytes:
    """What tells one request from another: method, target (path and query), body, and the tenant it is for."""
    return _digest(b"fingerprint", method.encode(), target.encode(errors="surrogatepass"), tenant.encode(), body)


@dataclass(eq=False, repr=False)
class Replies:
    """Replies that are kept for a day. Safe for many threads.

    ``erasures`` counts who was erased: a reply of before the last of them may tell of that person, and is told nobody
    any more.
    """

    store: ReplyStore
    now: Callable[[], int]
    erasures: Callable[[], int] = field(default=lambda: 0, kw_only=True)
    _cleaned_at: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.renewals = Renewals(self.store.renew)
        self.counts = {"done": 0, "replayed": 0}
        """Requests of this process that were carried out, and answered as before."""

    def once(self, principal_id: str, key: str, fingerprint: bytes) -> Once:
        """A caller's request, by its idempotency key."""
        now = self.now()
        self._clean(now)
        row = _digest(b"row", principal_id.encode(), _check_key(key).encode())
        seed = _digest(b"ids", principal_id.encode(), key.encode(), fingerprint)
        mark = _digest(b"request", key.encode(), fingerprint)
        claim = Claim(row, mark, secrets.token_bytes(16), seed, now, now - KEPT)
        return Once(self, claim, key, fingerprint)

    def _clean(self, now: int) -> None:
        """Remove some of what has had its time, by the way: more than can be added meanwhile, and never many."""
        with self._lock:
            if self._cleaned_at <= now < self._cleaned_at + _CLEAN_EVERY:
                return
            self._cleaned_at = now
        with without_deadline():  # it is no part of what was asked for
            self.store.forget(now - KEPT, limit=_CLEAN_AT_ONCE)


@dataclass(eq=False, repr=False)
class Once:
    """A request that is carried out once, however often it is sent and whatever crashes.

    Who sends it again gets the reply that it had. ``RequestInProgressError`` while it is at work elsewhere in several
    transactions; ``IdempotencyKeyReusedError`` if the key was another request's; ``ConflictError`` if it was carried
    out but its reply cannot be told.
    """

    replies: Replies
    claim: Claim
    key: str
    fingerprint: bytes
    _request: OnceRequest | None = field(default=None, init=False)

    def find(self) -> Reply | None:
        """The reply that the request had before."""
        found = self.replies.store.find(self.claim.row, old=self.claim.old)
        reply = None if found is None else self._read(found)
        self.replies.counts["replayed"] += reply is not None
        return reply

    def carry_out(self, work: Callable[[], Reply], failed: Callable[[], Reply]) -> tuple[Reply, bool]:
        """Do the work, whose writes and reply are one transaction; the reply, and whether it is one of before.

        What raises an error of Holdfast's may be sent again under its key. ``failed`` is the reply to work in several
        transactions of which nobody knows how far it came: that is not done again.
        """
        known = self.find()
        if known is not None:
            return known, True
        request = self._begin(joins=True)
        here = REQUEST.set(request)
        try:
            reply = self._do(work, failed)
            request.keep(self._seal(reply))
        except ClaimedError as before:
            return self._read_known(before.found), True
        except HoldfastError:
            request.abandon()
            with suppress(HoldfastError):  # another may have been faster, so that this one found nothing to do
                known = self.find()
            if known is None:
                raise
            return known, True
        finally:
            REQUEST.reset(here)
            self._end()
        return reply, False

    def _do(self, work: Callable[[], Reply], failed: Callable[[], Reply]) -> Reply:
        try:
            return work()
        except ClaimedError:
            raise
        except HoldfastError as problem:
            self.give_up(problem)
            raise
        except BaseException:
            self.fail(failed)
            raise

    # --- work that is in several transactions to its end ----------------------------------------------------------

    def begin(self) -> Reply | None:
        """Begin the request, or the reply that it had before. After ``None``, ``keep``, ``give_up`` or ``fail`` must
        follow; until then its process renews its lease.
        """
        known = self.find()
        if known is None:
            try:
                self._begin(joins=False).begin_steps()
            except ClaimedError as before:
                return self._read_known(before.found)
        return known

    @property
    def request(self) -> OnceRequest:
        """The request, once it was begun."""
        if self._request is None:
            raise RuntimeError("the request was not begun")
        return self._request

    def keep(self, reply: Reply) -> None:
        """Keep what the caller was told, for when it asks again. Nothing, if another has taken the request over."""
        try:
            with suppress(ClaimedError):
                self.request.keep(self._seal(reply))
        finally:
            self._end()

    def give_up(self, problem: Exception) -> None:
        """The request failed, and may be sent again. What it committed, or has on the record, stays."""
        try:
            if isinstance(problem, InDoubtError) and not self.request.in_steps:
                self.request.abandon()
            else:
                self.request.release()
        finally:
            self._end()

    def fail(self, reply: Callable[[], Reply]) -> None:
        """The request broke off. In one transaction, nothing was done; in several, it is not done again."""
        self.request.abandon()
        if self.request.in_steps:
            with suppress(HoldfastError):
                self.keep(reply())

    # --- within -----------------------------------------------------------------------------------------------------

    def _begin(self, *, joins: bool) -> OnceRequest:
        self._request = self.replies.store.begin(self.claim, self.replies.renewals.add, joins=joins)
        return self._request

    def _end(self) -> None:
        self.replies.renewals.drop(self.claim)
        self.request.abandon()

    def _seal(self, reply: Reply) -> bytes:
        self.replies.counts["done"] += 1
        is_large = len(reply.body) > MAX_REPLY_BYTES
        said = {"status": reply.status, "headers": dict(reply.headers), "large": is_large}
        said["erasures"] = self.replies.erasures()
        content = json.dumps(said).encode() + b"\n" + (b"" if is_large else reply.body)
        return seal(_sealing_key(self.claim.row, self.key, self.fingerprint), _NAME, content)

    def _read(self, found: StoredReply) -> Reply | None:
        """The reply that is kept; ``None`` of a request that was cut short."""
        if found.fingerprint != self.claim.fingerprint:
            raise IdempotencyKeyReusedError(
                f"the idempotency key {quote(self.key)} was used for another request within the last day; "
                "use a new key for each request, and the same one only to repeat it as it was"
            )
        if found.body is not None:
            return _open(self.claim.row, self.key, self.fingerprint, found.body, self.replies.erasures())
        if found.is_leased:
            raise _in_progress(self.key)
        return None

    def _read_known(self, found: StoredReply) -> Reply:
        """The reply of another who was faster."""
        reply = self._read(found)
        if reply is None:
            raise _in_progress(self.key)
        return reply


class Renewals:
    """Keeps up the leases of the requests that this process is at, in a thread that is there while there are any."""

    def __init__(self, renew: Callable[[Sequence[Claim]], None]) -> None:
        self._renew = renew
        self._claims: set[Claim] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def add(self, claim: Claim) -> None:
        """Renew the lease of a claim from now on."""
        with self._lock:
            self._claims.add(claim)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="holdfast-requests", daemon=True)
                self._thread.start()

    def drop(self, claim: Claim) -> None:
        """Let the lease of a claim run out."""
        with self._lock:
            self._claims.discard(claim)

    def _run(self) -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            with self._lock:
                claims = list(self._claims)
                if not claims:
                    self._thread = None
                    return
            try:
                self._renew(claims)
            except ClosedError:
                return
            except HoldfastError as problem:  # it is tried again, and after some seconds another may take them over
                _log.warning("the leases of %d requests could not be renewed: %s", len(claims), problem)


_NAME: Final = "reply"


def _check_key(key: object) -> str:
    """A printable text has no lone surrogates either, so that it can be hashed."""
    if not isinstance(key, str) or not key.strip() or not key.isprintable() or len(key) > _MAX_KEY_CHARS:
        raise InvalidInputError(
            f"an idempotency key is a text of 1 to {_MAX_KEY_CHARS} printable characters, such as a random UUID, "
            f"not {quote(key)}"
        )
    return key


def _sealing_key(row: bytes, key: str, fingerprint: bytes) -> DataKey:
    return DataKey(row.hex()[:32], _digest(b"seal", key.encode(), fingerprint))


def _digest(*parts: bytes) -> bytes:
    """A hash of some parts. Who does not have all of them can tell nothing from it."""
    digest = hashlib.sha256(b"holdfast-reply")
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _open(row: bytes, key: str, fingerprint: bytes, sealed: bytes, erasures: int) -> Reply:
    done = f"the request with the idempotency key {quote(key)} was carried out"
    try:
        head, _, body = unseal(_sealing_key(row, key, fingerprint), _NAME, sealed).partition(b"\n")
    except SealBrokenError as problem:
        raise ConflictError(f"{done}, but its reply is damaged: {problem}") from problem
    said = json.loads(head)
    if said.get("erasures", 0) != erasures:
        raise ConflictError(
            f"{done}; its reply is no longer told, since someone was erased meanwhile, and it is not carried out again"
        )
    if said["large"]:
        raise ConflictError(
            f"{done}; its reply was too large to keep (max: {MAX_REPLY_BYTES:,} bytes), and it is not carried out again"
        )
    return Reply(said["status"], said["headers"], body)


def _in_progress(key: str) -> RequestInProgressError:
    return RequestInProgressError(
        f"the request with the idempotency key {quote(key)} is still at work; ask again a little later"
    )
