"""``holdfast.domains``: retention policies for a caller's own resources, in the domains ``memory`` and ``rag``.

Resources are sorted and archived here, and never deleted. Only Holdfast's own records go by a policy, by the memory
domain's, while its ``auto_gc`` is on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from holdfast import results
from holdfast.core import errors
from holdfast.core.audit import Action, Event, acting_as, check_author
from holdfast.core.decisions import Life, RecordFacts, find_hold
from holdfast.core.domains import (
    DEFAULT_POLICY,
    DOMAINS,
    FIELDS,
    RetentionPolicy,
    check_domain,
    evaluate,
    narrow,
    normalize,
    resolve_parameters,
)
from holdfast.core.errors import quote
from holdfast.core.records import State, Terms
from holdfast.core.rules import EVERY, Rule, Selection, labels_of, resolve, terms_to_dict
from holdfast.core.values import DAY, iso, moment
from holdfast.lifecycle.domain_archives import DomainArchives, check_note
from holdfast.lifecycle.policies import check_confirmed
from holdfast.lifecycle.previews import Preview, count_due, is_shorter, newly_due, read_due
from holdfast.lifecycle.sweeping.due import DueClass
from holdfast.ports.coordination import begin_steps
from holdfast.ports.objects import ObjectStore, find_object
from holdfast.ports.rules import Profile
from holdfast.ports.stores import Tenant

#: The format; a newer one is left alone.
VERSION: Final = 1
FILE: Final = "retention-policies.json"
_FOLDER: Final = "state/"
_DEFAULT_TENANT: Final = "default"
_MOST_CHANGES: Final = 2_000


class DomainPolicies(NamedTuple):
    """The policy of each domain, and when one was last changed; ``None``: never."""

    of: Mapping[str, RetentionPolicy]
    updated_at: str | None

    def to_dict(self) -> dict[str, Any]:
        """As callers see them."""
        policies = {domain: policy.as_dict() for domain, policy in self.of.items()}
        return {"version": VERSION, "updated_at": self.updated_at, **policies}


UNSET: Final = DomainPolicies(dict.fromkeys(DOMAINS, DEFAULT_POLICY), None)


class DomainStates:
    """Reads and changes a tenant's policies. A change is whole or not there, and none is lost to another's."""

    def __init__(self, objects: ObjectStore, tenant: str) -> None:
        self._objects = objects
        self._tenant = tenant
        part = "" if tenant == _DEFAULT_TENANT else f"{hashlib.sha256(tenant.encode()).hexdigest()[:32]}/"
        self._name = f"{_FOLDER}{part}{FILE}"

    @property
    def place(self) -> str:
        """Where they are, for a message."""
        return f"{self._objects.url}/{self._name}"

    def read(self) -> DomainPolicies:
        """The policies as they are now; the default, if none was ever set."""
        return self._read()[0]

    def change(self, edit: Callable[[DomainPolicies], DomainPolicies]) -> DomainPolicies:
        """Put what ``edit`` makes of the policies in their place; it is asked again if another was faster."""
        self._objects.prepare()
        for _ in range(_MOST_CHANGES):
            known, tag = self._read()
            wanted = edit(known)
            document = {"tenant": self._tenant, **wanted.to_dict()}
            data = json.dumps(document, ensure_ascii=False, indent=2).encode() + b"\n"
            try:
                self._objects.put(self._name, data, absent=tag is None, match=tag)
            except errors.ConflictError:  # another has changed them meanwhile
                continue
            return wanted
        raise errors.StoreBusyError(
            f"{self.place} is changed by so many others that this change found no turn; try again"
        )

    def _read(self) -> tuple[DomainPolicies, str | None]:
        data, tag = find_object(self._objects, self._name)
        return (UNSET if data is None else self._parse(data)), tag

    def _parse(self, data: bytes) -> DomainPolicies:
        try:
            kept: Any = json.loads(data)
            version = kept["version"]
            if isinstance(version, int) and version > VERSION:
                raise errors.StoreTooNewError(
                    f"{self.place} has version {version}, this Holdfast knows up to {VERSION}; nothing was changed; "
                    "use the newer Holdfast that wrote it"
                )
            found = {domain: _policy(kept[domain]) for domain in DOMAINS}
            moment(kept["updated_at"])
            if version != VERSION or kept["tenant"] != self._tenant:
                raise ValueError(f"version {version!r} of tenant {kept['tenant']!r}")  # noqa: TRY301 - one message
        except (ValueError, KeyError, TypeError) as problem:
            raise errors.ObjectDamagedError(
                f"{self.place} is damaged ({type(problem).__name__}: {problem}); nothing was changed: bring it back "
                "from a copy, or move it away to begin with the default policies"
            ) from problem
        return DomainPolicies(found, kept["updated_at"])


def _policy(kept: dict[str, Any]) -> RetentionPolicy:
    """A policy as it was written; what is not whole, or out of bounds, was not written here."""
    policy = normalize({name: kept[name] for name in FIELDS}, DEFAULT_POLICY)
    if policy.as_dict() != kept:
        raise errors.InvalidInputError("a policy in it is not as it was written")
    return policy


def change_policy(policies: DomainPolicies, domain: str, policy: RetentionPolicy, now: int) -> DomainPolicies:
    """The policies with another for one domain, as changed now."""
    return DomainPolicies({**policies.of, domain: policy}, iso(now))


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

    tenant: Tenant

    def _in_force(self) -> list[Rule]:
        """The rules with a selection that say something, or are about to."""
        rules = self.tenant.rules.rules(self.tenant.name)
        return [rule for rule in rules if rule.selection is not None and not rule.is_spent]

    def is_followed(self, wanted: Wanted | None) -> bool:
        """Whether the rules say what a policy asks."""
        said = [(rule.selection, rule.terms, rule.pending) for rule in self._in_force()]
        return said == ([] if wanted is None else [(*wanted, None)])

    def follow(self, wanted: Wanted | None) -> None:
        """Let the rules say what a policy asks, for every record at once."""
        rules, known, now = self.tenant.rules, self._in_force(), self.tenant.now()
        if wanted is None:
            if not known:  # another has just done it
                return
            wanted = Wanted(known[0].selection or _NOTHING, Terms())
        selection, terms = wanted
        new = Rule(self.tenant.new_id(now), self.tenant.name, EVERY, Terms(), pending=terms, selection=selection)
        (rule,) = rules.propose([new], now=now)
        if rule.terms == Terms() and terms != Terms():  # those it is for do not all know of it yet
            deque(rules.assign(rule), maxlen=0)
        before = next((one.terms for one in known if one.terms != Terms()), Terms())
        detail = {
            "kind": EVERY,
            "level": rule.level,
            "source_types": sorted(selection.source_types),
            "kept_sessions": len(selection.keep_session_ids),
            "kept_contexts": len(selection.keep_context_ids),
            "from": terms_to_dict(before),
            "to": terms_to_dict(terms),
        }
        now = self.tenant.now()
        rules.settle([(rule, Event(now, Action.RULE_CHANGED, None, detail))], now=now)

    def preview(self, wanted: Wanted | None) -> Preview:
        """What following a policy would come to: whether anything goes earlier, and how much is due at once."""
        if wanted is None:
            return count_due((), (), shortens=False)
        selection, terms = wanted
        known = next((rule for rule in self._in_force() if rule.terms != Terms()), None)
        rule = Rule("", self.tenant.name, EVERY, terms, version=1, selection=selection)
        widens = known is None or known.selection is None or not selection.is_within(known.selection)
        defaults, holds = self.tenant.rules.defaults(self.tenant.name), self.tenant.holds.list(self.tenant.name)
        shortens, lives = False, list[tuple[Profile, Life]]()
        for profile in self._profiles(rule, defaults):
            others = [other for other in profile.rules if other.selection is None]
            new = resolve(profile.kind, [*others, rule], defaults)
            before = [[*others, known]] if known is not None else []
            before += [others] if widens else []
            shortens = shortens or any(is_shorter(resolve(profile.kind, old, defaults), new) for old in before)
            lives.append((profile, new))
        found = (
            (State.RECYCLED, 1, one.size, find_hold(one.thing, holds) is not None)
            for profile, new in lives
            for one in self._newly_due(profile, new, selection)
        )
        return count_due([rule], found, shortens=shortens)

    def _profiles(self, rule: Rule, defaults: Mapping[str, Terms]) -> Iterator[Profile]:
        """The tenant's profiles, and one for each kind of which nothing has been kept yet."""
        found = [one for one in self.tenant.dues.profiles(self.tenant.name) if rule.governs(one.kind)]
        wide = tuple(known for known in self.tenant.rules.rules(self.tenant.name) if known.is_wide)
        there = {profile.kind for profile in found}
        missing = (kind for kind in defaults if rule.governs(kind) and kind not in there)
        return chain(found, (Profile(0, kind, resolve(kind, wide, defaults), wide) for kind in missing))

    def _newly_due(self, profile: Profile, new: Life, selection: Selection) -> Iterator[RecordFacts]:
        """The selected records of a profile that are due to be removed and were not before."""
        for state, window in newly_due(profile.life, new, self.tenant.now()):
            if window.target is State.RECYCLED:
                for one in read_due(self.tenant, DueClass(profile, state, window)):
                    if selection.selects(one.thing.session_id, labels_of(one.thing.metadata)):
                        yield one


