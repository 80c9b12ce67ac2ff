"""``holdfast.policies``: how long things live, and for whom. A change can be looked at before it is made."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack, cast

from holdfast.core.audit import Action, Event, acting_as, check_author
from holdfast.core.decisions import Life
from holdfast.core.errors import ConfirmationNeededError, InvalidInputError, InvalidRuleError, NotFoundError, quote
from holdfast.core.records import AUDIT, TYPES, MemoryType, Scope, Subject, Terms, Usage, kind_of
from holdfast.core.rules import (
    EVERY,
    EpisodicRetentionPolicy,
    Rule,
    check_ruled,
    check_terms,
    check_versions,
    days,
    terms_to_dict,
)
from holdfast.core.values import check_id, is_id
from holdfast.lifecycle.previews import Preview, preview_rules, rule_to_dict
from holdfast.ports.coordination import begin_steps, join_rest
from holdfast.ports.records import NO_LIMIT
from holdfast.ports.stores import Tenant
from holdfast.results.lifecycle import PolicyResult, QuotaLimitsResult, RuleChangeResult, RuleResult

Progress = Callable[[int], None]


class RuleScope(TypedDict, total=False):
    """Whom and what a rule is for; without any of it, the whole tenant."""

    user_id: str | None
    agent_id: str | None
    session_id: str | None
    memory_id: str | None


class RuleFields(RuleScope, total=False):
    """What a rule says, and for whom: days, or ``"never"`` (to keep: ``"forever"``)."""

    archive_after_days: float | str | None
    delete_after_days: float | str | None
    keep_days: float | str | None
    versions: int | None
    versions_days: float | str | None


SCOPE: Final = tuple(RuleScope.__annotations__)
TIMES: Final = tuple(name for name in RuleFields.__annotations__ if name not in SCOPE)
_KNOBS: Final = tuple(EpisodicRetentionPolicy.__dataclass_fields__)


def read_policies(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The rules in a file as ``Policies.set_all`` takes them, and whether they are to be the only ones."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidRuleError(f"cannot read {path}: {problem}") from problem
    except tomllib.TOMLDecodeError as problem:
        raise InvalidRuleError(f"{path} is not valid TOML: {problem}") from problem
    policies = document.pop("policy", None)
    exclusive = document.pop("exclusive", False)
    if not isinstance(exclusive, bool):
        raise InvalidRuleError(f"{path}: exclusive must be true or false, not {quote(exclusive)}")
    if document:
        raise InvalidRuleError(f"{path} has unknown parts {sorted(document)}; it holds [[policy]] tables and exclusive")
    if not isinstance(policies, list) or not policies or not all(isinstance(policy, dict) for policy in policies):
        raise InvalidRuleError(f"{path} has no [[policy]] table; write one for each rule")
    return [_with_terms(policy, f"{path}, policy {place}") for place, policy in enumerate(policies, 1)], exclusive


def _with_terms(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A policy in which times stand for the settings of an episodic one."""
    policy = dict(given)
    knobs = {name: policy.pop(name) for name in _KNOBS if name in policy}
    if not knobs:
        return policy
    if policy.get("memory_type", "episodic") != "episodic" or any(name in policy for name in TIMES):
        raise InvalidRuleError(f"{where}: {', '.join(knobs)} are for episodic memory, without other times")
    return {"memory_type": "episodic", **policy, **terms_to_dict(EpisodicRetentionPolicy(**knobs).terms())}


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Rules that are to change as one, and what all of that comes to."""

    changes: tuple[dict[str, Any], ...]
    """Each rule, with an ``action``: ``set``, ``keep`` (it says so already) or ``remove``."""
    preview: Preview

    def to_dict(self) -> dict[str, Any]:
        """The change set as callers of a service see it."""
        return {"changes": list(self.changes), "shortens": self.preview.shortens, **self.preview.effect}


@dataclass(eq=False, repr=False)
class Policies:
    """The rules of one tenant."""

    tenant: Tenant

    # --- looking ------------------------------------------------------------------------------------------------------

    def list(self) -> list[RuleResult]:
        """Every rule in force, the defaults first, then from the widest to the most specific."""
        defaults = [
            {"rule_id": None, "memory_type": kind, "level": "default", **terms_to_dict(terms), "version": 0}
            for kind, terms in self.tenant.rules.defaults(self.tenant.name).items()
        ]
        rules = [rule for rule in self.tenant.rules.rules(self.tenant.name) if rule.terms != Terms()]
        found = defaults + [rule_to_dict(rule) for rule in sorted(rules, key=lambda rule: rule.specificity)]
        return cast("list[RuleResult]", found)

    def get(self, memory_type: MemoryType | str, **scope: Unpack[RuleScope]) -> PolicyResult:
        """How long a kind lives for a user, an agent and a session, and which rules say so."""
        kind = check_ruled(memory_type)
        if kind == EVERY:
            raise InvalidRuleError("say which kind: a rule for every kind comes to something else for each of them")
        whom = _check_scope(scope)
        asked = Scope(self.tenant.name, whom.get("user_id", ""), whom.get("agent_id", ""), whom.get("session_id"))
        life = life_to_dict(self.tenant.rules.life(kind, asked, whom.get("memory_id")))
        return cast("PolicyResult", {"memory_type": kind, **life})

    # --- changing -----------------------------------------------------------------------------------------------------

    def preview(self, memory_type: MemoryType | str, **rule: Unpack[RuleFields]) -> Preview:
        """What ``set`` with the same arguments would come to. Changes nothing."""
        return preview_rules(self.tenant, [self._check_memory(self._wanted(memory_type, rule))])

    def preview_removal(self, memory_type: MemoryType | str, **scope: Unpack[RuleScope]) -> Preview:
        """What ``remove`` with the same arguments would come to. Changes nothing."""
        return preview_rules(self.tenant, [self._rule(check_ruled(memory_type), scope, Terms())])

    def set(
        self,
        memory_type: MemoryType | str,
        *,
        confirm: bool = False,
        author: str | None = None,
        progress: Progress = lambda _count: None,
        **rule: Unpack[RuleFields],
    ) -> RuleChangeResult:
        """Set a rule, in place of the one for the same kind and scope; without a scope, for the whole tenant.

        Times are days, or ``"never"``. One that makes anything go earlier than now raises ``ConfirmationNeededError``,
        which says how much that is, unless it is confirmed. It takes effect for all records at once.
        """
        wanted = self._check_memory(self._wanted(memory_type, rule))
        return self._put(wanted, confirm=confirm, author=author, progress=progress)

    def preview_all(self, rules: Sequence[Mapping[str, Any]], *, exclusive: bool = False) -> ChangeSet:
        """What ``set_all`` with the same arguments would change, and come to. Changes nothing."""
        return self._compare(rules, exclusive=exclusive)[0]

    def set_all(
        self,
        rules: Sequence[Mapping[str, Any]],
        *,
        exclusive: bool = False,
        confirm: bool = False,
        author: str | None = None,
        progress: Progress = lambda _count: None,
    ) -> ChangeSet:
        """Set several rules as one, each by the arguments of ``set``: all of them take effect in the same instant, or
        (where one is wrong, or together they shorten retention unconfirmed) none. With ``exclusive``, every other rule
        is taken away in that instant, too.
        """
        found, changed = self._compare(rules, exclusive=exclusive)
        check_confirmed("the rules shorten", found.preview, confirm=confirm)
        with acting_as(check_author(author)):
            self._take_effect(self.tenant.rules.propose(changed, now=self.tenant.now()), progress)
        return found

    def set_episodic(
        self,
        agent_id: str,
        policy: EpisodicRetentionPolicy,
        *,
        confirm: bool = False,
        author: str | None = None,
        progress: Progress = lambda _count: None,
    ) -> RuleChangeResult:
        """Set how long an agent keeps its episodes."""
        if not isinstance(policy, EpisodicRetentionPolicy):
            raise InvalidRuleError(f"policy must be an EpisodicRetentionPolicy, not {quote(policy)}")
        rule = self._rule(MemoryType.EPISODIC.value, {"agent_id": agent_id}, policy.terms())
        return self._put(rule, confirm=confirm, author=author, progress=progress)

    def remove(
        self,
        memory_type: MemoryType | str,
        *,
        confirm: bool = False,
        author: str | None = None,
        **scope: Unpack[RuleScope],
    ) -> RuleChangeResult:
        """Take a rule away: what it said is again said by wider rules, or by the defaults."""
        rule = self._rule(check_ruled(memory_type), scope, Terms())
        if _whose(rule) not in self._in_force():
            raise NotFoundError(f"there is no rule of its own for {_describe_scope(rule)}")
        return self._put(rule, confirm=confirm, author=author, progress=lambda _count: None)

    def finish(self) -> int:
        """Let changes of rules that were cut short take effect, all at once; how many there were.

        A domain's rule follows its policy, which may be another by now.
        """
        pending = [rule for rule in self._in_force().values() if rule.pending is not None]
        self._take_effect(pending, lambda _count: None)
        return len(pending)

    def _put(self, rule: Rule, *, confirm: bool, author: str | None, progress: Progress) -> RuleChangeResult:
        preview = preview_rules(self.tenant, [rule])
        check_confirmed("the rule shortens", preview, confirm=confirm)
        before = self._in_force().get(_whose(rule))
        begin_steps()
        with acting_as(check_author(author)):
            (settled,) = self._take_effect(self.tenant.rules.propose([rule], now=self.tenant.now()), progress)
        was = None if before is None else rule_to_dict(before)
        return cast("RuleChangeResult", {**rule_to_dict(settled), **preview.effect, "before": was})

    def _take_effect(self, rules: Sequence[Rule], progress: Progress) -> Sequence[Rule]:
        """Let every record know the rules that were proposed for it, then settle them in one instant."""
        for rule in rules:
            for count in self.tenant.rules.assign(rule):
                progress(count)
        join_rest()  # cut short before this, it takes effect when it is asked for again
        now = self.tenant.now()
        return self.tenant.rules.settle([(rule, _event(rule, now)) for rule in rules], now=now)

    # --- within -------------------------------------------------------------------------------------------------------

    def _wanted(self, memory_type: MemoryType | str, fields: Mapping[str, Any]) -> Rule:
        kind = check_ruled(memory_type)
        given = {name: fields[name] for name in TIMES if fields.get(name) is not None}
        times = {n: check_versions(value) if n == "versions" else days(value, n) for n, value in given.items()}
        scope = {name: value for name, value in fields.items() if name not in TIMES}
        return self._rule(kind, scope, check_terms(kind, Terms(*(times.get(name) for name in TIMES))))

    def _rule(self, kind: str, scope: Mapping[str, Any], terms: Terms) -> Rule:
        whom = _check_scope(scope)
        if "memory_id" in whom and not is_id(whom["memory_id"]):
            raise InvalidRuleError(f"memory_id {whom['memory_id']!r} is not the id of a memory")
        if kind == AUDIT and whom:
            raise InvalidRuleError("the audit chain is the whole tenant's; leave user, agent and session out")
        rule_id = self.tenant.new_id(self.tenant.now())
        return Rule(rule_id, self.tenant.name, kind, Terms(), **whom, pending=terms)

    def _check_memory(self, rule: Rule) -> Rule:
        """The rule itself, unless it is for one memory that nobody knows: it would rule nothing."""
        if rule.memory_id is not None:
            self.tenant.check_known(rule.user_id or "", rule.memory_id)
        return rule

    def _in_force(self) -> dict[tuple[Any, ...], Rule]:
        """The rules that say something, or are about to, by whom they are for."""
        rules = self.tenant.rules.rules(self.tenant.name)
        return {_whose(rule): rule for rule in rules if rule.selection is None and not rule.is_spent}

    def _compare(self, rules: Sequence[Mapping[str, Any]], *, exclusive: bool) -> tuple[ChangeSet, Sequence[Rule]]:
        """What setting rules would change, and the rules to be proposed for that. Every one is checked; the first that
        is wrong is an error.
        """
        others = self._in_force()
        changes: list[dict[str, Any]] = []
        changed: list[Rule] = []
        seen: dict[tuple[Any, ...], int] = {}
        for place, given in enumerate(rules, 1):
            rule = self._given(given, place)
            if (first := seen.setdefault(_whose(rule), place)) != place:
                raise InvalidRuleError(f"rules {first} and {place} are both for {_describe_scope(rule)}; keep one")
            known = others.pop(_whose(rule), None)
            is_kept = known is not None and (known.terms, known.pending) == (rule.pending, None)
            changes.append({"action": "keep" if is_kept else "set", **given})
            changed += [] if is_kept else [self._check_memory(rule)]
        for rule in others.values() if exclusive else ():
            changes.append({"action": "remove", "memory_type": rule.kind, **rule.scope})
            changed.append(replace(rule, pending=Terms()))
        return ChangeSet(tuple(changes), preview_rules(self.tenant, changed)), changed

    def _given(self, given: Mapping[str, Any], place: int) -> Rule:
        if not isinstance(given, Mapping):
            raise InvalidRuleError(f"rule {place} must be an object with fields of a rule, not {quote(given)}")
        try:
            return self._wanted(given.get("memory_type", ""), {n: given[n] for n in given if n != "memory_type"})
        except InvalidInputError as problem:
            raise InvalidRuleError(f"rule {place}: {problem}", needs=problem.needs) from problem


def _check_scope(scope: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a scope that are given."""
    if unknown := sorted(set(scope) - set(SCOPE)):
        raise InvalidRuleError(f"a rule has no {', '.join(unknown)}; known are: {', '.join((*SCOPE, *TIMES))}")
    whom = {part: check_id(scope[part], part) for part in SCOPE if scope.get(part) is not None}
    if "memory_id" in whom and "user_id" not in whom:
        raise InvalidRuleError("a rule for one memory names its user too", needs=("user_id", "memory_id"))
    return whom


