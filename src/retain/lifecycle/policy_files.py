"""Policy as code: the rules of a tenant in a TOML file, compared with those in force and applied as one change set.

    [[policy]]
    memory_type = "episodic"
    agent_id = "travel_agent"
    archive_after_days = 30
    delete_after_days = 180

A rule that is in force and not in the file is left alone, unless the file says ``exclusive = true``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from retain.core.errors import ConfirmationNeededError, InvalidRuleError, told
from retain.core.rules import EpisodicRetentionPolicy, shown_terms
from retain.lifecycle.policies import Policies, Preview

_KNOBS: Final = tuple(EpisodicRetentionPolicy.__dataclass_fields__)
_SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id")
_TIMES: Final = ("archive_after_days", "delete_after_days", "keep_days")
_FIELDS: Final = ("memory_type", *_SCOPE, *_TIMES)


@dataclass(frozen=True, slots=True)
class Change:
    """One rule that a file sets, or takes away."""

    action: str
    """``set``, ``keep`` (it says so already) or ``remove``."""
    rule: dict[str, Any]
    preview: Preview | None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All that applying a file would change."""

    changes: tuple[Change, ...]

    @property
    def shortens(self) -> bool:
        """Whether anything would go earlier than now."""
        return any(change.preview is not None and change.preview.shortens for change in self.changes)

    @property
    def newly_due(self) -> int:
        """How many records it makes due at once."""
        previews = (change.preview for change in self.changes if change.preview is not None)
        return sum(sum(preview.newly_due.values()) for preview in previews)

    def shown(self) -> list[dict[str, Any]]:
        """The change set as callers of a service see it."""
        return [
            {
                "action": change.action,
                **change.rule,
                **(
                    {}
                    if change.preview is None
                    else {"shortens": change.preview.shortens, "newly_due": change.preview.newly_due}
                ),
            }
            for change in self.changes
        ]


def read_policies(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The rules in a file, each as arguments of ``Policies.set``, and whether they are to be the only ones."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidRuleError(f"cannot read {path}: {problem}") from problem
    except tomllib.TOMLDecodeError as problem:
        raise InvalidRuleError(f"{path} is not valid TOML: {problem}") from problem
    policies = document.pop("policy", None)
    exclusive = document.pop("exclusive", False)
    if not isinstance(exclusive, bool):
        raise InvalidRuleError(f"{path}: exclusive must be true or false, not {told(exclusive)}")
    if document:
        raise InvalidRuleError(f"{path} has unknown parts {sorted(document)}; it holds [[policy]] tables and exclusive")
    if not isinstance(policies, list) or not policies or not all(isinstance(policy, dict) for policy in policies):
        raise InvalidRuleError(f"{path} has no [[policy]] table; write one for each rule")
    read = [_policy(policy, f"{path}, policy {place}") for place, policy in enumerate(policies, 1)]
    seen: dict[tuple[Any, ...], int] = {}
    for place, policy in enumerate(read, 1):
        first = seen.setdefault(_whose(policy), place)
        if first != place:
            raise InvalidRuleError(f"{path}: policies {first} and {place} are for the same kind and scope; keep one")
    return read, exclusive


def _policy(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    policy = dict(given)
    knobs = {name: policy.pop(name) for name in _KNOBS if name in policy}
    if knobs:
        if policy.get("memory_type", "episodic") != "episodic" or any(name in policy for name in _TIMES):
            raise InvalidRuleError(f"{where}: {', '.join(knobs)} are for episodic memory, without other times")
        policy = {"memory_type": "episodic", **policy, **shown_terms(EpisodicRetentionPolicy(**knobs).terms())}
    if unknown := sorted(set(policy) - set(_FIELDS)):
        raise InvalidRuleError(f"{where} has unknown fields {unknown}; known are: {', '.join((*_FIELDS, *_KNOBS))}")
    if "memory_type" not in policy:
        raise InvalidRuleError(f"{where} has no memory_type: {told(dict(given))}")
    for name in ("memory_type", *_SCOPE):
        if name in policy and not isinstance(policy[name], str):
            raise InvalidRuleError(f"{where}: {name} must be a text, not {told(policy[name])}; write a policy for each")
    return policy


def compare(policies: Policies, wanted: list[dict[str, Any]], *, exclusive: bool) -> ChangeSet:
    """What applying rules would change. Every rule is checked; the first that is wrong is an error."""
    set_here = (rule for rule in policies.list() if rule["level"] not in ("default", "domain"))
    standing = {_whose(rule): rule for rule in set_here}
    changes = []
    for policy in wanted:
        arguments = dict(policy)
        preview = policies.preview(arguments.pop("memory_type"), **arguments)
        known = standing.pop(_whose(policy), None)
        same = known is not None and all(known.get(name) == preview.rule.get(name) for name in _TIMES)
        changes.append(Change("keep" if same else "set", policy, None if same else preview))
    if exclusive:
        for rule in standing.values():
            scope: dict[str, Any] = {part: rule[part] for part in _SCOPE if part in rule}
            removal = policies.preview_removal(rule["memory_type"], **scope)
            changes.append(Change("remove", {"memory_type": rule["memory_type"], **scope}, removal))
    return ChangeSet(tuple(changes))


def apply_policies(
    policies: Policies, wanted: list[dict[str, Any]], *, exclusive: bool, confirm: bool, author: str
) -> ChangeSet:
    """Apply rules from a file, all of them or (where one is wrong, or shortens retention unconfirmed) none."""
    changes = compare(policies, wanted, exclusive=exclusive)
    if changes.shortens and not confirm:
        raise ConfirmationNeededError(
            f"the file shortens retention and makes {changes.newly_due:,} memories due at once; nothing was changed: "
            "look at the preview, then apply it with --confirm"
        )
    for change in changes.changes:
        if change.action == "keep":
            continue
        arguments = dict(change.rule)
        kind = arguments.pop("memory_type")
        if change.action == "set":
            policies.set(kind, **arguments, confirm=True, author=author)
        else:
            policies.remove(kind, **arguments, confirm=True, author=author)
    return changes


def _whose(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return (rule["memory_type"], *(rule.get(part) for part in _SCOPE))
