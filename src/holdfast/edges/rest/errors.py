"""Errors as callers of the API see them: one table from codes to statuses, one form for all of them (RFC 9457)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from holdfast.core.errors import HoldfastError, InvalidInputError, InvalidKindError, quote
from holdfast.edges.rest.validation_errors import mistakes_in

_log = logging.getLogger("holdfast.api")
MEDIA_TYPE: Final = "application/problem+json"
_RETRY_AFTER_SECONDS: Final = "1"
_MOST_ERRORS: Final = 10
_MOST_CHARS: Final = 2_000

#: The status of every error that Holdfast raises, by its code.
STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "error": 500,
        "invalid_input": 422,
        "invalid_content": 422,
        "invalid_metadata": 422,
        "invalid_filter": 422,
        "invalid_kind": 422,
        "invalid_scope": 422,
        "schema_violation": 422,
        "invalid_settings": 500,
        "invalid_rule": 422,
        "not_found": 404,
        "quota_exceeded": 409,
        "conflict": 409,
        "stale": 409,
        "lease_lost": 409,
        "rules_changed": 409,
        "plan_changed": 409,
        "held": 423,
        "confirmation_needed": 428,
        "clock": 428,
        "agent_removed": 409,
        "unauthenticated": 401,
        "forbidden": 403,
        "rate_limited": 429,
        "request_too_large": 413,
        "request_timeout": 503,
        "request_in_progress": 409,
        "idempotency_key_reused": 422,
        "missing_extra": 501,
        "embedder": 502,
        "embedder_unavailable": 503,
        "summarizer": 502,
        "summarizer_unavailable": 503,
        "storage": 500,
        "store_busy": 503,
        "store_full": 507,
        "object_store": 502,
        "object_store_unavailable": 503,
        "object_missing": 500,
        "object_damaged": 500,
        "other_keyring": 500,
        "master_key": 500,
        "key_destroyed": 410,
        "key_missing": 500,
        "keyring": 500,
        "ledger": 500,
        "store_read_only": 503,
        "store_unavailable": 503,
        "store_lost": 503,
        "store_away": 503,
        "in_doubt": 504,
        "not_a_store": 500,
        "store_too_new": 500,
        "closed": 503,
    }
)

#: What an error is called that the framework found: nothing of ours was asked.
FOUND_EARLY: Final = MappingProxyType({400: "malformed_request", 404: "not_found", 405: "method_not_allowed"})


class Mistake(BaseModel):
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
    errors: list[Mistake] | None = Field(default=None, description="Everything that is wrong, where it is several.")


def status_of(problem: HoldfastError) -> int:
    """The status of an error; of a code that nobody has put into the table, 500."""
    return STATUSES.get(problem.code, 500)


def respond(request: Request, problem: HoldfastError) -> Response:
    """The response to a request that ended with an error.

    What is wrong within is told in general words: a message may name files and servers, which are no caller's business.
    The log has it.
    """
    status, detail = status_of(problem), public_detail(problem)
    if status == 428:
        detail += _how_to_confirm(request)
    return written(request, status, detail, code=problem.code, retryable=problem.retryable)


def _how_to_confirm(request: Request) -> str:
    """What is to be sent to the route that was asked, by those who have looked."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return ""
    if any(field.alias == "confirm" for field in route.dependant.query_params):
        return f" (to confirm, add {'&' if request.scope['query_string'] else '?'}confirm=true)"
    model = _model_of(route)
    asked = model is not None and "confirm" in model.model_fields
    return ' (to confirm, send "confirm": true in the body)' if asked else ""


def _model_of(route: object) -> type[BaseModel] | None:
    """What the body of a request must be."""
    if not isinstance(route, APIRoute) or route.body_field is None:
        return None
    model = route.body_field.field_info.annotation
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def public_detail(problem: HoldfastError) -> str:
    """What a caller is told of an error; what is left out of it is logged."""
    if status_of(problem) < 500:
        return str(problem)
    _log.error("%s: %s", problem.code, problem)
    said = (type(problem).__doc__ or "The request failed.").split("\n")[0]
    return f"{said} The server's log says more."


