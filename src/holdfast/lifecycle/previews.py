"""Previews: what changes of rules would come to, all of them together, before they are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from operator import attrgetter
from typing import Any, Final, cast

from holdfast.core.decisions import Held, Hold, Life, RecordFacts, Window, find_hold, windows
from holdfast.core.records import HISTORY, State, Terms
from holdfast.core.rules import Rule, resolve, terms_to_dict
from holdfast.core.values import iso
from holdfast.lifecycle.sweeping.due import DueClass
from holdfast.lifecycle.sweeping.plan import ACTIONS
from holdfast.ports.rules import Named, Profile, Share
from holdfast.ports.stores import Tenant, read_pages

#: A user, an agent, a session and a memory; a part that is empty is any.
Place = tuple[str, str, str, str]
_PARTS: Final = ("user_id", "agent_id", "session_id", "memory_id")
_ANYWHERE: Final[Place] = ("", "", "", "")
_PAGE: Final = 5_000
_ENDS: Final = attrgetter("archive_after", "delete_after", "versions", "versions_for")


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change of rules would come to."""

    rules: tuple[dict[str, Any], ...]
    """The rules as they would be."""
    shortens: bool
    """Something would be archived or removed earlier than it is now."""
    newly_due: dict[str, int]
    """How many records it makes due at once, by action."""
    bytes: int
    held: int = 0
    """How many more it would make due at once, did no hold keep them."""
    versions_due: dict[str, int] = field(default_factory=lambda: {"versions": 0, "memories": 0})
    """How many ended versions it makes due at once, and of how many memories."""

    @property
    def rule(self) -> dict[str, Any]:
        """The rule as it would be, where it is one."""
        return self.rules[0]

    @property
    def effect(self) -> dict[str, Any]:
        """What it makes due at once, as callers see it."""
        versions = {"versions_due": self.versions_due}
        return {"newly_due": self.newly_due, **versions, "bytes": self.bytes, "held": self.held}

    def describe(self) -> str:
        """In words."""
        all_due = [f"{count:,} to {action}" for action, count in self.newly_due.items() if count]
        if self.versions_due["versions"]:
            all_due.append("{versions:,} old versions of {memories:,} memories to delete".format(**self.versions_due))
        due = ", ".join(all_due)
        said = f"it makes {due} due at once ({self.bytes:,} bytes)" if due else "it makes nothing due at once"
        return f"{said}; a hold keeps {self.held:,}" if self.held else said


def preview_rules(tenant: Tenant, wanted: Sequence[Rule]) -> Preview:
    """What it would come to if rules of a tenant said what they have pending, all of them at once: in every place that
    rules tell apart, the life that things have there is compared with the one that they would have.
    """
    now, holds = tenant.now(), tenant.holds.list(tenant.name)
    book = [rule for rule in tenant.rules.rules(tenant.name) if rule.selection is None]
    changed = [_changed(rule, book) for rule in wanted]
    defaults = tenant.rules.defaults(tenant.name)
    outlook = _Outlook(book, changed, defaults)
    shortens = False
    due: dict[DueClass, set[Place]] = defaultdict(set)
    ended: dict[tuple[Profile, int | None, int | None], set[Place]] = defaultdict(set)
    for profile in _profiles(tenant, changed, defaults):
        for place, old, new in outlook.lives(profile):
            shortens = shortens or is_shorter(old, new)
            if profile.number and (old.versions, old.versions_for) != (new.versions, new.versions_for):
                ended[profile, new.versions, new.versions_for].add(place)
            for state, window in newly_due(old, new, now):
                due[DueClass(profile, state, window)].add(place)
    found = (
        (one.window.target, share.records, share.bytes, kept)
        for one, places in due.items()
        for share, kept in _shares(tenant, one, changed, holds)
        if outlook.place_of(one.profile, share.thing) in places
    )
    versions = (
        (thing, size)
        for (profile, *limits), places in ended.items()
        for thing, size in tenant.versions.newly_due(profile.number, *limits, now=now)
        if outlook.place_of(profile, thing) in places
    )
    return _count_versions(count_due(changed, found, shortens=shortens), versions, holds)


def _count_versions(preview: Preview, versions: Iterable[tuple[Held, int]], holds: Sequence[Hold]) -> Preview:
    """A preview, with the ended versions that are due at once: of each, what it is of and its bytes."""
    count = size = held = 0
    memories = set()
    for thing, taken in versions:
        if find_hold(thing, holds) is not None:
            held += 1
        else:
            count, size = count + 1, size + taken
            memories.add(thing.item_id)
    due = {"versions": count, "memories": len(memories)}
    return replace(preview, versions_due=due, bytes=preview.bytes + size, held=preview.held + held)


def count_due(rules: Iterable[Rule], found: Iterable[tuple[State, int, int, bool]], *, shortens: bool) -> Preview:
    """The preview of rules that make things due at once: where to, how many, their bytes, and whether a hold keeps
    them.
    """
    counts = dict.fromkeys(sorted(set(ACTIONS.values())), 0)
    size = held = 0
    for target, records, taken, kept in found:
        held += records if kept else 0
        size += 0 if kept else taken
        counts[ACTIONS[target]] += 0 if kept else records
    return Preview(tuple(map(rule_to_dict, rules)), shortens, counts, size, held)


def _profiles(tenant: Tenant, changed: Sequence[Rule], defaults: Mapping[str, Terms]) -> Iterator[Profile]:
    """The profiles of every kind that rules are for, and one for those of whom nothing of it has been kept yet."""
    kinds = [kind for kind in defaults if any(rule.governs(kind) for rule in changed)]
    yield from (Profile(0, kind, resolve(kind, (), defaults), ()) for kind in kinds)
    if kinds:
        yield from (profile for profile in tenant.dues.profiles(tenant.name) if profile.kind in kinds)


