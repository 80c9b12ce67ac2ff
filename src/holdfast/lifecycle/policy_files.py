"""Policy as code: the rules of a tenant in a TOML file, to be set as one (``Policies.set_all``).

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
from pathlib import Path
from typing import Any, Final

from holdfast.core.errors import InvalidRuleError, told
from holdfast.core.rules import EpisodicRetentionPolicy, shown_terms
from holdfast.lifecycle.policies import SCOPE, TIMES

_KNOBS: Final = tuple(EpisodicRetentionPolicy.__dataclass_fields__)
_FIELDS: Final = ("memory_type", *SCOPE, *TIMES)


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
        if policy.get("memory_type", "episodic") != "episodic" or any(name in policy for name in TIMES):
            raise InvalidRuleError(f"{where}: {', '.join(knobs)} are for episodic memory, without other times")
        policy = {"memory_type": "episodic", **policy, **shown_terms(EpisodicRetentionPolicy(**knobs).terms())}
    if unknown := sorted(set(policy) - set(_FIELDS)):
        raise InvalidRuleError(f"{where} has unknown fields {unknown}; known are: {', '.join((*_FIELDS, *_KNOBS))}")
    if "memory_type" not in policy:
        raise InvalidRuleError(f"{where} has no memory_type: {told(dict(given))}")
    for name in ("memory_type", *SCOPE):
        if name in policy and not isinstance(policy[name], str):
            raise InvalidRuleError(f"{where}: {name} must be a text, not {told(policy[name])}; write a policy for each")
    return policy


def _whose(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return (rule["memory_type"], *(rule.get(part) for part in SCOPE))
