"""Structured memory: JSON documents in named collections, with an optional schema, queried by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NotRequired, TypedDict

from holdfast.core.errors import InvalidContentError, InvalidInputError, SchemaViolationError, quote
from holdfast.core.filters import MISSING, Combination, Condition, Filter, parse, value_at, within
from holdfast.core.records import DELETED_BY_USER, NAME_SEPARATOR, TYPES, MemoryType, Record
from holdfast.core.values import (
    DAY,
    SECOND,
    Origin,
    agent_source,
    check_count,
    check_id,
    check_metadata,
    dump_json,
    iso,
)
from holdfast.installation import missing_extra
from holdfast.memory.records import Draft, DurableRecords, NamedDraft, memory_result
from holdfast.recall.index import SearchOptions
from holdfast.recall.passages import IS_SEARCHED, SEARCH_TEXT

if TYPE_CHECKING:
    from holdfast.results.memory import CollectionResult, DocumentResult

_STRUCTURED: Final = MemoryType.STRUCTURED
_MOST: Final = 1_000_000
_COLLECTION: Final = ("metadata", "collection")
#: Collections and keys may be longer than ids: frameworks make them of several parts.
_MAX_NAME_CHARS: Final = 4_096
_MAX_INDEXED_CHARS: Final = 520
_MAX_TTL_SECONDS: Final = 365_000 * DAY // SECOND


class DocumentPut(TypedDict):
    """A document to be put, as ``put`` takes it; without a document, the one that has the key is to go."""

    collection: str
    document: Mapping[str, Any] | None
    key: NotRequired[str | None]
    metadata: NotRequired[Mapping[str, Any] | None]
    search_text: NotRequired[str | Sequence[str] | bool | None]
    ttl: NotRequired[float | None]
    if_version: NotRequired[int | None]
    source: NotRequired[str | None]
    derived_from: NotRequired[Sequence[str] | None]


class _Place(NamedTuple):
    """Where a document is, checked."""

    collection: str
    key: str | None
    name: str | None
    """What its record goes by; a long name by its digest, for an index takes no more."""

    def fields(self, text: str) -> dict[str, Any]:
        """What the metadata of the document say that has this text."""
        return {"collection": self.collection, "key": self.key, "document": json.loads(text)}


class Structured:
    """``memory.structured``: the user's documents."""

    def __init__(self, records: DurableRecords) -> None:
        self._records = records

    def define(self, collection: str, schema: Mapping[str, Any] | None) -> None:
        """Give a collection a JSON Schema that later documents must match (``None``: take it away)."""
        self._records.check_agent()
        name = check_id(collection, "collection")
        if schema is not None:
            _refuse_foreign_references(schema, name)
            jsonschema = _jsonschema()
            try:
                jsonschema.validators.validator_for(schema).check_schema(schema)
            except (jsonschema.SchemaError, TypeError, AttributeError, RecursionError) as problem:
                raise InvalidInputError(f"the schema of {name!r} is not valid: {str(problem)[:200]}") from problem
        text = None if schema is None else dump_json(schema, InvalidInputError, "the schema")
        self._records.services.schemas.put(self._records.scope.tenant, name, text)

    def put(
        self,
        collection: str,
        document: Mapping[str, Any],
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        search_text: str | Sequence[str] | bool | None = None,
        ttl: float | None = None,
        if_version: int | None = None,
        source: str | None = None,
        derived_from: Sequence[str] | None = None,
    ) -> str:
        """Keep a document; its memory id. With a ``key``, it takes the place of the document that has it, and comes
        from where is said now, whatever was said of that.

        A search finds it by all of its fields, or by ``search_text``; ``False``: by nothing. After ``ttl`` seconds
        without a put or a ``refresh`` it is gone. With ``if_version``, ``StaleError`` unless the document that has the
        key is of this version; 0: unless there is none.
        """
        new: DocumentPut = {"collection": collection, "document": document, "key": key, "metadata": metadata}
        new |= {"search_text": search_text, "ttl": ttl, "if_version": if_version}
        new |= {"source": source, "derived_from": derived_from}
        return str(self.put_many([new])[0])

    def put_many(self, documents: Sequence[DocumentPut]) -> list[str | None]:
        """Keep several documents in one transaction, each as ``put`` does, or none of them; their memory ids.

        One that is ``None`` sends the document that has its key to the recycle bin; the id of that, or ``None`` if
        there is none. Of several of one collection and key the last counts.
        """
        try:
            places = [_locate(new["collection"], new.get("key")) for new in documents]
            _ = [new["document"] for new in documents]
        except (TypeError, KeyError, AttributeError):
            what = f"documents must be objects with a collection and a document, not {quote(documents)}"
            raise InvalidInputError(what) from None
        schemas = _find_schemas(self._records, {place.collection for place in places})
        pairs = zip(documents, places, strict=True)
        return self._records.put(_STRUCTURED, [self._draft(new, place, schemas) for new, place in pairs])

    def _draft(self, new: DocumentPut, place: _Place, schemas: Mapping[str, str]) -> NamedDraft:
        """What is to become of a document, checked."""
        document, expected = new["document"], new.get("if_version")
        if expected is not None and (isinstance(expected, bool) or not isinstance(expected, int) or expected < 0):
            raise InvalidInputError(f"must be a version, or 0, not {quote(expected)}", about="if_version")
        if place.name is None and (expected is not None or document is None):
            raise InvalidInputError("must be given to say which document is meant", about="key")
        if document is None:
            return NamedDraft(place.name, None, expected)
        origin = self._records.origin(new.get("source"), new.get("derived_from"))
        # what is not said of a document that takes another's place is not as it was of that
        said = Origin(origin.source or agent_source(self._records.scope.agent_id), origin.derived_from or ())
        given = check_metadata(new.get("metadata")) | _check_search_text(new.get("search_text"))
        text = _dump(self._records, document, place.collection, schemas)
        ttl = _check_ttl(new.get("ttl"))
        return NamedDraft(place.name, Draft(text, given | place.fields(text), said, name=place.name, ttl=ttl), expected)

    def get(self, collection: str, key: str) -> dict[str, Any] | None:
        """The document that has a key."""
        found = self.read(collection, key)
        return None if found is None else found["document"]

    def read(self, collection: str, key: str) -> DocumentResult | None:
        """The document that has a key, with its dates and its version."""
        found = find_named(self._records, [(collection, key)])
        return next((document_result(record, self._records.services.now()) for record in found.values()), None)

    def refresh(self, collection: str, keys: Sequence[str]) -> int:
        """Let the ``ttl`` of documents count from now; how many had one. What has expired stays gone."""
        self._records.check_agent()
        return refresh_documents(
            self._records, list(find_named(self._records, [(collection, key) for key in keys]).values())
        )

    def collections(self, prefix: str | None = None) -> list[CollectionResult]:
        """The collections that have documents (whose names begin with ``prefix``), by name, and how many each has."""
        services = self._records.services
        options = SearchOptions(0, services.now(), include_archived=True)
        counts = services.recall.count_values(self._records.scope, TYPES[_STRUCTURED], _COLLECTION, options)
        return [
            {"collection": name, "documents": counts[name]} for name in sorted(counts) if name.startswith(prefix or "")
        ]

    def delete_user_data(self, user_id: str) -> int:
        """Send all of a user's documents to the recycle bin; how many."""
        return self._records.clear(user_id, _STRUCTURED)

    def export_all(self, user_id: str) -> list[dict[str, Any]]:
        """All of a user's documents, whole, in whatever state they are."""
        return self._records.export(user_id, _STRUCTURED)

    def find(
        self,
        collection: str | None = None,
        where: Mapping[str, Any] | None = None,
        *,
        prefix: str | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
    ) -> list[DocumentResult]:
        """Documents whose fields pass ``where`` (the filters of ``retrieve``), newest first or by a field; with
        ``prefix``, of the collections whose names begin with it.
        """
        check_count(limit, "limit", most=_MOST)
        if order_by is not None and not (isinstance(order_by, str) and order_by):
            raise InvalidInputError(f"order_by must be the name of a field, not {quote(order_by)}")
        parts: list[Filter] = []
        if collection is not None:
            parts.append(Condition(_COLLECTION, "eq", _check_name(collection, "collection")))
        if prefix is not None:
            parts.append(Condition(_COLLECTION, "prefix", _check_name(prefix, "prefix")))
        if (asked := parse(where)) is not None:
            parts.append(within(asked, "document"))
        wanted, now = limit if order_by is None else _MOST, self._records.services.now()
        records = self._records.select(_STRUCTURED, SearchOptions(wanted, now, Combination("all", tuple(parts))))
        if order_by is not None:
            path = ("document", *order_by.split("."))
            records.sort(key=lambda record: _rank(value_at(record.metadata, path)), reverse=bool(descending))
        return [document_result(record, now) for record in records[:limit]]

    def delete(self, collection: str, key: str) -> bool:
        """Send the document that has a key to the recycle bin; whether there was one."""
        self._records.check_agent()
        record = self._records.named(_STRUCTURED, _name(collection, key))
        if record is not None:
            self._records.recycle(record.id, reason=DELETED_BY_USER)
        return record is not None


