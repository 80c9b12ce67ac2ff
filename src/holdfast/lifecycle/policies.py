"""``holdfast.policies``: how long things live, and for whom. A change can be looked at before it is made."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from holdfast.core.audit import Action, Event, acting_as, check_author
from holdfast.core.decisions import Life
from holdfast.core.errors import ConfirmationNeededError, InvalidRuleError, NotFoundError, quote
from holdfast.core.records import AUDIT, MemoryType, Scope, Terms
from holdfast.core.rules import EVERY, EpisodicRetentionPolicy, Rule, check_ruled, check_terms, days, terms_to_dict
from holdfast.core.values import check_id, is_id
from holdfast.lifecycle.previews import Preview, Previews, rule_to_dict
from holdfast.ports.coordination import begin_steps, join_rest
from holdfast.ports.rules import RuleStore
from holdfast.results import PolicyResult, RuleResult

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
    read = [_policy(policy, f"{path}, policy {place}") for place, policy in enumerate(policies, 1)]
    seen: dict[tuple[Any, ...], int] = {}
    for place, policy in enumerate(read, 1):
        first = seen.setdefault(_scope_key(policy), place)
        if first != place:
            raise InvalidRuleError(f"{path}: policies {first} and {place} are for the same kind and scope; keep one")
    return read, exclusive


def _policy(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    policy = dict(given)
    knobs = {name: policy.pop(name) for name in _KNOBS if name in policy}
    if knobs:
        if policy.get("memory_type", "episodic") != "episodic" or any(name in policy for name in TIMES):
            raise InvalidRuleError(f"{where}: {', '.join(knobs)} are for episodic memory, without other times")
        policy = {"memory_type": "episodic", **policy, **terms_to_dict(EpisodicRetentionPolicy(**knobs).terms())}
    if unknown := sorted(set(policy) - set(_FIELDS)):
        raise InvalidRuleError(f"{where} has unknown fields {unknown}; known are: {', '.join((*_FIELDS, *_KNOBS))}")
    if "memory_type" not in policy:
        raise InvalidRuleError(f"{where} has no memory_type: {quote(dict(given))}")
    for name in ("memory_type", *SCOPE):
        if name in policy and not isinstance(policy[name], str):
            raise InvalidRuleError(
                f"{where}: {name} must be a text, not {quote(policy[name])}; write a policy for each"
            )
    return policy


def _scope_key(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return (rule["memory_type"], *(rule.get(part) for part in SCOPE))


Progress = Callable[[int], None]
SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id")
TIMES: Final = ("archive_after_days", "delete_after_days", "keep_days")
_FIELDS: Final = ("memory_type", *SCOPE, *TIMES)


@dataclass(frozen=True, slots=True)
class Change:
    """One rule that is to be set, or taken away."""

    action: str
    """``set``, ``keep`` (it says so already) or ``remove``."""
    rule: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Rules that are to change as one, and what all of that comes to."""

    changes: tuple[Change, ...]
    preview: Preview

    def to_dict(self) -> dict[str, Any]:
        """The change set as callers of a service see it."""
        return {
            "changes": [{"action": change.action, **change.rule} for change in self.changes],
            "shortens": self.preview.shortens,
            "newly_due": self.preview.newly_due,
            "bytes": self.preview.bytes,
            "held": self.preview.held,
        }


