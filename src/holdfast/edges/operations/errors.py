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

from holdfast.core.errors import HoldfastError

_log = logging.getLogger("holdfast.errors")
PROBLEM_JSON: Final = "application/problem+json"
_RETRY_AFTER_SECONDS: Final = "1"
_MAX_CHARS: Final = 2_000

#: The codes of all errors that Holdfast raises, by the HTTP status that they have.
_CODES: Final[Mapping[int, str]] = {
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    409: (
        "quota_exceeded conflict expired stale lease_lost rules_changed plan_changed agent_removed request_in_progress"
    ),
    410: "key_destroyed",
    413: "request_too_large",
    422: (
        "invalid_input invalid_content invalid_metadata invalid_filter invalid_kind invalid_scope "
        "schema_violation invalid_rule idempotency_key_reused"
    ),
    423: "held",
    428: "confirmation_needed clock",
    429: "rate_limited",
    500: (
        "error invalid_settings storage object_missing object_damaged other_keyring master_key key_missing "
        "keyring ledger not_a_store store_too_new"
    ),
    501: "missing_extra",
    502: "embedder summarizer object_store",
    503: (
        "request_timeout embedder_unavailable summarizer_unavailable store_busy object_store_unavailable "
        "store_read_only store_unavailable store_lost store_away closed"
    ),
    504: "in_doubt",
    507: "store_full",
}
STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {code: status for status, codes in _CODES.items() for code in codes.split()}
)

#: What a model is advised to do, by the code of an error or else by its status.
_ADVICE: Final[Mapping[str | int, str]] = {
    "quota_exceeded": "Delete memories that are no longer needed with memory_delete, then add it again.",
    "stale": "Read it again, then retry.",
    401: "Ask whoever runs this server for a key that is valid; trying again will not help.",
    403: "Ask whoever runs this server for a key that may do this; trying again will not help.",
    404: "Look for it with memory_search; memory_explain says what became of a memory that was there.",
    409: "Look at its state with memory_explain before you go on.",
    422: "Correct the arguments and call again.",
    423: "Leave it as it is: whoever placed the hold has to release it.",
    428: "Nothing was changed. Tell the user what would go; if they agree, call with confirm.",
}
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
    status, message = status_of(problem), problem.message
    if status >= 500:
        reference = secrets.token_hex(4)
        _log.error("%s (%s): %s", problem.code, reference, problem)
        kind = (type(problem).__doc__ or "It failed.").splitlines()[0]
        message = f"{kind} The server's log has more under {reference}."
    advice = _ADVICE.get(problem.code) or _ADVICE.get(status) or (_LATER if problem.retryable else _NO_USE)
    if problem.needs and status == 422:
        advice = f"Call again with {' and '.join(problem.needs)}."
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
