"""Texts that are not to come back: a fingerprint of each under the user's data key, in the store and beside the key.

The store holds every write against its own list. What lies beside the key is for a store that is restored from a
backup of before: it learns from there what was kept out since. Both are erased with the user, and without the key
nothing can be told from a fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from holdfast.core.errors import NotFoundError, quote
from holdfast.core.texts import hash_text
from holdfast.core.values import is_id, iso, to_json
from holdfast.ports.records import KeptText

if TYPE_CHECKING:
    from holdfast.core.records import Outcome, Scope, Subject, Version
    from holdfast.ports.stores import Stores
    from holdfast.privacy.keys.keyring import Keyring
    from holdfast.results.memory import KeptOutResult


class KeepOut:
    """Keeps texts out, lists them and lifts it."""

    def __init__(self, stores: Stores, keyring: Keyring, is_erased: Callable[[str], bool]) -> None:
        self._stores, self._keyring, self._is_erased = stores, keyring, is_erased

    def add(self, subject: Subject, record_id: str, *, now: int, agent: Scope) -> tuple[Outcome, list[str]]:
        """Keep the text of a record out, and recycle all of the user's records that have it: their ids."""
        from holdfast.privacy.sealed_objects import ensure_key

        ensure_key(self._keyring, self._stores.reader.alias(subject) or "", now, self._is_erased)
        return self._stores.kept_out.add(subject, record_id, now=now, note=self._note, agent=agent)

    def _note(self, alias: str, texts: Sequence[KeptText]) -> None:
        for text in texts:
            self._keyring.note_kept_out(alias, text.print, to_json(text._asdict()).encode())

    def leave_out(self, subject: Subject, versions: list[Version]) -> list[Version]:
        """Ended versions of records, without those whose texts are kept out."""
        kept = self.find(subject, [one.content for one in versions])
        return [one for one in versions if one.content not in kept] if kept else versions

    def find(self, subject: Subject, texts: Sequence[str]) -> frozenset[str]:
        """Those of some texts that are kept out."""
        kept = self._stores.kept_out.find(subject, [hash_text(one) for one in texts]) if texts else set()
        return frozenset(one for one in texts if hash_text(one) in kept) if kept else frozenset()

    def list(self, subject: Subject) -> list[KeptOutResult]:
        """The memories whose texts are kept out, the first first."""
        found = {text.memory_id: text for text in self._stores.kept_out.list(subject)}
        return [
            {"memory_id": text.memory_id, "kept_out_at": iso(text.kept_at), "author": text.author}
            for text in found.values()
        ]

    def lift(self, subject: Subject, memory_id: str, *, now: int) -> None:
        """Let the text of a memory come back, whichever one it was kept out for; ``NotFoundError`` if it is not."""
        deleted = self._stores.kept_out.source(subject, memory_id) if is_id(memory_id) else ""
        prints = [text.print for text in self._stores.kept_out.list(subject) if text.memory_id == deleted]
        if prints:  # first: if it is cut short here, the store still knows what is to be lifted again
            self._keyring.forget_kept_out(self._stores.reader.alias(subject) or "", prints)
        if not self._stores.kept_out.lift(subject, deleted, now=now):
            raise NotFoundError(
                f"the text of memory {quote(memory_id)} is not kept out for user {subject.user_id!r}; list what is "
                "with: holdfast kept-out list"
            )

    def replay(self, now: int) -> int:
        """Keep out of a restored store what is noted beside the keys; how many memories went to the recycle bin."""
        notes = self.notes()
        found = self._stores.subjects.having(list(notes)) if notes else []
        return sum(self._stores.kept_out.adopt(subject, notes[alias], now=now) for alias, subject in found)

    def notes(self) -> dict[str, Sequence[KeptText]]:
        """What is noted beside the keys, by the users' pseudonyms."""
        noted = groupby(self._keyring.kept_out(), key=itemgetter(0))
        return {alias: [KeptText(**json.loads(note)) for _, _, note in theirs] for alias, theirs in noted}
