"""``/v1/policies``: how long things live, and what a change of that would come to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.rules import AUDIT, DEFAULTS, EVERY, HISTORY
from holdfast.core.types import MemoryType
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import (
    MOMENT,
    AgentId,
    Answer,
    InSession,
    MaybeAgent,
    MaybeUser,
    Metadata,
    OfAgent,
    OfUser,
    Request,
    SessionId,
    UserId,
    example,
)
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, page_of
from holdfast.edges.rest.rights import Reach
from holdfast.lifecycle.previews import Preview

routes = Routes("policies", "How long things live: rules, what they come to, and what a change would.")

#: What rules can be made for: the kinds (working memory ends with its task), conversations, the audit chain, all kinds.
Ruled = StrEnum(  # type: ignore[misc]  # the members are those of the rules
    "Ruled", {name.upper() if name != EVERY else "EVERY": name for name in (*DEFAULTS, EVERY) if name != "working"}
)
assert {HISTORY, AUDIT, EVERY, MemoryType.LONG_TERM.value} <= set(Ruled)  # noqa: S101 - the table above

RuleKind = Annotated[
    Ruled, Path(description="What the rule is for: a kind, `history`, `audit`, or `*` for every kind.")
]
Days = Annotated[float, Field(gt=0, le=365_000)]
OneMemory = Annotated[str | None, Query(max_length=256, description="One memory of the user.")]
Confirmed = Annotated[bool, Query(description="You have looked at what it comes to.")]


class Scope(Request):
    """Whom a rule is for; the whole tenant, where nothing is said."""

    user_id: UserId | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    memory_id: Annotated[str, Field(max_length=256, description="One memory of the user.")] | None = None


class NewRule(Scope):
    """How long a kind lives, for a scope."""

    model_config = example({"user_id": "alice", "archive_after_days": 90, "delete_after_days": 400})

    archive_after_days: Days | Literal["never"] | None = Field(
        default=None, description="To cold storage after so long."
    )
    delete_after_days: Days | Literal["never"] | None = Field(default=None, description="Removed after so long.")
    keep_days: Days | Literal["forever"] | None = Field(
        default=None, description="Not removed for so long, whatever other rules say."
    )


class RuleChange(NewRule):
    """A rule to be set."""

    model_config = example({"user_id": "alice", "delete_after_days": 400, "confirm": True})

    confirm: bool = Field(default=False, description="You have looked at what it comes to.")


class Rule(Answer):
    """A rule that is in force."""

    model_config = example(
        {
            "rule_id": None,
            "memory_type": "episodic",
            "level": "default",
            "archive_after_days": 90,
            "delete_after_days": 365,
            "version": 0,
        }
    )

    rule_id: str | None
    memory_type: str
    level: str
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    memory_id: str | None = None
    archive_after_days: float | str | None = None
    delete_after_days: float | str | None = None
    keep_days: float | str | None = None
    version: int
    updated_at: str | None = None


class RulePage(Page):
    """Some rules, the defaults first, then from the widest to the most specific."""

    items: list[Rule]


class Life(Answer):
    """What the rules that meet come to; `null` is never."""

    model_config = example(
        {
            "memory_type": "episodic",
            "archive_after_days": 90,
            "archive_by": "the default for episodic",
            "delete_after_days": 365,
            "delete_by": "the default for episodic",
            "keep_days": None,
            "keep_by": None,
        }
    )

    memory_type: str
    archive_after_days: float | str | None
    archive_by: str
    delete_after_days: float | str | None
    delete_by: str
    keep_days: float | str | None
    keep_by: str | None


class KindRules(Answer):
    """How long one kind is kept; `null` is never."""

    memory_type: str = Field(description="The kind; `history` is the conversation that short-term memory leaves.")
    rule: str = Field(description="The rule in force, in sentences.")
    archive_after_days: float | str | None
    archive_by: str | None
    delete_after_days: float | str | None = Field(description="Then it goes to the recycle bin.")
    delete_by: str | None
    keep_days: float | str | None
    keep_by: str | None
    gone_after_days: float | None = Field(description="Deleted for good: its time and the recycle bin's.")
    ttl_seconds: float | None = Field(description="Of short-term memory: after the session's last message.")
    max_memories: int | None = Field(description="The quota; `null`: no limit.")
    max_bytes: int | None
    quota_remaining: int | None
    exceptions: list[Metadata] = Field(description="Rules for single sessions or memories of the user.")


class RulesInForce(Answer):
    """The rules in force for one user, agent and session."""

    model_config = example(
        {
            "user_id": "alice",
            "agent_id": "travel_agent",
            "session_id": None,
            "summary": "persona: Never deleted by a rule (the default for persona); it stays until someone deletes it.",
            "recycle_bin_days": 15,
            "kinds": [
                {
                    "memory_type": "persona",
                    "rule": "Never deleted by a rule (the default for persona); it stays until someone deletes it.",
                    "archive_after_days": None,
                    "archive_by": "the default for persona",
                    "delete_after_days": None,
                    "delete_by": "the default for persona",
                    "keep_days": "forever",
                    "keep_by": "the default for persona",
                    "gone_after_days": None,
                    "ttl_seconds": None,
                    "max_memories": 1_000,
                    "max_bytes": 67_108_864,
                    "quota_remaining": 998,
                    "exceptions": [],
                }
            ],
            "holds": [],
        }
    )

    user_id: str
    agent_id: str
    session_id: str | None
    summary: str = Field(description="All of it in sentences, a line for each kind.")
    recycle_bin_days: int = Field(description="What is removed can be restored for so long.")
    kinds: list[KindRules]
    holds: list[Metadata] = Field(description="Holds that name the user, the agent or the session: nothing goes.")


class Effect(Answer):
    """What a change would come to."""

    model_config = example(
        {
            "rule": {"rule_id": None, "memory_type": "episodic", "level": "user", "user_id": "alice", "version": 1},
            "shortens": True,
            "newly_due": {"archive": 0, "delete": 0, "recycle": 12},
            "bytes": 48_000,
            "held": 0,
        }
    )

    rule: Rule
    shortens: bool = Field(description="Something would be archived or removed earlier than it is now.")
    newly_due: dict[str, int] = Field(description="How many records it makes due at once, by action.")
    bytes: int
    held: int = Field(description="How many more it would make due at once, did no hold keep them.")


class SetRule(Rule):
    """A rule that was set, and what that made due at once."""

    model_config = example(
        {
            "rule_id": "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77",
            "memory_type": "episodic",
            "level": "user",
            "user_id": "alice",
            "delete_after_days": 400,
            "version": 1,
            "updated_at": MOMENT,
            "newly_due": {"archive": 0, "delete": 0, "recycle": 0},
            "bytes": 0,
            "held": 0,
        }
    )

    newly_due: dict[str, int]
    bytes: int
    held: int


@routes.add("GET", "/policies", Right.READ, Reach.TENANT, answer=RulePage)
def list_policies(caller: Asking, limit: Limit = 100, cursor: After = None) -> Response:
    """List every rule in force."""
    found = list(enumerate(caller.tenant().policies.list()))
    defaults = sum(rule["level"] == "default" for _, rule in found)

    def key(pair: tuple[int, Metadata]) -> str:
        place, rule = pair
        if place < defaults:
            return f"0{place:04}"
        parts = ("memory_id", "session_id", "agent_id", "user_id")
        named = "".join("1" if rule.get(part) else "0" for part in parts) + str(int(rule["memory_type"] != EVERY))
        return f"1{named}{rule['rule_id']}"

    page = page_of(found, limit, cursor, listing="policies", asked=(caller.gate.tenant_id,), key=key)
    return answer({**page, "items": [rule for _, rule in page["items"]]})


@routes.add("GET", "/policies/{memory_type:id}", Right.READ, Reach.WHOSE, answer=Life)
def get_policy(
    *,
    caller: Asking,
    memory_type: RuleKind,
    user_id: MaybeUser = None,
    agent_id: MaybeAgent = None,
    session_id: InSession = None,
    memory_id: OneMemory = None,
) -> Response:
    """Say how long a kind lives for a user, an agent and a session, and which rules say so."""
    holdfast = caller.whose(user_id)
    said = holdfast.policies.get(
        memory_type.value, user_id=user_id, agent_id=agent_id, session_id=session_id, memory_id=memory_id
    )
    return answer(said)


@routes.add("GET", "/rules", Right.READ, Reach.MEMORY, answer=RulesInForce)
def get_rules(caller: Asking, user_id: OfUser, agent_id: OfAgent, session_id: InSession = None) -> Response:
    """Say how long each kind of memory is kept for a user and an agent, in words and numbers."""
    return answer(caller.memory(user_id, agent_id, session_id).rules())


@routes.add("POST", "/policies/{memory_type:id}/preview", Right.READ, Reach.WHOSE, answer=Effect)
def preview_policy(caller: Asking, memory_type: RuleKind, new: NewRule) -> Response:
    """Say what a rule would come to. Changes nothing."""
    given = new.model_dump(exclude_none=True)
    return answer(_shown(caller.whose(new.user_id).policies.preview(memory_type.value, **given)))


@routes.add("PUT", "/policies/{memory_type:id}", Right.GOVERN, Reach.WHOSE, answer=SetRule, errors=(409, 428))
def set_policy(caller: Asking, memory_type: RuleKind, new: RuleChange) -> Response:
    """Set a rule, in place of the one for the same kind and scope.

    One that makes anything go earlier than now needs `confirm`: look at its preview first. It takes effect for all
    records at once.
    """
    given: dict[str, Any] = new.model_dump(exclude_none=True)
    return answer(caller.whose(new.user_id).policies.set(memory_type.value, **given, author=caller.name))


@routes.add("DELETE", "/policies/{memory_type:id}", Right.GOVERN, Reach.WHOSE, answer=SetRule, errors=(404, 409, 428))
def remove_policy(
    *,
    caller: Asking,
    memory_type: RuleKind,
    user_id: MaybeUser = None,
    agent_id: MaybeAgent = None,
    session_id: InSession = None,
    memory_id: OneMemory = None,
    confirm: Confirmed = False,
) -> Response:
    """Take a rule away: what it said is again said by wider rules, or by the defaults."""
    done = caller.whose(user_id).policies.remove(
        memory_type.value,
        user_id=user_id,
        agent_id=agent_id,
        session_id=session_id,
        memory_id=memory_id,
        confirm=confirm,
        author=caller.name,
    )
    return answer(done)


def _shown(preview: Preview) -> dict[str, Any]:
    return {
        "rule": preview.rule,
        "shortens": preview.shortens,
        "newly_due": preview.newly_due,
        "bytes": preview.bytes,
        "held": preview.held,
    }
