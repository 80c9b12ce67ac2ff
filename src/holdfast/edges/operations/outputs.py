"""What operations give: the names and the descriptions of what the verbs of Holdfast return, and no other field."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import orjson
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from holdfast import results
from holdfast.core.values import to_json

_T = TypeVar("_T")


def encode(value: Any) -> bytes:
    """JSON, as every edge sends it."""
    try:
        return orjson.dumps(value, _convert_rest, orjson.OPT_NON_STR_KEYS)
    except TypeError:  # half of a surrogate pair is JSON as an escape, but not UTF-8
        return to_json(value).encode("utf-8", "backslashreplace")


def _convert_rest(value: Any) -> Any:
    """What the encoder does not know: named tuples and mappings."""
    return list(value) if isinstance(value, tuple) else dict(value)


#: What fields of these names have in examples.
_EXAMPLES: Final[Mapping[str, Any]] = json.loads(
    resources.files(__package__).joinpath("examples.json").read_text(encoding="utf-8")
)
_BY_TYPE: Final[Mapping[object, Any]] = {str: "…", int: 3, float: 1.2, bool: False, dict: {}, list: []}


def _example_of(name: str, field: FieldInfo) -> Any:
    if field.examples:
        return field.examples[0]
    return _EXAMPLES[name] if name in _EXAMPLES else _example_value(field.annotation)


def _example_value(annotation: Any) -> Any:
    origin, parts = get_origin(annotation) or annotation, get_args(annotation)
    if NoneType in parts:
        return None
    if origin is list and isinstance(parts[0], type) and issubclass(parts[0], Answer):
        return [_example_value(parts[0])]
    if isinstance(origin, type) and issubclass(origin, Answer):
        extra: Any = origin.model_config["json_schema_extra"]
        return extra["example"]
    return _example_value(parts[0]) if parts and origin not in _BY_TYPE else _BY_TYPE[origin]


class ListOf(TypedDict, Generic[_T]):
    """All that was found."""

    items: list[_T]


class PageOf(TypedDict, Generic[_T]):
    """Some of a list, and the cursor of the next page."""

    items: list[_T]
    next_cursor: str | None


class Answer(BaseModel):
    """What an operation gives. The examples of its fields make its example."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **_options: Any) -> None:
        values = {name: _example_of(name, field) for name, field in cls.model_fields.items() if field.is_required()}
        cls.model_config["json_schema_extra"] = {"example": values}


class OpenAnswer(Answer):
    """What an operation gives, and whatever else belongs to it."""

    model_config = ConfigDict(extra="allow")


class FileAnswer(Answer):
    """A file, which is sent while it is written."""

    media_type: ClassVar[str]
    file_name: ClassVar[str]
    """With names of input fields in braces."""


class Page(Answer):
    """Some of a list."""

    next_cursor: str | None = Field(description="Ask with this for the next page; `null` where this is the last one.")


@cache
def output_of(result: Any, *properties: str, without: frozenset[str] = frozenset()) -> type[Answer]:
    """The output with the fields of what a verb returns: of a typed dictionary, a named tuple or a data class.

    ``properties`` of it are fields of the output, too; what is ``without`` is not.
    """
    if get_origin(result) in (ListOf, PageOf):
        (item,), base = get_args(result), Page if get_origin(result) is PageOf else Answer
        name = item.__name__.removesuffix("Result") + ("Page" if base is Page else "List")
        items: Any = (list[output_of(item)], ...)  # type: ignore[misc]
        return create_model(name, __base__=base, __module__=__name__, __doc__=get_origin(result).__doc__, items=items)
    if issubclass(result, Answer):
        return cast("type[Answer]", result)
    docs, optional = _read_docs(result.__module__, result.__name__), getattr(result, "__optional_keys__", ())
    hints = {name: hint for name, hint in get_type_hints(result, localns=vars(results)).items() if name not in without}
    for name in properties:
        computed = getattr(result, name)
        hints[name], docs = get_type_hints(computed.fget)["return"], {**docs, name: _mark(computed.__doc__)}
    fields: dict[str, Any] = {
        name: (_convert(hint), Field(None if name in optional else ..., description=docs.get(name)))
        for name, hint in hints.items()
    }
    return create_model(result.__name__, __base__=Answer, __module__=__name__, __doc__=_mark(result.__doc__), **fields)


def _convert(hint: Any) -> Any:
    """A type with outputs in place of the records within it, and lists in place of tuples: as JSON has them."""
    if is_typeddict(hint) or is_dataclass(hint) or hasattr(hint, "_fields"):
        return output_of(hint)
    parts = tuple(map(_convert, get_args(hint)))
    if get_origin(hint) in (list, tuple):
        return list[parts[0]]  # type: ignore[valid-type]
    return Union[parts] if get_origin(hint) in (Union, UnionType) else hint  # noqa: UP007 - made, not written


def _mark(text: str | None) -> str:
    return " ".join((text or "").replace("``None``", "`null`").replace("``", "`").split())


@cache
def _read_docs(module: str, name: str) -> dict[str, str]:
    """What the source of a class says of each of its fields: the text that follows it."""
    source = re.search(rf"(?ms)^class {re.escape(name)}\b.*?(?=^\S|\Z)", inspect.getsource(sys.modules[module]))
    found: Any = ast.parse(source[0] if source else "class _:\n    pass").body[0]
    docs = {name: doc for base in found.bases for name, doc in _read_docs(module, ast.unparse(base)).items()}
    for field, doc in pairwise(found.body):
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
            docs[ast.unparse(field.target)] = _mark(ast.literal_eval(doc.value))
    return docs