def check_confirmed(what: str, preview: Preview, *, confirm: bool) -> None:
    """``ConfirmationNeededError`` if a change shortens retention, and nobody has confirmed it."""
    if preview.shortens and not confirm:
        raise ConfirmationNeededError(
            f"{what} retention: {preview.describe()}; nothing was changed; look at a preview first", needs=("confirm",)
        )


def _whose(rule: Rule) -> tuple[Any, ...]:
    return rule.kind, tuple(rule.scope.items())


def _describe_scope(rule: Rule) -> str:
    return f"{rule.kind} of {rule.scope or 'the tenant'}"


def _event(rule: Rule, now: int) -> Event:
    """What the audit chain says of a change: not whose memory it is about, which is the chain's own secret."""
    detail = {
        "kind": rule.kind,
        "level": rule.level,
        **{part: value for part, value in rule.scope.items() if part != "user_id"},
        "from": terms_to_dict(rule.terms),
        "to": terms_to_dict(rule.pending or Terms()),
    }
    return Event(now, Action.RULE_CHANGED, None, detail)


def life_to_dict(life: Life) -> dict[str, Any]:
    """What rules come to, as callers see it: days, or ``None`` for never; kept for ever is ``"forever"``."""
    days_of = terms_to_dict(Terms(*life.stored))
    return {
        "archive_after_days": days_of.get("archive_after_days"),
        "archive_by": life.archive_by,
        "delete_after_days": days_of.get("delete_after_days"),
        "delete_by": life.delete_by,
        "keep_days": days_of.get("keep_days"),
        "keep_by": life.keep_by,
        "versions": life.versions,
        "versions_days": days_of.get("versions_days"),
        "versions_by": life.versions_by,
    }


