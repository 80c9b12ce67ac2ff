"""Recall over the kinds: one query, the best matches of each kind, merged and then read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.records import TYPES, Kind, MemoryType, Message, Record, Scope
from holdfast.memory.entity import tell_changed
from holdfast.memory.records import DurableRecords, item_result, memory_result
from holdfast.ports.feed import split_version_id

if TYPE_CHECKING:
    from holdfast.recall.index import Hit, Query, SearchOptions
    from holdfast.results.memory import RetrieveResult

#: A match that is deleted between ranking and reading would leave its place empty: all is ranked again, so often.
_TRIES: Final = 3
_BY_SCORE: Final = attrgetter("score", "updated_at")


class Match(NamedTuple):
    """A memory that bears on a query."""

    kind: MemoryType
    hit: Hit
    memory: Record | Message
    """A message, of the kinds that are not durable."""


class Search:
    """Asks a query of some kinds in one pass. ``items`` gives what there is of a kind that is not durable."""

    def __init__(self, records: DurableRecords, items: Callable[[Kind], Sequence[Message]]) -> None:
        self._records, self._items = records, items

    def find(
        self,
        kinds: Sequence[Kind],
        query: Query,
        options: SearchOptions,
        *,
        include_archived: bool | None = None,
        floor: float = 0.0,
    ) -> list[Match]:
        """The best matches of some kinds, ``top_k`` in all, in the order of ``merge``.

        Of archived memories only episodes are found, unless it is said whether they are.
        """
        for _ in range(_TRIES):
            items: dict[str, Message] = {}
            ranked: dict[MemoryType, list[Hit]] = {}
            current = self._records.services.recall.look(self._records.scope, kinds) if options.as_of is None else {}
            for kind in kinds:
                archived = kind.name is MemoryType.EPISODIC if include_archived is None else include_archived
                wanted = (
                    options._replace(include_archived=archived) if archived != options.include_archived else options
                )
                if kind.durable:
                    found = self._records.services.recall.rank(self._records.scope, kind, query, wanted, current)
                else:
                    found = self._rank_items(kind, query, wanted, items)
                ranked[kind.name] = found
            chosen = merge(ranked, options.top_k, floor)
            ids = [hit.id for _, hit in chosen if hit.id not in items]
            records = self._fetch(ids, options) if ids else {}
            there: Mapping[str, Record | Message] = {**items, **records}
            matches = [Match(kind, hit, there[hit.id]) for kind, hit in chosen if hit.id in there]
            if len(matches) == len(chosen):
                break
        return matches

    def _fetch(self, names: Sequence[str], options: SearchOptions) -> dict[str, Record]:
        """What was found, as it is now, or was at the moment that is asked about, by the names that indexes have."""
        services, subject = self._records.services, self._records.scope.subject
        if options.as_of is None:
            return tell_changed(services, subject, services.records.fetch(subject, names, now=options.now))
        ids = {name: split_version_id(name)[0] for name in names}
        records = services.records.fetch(subject, list(dict.fromkeys(ids.values())), now=options.now)
        changed = [one.id for one in records.values() if one.updated_at > options.as_of]
        ended = services.versions.at(subject, changed, at=options.as_of, now=options.now)
        then = {one.id: one for one in services.keep_out.leave_out(subject, ended)}
        found = {one.id: then[one.id].of(one) if one.id in then else one for one in records.values()}
        found = {one: record for one, record in found.items() if record.updated_at <= options.as_of}
        told = tell_changed(services, subject, found, options.as_of)
        return {name: told[one] for name, one in ids.items() if one in told}

    def _rank_items(self, kind: Kind, query: Query, options: SearchOptions, items: dict[str, Message]) -> list[Hit]:
        """The best matches of a kind that is not durable; ``items`` takes them up."""
        held = self._items(kind)
        recall, scope = self._records.services.recall, self._records.scope
        hits = recall.rank_items(scope, kind, held, query, options)
        known = recall.held_items(scope, kind) or {item.id: item for item in held}
        items |= {hit.id: known[hit.id] for hit in hits if hit.id in known}
        return hits


def merge(found: Mapping[MemoryType, Sequence[Hit]], top_k: int, floor: float = 0.0) -> list[tuple[MemoryType, Hit]]:
    """The best of several kinds: each kind's best match, then whatever scores highest; working memory first, and the
    newer of equals.

    With a ``floor``, a kind whose best match is below it stays away, and only notes that reach it come first.
    """
    kinds = {kind: hits for kind, hits in found.items() if hits and hits[0].score >= floor}
    if len(kinds) == 1:
        ((kind, hits),) = kinds.items()
        return [(kind, hit) for hit in sorted(hits, key=_BY_SCORE, reverse=True)[:top_k]]
    firsts = [(kind, hits[0]) for kind, hits in kinds.items()]
    others = [(kind, hit) for kind, hits in kinds.items() for hit in hits[1:]]

    def by_score(pair: tuple[MemoryType, Hit]) -> tuple[float, int]:
        return -pair[1].score, -pair[1].updated_at

    def order(pair: tuple[MemoryType, Hit]) -> tuple[bool, float, int]:
        return pair[0] is not MemoryType.WORKING or pair[1].score < floor, *by_score(pair)

    chosen = sorted(firsts, key=order)[:top_k]
    chosen += sorted(others, key=by_score)[: top_k - len(chosen)]
    return sorted(chosen, key=order)


def describe_match(scope: Scope, match: Match, options: SearchOptions) -> RetrieveResult:
    """What a caller is told of a match."""
    if isinstance(match.memory, Record):
        result = memory_result(match.memory, options.now)
    else:
        result = item_result(scope, TYPES[match.kind], match.memory)
    scored: RetrieveResult = result  # type: ignore[assignment]  # with what is added here
    scored["score"] = match.hit.score
    if match.hit.times > 1:
        scored["count"] = match.hit.times
    if options.explain:
        scored["explanation"] = match.hit.parts
    return scored
