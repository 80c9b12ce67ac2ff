"""Adding contents of every kind, what is close to what was added, and what an extractor makes of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from holdfast.core.errors import InvalidContentError, InvalidInputError, quote
from holdfast.core.records import TYPES, Kind, MemoryType, Message, Record, Usage
from holdfast.core.values import (
    MAX_DERIVED_FROM,
    NO_ORIGIN,
    Origin,
    check_content,
    check_flag,
    check_metadata,
    dump_json,
    is_id,
    iso,
)
from holdfast.memory.corrections import ENTITY_VERBS, Corrections
from holdfast.memory.entity import draft_text, refresh_entity_text
from holdfast.memory.records import Changed, Draft, DurableRecords
from holdfast.memory.search import Search
from holdfast.memory.services import Services
from holdfast.memory.user_data import refuse_kind
from holdfast.recall.index import SearchOptions
from holdfast.recall.passages import INDEXED_CHARS, SEARCH_TEXT, TARGET
from holdfast.recall.ranking import SIMILAR

if TYPE_CHECKING:
    from holdfast.memory.short_term import ShortTerm
    from holdfast.memory.working import Working
    from holdfast.results.memory import AddManyResult, AddResult, RememberResult, SimilarResult, WriteResult


MOST_AT_ONCE: Final = 100_000


class Written(NamedTuple):
    """What adding contents came to."""

    ids: list[str]
    usage: Usage
    gone: int = 0
    """How many old memories made way."""
    existing: int = 0
    """How many contents were there already."""
    kept_out: int = 0
    corrected: int = 0
    """How many of those that were there already had been corrected."""


class Addition(NamedTuple):
    """One content that is to be added."""

    kind: Kind
    content: Any
    metadata: Any
    origin: Origin
    prune: bool
    dedupe: bool | None
    key: str | None = None
    supersedes: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether it becomes a version of a record, where there is one that it names."""
        return self.key is not None or self.supersedes is not None


class PutResult(NamedTuple):
    """What became of a memory that goes by a key, or supersedes another."""

    operation: str
    memory_id: str
    version: int
    usage: Usage
    gone: int = 0


