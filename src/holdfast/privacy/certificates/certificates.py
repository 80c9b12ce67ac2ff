"""``holdfast.certificates``: certificates of erasures, kept outside of the data (``certificates/<id>.json``)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action
from holdfast.core.errors import (
    HoldfastError,
    InvalidInputError,
    NotFoundError,
    ObjectDamagedError,
    ObjectMissingError,
    quote,
)
from holdfast.core.records import Subject
from holdfast.core.values import check_count, is_id
from holdfast.ports.objects import ObjectStore
from holdfast.ports.records import AuditStore
from holdfast.privacy.certificates.certificate import (
    Account,
    Audited,
    Verdict,
    draft,
    read_certificate,
    readable_page,
    sign,
    verify_certificate,
)
from holdfast.privacy.erasure import Erasure, PlaceCount
from holdfast.privacy.keys.signatures import SigningKeys
from holdfast.privacy.ledger import Erased

_log = logging.getLogger("holdfast.certificates")
FOLDER: Final = "certificates/"
_MOST_LISTED: Final = 10_000

_SEALED: Final = (
    "There is no data key any more: archived memories and backups that were sealed under it cannot be read again, "
    "wherever a copy of them may be."
)
_REACH: Final = (
    "This is about the places that Holdfast keeps memories in. It says nothing of what other programs, logs or people "
    "have kept."
)
_WORKING: Final = (
    "Working memory lies in the processes that have the store open. What this one had is gone and counted; in any "
    "other process it cannot be read 10 seconds later, or 60 seconds later where that process cannot reach the store."
)
_CHAIN: Final = (
    "The audit chain stays. It knows the person by the pseudonym only; ids of agents, sessions and memories, names of "
    "sources and authors, and digests of what holds said are in it as they were given."
)
_SHORT_TERM: Final = (
    "Short-term memory was on a server of its own: what that server wrote to its disk goes when it next writes its "
    "snapshot or rewrites its log."
)
_OVERWRITTEN: Final = "Deleted content was overwritten in the database file, and its write-ahead log was truncated."
_READER: Final = (
    "Pending: deleted content was overwritten in the database file, but a reader that was open kept its write-ahead "
    "log from being truncated. Until it is, deleted bytes may lie in that log; then another certificate is issued."
)
_SERVER: Final = (
    "Rows are out of every table and index that the server can show. What is left of them in dead pages goes with "
    "vacuum, and in the write-ahead log as that is recycled; replicas, archived logs and backups of the server itself "
    "are in the hands of its operator."
)
_UNFINISHED: Final = "Pending: not every step of the erasure is done; another certificate is issued when it is."


class Engines(NamedTuple):
    """Where a store keeps its data."""

    database: str
    """``sqlite`` or ``postgresql``."""
    has_short_term_server: bool


def remarks_on(engines: Engines, *, pending: bool) -> list[str]:
    """What an erasure on these engines does not cover, so that nobody takes it for more than it is."""
    if engines.database == "sqlite":
        about = [_READER if pending else _OVERWRITTEN]
    else:
        about = [*([_UNFINISHED] if pending else []), _SERVER]
    return [*about, *([_SHORT_TERM] if engines.has_short_term_server else []), _SEALED, _WORKING, _CHAIN, _REACH]


def find_erasure(audit: AuditStore, tenants: Iterable[str], alias: str) -> Audited | None:
    """The latest entry of a tenant's chain that says that a pseudonym was erased; ``None`` if there is none."""
    for tenant in dict.fromkeys(tenants):
        entries = [entry for entry in audit.of_item(Subject(tenant), alias) if entry.action == Action.ERASED]
        if entries:
            return Audited(entries[-1].chain, entries[-1].seq, entries[-1].hash)
    return None


class Certificates:
    """``holdfast.certificates``. ``find_audit`` finds the audit entry that says that a pseudonym was erased."""

    def __init__(
        self,
        objects: ObjectStore,
        keys: SigningKeys,
        engines: Engines,
        *,
        find_audit: Callable[[str], Audited | None],
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._objects = objects
        self._keys = keys
        self._engines = engines
        self._find_audit = find_audit
        self._now = now
        self._new_id = new_id

    def prepare(self) -> None:
        """Make sure that there is a key to sign with: ``MasterKeyError`` or ``ObjectStoreError`` if it cannot be used.

        Call it before something that is to be certified and cannot be repeated.
        """
        self._keys.current(now=self._now())

    def issue(self, entry: Erased, places: Sequence[PlaceCount], *, pending: bool = False) -> dict[str, Any]:
        """Sign and keep a certificate of what an erasure found, removed and left."""
        now = self._now()
        remarks = remarks_on(self._engines, pending=pending)
        account = Account(entry, self._find_audit(entry.key), self._engines.database, places, pending, remarks)
        unsigned = draft(account, certificate_id=self._new_id(), now=now)
        document = sign(unsigned, self._keys.current(now=now))
        self._objects.put(_name(document["id"]), json.dumps(document, indent=2).encode() + b"\n", absent=True)
        return document

    def certify(self, erasure: Erasure) -> dict[str, Any]:
        """A certificate of an erasure; empty, with a warning, if none can be signed or written now. The erasure stands,
        and the store can be opened.
        """
        if erasure.entry is None:
            return {}
        try:
            return self.issue(erasure.entry, erasure.places, pending=erasure.pending)
        except HoldfastError as problem:
            _log.warning("%s was erased, but no certificate could be issued: %s", erasure.alias, problem)
            return {}

    def list(self, limit: int = 100, *, before: str | None = None) -> list[dict[str, Any]]:
        """The latest certificates, the newest last; with ``before``, the latest of those issued before that one."""
        check_count(limit, "limit", most=_MOST_LISTED)
        names = (name.removeprefix(FOLDER).removesuffix(".json") for name in self._objects.names(FOLDER))
        ids = sorted(one for one in names if is_id(one) and (before is None or one < before))
        return [self.get(one) for one in ids[-limit:]]

    def get(self, certificate_id: str) -> dict[str, Any]:
        """A certificate, as it lies there; ``verify`` says whether it is as it was signed."""
        try:
            return read_certificate(self._read(certificate_id))
        except InvalidInputError as problem:
            raise ObjectDamagedError(
                f"certificate {certificate_id} in {self._objects.url} is damaged: {problem}"
            ) from None

    def page(self, certificate_id: str) -> str:
        """A certificate as a page for people."""
        return readable_page(self.get(certificate_id))

    def verify(
        self, certificate: Mapping[str, Any] | str | bytes, *, public_key: bytes | Sequence[bytes] | None = None
    ) -> Verdict:
        """Whether a certificate (its id, its JSON, or its page) is as it was signed, by a key that you trust.

        Without ``public_key`` it is compared with the keys that this store has ever signed with.
        """
        given = self._read(str(certificate)) if is_id(certificate) else certificate
        if public_key is None:
            verdict = verify_certificate(given)
            if not verdict.signed or verdict.document is None:
                return verdict
            known = self._keys.public(verdict.document["key"]["id"])
            public_key = [] if known is None else [known]
        return verify_certificate(given, public_key=public_key)

    def _read(self, certificate_id: str) -> bytes:
        if not is_id(certificate_id):
            raise NotFoundError(f"there is no certificate {quote(certificate_id)}; see: holdfast certificate list")
        try:
            return self._objects.get(_name(certificate_id))
        except ObjectMissingError:
            raise NotFoundError(f"there is no certificate {certificate_id} in {self._objects.url}") from None


def _name(certificate_id: str) -> str:
    return f"{FOLDER}{certificate_id}.json"