def find_named(records: DurableRecords, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Record]:
    """The records of the documents that have a key in a collection, whole."""
    services, names = records.services, {_name(*one): one for one in wanted}
    found = services.records.find_named(records.scope.subject, TYPES[_STRUCTURED], list(names), now=services.now())
    return {names[name]: _whole(records, record) for name, record in found.items()}


def _whole(records: DurableRecords, record: Record) -> Record:
    """A document's record; one in cold storage is read where it lies, and stays there."""
    if record.pack is None:
        return record
    whole = records.services.archives.read(record).document
    return replace(record, content=whole["content"], metadata=whole["metadata"])


def refresh_documents(records: DurableRecords, found: Sequence[Record]) -> int:
    """Let the time to live of documents that were read count from now; how many had one."""
    ids = [record.id for record in found if record.ttl is not None]
    if not ids:
        return 0
    now, scope = records.services.now(), records.scope
    return records.services.records.refresh(scope.subject, TYPES[_STRUCTURED], ids, now=now, agent=scope)


def draft_document(records: DurableRecords, document: object, metadata: dict[str, Any], origin: Origin) -> Draft:
    """A document, given as an object or as JSON text, that is not written yet; ``metadata`` may name its ``collection``
    and its ``key``.
    """
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as problem:
            raise InvalidContentError(f"structured memory takes a JSON object; this is not JSON: {problem}") from None
    place = _locate(metadata.get("collection"), metadata.get("key"))
    text = _dump(records, document, place.collection, _find_schemas(records, [place.collection]))
    return Draft(text, metadata | place.fields(text), origin, name=place.name)