@dataclass(eq=False, repr=False)
class Policies:
    """The rules of one tenant."""

    rules: RuleStore
    previews: Previews
    tenant: str
    now: Callable[[], int]
    new_id: Callable[[int], str]

    # --- looking ------------------------------------------------------------------------------------------------------

    def list(self) -> list[RuleResult]:
        """Every rule in force, the defaults first, then from the widest to the most specific."""
        defaults = [
            {"rule_id": None, "memory_type": kind, "level": "default", **terms_to_dict(terms), "version": 0}
            for kind, terms in self.rules.defaults(self.tenant).items()
        ]
        rules = [rule for rule in self.rules.rules(self.tenant) if rule.terms != Terms()]
        found = defaults + [rule_to_dict(rule) for rule in sorted(rules, key=lambda rule: rule.specificity)]
        return cast("list[RuleResult]", found)

    def get(
        self,
        memory_type: MemoryType | str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
    ) -> PolicyResult:
        """How long a kind lives for a user, an agent and a session, and which rules say so."""
        kind = check_ruled(memory_type)
        if kind == EVERY:
            raise InvalidRuleError("say which kind: a rule for every kind comes to something else for each of them")
        if memory_id is not None and user_id is None:
            raise InvalidRuleError("the rules of one memory are its user's too", needs=("user_id", "memory_id"))
        given = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id}
        whom = {part: check_id(value, part) for part, value in given.items() if value is not None}
        asked = Scope(self.tenant, whom.get("user_id", ""), whom.get("agent_id", ""), whom.get("session_id"))
        life = life_to_dict(self.rules.life(kind, asked, whom.get("memory_id")))
        return cast("PolicyResult", {"memory_type": kind, **life})

    # --- changing -----------------------------------------------------------------------------------------------------

    def preview(
        self,
        memory_type: MemoryType | str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
        archive_after_days: float | str | None = None,
        delete_after_days: float | str | None = None,
        keep_days: float | str | None = None,
    ) -> Preview:
        """What ``set`` with the same arguments would come to. Changes nothing."""
        scope = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id}
        times = (archive_after_days, delete_after_days, keep_days)
        return self.previews.of([self._wanted(memory_type, scope, times)])

    def preview_removal(
        self,
        memory_type: MemoryType | str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
    ) -> Preview:
        """What ``remove`` with the same arguments would come to. Changes nothing."""
        scope = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id}
        return self.previews.of([self._rule(check_ruled(memory_type), scope, Terms())])

    def set(
        self,
        memory_type: MemoryType | str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
        archive_after_days: float | str | None = None,
        delete_after_days: float | str | None = None,
        keep_days: float | str | None = None,
        confirm: bool = False,
        author: str | None = None,
        progress: Progress = lambda _count: None,
    ) -> dict[str, Any]:
        """Set a rule, in place of the one for the same kind and scope; without a scope, for the whole tenant.

        Times are days, or ``"never"``. One that makes anything go earlier than now raises ``ConfirmationNeededError``,
        which says how much that is, unless it is confirmed. It takes effect for all records at once.
        """
        scope = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id}
        times = (archive_after_days, delete_after_days, keep_days)
        wanted = self._wanted(memory_type, scope, times)
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
        if found.preview.shortens and not confirm:
            raise ConfirmationNeededError(
                f"the rules shorten retention: {found.preview.describe()}; nothing was changed; preview them first",
                needs=("confirm",),
            )
        with acting_as(check_author(author)):
            self._take_effect(self.rules.propose(changed, now=self.now()), progress)
        return found

    def set_episodic(
        self,
        agent_id: str,
        policy: EpisodicRetentionPolicy,
        *,
        confirm: bool = False,
        author: str | None = None,
        progress: Progress = lambda _count: None,
    ) -> dict[str, Any]:
        """Set how long an agent keeps its episodes."""
        if not isinstance(policy, EpisodicRetentionPolicy):
            raise InvalidRuleError(f"policy must be an EpisodicRetentionPolicy, not {quote(policy)}")
        rule = self._rule(MemoryType.EPISODIC.value, {"agent_id": agent_id}, policy.terms())
        return self._put(rule, confirm=confirm, author=author, progress=progress)

    def remove(
        self,
        memory_type: MemoryType | str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
        confirm: bool = False,
        author: str | None = None,
    ) -> dict[str, Any]:
        """Take a rule away: what it said is again said by wider rules, or by the defaults."""
        scope = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id}
        rule = self._rule(check_ruled(memory_type), scope, Terms())
        if _whose(rule) not in self._standing():
            raise NotFoundError(f"there is no rule of its own for {_describe_scope(rule)}")
        return self._put(rule, confirm=confirm, author=author, progress=lambda _count: None)

    def finish(self) -> int:
        """Let changes of rules that were cut short take effect, all at once; how many there were.

        A domain's rule follows its policy, which may be another by now.
        """
        pending = [rule for rule in self._standing().values() if rule.pending is not None]
        self._take_effect(pending, lambda _count: None)
        return len(pending)

    def _put(self, rule: Rule, *, confirm: bool, author: str | None, progress: Progress) -> dict[str, Any]:
        preview = self.previews.of([rule])
        if preview.shortens and not confirm:
            raise ConfirmationNeededError(
                f"the rule shortens retention: {preview.describe()}; nothing was changed; look at a preview first",
                needs=("confirm",),
            )
        begin_steps()
        with acting_as(check_author(author)):
            (settled,) = self._take_effect(self.rules.propose([rule], now=self.now()), progress)
        return {**rule_to_dict(settled), "newly_due": preview.newly_due, "bytes": preview.bytes, "held": preview.held}

    def _take_effect(self, rules: Sequence[Rule], progress: Progress) -> Sequence[Rule]:
        """Let every record know the rules that were proposed for it, then settle them in one instant."""
        for rule in rules:
            for count in self.rules.assign(rule):
                progress(count)
        join_rest()  # cut short before this, it takes effect when it is asked for again
        now = self.now()
        events = [Event(now, Action.RULE_CHANGED, None, _detail(rule)) for rule in rules]
        return self.rules.settle(list(zip(rules, events, strict=True)), now=now)

    # --- within -------------------------------------------------------------------------------------------------------

    def _wanted(
        self, memory_type: MemoryType | str, scope: Mapping[str, Any], times: Sequence[float | str | None]
    ) -> Rule:
        kind = check_ruled(memory_type)
        given = [None if value is None else days(value, name) for name, value in zip(TIMES, times, strict=True)]
        return self._rule(kind, scope, check_terms(kind, Terms(*given)))

    def _rule(self, kind: str, scope: Mapping[str, Any], terms: Terms) -> Rule:
        whom = {part: check_id(scope[part], part) for part in SCOPE if scope.get(part) is not None}
        if "memory_id" in whom and not is_id(whom["memory_id"]):
            raise InvalidRuleError(f"memory_id {whom['memory_id']!r} is not the id of a memory")
        if "memory_id" in whom and "user_id" not in whom:
            raise InvalidRuleError("a rule for one memory names its user too", needs=("user_id", "memory_id"))
        if kind == AUDIT and whom:
            raise InvalidRuleError("the audit chain is the whole tenant's; leave user, agent and session out")
        now = self.now()
        return Rule(
            self.new_id(now),
            self.tenant,
            kind,
            Terms(),
            user_id=whom.get("user_id"),
            agent_id=whom.get("agent_id"),
            session_id=whom.get("session_id"),
            memory_id=whom.get("memory_id"),
            pending=terms,
        )

    def _standing(self) -> dict[tuple[Any, ...], Rule]:
        """The rules that say something, or are about to, by whom they are for."""
        rules = self.rules.rules(self.tenant)
        return {_whose(rule): rule for rule in rules if rule.selection is None and not rule.is_spent}

    def _compare(self, rules: Sequence[Mapping[str, Any]], *, exclusive: bool) -> tuple[ChangeSet, Sequence[Rule]]:
        """What setting rules would change, and the rules to be proposed for that. Every one is checked; the first that
        is wrong is an error.
        """
        standing = self._standing()
        changes: list[Change] = []
        changed: list[Rule] = []
        seen: set[tuple[Any, ...]] = set()
        for given in rules:
            rule = self._given(given)
            if _whose(rule) in seen:
                raise InvalidRuleError(f"two of the rules are for {_describe_scope(rule)}; keep one")
            seen.add(_whose(rule))
            known = standing.pop(_whose(rule), None)
            if known is not None and (known.terms, known.pending) == (rule.pending, None):
                changes.append(Change("keep", dict(given)))
            else:
                changes.append(Change("set", dict(given)))
                changed.append(rule)
        for rule in standing.values() if exclusive else ():
            changes.append(Change("remove", {"memory_type": rule.kind, **rule.scope}))
            changed.append(replace(rule, pending=Terms()))
        return ChangeSet(tuple(changes), self.previews.of(changed)), changed

    def _given(self, given: Mapping[str, Any]) -> Rule:
        fields = ("memory_type", *SCOPE, *TIMES)
        if not isinstance(given, Mapping) or not set(given) <= set(fields):
            raise InvalidRuleError(f"{quote(given)} is no rule; known fields are: {', '.join(fields)}")
        return self._wanted(given.get("memory_type", ""), given, [given.get(name) for name in TIMES])


def _whose(rule: Rule) -> tuple[Any, ...]:
    return rule.kind, tuple(rule.scope.items())


def _describe_scope(rule: Rule) -> str:
    return f"{rule.kind} of {rule.scope or 'the tenant'}"


def _detail(rule: Rule) -> dict[str, Any]:
    """What the audit chain says of a change: not whose memory it is about, which is the chain's own secret."""
    return {
        "kind": rule.kind,
        "level": rule.level,
        **{part: value for part, value in rule.scope.items() if part != "user_id"},
        "from": terms_to_dict(rule.terms),
        "to": terms_to_dict(rule.pending or Terms()),
    }


def life_to_dict(life: Life) -> dict[str, Any]:
    """What rules come to, as callers see it: days, or ``None`` for never; kept for ever is ``"forever"``."""
    keep = Terms(keep_for=life.keep_for)
    return {
        "archive_after_days": terms_to_dict(Terms(archive_after=life.archive_after)).get("archive_after_days"),
        "archive_by": life.archive_by,
        "delete_after_days": terms_to_dict(Terms(delete_after=life.delete_after)).get("delete_after_days"),
        "delete_by": life.delete_by,
        "keep_days": terms_to_dict(keep).get("keep_days"),
        "keep_by": life.keep_by,
    }