class Additions:
    """How contents of every kind are added for a scope."""

    def __init__(
        self, records: DurableRecords, corrections: Corrections, working: Working, short_term: ShortTerm
    ) -> None:
        self._records, self._corrections, self._working, self._short_term = records, corrections, working, short_term
        from holdfast.memory.episodic import draft_summary
        from holdfast.memory.structured import draft_document

        self._drafts: dict[MemoryType, Callable[[Any, dict[str, Any], Origin], Draft]] = {
            MemoryType.EPISODIC: draft_summary,
            MemoryType.ENTITY: draft_text,
            MemoryType.STRUCTURED: partial(draft_document, records),
        }
        """What makes a record of a content, of the kinds that are more than a text."""

    def draft(self, kind: Kind, content: Any, metadata: Mapping[str, Any] | None, origin: Origin) -> Draft:
        """A record of a durable kind before it is written."""
        return self._drafts.get(kind.name, Draft)(content, check_metadata(metadata), origin)

    def write(
        self, kind: Kind, contents: Sequence[Any], metadata: Any, origin: Origin, *, prune: bool, dedupe: bool | None
    ) -> Written:
        """Add contents of one kind, all or none of them; metadata is one object for all, or one for each."""
        if origin.is_given and not kind.durable:
            raise refuse_kind(kind, "given a source", "the agent has it in mind now; leave out the source")
        listed = metadata is not None and isinstance(metadata, Sequence) and not isinstance(metadata, str | bytes)
        if listed and len(metadata) != len(contents):
            raise InvalidInputError(f"{len(metadata):,} metadata objects were given for {len(contents):,} contents")
        if listed and not kind.durable:
            raise refuse_kind(kind, "added with a list of metadata", "give one metadata object, or call add for each")
        if not contents:
            return Written([], self.usage(kind))
        if kind.durable:
            each = map(check_metadata, metadata) if listed else repeat(check_metadata(metadata), len(contents))
            draft = self._drafts.get(kind.name, Draft)
            drafts = [draft(content, own, origin) for content, own in zip(contents, each, strict=True)]
            merge = self.merges(kind, dedupe=dedupe)
            skip = not self._records.services.refuse_kept_out
            ids, added = self._records.write(kind.name, drafts, prune=prune, dedupe=merge, skip_kept_out=skip)
            if kind.name is MemoryType.ENTITY:
                refresh_entity_text(self._records.services, self._records.scope.subject, added.gone)
            counts = (added.pruned, len(added.found), len(added.kept_out), len(added.ended))
            return Written(ids, added.usage, *counts)
        texts = [as_text(content, kind) for content in contents]
        if kind.name is MemoryType.WORKING:
            return Written(*self._working.put(texts, metadata, prune=prune))
        role = metadata.get("role", "user") if isinstance(metadata, Mapping) else "user"
        ids, held, dropped = self._short_term.append(role, texts, metadata)
        return Written(ids, Usage(held, 0, kind.max_memories, kind.max_bytes), dropped)

    def add(self, new: Addition, elapsed_ms: Callable[[], float]) -> AddResult:
        """Add one content."""
        kind, content = new.kind, new.content
        if new.is_named:
            put = self._put(new, self.draft(kind, content, new.metadata, new.origin))
            return self._describe_put(kind, content, elapsed_ms(), put)
        written = self.write(kind, [content], new.metadata, new.origin, prune=new.prune, dedupe=new.dedupe)
        elapsed = elapsed_ms()
        self._records.services.latencies.record("add", kind.name, elapsed, kind.latency_ms)
        operation = "exists" if written.existing else "kept_out" if written.kept_out else "add"
        result = describe_one(content, describe_added(kind, operation, elapsed, written), written)
        if written.corrected and (there := self._records.find(written.ids[0])) is not None:
            result["corrected_to"] = there.content
        return result

    def _put(self, new: Addition, draft: Draft) -> PutResult:
        """Let the record that goes by a key, or one that is superseded, say a draft from now on."""
        kind, key = new.kind, str(new.key)
        if new.supersedes is not None:
            record, usage = self._corrections.supersede(kind, draft, supersedes=new.supersedes, key=new.key)
            return PutResult("corrected", record.id, record.revision, usage)
        if self.merges(kind, dedupe=new.dedupe) and (there := self._corrections.find_restated(kind, draft, key)):
            return PutResult("exists", there.id, there.revision, self.usage(kind))
        outcome, added = self._corrections.put(kind, draft, key, prune=new.prune)
        version = outcome.version or 1
        return PutResult("add" if version == 1 else "corrected", str(outcome.id), version, added.usage, added.pruned)

    def merges(self, kind: Kind, *, dedupe: bool | None) -> bool:
        """Whether a text of a kind that is there already is not added again: as a caller or the settings say."""
        wanted = self._records.services.dedupe if dedupe is None else check_flag(dedupe, "dedupe")
        return kind.shown_once and wanted

    def change(self, record: Record, content: Any, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
        """The fields of a record that says something else, or has other metadata."""
        if record.kind is MemoryType.ENTITY:
            raise refuse_kind(TYPES[record.kind], "updated as text", ENTITY_VERBS)
        if record.kind is MemoryType.STRUCTURED:
            from holdfast.memory.structured import draft_document

            kept = {**(record.metadata if metadata is None else check_metadata(metadata))}
            kept |= {name: record.metadata.get(name) for name in ("collection", "key")}
            document = record.metadata["document"] if content is None else content
            if content is not None and isinstance(kept.get(SEARCH_TEXT), list):
                del kept[SEARCH_TEXT]  # texts of what it was before
            draft = draft_document(self._records, document, kept, NO_ORIGIN)
            return {"content": draft.content, "metadata": draft.metadata}
        changes: dict[str, Any] = {} if content is None else {"content": as_text(content, TYPES[record.kind])}
        if metadata is not None:
            changes["metadata"] = check_metadata(metadata)
        return changes

    def describe_corrected(self, changed: Changed, content: object, elapsed: float) -> AddResult:
        """What a correction says."""
        record, usage = changed
        put = PutResult("corrected", record.id, record.revision, usage)
        return self._describe_put(TYPES[record.kind], content, elapsed, put)

    def _describe_put(self, kind: Kind, content: object, elapsed: float, put: PutResult) -> AddResult:
        """What is said of a memory that says something else, or of one that goes by a key."""
        if put.operation != "add":
            self._records.services.latencies.record("correct", kind.name, elapsed, kind.latency_ms)
        written = Written([put.memory_id], put.usage, put.gone)
        result = describe_one(content, describe_added(kind, put.operation, elapsed, written), written)
        if put.operation != "add":
            result["version"] = put.version
        return result

    def usage(self, kind: Kind) -> Usage:
        """What there is of a kind, and how much there may be."""
        if kind.durable:
            return self._records.services.records.usage(self._records.scope.subject, kind)
        held = self._working.items() if kind.name is MemoryType.WORKING else self._short_term.messages()
        return Usage(len(held), sum(len(item.content) for item in held), kind.max_memories, kind.max_bytes)


def check_contents(contents: object) -> None:
    """``InvalidContentError`` for what is no list of contents, or too long a one."""
    if isinstance(contents, str | bytes | Mapping) or not isinstance(contents, Sequence):
        raise InvalidContentError(f"contents must be a list of contents, not {type(contents).__name__}")
    if len(contents) > MOST_AT_ONCE:
        raise InvalidContentError(f"{len(contents):,} contents at once are too many (max: {MOST_AT_ONCE:,})")


def as_text(content: Any, kind: Kind) -> str:
    """Content as text; working memory takes objects too."""
    if kind.name is MemoryType.WORKING and isinstance(content, Mapping):
        return dump_json(content, InvalidContentError, "content")
    text: str = content  # whatever is not text is refused where contents are checked
    return text


def change_item(kind: Kind, item: Message, content: Any, metadata: Mapping[str, Any] | None) -> Message:
    """A working note that says something else, or has other metadata."""
    if kind.name is not MemoryType.WORKING:
        raise refuse_kind(kind, "updated", "add a new message instead")
    text = item.content if content is None else check_content(as_text(content, kind))
    return item._replace(content=text, metadata=item.metadata if metadata is None else check_metadata(metadata))


def describe_added(kind: Kind, operation: str, elapsed: float, written: Written) -> WriteResult:
    """What every add says. Of old memories that made way: whether they left the window or went to the bin."""
    result: WriteResult = {
        "operation": operation,
        "memory_type": kind.name.value,
        "latency_ms": elapsed,
        "quota_remaining": written.usage.remaining,
    }
    gone = written.gone
    if gone and kind.name is MemoryType.SHORT_TERM:
        result["dropped"] = gone
    elif gone:
        result["pruned"] = gone
        result["operation"] = "add_with_prune"
    return result


def describe_one(content: object, added: WriteResult, written: Written) -> AddResult:
    """What an add of one memory says."""
    result = cast("AddResult", {"memory_id": written.ids[0], **added})
    if isinstance(content, str) and len(content) > INDEXED_CHARS:
        result["indexed_chars"] = INDEXED_CHARS
    return result


def describe_many(added: WriteResult, written: Written) -> AddManyResult:
    """What an add of many memories says: beside the others, how many of them were not added, and why."""
    counts = {name: count for name in ("existing", "corrected", "kept_out") if (count := getattr(written, name))}
    return cast("AddManyResult", {"memory_ids": written.ids, **added, **counts})


def find_similar(
    services: Services, search: Search, kind: Kind, text: str, *, added: str, count: int
) -> list[SimilarResult]:
    """The live memories of a kind that are closest to a text, if they are close, without the one that was added."""
    query = services.recall.encode_query(text[: 4 * TARGET])
    options = SearchOptions(count, services.now(), min_score=SIMILAR, without=added)
    return [
        {
            "memory_id": match.hit.id,
            "content": match.memory.content,
            "score": match.hit.score,
            "created_at": iso(match.memory.created_at),
        }
        for match in search.find([kind], query, options, include_archived=False)
    ]


# --- facts of a conversation ------------------------------------------------------------------------------------------

Facts = Iterable[str | Mapping[str, Any]]
"""Each is a text, or an object with what ``add`` takes."""
Extract = Callable[[list[dict[str, Any]]], Facts]
"""Gives the facts of messages."""

#: So many of the memories that are close to a fact are proposed.
_PROPOSED: Final = 3
_FIELDS: Final = ("content", "memory_type", "metadata", "source", "derived_from")


def remember(
    add: Callable[..., AddResult], short_term: ShortTerm, messages: Sequence[Mapping[str, Any]], extract: Extract
) -> list[RememberResult]:
    """Add the facts that ``extract`` finds in messages, and say which memories each may be meant to correct."""
    if not callable(extract):
        raise InvalidInputError(f"extract must be a function that gives the facts of messages, not {quote(extract)}")
    named = _name_messages(short_term, messages)
    said = extract(named) if named else ()
    if isinstance(said, str | bytes | Mapping) or not isinstance(said, Iterable):
        raise InvalidInputError(f"extract must give a list of facts, not {quote(said)}; for one fact, a list of one")
    facts = [_check_fact(fact, named) for fact in said]
    results: list[RememberResult] = []
    new: set[str] = set()
    for fact in facts:
        added = add(**fact, dedupe=True, similar=_PROPOSED + len(new))
        new.add(added["memory_id"])
        close = [one for one in added.pop("similar", ()) if one["memory_id"] not in new][:_PROPOSED]
        results.append({**added, "content": fact["content"], "derived_from": fact["derived_from"], "similar": close})
    return results


def _name_messages(short_term: ShortTerm, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with their ids. Those without one are added to the session's conversation."""
    if isinstance(messages, str | Mapping) or not all(isinstance(one, Mapping) for one in messages):
        raise InvalidInputError(f"messages must be a list of objects with a role and a content, not {quote(messages)}")
    new = [one for one in messages if one.get("message_id") is None]
    ids = iter(short_term.add_messages(new) if new else ())
    named = [{**one, "message_id": one.get("message_id") or next(ids)} for one in messages]
    for one in named:
        if not is_id(one["message_id"]):
            raise InvalidInputError(f"{quote(one['message_id'])} is not the id of a message; leave message_id out")
    return named


def _check_fact(fact: object, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A fact as ``add`` takes it, derived from the messages that it names, or from all of them."""
    given = {"content": fact} if isinstance(fact, str) else fact
    if not isinstance(given, Mapping) or "content" not in given or not given.keys() <= set(_FIELDS):
        raise InvalidInputError(
            f"extract gave {quote(fact)}; a fact is a text, or an object with content and, if wanted, "
            f"{', '.join(_FIELDS[1:])}"
        )
    if isinstance(given["content"], str):
        check_content(given["content"])
    ids = [one["message_id"] for one in messages]
    named = list(given.get("derived_from") or ids[-MAX_DERIVED_FROM:])
    if unknown := [one for one in named if one not in ids]:
        raise InvalidInputError(
            f"extract gave a fact that is derived from {quote(unknown[0])}, which is none of the messages"
        )
    return {**given, "derived_from": named}
