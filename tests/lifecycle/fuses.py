"""A fuse: lets an engine die before or after its n-th effect on the world, and stay dead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from retain import Retain


class DeathError(BaseException):
    """The process is no more. Not an ``Exception``: nothing that lives on may catch it."""


class Fuse:
    """Counts effects (a transaction that begins and one that was committed, an object written or deleted, each before
    and after it happened) and burns through at one of them. From then on there are no effects at all.
    """

    def __init__(self, retain: Retain, burns_at: int) -> None:
        self.count = 0
        self.is_dead = False
        self.last = ""
        self._burns_at = burns_at
        database: Any = retain.database
        database.write = self._around_transactions(database.write)
        objects: Any = retain.parts.objects()
        objects.put = self._around("put", objects.put)
        objects.delete = self._around("delete", objects.delete)

    def _pass(self, what: str) -> None:
        if not self.is_dead and self.count == self._burns_at:
            self.is_dead, self.last = True, what
        self.count += 1
        if self.is_dead:
            raise DeathError(what)

    def _around_transactions(
        self, write: Callable[[], AbstractContextManager[Any]]
    ) -> Callable[[], AbstractContextManager[Any]]:
        @contextmanager
        def transaction() -> Iterator[Any]:
            self._pass("before a transaction")
            with write() as connection:
                yield connection
                self._pass("before a commit")
            self._pass("after a commit")

        return transaction

    def _around(self, what: str, verb: Callable[..., None]) -> Callable[..., None]:
        def effect(name: str | Sequence[str], *rest: Any) -> None:
            self._pass(f"before a {what}")
            verb(name, *rest)
            self._pass(f"after a {what}")

        return effect
