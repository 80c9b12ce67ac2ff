"""Routes: every operation of the table as a route of the REST API.

The way into each of them is the same: who calls is known, may do it, and has spelled the query right, before the body
is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from functools import cache, partial
from typing import Any, Final, cast
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

import orjson
from pydantic import BaseModel, Field, ValidationError, create_model
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdfast.core.access import Principal, Right
from holdfast.core.errors import InvalidFilterError, InvalidInputError, RequestTooLargeError, quote
from holdfast.edges.access.callers import Callers
from holdfast.edges.operations.batches import run_line
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.operations.errors import form_error
from holdfast.edges.operations.models import MAX_PAGE, PLAIN, Input, Paged
from holdfast.edges.operations.operation import Form, Operation, Reach
from holdfast.edges.operations.outputs import FileAnswer, encode
from holdfast.edges.rest.direct import SMALL_BYTES, WholeRequest, read_headers
from holdfast.edges.rest.idempotency import REPLAYED, Caller, answer_once, item_once, key_of, tell_again
from holdfast.edges.rest.streams import is_ndjson, stream_file, stream_items, stream_pages, stream_progress

PREFIX: Final = "/v1"
#: What has no more objects and lists cannot be nested too deep.
_PLAIN_PARTS: Final = 32
#: What only looks takes no larger body than this.
_MAX_QUESTION_BYTES: Final = 512 * 1024
_MAX_FILTERS_CHARS: Final = 16_384
#: A whole number that does not fit into 64 bits; a fast reader would make a float of it.
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_JSON: Final = re.compile(r"application/(?:[^;]*\+)?json\s*(?:;|$)", re.IGNORECASE)
_UNREADABLE: Final = (
    "the body cannot be read as JSON: it is nested too deep, has numbers of too many digits, or is no UTF-8"
)
#: Characters of a user's id that a file's name does not have.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@+-]+")
_NAMES: Final = re.compile(r"{(\w+)}")


class OperationRoute(Route):
    """The route of one operation."""

    def __init__(self, operation: Operation) -> None:
        path = PREFIX + _NAMES.sub(r"{\1:id}", operation.path)
        super().__init__(path, self.answer, methods=[operation.method], name=operation.name)
        self.operation = operation
        self.method = operation.method
        self.methods = {operation.method}
        self.body: type[Input] | None = _body_model(operation)
        """What a body must be; ``None`` where there is none."""
        self.is_body_needed = self.body is not None and any(
            field.is_required() for field in self.body.model_fields.values()
        )
        self.parameters = _parameters(operation)
        """What the path and the query must be together."""
        self._has_parameters = bool(self.parameters.model_fields)
        self.in_query = self.parameters.model_fields.keys() - operation.in_path
        self.has_items = operation.form is Form.DOCUMENT and "items" in operation.output.model_fields
        """Whether it gives a list, which can be had in lines."""
        self._objects = [name for name in self.in_query if _is_object(operation.inputs, name)]
        self.is_direct = operation.is_quick and not self._has_parameters
        """Whether it may be answered directly."""

    async def answer(self, request: Request) -> Response:
        """Answer a request, if all checks are passed."""
        scope, right = request.scope, self.operation.right
        callers: Callers = scope["app"].callers
        headers, was_tried = read_headers(scope), "call" in scope.get("state", ())  # directly, and it took too long
        principal = await callers.principal(headers)
        caller = self._admit(scope, callers, principal, headers)
        _check_query(scope, self.in_query)
        key = key_of(headers, self.method)
        if self.operation.form is Form.ITEMS:
            caller.once = None if key is None else item_once(request.app.replies, key, caller.gate)
            if is_ndjson(headers.get("content-type")):
                return stream_items(lambda number, line: run_line(caller.gate, line, number, caller.once))
        is_question = right is Right.READ and self.operation.form is not Form.ITEMS
        most = _MAX_QUESTION_BYTES if is_question else None
        caller.content = await _read_body(request.receive, headers.get("content-length", ""), most)
        async with callers.shares.slot(principal):  # once all of it is here: who sends slowly takes no place
            if key is None or right is Right.READ:  # what only looks may look again
                is_quick = self.operation.is_quick and len(caller.content) <= SMALL_BYTES and not was_tried
                return await callers.run(principal.tenant, self._run, scope, caller, is_quick=is_quick)
            response = await answer_once(request, key, caller, self.run, is_long=self.operation.is_long)
            if REPLAYED in response.headers and self.operation.reach is Reach.MEMORY:
                return await callers.workers.run(principal.tenant, self._tell_again, scope, caller, response)
            return response

    async def run(self, request: Request) -> Response:
        """Do what is asked, in a thread."""
        callers: Callers = request.app.callers
        caller: Caller = request.scope["state"]["call"]
        return await callers.workers.run(caller.gate.principal.tenant, self._run, request.scope, caller)

    def answer_directly(self, asked: WholeRequest, callers: Callers) -> Response | None:
        """Answer a plain request; ``None``, with nothing done, if it is not known who asks."""
        principal = callers.find_principal(asked.headers)
        if principal is None:
            return None
        caller = self._admit(asked.scope, callers, principal, asked.headers)
        caller.content = asked.content
        return self._respond(caller, self._read(asked.scope, caller))

    def _admit(self, scope: Scope, callers: Callers, principal: Principal, headers: Mapping[str, str]) -> Caller:
        """Who calls and what is in reach, if they may ask this."""
        state = scope.setdefault("state", {})
        state["caller"] = principal  # for the log and for limits
        caller = state["call"] = Caller(callers.gate(principal, headers), headers)
        caller.gate.check_right(self.operation.right)
        return caller

    def _run(self, scope: Scope, caller: Caller) -> Response:
        asked = self._read(scope, caller)
        if caller.carry is not None:
            return caller.carry(partial(self._respond, caller, asked))
        if self.has_items and is_ndjson(caller.headers.get("accept")):
            return self._stream_pages(scope, caller, asked)
        return self._respond(caller, asked)

    def _tell_again(self, scope: Scope, caller: Caller, response: Response) -> Response:
        asked = self._read(scope, caller).__dict__
        response.body = encode(tell_again(caller.gate, asked, json.loads(bytes(response.body))))
        response.headers["content-length"] = str(len(response.body))
        return response

    def _respond(self, caller: Caller, asked: Any) -> Response:
        run = self.operation.bind(caller.gate, asked)
        match self.operation.form:
            case Form.LINES:
                return stream_progress(run)
            case Form.FILE:
                return stream_file(run, **describe_file(self.operation, asked))
            case Form.ITEMS:
                return answer(run(caller.once))
            case Form.DOCUMENT:
                return answer(run(), self.operation.status)

    def _stream_pages(self, scope: Scope, caller: Caller, asked: Any) -> Response:
        is_whole = isinstance(asked, Paged) and "limit" not in QueryParams(scope["query_string"])
        if is_whole:
            asked.limit = MAX_PAGE

        def read(cursor: str | None) -> Any:
            if cursor is not None:
                asked.cursor = cursor
            return self.operation.bind(caller.gate, asked)()

        return stream_pages(read, is_whole=is_whole)

    def _read(self, scope: Scope, caller: Caller) -> Input:
        """The input of the operation, from the path, the query and the body of a request."""
        content = caller.content
        body, context = None, None
        if self.body is not None:
            body, context = _read_json(caller.headers.get("content-type", ""), content)
        found: list[Any] = []
        values: dict[str, Any] = {}
        if self._has_parameters:
            try:
                given = {**QueryParams(scope["query_string"]), **scope["path_params"]}
                values = dict(self.parameters.model_validate(given))
            except ValidationError as wrong:
                in_path = self.operation.in_path
                found += [
                    {**one, "loc": ("path" if one["loc"][0] in in_path else "query", *one["loc"])}
                    for one in wrong.errors()
                ]
        if self.is_body_needed and not content:
            found.append({"type": "missing", "loc": ("body",)})
        elif self.body is not None:
            try:
                read = self.body.model_validate(body if content else {}, context=context)
                if self.body is self.operation.inputs:
                    return read
                values |= dict(read)
            except ValidationError as wrong:
                found += [{**one, "loc": ("body", *one["loc"])} for one in wrong.errors()]
        if found:
            raise form_error(found, body, self.body)
        for name in self._objects:
            values[name] = _read_object(name, values[name])
        return self.operation.inputs.model_construct(**values)


@cache
def route_table() -> tuple[OperationRoute, ...]:
    """Every route of the API."""
    return tuple(map(OperationRoute, OPERATIONS.values()))


@cache
def direct_routes() -> dict[bytes, OperationRoute]:
    """The routes that may be answered directly, by their paths as they are sent."""
    return {one.path.encode(): one for one in route_table() if one.is_direct}


def methods_at(path: str) -> set[str]:
    """What can be done at a path."""
    return {route.method for route in route_table() if route.path_regex.match(path)}


class Document(Response):
    """A JSON document, made in as few steps as can be: nearly every answer is one."""

    def __init__(self, body: bytes, status: int) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


def answer(value: Any, status: int = 200) -> Response:
    """A JSON document. What the engine gives is JSON already; nothing of it is looked at again."""
    return Document(encode(value), status)


# --- the parts of a request -------------------------------------------------------------------------------------------


def _body_model(operation: Operation) -> type[Input] | None:
    """The model of a request's body: the input, without what the path and the query have."""
    inputs, names = operation.inputs, operation.in_body
    if not names:
        return None
    if len(names) == len(inputs.model_fields):
        return inputs
    extra: Any = inputs.model_config.get("json_schema_extra") or {}
    example = {name: value for name, value in extra.get("example", {}).items() if name in names}
    fields: dict[str, Any] = {name: (one.annotation, one) for name, one in inputs.model_fields.items() if name in names}
    model = create_model(inputs.__name__, __base__=Input, __module__=__name__, __doc__=inputs.__doc__, **fields)
    model.model_config["json_schema_extra"] = {"example": example}
    model.model_rebuild(force=True)
    return model


