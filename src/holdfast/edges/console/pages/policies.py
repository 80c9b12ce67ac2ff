"""Policies: the rules in force, what they come to for a user and an agent, quotas, and changing either."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.records import DURABLE
from holdfast.edges.console.formats import link, number, size
from holdfast.edges.console.table import Effect, Entry, Fields, Section, Undo
from holdfast.edges.console.visit import Visit
from holdfast.edges.operations.policies import Ruled

policies = Section("Policies")
_PATH: Final = "/policies"
_SCOPE: Final = ("memory_type", "user_id", "agent_id", "session_id", "memory_id")
_TERMS: Final = ("archive_after_days", "delete_after_days", "keep_days", "versions", "versions_days")
_WHOM: Final = (
    Entry(
        "memory_type", "For what", "choice", "A kind of memory, history (conversations), audit, or * for all.", [*Ruled]
    ),
    Entry("user_id", "User", hint="Everyone, if empty.", needed=False),
    Entry("agent_id", "Agent", hint="Every agent, if empty.", needed=False),
    Entry("session_id", "Session", hint="Every session, if empty.", needed=False),
)
_LIFE: Final = (
    Entry(
        "archive_after_days",
        "Archive after, in days",
        hint="Or: never. What is left empty stays as it is.",
        needed=False,
    ),
    Entry("delete_after_days", "Delete after, in days", hint="Or: never.", needed=False),
    Entry(
        "keep_days", "Keep for at least, in days", hint="Or: forever. No other rule removes it before.", needed=False
    ),
    Entry("versions", "Ended versions that are kept", "number", needed=False),
    Entry("versions_days", "Ended versions are kept for, in days", hint="Or: forever.", needed=False),
)


@policies.page(_PATH, may_call=["list_policies", "get_rules", "list_agents"])
def show_policies(visit: Visit) -> dict[str, Any]:
    """Every rule in force, the defaults first; for a key that is bound to someone, where to see what applies."""
    asked = {"cursor": visit.query.get("cursor")}
    found = visit.call("list_policies", **asked, limit=100) if visit.may("list_policies") else None
    return {"asked": asked, "found": found, "scope_of": scope_of, "terms_of": terms_of, "agents": _agents(visit)}


@policies.page(f"{_PATH}/applied", calls=["get_rules"], may_call=["get_quotas", "list_agents"], title="What applies")
def show_applied(visit: Visit) -> dict[str, Any]:
    """How long each kind is kept for a user and an agent, which rule says so, and how much they may hold."""
    whose = {name: visit.query.get(name) for name in ("agent_id", "session_id")} | {"user_id": visit.user_id}
    if whose["user_id"] is None or whose["agent_id"] is None:
        return {"whose": whose, "rules": None, "quotas": None, "agents": _agents(visit)}
    rules = visit.call("get_rules", **whose)
    quotas = visit.call("get_quotas", user_id=whose["user_id"])["items"] if visit.may("get_quotas") else None
    return {"whose": whose, "rules": rules, "quotas": quotas, "agents": _agents(visit)}


def _agents(visit: Visit) -> list[str]:
    return [one["agent_id"] for one in visit.call("list_agents")["items"]] if visit.may("list_agents") else []


def scope_of(rule: dict[str, Any]) -> Fields:
    """What a rule is for, as the fields of the actions on it."""
    return {name: rule.get(name) for name in _SCOPE}


def terms_of(rule: dict[str, Any]) -> Fields:
    """What a rule says, as fields."""
    return {name: _write(rule[name]) for name in _TERMS if rule.get(name) is not None}


def _write(term: object) -> object:
    return f"{term:g}" if isinstance(term, float) else term


def _describe(fields: Fields) -> str:
    named = [f"{name.removesuffix('_id')} {fields[name]}" for name in _SCOPE[1:] if name in fields]
    return f"the rule for {fields['memory_type']} of {', '.join(named) or 'everyone'}"


def _describe_due(result: dict[str, Any]) -> str:
    due = ", ".join(f"{count:,} to {action}" for action, count in result["newly_due"].items() if count)
    return f"it makes {due} due at once" if due else "it makes nothing due at once"


def _undo_rule(fields: Fields, result: dict[str, Any]) -> Undo:
    """What was there before comes back: the rule as it was, or none."""
    whom: Fields = {name: fields[name] for name in _SCOPE if name in fields}
    before = result["before"]
    return Undo("remove_policy", whom) if before is None else Undo("set_policy", {**whom, **terms_of(before)})


@policies.action(
    "set_policy",
    "Set a rule",
    "Set it",
    entries=(*_WHOM, *_LIFE),
    may_call=["preview_policy"],
    back=lambda _fields: link(_PATH),
    describe=lambda fields, result: f"{_describe(fields)} is set; {_describe_due(result)}",
    undo=_undo_rule,
)
def preview_rule(visit: Visit, fields: Fields) -> Effect | None:
    """What the rule would make due."""
    if not any(name in fields for name in _TERMS):
        return None
    found = visit.call("preview_policy", **{name: value for name, value in fields.items() if name != "confirm"})
    terms = {name.removesuffix("_days").replace("_", " "): value for name, value in terms_of(found["rule"]).items()}
    earlier = (
        "something is archived or removed earlier than now" if found["shortens"] else "nothing goes earlier than now"
    )
    return Effect(
        [f"{_describe(fields)} then says: {', '.join(f'{name} {value}' for name, value in terms.items())}", earlier],
        _effect_rows(found),
        {"confirm": "true"} if found["shortens"] else {},
    )


def _effect_rows(found: dict[str, Any]) -> list[tuple[str, Any]]:
    due = found["newly_due"]
    return [
        ("due at once: to cold storage", number(due.get("archive", 0))),
        ("due at once: to the recycle bin", number(due.get("recycle", 0))),
        ("due at once: deleted for good", number(due.get("delete", 0))),
        ("size of these", size(found["bytes"])),
        ("kept by a hold", number(found["held"])),
    ]


@policies.action(
    "remove_policy",
    "Remove a rule",
    "Remove it",
    may_call=["get_policy"],
    back=lambda _fields: link(_PATH),
    describe=lambda fields, result: f"{_describe(fields)} is removed; {_describe_due(result)}",
    undo=_undo_rule,
    is_danger=True,
)
def preview_removal(visit: Visit, fields: Fields) -> Effect:
    """What the rule says now. Whether anything becomes due by its removal, the store says before it is removed."""
    now = visit.call("get_policy", **{name: fields.get(name) for name in _SCOPE})
    return Effect(
        [
            f"{_describe(fields)} no longer applies: wider rules or the defaults say what it said",
            "if that makes anything go earlier, you are asked once more before it happens",
        ],
        [(name.replace("_", " "), now[name]) for name in ("archive_by", "delete_by", "keep_by") if now[name]],
    )


@policies.action(
    "set_quota",
    "Set a quota",
    "Set it",
    entries=(
        Entry("memory_type", "Kind", "choice", choices=[kind.value for kind in DURABLE]),
        Entry("user_id", "User", hint="Everyone without a quota of their own, if empty.", needed=False),
        Entry("max_memories", "Memories at most", hint="Or: unlimited, or: default.", needed=False),
        Entry("max_bytes", "Bytes at most", hint="Or: unlimited, or: default.", needed=False),
    ),
    may_call=["get_quotas"],
    back=lambda fields: link(f"{_PATH}/applied", user_id=fields.get("user_id")),
    describe=lambda fields, _result: (
        f"the quota for {fields['memory_type']} of {fields.get('user_id', 'everyone')} is set"
    ),
    undo=lambda fields, result: Undo("set_quota", {**fields, **result["before"]}),
)
def preview_quota(visit: Visit, fields: Fields) -> Effect | None:
    """What the user holds now, beside what they may."""
    if not {"max_memories", "max_bytes"} & fields.keys():
        return None
    rows: list[tuple[str, Any]] = []
    if "user_id" in fields and visit.may("get_quotas"):
        usages = visit.call("get_quotas", user_id=fields["user_id"])["items"]
        now = next(one for one in usages if one["memory_type"] == fields["memory_type"])
        rows = [("memories now", number(now["memories"])), ("size now", size(now["bytes"]))]
    return Effect(["a lower quota removes nothing: it stops further writes"], rows)
