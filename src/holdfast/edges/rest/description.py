"""The description of the API (OpenAPI), from the routes themselves."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, cast

from pydantic.json_schema import models_json_schema

from holdfast import __version__
from holdfast.core.values import MAX_ID_CHARS
from holdfast.edges.access.callers import TENANT_HEADER
from holdfast.edges.operations.catalog import GROUPS
from holdfast.edges.operations.errors import PROBLEM_JSON
from holdfast.edges.operations.operation import Form, Operation
from holdfast.edges.operations.outputs import FileAnswer
from holdfast.edges.rest.idempotency import HEADER, MAX_KEY_CHARS, WRITES
from holdfast.edges.rest.routes import OperationRoute, route_table
from holdfast.edges.rest.streams import NDJSON

_MODE: Final = "validation"
_ABOUT: Final = "Memory for AI agents that knows when to let go."
INFO: Final = MappingProxyType({"title": "Holdfast", "description": _ABOUT, "version": __version__})
_TENANT: Final = {
    "name": TENANT_HEADER,
    "in": "header",
    "required": False,
    "description": "The tenant to act for; the key's own, if not given (an operator's: `default`).",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS, "pattern": "^[^/]+$"},
}
_ONCE: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": (
        "Made anew for each write, and sent again with the same request when no answer came: within a day it is "
        "carried out once, and answered alike."
    ),
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": "^[ -~]*[!-~][ -~]*$"},
}
_LINES: Final = {"schema": {"type": "string"}}
_IN_LINES: Final = " With `Accept: application/x-ndjson`, one line for each, and without `limit` all of them."
_ALWAYS: Final = frozenset({"400", "401", "403", "413", "422", "429", "5XX"})


@cache
def describe(*, keys_required: bool) -> dict[str, Any]:
    """The API as an OpenAPI document: what ``openapi.json`` has in common for all operations, and each of them."""
    api = json.loads(resources.files(__package__).joinpath("openapi.json").read_text(encoding="utf-8"))
    reaches, meanings = api.pop("x-reaches"), api.pop("x-errors")
    models = {one for route in route_table() for one in (route.body, route.parameters, route.operation.output) if one}
    ordered = sorted(models, key=lambda model: model.__name__)
    refs, made = models_json_schema([(one, _MODE) for one in ordered], ref_template="#/components/schemas/{model}")
    schemas = made["$defs"]
    api["info"] = dict(INFO)
    api["tags"] = [{"name": group.name, "description": group.about} for group in GROUPS]
    api["security"] = [{name: []} for name in api["components"]["securitySchemes"]] + ([] if keys_required else [{}])
    api["paths"] = {route.path_format: {} for route in route_table()}
    for route in route_table():
        parameters = schemas.pop(refs[route.parameters, _MODE]["$ref"].rsplit("/", 1)[-1])
        described = _describe_route(route, parameters, refs)
        described["description"] += f"{reaches[route.operation.reach]}."
        own = {str(status) for status in route.operation.errors} | ({"409"} if route.method in WRITES else set())
        described["responses"] |= {status: _describe_error(meanings[status]) for status in sorted(_ALWAYS | own)}
        api["paths"][route.path_format][route.method.lower()] = described
    api["components"]["schemas"] |= schemas
    return cast("dict[str, Any]", api)


def _describe_route(route: OperationRoute, parameters: dict[str, Any], refs: Any) -> dict[str, Any]:
    operation = route.operation
    _, _, more = operation.description.partition("\n\n")
    body = None if route.body is None else {"application/json": {"schema": refs[route.body, _MODE]}}
    if body is not None and operation.form is Form.ITEMS:
        body[NDJSON] = _LINES
    described = [
        {
            "name": name,
            "in": "path" if name in operation.in_path else "query",
            "required": name in parameters.get("required", ()),
            "description": schema.get("description", ""),
            "schema": schema,
        }
        for name, schema in parameters.get("properties", {}).items()
    ]
    return {
        "tags": [operation.group],
        "summary": operation.summary,
        "description": f"{more}\n\nNeeds the right `{operation.right.value}`".strip(),
        "operationId": operation.name,
        "parameters": [*described, _TENANT, *([_ONCE] if route.method in WRITES else [])],
        **({"requestBody": {"content": body, "required": route.is_body_needed}} if body else {}),
        "responses": {str(operation.status): _describe_answer(operation, refs)},
        "x-holdfast-right": operation.right.value,
        "x-holdfast-reach": operation.reach.value,
    }


def _describe_error(meaning: str) -> dict[str, Any]:
    return {"description": meaning, "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _describe_answer(operation: Operation, refs: Any) -> dict[str, Any]:
    about = " ".join((operation.output.__doc__ or "").split())
    if operation.form in (Form.DOCUMENT, Form.ITEMS):
        content: dict[str, Any] = {"application/json": {"schema": refs[operation.output, _MODE]}}
        if "items" in operation.output.model_fields:
            content[NDJSON] = _LINES
            about += _IN_LINES
        return {"description": about, "content": content}
    if operation.form is Form.FILE:
        kind = cast("type[FileAnswer]", operation.output).media_type
        return {"description": about, "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}
    extra: Any = operation.output.model_config["json_schema_extra"]
    lines = [{"progress": 500}, {"result": extra["example"]}]
    example = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    about = (
        'Lines of JSON: `{"progress": done}` now and then, then `{"result": {…}}`; or, if something goes wrong in '
        f'between, `{{"problem": {{…}}}}`. The result: {about}'
    )
    return {"description": about, "content": {NDJSON: {"schema": {"type": "string"}, "example": example}}}
