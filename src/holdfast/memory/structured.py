"""Structured memory: JSON documents in named collections, with an optional schema, queried by field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.core.errors import InvalidContentError, InvalidInputError, SchemaViolationError, quote
from holdfast.core.filters import MISSING, Combination, Condition, Filter, parse, value_at, within
from holdfast.core.records import MemoryType, Record
from holdfast.core.values import Origin, agent_source, check_count, check_id, check_metadata, dump_json
from holdfast.installation import missing_extra
from holdfast.memory.records import Draft, DurableRecords, memory_result
from holdfast.recall.index import SearchOptions
from holdfast.results import DocumentResult

_STRUCTURED: Final = MemoryType.STRUCTURED
_MOST: Final = 1_000_000


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
        source: str | None = None,
        derived_from: Sequence[str] | None = None,
    ) -> str:
        """Keep a document; its memory id. With a ``key``, it takes the place of the document that has it, and comes
        from where is said now, whatever was said of that.
        """
        self._records.check_agent()
        origin = self._records.origin(source, derived_from)
        given = {**check_metadata(metadata), "collection": collection, "key": key}
        draft = draft_document(self._records, document, given, origin)
        # what is not said of a document that takes another's place is not as it was of that
        said = Origin(origin.source or agent_source(self._records.scope.agent_id), origin.derived_from or ())

        def change(there: Record) -> Record:
            fields = said.fields(there.scope.agent_id)
            return self._records.change(there, from_cold=True, content=draft.content, metadata=draft.metadata, **fields)

        return self._records.upsert(_STRUCTURED, draft, change)

    def get(self, collection: str, key: str) -> dict[str, Any] | None:
        """The document that has a key."""
        record = self._records.named(_STRUCTURED, _name(collection, key))
        if record is None:
            return None
        if record.pack is not None:  # looked up by its key, it is read where it lies, and stays there
            whole = self._records.services.archives.read(record)
            return whole.document["metadata"]["document"]  # type: ignore[no-any-return]
        return record.metadata["document"]  # type: ignore[no-any-return]

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
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
    ) -> list[DocumentResult]:
        """Documents whose fields pass ``where`` (the filters of ``retrieve``), newest first or by a field."""
        check_count(limit, "limit", most=_MOST)
        if order_by is not None and not (isinstance(order_by, str) and order_by):
            raise InvalidInputError(f"order_by must be the name of a field, not {quote(order_by)}")
        parts: list[Filter] = []
        if collection is not None:
            parts.append(Condition(("metadata", "collection"), "eq", check_id(collection, "collection")))
        if (asked := parse(where)) is not None:
            parts.append(within(asked, "document"))
        wanted, now = limit if order_by is None else _MOST, self._records.services.now()
        records = self._records.select(_STRUCTURED, SearchOptions(wanted, now, Combination("all", tuple(parts))))
        if order_by is not None:
            path = ("document", *order_by.split("."))
            records.sort(key=lambda record: _rank(value_at(record.metadata, path)), reverse=bool(descending))
        return [_document_result(record, now) for record in records[:limit]]

    def delete(self, collection: str, key: str) -> bool:
        """Send the document that has a key to the recycle bin; whether there was one."""
        self._records.check_agent()
        record = self._records.named(_STRUCTURED, _name(collection, key))
        if record is not None:
            self._records.recycle(record.id, reason="deleted by the user")
        return record is not None


def draft_document(records: DurableRecords, document: object, metadata: dict[str, Any], origin: Origin) -> Draft:
    """A document, given as an object or as JSON text, that is not written yet; ``metadata`` may name its ``collection``
    and its ``key``.
    """
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as problem:
            raise InvalidContentError(f"structured memory takes a JSON object; this is not JSON: {problem}") from None
    if not isinstance(document, Mapping) or not document:
        raise InvalidContentError(f"structured memory takes a JSON object with fields, not {quote(document)}")
    collection = check_id(metadata.get("collection") or "default", "collection")
    key = None if metadata.get("key") is None else check_id(metadata["key"], "key")
    text = dump_json(document, InvalidContentError, "the document")
    _check_schema(records.services.schemas.get(records.scope.tenant, collection), collection, document)
    most = records.services.max_content_bytes
    if len(text.encode("utf-8", "replace")) > most:
        raise InvalidContentError(f"a document of {len(text):,} characters is too large (max: {most:,} bytes)")
    kept = {**metadata, "collection": collection, "key": key, "document": json.loads(text)}  # all of it was checked
    return Draft(text, kept, origin, name=None if key is None else _name(collection, key))


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


def _name(collection: str, key: str) -> str:
    return f"{check_id(collection, 'collection')}\x1f{check_id(key, 'key')}"


def _rank(value: object) -> tuple[int, Any]:
    """A sort key over mixed values: numbers, then texts, then the rest as text, missing ones last."""
    if value is MISSING or value is None:
        return 3, ""
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, str(value))


def _document_result(record: Record, now: int) -> DocumentResult:
    collection, key, document = (record.metadata.get(name) for name in ("collection", "key", "document"))
    return {**memory_result(record, now), "collection": str(collection), "key": key, "document": document}


def _jsonschema() -> Any:
    try:
        import jsonschema  # noqa: PLC0415 - only those who define schemas need it
    except ImportError:
        raise missing_extra("a schema", "schema") from None
    return jsonschema
