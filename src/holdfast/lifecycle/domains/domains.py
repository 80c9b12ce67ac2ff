"""``holdfast.domains``: retention policies for a caller's own resources, in the domains ``memory`` and ``rag``.

Resources are sorted and archived here, and never deleted. Only Holdfast's own records go by a policy, by the memory
domain's, while its ``auto_gc`` is on.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.core.audit import acting_as, check_author
from holdfast.core.domains import RetentionPolicy, check_domain, evaluate, narrow, normalize, resolved
from holdfast.core.errors import (
    ConfirmationNeededError,
    HoldfastError,
    InvalidInputError,
    ObjectStoreError,
    RulesChangedError,
    StoreTooNewError,
    quote,
)
from holdfast.lifecycle.domains.archives import DomainArchives, check_note
from holdfast.lifecycle.domains.rules import DomainRules, wanted_by
from holdfast.lifecycle.domains.state import DomainStates, Policies, change_policy
from holdfast.ports.access import begin_steps
from holdfast.ports.objects import ObjectStore
from holdfast.ports.rules import DueStore, HoldStore, RuleStore

_log = logging.getLogger("holdfast.domains")
_TRIES: Final = 100
Config = Mapping[str, Any]
Resources = Sequence[Mapping[str, Any]]


class Domains:
    """The domains of one tenant."""

    def __init__(
        self,
        tenant: str,
        *,
        state: ObjectStore,
        objects: Callable[[], ObjectStore],
        rules: RuleStore,
        dues: DueStore,
        holds: HoldStore,
        now: Callable[[], int],
        new_id: Callable[[int], str],
    ) -> None:
        self._states = DomainStates(state, tenant)
        self._archives = DomainArchives(objects, tenant, now, new_id)
        self._rules = DomainRules(rules, dues, holds, tenant=tenant, now=now, new_id=new_id)
        self._now = now

    # --- policies -----------------------------------------------------------------------------------------------------

    def configure(
        self, domain: str, config: Config, *, confirm: bool = False, author: str | None = None
    ) -> dict[str, Any]:
        """Change those fields of a domain's policy that ``config`` names, brought into bounds; the other domain, and
        every other field, stay as they are.

        A change by which memories of Holdfast's own go earlier (``auto_gc``) raises ``ConfirmationNeededError``, which
        says how much that is, unless it is confirmed. It takes effect for all of them at once.
        """
        check_domain(domain)
        if not isinstance(config, Mapping):
            raise InvalidInputError(f"config must be an object with fields of a policy, not {quote(config)}")
        request = begin_steps()
        changed_at = self._now() if request is None else request.began_at

        def edit(known: Policies) -> Policies:
            policy = normalize(config, known.of(domain))
            if domain == "memory" and not confirm:
                self._check(known.memory, policy)
            return change_policy(known, domain, policy, changed_at)

        changed = self._states.change(edit)
        if domain == "memory":
            try:
                with acting_as(check_author(author)):
                    self.follow()
            except HoldfastError as problem:
                problem.add_note("the policy was saved; the next sweep lets it take effect")
                raise
        return {
            "success": True,
            "domain": domain,
            "policy": changed.of(domain).as_dict(),
            "updated_at": changed.updated_at,
        }

    def _check(self, known: RetentionPolicy, policy: RetentionPolicy) -> None:
        """``ConfirmationNeededError`` if a policy lets memories go earlier than the one before."""
        if wanted_by(policy) == wanted_by(known) and self._rules.is_followed(wanted_by(policy)):
            return
        preview = self._rules.preview(wanted_by(policy))
        if preview.shortens:
            raise ConfirmationNeededError(
                f"the policy shortens retention: {preview.describe()}; nothing was changed",
                needs=("confirm",),
            )

    def get(self, domain: str) -> dict[str, Any]:
        """The policy of a domain; the default one, until another is configured."""
        return self._states.read().of(check_domain(domain)).as_dict()

    def list(self) -> dict[str, Any]:
        """The policy of each domain, with the ``version`` of their format and when one was last changed
        (``updated_at``; ``None``: never).
        """
        return self._states.read().to_dict()

    # --- resources ----------------------------------------------------------------------------------------------------

    def apply(self, domain: str, resources: Resources, options: Config | None = None) -> dict[str, Any]:
        """Sort resources into ``eligible`` and ``protected`` (with the reason) by a domain's policy. Deletes nothing.

        ``options`` may name fields of the policy that are to differ this once; what is kept stays kept.
        """
        policy = narrow(self._states.read().of(check_domain(domain)), options)
        return evaluate(policy, resources, self._now()).to_dict(domain)

    def archive(self, domain: str, resources: Resources, options: Config | None = None) -> dict[str, Any]:
        """Write resources to cold storage with a manifest of checksums, and read them back. Deletes nothing.

        ``options`` may have a ``note`` for the manifest.
        """
        note = check_note(options)
        policy = self._states.read().of(check_domain(domain))
        return self._archives.keep(domain, resources, policy.as_dict(), note)

    def archives(self, domain: str) -> Sequence[dict[str, Any]]:
        """The archives of a domain, the oldest first."""
        return self._archives.list(domain)

    def read_archive(self, domain: str, archive_id: str) -> dict[str, Any]:
        """The ``manifest`` and the ``resources`` of an archive; ``ObjectDamagedError`` if either was changed."""
        return self._archives.read(domain, archive_id)

    def resolve_gc_params(
        self, domain: str, raw_args: Config | None = None, validated_args: Config | None = None
    ) -> dict[str, Any]:
        """The parameters of a garbage collection: what a caller gave wins, the domain's policy has the rest."""
        for name, given in (("raw_args", raw_args), ("validated_args", validated_args)):
            if given is not None and not isinstance(given, Mapping):
                raise InvalidInputError(f"{name} must be an object, not {quote(given)}")
        return resolved(self._states.read().of(check_domain(domain)), raw_args or {}, validated_args or {})

    # --- Holdfast's own records ---------------------------------------------------------------------------------------

    def follow(self) -> bool:
        """Let the rules say what the memory domain's policy asks; whether that was to be done.

        Whoever changes the policy does this afterwards, and looks again: the last of several finds what the last of
        them wrote. Where no policy was ever set, nothing is asked.
        """
        for turn in range(_TRIES):
            policies = self._states.read()
            wanted = wanted_by(policies.memory)
            if policies.updated_at is None or self._rules.is_followed(wanted):
                return turn > 0
            self._rules.follow(wanted)
        raise RulesChangedError("the policy of the memory domain keeps changing while it takes effect; try again")

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
            return self._states.read().memory
        except (ObjectStoreError, StoreTooNewError) as problem:
            _log.warning("nothing goes by the memory domain's policy: %s", problem)
            return None

    # --- names of before ----------------------------------------------------------------------------------------------

    def policies(self) -> dict[str, Any]:
        """Both policies: ``version``, ``updated_at``, ``memory``, ``rag``. Deprecated: use ``get(domain)``."""
        _deprecated("policies()", "get(domain)")
        return self.list()

    def set(self, domain: str, patch: Config, *, confirm: bool = False, author: str | None = None) -> dict[str, Any]:
        """The same as ``configure(domain, patch)``. Deprecated."""
        _deprecated("set(domain, patch)", "configure(domain, config)")
        return self.configure(domain, patch, confirm=confirm, author=author)

    def get_retention_policies(self) -> dict[str, Any]:
        """The same as ``policies()``. Deprecated: use ``get(domain)``."""
        _deprecated("get_retention_policies()", "get(domain)")
        return self.list()

    def set_retention_policy(
        self, domain: str, patch: Config, *, confirm: bool = False, author: str | None = None
    ) -> dict[str, Any]:
        """The same as ``configure(domain, patch)``. Deprecated."""
        _deprecated("set_retention_policy(domain, patch)", "configure(domain, config)")
        return self.configure(domain, patch, confirm=confirm, author=author)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"holdfast.domains.{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)