def _parameters(operation: Operation) -> type[BaseModel]:
    """The model of a request's path and query, which are texts: numbers are read from them. What is needed is first."""
    fields: dict[str, Any] = {}
    for name, field in sorted(operation.inputs.model_fields.items(), key=lambda item: not item[1].is_required()):
        if name not in operation.in_body:
            fields[name] = (field.annotation, field)
            if _is_object(operation.inputs, name):
                about, examples = f"{field.description} As JSON.", [*map(json.dumps, field.examples or ())]
                options = Field(None, max_length=_MAX_FILTERS_CHARS, description=about, examples=examples)
                fields[name] = (str | None, options)
    return create_model(f"{operation.name}_parameters", __module__=__name__, **fields)


def _is_object(inputs: type[Input], name: str) -> bool:
    return "dict" in str(inputs.model_fields[name].annotation)


def _read_json(declared: str, content: bytes) -> tuple[Any, Any]:
    """A body as JSON, and the context to validate it in; as it is, if it is empty or not declared as JSON."""
    if not content or (declared != "application/json" and not _JSON.match(declared)):
        return content, None
    if _LONG_NUMBER.search(content):
        return _read_slowly(content), None
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return _read_slowly(content), None
    # The fast reader takes nothing but JSON. How deep it is nested, and how much there is of it, is still to be seen.
    is_plain = len(content) <= SMALL_BYTES and content.count(b"{") + content.count(b"[") <= _PLAIN_PARTS
    return found, PLAIN if is_plain else None