def _dump(records: DurableRecords, document: object, collection: str, schemas: Mapping[str, str]) -> str:
    """A document's JSON text, if it can be kept in its collection."""
    if not isinstance(document, Mapping):
        raise InvalidContentError(f"structured memory takes a JSON object, not {quote(document)}")
    text = dump_json(document, InvalidContentError, "the document")
    _check_schema(schemas.get(collection), collection, document)
    most = records.services.max_content_bytes
    if len(text.encode("utf-8", "replace")) > most:
        raise InvalidContentError(f"a document of {len(text):,} characters is too large (max: {most:,} bytes)")
    return text


def _find_schemas(records: DurableRecords, collections: Iterable[str]) -> dict[str, str]:
    return records.services.schemas.find(records.scope.tenant, sorted(collections))


def _check_schema(text: str | None, collection: str, document: Mapping[str, Any]) -> None:
    """``SchemaViolationError`` if a document does not match the schema of its collection, which is JSON text."""
    if text is None:
        return
    schema = json.loads(text)
    validator = _jsonschema().validators.validator_for(schema)(schema)
    try:
        problem = next(iter(sorted(validator.iter_errors(document), key=lambda error: str(list(error.path)))), None)
    except RecursionError:
        raise SchemaViolationError(f"a document for {collection!r} is nested too deep for its schema") from None
    if problem is not None:
        where = ".".join(map(str, problem.path)) or "the document"
        raise SchemaViolationError(
            f"a document for {collection!r} does not match its schema: {where}: {problem.message[:200]}"
        )


def _refuse_foreign_references(schema: object, name: str) -> None:
    """A schema may refer to its own parts; what lies elsewhere is neither fetched nor read."""
    if isinstance(schema, Mapping):
        for word, inner in schema.items():
            if word in ("$ref", "$dynamicRef") and not str(inner).startswith(("#/$defs/", "#/definitions/")):
                raise InvalidInputError(
                    f"the schema of {name!r} refers to {quote(inner)}; only its own parts, such as #/$defs/x, are read"
                )
            _refuse_foreign_references(inner, name)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            _refuse_foreign_references(inner, name)


def _collection(value: object) -> str:
    return _check_name("default" if value is None else value, "collection")


def _check_name(value: object, what: str) -> str:
    return check_id(value, what, most=_MAX_NAME_CHARS)


def _locate(collection: object, key: object) -> _Place:
    """The place that a collection and a key name, if they can."""
    checked = _collection(collection)
    if key is None:
        return _Place(checked, None, None)
    name = f"{checked}{NAME_SEPARATOR}{_check_name(key, 'key')}"
    if len(name) > _MAX_INDEXED_CHARS:
        name = f"{name[:40]}…{NAME_SEPARATOR}{hashlib.sha256(name.encode()).hexdigest()}"
    return _Place(checked, str(key), name)


def _name(collection: str, key: str) -> str:
    """What the record of the document goes by that has a key."""
    return str(_locate(_check_name(collection, "collection"), _check_name(key, "key")).name)


def _check_search_text(value: object) -> dict[str, Any]:
    """What a document is to be found by, as its metadata say it."""
    if value is None or value is True:
        return {}
    if value is False:
        return {IS_SEARCHED: False}
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidInputError(f"must be a text, a list of texts or false, not {quote(value)}", about=SEARCH_TEXT)
    return {SEARCH_TEXT: list(texts)}


def _check_ttl(value: object) -> int | None:
    """How long a document lives, in microseconds."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-6 <= value <= _MAX_TTL_SECONDS:
        raise InvalidInputError(
            f"must be a number of seconds above 0 (at most 365,000 days), not {quote(value)}", about="ttl"
        )
    return round(value * SECOND)


def _rank(value: object) -> tuple[int, Any]:
    """A sort key over mixed values: numbers, then texts, then the rest as text, missing ones last."""
    if value is MISSING or value is None:
        return 3, ""
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, str(value))


def document_result(record: Record, now: int) -> DocumentResult:
    """A document as callers see it."""
    collection, key, document = (record.metadata.get(name) for name in ("collection", "key", "document"))
    expires_at = None if record.hidden_from is None else iso(record.hidden_from)
    return {
        **memory_result(record, now),
        "collection": str(collection),
        "key": key,
        "document": document,
        "expires_at": expires_at,
    }


def _jsonschema() -> Any:
    try:
        import jsonschema
    except ImportError:
        raise missing_extra("a schema", "schema") from None
    return jsonschema
