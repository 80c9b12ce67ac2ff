"""Operations that are verbs of a memory: ``holdfast.client`` calls them as a program calls the engine.

Which verbs there are, and the right that each needs, is the gate's table. A verb gets the arguments that Python has,
and its result comes as Python gives it, so that a program is the same with the store in its process and behind a
service.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from inspect import signature
from typing import Annotated, Any, Final, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from holdfast import results
from holdfast.core.access import Right
from holdfast.core.errors import HoldfastError, InvalidInputError, quote
from holdfast.core.records import Message
from holdfast.edges.access.gate import MEMORY_VERBS, PART_VERBS, BoundedMemory
from holdfast.edges.operations.memories import WHO
from holdfast.edges.operations.models import Scoped, example
from holdfast.edges.operations.operation import GOVERN, MEMORY, READ, WRITE, Group
from holdfast.edges.operations.outputs import Answer

calls = Group("calls", "Every verb of a memory by its name in Python, for `holdfast.client`.")
#: They take a function, which stays with the program: a client carries them out by other verbs.
_LOCAL: Final = frozenset({"remember"})
#: Every verb that can be called, with its right: ``add``, ``entity.relate``.
VERBS: Final = {
    (f"{part}.{name}" if part else name): verb.right
    for part, verbs in {"": MEMORY_VERBS, **PART_VERBS}.items()
    for name, verb in verbs.items()
    if name not in _LOCAL and name != "remove_session"
}


def _name_verbs(right: Right) -> Any:
    names = {name.replace(".", "_"): name for name, needed in VERBS.items() if needed is right}
    verbs: Any = StrEnum(f"{right.name.capitalize()}Verb", names)  # type: ignore[misc]
    return Annotated[verbs, Field(strict=False, description="Its name: `add`, or `entity.set` of a part.")]


class _VerbCall(Scoped):
    arguments: dict[str, Any] = Field({}, description="Its arguments, by their names.")


class ReadCall(_VerbCall):
    """A verb that only looks."""

    model_config = example({**WHO, "verb": "count_memories", "arguments": {"memory_type": "long_term"}})

    verb: _name_verbs(READ)  # type: ignore[valid-type]


class _Change(_VerbCall):
    auto_prune: bool = Field(False, description="At the quota, send the oldest tenth of the kind to the bin first.")


class WriteCall(_Change):
    """A verb that changes memories."""

    model_config = example({**WHO, "verb": "add", "arguments": {"content": "Ann likes green tea."}})

    verb: _name_verbs(WRITE)  # type: ignore[valid-type]


class GovernCall(_Change):
    """A verb that concerns all that is kept on a user."""

    model_config = example({**WHO, "verb": "kept_out"})

    verb: _name_verbs(GOVERN)  # type: ignore[valid-type]


class CallAnswer(Answer):
    """What the verb returns."""

    result: Any = Field(description="As the verb returns it in Python, in JSON.", examples=[3])


@calls.add("POST /calls/read", READ, MEMORY, CallAnswer, errors=(404, 409, 410))
def call_read(memory: BoundedMemory, asked: ReadCall) -> Any:
    """Call a verb of a memory that only looks."""
    return _call(memory, asked)


@calls.add("POST /calls/write", WRITE, MEMORY, CallAnswer, errors=(404, 410, 423))
def call_write(memory: BoundedMemory, asked: WriteCall) -> Any:
    """Call a verb of a memory that changes it."""
    return _call(memory, asked)


@calls.add("POST /calls/govern", GOVERN, MEMORY, CallAnswer, errors=(404, 410, 423), is_long=True)
def call_govern(memory: BoundedMemory, asked: GovernCall) -> Any:
    """Call a verb of a memory that concerns all that is kept on a user."""
    return _call(memory, asked)


def _call(memory: BoundedMemory, asked: Any) -> Any:
    part, _, name = str(asked.verb).rpartition(".")
    verb = getattr(getattr(memory, part) if part else memory, name)
    arguments = dict(asked.arguments)
    try:
        if isinstance(arguments.get("item"), list):  # a note that is changed
            arguments["item"] = Message(*arguments["item"])
        signature(verb).bind(**arguments)
        _check_kinds(verb, {name: one for name, one in arguments.items() if name == "item"})
    except TypeError as wrong:
        raise InvalidInputError(f"{asked.verb} was called with wrong arguments: {wrong}") from None
    try:
        return {"result": _to_json(verb(**arguments))}
    except (TypeError, AttributeError, KeyError, ValueError) as unexpected:
        if isinstance(unexpected, HoldfastError):
            raise
        _check_kinds(verb, arguments)  # else it is a mistake of ours
        raise


def _check_kinds(verb: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """``InvalidInputError`` where arguments are not of the kinds that a verb takes: what a program with types would not
    have passed.
    """
    known = get_type_hints(verb, localns=vars(results))  # which the verbs do not load
    for name, given in arguments.items():
        try:
            TypeAdapter(known.get(name, Any)).validate_python(given)
        except ValidationError as wrong:
            said = "; ".join(one["msg"] for one in wrong.errors()[:3])
            raise InvalidInputError(f"is not of a kind that can be used ({said}): {quote(given)}", about=name) from None


def _to_json(value: Any) -> Any:
    """What a verb returns, with objects in place of our own types; what is within them is JSON already."""
    if hasattr(value, "_fields") or (is_dataclass(value) and not isinstance(value, type)):
        names = value._fields if hasattr(value, "_fields") else [one.name for one in fields(value)]
        return {name: _to_json(getattr(value, name)) for name in names}
    return [_to_json(one) for one in value] if isinstance(value, list | tuple) else value
