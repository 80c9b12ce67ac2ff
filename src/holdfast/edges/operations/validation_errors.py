"""What a validator found wrong with a request, in plain words: where it is, and what it must be.

Nothing of what was sent is said again but the names of fields: a value may be large, or a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel

from holdfast.core.errors import InvalidInputError, InvalidKindError, quote

SEND_JSON: Final = "send JSON, with the header Content-Type: application/json"
#: What our own validators raise, by its type.
NOT_JSON: Final = "not_json"
_KINDS: Final = frozenset({"memory_type", "memory_types", "kinds"})
_MAX_CHARS: Final = 500
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
        return (".".join(map(_quote_part, self.place)) or "body")[:200]

    def __str__(self) -> str:
        between = " " if self.problem.startswith(("must ", "is ", "was ")) else ": "
        return f"{self.where}{between}{self.problem}"


def mistakes_in(found: Sequence[Mapping[str, Any]], body: object, model: type[BaseModel] | None) -> list[Mistake]:
    """What is wrong with a request whose body should be a ``model``: one mistake for each place."""
    each = [_mistake(one, body, model) for one in found]
    alternatives = [one.place for one in each if one.is_alternative]
    # Where something within an alternative is wrong, that is the one that was meant: the others say nothing.
    within = {place[:length] for place in alternatives for length in range(len(place))}
    kept = [one for one in each if not (one.is_alternative and one.place in within)]
    return [_join(list(alike)) for _, alike in groupby(kept, key=lambda one: one.place)]


def summarize(mistakes: Sequence[Mistake]) -> tuple[str, Sequence[Mistake]]:
    """The mistakes in one text, and those that it names."""
    shown = mistakes[:_MAX_SHOWN]
    more = f" (and {len(mistakes) - len(shown)} more)" if len(mistakes) > len(shown) else ""
    return ". ".join(map(str, shown)) + more, shown


def code_of(mistakes: Sequence[Mistake]) -> str:
    """The code of the error that some mistakes are."""
    return InvalidKindError.code if all(one.is_kind for one in mistakes) else InvalidInputError.code


def _join(alike: list[Mistake]) -> Mistake:
    """One mistake of those at one place: what it must be is any of what the alternatives ask for."""
    first = alike[0]
    said = list(dict.fromkeys(one.problem for one in alike))
    if len(said) == 1:
        return first
    if not all(one.startswith("must ") for one in said):
        return first._replace(problem="; ".join(said)[:_MAX_CHARS])
    verb = "must be " if all(one.startswith("must be ") for one in said) else "must "
    return first._replace(problem=(verb + " or ".join(one.removeprefix(verb) for one in said))[:_MAX_CHARS])


def _mistake(found: Mapping[str, Any], body: object, model: type[BaseModel] | None) -> Mistake:
    loc, kind = tuple(found.get("loc", ())), str(found.get("type"))
    place = _place(loc, body, is_missing=kind == "missing")
    name = next((part for part in reversed(place) if isinstance(part, str)), None)
    if kind == "extra_forbidden":
        problem = f"is not known; known are: {', '.join(_names_at(model, place[1:-1])) or 'none'}"
    elif kind == "missing" and place == ("body",):
        problem = f"is required: {SEND_JSON}"
    else:
        problem = _in_words(kind, found)
    return Mistake(place, problem[:_MAX_CHARS], is_alternative=place != loc, is_kind=kind == "enum" and name in _KINDS)


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


def _names_at(model: type[BaseModel] | None, place: Place) -> Iterator[str]:
    """The names of the fields that there are at a place within a body."""
    for part in place:
        if model is not None and isinstance(part, str):
            field = model.model_fields.get(part)
            model = None if field is None else next(_models_in(field.annotation), None)
    yield from () if model is None else model.model_fields


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _quote_part(part: object) -> str:
    text = str(part)
    return text if text.isprintable() and len(text) <= 60 else quote(text)


# --- the words --------------------------------------------------------------------------------------------------------


def _at_least(context: Mapping[str, Any], things: str) -> str:
    least = context["min_length"]
    return "must not be empty" if least == 1 else f"must have at least {least:,} {things}"


def _number(bound: float) -> str:
    return f"{int(bound) if bound == int(bound) else bound:,}"


_WITH_BOUNDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = MappingProxyType(
    {
        "string_too_short": lambda context: _at_least(context, "characters"),
        "string_too_long": lambda context: f"must have at most {context['max_length']:,} characters",
        "too_short": lambda context: _at_least(context, "entries"),
        "too_long": lambda context: f"must have at most {context['max_length']:,} entries",
        "greater_than": lambda context: f"must be more than {_number(context['gt'])}",
        "greater_than_equal": lambda context: f"must be at least {_number(context['ge'])}",
        "less_than": lambda context: f"must be less than {_number(context['lt'])}",
        "less_than_equal": lambda context: f"must be at most {_number(context['le'])}",
        "enum": lambda context: f"must be {context['expected']}",
        "literal_error": lambda context: f"must be {context['expected']}",
        "value_error": lambda context: str(context["error"]),
    }
)
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "is required",
        NOT_JSON: f"was not read: {SEND_JSON}",
        "string_type": "must be a text",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_parsing_size": "must be a whole number of fewer digits",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "finite_number": "must be a finite number",
        "list_type": "must be a list",
        "dict_type": "must be an object",
        "model_type": "must be an object",
        "model_attributes_type": "must be an object",
    }
)


def _in_words(kind: str, found: Mapping[str, Any]) -> str:
    if kind in _WORDS:
        return _WORDS[kind]
    if kind in _WITH_BOUNDS:
        return _WITH_BOUNDS[kind](found.get("ctx") or {})
    return str(found.get("msg", "is not valid"))
