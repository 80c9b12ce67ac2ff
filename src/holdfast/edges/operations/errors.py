"""Errors as callers see them, the same at every edge: a code that programs test, a message, and what to do.

Nothing of the inside is in them: a message may name files and servers, so what fails within goes to the log. Of what a
caller sent wrong, nothing is said again but the names of fields: a value may be large, or a secret.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Scope

from holdfast.core.errors import HoldfastError, InvalidInputError, InvalidKindError, quote

_log = logging.getLogger("holdfast.errors")
#: What a caller is told of an error that nobody foresaw.
UNFORESEEN: Final = "something went wrong within the server; its log has it under this request's id"
PROBLEM_JSON: Final = "application/problem+json"
_MAX_CHARS: Final = 2_000

#: The codes of all errors that Holdfast raises, by the HTTP status that they have.
_CODES: Final[Mapping[int, str]] = {
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    409: (
        "quota_exceeded conflict expired stale lease_lost rules_changed plan_changed agent_removed kept_out "
        "request_in_progress"
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
    "kept_out": "Leave it out: the user does not want this remembered.",
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
    reference = secrets.token_hex(4)
    if not isinstance(problem, HoldfastError):
        _log.error("unexpected (%s)", reference, exc_info=problem)
        message = f"Something unexpected went wrong in the server; its log has more under {reference}."
        return PublicError(HoldfastError.code, message, retryable=False, status=500, advice=_NO_USE)
    status, message = status_of(problem), problem.message
    if status >= 500:
        _log.error("%s (%s): %s", problem.code, reference, problem)
        kind = (type(problem).__doc__ or "It failed.").splitlines()[0]
        message = f"{kind} The server's log has more under {reference}."
    advice = _ADVICE.get(problem.code) or _ADVICE.get(status) or (_LATER if problem.retryable else _NO_USE)
    if problem.needs and status == 422:
        advice = f"Call again with {' and '.join(problem.needs)}."
    return PublicError(problem.code, message, problem.retryable, status, advice)


def problem_response(
    scope: Scope,
    status: int,
    detail: str,
    *,
    code: str,
    retryable: bool = False,
    errors: Sequence[Mapping[str, str]] = (),
    needs: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error as an HTTP answer in the form of RFC 9457, with the id of the request where it has one."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[:_MAX_CHARS],
        "code": code,
        "retryable": retryable,
        "request_id": (scope.get("state") or {}).get("request_id"),
        **({"errors": list(errors)} if errors else {}),
        **({"needs": list(needs)} if needs else {}),
    }
    more = {"Retry-After": "1"} if retryable else {}
    if status == 401:
        more["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    # As ASCII: a message may quote what came in, lone surrogates included.
    return Response(json.dumps(document).encode(), status, {**more, **(headers or {})}, PROBLEM_JSON)


def error_response(scope: Scope, problem: HoldfastError, more: str = "") -> Response:
    """An error of ours as an HTTP answer; ``more`` is added to its message."""
    known = publish(problem)
    errors = problem.errors if isinstance(problem, FormError) else ()
    detail, code, retryable, needs = known.message + more, known.code, known.retryable, problem.needs
    return problem_response(scope, known.status, detail, code=code, retryable=retryable, errors=errors, needs=needs)


# --- what is wrong with the form of a request -------------------------------------------------------------------------

SEND_JSON: Final = "send JSON, with the header Content-Type: application/json"
#: What our own validators raise, by its type.
NOT_JSON: Final = "not_json"
_KINDS: Final = frozenset({"memory_type", "memory_types", "kinds"})
_MAX_MISTAKE_CHARS: Final = 500
_MAX_SHOWN: Final = 10
Place = tuple[str | int, ...]


class Mistake(NamedTuple):
    """One thing that is wrong, at one place."""

    place: Place
    problem: str
    #: It is wrong for one of the alternatives that a field has.
    is_alternative: bool = False
    #: It is a name that no kind of memory has.
    is_kind: bool = False

    @property
    def where(self) -> str:
        texts = map(str, self.place)
        return (".".join(one if one.isprintable() and len(one) <= 60 else quote(one) for one in texts) or "body")[:200]

    def __str__(self) -> str:
        between = " " if self.problem.startswith(("must ", "is ", "was ")) else ": "
        return f"{self.where}{between}{self.problem}"


class FormError(InvalidInputError):
    """What was sent does not have the form that is asked for."""

    def __init__(self, mistakes: Sequence[Mistake], before: str = "") -> None:
        shown = mistakes[:_MAX_SHOWN]
        more = f" (and {len(mistakes) - len(shown)} more)" if len(mistakes) > len(shown) else ""
        super().__init__(before + ". ".join(map(str, shown)) + more)
        self.errors = [{"where": one.where, "problem": one.problem} for one in shown]


class UnknownKindFormError(FormError):
    """All that is wrong with what was sent is a name that no kind of memory has."""


FormError.code, UnknownKindFormError.code = InvalidInputError.code, InvalidKindError.code


def form_error(
    found: Sequence[Mapping[str, Any]], body: object, model: type[BaseModel] | None, before: str = "", *, skip: int = 0
) -> FormError:
    """What is wrong with a request whose body should be a ``model``: one mistake for each place.

    ``found`` is what a validator found. The first ``skip`` parts of a place are not named.
    """
    each = [_mistake(one, body, model) for one in found]
    alternatives = [one.place for one in each if one.is_alternative]
    # Where something within an alternative is wrong, that is the one that was meant: the others say nothing.
    within = {place[:length] for place in alternatives for length in range(len(place))}
    kept = [one for one in each if not (one.is_alternative and one.place in within)]
    mistakes = [_join(list(alike)) for _, alike in groupby(kept, key=lambda one: one.place)]
    family = UnknownKindFormError if all(one.is_kind for one in mistakes) else FormError
    return family([one._replace(place=one.place[skip:]) for one in mistakes], before)


def _join(alike: list[Mistake]) -> Mistake:
    """One mistake of those at one place: what it must be is any of what the alternatives ask for."""
    first = alike[0]
    said = list(dict.fromkeys(one.problem for one in alike))
    if len(said) == 1:
        return first
    if not all(one.startswith("must ") for one in said):
        return first._replace(problem="; ".join(said)[:_MAX_MISTAKE_CHARS])
    verb = "must be " if all(one.startswith("must be ") for one in said) else "must "
    return first._replace(problem=(verb + " or ".join(one.removeprefix(verb) for one in said))[:_MAX_MISTAKE_CHARS])


def _mistake(found: Mapping[str, Any], body: object, model: type[BaseModel] | None) -> Mistake:
    loc, kind = tuple(found.get("loc", ())), str(found.get("type"))
    place = _place(loc, body, is_missing=kind == "missing")
    name = next((part for part in reversed(place) if isinstance(part, str)), None)
    if kind == "extra_forbidden":
        problem = f"is not known; known are: {', '.join(model.model_fields if model else ()) or 'none'}"
    elif kind == "missing" and place == ("body",):
        problem = f"is required: {SEND_JSON}"
    else:
        problem = _in_words(kind, found)
    is_kind = kind == "enum" and name in _KINDS
    return Mistake(place, problem[:_MAX_MISTAKE_CHARS], is_alternative=place != loc, is_kind=is_kind)


def _place(loc: Place, body: object, *, is_missing: bool) -> Place:
    """Where a mistake is in what was sent, without the names that a validator gives to the alternatives of a field."""
    if loc[:1] != ("body",):
        return loc[:2]
    place: list[str | int] = ["body"]
    value: Any = body
    for number, part in enumerate(loc[1:], 2):
        if part in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif not (is_missing and number == len(loc)):
            continue
        place.append(part)
    return tuple(place)


#: What each flaw that a validator finds means, in words; a text in braces is a bound.
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "is required",
        NOT_JSON: f"was not read: {SEND_JSON}",
        "string_type": "must be a text",
        **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
        **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
        "int_parsing_size": "must be a whole number of fewer digits",
        **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
        "finite_number": "must be a finite number",
        "list_type": "must be a list",
        **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
        "string_too_short": "must have at least {min_length} characters",
        "string_too_long": "must have at most {max_length} characters",
        "too_short": "must have at least {min_length} entries",
        "too_long": "must have at most {max_length} entries",
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        **dict.fromkeys(("enum", "literal_error"), "must be {expected}"),
        "value_error": "{error}",
    }
)


def _in_words(kind: str, found: Mapping[str, Any]) -> str:
    context = found.get("ctx") or {}
    if context.get("min_length") == 1:
        return "must not be empty"
    bounds = {name: _number(value) if isinstance(value, int | float) else value for name, value in context.items()}
    return _WORDS[kind].format(**bounds) if kind in _WORDS else str(found.get("msg", "is not valid"))


def _number(bound: float) -> str:
    return f"{int(bound) if bound == int(bound) else bound:,}"
