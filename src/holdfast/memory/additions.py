"""What adding came to, and what is close to what was added."""

from __future__ import annotations

from typing import NamedTuple, cast

from holdfast.core.records import Kind, MemoryType, Usage
from holdfast.core.values import iso
from holdfast.memory.search import Search
from holdfast.memory.services import Services
from holdfast.recall.index import SearchOptions
from holdfast.recall.passages import INDEXED_CHARS, TARGET
from holdfast.recall.ranking import SIMILAR
from holdfast.results import AddResult, SimilarResult, WriteResult


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
