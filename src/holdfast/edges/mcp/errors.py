"""Errors as clients see them: a code that programs test, a message, and what to do. Nothing of the inside."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent
from pydantic import ValidationError
from starlette.responses import Response

from holdfast.core.errors import (
    ConfirmationNeededError,
    ConflictError,
    EmbedderError,
    ForbiddenError,
    HeldError,
    HoldfastError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    QuotaExceededError,
    StaleError,
    StorageError,
    SummarizerError,
    UnauthenticatedError,
    quote,
)

_log = logging.getLogger("holdfast.mcp")

#: The first family that an error belongs to decides what a model is advised to do.
_ADVICE: Final = MappingProxyType(
    {
        UnauthenticatedError: "Ask whoever runs this server for a key that is valid; trying again will not help.",
        ForbiddenError: "Ask whoever runs this server for a key that may do this; trying again will not help.",
        InvalidInputError: "Correct the arguments and call again.",
        NotFoundError: "Look for it with memory_search; memory_explain says what became of a memory that was there.",
        QuotaExceededError: "Delete memories that are no longer needed with memory_delete, then add it again.",
        ConfirmationNeededError: "Nothing was changed. Tell the user what would go; if they agree, call with confirm.",
        HeldError: "Leave it as it is: whoever placed the hold has to release it.",
        StaleError: "Read it again, then retry.",
        ConflictError: "Look at its state with memory_explain before you go on.",
    }
)
_LATER: Final = "Try again in a moment."
_NOTHING: Final = "Tell the user that it did not work; trying again will not help."

#: What went wrong within: its message may name files and servers, so it goes to the log, and a client hears the kind.
_WITHIN: Final = (StorageError, EmbedderError, SummarizerError, MissingExtraError)
_MOST_PROBLEMS: Final = 5


def refused(problem: ValidationError, tool: str) -> InvalidInputError:
    """What is wrong with the arguments of a call, in our words; a value is shown short, and to whoever sent it only."""
    found = problem.errors(include_url=False, include_context=False)
    said = [f"{_place(one['loc'])}: {_said(one)}" for one in found[:_MOST_PROBLEMS]]
    more = f"; and {len(found) - _MOST_PROBLEMS:,} more" if len(found) > _MOST_PROBLEMS else ""
    return InvalidInputError(f"the arguments of {tool} are wrong: {'; '.join(said)}{more}")


def described(problem: Exception) -> dict[str, Any]:
    """An error as ``{code, message, retryable, advice}``. What a client must not see is in the log instead, under a
    reference that the message names.
    """
    if isinstance(problem, HoldfastError) and not isinstance(problem, _WITHIN):
        return _shown(problem.code, str(problem), retryable=problem.retryable, advice=_advice(problem))
    reference = secrets.token_hex(4)
    if isinstance(problem, HoldfastError):
        _log.error("%s (%s): %s", problem.code, reference, problem)
        kind = (type(problem).__doc__ or "It failed.").splitlines()[0]
        message = f"{kind} The server's log has more under {reference}."
        return _shown(problem.code, message, retryable=problem.retryable, advice=_advice(problem))
    _log.error("unexpected (%s)", reference, exc_info=problem)
    message = f"Something unexpected went wrong in the server; its log has more under {reference}."
    return _shown("internal", message, retryable=False, advice=_NOTHING)


def as_result(problem: Exception) -> CallToolResult:
    """An error as the answer to a tool call: a sentence for the model, ``{"error": {…}}`` for programs."""
    error = described(problem)
    text = f"{error['message']} ({error['code']}) {error['advice']}"
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content={"error": error}, is_error=True
    )


def as_protocol_error(problem: Exception, uri: str | None = None) -> MCPError:
    """An error as the answer to anything else than a tool call."""
    error = described(problem)
    within = error["code"] == "internal" or isinstance(problem, _WITHIN)
    data = {"error": error} if uri is None else {"uri": uri, "error": error}
    return MCPError(code=INTERNAL_ERROR if within else INVALID_PARAMS, message=error["message"], data=data)


def refusal(problem: HoldfastError, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """An error as the answer to a request that is refused before the protocol begins."""
    error = described(problem)
    said = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error["message"],
        "code": error["code"],
        "retryable": error["retryable"],
    }
    return Response(json.dumps(said), status, headers, "application/problem+json")


def _advice(problem: HoldfastError) -> str:
    known = next((advice for family, advice in _ADVICE.items() if isinstance(problem, family)), None)
    return known or (_LATER if problem.retryable else _NOTHING)


def _shown(code: str, message: str, *, retryable: bool, advice: str) -> dict[str, Any]:
    return {"code": code, "message": message, "retryable": retryable, "advice": advice}


def _place(path: Sequence[int | str]) -> str:
    return quote(".".join(map(str, path)))[1:-1] or "they"


def _said(one: Any) -> str:
    if one["type"] == "extra_forbidden":
        return "there is no such argument"
    if one["type"] == "missing":
        return "it is missing"
    return f"{one['msg'][:1].lower()}{one['msg'][1:]}, not {quote(one['input'])}"
