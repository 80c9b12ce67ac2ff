"""Operations on rules: how long things live, what a change would come to, and how much a user may hold."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from holdfast.core.records import DURABLE, Usage
from holdfast.core.rules import DEFAULTS, EVERY, MOST_VERSIONS
from holdfast.edges.operations.models import Confirm, Id, Input, MaybeUser, OneUser, Paged, Scoped, example
from holdfast.edges.operations.operation import GOVERN, MEMORY, READ, TENANT, USER, WHOSE, Group
from holdfast.edges.operations.outputs import ListOf, PageOf, output_of
from holdfast.engine import Holdfast, MemoryManager
from holdfast.lifecycle.previews import Preview
from holdfast.results.lifecycle import PolicyResult, QuotaLimitsResult, RuleChangeResult, RuleResult, RulesResult

policies = Group("policies", "How long things live: rules, what they come to, and what a change would.")
quotas = Group("quotas", "How much of each kind a user holds, and how much they may.")

#: What rules can be made for: the kinds (working memory ends with its task), conversations, the audit chain, all kinds.
Ruled = StrEnum(  # type: ignore[misc]  # the members are those of the rules
    "Ruled", {name.upper() if name != EVERY else "EVERY": name for name in (*DEFAULTS, EVERY) if name != "working"}
)
DurableKind = StrEnum("DurableKind", {kind.name: kind.value for kind in DURABLE})  # type: ignore[misc]
Days = Annotated[float, Field(gt=0, le=365_000)]
Most = Annotated[int, Field(ge=0, lt=2**63)]


class RuleScope(Input):
    """What a rule is for, and for whom; for the whole tenant, where nobody is named."""

    memory_type: Ruled = Field(strict=False, description="For what: a kind, `history`, `audit`, or `*` for every kind.")
    user_id: MaybeUser = None
    agent_id: Id | None = Field(None, description="Of which agent; of all of them, if not given.")
    session_id: Id | None = Field(None, description="In which session; in any of them, if not given.")
    memory_id: Id | None = Field(None, description="One memory of the user.")


class NewRule(RuleScope):
    """How long a kind lives, for a scope."""

    model_config = example({"user_id": "alice", "archive_after_days": 90, "delete_after_days": 400})

    archive_after_days: Days | Literal["never"] | None = Field(None, description="To cold storage after so long.")
    delete_after_days: Days | Literal["never"] | None = Field(None, description="Removed after so long.")
    keep_days: Days | Literal["forever"] | None = Field(None, description="Not removed before, whatever others say.")
    versions: int | None = Field(None, ge=0, le=MOST_VERSIONS, description="How many ended versions are kept.")
    versions_days: Days | Literal["forever"] | None = Field(None, description="Ended versions are kept for so long.")


class RuleChange(NewRule):
    """A rule to be set."""

    model_config = example({"user_id": "alice", "delete_after_days": 400, "confirm": True})

    confirm: Confirm = False


class RuleRemoval(RuleScope):
    """A rule to be removed."""

    confirm: Confirm = False


class RuleEffect(output_of(Preview, without=frozenset({"rules"}))):  # type: ignore[misc]
    """What a change would come to."""

    rule: output_of(RuleResult)  # type: ignore[valid-type]


@policies.add("GET /policies", READ, TENANT)
def list_policies(holdfast: Holdfast, asked: Paged) -> PageOf[RuleResult]:
    """List every rule in force."""
    rules = holdfast.policies.list()
    places = {id(rule): f"0{place:04}" for place, rule in enumerate(rules) if rule["level"] == "default"}

    def key(rule: RuleResult) -> str:
        named = [part in rule for part in ("memory_id", "session_id", "agent_id", "user_id")]
        wide = "".join(str(int(one)) for one in (*named, rule["memory_type"] != EVERY))
        return places.get(id(rule)) or f"1{wide}{rule['rule_id']}"

    return asked.cut_page(rules, key)


@policies.add("GET /policies/{memory_type}", READ, WHOSE)
def get_policy(holdfast: Holdfast, asked: RuleScope) -> PolicyResult:
    """Say how long a kind lives for a user, an agent and a session, and which rules say so."""
    return holdfast.policies.get(**asked.to_arguments())


@policies.add("GET /rules", READ, MEMORY, tool="memory_rules")
def get_rules(memory: MemoryManager, _asked: Scoped) -> RulesResult:
    """Say how long each kind of memory is kept for a user and an agent, in words and numbers.

    It says after how many days memories are archived, after how many they are deleted or that they never are, how long
    they can be restored from the recycle bin, how long short-term memory and conversations last, quotas, and the holds
    that keep things. Use it when the user asks how long something is kept; for one memory in particular, use
    memory_explain.
    """
    return memory.rules()


@policies.add("POST /policies/{memory_type}/preview", READ, WHOSE, RuleEffect, errors=(404,))
def preview_policy(holdfast: Holdfast, asked: NewRule) -> Any:
    """Say what a rule would come to. Changes nothing."""
    preview = holdfast.policies.preview(**asked.to_arguments())
    return {name: getattr(preview, name) for name in RuleEffect.model_fields}


@policies.add("PUT /policies/{memory_type}", GOVERN, WHOSE, errors=(404, 428))
def set_policy(holdfast: Holdfast, asked: RuleChange) -> RuleChangeResult:
    """Set a rule, in place of the one for the same kind and scope.

    One that makes anything go earlier than now needs `confirm`: look at its preview first. It takes effect for all
    records at once.
    """
    return holdfast.policies.set(**asked.to_arguments())


@policies.add("DELETE /policies/{memory_type}", GOVERN, WHOSE, errors=(404, 428))
def remove_policy(holdfast: Holdfast, asked: RuleRemoval) -> RuleChangeResult:
    """Remove a rule: what it said is again said by wider rules, or by the defaults."""
    return holdfast.policies.remove(**asked.to_arguments())


# --- quotas -----------------------------------------------------------------------------------------------------------


class NewQuota(Input):
    """How much is allowed; what is not given stays."""

    model_config = example({"user_id": "alice", "max_memories": 500, "max_bytes": "unlimited"})

    memory_type: DurableKind = Field(strict=False, description="The kind of memory.")
    user_id: Id | None = Field(None, description="For whom; for everyone without a quota of their own, if not given.")
    max_memories: Most | Literal["unlimited", "default"] | None = Field(None, description="So many of the kind.")
    max_bytes: Most | Literal["unlimited", "default"] | None = Field(None, description="So much of the kind.")


class KindUsage(output_of(Usage)):  # type: ignore[misc]
    """What a user holds of a kind, and how much they may; `null` is no limit."""

    memory_type: str


class Quota(TypedDict):
    """A quota that was set."""

    memory_type: str
    user_id: str | None
    max_memories: int | str | None
    max_bytes: int | str | None
    before: QuotaLimitsResult
    """What the limits were."""


@quotas.add("GET /users/{user_id}/quotas", READ, USER, ListOf[KindUsage])
def get_quotas(holdfast: Holdfast, asked: OneUser) -> Any:
    """Say what a user holds of each kind, and how much they may."""
    usages = {kind.value: holdfast.quotas.get(kind, asked.user_id)._asdict() for kind in DURABLE}
    return {"items": [{"memory_type": kind, **usage} for kind, usage in usages.items()]}


@quotas.add("PUT /quotas/{memory_type}", GOVERN, WHOSE, Quota)
def set_quota(holdfast: Holdfast, asked: NewQuota) -> Any:
    """Set a quota. A lower one removes nothing: it stops further writes."""
    limits = asked.to_arguments("memory_type", "user_id")
    before = holdfast.quotas.set(asked.memory_type.value, **limits, user_id=asked.user_id)
    who = {"memory_type": asked.memory_type.value, "user_id": asked.user_id}
    return {**who, "max_memories": asked.max_memories, "max_bytes": asked.max_bytes, "before": before}
