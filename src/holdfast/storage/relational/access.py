"""Who may do what, and what was done once: the ``KeyStore`` and the ``ReplyStore`` of a relational engine.

A request that must be done once is one transaction: what the stores write meanwhile joins it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.access import ApiKey, Right, list_rights
from holdfast.core.clock import IdSource
from holdfast.core.errors import StaleError
from holdfast.core.records import ALL, Subject
from holdfast.core.values import SECOND, to_json
from holdfast.ports.coordination import REQUEST, Claim, ClaimedError, ConsoleJob, StoredReply
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import (
    Bindings,
    Database,
    Question,
    R,
    RowType,
    SqlStore,
    Transaction,
    Transactions,
)

if TYPE_CHECKING:
    from holdfast.core.audit import Event

#: Whose chain has what happens to the keys of operators, who are of no tenant.
_OPERATORS_CHAIN: Final = "default"
#: How long a claim outlives a process that can no longer renew it, by the database's clock.
LEASE: Final = 5 * SECOND
_TRIES: Final = 8


class KeyRow(NamedTuple):
    """An API key, as it is stored; lists are JSON."""

    id: str
    tenant: str
    name: str
    rights: str
    users: str | None
    agents: str | None
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None
    hashed: bytes


class BoundKey(NamedTuple):
    """An API key that is for some users."""

    id: str
    users: str


class SqlKeys(SqlStore):
    """The ``KeyStore`` of the relational engines."""

    def add(self, key: ApiKey, hashed: bytes, event: Event) -> None:
        with self._database.write() as tx:
            bounds = (to_json(list_rights(key.rights)), _list_ids(key.users), _list_ids(key.agents))
            tx.run("access.add", (key.id, key.tenant, key.name, *bounds, key.created_at, key.expires_at, hashed))
            _note(tx, key, event)

    def get(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        found = self._database.ask(KeyRow, "access.get", (key_id,))
        return next(((_parse_key(row), bytes(row.hashed)) for row in found), None)

    def list(self, tenant: str | None = None) -> list[ApiKey]:
        return [_parse_key(row) for row in self._database.ask(KeyRow, "access.list", (tenant,))]

    def revoke(self, key_id: str, *, now: int, event: Event) -> ApiKey | None:
        with self._database.write() as tx:
            if not tx.run("access.revoke", (key_id, now)):
                return None
            (row,) = tx.all(KeyRow, "access.get", (key_id,))
            _note(tx, key := _parse_key(row), event)
            return key

    def note_use(self, key_id: str, *, now: int) -> None:
        self._change("access.note_use", key_id, now)

    def any(self, *, now: int) -> bool:
        return self._database.ask(int, "access.valid", (now,)) > [0]


class SqlSignIns(SqlStore):
    """The ``SignInStore`` of the relational engines."""

    def add(self, hashed: bytes, key_id: str, *, now: int, until: int) -> None:
        with self._database.write() as tx:
            tx.run("access.sign_out", (hashed, now))  # what is over goes, so that they do not pile up
            tx.run("access.sign_in", (hashed, key_id, until))

    def find(self, hashed: bytes, *, now: int) -> ApiKey | None:
        row = self._find(KeyRow, "access.signed_in", hashed, now)
        return None if row is None else _parse_key(row)

    def end(self, hashed: bytes, *, now: int) -> None:
        self._change("access.sign_out", hashed, now)


class SqlConsoleJobs(SqlStore):
    """The ``ConsoleJobStore`` of the relational engines."""

    def save(self, job_id: str, owner: bytes, said: str, content: str | None, *, now: int, is_nameless: bool) -> None:
        self._change("access.keep_console_job", job_id, owner, said, content, now, int(is_nameless))

    def find(self, job_id: str, owner: bytes) -> ConsoleJob | None:
        row = self._find(ConsoleJob, "access.console_job", job_id, owner)
        return None if row is None else row._replace(is_cleared=bool(row.is_cleared))

    def forget(self, before: int) -> int:
        return self._change("access.forget_console_jobs", before)


def unbind(tx: Transaction, tenant: str, user_id: str) -> int:
    """Let no key name a user any more; how many did. One that was for nobody else is removed: it must not become one
    for everybody.
    """
    keys = tx.all(BoundKey, "access.bound_to", (tenant, user_id))
    for key in keys:
        others = [one for one in json.loads(key.users) if one != user_id]
        tx.run("access.bind", (key.id, to_json(others))) if others else tx.run("access.remove", (key.id,))
    return len(keys)


def _note(tx: Transaction, key: ApiKey, event: Event) -> None:
    tenant = _OPERATORS_CHAIN if key.tenant == ALL else key.tenant
    append(tx, tx.number_for(Subject(tenant)), [event])


def _list_ids(ids: Iterable[str] | None) -> str | None:
    return None if ids is None else to_json(sorted(ids))


def _parse_key(row: KeyRow) -> ApiKey:
    rights = frozenset(map(Right, json.loads(row.rights)))
    moments = (row.created_at, row.expires_at, row.revoked_at, row.last_used_at)
    return ApiKey(row.id, row.tenant, row.name, rights, _parse_ids(row.users), _parse_ids(row.agents), *moments)


def _parse_ids(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(json.loads(text))


#: The transaction that all stores of a database write in just now, and that database.
_TOGETHER: ContextVar[tuple[Database, Transaction] | None] = ContextVar("together", default=None)


class RequestDatabase:
    """``Transactions`` that are parts of one, while a request is carried out that must be done once, or several stores
    write together.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.groups = database.groups
        self.give_back = database.give_back
        self.scrub = database.scrub

    def _request(self) -> SqlRequest | None:
        """The request whose transaction writes join, if there is one."""
        request = REQUEST.get()
        if isinstance(request, SqlRequest) and request.is_joined and request.database is self._database:
            return request
        return None

    def read(self, subject: Subject | None = None) -> AbstractContextManager[Transaction]:
        """A view of the store as it is now, with what the request has written."""
        tx = self._transaction()
        return self._database.read(subject) if tx is None else nullcontext(tx)

    def ask(
        self, row: RowType[R], statement: str, bindings: Bindings = (), *, patience: float | None = None
    ) -> list[R]:
        """The rows of one statement, with what the request has written."""
        tx = self._transaction()
        if tx is not None:
            return tx.all(row, statement, bindings)
        return self._database.ask(row, statement, bindings, patience=patience)

    def write(
        self, subject: Subject | None = None, first: Question | None = None, ahead: Sequence[Question] = ()
    ) -> AbstractContextManager[Transaction]:
        """A transaction that writes, or the part of one that this is."""
        if REQUEST.get() is None and _TOGETHER.get() is None:  # nearly always
            return self._database.write(subject, first, ahead)
        request, together = self._request(), self._together()
        if together is not None:
            return nullcontext(together)
        return self._database.write(subject, first, ahead) if request is None else request.part()

    @contextmanager
    def together(self, subject: Subject) -> Iterator[None]:
        """What the stores of this database write for a subject in the block is one transaction."""
        if self.is_shared:
            yield
            return
        with self._database.write(subject) as tx:
            token = _TOGETHER.set((self._database, tx))
            try:
                yield
            finally:
                _TOGETHER.reset(token)

    def _together(self) -> Transaction | None:
        found = _TOGETHER.get()
        return found[1] if found is not None and found[0] is self._database else None

    def _transaction(self) -> Transaction | None:
        """The transaction that a look is part of, because what it has written is to be seen."""
        if REQUEST.get() is None and _TOGETHER.get() is None:  # nearly always
            return None
        request = self._request()
        return self._together() if request is None else request.transaction

    @contextmanager
    def govern(self, tenant: str) -> Iterator[Transaction]:
        """A transaction, or the part of one, that changes what holds for all of a tenant's users."""
        request = self._request()
        with self._database.govern(tenant) if request is None else request.part() as tx:
            if request is not None:
                tx.lock_tenant(tenant)
            yield tx

    @contextmanager
    def alone(self, what: str) -> Iterator[Transaction]:
        """A transaction, or the part of one, that changes what belongs to no tenant."""
        request = self._request()
        with self._database.alone(what) if request is None else request.part() as tx:
            if request is not None:
                tx.lock(what)
            yield tx

    @property
    def is_shared(self) -> bool:
        """Whether what is written now is part of a transaction that is not committed yet when its block ends."""
        return self._request() is not None or self._together() is not None

    @property
    def writers(self) -> int:
        """How many transactions can write at the same time: within one, none beside it."""
        return 1 if self.is_shared else self._database.writers


