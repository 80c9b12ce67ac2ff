"""Outputs made of what the verbs of Holdfast return: the same names, and the same descriptions."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import Field, create_model

from holdfast import results
from holdfast.edges.operations.models import Answer
from holdfast.edges.operations.pagination import Page


@cache
def output_of(result: type) -> type[Answer]:
    """The output of an operation that gives what a verb returns."""
    docs = _DOCS[result.__name__]
    required: frozenset[str] = result.__required_keys__  # type: ignore[attr-defined]
    fields: dict[str, Any] = {
        name: (_convert(hint), Field(... if name in required else None, description=docs.get(name)))
        for name, hint in get_type_hints(result).items()
    }
    return create_model(result.__name__, __base__=Answer, __module__=__name__, __doc__=_mark(result.__doc__), **fields)


@cache
def list_of(result: type) -> type[Answer]:
    """The output of an operation that gives several of what a verb returns."""
    return _with_items(result, "List", Answer, "All that was found.")


@cache
def page_of(result: type) -> type[Answer]:
    """The output of an operation that gives them page by page."""
    return _with_items(result, "Page", Page, "Some of a list.")


def _with_items(result: type, suffix: str, base: type[Answer], about: str) -> type[Answer]:
    name = result.__name__.removesuffix("Result") + suffix
    items: Any = (list[output_of(result)], ...)  # type: ignore[misc]
    return create_model(name, __base__=base, __module__=__name__, __doc__=about, items=items)


def _convert(hint: Any) -> Any:
    """A type with outputs in place of the dictionaries within it."""
    if is_typeddict(hint):
        return output_of(hint)
    parts = tuple(map(_convert, get_args(hint)))
    if get_origin(hint) is list:
        return list[parts[0]]  # type: ignore[valid-type]
    return Union[parts] if get_origin(hint) in (Union, UnionType) else hint  # noqa: UP007 - made, not written


def _mark(text: str | None) -> str:
    return (text or "").replace("``None``", "`null`").replace("``", "`")


def _read_docs() -> dict[str, dict[str, str]]:
    """What the source says of each key of each result: the text that follows it."""
    found: dict[str, dict[str, str]] = {}
    for one in ast.parse(inspect.getsource(results)).body:
        if isinstance(one, ast.ClassDef):
            inherited = (found.get(ast.unparse(base), {}) for base in one.bases)
            own = found[one.name] = {name: text for base in inherited for name, text in base.items()}
            for field, doc in pairwise(one.body):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(doc, ast.Expr)
                    and isinstance(doc.value, ast.Constant)
                ):
                    own[ast.unparse(field.target)] = _mark(ast.literal_eval(doc.value))
    return found


_DOCS: Final = _read_docs()
