"""Routes: every operation of the table as a route of the REST API.

The way into each of them is the same: who calls is known, may do it, and has spelled the query right, before the body
is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from inspect import Parameter, Signature
from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import Depends, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.access.replies import Replies
from holdfast.core.access import Right
from holdfast.core.errors import ForbiddenError, InvalidFilterError, InvalidInputError, RequestTooLargeError, quote
from holdfast.core.values import to_json
from holdfast.edges.access.callers import Callers
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.operations.models import Input
from holdfast.edges.operations.operation import Form, Operation
from holdfast.edges.rest.errors import document_errors
from holdfast.edges.rest.idempotency import WRITES, Caller, answer_once, key_of
from holdfast.edges.rest.streams import NDJSON, stream_file, stream_progress

PREFIX: Final = "/v1"
#: Under these names the description of a route says what it needs.
RIGHT: Final = "x-holdfast-right"
REACH: Final = "x-holdfast-reach"
#: What only looks takes no larger body than this: reading it as JSON would keep all other callers waiting.
_MAX_QUESTION_BYTES: Final = 512 * 1024
_MAX_FILTERS_CHARS: Final = 16_384
_ZIP: Final = "application/zip"
#: Characters of a user's id that a file's name does not have.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@+-]+")
_NAMES: Final = re.compile(r"{(\w+)}")


class OperationRoute(APIRoute):
    """The route of one operation."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.method = operation.method
        # Of a write, one like it may be at work.
        errors = {*operation.errors, 409} if self.method in WRITES else operation.errors
        is_document = operation.form is Form.DOCUMENT
        summary, _, more = operation.description.partition("\n\n")
        super().__init__(
            PREFIX + _NAMES.sub(r"{\1:id}", operation.path),
            _endpoint(operation),
            name=operation.name,
            methods=[self.method],
            operation_id=operation.name,
            summary=" ".join(summary.split()).rstrip("."),
            description=more,
            tags=[operation.group],
            status_code=operation.status,
            response_model=None,
            response_class=JSONResponse if is_document else Response,
            responses={operation.status: _describe_answer(operation), **document_errors(errors)},
            openapi_extra={RIGHT: operation.right.value, REACH: operation.reach.value},
        )

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI's own, behind the checks."""
        handle = super().get_route_handler()
        known = frozenset(field.alias for field in self.dependant.query_params)
        right = self.operation.right

        async def guarded(request: Request) -> Response:
            callers: Callers = request.app.state.callers
            replies: Replies = request.app.state.replies
            principal = await callers.principal(request.headers)
            caller = Caller(callers.gate(principal, request.headers))
            if not principal.allows(right):
                raise ForbiddenError(f"this needs the right {right.value!r}, which the key does not have")
            _check_query(request, known)
            request.state.caller = caller
            key = key_of(request)
            await _read_body(request, _MAX_QUESTION_BYTES if right is Right.READ else None)
            async with callers.shares.slot(principal):  # once all of it is here: who sends slowly takes no place
                if key is None or right is Right.READ:  # what only looks may look again
                    return await handle(request)
                return await answer_once(request, key, caller, replies, handle, is_long=self.operation.is_long)

        return guarded


@cache
def route_table() -> tuple[OperationRoute, ...]:
    """Every route of the API."""
    return tuple(map(OperationRoute, OPERATIONS.values()))


def methods_at(path: str) -> set[str]:
    """What can be done at a path."""
    return {route.method for route in route_table() if route.path_regex.match(path)}


def answer(value: Any, status: int = 200) -> Response:
    """A JSON document. What the engine gives is JSON already; nothing of it is looked at again."""
    return Response(to_json(value).encode(), status, media_type="application/json")


# --- the endpoint of an operation -------------------------------------------------------------------------------------


async def _caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


def _endpoint(operation: Operation) -> Callable[..., Response]:
    """A function with the signature that FastAPI reads: the fields of the input by where a request has them."""
    fields = operation.inputs.model_fields
    in_path = set(_NAMES.findall(operation.path))
    in_query = set(operation.in_query) if operation.method in ("POST", "PUT", "PATCH") else fields.keys() - in_path
    in_body = [name for name in fields if name not in in_path | in_query]
    body = _body_model(operation.inputs, in_body)
    parameters = [Parameter("caller", Parameter.KEYWORD_ONLY, annotation=Annotated[Caller, Depends(_caller)])]
    outside = [name for name in fields if name not in in_body]
    outside.sort(key=lambda name: not fields[name].is_required())
    parameters += [_parameter(name, fields[name], is_path=name in in_path) for name in outside]
    objects = [name for name in in_query if _is_object(fields[name])]
    if body is not None:
        needed = any(field.is_required() for field in body.model_fields.values())
        default = Parameter.empty if needed else body()
        parameters.append(Parameter("body", Parameter.KEYWORD_ONLY, annotation=body, default=default))

    def endpoint(*, caller: Caller, body: BaseModel | None = None, **values: Any) -> Response:
        for name in objects:
            values[name] = _read_object(name, values[name])
        asked = body
        if not isinstance(asked, operation.inputs):
            asked = operation.inputs.model_construct(**values, **{name: getattr(body, name) for name in in_body})

        def work() -> Response:
            return _respond(operation, operation.bind(caller.gate, asked), asked)

        return work() if caller.carry is None else caller.carry(work)

    endpoint.__name__ = operation.name
    endpoint.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return endpoint


