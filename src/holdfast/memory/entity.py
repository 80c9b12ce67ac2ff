"""Entity memory: people, places and things, with attributes and relations that begin and end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.core.errors import (
    ConflictError,
    InvalidInputError,
    KeptOutError,
    NotFoundError,
    QuotaExceededError,
    StaleError,
    quote,
)
from holdfast.core.records import Fact, MemoryType, Record, Subject, holds_at, says_already
from holdfast.core.values import (
    NO_ORIGIN,
    Origin,
    When,
    check_content,
    check_count,
    check_id,
    check_metadata,
    dump_json,
    is_id,
    iso,
    moment,
)
from holdfast.memory.records import TRIES, Draft, DurableRecords

if TYPE_CHECKING:
    from holdfast.memory.services import Services
    from holdfast.results.memory import EntityResult, FactResult, NeighbourResult

_log = logging.getLogger("holdfast.entity")
_ENTITY: Final = MemoryType.ENTITY
#: So many facts of an entity are written into the text that recall searches.
_MOST_FACTS: Final = 64
#: In the metadata of an entity: when a fact that is known of it begins or ends next.
_CHANGES_AT: Final = "facts_change_at"
_MAX_VALUE_BYTES: Final = 64 * 1024
_MAX_ATTRIBUTES: Final = 500
_MAX_TEXT: Final = 128 * 1024

Way = Literal["out", "in", "both"]


class Entity:
    """``memory.entity``: what is known about the user's world. An entity is named by its name or its id."""

    def __init__(self, records: DurableRecords) -> None:
        self._records, self._services, self._subject = records, records.services, records.scope.subject

    # --- telling --------------------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        entity_type: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        since: When = None,
        source: str | None = None,
        derived_from: Sequence[str] | None = None,
    ) -> str:
        """Make an entity known, or add to what is known of it; its id. One entity of a user goes by a name.

        ``source`` and ``derived_from`` are the entity's, with all that is known of it: the last that were given count.
        """
        self._records.check_agent()
        check_name(name)
        origin = self._records.origin(source, derived_from)
        given = {**check_metadata(metadata), "name": name}
        if entity_type is not None:
            given["entity_type"] = check_id(entity_type, "entity_type")
        if description is not None:
            given["description"] = check_description(description)
        checked, begins = check_attributes(attributes or {}), self._at(since, "since")
        entity_id = self._ensure(name, given, origin)
        self._set(entity_id, checked, begins)
        return entity_id

    def set(self, entity: str, attributes: Mapping[str, Any], *, since: When = None) -> None:
        """Set attributes: the value that each had until then ends, it is not overwritten."""
        self._records.check_agent()
        checked, begins = check_attributes(attributes), self._at(since, "since")
        self._set(self._resolve(entity).id, checked, begins)

    def _set(self, entity_id: str, attributes: Mapping[str, Any], since: int) -> None:
        now = self._services.now()
        facts = [
            Fact(self._services.new_id(now), entity_id, name, None, value, since, None, now)
            for name, value in attributes.items()
        ]
        if facts:
            self._services.facts.record(self._subject, facts, replacing=True, agent=self._records.scope)
        self._refresh_text([entity_id])

    def _at(self, when: When, what: str) -> int:
        """A moment that a caller gives; now, if it does not."""
        return self._services.now() if when is None else moment(when, what=what)

    def relate(
        self, source: str, relation: str, target: str, *, since: When = None, until: When = None, replace: bool = False
    ) -> str:
        """State that a relation holds from ``since`` on; the fact's id. Unknown names become entities.

        With ``replace``, other relations of this name that the source has then end (one employer at a time).
        """
        self._records.check_agent()
        now, begins = self._services.now(), self._at(since, "since")
        ends = None if until is None else moment(until, what="until")
        if ends is not None and ends <= begins:
            raise InvalidInputError(f"the relation would end ({iso(ends)}) before it begins ({iso(begins)})")
        check_id(relation, "relation")
        for end in (source, target):
            self._resolve(end) if is_id(end) else check_name(end)
        one, other = (
            self._resolve(end).id if is_id(end) else self._ensure(end, {"name": end}) for end in (source, target)
        )
        fact = Fact(self._services.new_id(now), one, relation, other, None, begins, ends, now)
        added = self._services.facts.record(self._subject, [fact], replacing=replace, agent=self._records.scope)
        self._refresh_text([one])
        if added:
            return fact.id
        known = (one for one in self._facts([fact.source]) if (one.source, one.name) == (fact.source, fact.name))
        return next(one for one in known if says_already(one, fact)).id

    def end(self, source: str, name: str, target: str | None = None, *, at: When = None) -> int:
        """Let an attribute or a relation end; how many facts did. With ``target``, only those that lead to it."""
        self._records.check_agent()
        ends_at, record = self._at(at, "at"), self._resolve(source)
        goal = None if target is None else self._resolve(target).id
        facts = (fact for fact in self._facts([record.id]) if (fact.source, fact.name) == (record.id, name))
        ids = [fact.id for fact in facts if goal in (None, fact.target)]
        ended = self._services.facts.end(self._subject, ids, at=ends_at, agent=self._records.scope)
        self._refresh_text([record.id])
        return ended

    def delete(self, entity: str) -> str:
        """Send an entity to the recycle bin; its id. Its relations are not told while it is there."""
        self._records.check_agent()
        record = self._records.recycle(self._resolve(entity).id, reason="deleted by the user").record
        self._refresh_sources(record.id)
        return record.id

    def _refresh_sources(self, entity_id: str) -> None:
        """An entity went, or came back: let those that are related to it tell what holds now."""
        facts = self._facts([entity_id])
        live = self._live(facts)
        self._refresh_text(sorted({fact.source for fact in facts if fact.source in live}))

    def delete_user_entities(self, user_id: str) -> int:
        """Send all of a user's entities to the recycle bin; how many."""
        return self._records.clear(user_id, _ENTITY)

    def export_all(self, user_id: str) -> list[dict[str, Any]]:
        """All of a user's entities, whole, in whatever state they are."""
        return self._records.export(user_id, _ENTITY)

    # --- asking ----------------------------------------------------------------------------------------------------

    def get(self, entity: str, *, at: When = None) -> EntityResult:
        """What is known of an entity now, or was true at a moment: attributes, and relations with their dates."""
        record, when = self._resolve(entity), self._at(at, "at")
        facts = [fact for fact in self._facts([record.id]) if holds_at(fact, when)]
        names = self._names(facts)
        return {
            "entity_id": record.id,
            "name": record.metadata.get("name"),
            "entity_type": record.metadata.get("entity_type"),
            "description": record.metadata.get("description"),
            "attributes": {f.name: f.value for f in facts if f.target is None and f.source == record.id},
            "relations": [_fact_result(f, names) for f in facts if f.target is not None and _has_names(f, names)],
            "metadata": record.metadata,
        }

    def history(self, entity: str, name: str | None = None) -> list[FactResult]:
        """Every fact that holds or held of an entity, oldest first; with ``name``, of that attribute or relation."""
        record = self._resolve(entity)
        facts = [fact for fact in self._facts([record.id]) if name in (None, fact.name)]
        names = self._names(facts)
        return [_fact_result(fact, names) for fact in facts if _has_names(fact, names)]

    def neighbours(
        self, entity: str, relation: str | None = None, *, depth: int = 1, direction: Way = "both", at: When = None
    ) -> list[NeighbourResult]:
        """Entities that relations lead to, nearest first: id, name, distance, and the relation that led there."""
        check_count(depth, "depth", most=8)
        if direction not in ("out", "in", "both"):
            raise InvalidInputError(f"direction must be 'out', 'in' or 'both', not {quote(direction)}")
        when, start = self._at(at, "at"), self._resolve(entity).id
        seen = {start}
        found: list[NeighbourResult] = []
        frontier = deque([(start, 0)])
        while frontier:
            node, distance = frontier.popleft()
            if distance == depth:
                continue
            facts = [f for f in self._facts([node]) if f.target and holds_at(f, when) and relation in (None, f.name)]
            records = self._live(facts)
            for fact in facts:
                way, other = ("out", fact.target) if fact.source == node else ("in", fact.source)
                if other is None or other in seen or other not in records or direction not in ("both", way):
                    continue
                seen.add(other)
                frontier.append((other, distance + 1))
                found.append(
                    {
                        "entity_id": other,
                        "name": records[other].metadata.get("name"),
                        "entity_type": records[other].metadata.get("entity_type"),
                        "relation": fact.name,
                        "direction": way,
                        "distance": distance + 1,
                        "since": iso(fact.since),
                    }
                )
        return found

    # --- within ------------------------------------------------------------------------------------------------------

    def _ensure(self, name: str, metadata: dict[str, Any], origin: Origin = NO_ORIGIN) -> str:
        """The entity of a name with this metadata added to its own, and where it comes from; made if there is none."""

        def change(there: Record) -> Record:
            merged = {**there.metadata, **metadata, "name": there.metadata.get("name", name)}
            changes = {"metadata": merged, **origin.fields(there.scope.agent_id)}
            if all(getattr(there, field) == value for field, value in changes.items()):
                return there
            return self._records.change(there, **changes).record

        return self._records.upsert(_ENTITY, Draft(name, metadata, origin, name=_key(name)), change)

    def _resolve(self, entity: str) -> Record:
        if is_id(entity):
            return self._records.read(entity, only=_ENTITY)
        record = self._records.named(_ENTITY, _key(check_id(entity, "entity")))
        if record is None:
            raise NotFoundError(f"no entity {quote(entity)} for user {self._records.scope.user_id!r}; add it first")
        return record

    def _facts(self, entity_ids: Sequence[str]) -> list[Fact]:
        return self._services.facts.facts(self._subject, entity_ids)

    def _live(self, facts: Iterable[Fact]) -> dict[str, Record]:
        ids = sorted({end for fact in facts for end in (fact.source, fact.target) if end is not None})
        return self._services.records.fetch(self._subject, ids, now=self._services.now())

    def _names(self, facts: Iterable[Fact]) -> dict[str, str]:
        return {record.id: str(record.metadata.get("name")) for record in self._live(facts).values()}

    def _refresh_text(self, entity_ids: Sequence[str]) -> None:
        """Write what holds of entities into the texts and metadata that recall and filters see.

        A relation is told by its source alone, so that there is one text to change when it ends.
        """
        for entity_id in entity_ids:
            for _ in range(TRIES):
                record = self._records.read(entity_id, only=_ENTITY)
                now = self._services.now()
                known = [f for f in self._facts([entity_id]) if f.source == entity_id]
                facts = [fact for fact in known if holds_at(fact, now)]
                content, metadata = _tell(record, facts, self._names(facts))
                if later := [when for f in known for when in (f.since, f.until) if when is not None and when > now]:
                    metadata[_CHANGES_AT] = iso(min(later))
                if (content, metadata) == (record.content, record.metadata):
                    break
                with suppress(ConflictError):
                    self._records.change(record, by_agent=False, content=content, metadata=metadata)
                    break


