"""A fuse: lets an engine die before its n-th effect on the world, and stay dead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from holdfast import Holdfast
from holdfast.storage.objects.local import LocalObjects
from holdfast.storage.sqlite.database import SqliteDatabase


class DeathError(BaseException):
    """The process is no more. Not an ``Exception``: nothing that lives on may catch it."""


class Fuse:
    """Counts effects (transactions, objects written, objects deleted) and burns through before one of them.

    To die after an effect is to die before the next one. Once it is dead an engine has no effects at all. Instead of
    dying, something else can happen at that moment: ``instead``; what that makes of the effect is the engine's to see.
    With ``everywhere``, all that is written into folders is counted, keys, ledger and backups too; and a transaction
    when it is about to be committed, after all that was written elsewhere meanwhile; or with ``after``, once the server
    has committed it, and nobody heard of that. Of a server that goes away, a look at it is counted, too.
    """

    def __init__(
        self,
        holdfast: Holdfast,
        burns_at: int,
        instead: Callable[[], None] | None = None,
        *,
        everywhere: bool = False,
        after: bool = False,
    ) -> None:
        self.is_dead = False
        self.is_lit = True
        """While it is not, effects are not counted."""
        self.last = ""
        self._count = 0
        self._burns_at = burns_at
        self._instead = instead
        database: Any = holdfast.database
        objects: Any = LocalObjects if everywhere else holdfast.services.objects()
        self._guarded: list[tuple[Any, str, Any]] = []
        if isinstance(database, SqliteDatabase):
            late = everywhere and instead is None
            effect = database.write  # govern and alone are the same
            self._guard(database, "write", self._at_commit(effect) if late else self._before("a transaction", effect))
        elif everywhere:
            self._guard(database, "_end", self._at_end(database._end, after=after))
            if instead is not None:
                self._guard(database, "read", self._within(database.read))
        else:
            for name in ("write", "govern", "alone"):
                self._guard(database, name, self._before("a transaction", getattr(database, name)))
        for name in ("put", "delete"):
            self._guard(objects, name, self._before(f"a {name}", getattr(objects, name)))

    def _guard(self, owner: Any, name: str, guarded: Any) -> None:
        self._guarded.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, guarded)

    def remove(self) -> None:
        """Let the engine's effects be its own again."""
        for owner, name, own in self._guarded:
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)

    def _at_commit(
        self, begin: Callable[..., AbstractContextManager[Any]]
    ) -> Callable[..., AbstractContextManager[Any]]:
        @contextmanager
        def guarded(*arguments: Any, **options: Any) -> Iterator[Any]:
            with begin(*arguments, **options) as tx:
                yield tx
                self.burn("a transaction")

        return guarded

    def _at_end(self, end: Callable[[Any], None], *, after: bool) -> Callable[[Any], None]:
        def guarded(tx: Any) -> None:
            if not after:
                self.burn("a transaction")
            end(tx)
            if after and self.burn("an answer"):
                tx.connection.execute(b"SELECT 1")  # whoever waits for the answer finds the server gone

        return guarded

    def _within(self, begin: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
        @contextmanager
        def guarded(*arguments: Any, **options: Any) -> Iterator[Any]:
            with begin(*arguments, **options) as tx:
                self.burn("a look")
                yield tx

        return guarded

    def _before(
        self, what: str, effect: Callable[..., AbstractContextManager[Any] | None]
    ) -> Callable[..., AbstractContextManager[Any] | None]:
        def guarded(*arguments: Any, **options: Any) -> AbstractContextManager[Any] | None:
            self.burn(what)
            return effect(*arguments, **options)

        return guarded

    def burn(self, what: str) -> bool:
        """An effect is about to happen; whether the fuse burns through at it."""
        self._count += self.is_lit
        is_now = self.is_lit and self._count == self._burns_at + 1
        if is_now:
            self.last = what
            if self._instead is None:
                self.is_dead = True
            else:
                self._instead()
        if self.is_dead:
            raise DeathError(what)
        return is_now
