"""``holdfast.memories``: all that is kept of a user, whichever agent it is with and whatever state it is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from holdfast.core.decisions import Held, Hold, find_hold
from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.records import LIVE, OWN, TYPES, MemoryType, State, Subject, key_of, kind_of
from holdfast.core.values import When, agent_source, check_count, check_id, iso, moment
from holdfast.ports.figures import FacetCount, Places, RecordSummary, Selection
from holdfast.ports.registry import AGENT
from holdfast.ports.stores import Tenant
from holdfast.results.figures import BrowseResult, FacetResult

#: So many characters of a memory are in a list.
BEGINNING_CHARS: Final = 300
_MOST: Final = 1_000
#: Of each kind, so many of the newest records are counted.
_MOST_COUNTED: Final = 10_000
#: Of agents, sessions and sources, so many are named, those with the most memories.
_MOST_NAMED: Final = 100
STATES: Final = (State.ACTIVE, State.ARCHIVED, State.RECYCLED)


@dataclass(eq=False, repr=False)
class Memories:
    """All that is kept of a user in the durable kinds, to be looked through."""

    tenant: Tenant

    def page(
        self,
        user_id: str,
        *,
        memory_type: MemoryType | str | None = None,
        state: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        source: str | None = None,
        created_from: When = None,
        created_before: When = None,
        after: Places | None = None,
        limit: int = 100,
    ) -> tuple[list[BrowseResult], Places | None]:
        """Some memories of a user, those that were stored last first, and where the next page begins (``after``);
        ``None`` on the last one. What is not given is any. A page may have fewer than ``limit`` though others follow.

        ``content`` is the beginning of each. It is ``None`` where nobody may read it: the memory is past its time, its
        agent was removed, or its text is kept out.
        """
        check_count(limit, "limit", most=_MOST)
        names = {"agent_id": agent_id, "session_id": session_id, "source": source}
        given = {name: check_id(value, name) for name, value in names.items() if value is not None}
        which = Selection(
            None if memory_type is None else _durable(memory_type),
            None if state is None else _check_state(state),
            created_from=None if created_from is None else moment(created_from, what="created_from"),
            created_before=None if created_before is None else moment(created_before, what="created_before"),
            **given,
        )
        subject, holds = Subject.check(self.tenant.name, user_id), self.tenant.holds.list(self.tenant.name)
        tags = any(hold.tag is not None for hold in holds)
        options: dict[str, Any] = {"after": after, "limit": limit, "chars": BEGINNING_CHARS + 1, "tags": tags}
        found, following = self.tenant.figures.page(subject, which, **options)
        return self._describe(subject, found, holds), following

    def facets(self, user_id: str) -> FacetResult:
        """How many memories of a user there are by kind, state, agent, session and source.

        Of a user with very many, the newest of each kind are counted; ``is_whole`` says whether those are all.
        """
        subject = Subject.check(self.tenant.name, user_id)
        found, whole = self.tenant.figures.facets(subject, most=_MOST_COUNTED)
        result = {
            "memories": sum(one.records for one in found),
            "bytes": sum(one.bytes for one in found),
            "is_whole": whole,
            "kinds": _count((one.kind.value, one) for one in found),
            "states": _count((one.state.value, one) for one in found),
            "agents": _count((one.agent_id, one) for one in found),
            "sessions": _count((one.session_id, one) for one in found if one.session_id is not None),
            "sources": _count((one.source or agent_source(one.agent_id), one) for one in found),
        }
        return cast("FacetResult", result)

    def _describe(self, subject: Subject, found: list[RecordSummary], holds: list[Hold]) -> list[BrowseResult]:
        now, agents = self.tenant.now(), {one.agent_id for one in found if one.kind in OWN}
        removed = {agent for agent in agents if self._is_removed(agent)}
        binned = {one.text_hash for one in found if one.state not in LIVE}
        kept_out = self.tenant.kept_out.find(subject, sorted(binned)) if binned else set()
        return [
            _describe(
                one,
                now,
                is_hidden=one.kind in OWN and one.agent_id in removed,
                is_kept_out=one.text_hash in kept_out,
                hold=find_hold(Held(subject.user_id, one.agent_id, one.session_id, one.id, one.metadata), holds),
            )
            for one in found
        ]

    def _is_removed(self, agent_id: str) -> bool:
        agent = self.tenant.registry.get(self.tenant.name, AGENT, agent_id)
        return agent is not None and agent.state is not State.ACTIVE


def _describe(one: RecordSummary, now: int, *, is_hidden: bool, is_kept_out: bool, hold: Hold | None) -> BrowseResult:
    """A memory as a list shows it."""
    is_over = one.state in LIVE and one.hidden_from is not None and one.hidden_from <= now
    is_due = one.state in LIVE and one.archive_at is not None and one.archive_at <= now
    readable = not (is_over or is_hidden or is_kept_out)
    return {
        "memory_id": one.id,
        "memory_type": one.kind.value,
        "state": one.state.value,
        "is_visible": readable and one.state in LIVE,
        "is_archived": one.state is State.ARCHIVED or is_due,
        "is_held": hold is not None,
        "content": one.beginning[:BEGINNING_CHARS] if readable else None,
        "is_cut": readable and len(one.beginning) > BEGINNING_CHARS,
        "key": key_of(TYPES[one.kind], one.name) if readable else None,
        "agent_id": one.agent_id,
        "session_id": one.session_id,
        "source": one.source or agent_source(one.agent_id),
        "version": one.revision,
        "bytes": one.size,
        "created_at": iso(one.created_at),
        "updated_at": iso(one.updated_at),
        "archive_at": _iso(one.archive_at) if one.state is State.ACTIVE else None,
        "expires_at": _iso(one.hidden_from) if one.state in LIVE else None,
        "moved_at": _iso(one.moved_at),
        "reason": one.reason,
        "purge_at": _iso(one.purge_at) if one.state is State.RECYCLED else None,
    }


def _iso(at: int | None) -> str | None:
    return None if at is None else iso(at)


def _count(found: Iterable[tuple[str, FacetCount]]) -> dict[str, int]:
    """How many there are of each, the most first."""
    counts: Counter[str] = Counter()
    for name, one in found:
        counts[name] += one.records
    return dict(counts.most_common(_MOST_NAMED))


def _durable(memory_type: MemoryType | str) -> MemoryType:
    kind = kind_of(memory_type)
    if not kind.durable:
        known = ", ".join(one.name for one in TYPES.values() if one.durable)
        raise InvalidInputError(f"{kind.name} memory is not kept, and cannot be browsed; kinds that can: {known}")
    return kind.name


def _check_state(state: str) -> State:
    if state not in STATES:
        raise InvalidInputError(f"there is no state {quote(state)}; states are: {', '.join(STATES)}")
    return State(state)
