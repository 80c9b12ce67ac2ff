"""Errors of the REST API: every one is answered as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from holdfast.core.errors import HoldfastError, quote
from holdfast.edges.operations.errors import PROBLEM_JSON, ProblemDocument, problem_of, status_of, write_problem
from holdfast.edges.operations.validation_errors import code_of, mistakes_in, summarize

#: Codes of errors that the framework finds, before any operation is asked.
FRAMEWORK_CODES: Final = MappingProxyType({400: "malformed_request", 404: "not_found", 405: "method_not_allowed"})


class FieldProblem(BaseModel):
    """One thing that is wrong with a request."""

    model_config = ConfigDict(extra="forbid")

    where: str = Field(description="Where it is: `body`, `query` or `path`, and the names that lead there.")
    problem: str = Field(description="What is wrong with it.")


class Problem(BaseModel):
    """What went wrong, in the form of RFC 9457."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "type": "about:blank",
                "title": "Not Found",
                "status": 404,
                "detail": "no memory '0198c2d4-…' for user 'alice'",
                "code": "not_found",
                "retryable": False,
                "request_id": None,
            }
        },
    )

    type: str = Field(description="Always `about:blank`: the code says what kind of problem it is.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong, with the value, and what to do about it.")
    code: str = Field(description="What programs test: stable, and the same in the library and on the command line.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    request_id: str | None = Field(default=None, description="What the server's log knows the request by.")
    errors: list[FieldProblem] | None = Field(
        default=None, description="Everything that is wrong, where it is several."
    )


def respond(request: Request, problem: HoldfastError) -> Response:
    """The response to a request that ended with an error."""
    needs = problem.needs or (("confirm",) if status_of(problem) == 428 else ())
    more = _describe_needs(request, needs) if status_of(problem) < 500 else ""
    return _response(problem_of(problem, _request_id(request), more))


def failed(request: Request) -> Response:
    """The response to a request that ended in a way that nobody foresaw: nothing is said of how."""
    detail = "Something went wrong within the server; its log says what."
    return _response(write_problem(500, detail, code=HoldfastError.code, request_id=_request_id(request)))


def install(app: FastAPI, *, methods_at: Callable[[str], Collection[str]]) -> None:
    """Let an application answer every error in this form. ``methods_at`` says what can be done at a path."""

    async def handle(request: Request, problem: Exception) -> Response:
        match problem:
            case HoldfastError():
                return respond(request, problem)
            case RequestValidationError():
                return _refuse_form(request, problem)
            case HTTPException():
                return _refuse_early(request, problem, methods_at(request.scope["path"]))
            case _:
                return failed(request)

    for family in (HoldfastError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(family, handle)


def _response(document: ProblemDocument) -> Response:
    return Response(document.body, document.status, document.headers, PROBLEM_JSON)


def _request_id(request: Request) -> str | None:
    state: dict[str, Any] = request.scope.get("state") or {}
    return state.get("request_id")


def _describe_needs(request: Request, needs: Sequence[str]) -> str:
    """What is to be sent to the route that was asked, for the same request to be accepted."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return ""
    why = "to confirm" if "confirm" in needs else "to go on"
    values = {name: "…" if name.endswith("_id") else "true" for name in needs}
    in_query = {field.alias for field in route.dependant.query_params}
    if asked := "&".join(f"{name}={value}" for name, value in values.items() if name in in_query):
        return f" ({why}, add {'&' if request.scope['query_string'] else '?'}{asked})"
    in_body = getattr(_model_of(route), "model_fields", {})
    if asked := ", ".join(f'"{name}": {value}' for name, value in values.items() if name in in_body):
        return f" ({why}, send {asked} in the body)"
    return ""


def _model_of(route: object) -> type[BaseModel] | None:
    """What the body of a request must be."""
    if not isinstance(route, APIRoute) or route.body_field is None:
        return None
    model = route.body_field.field_info.annotation
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _refuse_form(request: Request, problem: RequestValidationError) -> Response:
    """The response to a request that does not have the form that its route asks for."""
    found = problem.errors()
    broken = next((one for one in found if one.get("type") == "json_invalid"), None)
    if broken is not None:
        reason = (broken.get("ctx") or {}).get("error", "it cannot be read")
        detail = f"the body is not JSON: {reason} (character {broken['loc'][-1]})"
        return _response(write_problem(400, detail, code=FRAMEWORK_CODES[400], request_id=_request_id(request)))
    mistakes = mistakes_in(found, problem.body, _model_of(request.scope.get("route")))
    detail, shown = summarize(mistakes)
    errors = [{"where": one.where, "problem": one.problem} for one in shown]
    return _response(write_problem(422, detail, code=code_of(mistakes), request_id=_request_id(request), errors=errors))


def _refuse_early(request: Request, problem: HTTPException, methods: Collection[str]) -> Response:
    status, path = problem.status_code, quote(request.scope["path"])
    headers = {"Allow": ", ".join(sorted(methods))} if status == 405 and methods else problem.headers
    detail = {
        400: "the body cannot be read as JSON: it is nested too deep, has numbers of too many digits, or is no UTF-8",
        404: f"there is nothing at {path}; see /docs",
        405: f"{request.method} is not possible at {path}; see /docs",
    }.get(status, str(problem.detail))
    code = FRAMEWORK_CODES.get(status, "error")
    return _response(write_problem(status, detail, code=code, request_id=_request_id(request), headers=headers))


_ALWAYS: Final = (400, 401, 403, 413, 422, 429)
_MEANINGS: Final = MappingProxyType(
    {
        400: "The request cannot be read.",
        401: "No API key was given, or not one that is known and valid.",
        403: "The key does not allow this, or not here.",
        404: "There is no such thing, or not any more.",
        409: "Its state does not allow it, another was faster, or a quota has no room; `code` says which.",
        410: "It cannot be read any more: its key was destroyed.",
        413: "The request is larger than the server takes.",
        422: "Something in the request is wrong; `detail` says what.",
        423: "A hold is in force; nothing was removed.",
        428: "It would remove much, shorten retention, or change a store in use: look, then confirm as `detail` says.",
        429: "Too many requests in a short time.",
    }
)


def document_errors(also: Iterable[int]) -> dict[int | str, dict[str, Any]]:
    """What a route's documentation says of its errors: those that every route has, and its own."""
    shape = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    described: dict[int | str, dict[str, Any]] = {
        status: {"description": _MEANINGS[status], "content": shape} for status in sorted({*_ALWAYS, *also})
    }
    described["5XX"] = {"description": "The server failed; the request had no effect.", "content": shape}
    return described
