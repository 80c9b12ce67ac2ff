"""Corrections: a memory says something else from now on; what it said ends, and can be looked at and brought back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.errors import InvalidInputError, NotFoundError, StaleError, quote
from holdfast.core.records import TYPES, Kind, MemoryType, Record, Scope, Version
from holdfast.core.texts import normalize_text
from holdfast.core.values import Origin, agent_source, check_content, check_count, check_id, iso, to_json
from holdfast.memory.records import TRIES, Changed, Draft, DurableRecords, NamedDraft
from holdfast.memory.user_data import refuse_kind

if TYPE_CHECKING:
    from holdfast.ports.records import Added, PutOutcome
    from holdfast.results.memory import VersionResult

ENTITY_VERBS: Final = "use memory.entity.add, set and relate"
_MAX_REASON_BYTES: Final = 1_000
_MAX_VERSION: Final = 2**31 - 1
Changes = Callable[[Record], dict[str, Any]]


class Corrections:
    """The versions of the records that a scope selects. The age of one that is corrected counts anew."""

    def __init__(self, records: DurableRecords) -> None:
        self._records, self._services, self._scope = records, records.services, records.scope

    def put(self, kind: Kind, draft: Draft, key: str, *, prune: bool) -> tuple[PutOutcome, Added]:
        """Write a draft under a key; where a record goes by that, as that one's new version."""
        name = name_of(self._scope, kind, key)
        named = NamedDraft(name, replace(draft, name=name))
        (outcome,), added = self._records.put_named(kind.name, [named], prune=prune)
        return outcome, added

    def find_restated(self, kind: Kind, draft: Draft, key: str) -> Record | None:
        """The live record that goes by a key, if it has the text of a draft already."""
        there = self._records.named(kind.name, name_of(self._scope, kind, key))
        is_same = there is not None and normalize_text(there.content) == normalize_text(draft.content)
        return there if is_same else None

    def supersede(self, kind: Kind, draft: Draft, supersedes: str, key: str | None) -> Changed:
        """Write a draft as the new version of a record, which goes by a key from then on, if one is given."""
        name = draft.name if key is None else name_of(self._scope, kind, key)

        def changes(record: Record) -> dict[str, Any]:
            said = {"content": draft.content, "metadata": draft.metadata, **self._said_by(draft.origin, record)}
            return said if name is None else {**said, "name": name}

        record = self._records.read(supersedes)
        if record.kind is not kind.name:
            raise InvalidInputError(
                f"memory {record.id} is {record.kind} memory, which {kind.name} memory does not supersede; add this as "
                f"{record.kind} memory"
            )
        return self._change(record, changes)

    def correct(self, record: Record, changes: Changes, reason: str | None) -> Changed:
        """Change a record, for a reason that a caller gives; it comes from this scope's agent from now on."""
        why = None if reason is None else check_content(reason, "reason", max_bytes=_MAX_REASON_BYTES)

        def all_changes(record: Record) -> dict[str, Any]:
            return {**changes(record), **self._said_by(Origin(None, record.derived_from), record)}

        return self._change(record, all_changes, why)

    def revert(self, memory_id: str, to: int) -> Changed:
        """Let a record say what it said in an ended version."""
        record = self._records.read(memory_id)
        if record.kind is MemoryType.ENTITY:
            raise refuse_kind(TYPES[record.kind], "reverted as text", ENTITY_VERBS)
        check_count(to, "to", most=_MAX_VERSION)
        known = {version.version: version for version in self.ended(record)}
        if to not in known:
            seen = ", ".join(map(str, known)) or "none"
            raise NotFoundError(f"memory {memory_id} has no ended version {to} in its history; there are: {seen}")
        then = known[to].of(record)
        said = {name: getattr(then, name) for name in ("content", "metadata", "source", "derived_from")}
        return self._change(record, lambda _record: said, f"reverted to version {to}")

    def _change(self, record: Record, changes: Changes, reason: str | None = None) -> Changed:
        """Write a new version of a live record, whatever others write meanwhile."""
        for _ in range(TRIES):
            with suppress(StaleError):
                return self._records.change(record, from_cold=True, renew=True, reason=reason, **changes(record))
            record = self._records.read(record.id)
        raise StaleError(f"memory {record.id} keeps changing; try again")

    def _said_by(self, origin: Origin, record: Record) -> dict[str, Any]:
        """Where a new version of a record comes from: as was said, or from this scope's agent."""
        said = Origin(origin.source or agent_source(self._scope.agent_id), origin.derived_from or ())
        return said.fields(record.scope.agent_id)

    # --- what was said before -----------------------------------------------------------------------------------------

    def history(self, memory_id: str | None, key: str | None, kind: Kind) -> list[VersionResult]:
        """All versions of a record, given by its id or its key, oldest first."""
        record = self._records.read(memory_id) if memory_id is not None else None
        if (record is None) == (key is None):
            raise InvalidInputError("give the id of a memory or its key: one of the two")
        if record is None:
            check_versioned(kind, key)
            record = self._records.named(kind.name, name_of(self._scope, kind, key))
        if record is None:
            raise NotFoundError(f"no {kind.name} memory of user {self._scope.user_id!r} goes by the key {quote(key)}")
        return [*(version_result(record, version) for version in self.ended(record)), version_result(record)]

    def at(self, record: Record, when: int) -> Record:
        """A record as it was at a moment; ``NotFoundError`` if it said nothing then, or that is no longer kept."""
        if record.updated_at <= when:
            return record
        for version in self.ended(record):
            if version.started_at <= when < version.ended_at:
                return version.of(record)
        raise NotFoundError(f"memory {record.id} has no version of {iso(when)}; see what is kept with: history()")

    def ended(self, record: Record) -> list[Version]:
        """The ended versions of a record that are kept, oldest first."""
        if record.revision == 1:
            return []
        ended = self._services.versions.ended(self._scope.subject, record.id, now=self._services.now())
        return self._services.keep_out.leave_out(self._scope.subject, ended)


def name_of(scope: Scope, kind: Kind, key: object) -> str:
    """The name of the record that goes by a key: of some kinds, each agent has its own."""
    checked = check_id(key, "key")
    return to_json([scope.agent_id, checked]) if "agent" in kind.scope else checked


def check_versioned(kind: Kind, key: str | None) -> None:
    """``InvalidKindError`` for a kind that takes no key, or none of whose memories is superseded."""
    if not kind.durable:
        raise refuse_kind(kind, "given a key, or supersede another", "it is gone soon; leave that out")
    if kind.name is MemoryType.ENTITY:
        raise refuse_kind(kind, "given a key, or supersede another", ENTITY_VERBS)
    if kind.name is MemoryType.STRUCTURED and key is not None:
        raise refuse_kind(kind, "given a key of its own", "use memory.structured.put, or name the key in the metadata")


def version_result(record: Record, ended: Version | None = None) -> VersionResult:
    """The current version of a record, or one that has ended, as callers see it."""
    then = record if ended is None else ended.of(record)
    return {
        "version": then.revision,
        "content": then.content,
        "metadata": then.metadata,
        "source": then.written_by,
        "derived_from": list(then.derived_from),
        "started_at": iso(then.updated_at),
        "ended_at": None if ended is None else iso(ended.ended_at),
        "ended_by": None if ended is None else ended.ended_by,
        "reason": None if ended is None else ended.reason,
    }
