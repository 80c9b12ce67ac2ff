"""How long things live: the defaults, rules that change them for a scope, and which of them apply where they meet.

Times are durations in microseconds, counted from when a record was made, an episode ended or a session was last active.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from holdfast.core.decisions import Life
from holdfast.core.errors import InvalidRuleError, quote
from holdfast.core.records import AUDIT, DURABLE, HISTORY, TYPES, MemoryType, Terms
from holdfast.core.values import DAY, FOREVER, describe_duration, to_json


class Labels(NamedTuple):
    """What a selection looks at in a record's metadata."""

    source_type: str | None = None
    context_id: int | None = None


def labels_of(metadata: Mapping[str, Any]) -> Labels:
    """The labels that metadata carry; what is no label (a number as a source, a text as a context) is none."""
    source = metadata.get("source_type")
    return Labels(source if isinstance(source, str) else None, context_number(metadata.get("context_id")))


def context_number(value: object) -> int | None:
    """A context's number: a whole one above 0, however it is written; anything else is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or not 0 < value < 2**63:  # noqa: PLR0124 - NaN is not itself
        return None
    return int(value) if value == int(value) else None


class Selection(NamedTuple):
    """Records of some source types, but none of a session or a context that is kept."""

    source_types: frozenset[str]
    keep_session_ids: frozenset[str]
    keep_context_ids: frozenset[int]

    def selects(self, session_id: str | None, labels: Labels) -> bool:
        """Whether a record of a session is selected by its labels."""
        return (
            labels.source_type in self.source_types
            and session_id not in self.keep_session_ids
            and labels.context_id not in self.keep_context_ids
        )

    def is_within(self, other: Selection) -> bool:
        """Whether the other selects everything that this one does."""
        return (
            self.source_types <= other.source_types
            and self.keep_session_ids >= other.keep_session_ids
            and self.keep_context_ids >= other.keep_context_ids
        )

    def text(self) -> str:
        """As it is stored: the same for the same selection."""
        return to_json([sorted(part) for part in self])

    @staticmethod
    def parse(text: str) -> Selection:
        """A selection as it was stored."""
        sources, sessions, contexts = json.loads(text)
        return Selection(frozenset(sources), frozenset(sessions), frozenset(contexts))


#: A rule for every durable kind; persona memory, which no clean-up touches, has to be named, and so have conversations.
EVERY: Final = "*"
_EVERY: Final = frozenset(kind.value for kind in DURABLE if kind is not MemoryType.PERSONA)
_ARCHIVE_DAYS: Final = 365


#: More versions of one record than this are not kept.
MOST_VERSIONS: Final = 1_000
#: What is kept of ended versions where no rule says otherwise.
_VERSIONS: Final = {"versions": 10, "versions_for": 365 * DAY}

#: How long each kind lives where no rule says otherwise. Each tenant's book keeps them as they were when it was last
#: brought up to date, so that every process that uses a store goes by the same ones: read them there.
DEFAULTS: Final[Mapping[str, Terms]] = MappingProxyType(
    {
        **{kind.name.value: kind.life._replace(**(_VERSIONS if kind.durable else {})) for kind in TYPES.values()},
        HISTORY: Terms(delete_after=30 * DAY),
        AUDIT: Terms(delete_after=3_650 * DAY),
    }
)


@dataclass(frozen=True, slots=True)
class EpisodicRetentionPolicy:
    """How long an agent keeps its episodes: in full, then as a summary, then not at all."""

    active_retention_days: float = 90
    archive_retention_days: float = _ARCHIVE_DAYS
    archive_on_expiry: bool = True
    delete_after_archival_period: bool = True

    def terms(self) -> Terms:
        """The same as terms of a rule."""
        flags = ("archive_on_expiry", "delete_after_archival_period")
        for name in flags:
            if not isinstance(getattr(self, name), bool):
                raise InvalidRuleError(f"{name} must be true or false, not {quote(getattr(self, name))}")
        off = [name for name in flags if not getattr(self, name)]
        if len(off) == len(flags):
            raise InvalidRuleError(
                "without archive_on_expiry an episode is deleted when its active time ends, so that there is no "
                "archival period for delete_after_archival_period = false to be about; leave one of the two true, or "
                'set a rule with delete_after_days = "never"'
            )
        if off and self.archive_retention_days != _ARCHIVE_DAYS:
            raise InvalidRuleError(
                f"archive_retention_days ({quote(self.archive_retention_days)}) has no effect with {off[0]} = false; "
                "leave one of them out"
            )
        active = days(self.active_retention_days, "active_retention_days")
        if not self.archive_on_expiry:
            return Terms(archive_after=FOREVER, delete_after=active)
        if not self.delete_after_archival_period:
            return Terms(archive_after=active, delete_after=FOREVER)
        whole = days(self.archive_retention_days, "archive_retention_days")
        if whole <= active:
            raise InvalidRuleError(
                f"archive_retention_days ({self.archive_retention_days}) counts from the episode's end, as "
                f"active_retention_days ({self.active_retention_days}) does; it must be the longer one"
            )
        return Terms(archive_after=active, delete_after=whole)


@dataclass(frozen=True, slots=True)
class Rule:
    """Terms for a kind of memory, within a scope; each part of the scope that is not named is any."""

    id: str
    tenant: str
    kind: str
    terms: Terms
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    memory_id: str | None = None
    version: int = 0
    """Counts the changes that took effect; 0: none yet."""
    pending: Terms | None = None
    """What it will say once every record that it is for has been told of it."""
    updated_at: int = 0
    selection: Selection | None = None
    """Only for records that it selects: the rule that the memory domain's policy becomes."""

    @property
    def is_wide(self) -> bool:
        """Whether it is for everything of its kind in the tenant."""
        return self.selection is None and not self.scope

    @property
    def is_spent(self) -> bool:
        """Whether it says nothing, and is not about to."""
        return self.terms == Terms() and self.pending is None

    @property
    def specificity(self) -> tuple[bool, ...]:
        """Compared, the most specific rule is the greatest: a memory, a session, an agent, a user, a tenant; for the
        same of them, one that names its kind.
        """
        parts = (self.memory_id, self.session_id, self.agent_id, self.user_id)
        return (*(part is not None for part in parts), self.kind != EVERY)

    @property
    def level(self) -> str:
        """What it is for, as one word."""
        names = ("memory", "session", "agent", "user")
        if self.selection is not None:
            return "domain"
        return next((name for name in names if f"{name}_id" in self.scope), "tenant")

    @property
    def scope(self) -> dict[str, str]:
        """The parts of its scope that it names."""
        parts = ("user_id", "agent_id", "session_id", "memory_id")
        return {part: getattr(self, part) for part in parts if getattr(self, part) is not None}

    @property
    def name(self) -> str:
        """The rule and its version as a reason names it; whose it is stays unsaid."""
        if self.selection is not None:
            return f"the memory domain's policy, version {self.version}"
        if self.id == _TTL:
            return "its own time to live"
        what = "every kind" if self.kind == EVERY else self.kind
        return f"the {self.level}'s rule for {what}, version {self.version}"

    def governs(self, kind: str) -> bool:
        """Whether it is for a kind."""
        return self.kind == kind or (self.kind == EVERY and kind in _EVERY)

    def selects(
        self, user_id: str, agent_id: str, session_id: str | None, memory_id: str | None, labels: Labels | None = None
    ) -> bool:
        """Whether something of this scope, with these labels, is the rule's."""
        if self.selection is not None and (labels is None or not self.selection.selects(session_id, labels)):
            return False
        return (
            self.user_id in (None, user_id)
            and self.agent_id in (None, agent_id)
            and self.session_id in (None, session_id)
            and self.memory_id in (None, memory_id)
        )


