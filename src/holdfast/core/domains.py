"""Retention domains: what a policy says, how it is brought into bounds, and which resources may go by it. Pure.

The resources are a caller's own: they are sorted here, and never touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.rules import Selection, context_number
from holdfast.core.values import DAY, iso, moment

#: The domains that have a policy each.
DOMAINS: Final = ("memory", "rag")
#: What a resource can come from.
SOURCE_TYPES: Final = ("context", "action", "thought")
#: The least and the most of each number.
OLDER_THAN_DAYS: Final = (1, 3_650)
LIMIT: Final = (1, 20_000)
#: So many sessions, and so many contexts, can be kept.
MAX_KEPT: Final = 10_000
#: Numbers of this size are milliseconds since 1970: as seconds, they would be thousands of years ahead.
_MILLISECONDS: Final = 1e11
_UNREADABLE: Final = 1e14


class Reason(StrEnum):
    """Why a resource is protected, in the order in which they are tried."""

    SESSION = "protected_session"
    CONTEXT = "protected_context"
    SOURCE_TYPE = "invalid_source_type"
    AGE = "within_retention_period"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The policy of a domain. It cannot be changed, and none that is out of bounds can be made."""

    older_than_days: int = 30
    source_types: tuple[str, ...] = SOURCE_TYPES
    keep_session_ids: tuple[str, ...] = ()
    keep_context_ids: tuple[int, ...] = ()
    limit: int = 5_000
    vacuum: bool = False
    auto_gc: bool = False

    def __post_init__(self) -> None:
        for name in FIELDS:
            value = getattr(self, name)
            if repr(_freeze(_value(name, value, ...))) != repr(value):  # 1, 1.0 and True are equal, and not the same
                raise InvalidInputError(f"a policy's {name} cannot be {quote(value)}; make one with normalize(...)")

    def as_dict(self) -> dict[str, Any]:
        """As callers and the state file have it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def selection(self) -> Selection:
        """Which of Holdfast's own records the policy is for."""
        kept = frozenset(self.keep_session_ids), frozenset(self.keep_context_ids)
        return Selection(frozenset(self.source_types), *kept)

    def cutoff(self, now: int) -> int:
        """What was made after this moment is too young to go."""
        return now - self.older_than_days * DAY


FIELDS: Final = tuple(field.name for field in fields(RetentionPolicy))
#: What is collected, and how much of it: all of a policy but whether that happens by itself.
GC_FIELDS: Final = FIELDS[:-1]


def check_domain(domain: object) -> str:
    """``domain`` itself, if there is such a one."""
    if not isinstance(domain, str) or domain not in DOMAINS:
        raise InvalidInputError(f"there is no domain {quote(domain)}; use one of: {', '.join(DOMAINS)}")
    return domain


def normalize(config: object, fallback: RetentionPolicy) -> RetentionPolicy:
    """A policy of what is given and, where nothing (or nothing usable) is, of ``fallback``.

    Numbers outside their bounds are brought to the nearest bound; of a fraction, days are rounded up and the limit
    down, so that nothing goes earlier, and not more of it, than was asked for. What is no finite number, no list and
    neither true nor false leaves the fallback, and so does a list of source types of which none is known. Lists lose
    what cannot be in them, and what is in them twice. ``InvalidInputError`` for a field that no policy has.
    """
    given = _check_fields(config, FIELDS, "config")
    kept = fallback.as_dict()
    return RetentionPolicy(**{name: _freeze(_value(name, given.get(name), kept[name])) for name in FIELDS})


def resolve_parameters(
    policy: RetentionPolicy, raw: Mapping[str, Any], validated: Mapping[str, Any], fields: Iterable[str] = GC_FIELDS
) -> dict[str, Any]:
    """The parameters of a garbage collection: those that a caller gave, brought into bounds, win over the policy's.

    ``raw`` says what was given, ``validated`` what became of it; what else is in there is handed on as it is.
    """
    kept = policy.as_dict()
    given = {name: validated.get(name, raw.get(name)) for name in fields if raw.get(name) is not None}
    return {**validated, **{name: _value(name, given.get(name), kept[name]) for name in fields}}


def narrow(policy: RetentionPolicy, options: object) -> RetentionPolicy:
    """The policy for one evaluation: what the options say, and what is kept by either of them."""
    given = dict(_check_fields(options, GC_FIELDS, "options"))
    for name in ("keep_session_ids", "keep_context_ids"):
        if isinstance(given.get(name), list | tuple | set | frozenset):
            given[name] = [*getattr(policy, name), *given[name]]
    return normalize(given, policy)


# --- evaluation -------------------------------------------------------------------------------------------------------


