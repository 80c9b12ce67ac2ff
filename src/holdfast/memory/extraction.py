"""A conversation in, facts out, by an extractor that the caller brings. None is built in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.values import MAX_DERIVED_FROM, check_content, is_id
from holdfast.results import RememberResult

if TYPE_CHECKING:
    from holdfast.manager import Memory

Message = Mapping[str, Any]
Facts = Iterable[str | Mapping[str, Any]]
"""Each is a text, or an object with what ``add`` takes."""
Extract = Callable[[list[dict[str, Any]]], Facts]
"""Gives the facts of messages."""

#: So many of the memories that are close to a fact are proposed.
_PROPOSED: Final = 3
_FIELDS: Final = ("content", "memory_type", "metadata", "source", "derived_from")


def remember(memory: Memory, messages: Sequence[Message], extract: Extract) -> list[RememberResult]:
    """Add the facts that ``extract`` finds in messages, and say which memories each may be meant to correct."""
    if not callable(extract):
        raise InvalidInputError(f"extract must be a function that gives the facts of messages, not {quote(extract)}")
    named = _name_messages(memory, messages)
    facts = [_check_fact(fact, named) for fact in (extract(named) if named else ())]
    results: list[RememberResult] = []
    new: set[str] = set()
    for fact in facts:
        added = memory.add(**fact, dedupe=True, similar=_PROPOSED + len(new))
        new.add(added["memory_id"])
        close = [one for one in added.pop("similar", ()) if one["memory_id"] not in new][:_PROPOSED]
        results.append({**added, "content": fact["content"], "derived_from": fact["derived_from"], "similar": close})
    return results


def _name_messages(memory: Memory, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with their ids. Those without one are added to the session's conversation."""
    if isinstance(messages, str | Mapping) or not all(isinstance(one, Mapping) for one in messages):
        raise InvalidInputError(f"messages must be a list of objects with a role and a content, not {quote(messages)}")
    new = [one for one in messages if one.get("message_id") is None]
    ids = iter(memory.short_term.add_messages(new) if new else ())
    named = [{**one, "message_id": one.get("message_id") or next(ids)} for one in messages]
    for one in named:
        if not is_id(one["message_id"]):
            raise InvalidInputError(f"{quote(one['message_id'])} is not the id of a message; leave message_id out")
    return named


def _check_fact(fact: object, messages: Sequence[Message]) -> dict[str, Any]:
    """A fact as ``add`` takes it, derived from the messages that it names, or from all of them."""
    given = {"content": fact} if isinstance(fact, str) else fact
    if not isinstance(given, Mapping) or "content" not in given or not given.keys() <= set(_FIELDS):
        raise InvalidInputError(
            f"extract gave {quote(fact)}; a fact is a text, or an object with content and, if wanted, "
            f"{', '.join(_FIELDS[1:])}"
        )
    if isinstance(given["content"], str):
        check_content(given["content"])
    ids = [one["message_id"] for one in messages]
    named = list(given.get("derived_from") or ids[-MAX_DERIVED_FROM:])
    if unknown := [one for one in named if one not in ids]:
        raise InvalidInputError(
            f"extract gave a fact that is derived from {quote(unknown[0])}, which is none of the messages"
        )
    return {**given, "derived_from": named}
