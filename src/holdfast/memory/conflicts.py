"""Memories that are about the same thing and differ, with why. They are shown; nothing is changed.

Two memories are a pair where they are close (as ``similar`` is) and share at least half of their words, or of the
fields of a document, and where what differs can be named: a number, a denial, a word that says that something changed,
or a few words. It is a list of candidates: both may be true. Words of English denials and changes are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.clock import watch
from holdfast.core.records import Kind, MemoryType, Record
from holdfast.core.texts import normalize_text
from holdfast.core.values import check_count, iso, to_json
from holdfast.memory.records import DurableRecords
from holdfast.memory.user_data import refuse_kind
from holdfast.recall.index import SearchOptions
from holdfast.recall.passages import TARGET
from holdfast.recall.ranking import SIMILAR
from holdfast.recall.terms import read_words
from holdfast.results.memory import ConflictResult, SaidResult

#: So many of the newest memories of a kind are looked at, each with so many of those that are closest to it.
_LOOKED_AT: Final = 500
_CLOSEST: Final = 4
#: Texts that share less than this part of their words are not about the same thing.
_SHARED: Final = 0.5
#: If more words differ on either side, it cannot be said in a few words how they differ.
_FEW: Final = 3
_WORD: Final = re.compile(r"[\w.\-]*\w(?:['’]\w+)?")
_DENIALS: Final = frozenset(
    {"not", "no", "never", "none", "nobody", "nothing", "cannot", "without", "neither", "nor", "hardly"}
)
_CHANGES: Final = frozenset(
    {"moved", "switched", "changed", "stopped", "instead", "anymore", "formerly", "previously", "longer", "replaced"}
)
_FILLER: Final = frozenset(read_words("question_words.txt")) - _DENIALS - _CHANGES


def find_conflicts(records: DurableRecords, kind: Kind, limit: int) -> list[ConflictResult]:
    """The pairs of a kind that differ, the closest first."""
    if not kind.shown_once or kind.has_facts:
        raise refuse_kind(kind, "compared with each other", "name long_term, persona or structured memory")
    check_count(limit, "limit", most=_LOOKED_AT)
    services, now = records.services, records.services.now()
    known = {one.id: one for one in records.select(kind.name, SearchOptions(_LOOKED_AT, now))}
    scores: dict[tuple[str, ...], float] = {}
    for record in watch(list(known.values())):
        query = services.recall.encode_query(record.content[:TARGET])
        options = SearchOptions(_CLOSEST, now, min_score=SIMILAR, without=record.id)
        for hit in services.recall.rank(records.scope, kind, query, options):
            pair = tuple(sorted((hit.id, record.id)))
            scores[pair] = max(scores.get(pair, 0.0), hit.score)
    others = sorted({one for pair in scores for one in pair} - known.keys())
    known |= services.records.fetch(records.scope.subject, others, now=now) if others else {}
    found: list[ConflictResult] = []
    there = [pair for pair in scores if all(one in known for one in pair)]  # others were deleted meanwhile
    for pair in watch(sorted(there, key=lambda one: (-scores[one], one))):
        old, new = sorted((known[one] for one in pair), key=lambda one: (one.updated_at, one.id))
        why = explain_difference(old, new)
        if why is not None and len(found) < limit:
            found.append({"older": _said(old), "newer": _said(new), "score": scores[pair], "why": why})
    return found


def _said(record: Record) -> SaidResult:
    return {"memory_id": record.id, "content": record.content, "created_at": iso(record.created_at)}


def explain_difference(old: Record, new: Record) -> str | None:
    """How two memories differ, in a sentence; ``None`` if that cannot be named, or they do not."""
    if old.kind is MemoryType.STRUCTURED:
        return _compare_documents(old.metadata, new.metadata)
    return compare_texts(old.content, new.content)


def compare_texts(old: str, new: str) -> str | None:
    """How two texts differ, in a sentence; ``None`` if that cannot be named, or they do not."""
    before, after = _words(old), _words(new)
    only_before = [word for word in before if word not in after]
    only_after = [word for word in after if word not in before]
    smaller = min(len(before), len(after))
    if not smaller or (smaller - min(len(only_before), len(only_after))) / smaller < _SHARED:
        return None
    denials = [word for word in (*only_before, *only_after) if _denies(word)]
    if denials and any(map(_denies, before)) != any(map(_denies, after)):
        return f"One of them denies what the other says ({denials[0]!r})."
    if changes := [word for word in only_after if word in _CHANGES]:
        return f"The newer one says that something changed ({changes[0]!r})."
    numbers = [[word for word in words if any(map(str.isdigit, word))] for words in (only_before, only_after)]
    if all(numbers):
        return f"They give different numbers: {_list(numbers[0])} and {_list(numbers[1])}."
    if only_before and only_after and max(len(only_before), len(only_after)) <= _FEW:
        return f"They say the same, but for {_list(only_before)} and {_list(only_after)}."
    return None


def _words(text: str) -> list[str]:
    """The words of a text that say something, each once, in their order."""
    found = _WORD.findall(normalize_text(text).replace("n’t", "n't"))
    return list(dict.fromkeys(word for word in found if word not in _FILLER))


def _denies(word: str) -> bool:
    return word in _DENIALS or word.endswith("n't")


def _list(words: list[str]) -> str:
    return ", ".join(repr(word) for word in words)


def _compare_documents(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """How two documents of a collection differ. Two that have keys are about different things."""
    before, after = (one.get("document") or {} for one in (old, new))
    same_place = old.get("collection") == new.get("collection") and not (old.get("key") and new.get("key"))
    shared = before.keys() & after.keys()
    differing = sorted(name for name in shared if before[name] != after[name])
    if not same_place or not differing or len(differing) > len(shared) * _SHARED:
        return None
    name = differing[0]
    return f"The field {name!r} is {to_json(before[name])} in the older one, and {to_json(after[name])} in the newer."