def _body_model(inputs: type[Input], names: list[str]) -> type[BaseModel] | None:
    """The model of a request's body: the input, without what the path and the query have."""
    if not names:
        return None
    if len(names) == len(inputs.model_fields):
        return inputs
    extra: Any = inputs.model_config.get("json_schema_extra") or {}
    shown = {name: value for name, value in extra.get("example", {}).items() if name in names}
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in inputs.model_fields.items() if name in names
    }
    model = create_model(inputs.__name__, __base__=Input, __module__=__name__, __doc__=inputs.__doc__, **fields)
    model.model_config["json_schema_extra"] = {"example": shown}
    model.model_rebuild(force=True)
    return model


def _parameter(name: str, field: FieldInfo, *, is_path: bool) -> Parameter:
    annotation: Any = field.annotation
    metadata, examples = field.metadata, field.examples
    if _is_object(field):
        annotation, metadata = str | None, []
        examples = [json.dumps(one) for one in examples or ()]
    options: dict[str, Any] = {"description": field.description, "examples": examples}
    if _is_object(field):
        options["max_length"] = _MAX_FILTERS_CHARS
        options["description"] = f"{field.description} As JSON."
    marked = Annotated[(annotation, *metadata, (Path if is_path else Query)(**options))]
    default = Parameter.empty if field.is_required() else field.default
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=marked, default=default)


def _is_object(field: FieldInfo) -> bool:
    return "dict" in str(field.annotation)


def _read_object(name: str, text: str | None) -> dict[str, Any] | None:
    """A JSON object that came in a query."""
    if text is None:
        return None
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidFilterError(f"{name} must be a JSON object, not {quote(text)}") from None
    if not isinstance(read, dict):
        raise InvalidFilterError(f"{name} must be a JSON object, not {quote(read)}")
    return read


def _respond(operation: Operation, run: Callable[..., Any], asked: Any) -> Response:
    match operation.form:
        case Form.LINES:
            return stream_progress(run)
        case Form.FILE:
            name = f"export-{_UNSAFE.sub('_', asked.user_id)[:64]}.zip"
            return stream_file(run, media_type=_ZIP, filename=name)
        case Form.DOCUMENT:
            return answer(run(), operation.status)


def _describe_answer(operation: Operation) -> dict[str, Any]:
    """What the description says of an answer."""
    about = " ".join((operation.output.__doc__ or "").split())
    if operation.form is Form.DOCUMENT:
        return {"description": about, "model": operation.output}
    if operation.form is Form.FILE:
        return {"description": about, "content": {_ZIP: {"schema": {"type": "string", "format": "binary"}}}}
    extra: Mapping[str, Any] = operation.output.model_config["json_schema_extra"]  # type: ignore[assignment]
    lines = [{"progress": 500}, {"result": extra["example"]}]
    return {
        "description": (
            'Lines of JSON: `{"progress": done}` now and then, then `{"result": {…}}`; or, if something goes wrong in '
            f'between, `{{"problem": {{…}}}}`. The result: {about}'
        ),
        "content": {
            NDJSON: {
                "schema": {"type": "string"},
                "example": "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
            }
        },
    }


# --- checks before a request is read ----------------------------------------------------------------------------------


async def _read_body(request: Request, most: int | None) -> None:
    """Read a request to its end; ``RequestTooLargeError`` for a question of more than ``most`` bytes."""
    declared = request.headers.get("content-length", "")
    length = int(declared) if declared.isdecimal() else len(await request.body())
    if most is not None and length > most:
        raise RequestTooLargeError(f"a question has at most {most:,} bytes, and this has {length:,}; ask for less")
    await request.body()


def _check_query(request: Request, known: frozenset[str]) -> None:
    """Refuse a query parameter that nobody reads: a misspelt filter would let everything through."""
    if not request.scope["query_string"]:
        return
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        names = ", ".join(sorted(known)) or "none"
        raise InvalidInputError(f"there is no query parameter {quote(unknown)} here; known are: {names}")
    twice = next((name for name in known if len(request.query_params.getlist(name)) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"the query parameter {twice!r} is given more than once; give it once")


class _Id(Convertor[str]):
    """One segment of a path, still as it was sent; read as what it means. So an id may have a slash in it."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape")  # what is no UTF-8 is refused as any text that is none

    def to_string(self, value: str) -> str:
        raise NotImplementedError("paths are not made from ids here")


register_url_convertor("id", _Id())


class SentPaths:
    """Lets routes of the API see paths as they were sent, so that ``%2F`` in an id does not split it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes | None = scope.get("raw_path")
        if scope["type"] == "http" and raw is not None and scope["path"].startswith(f"{PREFIX}/"):
            sent = raw.partition(b"?")[0].decode("latin-1")
            if sent.startswith(f"{PREFIX}/"):
                scope = {**scope, "path": sent}
        await self._app(scope, receive, send)