class Evaluation(NamedTuple):
    """What may go by a policy, and what may not and why. The resources are the caller's, unchanged, in their order."""

    policy: RetentionPolicy
    cutoff: int
    eligible: list[Mapping[str, Any]]
    """Not more than the policy's limit."""
    protected: list[tuple[Mapping[str, Any], Reason]]
    total: int

    def to_dict(self, domain: str) -> dict[str, Any]:
        """As callers see it. What the limit left out is in neither list, and in the total."""
        return {
            "success": True,
            "domain": domain,
            "cutoff_date": iso(self.cutoff),
            "policy_applied": self.policy.as_dict(),
            "eligible": [dict(resource) for resource in self.eligible],
            "protected": [{"resource": dict(resource), "reason": reason.value} for resource, reason in self.protected],
            "counts": {"eligible": len(self.eligible), "protected": len(self.protected), "total": self.total},
        }


def evaluate(policy: RetentionPolicy, resources: object, now: int) -> Evaluation:
    """Sort resources into what may go by a policy and what is protected. Nothing is removed."""
    cutoff = policy.cutoff(now)
    sessions, contexts = frozenset(policy.keep_session_ids), frozenset(policy.keep_context_ids)
    eligible: list[Mapping[str, Any]] = []
    protected: list[tuple[Mapping[str, Any], Reason]] = []
    listed = check_resources(resources)
    for resource in listed:
        reason = _protection(resource, sessions, contexts, cutoff)
        if reason is not None:
            protected.append((resource, reason))
        elif len(eligible) < policy.limit:
            eligible.append(resource)
    return Evaluation(policy, cutoff, eligible, protected, len(listed))


def check_resources(resources: object) -> list[Mapping[str, Any]]:
    """Resources as a list, if each of them is a mapping."""
    if isinstance(resources, str | bytes | Mapping) or not isinstance(resources, Iterable):
        raise InvalidInputError(f"resources must be a list of objects, not {quote(resources)}")
    listed = list(resources)
    for place, resource in enumerate(listed):
        if not isinstance(resource, Mapping) or not all(isinstance(name, str) for name in resource):
            raise InvalidInputError(f"resource {place} must be an object with names, not {quote(resource)}")
    return listed


def _protection(
    resource: Mapping[str, Any], sessions: frozenset[str], contexts: frozenset[int], cutoff: int
) -> Reason | None:
    session, source = resource.get("session_id"), resource.get("source_type")
    if isinstance(session, str) and session in sessions:
        return Reason.SESSION
    if context_number(resource.get("context_id")) in contexts:
        return Reason.CONTEXT
    if not isinstance(source, str) or source not in SOURCE_TYPES:
        return Reason.SOURCE_TYPE
    made = creation_time(resource.get("created_at"))
    return Reason.AGE if made is None or made > cutoff else None


def creation_time(value: object) -> int | None:
    """When a resource was made: an ISO 8601 text or a datetime that says its offset, seconds or milliseconds since
    1970. ``None`` if that cannot be told, and then nobody knows that it is old enough.
    """
    if isinstance(value, bool) or not isinstance(value, str | datetime | int | float):
        return None
    if isinstance(value, int | float):
        if value != value or abs(value) >= _UNREADABLE:  # noqa: PLR0124 - NaN is not itself
            return None
        value = value / 1_000 if abs(value) >= _MILLISECONDS else value
    elif isinstance(value, str) and "T" not in value.upper() and " " not in value.strip():
        return None  # a date alone is another day elsewhere
    try:
        return moment(value)
    except (InvalidInputError, OverflowError):
        return None


# --- normalisation ----------------------------------------------------------------------------------------------------


def _check_fields(config: object, known: tuple[str, ...], what: str) -> Mapping[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InvalidInputError(f"{what} must be an object with any of: {', '.join(known)}; not {quote(config)}")
    if unknown := sorted(str(name) for name in config if name not in known):
        raise InvalidInputError(f"{what} has unknown fields {', '.join(unknown)}; known are: {', '.join(known)}")
    return config


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _value(name: str, value: object, fallback: Any) -> Any:
    """What a field of a policy becomes."""
    match name:
        case "older_than_days":
            return _clamp(value, OLDER_THAN_DAYS, fallback, math.ceil)
        case "limit":
            return _clamp(value, LIMIT, fallback, math.floor)
        case "source_types":
            return _list_items(name, value, lambda item: item if item in SOURCE_TYPES else None, fallback) or fallback
        case "keep_session_ids":
            return _list_items(name, value, lambda item: item if isinstance(item, str) and item else None, fallback)
        case "keep_context_ids":
            return _list_items(name, value, context_number, fallback)
        case _:
            return value if isinstance(value, bool) else fallback


def _clamp(value: object, bounds: tuple[int, int], fallback: Any, whole: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return fallback
    if isinstance(value, float) and not math.isfinite(value):
        return fallback
    least, most = bounds
    return int(whole(min(max(value, least), most)))


def _list_items(name: str, value: object, valid: Any, fallback: Any) -> Any:
    if not isinstance(value, list | tuple | set | frozenset):
        return fallback
    found = dict.fromkeys(usable for item in value if (usable := valid(item)) is not None)
    if len(found) > MAX_KEPT:
        raise InvalidInputError(f"{name} has {len(found):,} entries; at most {MAX_KEPT:,} can be kept")
    return sorted(found) if isinstance(value, set | frozenset) else list(found)


#: What holds where nothing was configured.
DEFAULT_POLICY: Final = RetentionPolicy()
