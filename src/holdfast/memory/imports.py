"""Memories from elsewhere: added with the dates that they had, once however often they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.errors import (
    ConflictError,
    ExpiredError,
    InvalidInputError,
    KeptOutError,
    NotFoundError,
    QuotaExceededError,
    quote,
)
from holdfast.core.records import Kind, MemoryType, kind_of
from holdfast.core.texts import texts_within
from holdfast.core.values import (
    check_content,
    check_flag,
    check_id,
    check_metadata,
    describe_duration,
    is_id,
    iso,
    moment,
    past_moment,
)
from holdfast.memory.additions import Additions
from holdfast.memory.corrections import name_of
from holdfast.memory.entity import Entity, check_attributes, check_description, check_name, draft_text
from holdfast.memory.episodic import Episodic, draft_episode
from holdfast.memory.records import Draft, DurableRecords, NamedDraft
from holdfast.memory.user_data import refuse_kind

if TYPE_CHECKING:
    from holdfast.results.memory import ImportResult

#: What is wrong with one memory, which does not keep others from being imported.
_REFUSED: Final = (InvalidInputError, KeptOutError, QuotaExceededError, ConflictError, NotFoundError)
_IMPORTED: Final = frozenset(
    [
        *("key", "content", "memory_type", "metadata", "created_at", "updated_at"),
        *("task", "steps", "messages", "tool_calls"),
        *("name", "entity_type", "description", "attributes", "relations"),
    ]
)
_OF_RELATION: Final = frozenset({"relation", "target", "since", "until"})


class EntityFacts(NamedTuple):
    """What is said of an entity elsewhere."""

    name: str = ""
    entity_type: str | None = None
    description: str | None = None
    attributes: Mapping[str, Any] = MappingProxyType({})
    relations: Sequence[Mapping[str, Any]] = ()
    """Each as ``relate`` takes it, without its source."""

    @classmethod
    def check(cls, item: Mapping[str, Any]) -> EntityFacts:
        """What an item says, if it can be kept."""
        if "content" in item:
            raise InvalidInputError("an entity has a name and a description instead of a content")
        name, kind, about, attributes, relations = map(item.get, cls._fields)
        check_name(name)
        return cls(
            str(name),
            None if kind is None else check_id(kind, "entity_type"),
            None if about is None else check_description(about),
            {} if attributes is None else check_attributes(attributes),
            [] if relations is None else _check_relations(relations),
        )

    def __bool__(self) -> bool:
        """Whether it says anything but the name."""
        return bool(self.attributes or self.relations or self.entity_type or self.description)

    def find_missing(self, entities: Entity, metadata: Mapping[str, Any]) -> EntityFacts:
        """What of it is not known yet of the entity of this name, which has some metadata. What was known once and has
        ended counts as known.
        """
        known = entities.history(self.name)
        names = {one["name"] for one in known if "target" not in one}
        ends = {(one["name"], _fold(str(one["target"]))) for one in known if "target" in one}
        return EntityFacts(
            self.name,
            None if metadata.get("entity_type") else self.entity_type,
            None if metadata.get("description") else self.description,
            {name: value for name, value in self.attributes.items() if name not in names},
            [one for one in self.relations if (one["relation"], _fold(one["target"])) not in ends],
        )

    def tell(self, entities: Entity, entity_id: str, *, since: int | None) -> None:
        """Let an entity that is there have it, from a moment on where it does not say since when."""
        begun = None if since is None else iso(since)
        if self.entity_type is not None or self.description is not None:
            entities.add(self.name, self.entity_type, description=self.description)
        if self.attributes:
            entities.set(entity_id, self.attributes, since=begun)
        for one in self.relations:
            entities.relate(
                entity_id, one["relation"], one["target"], since=one.get("since", begun), until=one.get("until")
            )


def _check_relations(given: object) -> list[Mapping[str, Any]]:
    if not isinstance(given, list) or not all(map(_is_relation, given)):
        raise InvalidInputError(
            "relations must be a list of objects with relation and target and, if wanted, since and until, not "
            f"{quote(given)}"
        )
    for one in given:
        check_id(one["relation"], "relation")
        check_name(one["target"])
        for name in ("since", "until"):
            if one.get(name) is not None:
                moment(one[name], what=name)
    return given


def _is_relation(given: object) -> bool:
    return isinstance(given, Mapping) and {"relation", "target"} <= given.keys() <= _OF_RELATION


def _fold(name: str) -> str:
    return " ".join(name.casefold().split())


class _Import(NamedTuple):
    """A memory from elsewhere, ready to be written."""

    position: int
    key: str
    kind: Kind
    draft: Draft
    known: EntityFacts = EntityFacts()
    """What is known of it, where it is an entity."""

    @property
    def name(self) -> str:
        return str(self.draft.name)


class Imports:
    """How memories that were made elsewhere are added to a scope, with their dates and under their own ids."""

    def __init__(
        self, records: DurableRecords, additions: Additions, episodes: Episodic, entities: Entity, source: object
    ) -> None:
        self._records, self._additions, self._episodes, self._entities = records, additions, episodes, entities
        self._origin, self._now = records.origin(source, None), records.services.now()
        self.result: ImportResult = {"added": 0, "corrected": 0, "existing": 0, "kept_out": 0, "skipped": []}

    def run(self, items: Sequence[Mapping[str, Any]], *, dry_run: bool) -> ImportResult:
        """Import what can be; say what became of it."""
        check_flag(dry_run, "dry_run")
        if isinstance(items, str | Mapping) or not isinstance(items, Sequence):
            raise InvalidInputError(f"items must be a list of objects, not {quote(items)}")
        self._records.scope.check_one()
        self._records.check_agent()
        drafted: dict[tuple[Kind, str], _Import] = {}
        for position, item in enumerate(items):
            try:
                one = self._draft(position, item)
                is_entity = one.kind.name is MemoryType.ENTITY  # of which several may say something
                if (one.kind, one.name) in drafted and not is_entity:
                    raise InvalidInputError(f"another memory before it has the key {one.key!r}")
                drafted[one.kind, f"{position}" if is_entity else one.name] = one
            except _REFUSED as problem:
                key = item.get("key") if isinstance(item, Mapping) else None
                self._skip(position, key if isinstance(key, str) else None, str(problem))
        for kind in {one.kind.name: one.kind for one in drafted.values()}.values():
            found = [one for one in drafted.values() if one.kind is kind]
            if kind.name is MemoryType.ENTITY:
                self._complete(kind, found, dry_run=dry_run)
                continue
            new = self._choose(kind, found)
            if dry_run:
                self.result["added"] += len(new)
            else:
                self._write(kind, new)
        return self.result

    def _draft(self, position: int, item: Mapping[str, Any]) -> _Import:
        if not isinstance(item, Mapping) or not isinstance(item.get("key"), str):
            raise InvalidInputError(f"a memory is an object with a key and a content, not {quote(item)}")
        if unknown := sorted(set(item) - _IMPORTED):
            raise InvalidInputError(f"a memory has no field {unknown[0]!r}; it has {', '.join(sorted(_IMPORTED))}")
        kind, key = kind_of(item.get("memory_type", MemoryType.LONG_TERM)), item["key"]
        if not kind.durable:
            raise refuse_kind(kind, "imported", "only what is kept for good can")
        if kind.name is MemoryType.ENTITY:
            return self._draft_entity(position, key, kind, item)
        metadata = check_metadata(item.get("metadata"))
        if kind.name is MemoryType.STRUCTURED:
            draft = self._additions.draft(kind, item.get("content"), {"key": key, **metadata}, self._origin)
        elif kind.name is MemoryType.EPISODIC:
            draft = draft_episode(self._episodes, item, metadata, self._origin)
        else:
            draft = self._additions.draft(kind, item.get("content"), metadata, self._origin)
        check_content(draft.content, max_bytes=self._records.services.max_content_bytes)
        name = draft.name or name_of(self._records.scope, kind, key)
        return _Import(position, key, kind, self._date(kind, item, replace(draft, name=name)))

    def _draft_entity(self, position: int, key: str, kind: Kind, item: Mapping[str, Any]) -> _Import:
        known = EntityFacts.check(item)
        about = {name: value for name in ("entity_type", "description") if (value := getattr(known, name)) is not None}
        draft = draft_text(known.name, {**check_metadata(item.get("metadata")), "name": known.name}, self._origin)
        del draft.metadata["description"]  # which a plain text has
        draft = self._date(kind, item, replace(draft, metadata={**draft.metadata, **about}))
        return _Import(position, key, kind, draft, known)

    def _complete(self, kind: Kind, found: list[_Import], *, dry_run: bool) -> None:
        """Make entities known, or add what is not yet known of those that are there; what is known stays as it is."""
        for one in found:
            record = self._records.named(kind.name, one.name)
            known = one.known if record is None else one.known.find_missing(self._entities, record.metadata)
            try:
                if not dry_run:
                    entity_id = self._records.write(kind.name, [one.draft])[0][0] if record is None else record.id
                    known.tell(self._entities, entity_id, since=one.draft.created_at)
            except KeptOutError:
                self.result["kept_out"] += 1
            except _REFUSED as problem:
                self._skip(one.position, one.key, str(problem))
            else:
                self.result["added" if record is None else "corrected" if known else "existing"] += 1

    def _date(self, kind: Kind, item: Mapping[str, Any], draft: Draft) -> Draft:
        """A draft with the dates that it had; ``ExpiredError`` where its time is over already."""
        made, changed = item.get("created_at"), item.get("updated_at")
        advice = "give the time when it was made"
        created_at = self._now if made is None else past_moment(made, now=self._now, advice=advice)
        updated_at = created_at if changed is None else past_moment(changed, now=self._now, advice=advice)
        dated_at = max(created_at, updated_at) if kind.name is MemoryType.EPISODIC else created_at
        life = self._records.services.rules.life(kind.name.value, self._records.scope)
        if life.delete_after is not None and dated_at + life.delete_after <= self._now:
            raise ExpiredError(
                f"it is of {iso(dated_at)}, and {kind.name} memory is kept for {describe_duration(life.delete_after)}; "
                f"to keep it, set a longer rule first: holdfast policy set {kind.name} --delete-after …"
            )
        changed_at, dated_at = min(self._now, max(created_at, updated_at)), min(self._now, dated_at)
        return replace(draft, created_at=min(self._now, created_at), updated_at=changed_at, dated_at=dated_at)

    def _choose(self, kind: Kind, found: list[_Import]) -> list[_Import]:
        """Those that are to be written: new ones, and those that have changed where they come from."""
        services, subject = self._records.services, self._records.scope.subject
        texts = {one.position: [one.draft.content, *texts_within(one.draft.body)] for one in found}
        kept = services.keep_out.find(subject, [text for said in texts.values() for text in said])
        there = services.records.find_named(subject, kind, [one.name for one in found], now=self._now) if found else {}
        own_ids = [one.key for one in found if is_id(one.key)]  # of an export of this store
        originals = services.records.fetch(subject, own_ids, now=self._now) if own_ids else {}
        new = []
        for one in found:
            record = there.get(one.name) or originals.get(one.key)
            if not kept.isdisjoint(texts[one.position]):
                self.result["kept_out"] += 1
            elif record is None:
                new.append(one)
            elif record.pack is not None or (record.content, record.body) == (one.draft.content, one.draft.body):
                self.result["existing"] += 1
            elif not (record.source or "").startswith("import:") or record.updated_at >= (one.draft.updated_at or 0):
                reason = f"memory {record.id} was changed here, or is newer than this; it is left as it is"
                self._skip(one.position, one.key, reason)
            else:
                new.append(one)
        return new

    def _write(self, kind: Kind, new: Sequence[_Import]) -> None:
        if not new:
            return
        try:
            outcomes, _ = self._records.put_named(kind.name, [NamedDraft(one.name, one.draft) for one in new])
        except _REFUSED as problem:
            if len(new) > 1:
                for one in new:
                    self._write(kind, [one])
            elif isinstance(problem, KeptOutError):
                self.result["kept_out"] += 1
            else:
                self._skip(new[0].position, new[0].key, str(problem))
            return
        for outcome in outcomes:
            self.result["added" if outcome.version == 1 else "corrected"] += 1

    def _skip(self, position: int, key: str | None, reason: str) -> None:
        self.result["skipped"].append({"position": position, "key": key, "reason": reason})