#: Stands for the rule that a record is to itself.
_TTL: Final = "ttl"


def ttl_rule(kind: str, ttl: int) -> Rule:
    """The time that a record has to live by its own wish, as a rule for that record alone."""
    return Rule(_TTL, "", kind, Terms(delete_after=ttl), memory_id="", version=1)


def dump_defaults() -> str:
    """The defaults of this version of Holdfast, as a book keeps them."""
    return to_json({kind: list(terms) for kind, terms in sorted(DEFAULTS.items())})


def load_defaults(text: str) -> Mapping[str, Terms]:
    """The defaults that a book keeps; of a kind that it does not know, those of this version."""
    return {**DEFAULTS, **{kind: Terms(*terms) for kind, terms in json.loads(text).items()}}


def resolve(kind: str, rules: Iterable[Rule], defaults: Mapping[str, Terms] | None = None) -> Life:
    """What rules that all apply come to: of those that remove, and of those that archive, the most specific one
    decides (the earliest among equals); of those that keep, the longest. A domain's policy only ever removes sooner:
    where no rule says more, the default goes on beside it. ``defaults`` are the book's; without one, this version's.
    """
    found = [rule for rule in rules if rule.version and rule.governs(kind)]
    default = (DEFAULTS if defaults is None else defaults)[kind]
    archive, archive_by = _choose(found, "archive_after", default, kind)
    delete, delete_by = _choose(found, "delete_after", default, kind)
    kept = [(rule.terms.keep_for, rule.name) for rule in found if rule.terms.keep_for is not None]
    if default.keep_for is not None and not _has_removal(found, kind):
        kept.append((default.keep_for, _default_name(kind)))
    keep, keep_by = max(kept, default=(None, None))
    if delete is not None and keep is not None and keep > delete:
        delete, delete_by = (None if keep >= FOREVER else keep), str(keep_by)
    if kind in TYPES and TYPES[MemoryType(kind)].archive is None:
        archive = None  # a rule for every kind, and a kind that has no archive
    versions, _ = _choose(found, "versions", default, kind)
    versions_for, versions_by = _choose(found, "versions_for", default, kind)
    return Life(archive, delete, keep, archive_by, delete_by, keep_by, versions, versions_for, versions_by)