_NOTHING: Final = Selection(frozenset(), frozenset(), frozenset())

_log = logging.getLogger("holdfast.domains")
_TRIES: Final = 100
Config = Mapping[str, Any]
Resources = Sequence[Mapping[str, Any]]


class Domains:
    """The domains of one tenant."""

    def __init__(self, tenant: Tenant, state: ObjectStore, objects: Callable[[], ObjectStore]) -> None:
        self._states = DomainStates(state, tenant.name)
        self._archives = DomainArchives(tenant, objects)
        self._rules = DomainRules(tenant)
        self._now = tenant.now

    # --- policies -----------------------------------------------------------------------------------------------------

    def configure(
        self, domain: str, config: Config, *, confirm: bool = False, author: str | None = None
    ) -> results.DomainResult:
        """Change those fields of a domain's policy that ``config`` names, brought into bounds; the other domain, and
        every other field, stay as they are.

        A change by which memories of Holdfast's own go earlier (``auto_gc``) raises ``ConfirmationNeededError``, which
        says how much that is, unless it is confirmed. It takes effect for all of them at once.
        """
        check_domain(domain)
        if not isinstance(config, Mapping):
            raise errors.InvalidInputError(f"config must be an object with fields of a policy, not {quote(config)}")
        request = begin_steps()
        changed_at = self._now() if request is None else request.began_at

        def edit(known: DomainPolicies) -> DomainPolicies:
            policy = normalize(config, known.of[domain])
            if domain == "memory" and not confirm:
                self._check(known.of["memory"], policy)
            return change_policy(known, domain, policy, changed_at)

        changed = self._states.change(edit)
        if domain == "memory":
            try:
                with acting_as(check_author(author)):
                    self.follow()
            except errors.HoldfastError as problem:
                problem.add_note("the policy was saved; the next sweep lets it take effect")
                raise
        policy = cast("results.RetentionPolicyResult", changed.of[domain].as_dict())
        return {"success": True, "domain": domain, "policy": policy, "updated_at": changed.updated_at}

    def _check(self, known: RetentionPolicy, policy: RetentionPolicy) -> None:
        """``ConfirmationNeededError`` if a policy lets memories go earlier than the one before."""
        if wanted_by(policy) == wanted_by(known) and self._rules.is_followed(wanted_by(policy)):
            return
        check_confirmed("the policy shortens", self._rules.preview(wanted_by(policy)), confirm=False)

    def _policy(self, domain: str) -> RetentionPolicy:
        return self._states.read().of[check_domain(domain)]

    def get(self, domain: str) -> results.RetentionPolicyResult:
        """The policy of a domain; the default one, until another is configured."""
        return cast("results.RetentionPolicyResult", self._policy(domain).as_dict())

    def list(self) -> results.DomainsResult:
        """The policy of each domain, with the ``version`` of their format and when one was last changed
        (``updated_at``; ``None``: never).
        """
        return cast("results.DomainsResult", self._states.read().to_dict())

    # --- resources ----------------------------------------------------------------------------------------------------

    def apply(self, domain: str, resources: Resources, options: Config | None = None) -> results.SortedResourcesResult:
        """Sort resources into ``eligible`` and ``protected`` (with the reason) by a domain's policy. Deletes nothing.

        ``options`` may name fields of the policy that are to differ this once; what is kept stays kept.
        """
        policy = narrow(self._policy(domain), options)
        return cast("results.SortedResourcesResult", evaluate(policy, resources, self._now()).to_dict(domain))

    def archive(self, domain: str, resources: Resources, options: Config | None = None) -> results.NewArchiveResult:
        """Write resources to cold storage with a manifest of checksums, and read them back. Deletes nothing.

        ``options`` may have a ``note`` for the manifest.
        """
        note = check_note(options)
        return self._archives.keep(domain, resources, self._policy(domain).as_dict(), note)

    def archives(self, domain: str) -> Sequence[results.ArchiveResult]:
        """The archives of a domain, the oldest first."""
        return self._archives.list(domain)

    def read_archive(self, domain: str, archive_id: str) -> results.WholeArchiveResult:
        """The ``manifest`` and the ``resources`` of an archive; ``ObjectDamagedError`` if either was changed."""
        return self._archives.read(domain, archive_id)

    def resolve_gc_params(
        self, domain: str, raw_args: Config | None = None, validated_args: Config | None = None
    ) -> dict[str, Any]:
        """The parameters of a garbage collection: what a caller gave wins, the domain's policy has the rest."""
        for name, given in (("raw_args", raw_args), ("validated_args", validated_args)):
            if given is not None and not isinstance(given, Mapping):
                raise errors.InvalidInputError(f"{name} must be an object, not {quote(given)}")
        return resolve_parameters(self._policy(domain), raw_args or {}, validated_args or {})

    # --- Holdfast's own records ---------------------------------------------------------------------------------------

    def follow(self) -> bool:
        """Let the rules say what the memory domain's policy asks; whether that was to be done.

        Whoever changes the policy does this afterwards, and looks again: the last of several finds what the last of
        them wrote. Where no policy was ever set, nothing is asked.
        """
        for turn in range(_TRIES):
            policies = self._states.read()
            wanted = wanted_by(policies.of["memory"])
            if policies.updated_at is None or self._rules.is_followed(wanted):
                return turn > 0
            self._rules.follow(wanted)
        raise errors.RulesChangedError(
            "the policy of the memory domain keeps changing while it takes effect; try again"
        )

    def most_collected(self) -> int:
        """How many memories one sweep may let go by the policy; none, where it cannot be read."""
        policy = self._readable()
        return 0 if policy is None else policy.limit

    def vacuums(self) -> bool:
        """Whether space is to be given back to the disk after a sweep that collects."""
        policy = self._readable()
        return policy is not None and policy.auto_gc and policy.vacuum

    def _readable(self) -> RetentionPolicy | None:
        try:
            return self._policy("memory")
        except (errors.ObjectStoreError, errors.StoreTooNewError) as problem:
            _log.warning("nothing goes by the memory domain's policy: %s", problem)
            return None

    # --- names of before ----------------------------------------------------------------------------------------------

    def get_retention_policies(self) -> results.DomainsResult:
        """Both policies: ``version``, ``updated_at``, ``memory``, ``rag``. Deprecated: use ``get(domain)``."""
        _deprecated("get_retention_policies()", "get(domain)")
        return self.list()

    def set_retention_policy(
        self, domain: str, patch: Config, *, confirm: bool = False, author: str | None = None
    ) -> results.DomainResult:
        """The same as ``configure(domain, patch)``. Deprecated."""
        _deprecated("set_retention_policy(domain, patch)", "configure(domain, config)")
        return self.configure(domain, patch, confirm=confirm, author=author)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"holdfast.domains.{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)
