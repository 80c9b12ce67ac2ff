"""``retain.policies``: how long things live, and for whom. A change can be looked at before it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retain.core.chain import Event
from retain.core.content import check_id
from retain.core.decisions import Window, windows
from retain.core.errors import ConfirmationNeededError, InvalidRuleError, NotFoundError, told
from retain.core.ids import is_id
from retain.core.records import Scope
from retain.core.rules import (
    AUDIT,
    DEFAULTS,
    EVERY,
    EpisodicRetentionPolicy,
    Life,
    Rule,
    Terms,
    check_ruled,
    check_terms,
    days,
    resolve,
    shown_terms,
)
from retain.core.times import iso
from retain.core.types import MemoryType, State
from retain.lifecycle.plan import ACTIONS
from retain.ports import DueStore, Profile, RuleStore

Progress = Callable[[int], None]
_PARTS = ("user_id", "agent_id", "session_id", "memory_id")


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change of a rule would come to."""

    rule: dict[str, Any]
    shortens: bool
    """Something would be archived or removed earlier than it is now."""
    newly_due: dict[str, int]
    """How many records it makes due at once, by action."""
    bytes: int

    def told(self) -> str:
        """In words."""
        due = ", ".join(f"{count:,} to {action}" for action, count in self.newly_due.items() if count)
        return f"it makes {due} due at once ({self.bytes:,} bytes)" if due else "it makes nothing due at once"


