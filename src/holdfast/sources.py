"""The names that the source documents use, as views on the real thing: nothing here is a second implementation.

Tables are made from the definitions that the engine itself reads. Functions and classes work on the engine that the
settings name, or on the one given as ``engine``. ``docs/requirements.md`` says where Holdfast does something else than
a document asks, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar

from holdfast.backups.service import DAILY, WEEKLY
from holdfast.core.records import ALL, TYPES, Archive, Kind, MemoryType, Scope
from holdfast.core.rules import DEFAULTS
from holdfast.core.values import DAY, FOREVER, SECOND
from holdfast.engine import Holdfast, MemoryManager, default_engine
from holdfast.lifecycle.metrics import METRICS, Metric
from holdfast.memory.episodic import Episodic
from holdfast.memory.records import DurableRecords
from holdfast.memory.short_term import ShortTerm
from holdfast.memory.text import TextMemory
from holdfast.results.domains import DomainResult, RetentionPolicyResult, SortedResourcesResult
from holdfast.results.lifecycle import ExportResult

__all__ = ["LATENCY_TARGETS", "RETENTION_METRICS", "RETENTION_POLICIES", "USER_QUOTAS"]
__all__ += ["EpisodeSnippet", "EpisodicMemory", "LongTermMemory", "ShortTermMemory"]
__all__ += ["apply_retention_rules", "configure_retention_policy", "gdpr_delete_user_data", "gdpr_export_user_data"]
__all__ += ["get_retention_policy", "resolve_gc_params_with_policy"]

T = TypeVar("T")
Engine = Holdfast | None
Arguments = Mapping[str, Any] | None
#: Whose memory it is where a document names only a session, or only an agent; and the agent where it names only a user.
DEFAULT_USER: Final = "default"
DEFAULT_AGENT: Final = "default"

#: How something that lives so long is cleaned up.
_CLEANUP: Final = {
    "task": "automatic",
    "session": "ttl",
    "persistent": "manual",
    "permanent": "never",
    "configurable": "ttl",
}


def _duration(kind: Kind) -> str:
    """For how long a kind lives, in one word."""
    terms = DEFAULTS[kind.name]
    if not kind.durable:
        return "task" if terms.delete_after is None else "session"
    if (terms.keep_for or 0) >= FOREVER:
        return "permanent"
    return "persistent" if terms.delete_after is None else "configurable"


def _policy(kind: Kind) -> Mapping[str, Any]:
    terms, duration = DEFAULTS[kind.name], _duration(kind)
    said: dict[str, Any] = {"duration": duration, "cleanup": _CLEANUP[duration], "backup": kind.name in DAILY | WEEKLY}
    if duration != "task":  # an episode is whole until it is archived: then cleanup_old_episodes() would take it
        ends = terms.archive_after if kind.archive is Archive.SUMMARY else terms.delete_after
        said["ttl_seconds"] = None if ends is None else ends // SECOND
    if terms.archive_after is not None:
        said["archive_after_days"] = terms.archive_after // DAY
    return MappingProxyType(said)


def _by_kind(read: Callable[[Kind], T]) -> Mapping[str, T]:
    return MappingProxyType({kind.name.value: read(kind) for kind in TYPES.values()})


#: How long each kind lives where no rule says otherwise: ``duration``, ``cleanup``, ``backup`` and, where there is one,
#: ``ttl_seconds`` and ``archive_after_days``.
RETENTION_POLICIES: Final = _by_kind(_policy)
#: How much of each kind a user may hold where no quota says otherwise.
USER_QUOTAS: Final = _by_kind(
    lambda kind: MappingProxyType({"max_memories": kind.max_memories, "max_bytes": kind.max_bytes})
)
#: Milliseconds that a write or a recall of each kind may take before it is logged as too slow.
LATENCY_TARGETS: Final = _by_kind(lambda kind: kind.latency_ms)
#: What of retention is measured; ``holdfast.metrics()`` has the values.
_METRICS: Final = ("memory_archived", "memory_deleted", "memory_storage_bytes", "memory_age_days")
RETENTION_METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {METRICS[name].exposed: METRICS[name] for name in _METRICS}
)


# --- privacy ----------------------------------------------------------------------------------------------------------


def gdpr_delete_user_data(user_id: str, *, engine: Engine = None) -> dict[str, int]:
    """Erase a user for good: every kind, with every agent, in every place, backups included; counts by kind."""
    return (engine or default_engine()).gdpr_delete_user_data(user_id)


def gdpr_export_user_data(user_id: str, *, engine: Engine = None) -> ExportResult:
    """Everything that is held on a user: ``user_id``, ``export_date``, ``memories`` by kind, and more."""
    return (engine or default_engine()).gdpr_export_user_data(user_id)


# --- domains ----------------------------------------------------------------------------------------------------------


def configure_retention_policy(
    domain: str, config: Mapping[str, Any], *, confirm: bool = False, author: str | None = None, engine: Engine = None
) -> DomainResult:
    """Change fields of a domain's policy: ``success``, ``domain``, ``policy``, ``updated_at``."""
    return (engine or default_engine()).domains.configure(domain, config, confirm=confirm, author=author)