def _shares(
    tenant: Tenant, due: DueClass, changed: Sequence[Rule], holds: Sequence[Hold]
) -> Iterator[tuple[Share, bool]]:
    """What of a profile is in a window, parted by what rules and holds name, and whether a hold keeps it."""
    whole = due.profile.kind == HISTORY and any(hold.memory_id is not None or hold.tag is not None for hold in holds)
    if whole or any(hold.tag is not None for hold in holds):  # only a look at each of them can tell
        for one in read_due(tenant, due):
            kept = find_hold(one.thing, holds) is not None
            kept = kept or (whole and tenant.history.hold_on(one.subject, one.id) is not None)
            yield Share(one.thing, 1, one.size), kept
    elif due.profile.number:
        scopes = [*(rule.scope for rule in changed), *(hold.scope for hold in holds)]
        named = Named(*(frozenset(scope[part] for scope in scopes if part in scope) for part in _PARTS))
        for share in tenant.dues.shares(tenant.name, *due, named):
            yield share, find_hold(share.thing, holds) is not None


class _Outlook:
    """The rules of a tenant as they are, and some of them as they would be."""

    def __init__(self, book: Iterable[Rule], changed: Sequence[Rule], defaults: Mapping[str, Terms]) -> None:
        self._changed = changed
        self._defaults = defaults
        self._book: dict[str | None, list[Rule]] = defaultdict(list)
        for rule in book:
            self._book[rule.user_id].append(rule)

    def lives(self, profile: Profile) -> Iterator[tuple[Place, Life, Life]]:
        """The places of a profile that the changed rules tell apart, with the life that things have there and the one
        that they would have.
        """
        changed = [rule for rule in self._changed if rule.governs(profile.kind)]
        places = {_start(profile)}
        for rule in changed:
            places |= {inner for place in places if (inner := _within(place, rule)) is not None}
        for place in places:
            there = [rule for whose in {None, place[0]} for rule in self._book[whose] if rule.selects(*place)]
            rules = {rule.id: rule for rule in (*profile.rules, *there)}
            new = {**rules, **{rule.id: rule for rule in changed if rule.selects(*place)}}
            before = resolve(profile.kind, rules.values(), self._defaults)
            yield place, before, resolve(profile.kind, new.values(), self._defaults)

    def place_of(self, profile: Profile, thing: Held) -> Place:
        """The place of a profile that one of its things is in."""
        place = _start(profile)
        for rule in self._changed:
            if rule.governs(profile.kind) and rule.selects(*thing[:4]):
                place = _within(place, rule) or place
        return place


def _start(profile: Profile) -> Place:
    """The place that everything of a profile is in: where its rules meet."""
    return reduce(lambda place, rule: _within(place, rule) or place, profile.rules, _ANYWHERE)


def _within(place: Place, rule: Rule) -> Place | None:
    """Where a place and the scope of a rule meet, if they do."""
    scope = (rule.user_id or "", rule.agent_id or "", rule.session_id or "", rule.memory_id or "")
    if any(mine and theirs and mine != theirs for mine, theirs in zip(place, scope, strict=True)):
        return None
    return cast("Place", tuple(mine or theirs for mine, theirs in zip(place, scope, strict=True)))


def _changed(wanted: Rule, book: Iterable[Rule]) -> Rule:
    """A rule as it will be when what it has pending is in force."""
    known = next((rule for rule in book if (rule.kind, rule.scope) == (wanted.kind, wanted.scope)), wanted)
    return replace(known, terms=wanted.pending or Terms(), pending=None, version=known.version + 1)


def newly_due(old: Life, new: Life, now: int) -> Iterator[tuple[State, Window]]:
    """When what is due a move by a life, and is not due that by another, was made, and in which state it is."""
    for state in (State.ACTIVE, State.ARCHIVED):
        before = {window.target: window for window in windows(old, state, now)}
        for window in windows(new, state, now):
            yield from ((state, part) for part in _outside(window, before.get(window.target)))


def read_due(tenant: Tenant, due: DueClass) -> Iterator[RecordFacts]:
    """Everything of a class, with its metadata."""
    return chain.from_iterable(read_pages(partial(tenant.dues.due, *due, tags=True), _PAGE))


def _outside(new: Window, old: Window | None) -> Iterator[Window]:
    """The parts of a window that are not in another of the same target."""
    if old is None:
        yield new
        return
    if old.after is not None and (new.after is None or new.after < old.after):
        yield new._replace(upto=min(new.upto, old.after))
    if new.upto > old.upto:
        yield new._replace(after=old.upto if new.after is None else max(new.after, old.upto))


def is_shorter(old: Life, new: Life) -> bool:
    """Whether by one life something goes, or is archived, earlier than by another."""
    sooner = any(
        after is not None and (before is None or after < before)
        for before, after in zip(_ENDS(old), _ENDS(new), strict=True)
    )
    return sooner or (new.keep_for or 0) < (old.keep_for or 0)


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """A rule as callers see it."""
    parts = {} if rule.selection is None else rule.selection._asdict()
    return {
        "rule_id": rule.id,
        "memory_type": rule.kind,
        "level": rule.level,
        **rule.scope,
        **{name: sorted(part) for name, part in parts.items()},
        **terms_to_dict(rule.terms),
        "version": rule.version,
        **({"updated_at": iso(rule.updated_at)} if rule.updated_at else {}),
    }