def _has_removal(rules: Sequence[Rule], kind: str) -> bool:
    """Whether a rule that names a kind says when it is removed."""
    return any(rule.kind == kind and rule.terms.delete_after is not None for rule in rules)


def _choose(rules: Sequence[Rule], field: str, default: Terms, kind: str) -> tuple[int | None, str]:
    said = [(rule, value) for rule in rules if (value := getattr(rule.terms, field)) is not None]
    usual = getattr(default, field)
    if not said:
        return (None if usual is None or usual >= FOREVER else usual), _default_name(kind)
    first = max((rule for rule, _ in said), key=lambda rule: rule.specificity)
    equals = [(r, v) for r, v in said if r.specificity == first.specificity or (r.selection and not first.scope)]
    rule, value = min(equals, key=lambda pair: pair[1])
    if usual is not None and usual <= value and all(other.selection is not None for other, _ in said):
        return (None if usual >= FOREVER else usual), _default_name(kind)
    return (None if value >= FOREVER else value), rule.name


def _default_name(kind: str) -> str:
    return f"the default for {kind}"


def check_terms(kind: str, terms: Terms) -> Terms:
    """``terms`` themselves, if a rule for a kind can say that; ``InvalidRuleError`` for one that is empty, or
    contradicts itself.
    """
    check_ruled(kind)
    if terms == Terms():
        raise InvalidRuleError(
            "the rule says nothing: give it a time to archive after, to delete after, or to keep for, or how many "
            "versions to keep"
        )
    if kind in (MemoryType.SHORT_TERM, HISTORY, AUDIT) and terms != Terms(delete_after=terms.delete_after):
        raise InvalidRuleError(f"{kind} can only be given a time to be deleted after")
    if kind == MemoryType.SHORT_TERM and (terms.delete_after or 0) >= FOREVER:
        raise InvalidRuleError("short_term memory always ends; give it a time, or use another kind of memory")
    if terms.archive_after is not None and kind in TYPES and TYPES[MemoryType(kind)].archive is None:
        raise InvalidRuleError(f"{kind} memory has no archive; leave archive_after_days out")
    archive, delete, keep = terms[:3]
    if archive is not None and delete is not None and delete <= archive < FOREVER:
        raise InvalidRuleError(
            f"the rule contradicts itself: it archives after {describe_duration(archive)}, but deletes after "
            f"{describe_duration(delete)}"
        )
    if keep is not None and delete is not None and delete < keep:
        raise InvalidRuleError(
            f"the rule contradicts itself: it keeps {'' if keep >= FOREVER else 'for '}{describe_duration(keep)}, "
            f"but deletes after {describe_duration(delete)}"
        )
    if kind == MemoryType.PERSONA and delete is None and keep is not None and keep < FOREVER:
        raise InvalidRuleError(
            f"persona memory is kept for ever until a rule says when it is removed, so that to keep it for "
            f'{describe_duration(keep)} changes nothing; give delete_after_days ("never" is one) with keep_days'
        )
    return terms


def check_ruled(kind: object) -> str:
    """``kind`` itself, if rules can be made for it."""
    known = [EVERY, *DEFAULTS]
    if not isinstance(kind, str) or kind not in known:
        raise InvalidRuleError(f"there are no rules for {quote(kind)}; use one of: {', '.join(known)}")
    if kind == MemoryType.WORKING:
        raise InvalidRuleError("working memory ends with its task; no rule changes that")
    return str(kind)


def days(value: object, what: str) -> int:
    """A number of days as a duration; ``"never"`` (to keep: ``"forever"``) is one too."""
    endless = "forever" if "keep" in what or "versions" in what else "never"
    if value == endless:
        return FOREVER
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-5 <= value <= 365_000:
        raise InvalidRuleError(
            f'must be a number of days above 0 (at most 365,000), or "{endless}", not {quote(value)}', about=what
        )
    return round(value * DAY)


def terms_to_dict(terms: Terms) -> dict[str, Any]:
    """Terms as callers gave them: days, or "never"; what they say nothing about is left out."""
    named = {"archive_after_days": terms.archive_after, "delete_after_days": terms.delete_after}
    shown = {name: _in_days(value, "never") for name, value in named.items() if value is not None}
    kept = {"keep_days": terms.keep_for, "versions_days": terms.versions_for}
    shown |= {name: _in_days(value, "forever") for name, value in kept.items() if value is not None}
    return shown if terms.versions is None else {**shown, "versions": terms.versions}


def check_versions(value: object) -> int:
    """How many ended versions a rule keeps."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_VERSIONS:
        raise InvalidRuleError(
            f"must be a whole number from 0 to {MOST_VERSIONS:,}, not {quote(value)}", about="versions"
        )
    return value


def _in_days(duration: int, endless: str) -> float | str:
    if duration >= FOREVER:
        return endless
    return duration // DAY if duration % DAY == 0 else duration / DAY
