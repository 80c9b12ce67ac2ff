"""What adding came to, what is close to what was added, and what an extractor makes of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.records import Kind, MemoryType, Usage
from holdfast.core.values import MAX_DERIVED_FROM, check_content, is_id, iso
from holdfast.memory.search import Search
from holdfast.memory.services import Services
from holdfast.memory.short_term import ShortTerm
from holdfast.recall.index import SearchOptions
from holdfast.recall.passages import INDEXED_CHARS, TARGET
from holdfast.recall.ranking import SIMILAR
from holdfast.results import AddResult, RememberResult, SimilarResult, WriteResult


class Written(NamedTuple):
    """What adding contents came to."""

    ids: list[str]
    usage: Usage
    gone: int = 0
    """How many old memories made way."""
    existing: int = 0
    """How many contents were there already."""
    kept_out: int = 0


def describe_added(kind: Kind, operation: str, elapsed: float, written: Written) -> WriteResult:
    """What every add says. Of old memories that made way: whether they left the window or went to the bin."""
    result: WriteResult = {
        "operation": operation,
        "memory_type": kind.name.value,
        "latency_ms": elapsed,
        "quota_remaining": written.usage.remaining,
    }
    gone = written.gone
    if gone and kind.name is MemoryType.SHORT_TERM:
        result["dropped"] = gone
    elif gone:
        result["pruned"] = gone
        result["operation"] = "add_with_prune"
    return result


def describe_one(content: object, added: WriteResult, written: Written) -> AddResult:
    """What an add of one memory says."""
    result = cast("AddResult", {"memory_id": written.ids[0], **added})
    if isinstance(content, str) and len(content) > INDEXED_CHARS:
        result["indexed_chars"] = INDEXED_CHARS
    return result


def find_similar(
    services: Services, search: Search, kind: Kind, text: str, *, added: str, count: int
) -> list[SimilarResult]:
    """The live memories of a kind that are closest to a text, if they are close, without the one that was added."""
    query = services.recall.encode_query(text[: 4 * TARGET])
    options = SearchOptions(count, services.now(), min_score=SIMILAR, without=added)
    return [
        {
            "memory_id": match.hit.id,
            "content": match.memory.content,
            "score": match.hit.score,
            "created_at": iso(match.memory.created_at),
        }
        for match in search.find([kind], query, options, include_archived=False)
    ]


# --- facts of a conversation ------------------------------------------------------------------------------------------

Facts = Iterable[str | Mapping[str, Any]]
"""Each is a text, or an object with what ``add`` takes."""
Extract = Callable[[list[dict[str, Any]]], Facts]
"""Gives the facts of messages."""

#: So many of the memories that are close to a fact are proposed.
_PROPOSED: Final = 3
_FIELDS: Final = ("content", "memory_type", "metadata", "source", "derived_from")


def remember(
    add: Callable[..., AddResult], short_term: ShortTerm, messages: Sequence[Mapping[str, Any]], extract: Extract
) -> list[RememberResult]:
    """Add the facts that ``extract`` finds in messages, and say which memories each may be meant to correct."""
    if not callable(extract):
        raise InvalidInputError(f"extract must be a function that gives the facts of messages, not {quote(extract)}")
    named = _name_messages(short_term, messages)
    facts = [_check_fact(fact, named) for fact in (extract(named) if named else ())]
    results: list[RememberResult] = []
    new: set[str] = set()
    for fact in facts:
        added = add(**fact, dedupe=True, similar=_PROPOSED + len(new))
        new.add(added["memory_id"])
        close = [one for one in added.pop("similar", ()) if one["memory_id"] not in new][:_PROPOSED]
        results.append({**added, "content": fact["content"], "derived_from": fact["derived_from"], "similar": close})
    return results


def _name_messages(short_term: ShortTerm, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with their ids. Those without one are added to the session's conversation."""
    if isinstance(messages, str | Mapping) or not all(isinstance(one, Mapping) for one in messages):
        raise InvalidInputError(f"messages must be a list of objects with a role and a content, not {quote(messages)}")
    new = [one for one in messages if one.get("message_id") is None]
    ids = iter(short_term.add_messages(new) if new else ())
    named = [{**one, "message_id": one.get("message_id") or next(ids)} for one in messages]
    for one in named:
        if not is_id(one["message_id"]):
            raise InvalidInputError(f"{quote(one['message_id'])} is not the id of a message; leave message_id out")
    return named


def _check_fact(fact: object, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
