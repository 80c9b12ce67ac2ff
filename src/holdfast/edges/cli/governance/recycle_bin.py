"""See what is in the recycle bin, bring it back, or delete what has had its time.

Examples:
    holdfast recycle list
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import Limit, OfUser, of_scope
from holdfast.edges.cli.output import Cell, Output, Part, Rows, cut, plural, table, warn

#: What is brought back, if several things are named (the first counts), and what may say which one is meant.
_NARROWED: Final = {
    "memory_id": {"user_id"},
    "session_id": {"agent_id", "user_id"},
    "agent_id": set[str](),
    "tool_id": set[str](),
    "bundle": {"user_id"},
    "user_id": set[str](),
}

recycle = add_group(__name__, "recycle", __doc__)


@table("id!, kind!, user, what, removed because, days left>", empty="The recycle bin is empty.")
def _show_bin(item: Mapping[str, Any]) -> list[Cell]:
    left = Text(f"{item['days_left']}", style="yellow" if item["days_left"] <= 3 else "")
    kind, whose = item.get("memory_type", item["type"]), item.get("user_id", "everyone")
    return [_id_of(item), kind, whose, cut(_describe(item), 40), item["reason"] or "not given", left]


def _id_of(item: Mapping[str, Any]) -> str:
    names = ("memory_id", "session_id") if item["type"] in ("memory", "message", "session") else (f"{item['type']}_id",)
    return str(next((item[name] for name in names if item.get(name)), item.get("id", "none")))


def _describe(item: Mapping[str, Any]) -> str:
    if item["type"] == "session":
        return f"{plural(item['messages'], 'message')} with {item['agent_id']}"
    if item["type"] == "message":
        return f"with {item['agent_id']}, session {item['session_id']}"
    return str(item.get("content") or "all of its own")


@command(recycle, "list", render=_show_bin)
def list_bin(call: Call, *, user: OfUser = None, limit: Limit = 100) -> Any:
    """List what is in the recycle bin with the days it has left; what leaves first is first.

    Examples:
        holdfast recycle list

        holdfast recycle list --user alice --json
    """
    found = call.engine.recycle.list(user_id=user, limit=limit)
    if found or call.as_json or call.explain_wait() is None:
        return found
    plan: Any = call.engine.sweep(dry_run=True)
    return Output(found, lambda _: _show_waiting(plan)) if plan.waiting else found


def _show_waiting(plan: Any) -> Iterator[Part]:
    waiting = plural(plan.waiting.records, "thing")
    yield warn(f"Nothing in the recycle bin has time left by this clock, but {waiting} must wait:")
    yield f"{plan.waiting.belief.explain()}."


@command(recycle, "restore", of_scope, render=lambda done: f"Restored {done['restored']:,}.")
def restore_from_bin(call: Call, *, tool: str | None = None, bundle: str | None = None) -> Any:
    """Bring back a memory, a session, an agent, a tool, what went together, or all that a user has in the bin, exactly
    as it was.

    A session may be named with its agent and user, a memory or a bundle with its user.

    What it is for:
        --tool TOOL  A tool.
        --bundle NAME  All that went together, as holdfast recycle list --json names it.

    Examples:
        id=$(holdfast add 'Tea' -u alice -q)
        holdfast delete $id -u alice
        holdfast recycle restore --memory $id

        holdfast agent add travel
        holdfast agent remove travel
        holdfast recycle restore --agent travel
    """
    others = {"tool_id": tool, "bundle": bundle}
    given = call.scope | {name: value for name, value in others.items() if value is not None}
    first = next((name for name in _NARROWED if name in given), None)
    if first is None or given.keys() - {first} - _NARROWED[first]:
        raise InvalidInputError(
            "say what to restore by one of --memory, --session, --agent, --tool, --bundle and --user "
            "(a session with its --agent and --user, a memory or a bundle with its --user)"
        )
    return {"restored": call.engine.recycle.restore(**given), **given}


@command(
    recycle,
    "purge",
    render=lambda done: (
        [Rows("kind, deleted for good>", done["purged"].items())]
        if done["purged"]
        else "Nothing in the recycle bin has had its time yet."
    ),
)
def purge_bin(call: Call, *, confirm: bool = False) -> Any:
    """Delete for good what has been in the recycle bin for its 15 days; nothing else.

    Options:
        --confirm  The clock is right, although it leaped or is far ahead.

    Examples:
        holdfast recycle purge
    """
    call.quiet = True
    return {"purged": call.engine.recycle.purge(confirm=confirm)}
