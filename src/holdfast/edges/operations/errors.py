"""Errors as callers see them, the same at every edge: a code that programs test, a message, and what to do.

Nothing of the inside is in them: a message may name files and servers, so what fails within goes to the log.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.core.errors import (
    ConfirmationNeededError,
    ConflictError,
    ForbiddenError,
    HeldError,
    HoldfastError,
    InvalidInputError,
    NotFoundError,
    QuotaExceededError,
    StaleError,
    UnauthenticatedError,
)

_log = logging.getLogger("holdfast.errors")
PROBLEM_JSON: Final = "application/problem+json"
_RETRY_AFTER_SECONDS: Final = "1"
_MAX_CHARS: Final = 2_000

#: The HTTP status of every error that Holdfast raises, by its code.
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

#: What a model is advised to do, by the first family that an error belongs to.
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
_NO_USE: Final = "Tell the user that it did not work; trying again will not help."


class PublicError(NamedTuple):
    """What a caller may know of an error."""

    code: str
    message: str
    retryable: bool
    status: int
    advice: str
    """What a model should do about it."""


def status_of(problem: HoldfastError) -> int:
    """The HTTP status of an error; 500 for a code that is not in the table."""
    return STATUSES.get(problem.code, 500)


def publish(problem: BaseException) -> PublicError:
    """What a caller may know of an error. What failed within is logged under a reference that the message names."""
    if not isinstance(problem, HoldfastError):
        reference = secrets.token_hex(4)
        _log.error("unexpected (%s)", reference, exc_info=problem)
        message = f"Something unexpected went wrong in the server; its log has more under {reference}."
        return PublicError(HoldfastError.code, message, retryable=False, status=500, advice=_NO_USE)
    status, message = status_of(problem), str(problem)
    if status >= 500:
        reference = secrets.token_hex(4)
        _log.error("%s (%s): %s", problem.code, reference, problem)
        kind = (type(problem).__doc__ or "It failed.").splitlines()[0]
        message = f"{kind} The server's log has more under {reference}."
    known = next((advice for family, advice in _ADVICE.items() if isinstance(problem, family)), None)
    advice = known or (_LATER if problem.retryable else _NO_USE)
    return PublicError(problem.code, message, problem.retryable, status, advice)


class ProblemDocument(NamedTuple):
    """An error as an HTTP answer in the form of RFC 9457."""

    status: int
    headers: dict[str, str]
    body: bytes


def write_problem(
    status: int,
    detail: str,
    *,
    code: str,
    retryable: bool = False,
    request_id: str | None = None,
    errors: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> ProblemDocument:
    """An error as ``application/problem+json``."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[:_MAX_CHARS],
        "code": code,
        "retryable": retryable,
        "request_id": request_id,
        **({"errors": list(errors)} if errors else {}),
    }
    more = dict(headers or {})
    if status == 401:
        more["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    if retryable:
        more.setdefault("Retry-After", _RETRY_AFTER_SECONDS)
    # As ASCII: a message may quote what came in, lone surrogates included.
    return ProblemDocument(status, more, json.dumps(document).encode())


def problem_of(problem: HoldfastError, request_id: str | None = None, more: str = "") -> ProblemDocument:
    """An error of ours as ``application/problem+json``; ``more`` is added to its message."""
    known = publish(problem)
    return write_problem(
        known.status, known.message + more, code=known.code, retryable=known.retryable, request_id=request_id
    )
