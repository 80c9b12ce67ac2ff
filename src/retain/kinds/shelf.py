"""Where working memory lies: in the process, until its task ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from retain.core.quotas import excess, prune_count, refuse
from retain.core.records import Message, Scope, Usage
from retain.core.types import TYPES, MemoryType


@dataclass
class _Pile:
    alias: str
    """The pseudonym of whom it is: another, or none, and that user was erased."""
    items: dict[str, Message] = field(default_factory=dict)
    size: int = 0

    def usage(self) -> Usage:
        kind = TYPES[MemoryType.WORKING]
        return Usage(len(self.items), self.size, kind.max_memories, kind.max_bytes)

    def put(self, item: Message) -> None:
        self.take(item.id)
        self.items[item.id] = item
        self.size += _size(item)

    def take(self, item_id: str) -> bool:
        item = self.items.pop(item_id, None)
        self.size -= 0 if item is None else _size(item)
        return item is not None


class Shelf:
    """Items of each scope, in their order; nothing of it is ever written down.

    A user may be erased by any process that has the store open, and this one is not told. So whoever gets at a scope
    that has items asks the store for the user's pseudonym first, which is one point read (``alias``); no other scope
    costs anything. ``know`` gives the pseudonym of a user, made if there is none: the first item of someone of whom the
    store has never heard writes that down, so that they can be told to have been erased.
    """

    def __init__(
        self, alias: Callable[[str], str | None] = lambda _subject: "", know: Callable[[str], str] = lambda _subject: ""
    ) -> None:
        self._alias = alias
        self._know = know
        self._piles: dict[Scope, _Pile] = {}
        self._lock = threading.Lock()

    def put(self, scope: Scope, items: Sequence[Message], *, prune: bool) -> tuple[Usage, int]:
        """Add items, or none of them where they exceed the quota; what is there then, and how many old ones went."""
        size = sum(map(_size, items))
        alias = self._look(scope) or self._alias(scope.subject) or self._know(scope.subject)
        with self._lock:
            pile = self._piles.setdefault(scope, _Pile(alias))
            pruned = 0
            while problem := excess(pile.usage(), len(items), size):
                if not prune or not pile.items:
                    raise refuse(MemoryType.WORKING, scope.user_id, problem)
                for item_id in list(pile.items)[: prune_count(len(pile.items))]:
                    pile.take(item_id)
                    pruned += 1
            for item in items:
                pile.put(item)
            return pile.usage(), pruned

    def replace(self, scope: Scope, item: Message) -> bool:
        """Put an item in the place of the one with its id; whether that was there."""
        self._look(scope)
        with self._lock:
            pile = self._piles.get(scope)
            if pile is None or item.id not in pile.items:
                return False
            grown = _size(item) - _size(pile.items[item.id])
            if grown > 0 and (problem := excess(pile.usage(), 0, grown)):
                raise refuse(MemoryType.WORKING, scope.user_id, problem)
            pile.size += grown
            pile.items[item.id] = item
            return True

    def items(self, scope: Scope) -> list[Message]:
        """All items of a scope."""
        self._look(scope)
        with self._lock:
            pile = self._piles.get(scope)
            return [] if pile is None else list(pile.items.values())

    def get(self, scope: Scope, item_id: str) -> Message | None:
        """One item."""
        self._look(scope)
        with self._lock:
            pile = self._piles.get(scope)
            return None if pile is None else pile.items.get(item_id)

    def remove(self, scope: Scope, item_id: str) -> bool:
        """Take one item away; whether it was there."""
        self._look(scope)
        with self._lock:
            pile = self._piles.get(scope)
            return pile is not None and pile.take(item_id)

    def forget(self) -> None:
        """Take everything away."""
        with self._lock:
            self._piles.clear()

    def of_user(self, subject: str) -> list[tuple[Scope, list[Message]]]:
        """All items of a subject, by their scopes."""
        with self._lock:
            theirs = [scope for scope in self._piles if scope.subject == subject]
        return [(scope, self.items(scope)) for scope in theirs]

    def clear_user(self, subject: str) -> int:
        """Take all items of a subject away, whatever the agent and the session; how many there were."""
        with self._lock:
            theirs = [scope for scope in self._piles if scope.subject == subject]
            return sum(len(self._piles.pop(scope).items) for scope in theirs)

    def clear(self, scope: Scope) -> int:
        """Take all items of a scope away; how many there were."""
        with self._lock:
            pile = self._piles.pop(scope, None)
            return 0 if pile is None else len(pile.items)

    def _look(self, scope: Scope) -> str | None:
        """Whose a scope is, if it has items; those of a user who was erased go."""
        pile = self._piles.get(scope)
        if pile is None or self._alias(scope.subject) == pile.alias:
            return None if pile is None else pile.alias
        with self._lock:
            if self._piles.get(scope) is pile:
                del self._piles[scope]
        return None


def _size(item: Message) -> int:
    return len(item.content.encode())