def written(
    request: Request,
    status: int,
    detail: str,
    *,
    code: str,
    retryable: bool = False,
    errors: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as a response."""
    state: Mapping[str, Any] = request.scope.get("state") or {}
    said = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[:_MOST_CHARS],
        "code": code,
        "retryable": retryable,
        "request_id": state.get("request_id"),
        **({"errors": list(errors)} if errors else {}),
    }
    more = dict(headers or {})
    if status == 401:
        more["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    if retryable:
        more["Retry-After"] = _RETRY_AFTER_SECONDS
    # As ASCII: a message may quote what came in, lone surrogates included.
    return Response(json.dumps(said), status, more, media_type=MEDIA_TYPE)


def from_validation(request: Request, problem: RequestValidationError) -> Response:
    """The response to a request that does not have the form that its route asks for."""
    found = problem.errors()
    broken = next((one for one in found if one.get("type") == "json_invalid"), None)
    if broken is not None:
        said = f"the body is not JSON: {(broken.get('ctx') or {}).get('error', 'it cannot be read')}"
        return written(request, 400, f"{said} (character {broken['loc'][-1]})", code=FOUND_EARLY[400])
    mistakes = mistakes_in(found, problem.body, _model_of(request.scope.get("route")))
    shown = mistakes[:_MOST_ERRORS]
    more = f" (and {len(mistakes) - len(shown)} more)" if len(mistakes) > len(shown) else ""
    errors = [{"where": one.where, "problem": one.problem} for one in shown]
    code = InvalidKindError.code if all(one.is_kind for one in mistakes) else InvalidInputError.code
    return written(request, 422, ". ".join(map(str, shown)) + more, code=code, errors=errors)


def install(app: FastAPI, *, methods_at: Callable[[str], Collection[str]]) -> None:
    """Let an application answer every error in this form. ``methods_at`` says what can be done at a path."""

    async def of_holdfast(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HoldfastError)  # noqa: S101 - it is registered for those
        return respond(request, problem)

    async def of_form(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)  # noqa: S101
        return from_validation(request, problem)

    async def of_framework(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)  # noqa: S101
        return _found_early(request, problem, methods_at(request.scope["path"]))

    async def unexpected(request: Request, _problem: Exception) -> Response:
        return failed(request)

    app.add_exception_handler(HoldfastError, of_holdfast)
    app.add_exception_handler(RequestValidationError, of_form)
    app.add_exception_handler(HTTPException, of_framework)
    app.add_exception_handler(Exception, unexpected)


def failed(request: Request) -> Response:
    """The response to a request that ended in a way that nobody foresaw: nothing is said of how."""
    return written(request, 500, "Something went wrong within the server; its log says what.", code=HoldfastError.code)


def _found_early(request: Request, problem: HTTPException, methods: Collection[str]) -> Response:
    status, path = problem.status_code, quote(request.scope["path"])
    headers = {"Allow": ", ".join(sorted(methods))} if status == 405 and methods else problem.headers
    detail = {
        400: "the body cannot be read as JSON: it is nested too deep, has numbers of too many digits, or is no UTF-8",
        404: f"there is nothing at {path}; see /docs",
        405: f"{request.method} is not possible at {path}; see /docs",
    }.get(status, str(problem.detail))
    code = FOUND_EARLY.get(status, "error")
    return written(request, status, detail, code=code, headers=headers)


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
        423: "A hold stands; nothing was removed.",
        428: "It would remove much, shorten retention, or change a store in use: look, then confirm as `detail` says.",
        429: "Too many requests in a short time.",
    }
)


def documented(also: Iterable[int]) -> dict[int | str, dict[str, Any]]:
    """What a route's documentation says of its errors: those that every route has, and its own."""
    statuses = sorted({*_ALWAYS, *also})
    shape = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    said: dict[int | str, dict[str, Any]] = {
        status: {"description": _MEANINGS[status], "content": shape} for status in statuses
    }
    said["5XX"] = {"description": "The server failed; the request had no effect.", "content": shape}
    return said