class Policies:
    """The rules of one tenant."""

    def __init__(
        self,
        rules: RuleStore,
        dues: DueStore,
        tenant: str,
        now: Callable[[], int],
        new_id: Callable[[int], str],
    ) -> None:
        self._rules = rules
        self._dues = dues
        self._tenant = tenant
        self._now = now
        self._new_id = new_id

    # --- looking ------------------------------------------------------------------------------------------------------

    def list(self) -> list[dict[str, Any]]:
        """Every rule in force, the defaults first, then from the widest to the most specific."""
        defaults = [
            {"rule_id": None, "memory_type": kind, "level": "default", **shown_terms(terms), "version": 0}
            for kind, terms in DEFAULTS.items()
        ]
        rules = [rule for rule in self._rules.rules(self._tenant) if rule.terms != Terms()]
        return defaults + [shown_rule(rule) for rule in sorted(rules, key=lambda rule: rule.specificity)]

    def get(
        self,
        memory_type: MemoryType | str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
    ) -> dict[str, Any]:
        """How long a kind lives for a user, an agent and a session, and which rules say so."""
        kind = check_ruled(memory_type)
        if kind == EVERY:
            raise InvalidRuleError("say which kind: a rule for every kind comes to something else for each of them")
        if memory_id is not None and user_id is None:
            raise InvalidRuleError("the rules of one memory are its user's too: give user_id and memory_id")
        given = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id}
        whom = {part: check_id(value, part) for part, value in given.items() if value is not None}
        asked = Scope(self._tenant, whom.get("user_id", ""), whom.get("agent_id", ""), whom.get("session_id"))
        return {"memory_type": kind, **shown_life(self._rules.life(kind, asked, whom.get("memory_id")))}

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
        return self._preview(self._wanted(memory_type, scope, times))

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
        return self._preview(self._rule(check_ruled(memory_type), scope, Terms()))

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
        author: str = "unknown",
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

    def set_episodic(
        self,
        agent_id: str,
        policy: EpisodicRetentionPolicy,
        *,
        confirm: bool = False,
        author: str = "unknown",
        progress: Progress = lambda _count: None,
    ) -> dict[str, Any]:
        """Set how long an agent keeps its episodes."""
        if not isinstance(policy, EpisodicRetentionPolicy):
            raise InvalidRuleError(f"policy must be an EpisodicRetentionPolicy, not {told(policy)}")
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
        author: str = "unknown",
    ) -> dict[str, Any]:
        """Take a rule away: what it said is again said by wider rules, or by the defaults."""
        scope = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id}
        rule = self._rule(check_ruled(memory_type), scope, Terms())
        known = self._known(rule)
        if known is None or (known.terms == Terms() and known.pending is None):
            raise NotFoundError(f"there is no rule of its own for {rule.kind} of {rule.scope or 'the tenant'}")
        return self._put(rule, confirm=confirm, author=author, progress=lambda _count: None)

    def finish(self) -> int:
        """Let changes of rules that were cut short take effect; how many there were.

        A domain's rule follows its policy, which may be another by now.
        """
        rules = self._rules.rules(self._tenant)
        pending = [rule for rule in rules if rule.pending is not None and rule.selection is None]
        for rule in pending:
            self._take_effect(rule, "unknown", lambda _count: None)
        return len(pending)

    def _put(self, rule: Rule, *, confirm: bool, author: str, progress: Progress) -> dict[str, Any]:
        check_id(author, "author")
        preview = self._preview(rule)
        if preview.shortens and not confirm:
            raise ConfirmationNeededError(
                f"the rule shortens retention: {preview.told()}; look at a preview of it, then set it with confirm"
            )
        proposed = self._rules.propose(rule, now=self._now())
        settled = self._take_effect(proposed, author, progress)
        return {**shown_rule(settled), "newly_due": preview.newly_due, "bytes": preview.bytes}

    def _take_effect(self, rule: Rule, author: str, progress: Progress) -> Rule:
        for count in self._rules.assign(rule):
            progress(count)
        now = self._now()
        terms = shown_terms(rule.pending or Terms())
        detail = {
            "kind": rule.kind,
            "level": rule.level,
            **{part: value for part, value in rule.scope.items() if part != "user_id"},
            "from": shown_terms(rule.terms),
            "to": terms,
            "author": author,
        }
        return self._rules.settle(rule, now=now, event=Event(now, "rule.changed", None, detail))

    # --- within -------------------------------------------------------------------------------------------------------

    def _wanted(
        self, memory_type: MemoryType | str, scope: Mapping[str, Any], times: Sequence[float | str | None]
    ) -> Rule:
        kind = check_ruled(memory_type)
        names = ("archive_after_days", "delete_after_days", "keep_days")
        given = [None if value is None else days(value, name) for name, value in zip(names, times, strict=True)]
        return self._rule(kind, scope, check_terms(kind, Terms(*given)))

    def _rule(self, kind: str, scope: Mapping[str, Any], terms: Terms) -> Rule:
        whom = {part: check_id(scope[part], part) for part in _PARTS if scope.get(part) is not None}
        if "memory_id" in whom and not is_id(whom["memory_id"]):
            raise InvalidRuleError(f"memory_id {whom['memory_id']!r} is not the id of a memory")
        if "memory_id" in whom and "user_id" not in whom:
            raise InvalidRuleError("a rule for one memory names its user too: give user_id and memory_id")
        if kind == AUDIT and whom:
            raise InvalidRuleError("the audit chain is the whole tenant's; leave user, agent and session out")
        now = self._now()
        return Rule(
            self._new_id(now),
            self._tenant,
            kind,
            Terms(),
            user_id=whom.get("user_id"),
            agent_id=whom.get("agent_id"),
            session_id=whom.get("session_id"),
            memory_id=whom.get("memory_id"),
            pending=terms,
        )

    def _known(self, rule: Rule) -> Rule | None:
        rules = self._rules.rules(self._tenant)
        same = [known for known in rules if (known.kind, known.scope, known.selection) == (rule.kind, rule.scope, None)]
        return same[0] if same else None

    def _preview(self, wanted: Rule) -> Preview:
        """Compare what applies now with what would, for every profile that the rule is for."""
        now = self._now()
        known = self._known(wanted)
        version = 1 if known is None else known.version + 1
        changed = replace(known or wanted, terms=wanted.pending or Terms(), version=version)
        shortens = False
        counts = dict.fromkeys(sorted(set(ACTIONS.values())), 0)
        size = 0
        for profile in self._profiles(changed):
            others = [rule for rule in profile.rules if known is None or rule.id != known.id]
            lives = (
                resolve(profile.kind, [*others, *([] if known is None else [known])]),
                resolve(profile.kind, [*others, changed]),
            )
            shortens = shortens or is_shorter(*lives)
            for state in (State.ACTIVE, State.ARCHIVED):
                for target, records, amount in self._newly_due(profile, state, lives, changed, now):
                    counts[ACTIONS[target]] += records
                    size += amount
        return Preview(shown_rule(changed), shortens, counts, size)

    def _profiles(self, rule: Rule) -> Iterable[Profile]:
        """The profiles that a rule is for; of a kind that nothing has been kept of yet, what one would be."""
        found = [
            profile
            for profile in self._dues.profiles(self._tenant)
            if rule.governs(profile.kind) and all(_meets(rule, other) for other in profile.rules)
        ]
        wide = tuple(known for known in self._rules.rules(self._tenant) if known.is_wide)
        missing = [kind for kind in DEFAULTS if rule.governs(kind) and kind not in {p.kind for p in found}]
        return [*found, *(Profile(0, kind, resolve(kind, wide), wide) for kind in missing)]

    def _newly_due(
        self, profile: Profile, state: State, lives: tuple[Life, Life], rule: Rule, now: int
    ) -> Iterable[tuple[State, int, int]]:
        """What of the records that a rule selects is due a move that it was not due before."""
        old, new = ({window.target: window for window in windows(life, state, now)} for life in lives)
        for target, window in new.items():
            for part in outside(window, old.get(target)):
                records, size = self._dues.effect(profile, state, part, rule)
                yield target, records, size