def describe_now(services: Services, subject: Subject, records: Sequence[Record], now: int) -> dict[str, str]:
    """Entities as texts that have what holds at a moment, and since when; by their ids."""
    own, names = _read_facts(services, subject, records, now)
    return {record.id: _text(record, own[record.id], names, with_dates=True) for record in records}


def tell_changed(
    services: Services, subject: Subject, records: Mapping[str, Record], when: int | None = None
) -> dict[str, Record]:
    """Records as they are at a moment, or now. The text of an entity is written when something is said of it; where a
    fact has begun or ended by its date since then, it says what holds.
    """
    dated = [one for one in records.values() if one.kind is _ENTITY and _CHANGES_AT in one.metadata]
    if not dated:
        return {**records}
    now = services.now() if when is None else when
    stale = [one for one in dated if str(one.metadata[_CHANGES_AT]) <= iso(now)]
    own, names = _read_facts(services, subject, stale, now)
    told = {}
    for one in stale:
        content, metadata = _tell(one, own[one.id], names)
        told[one.id] = replace(one, content=content, metadata=metadata)
    return {name: told.get(one.id, one) for name, one in records.items()}


def _read_facts(
    services: Services, subject: Subject, records: Sequence[Record], when: int
) -> tuple[dict[str, list[Fact]], dict[str, str]]:
    """What holds at a moment of each of some entities, by their ids, and the names of all that are related."""
    if not records:
        return {}, {}
    known = services.facts.facts(subject, [record.id for record in records])
    facts = [fact for fact in known if holds_at(fact, when) and fact.recorded_at <= when]
    ids = sorted({end for fact in facts for end in (fact.source, fact.target) if end is not None})
    there = services.records.fetch(subject, ids, now=services.now())
    names = {record.id: str(record.metadata.get("name")) for record in there.values()}
    return {record.id: [fact for fact in facts if fact.source == record.id] for record in records}, names