def _read_slowly(content: bytes) -> Any:
    """A body as JSON, by Python's own reader: it knows other encodings and long numbers, and says what is wrong."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as wrong:
        raise HTTPException(400, f"the body is not JSON: {wrong.msg} (character {wrong.pos})") from None
    except (ValueError, RecursionError):
        raise HTTPException(400, _UNREADABLE) from None


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


def describe_file(operation: Operation, asked: Input) -> dict[str, str]:
    """The media type and the name of the file that an operation sends."""
    kind = cast("type[FileAnswer]", operation.output)
    values = {name: _UNSAFE.sub("_", str(value))[:64] for name, value in asked.__dict__.items()}
    return {"media_type": kind.media_type, "filename": kind.file_name.format(**values)}


# --- checks before a request is read ----------------------------------------------------------------------------------


async def _read_body(receive: Receive, declared: str, most: int | None) -> bytes:
    """A request's body, read to its end; ``RequestTooLargeError`` for a question of more than ``most`` bytes."""
    if most is not None and declared.isdecimal() and int(declared) > most:
        raise _too_large(int(declared), most)
    content, has_more = b"", True
    pieces: list[bytes] = []
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        content, has_more = message.get("body", b""), message.get("more_body", False)
        if has_more or pieces:
            pieces.append(content)
    content = b"".join(pieces) if pieces else content
    if most is not None and len(content) > most:
        raise _too_large(len(content), most)
    return content


def _too_large(length: int, most: int) -> RequestTooLargeError:
    return RequestTooLargeError(f"a question has at most {most:,} bytes, and this has {length:,}; ask for less")


def _check_query(scope: Scope, known: Set[str]) -> None:
    """Refuse a query parameter that nobody reads: a misspelt filter would let everything through."""
    if not scope["query_string"]:
        return
    given = QueryParams(scope["query_string"])
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        names = ", ".join(sorted(known)) or "none"
        raise InvalidInputError(f"there is no query parameter {quote(unknown)} here; known are: {names}")
    twice = next((name for name in known if len(given.getlist(name)) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"the query parameter {twice!r} is given more than once; give it once")


class _Id(Convertor[str]):
    """One segment of a path, still as it was sent; read as what it means. So an id may have a slash in it."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape")  # what is no UTF-8 is refused as any text that is none

    def to_string(self, value: str) -> str:
        return percent_encode(value, safe="")


register_url_convertor("id", _Id())