def write_together(database: Transactions, subject: Subject) -> AbstractContextManager[None]:
    """What the stores over a database write for a subject in the block is one transaction."""
    return database.together(subject) if isinstance(database, RequestDatabase) else nullcontext()


class SqlRequest:
    """The ``OnceRequest`` of the relational engines.

    The transaction begins with the first write, so that nothing is locked while a request is being read and embedded.
    It begins with the claim: whoever sends the same request meanwhile waits there, and then finds the reply.
    """

    def __init__(self, database: Database, claim: Claim, leased: Callable[[Claim], None], *, joins: bool) -> None:
        self.database = database
        self.began_at = claim.now
        self.in_steps = False
        self.is_joined = True
        self._claim = claim
        self._leased = leased
        self._joins = joins
        self._open: tuple[ExitStack, Transaction] | None = None
        self._ids = IdSource(_bits_from(claim.seed))

    @property
    def transaction(self) -> Transaction | None:
        """The transaction, once something was written."""
        return None if self._open is None else self._open[1]

    @contextmanager
    def part(self) -> Iterator[Transaction]:
        """A transaction's worth of writes: they stay together, and are undone together if the block raises."""
        if self._open is not None:
            _, tx = self._open
            with self.database.part(tx):
                yield tx
            return
        with ExitStack() as stack:
            tx = stack.enter_context(self.database.write())
            if not self.in_steps:
                self._take(tx)
            yield tx
            self._open = stack.pop_all(), tx

    def begin_steps(self) -> None:
        if self._open is not None:
            raise RuntimeError("the request has written before it said that it takes several transactions")
        if not self.in_steps:
            with self.database.write() as tx:
                self._take(tx)
            self.in_steps = True
            self._leased(self._claim)
        self.is_joined = False

    def join_rest(self) -> None:
        self.is_joined = self.is_joined or self._joins

    def new_ids(self, count: int) -> list[str]:
        return [self._ids.next(self.began_at) for _ in range(count)]

    def keep(self, reply: bytes) -> None:
        with self.part() as tx:
            kept = (self._claim.row, self._claim.token, reply)
            if not self.in_steps:
                tx.later("access.keep", kept)
            elif not tx.run("access.keep", kept):
                raise ClaimedError(self._find(tx) or StoredReply(self._claim.fingerprint, 0, b"", None, True))
        self._commit()

    def release(self) -> None:
        if self._open is None and not self.in_steps:
            return
        with self.part() as tx:
            tx.run("access.release", (self._claim.row, self._claim.token))
        self._commit()

    def abandon(self) -> None:
        self.is_joined = False
        opened, self._open = self._open, None
        if opened is not None:
            with suppress(_UndoneError), opened[0]:
                raise _UndoneError

    def _commit(self) -> None:
        self.is_joined = False  # what is done because of the commit is done by itself
        opened, self._open = self._open, None
        if opened is not None:
            opened[0].close()

    def _take(self, tx: Transaction) -> None:
        """Claim the request, or raise ``ClaimedError``."""
        claim = self._claim
        for _ in range(_TRIES):  # what is there may be given back before it is read
            values = (claim.row, claim.fingerprint, claim.token, claim.now, claim.old, LEASE)
            found = tx.find(StoredReply, "access.claim", values) or self._find(tx)
            if found is not None and found.claim != claim.token:
                raise ClaimedError(found)
            if found is not None:
                self.began_at = found.claimed_at
                return
        raise StaleError("the idempotency key keeps being claimed and given back by others; try again")

    def _find(self, tx: Transaction) -> StoredReply | None:
        return tx.find(StoredReply, "access.claimed", (self._claim.row, LEASE, self._claim.old))


class SqlReplies(SqlStore):
    """The ``ReplyStore`` of the relational engines."""

    _database: Database

    def find(self, row: bytes, *, old: int) -> StoredReply | None:
        return self._find(StoredReply, "access.claimed", row, LEASE, old)

    def begin(self, claim: Claim, leased: Callable[[Claim], None], *, joins: bool = True) -> SqlRequest:
        return SqlRequest(self._database, claim, leased, joins=joins)

    def renew(self, claims: Sequence[Claim]) -> None:
        with self._database.write() as tx:
            for claim in sorted(claims):  # in one order, whoever does this
                tx.run("access.renew", (claim.row, claim.token, LEASE))

    def forget(self, old: int, *, limit: int) -> int:
        return self._change("access.forget", old, limit)


class _UndoneError(Exception):
    """A transaction is to be undone."""


def _bits_from(seed: bytes) -> Callable[[int], int]:
    """Bits that look random, and are the same each time."""
    numbers = count()

    def bits(wanted: int) -> int:
        digest = hashlib.sha256(seed + next(numbers).to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big") >> (256 - wanted)

    return bits