def get_retention_policy(domain: str, *, engine: Engine = None) -> RetentionPolicyResult:
    """The policy of a domain."""
    return (engine or default_engine()).domains.get(domain)


def apply_retention_rules(
    domain: str, resources: Sequence[Mapping[str, Any]], options: Arguments = None, *, engine: Engine = None
) -> SortedResourcesResult:
    """Sort resources into ``eligible`` and ``protected`` by a domain's policy. Deletes nothing."""
    return (engine or default_engine()).domains.apply(domain, resources, options)


def resolve_gc_params_with_policy(
    domain: str, raw_args: Arguments = None, validated_args: Arguments = None, *, engine: Engine = None
) -> dict[str, Any]:
    """The parameters of a garbage collection: what its caller gave wins, the domain's policy has the rest."""
    return (engine or default_engine()).domains.resolve_gc_params(domain, raw_args, validated_args)


# --- kinds ------------------------------------------------------------------------------------------------------------


class ShortTermMemory(ShortTerm):
    """The messages of a session: ``memory.short_term``."""

    def __init__(
        self, session_id: str, *, user_id: str = DEFAULT_USER, agent_id: str = DEFAULT_AGENT, engine: Engine = None
    ) -> None:
        engine = engine or default_engine()
        super().__init__(engine.services, Scope.check(engine.tenant, user_id, agent_id, session_id))
        self.session_id = session_id


class LongTermMemory(TextMemory):
    """The facts of a user: ``memory.long_term``. Of the user ``*``, ``archive_old_memories()`` takes everyone's."""

    def __init__(self, user_id: str, *, agent_id: str = DEFAULT_AGENT, engine: Engine = None) -> None:
        super().__init__(MemoryManager(user_id, agent_id, engine=engine), MemoryType.LONG_TERM)
        self.user_id = user_id


class EpisodicMemory(Episodic):
    """The episodes of an agent: ``memory.episodic``. ``cleanup_old_episodes()`` takes those with every user, unless one
    is named, and of the agent ``*``, those of every agent.
    """

    def __init__(self, agent_id: str, *, user_id: str | None = None, engine: Engine = None) -> None:
        engine = engine or default_engine()
        one = DEFAULT_USER if user_id is None else user_id
        super().__init__(DurableRecords(engine.services, Scope.check(engine.tenant, one, agent_id, everyone=True)))
        self._everyone = MemoryManager(ALL if user_id is None else user_id, agent_id, engine=engine).episodic
        self.agent_id = agent_id

    def cleanup_old_episodes(self) -> int:
        return self._everyone.cleanup_old_episodes()


@dataclass(frozen=True, slots=True)
class EpisodeSnippet:
    """A recalled episode."""

    episode_id: str
    summary: str
    date: datetime
    """When it ended, with its offset."""
    relevance_score: float
    is_archived: bool
    """Its messages are no longer there."""

    @staticmethod
    def of(found: Mapping[str, Any]) -> EpisodeSnippet:
        """One of the answers of ``query_similar_episodes``."""
        ended = datetime.fromisoformat(found["date"])
        return EpisodeSnippet(found["episode_id"], found["summary"], ended, found["score"], found["is_archived"])
