"""What the memory domain's policy comes to for Holdfast's own records: a rule, in force while ``auto_gc`` is on.

The policy in the state file is what is meant; the rule follows it. It is set after the file is written, and every sweep
sets it right first: whatever a crash left between the two is gone before anything goes by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

from holdfast.core.audit import Action
from holdfast.core.chain import Event
from holdfast.core.decisions import RecordFacts, windows
from holdfast.core.domains import RetentionPolicy
from holdfast.core.holds import standing
from holdfast.core.records import State, Terms
from holdfast.core.rules import EVERY, Life, Rule, Selection, labels_of, resolve, terms_to_dict
from holdfast.core.times import DAY
from holdfast.lifecycle.previews import Preview, is_shorter, outside, read_due, rule_to_dict
from holdfast.lifecycle.sweeping.plan import ACTIONS
from holdfast.ports.rules import DueStore, HoldStore, Profile, RuleStore


class Wanted(NamedTuple):
    """What a policy asks of the rules."""

    selection: Selection
    terms: Terms


def wanted_by(policy: RetentionPolicy) -> Wanted | None:
    """The rule that a policy becomes; ``None`` while it collects nothing by itself."""
    if not policy.auto_gc:
        return None
    return Wanted(policy.selection(), Terms(delete_after=policy.older_than_days * DAY))


@dataclass(eq=False, repr=False)
class DomainRules:
    """The rule of one tenant's memory domain."""

    rules: RuleStore
    dues: DueStore
    holds: HoldStore
    _: KW_ONLY
    tenant: str
    now: Callable[[], int]
    new_id: Callable[[int], str]

    def _standing(self) -> list[Rule]:
        """The rules with a selection that say something, or are about to."""
        rules = self.rules.rules(self.tenant)
        return [rule for rule in rules if rule.selection is not None and not rule.is_spent]

    def is_followed(self, wanted: Wanted | None) -> bool:
        """Whether the rules say what a policy asks."""
        said = [(rule.selection, rule.terms, rule.pending) for rule in self._standing()]
        return said == ([] if wanted is None else [(*wanted, None)])

    def follow(self, wanted: Wanted | None) -> None:
        """Let the rules say what a policy asks, for every record at once."""
        standing = self._standing()
        if wanted is None:
            if not standing:  # another has just done it
                return
            wanted = Wanted(standing[0].selection or _NOTHING, Terms())
        (rule,) = self.rules.propose([self._rule(wanted)], now=self.now())
        if rule.terms == Terms() and wanted.terms != Terms():  # those it is for do not all know of it yet
            for _ in self.rules.assign(rule):
                pass
        now = self.now()
        before = next((known.terms for known in standing if known.terms != Terms()), Terms())
        detail = {
            "kind": EVERY,
            "level": rule.level,
            "source_types": sorted(wanted.selection.source_types),
            "kept_sessions": len(wanted.selection.keep_session_ids),
            "kept_contexts": len(wanted.selection.keep_context_ids),
            "from": terms_to_dict(before),
            "to": terms_to_dict(wanted.terms),
        }
        self.rules.settle([(rule, Event(now, Action.RULE_CHANGED, None, detail))], now=now)

    def _rule(self, wanted: Wanted) -> Rule:
        rule_id = self.new_id(self.now())
        return Rule(rule_id, self.tenant, EVERY, Terms(), pending=wanted.terms, selection=wanted.selection)

    def preview(self, wanted: Wanted | None) -> Preview:
        """What following a policy would come to: whether anything goes earlier, and how much is due at once."""
        counts = dict.fromkeys(sorted(set(ACTIONS.values())), 0)
        if wanted is None:
            return Preview((), shortens=False, newly_due=counts, bytes=0)
        known = next((rule for rule in self._standing() if rule.terms != Terms()), None)
        rule = Rule("", self.tenant, EVERY, wanted.terms, version=1, selection=wanted.selection)
        shortens, size, held = False, 0, 0
        holds = self.holds.list(self.tenant)
        for profile in self._profiles(rule):
            others = [other for other in profile.rules if other.selection is None]
            new = self._life(profile.kind, [*others, rule])
            shortens = shortens or self._shortens(profile.kind, others, known, new, wanted)
            for one in self._newly_due(profile, new, wanted.selection):
                if standing(one.thing, holds) is not None:
                    held += 1
                else:
                    counts[ACTIONS[State.RECYCLED]] += 1
                    size += one.size
        return Preview((rule_to_dict(rule),), shortens, counts, size, held)

    def _profiles(self, rule: Rule) -> Iterable[Profile]:
        """The tenant's profiles, and one for each kind of which nothing has been kept yet."""
        found = [profile for profile in self.dues.profiles(self.tenant) if rule.governs(profile.kind)]
        wide = tuple(known for known in self.rules.rules(self.tenant) if known.is_wide)
        there = {profile.kind for profile in found}
        defaults = self.rules.defaults(self.tenant)
        missing = [kind for kind in defaults if rule.governs(kind) and kind not in there]
        return [*found, *(Profile(0, kind, resolve(kind, wide, defaults), wide) for kind in missing)]

    def _life(self, kind: str, rules: Iterable[Rule]) -> Life:
        return resolve(kind, rules, self.rules.defaults(self.tenant))

    def _shortens(self, kind: str, others: list[Rule], known: Rule | None, new: Life, wanted: Wanted) -> bool:
        """Whether a record that is, or may come to be, selected goes earlier than by the rules as they are."""
        if known is not None and is_shorter(self._life(kind, [*others, known]), new):
            return True
        widens = known is None or known.selection is None or not wanted.selection.is_within(known.selection)
        return widens and is_shorter(self._life(kind, others), new)

    def _newly_due(self, profile: Profile, new: Life, selection: Selection) -> Iterator[RecordFacts]:
        """The selected records of a profile that are due to be removed and were not before."""
        now = self.now()
        for state in (State.ACTIVE, State.ARCHIVED):
            old, soon = (
                {window.target: window for window in windows(life, state, now)} for life in (profile.life, new)
            )
            if State.RECYCLED in soon:
                for part in outside(soon[State.RECYCLED], old.get(State.RECYCLED)):
                    for one in read_due(self.dues, profile, state, part):
                        if selection.selects(one.thing.session_id, labels_of(one.thing.metadata)):
                            yield one


_NOTHING: Final = Selection(frozenset(), frozenset(), frozenset())
