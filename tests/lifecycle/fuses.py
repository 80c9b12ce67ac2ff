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

    To die after an effect is to die before the next one. Once it is dead an engine has no effects at all. Instead of
    dying, something else can happen at that moment: ``instead``; what that makes of the effect is the engine's to see.
    """

    def __init__(self, holdfast: Holdfast, burns_at: int, instead: Callable[[], None] | None = None) -> None:
        self.is_dead = False
        self.last = ""
        self._count = 0
        self._burns_at = burns_at
        self._instead = instead
        database: Any = holdfast.database
        objects: Any = holdfast.services.objects()
        # on SQLite, the other two are the first
        names = ("write",) if isinstance(database, SqliteDatabase) else ("write", "govern", "alone")
        self._guarded = [(database, name, "a transaction") for name in names]
        self._guarded += [(objects, "put", "a put"), (objects, "delete", "a delete")]
        for owner, name, what in self._guarded:
            setattr(owner, name, self._before(what, getattr(owner, name)))

    def remove(self) -> None:
        """Let the engine's effects be its own again."""
        for owner, name, _ in self._guarded:
            delattr(owner, name)

    def _before(
        self, what: str, effect: Callable[..., AbstractContextManager[Any] | None]
    ) -> Callable[..., AbstractContextManager[Any] | None]:
        def guarded(*arguments: Any, **options: Any) -> AbstractContextManager[Any] | None:
            self.burn(what)
            return effect(*arguments, **options)

        return guarded

    def burn(self, what: str) -> None:
        """An effect is about to happen."""
        self._count += 1
        if self._count == self._burns_at + 1:
            self.last = what
            if self._instead is None:
                self.is_dead = True
            else:
                self._instead()
        if self.is_dead:
            raise DeathError(what)