def _tell(record: Record, facts: Sequence[Fact], names: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The text and the metadata of an entity of which these facts hold."""
    own = {fact.name: fact.value for fact in facts if fact.target is None}
    kept = {name: value for name, value in record.metadata.items() if name != _CHANGES_AT}
    return _text(record, facts, names), {**kept, "attributes": own}


def refresh_entity_text(services: Services, subject: Subject, record_ids: Sequence[str]) -> None:
    """Entities came back, or went: let those that are related to them tell what holds now."""
    for record_id in record_ids:
        record = services.records.get(subject, record_id)
        if record is not None and record.kind is _ENTITY:
            entity = Entity(DurableRecords(services, record.scope))
            try:
                entity._refresh_sources(record_id)
            except (KeptOutError, QuotaExceededError, StaleError) as problem:  # it came back, or went, all the same
                _log.warning("an entity's text was left as it was: %s", problem)


def draft_text(content: str, metadata: dict[str, Any], origin: Origin) -> Draft:
    """A plain text about an entity; ``metadata`` may give it a ``name`` that it can be looked up by."""
    name = None if metadata.get("name") is None else _key(check_id(metadata["name"], "name"))
    return Draft(content, {**metadata, "description": content}, origin, name=name)


def check_name(name: object) -> None:
    """``InvalidInputError`` for what an entity cannot go by."""
    if is_id(check_id(name, "name")):
        raise InvalidInputError(f"the name {quote(name)} has the form of a memory's id; give the entity another")


def check_description(description: object) -> str:
    """What an entity is, if it can be kept."""
    return check_content(description, "description", max_bytes=_MAX_VALUE_BYTES)


def check_attributes(attributes: object) -> dict[str, Any]:
    """Attributes that can be kept: names, and JSON values of a reasonable size."""
    if not isinstance(attributes, Mapping):
        raise InvalidInputError(f"attributes must be an object (a dict), not {quote(attributes)}")
    if len(attributes) > _MAX_ATTRIBUTES:
        raise InvalidInputError(
            f"{len(attributes):,} attributes at once are too many (max: {_MAX_ATTRIBUTES}); set them in several calls"
        )
    for name, value in attributes.items():
        check_id(name, "attribute")
        size = len(dump_json(value, InvalidInputError, f"the attribute {quote(name)}"))
        if size > _MAX_VALUE_BYTES:
            raise InvalidInputError(
                f"the attribute {quote(name)} of {size:,} characters is too large (max: {_MAX_VALUE_BYTES:,})"
            )
    return dict(attributes)


def _key(name: str) -> str:
    return " ".join(name.casefold().split())


def _has_names(fact: Fact, names: Mapping[str, str]) -> bool:
    """A relation is told while both its ends are there."""
    return fact.target is None or (fact.source in names and fact.target in names)


def _text(record: Record, facts: Sequence[Fact], names: Mapping[str, str], *, with_dates: bool = False) -> str:
    """An entity as a text: who it is, then what holds of it, newest last."""
    name, kind, about = (record.metadata.get(field) or "" for field in ("name", "entity_type", "description"))
    lines = [f"{name} ({kind})".strip() if kind else f"{name}", f"{about}"]
    for fact in [fact for fact in facts if _has_names(fact, names)][-_MOST_FACTS:]:
        name = fact.name.replace("_", " ")
        since = f" (since {iso(fact.since)[:10]})" if with_dates else ""
        if fact.target is None:
            value = fact.value if isinstance(fact.value, str) else dump_json(fact.value, InvalidInputError, name)
            lines.append(f"{name}: {value}{since}")
        else:
            lines.append(f"{names[fact.source]} {name} {names[fact.target]}{since}")
    return "\n".join(line for line in lines if line)[:_MAX_TEXT]


def _fact_result(fact: Fact, names: Mapping[str, str]) -> FactResult:
    result: FactResult = {
        "fact_id": fact.id,
        "name": fact.name,
        "since": iso(fact.since),
        "until": None if fact.until is None else iso(fact.until),
        "recorded_at": iso(fact.recorded_at),
    }
    if fact.target is None:
        return {**result, "value": fact.value}
    return {
        **result,
        "source": names.get(fact.source),
        "target": names.get(fact.target),
        "source_id": fact.source,
        "target_id": fact.target,
    }
