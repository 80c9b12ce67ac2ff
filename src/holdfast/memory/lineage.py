"""Where a user's memories came from, and what was derived from them: shown, removed and brought back with it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from holdfast.core.decisions import RecordFacts, find_hold, held_error
from holdfast.core.errors import StaleError
from holdfast.core.filters import MISSING, Filter, matches, value_at
from holdfast.core.records import LIVE, Cause, MemoryType, Outcome, Record
from holdfast.core.values import is_id
from holdfast.lifecycle.bulk_delete import descendants, recycle_together
from holdfast.lifecycle.holds import record_facts

if TYPE_CHECKING:
    from holdfast.memory.records import DurableRecords
    from holdfast.ports.records import Written
    from holdfast.recall.index import SearchOptions

_log = logging.getLogger("holdfast.lineage")
_PAGE: Final = 1_000


class Lineage:
    """The lineage of the records that a scope selects.

    What goes to the recycle bin because of what it was derived from goes as a bundle, which has the id of that.
    """

    def __init__(self, records: DurableRecords) -> None:
        self._records, self._services, self._subject = records, records.services, records.scope.subject

    def derived(self, source_id: str, *, deep: bool) -> list[Record]:
        """Records within the scope that were derived from a memory or a message and are to be seen (``deep``: or from
        those, and so on), nearest first.
        """
        store = self._services.provenance
        found = descendants(store, self._subject, [source_id]) if deep else store.derived(self._subject, [source_id])
        return self._readable(found)

    def live_derived(self, source_id: str) -> list[RecordFacts]:
        """All that is live and was derived from a memory or a message, or from that in turn, whichever agent has it."""
        if not is_id(source_id):
            return []
        found = descendants(self._services.provenance, self._subject, [source_id])
        return [written.facts for written in found if written.facts.state in LIVE]

    def of_source(self, name: MemoryType, source: str, options: SearchOptions) -> list[Record]:
        """Records of a kind that a source wrote and that pass a filter, newest first."""
        found = [one for one in self._written(name, source) if options.before is None or one.facts.id < options.before]
        found.sort(key=lambda one: one.facts.id, reverse=True)
        passing = (
            record
            for start in range(0, len(found), _PAGE)
            for record in self._readable(found[start : start + _PAGE])
            if (options.include_archived or not record.is_archived(options.now)) and _passes(record, options.where)
        )
        return list(islice(passing, options.top_k))

    def _written(self, name: MemoryType, source: str) -> list[Written]:
        """All records of a kind that a source wrote."""
        found: list[Written] = []
        place, store = 0, self._services.provenance
        while True:
            some, place = store.of_source(self._records.scope.tenant, source, self._subject, after=place, limit=_PAGE)
            found += [one for one in some if one.facts.kind == name.value]
            if len(some) < _PAGE:
                return found

    def _readable(self, found: Sequence[Written]) -> list[Record]:
        """Those of some records that are to be seen in this scope, in their order."""
        ids = [written.facts.id for written in found if written.facts.state in LIVE]
        records = self._services.records.fetch(self._subject, ids, now=self._services.now())
        return [record for record in records.values() if self._records.selects(record)]

    # --- going and coming back together -------------------------------------------------------------------------------

    def recycle(self, record_id: str, *, reason: str) -> tuple[Record, list[str]]:
        """Move a live record into the recycle bin together with all that was derived from it, whichever agent has
        that; the record, and the ids of what went with it. What a hold keeps stays; if it keeps the record, all stays.
        """
        record = self._records.read(record_id)
        first = record_facts(record)
        if find_hold(first.thing, self._services.holds.list(self._records.scope.tenant)) is not None:
            self._records.recycle(record_id, reason=reason)  # is refused, and that is written down
            return record, self.recycle_derived(record_id, reason=reason)  # unless the hold was lifted just now
        outcomes = self._recycle([first, *self.live_derived(record_id)], reason, record_id)
        became = outcomes.pop(record_id)
        if became is Outcome.HELD:  # since a moment ago
            raise held_error(record_id)
        if became is not Outcome.DONE:
            raise StaleError(f"memory {record_id} keeps changing; try again")
        return record, _gone(outcomes)

    def recycle_derived(self, source_id: str, *, reason: str) -> list[str]:
        """Move all that was derived from a memory or a message into the recycle bin; the ids of what went."""
        return _gone(self._recycle(self.live_derived(source_id), reason, source_id))

    def _recycle(self, records: Sequence[RecordFacts], reason: str, bundle: str) -> dict[str, Outcome]:
        return recycle_together(
            self._services.records,
            self._subject,
            records,
            reason=reason,
            cause=Cause.USER,
            bundle=bundle,
            now=self._services.now(),
            agent=self._records.scope,
        )

    def restore_derived(self, record: Record) -> list[str]:
        """A record came back: bring back what went to the recycle bin because of it; the ids of what came."""
        if record.bundle != record.id:
            return []
        from holdfast.lifecycle.recycle_bin import read_bundle, restore_error, restore_move

        now = self._services.now()
        found = [
            one
            for one in read_bundle(self._services.records, self._records.scope.tenant, record.id)
            if one.scope.subject == self._subject and (one.purge_at or 0) > now
        ]
        outcomes = self._services.records.transition(self._subject, [restore_move(one, now) for one in found], now=now)
        became = list(zip(found, outcomes, strict=True))
        for one, outcome in became:
            if outcome is not Outcome.DONE:  # what it was derived from is back all the same
                _log.warning("%s", restore_error(one, outcome, self._services.registry, now))
        return [one.id for one, outcome in became if outcome is Outcome.DONE]


def _gone(outcomes: dict[str, Outcome]) -> list[str]:
    return [one for one, outcome in outcomes.items() if outcome is Outcome.DONE]


def _passes(record: Record, where: Filter | None) -> bool:
    """Whether a record passes a filter."""
    agent_id, session_id = record.scope.agent_id, record.scope.session_id
    values = {"memory_type": record.kind.value, "agent_id": agent_id, "session_id": session_id or MISSING}

    def field(path: tuple[str, ...]) -> object:
        if path[0] == "metadata":
            return value_at(record.metadata, path[1:])
        return values[path[0]] if path[0] in values else getattr(record, path[0])

    return where is None or matches(where, field)
