"""What an obligation works with: an adapter, marks that are nowhere else, and ways to look for them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast_prove.adapter import REQUIRED
from holdfast_prove.elsewhere import Elsewhere

_LETTERS: Final = "bcdfghjklmnpqrtvwxz"
_WORDS: Final = (
    "garden",
    "river",
    "stone",
    "lamp",
    "winter",
    "bread",
    "window",
    "letter",
    "harbour",
    "music",
    "bridge",
)


class BrokenError(Exception):
    """An obligation does not hold; its message says how that was seen."""


class Record(NamedTuple):
    """Something that was stored, with a mark in it that is nowhere else."""

    user_id: str
    id: str
    text: str
    mark: str


@dataclass
class Trial:
    """The system under test: its adapter, which an obligation may replace, and what makes others of it."""

    name: str
    folder: Path
    store: Any
    notes: list[str] = field(default_factory=list)

    def find_mistake(self) -> str | None:
        """What is wrong with the adapter itself, so that its system cannot be judged by it."""
        if lacking := [method for method in REQUIRED if not self.has(method)]:
            return f"it lacks {', '.join(lacking)}"
        record = self.add(new_user())
        record_id: object = record.id
        if not isinstance(record_id, str):
            return f"add returns {record_id!r}; it must return the id of the record, a text"
        for text in [*self.store.search(record.user_id, record.text), self.store.get(record.user_id, record.id)]:
            if not isinstance(text, str | None):
                return f"search or get returns {text!r}; they must return texts of records"
        missing = {"search", "get"} - set(self.ways(record))
        return f"a record that was just added is not found by {' and '.join(sorted(missing))}" if missing else None

    def has(self, *methods: str) -> bool:
        """Whether the adapter has these optional methods."""
        return all(getattr(self.store, method, None) for method in methods)

    def add(self, user_id: str, text: str | None = None, *, many: int = 0) -> Record:
        """Store something new of a user, with so many words beside it."""
        mark = new_mark()
        text = text or f"{user_id} keeps the spare key {many} steps from {mark} and tells nobody"
        if many:
            text += " " + " ".join(_WORDS[secrets.randbelow(len(_WORDS))] for _ in range(many))
        return Record(user_id, self.store.add(user_id, text), text, mark)

    def derive(self, source: Record) -> Record:
        """Store what was made from a record."""
        mark = new_mark()
        text = f"in short: {source.user_id} has a place called {mark}"
        return Record(source.user_id, self.store.derive(source.user_id, source.id, text), text, mark)

    def pair(self, user_id: str | None = None) -> tuple[Record, Record]:
        """A record to forget, and its twin, of one user."""
        user_id = user_id or new_user()
        return self.add(user_id), self.add(user_id)

    def ways(self, record: Record, store: Any = None) -> list[str]:
        """How the mark of a record is found now: by search, by get, or not at all."""
        target = store or self.store
        call = target.call if isinstance(target, Elsewhere) else lambda name, *given: getattr(target, name)(*given)
        found = any(record.mark in text for text in call("search", record.user_id, record.text))
        got = record.mark in (call("get", record.user_id, record.id) or "")
        return [way for way, is_so in (("search", found), ("get", got)) if is_so]

    def check_gone(self, record: Record, when: str, store: Any = None) -> None:
        """That a record is not found by any means."""
        if ways := self.ways(record, store):
            raise BrokenError(f"{when}, it is still found by {' and '.join(ways)}")

    def check_kept(self, record: Record, when: str = "", store: Any = None) -> None:
        """That a record which nobody deleted is found by every means."""
        missing = {"search", "get"} - set(self.ways(record, store))
        if missing:
            lost = " and ".join(sorted(missing, reverse=True))
            raise BrokenError(f"{when or 'afterwards'}, what nobody deleted is not found by {lost} either")

    def maintain(self) -> None:
        """Let time leave its traces, where the adapter knows which."""
        if self.has("maintain"):
            self.store.maintain()

    def reopen(self) -> None:
        """Restart, where the system can."""
        if self.has("reopen"):
            self.store.reopen()


def new_mark() -> str:
    """Letters that are in no other text; their beginning and end may be lost to a text index."""
    return "".join(secrets.choice(_LETTERS) for _ in range(20))


def new_user() -> str:
    """A user of whom nothing is stored yet."""
    return "u" + new_mark()[:11]
