"""A fuse: lets an engine die before its n-th effect on the world, and stay dead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from holdfast import Holdfast
from holdfast.storage.sqlite.database import SqliteDatabase


class DeathError(BaseException):
    """The process is no more. Not an ``Exception``: nothing that lives on may catch it."""


class Fuse:
    """Counts effects (transactions, objects written, objects deleted) and burns through before one of them.

    To die after an effect is to die before the next one. Once it is dead an engine has no effects at all.
    """

    def __init__(self, holdfast: Holdfast, burns_at: int) -> None:
        self.is_dead = False
        self.last = ""
        self._count = 0
        self._burns_at = burns_at
        database: Any = holdfast.database
        # on SQLite, the other two are the first
        for name in ("write",) if isinstance(database, SqliteDatabase) else ("write", "govern", "alone"):
            setattr(database, name, self._before("a transaction", getattr(database, name)))
        objects: Any = holdfast.services.objects()
        objects.put = self._before("a put", objects.put)
        objects.delete = self._before("a delete", objects.delete)

    def _before(
        self, what: str, effect: Callable[..., AbstractContextManager[Any] | None]
    ) -> Callable[..., AbstractContextManager[Any] | None]:
        def guarded(*arguments: Any) -> AbstractContextManager[Any] | None:
            self.burn(what)
            return effect(*arguments)

        return guarded

    def burn(self, what: str) -> None:
        """An effect is about to happen."""
        if self._count == self._burns_at:
            self.is_dead, self.last = True, what
        self._count += 1
        if self.is_dead:
            raise DeathError(what)