def outside(new: Window, old: Window | None) -> Iterator[Window]:
    """The parts of a window that are not in another of the same target."""
    if old is None:
        yield new
        return
    if old.after is not None and (new.after is None or new.after < old.after):
        yield new._replace(upto=min(new.upto, old.after))
    if new.upto > old.upto:
        yield new._replace(after=old.upto if new.after is None else max(new.after, old.upto))


def _meets(rule: Rule, other: Rule) -> bool:
    """Whether two rules can be for the same thing."""
    pairs = ((getattr(rule, part), getattr(other, part)) for part in _PARTS)
    return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


def is_shorter(old: Life, new: Life) -> bool:
    """Whether by one life something goes, or is archived, earlier than by another."""
    sooner = any(
        after is not None and (before is None or after < before)
        for before, after in ((old.archive_after, new.archive_after), (old.delete_after, new.delete_after))
    )
    return sooner or (new.keep_for or 0) < (old.keep_for or 0)


def shown_rule(rule: Rule) -> dict[str, Any]:
    """A rule as callers see it."""
    parts = {} if rule.selection is None else rule.selection._asdict()
    return {
        "rule_id": rule.id,
        "memory_type": rule.kind,
        "level": rule.level,
        **rule.scope,
        **{name: sorted(part) for name, part in parts.items()},
        **shown_terms(rule.terms),
        "version": rule.version,
        **({"updated_at": iso(rule.updated_at)} if rule.updated_at else {}),
    }


def shown_life(life: Life) -> dict[str, Any]:
    """What rules come to, as callers see it: days, or ``None`` for never; kept for ever is ``"forever"``."""
    keep = Terms(keep_for=life.keep_for)
    return {
        "archive_after_days": shown_terms(Terms(archive_after=life.archive_after)).get("archive_after_days"),
        "archive_by": life.archive_by,
        "delete_after_days": shown_terms(Terms(delete_after=life.delete_after)).get("delete_after_days"),
        "delete_by": life.delete_by,
        "keep_days": shown_terms(keep).get("keep_days"),
        "keep_by": life.keep_by,
    }
