"""Requests that are carried out once: the ``ReplyStore``, and the one transaction that a request's writes join."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import count
from typing import Final

from holdfast.core.content import IdSource
from holdfast.core.errors import StaleError
from holdfast.core.records import Subject
from holdfast.core.times import SECOND
from holdfast.ports.access import REQUEST, Claim, ClaimedError, StoredReply
from holdfast.storage.relational.database import Bindings, Database, Names, Question, Row, Transaction

SQL: Final = Names("access")
#: How long a claim outlives a process that can no longer renew it, by the database's clock.
LEASE: Final = 5 * SECOND
_TRIES: Final = 8


class RequestDatabase:
    """A ``Database`` whose transactions are parts of one, while a request is carried out that must be done once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.groups = database.groups
        self.give_back = database.give_back
        self.scrub = database.scrub
        self.check_usable = database.check_usable
        self.close = database.close
        self.on_commit = database.on_commit
        self.author = database.author

    def _joined(self) -> SqlRequest | None:
        """The request whose transaction writes join, if there is one."""
        request = REQUEST.get()
        if isinstance(request, SqlRequest) and request.is_joined and request.database is self._database:
            return request
        return None

    def read(self, subject: Subject | None = None) -> AbstractContextManager[Transaction]:
        """A view of the store as it is now, with what the request has written."""
        request = self._joined()
        tx = None if request is None else request.transaction
        return self._database.read(subject) if tx is None else nullcontext(tx)

    def ask(self, statement: str, bindings: Bindings = (), *, patience: float | None = None) -> list[Row]:
        """The rows of one statement, with what the request has written."""
        request = self._joined()
        tx = None if request is None else request.transaction
        if tx is not None:
            return tx.rows(statement, bindings)
        return self._database.ask(statement, bindings, patience=patience)

    def write(
        self, subject: Subject | None = None, first: Question | None = None
    ) -> AbstractContextManager[Transaction]:
        """A transaction that writes, or the part of one that this is."""
        request = self._joined()
        return self._database.write(subject, first) if request is None else request.part()

    @contextmanager
    def govern(self, tenant: str) -> Iterator[Transaction]:
        """A transaction, or the part of one, that changes what holds for all of a tenant's users."""
        request = self._joined()
        with self._database.govern(tenant) if request is None else request.part() as tx:
            if request is not None:
                tx.close_gate(tenant)
            yield tx

    @contextmanager
    def alone(self, what: str) -> Iterator[Transaction]:
        """A transaction, or the part of one, that changes what belongs to no tenant."""
        request = self._joined()
        with self._database.alone(what) if request is None else request.part() as tx:
            if request is not None:
                tx.take(what)
            yield tx

    def part(self, tx: Transaction) -> AbstractContextManager[None]:
        """A part of a transaction that stands or falls by itself."""
        return self._database.part(tx)

    @property
    def is_shared(self) -> bool:
        """Whether what is written now is part of a transaction that is not committed yet when its block ends."""
        return self._joined() is not None

    @property
    def usable(self) -> bool:
        """Whether it is open, in the process that opened it."""
        return self._database.usable


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
                tx.later(SQL["keep"], kept)
            elif not tx.run(SQL["keep"], kept):
                raise ClaimedError(self._found(tx) or StoredReply(self._claim.fingerprint, 0, b"", None, True))
        self._commit()

    def release(self) -> None:
        if self._open is None and not self.in_steps:
            return
        with self.part() as tx:
            tx.run(SQL["release"], (self._claim.row, self._claim.token))
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
            row = tx.one(SQL["claim"], (claim.row, claim.fingerprint, claim.token, claim.now, claim.old, LEASE))
            found = self._found(tx) if row is None else StoredReply(*row)
            if found is not None and found.claim != claim.token:
                raise ClaimedError(found)
            if found is not None:
                self.began_at = found.claimed_at
                return
        raise StaleError("the idempotency key keeps being claimed and given back by others; try again")

    def _found(self, tx: Transaction) -> StoredReply | None:
        row = tx.one(SQL["claimed"], (self._claim.row, LEASE, self._claim.old))
        return None if row is None else StoredReply(*row)


class SqlReplies:
    """The ``ReplyStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, row: bytes, *, old: int) -> StoredReply | None:
        found = self._database.ask(SQL["claimed"], (row, LEASE, old))
        return StoredReply(*found[0]) if found else None

    def begin(self, claim: Claim, leased: Callable[[Claim], None], *, joins: bool = True) -> SqlRequest:
        return SqlRequest(self._database, claim, leased, joins=joins)

    def renew(self, claims: Sequence[Claim]) -> None:
        with self._database.write() as tx:
            for claim in sorted(claims):  # in one order, whoever does this
                tx.run(SQL["renew"], (claim.row, claim.token, LEASE))

    def forget(self, old: int, *, limit: int) -> int:
        with self._database.write() as tx:
            return tx.run(SQL["forget"], (old, limit))


class _UndoneError(Exception):
    """A transaction is to be undone."""


def _bits_from(seed: bytes) -> Callable[[int], int]:
    """Bits that look random, and are the same each time."""
    numbers = count()

    def bits(wanted: int) -> int:
        digest = hashlib.sha256(seed + next(numbers).to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big") >> (256 - wanted)

    return bits