@dataclass(eq=False, repr=False)
class Quotas:
    """``holdfast.quotas``: how much of a kind a user may hold."""

    tenant: Tenant

    def set(
        self,
        kind: MemoryType | str,
        max_memories: float | str | None = None,
        max_bytes: float | str | None = None,
        user_id: str | None = None,
    ) -> QuotaLimitsResult:
        """Set limits for a user, or for everyone who has none of their own; what they were. ``None`` leaves one as it
        is, ``math.inf`` or ``"unlimited"`` takes it away, and with ``"default"`` it is again what it is for everyone,
        or was from the first. A lower limit removes nothing: it stops further writes.
        """
        row = kind_of(kind)
        if not row.durable:
            kinds = ", ".join(kind.name.value for kind in TYPES.values() if kind.durable)
            raise InvalidInputError(
                f"the size of {row.name} memory is fixed: it holds the last {row.max_memories:,} entries of a session, "
                f"of whatever size; kinds that have quotas are: {kinds}"
            )
        given = {"max_memories": max_memories, "max_bytes": max_bytes}
        limits = {name: _limit(name, value) for name, value in given.items() if value is not None}
        if not limits:
            raise InvalidInputError("give max_memories, max_bytes, or both")
        user = None if user_id is None else check_id(user_id, "user_id")
        before = self.tenant.records.set_quota(self.tenant.name, user, row, limits)
        named = {name: _LIMIT_NAMES.get(value, value) for name, value in before.items()}
        return cast("QuotaLimitsResult", named)

    def get(self, kind: MemoryType | str, user_id: str) -> Usage:
        """What a user holds of a kind, and how much they may."""
        row = kind_of(kind)
        if not row.durable:
            raise InvalidInputError(
                f"{row.name} memory is counted where it is used: count_memories({row.name.value!r})"
            )
        return self.tenant.records.usage(Subject.check(self.tenant.name, user_id), row)


#: What a limit is called that is no number of its own.
_LIMIT_NAMES: Final[Mapping[int | None, str]] = {None: "default", NO_LIMIT: "unlimited"}


def _limit(name: str, value: float | str) -> int | None:
    known = {called: stored for stored, called in _LIMIT_NAMES.items()}
    if value == math.inf or value in known:
        return known["unlimited" if value == math.inf else str(value)]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInputError(
            f"must be a whole number from 0 to {2**63 - 1}, infinite for no limit, or 'default', not {quote(value)}",
            about=name,
        )
    return value
