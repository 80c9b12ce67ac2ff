"""The description of the API (OpenAPI), from the routes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from holdfast.core.values import MAX_ID_CHARS
from holdfast.edges.access.callers import TENANT_HEADER
from holdfast.edges.operations.catalog import GROUPS
from holdfast.edges.rest.errors import Problem
from holdfast.edges.rest.idempotency import HEADER, MAX_KEY_CHARS, WRITES
from holdfast.edges.rest.routes import REACH, RIGHT

_METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})
_KEYS: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, as `holdfast access create` shows it."},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same, in a header of its own."},
}
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
_REACHES: Final = {
    "caller": "",
    "memory": ", and that the key reaches the user and the agent",
    "user": ", and a key that reaches the user and is bound to no agents",
    "whose": ", and a key that reaches the user and is bound to no agents (to nothing at all, where no user is named)",
    "tenant": ", and a key that is bound to neither users nor agents",
    "store": ", and an operator's key",
}


def describe(app: FastAPI, *, keys_required: bool) -> dict[str, Any]:
    """The API as an OpenAPI document."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": group.name, "description": group.about} for group in GROUPS],
    )
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # ours are problems
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    for model in _models(BaseModel):
        said = model.model_config.get("json_schema_extra")
        if model.__name__ in schemas and isinstance(said, dict) and "example" in said:
            schemas[model.__name__]["example"] = deepcopy(said["example"])  # FastAPI has left every null out of it
    parts["securitySchemes"] = deepcopy(_KEYS)
    made["security"] = [{name: []} for name in _KEYS] + ([] if keys_required else [{}])
    for path in made["paths"].values():
        for method, operation in path.items():
            if method in _METHODS:
                _complete(method, operation)
    return made


def _models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The models of the API, below one that they have in common."""
    for model in root.__subclasses__():
        if model.__module__.startswith(("holdfast.edges.operations.", "holdfast.edges.rest.")):
            yield model
            yield from _models(model)


def _complete(method: str, operation: dict[str, Any]) -> None:
    """What every operation has, said with each of them."""
    parameters: list[dict[str, Any]] = operation.setdefault("parameters", [])
    parameters.append(deepcopy(_TENANT))
    if method.upper() in WRITES:
        parameters.append(deepcopy(_ONCE))
    needed = f"Needs the right `{operation[RIGHT]}`{_REACHES[operation[REACH]]}."
    said = operation.get("description") or ""
    operation["description"] = f"{said}\n\n{needed}".strip()
