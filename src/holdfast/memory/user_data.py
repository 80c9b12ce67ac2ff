"""What concerns all of a user's memory, whichever agent it is with: exported, deleted, erased, archived."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import InvalidKindError, LeaseLostError
from holdfast.core.records import ALL, TYPES, Archive, Kind, MemoryType, Scope, State, Subject, kind_of
from holdfast.lifecycle.bulk_delete import Cleared, clear_conversations, counted
from holdfast.memory.records import clear_kind

if TYPE_CHECKING:
    from holdfast.core.decisions import Decision
    from holdfast.memory.services import Services
    from holdfast.results.lifecycle import ExportResult
    from holdfast.results.memory import KeptOutResult

_log = logging.getLogger("holdfast.memory")
MemoryKind = MemoryType | str


class UserData:
    """The verbs of a memory that concern all of a user, or of a kind."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services, self._scope = services, scope

    def delete_user_memories(self, user_id: str, memory_type: MemoryKind | None = None) -> int:
        """Send everything of a user, or all of one kind, to the recycle bin, whichever agent it is with; how many.

        Working and short-term memory is gone at once; conversations go with short-term memory, into the bin. What a
        hold covers stays; ``HeldError`` if that is all there is.
        """
        subject = Scope.check(self._scope.tenant, user_id, "anyone").subject
        kinds = list(TYPES.values()) if memory_type is None else [kind_of(memory_type)]
        cleared = [self._clear(subject, kind) for kind in kinds]
        total = Cleared(sum(one.moved for one in cleared), sum(one.held for one in cleared))
        what, whose = "all kinds" if memory_type is None else kinds[0].name, self._services.pseudonym(subject)
        _log.info("deleted %d memories of user %s (%s); holds kept %d", total.moved, whose, what, total.held)
        return counted(total, user_id)

    def kept_out(self) -> list[KeptOutResult]:
        """The memories of this user that were deleted with ``keep_out``, whichever agent they were with: their texts do
        not come back. The texts themselves are not kept.
        """
        self._services.check()
        return self._services.keep_out.list(self._scope.subject)

    def lift(self, memory_id: str) -> None:
        """Let the text of a memory that was deleted with ``keep_out`` come back: it can be written again, and while the
        memory is in the recycle bin, it can be restored.
        """
        self._services.keep_out.lift(self._scope.subject, memory_id, now=self._services.now())

    def gdpr_export_user_data(self, user_id: str) -> ExportResult:
        """Everything that is held on a user, whichever agent it is with: ``user_id``, ``export_date``, ``memories`` by
        kind, and beside them conversations, facts, rules, holds and what the audit chain says.
        """
        return self._services.exports.export(self._scope.tenant, user_id)

    def export_kind(self, user_id: str, memory_type: MemoryKind) -> list[dict[str, Any]]:
        """All of a user's memories of a durable kind, whole, in whatever state, whichever agent they are with."""
        kind = kind_of(memory_type)
        if not kind.durable:
            raise refuse_kind(kind, "exported by itself", "use gdpr_export_user_data")
        return self._services.exports.of_kind(self._scope.tenant, user_id, kind.name)

    def gdpr_delete_user_data(self, user_id: str) -> dict[str, int]:
        """Erase a user: everything of all kinds, with all agents, in every place, past the recycle bin, for good.

        How many memories of each kind there were. ``HeldError`` while a hold stands on anything of theirs. What became
        of each place, and the certificate, is in the answer of ``holdfast.erase_user``.
        """
        subject = Scope.check(self._scope.tenant, user_id, "anyone").subject
        return dict(self._services.erase(subject).kinds)

    def archive_due(self, memory_type: MemoryKind) -> int:
        """Archive what is due of a kind now, without waiting for a sweep; how many memories."""
        from holdfast.lifecycle.sweeping.due import Extent, SweepOrder
        from holdfast.lifecycle.sweeping.sweep import Sweeper

        kind = kind_of(memory_type)
        if kind.archive is None:
            raise refuse_kind(kind, "archived", "it is kept as it is")
        subject = None if self._scope.user_id == ALL else self._scope.subject
        extent = Extent(frozenset({kind.name.value}), frozenset({State.ARCHIVED}), bin=False, subject=subject)
        sweeper = Sweeper(self._services.tenant(self._scope.tenant), self._services.archives)
        leadership = self._services.leadership
        with leadership.held() as lease:
            if lease is None:
                raise LeaseLostError(f"nothing was archived: {leadership.other()}; try again when it is done")
            now = self._services.now()
            upto = self._services.trust.note(now).until(now)
            order = SweepOrder(now, upto, extent, lease=lambda: leadership.lease, note=_log_archived)
            archived = sweeper.apply(order).counts["archive"]
        _log.info("archived %d %s memories that were old enough", archived, kind.name)
        return archived

    def _clear(self, subject: Subject, kind: Kind) -> Cleared:
        if kind.name is MemoryType.WORKING:
            return Cleared(self._services.working.clear_user(subject), 0)
        if kind.name is MemoryType.SHORT_TERM:
            from holdfast.lifecycle.session_parts import SessionParts

            parts = SessionParts(self._services.tenant(subject.tenant))
            parts.refresh(user_id=subject.user_id)
            cleared = clear_conversations(self._services.history, subject, now=self._services.now())
            parts.follow()
            return cleared
        return clear_kind(self._services, subject, kind.name)


def _log_archived(decision: Decision) -> None:
    where = "cold storage" if TYPES[MemoryType(decision.kind)].archive is Archive.COLD else "its summary"
    _log.info("archived memory %s (%s) to %s", decision.id, decision.kind, where)


def refuse_kind(kind: Kind, verb: str, instead: str) -> InvalidKindError:
    """The error for a verb that a kind does not have."""
    return InvalidKindError(f"{kind.name} memory cannot be {verb}; {instead}")


def keep_durable(kinds: list[Kind], *, named: bool) -> list[Kind]:
    """Those of some kinds that have versions; ``InvalidKindError`` for another that a caller has named."""
    for kind in kinds:
        if named and not kind.durable:
            raise refuse_kind(kind, "recalled as of a moment", "leave it out, or as_of")
    return [kind for kind in kinds if kind.durable]
