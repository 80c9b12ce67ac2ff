"""Errors of the REST API: every one is answered as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.core.errors import HoldfastError, quote
from holdfast.edges.operations.errors import UNFORESEEN, error_response, problem_response, status_of

#: Codes of errors that are found before any operation is asked.
FRAMEWORK_CODES: Final = MappingProxyType({400: "malformed_request", 404: "not_found", 405: "method_not_allowed"})


def respond(request: Request, problem: Exception | None = None) -> Response:
    """The response to a request that ended with an error; of one that nobody foresaw, nothing is said."""
    if not isinstance(problem, HoldfastError):
        return problem_response(request.scope, 500, UNFORESEEN, code=HoldfastError.code)
    status = status_of(problem)
    needs = problem.needs or (("confirm",) if status == 428 else ())
    return error_response(request.scope, problem, _describe_needs(request, needs) if status < 500 else "")


def answer_error(request: Request, problem: Exception, methods_at: Callable[[str], Collection[str]]) -> Response:
    """The response to any error. ``methods_at`` says what can be done at a path."""
    if isinstance(problem, HTTPException):
        return _refuse_early(request, problem, methods_at(request.scope["path"]))
    return respond(request, problem)


def error_handlers(
    methods_at: Callable[[str], Collection[str]],
) -> Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]]:
    """How an application answers every error in this form."""

    async def handle(request: Request, problem: Exception) -> Response:
        return answer_error(request, problem, methods_at)

    return dict.fromkeys((HoldfastError, HTTPException, Exception), handle)


def _describe_needs(request: Request, needs: Sequence[str]) -> str:
    """What is to be sent to the route that was asked, for the same request to be accepted."""
    operation = getattr(request.scope.get("route"), "operation", None)
    if operation is None:
        return ""
    why = "to confirm" if "confirm" in needs else "to go on"
    known = [name for name in needs if name in operation.inputs.model_fields and name not in operation.in_path]
    values = {name: "…" if name.endswith("_id") else "true" for name in known}
    if asked := "&".join(f"{name}={value}" for name, value in values.items() if name not in operation.in_body):
        return f" ({why}, add {'&' if request.scope['query_string'] else '?'}{asked})"
    asked = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return f" ({why}, send {asked} in the body)" if asked else ""


def _refuse_early(request: Request, problem: HTTPException, methods: Collection[str]) -> Response:
    status, path = problem.status_code, quote(request.scope["path"])
    headers = {"Allow": ", ".join(sorted(methods))} if status == 405 and methods else problem.headers
    detail = {
        404: f"there is nothing at {path}; see /docs",
        405: f"{request.method} is not possible at {path}; see /docs",
    }.get(status, str(problem.detail))
    return problem_response(request.scope, status, detail, code=FRAMEWORK_CODES.get(status, "error"), headers=headers)
