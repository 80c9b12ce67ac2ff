"""``holdfast user`` and ``holdfast quota``: who the users are, what is kept of one, and how much each may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.errors import InvalidInputError
from holdfast.core.records import DURABLE, MemoryType
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import Limit
from holdfast.edges.cli.output import Cell, Part, Rows, cut, minute, plural, table

user = add_group(
    __name__,
    "user",
    "List the users whose memories are kept, and show what is kept of one.\n\nExamples:\n    holdfast user list",
)


@table("user, memories>, sessions>, last active!", empty="No memories are kept of anybody in this tenant.")
def _show_users(one: Mapping[str, Any]) -> list[Cell]:
    return [one["user_id"], one["memories"], one["sessions"], minute(one["last_active_at"])]


@command(user, "list", render=_show_users)
def list_users(call: Call, *, limit: Limit = 100, after: str | None = None) -> Any:
    """List the users of a tenant of whom something is kept, by name: how much, and when it was last used.

    Options:
        --after USER  Only users that come after this one: the next page.

    Examples:
        holdfast user list

        holdfast user list --tenant acme --limit 20 --json
    """
    return call.engine.users(after=after, limit=limit)


def _show_user(found: Mapping[str, Any]) -> Iterator[Part]:
    if not found["memories"]:
        yield "No memory of this user is kept."
        return
    least = "" if found["is_whole"] else "The newest of each kind were counted: "
    yield f"{least}{plural(found['memories'], 'memory')}, {plural(found['bytes'], 'byte')}, in every state."
    for name in ("kinds", "states", "agents", "sessions", "sources"):
        yield Rows(f"{name}, memories>", found[name].items())


@command(user, "show", render=_show_user)
def show_user(call: Call, *, user: str) -> Any:
    """Show how many memories of a user there are, by kind, state, agent, session and source.

    Options:
        USER  Whose memories.

    Examples:
        holdfast add "Likes tea" --user alice
        holdfast user show alice
    """
    return call.engine.memories.facets(user)


@table("id!, kind!, state!, agent, made!, leaves!, content", empty="There is no such memory.")
def _show_memories(one: Mapping[str, Any]) -> list[Cell]:
    held = ", held" if one["is_held"] else ""
    leaves = minute(one["purge_at"] or one["expires_at"] or one["archive_at"])
    content = cut(one["content"] or "(nobody may read it)", 60)
    state = f"{one['state']}{held}"
    return [one["memory_id"], one["memory_type"], state, one["agent_id"], minute(one["created_at"]), leaves, content]


@command(user, "memories", render=_show_memories)
def browse_memories(
    call: Call,
    *,
    user: str,
    kind: MemoryType | None = None,
    state: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    source: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: Limit = 50,
) -> Any:
    """Browse the memories of a user without a query: of every agent, in every state, those that were stored last first.

    Options:
        USER  Whose memories.
        --kind -k KIND  Of this kind: <durable kinds>.
        --state STATE  In this state: active, archived or recycled.
        --agent -a AGENT  Of this agent.
        --session -s SESSION  Of this session.
        --source SOURCE  From this source, such as agent:guide.
        --since WHEN  Stored at this ISO moment or later.
        --until WHEN  Stored before this moment.

    Examples:
        holdfast add "Likes tea" --user alice
        holdfast user memories alice

        holdfast user memories alice --state recycled --json
    """
    named: dict[str, Any] = {"agent_id": agent, "session_id": session, "source": source, "state": state}
    found, _ = call.engine.memories.page(
        user, memory_type=kind, **named, created_from=since, created_before=until, limit=limit
    )
    return found


quota = add_group(
    __name__, "quota", "Show and set how much of each kind a user may hold.\n\nExamples:\n    holdfast quota show alice"
)


@table("kind, memories>, at most>, bytes>, at most>", empty="There are no quotas.")
def _show_quotas(usage: Mapping[str, Any]) -> list[Cell]:
    memories, size = _format(usage["max_memories"]), _format(usage["max_bytes"])
    return [usage["memory_type"], usage["memories"], memories, usage["bytes"], size]


@command(quota, "show", render=_show_quotas)
def show_quota(call: Call, *, user: str) -> Any:
    """Show what a user holds of each kind, and how much they may.

    Options:
        USER  Whose quotas.

    Examples:
        holdfast quota show alice
    """
    return [{"memory_type": kind.value, **call.engine.quotas.get(kind, user)._asdict()} for kind in DURABLE]


def _show_set(done: Mapping[str, Any]) -> str:
    whom = done["user_id"] or "everyone without a quota of their own"
    units = {"max_memories": "memories", "max_bytes": "bytes"}
    limits = [f"{_format(done[name])} {unit}" for name, unit in units.items() if name in done]
    return f"Quota of {done['memory_type']} for {whom}: {', '.join(limits)}."


@command(quota, "set", render=_show_set)
def set_quota(
    call: Call,
    *,
    kind: MemoryType,
    max_memories: str | None = None,
    max_bytes: str | None = None,
    user: str | None = None,
) -> Any:
    """Set a quota. A lower one removes nothing: it stops further writes.

    Options:
        KIND  The kind of memory: <durable kinds>.
        --max-memories N  How many memories; unlimited, or default.
        --max-bytes N  How many bytes of content; unlimited, or default.
        --user -u USER  For whom; everyone without a quota of their own, if not given.

    Examples:
        holdfast quota set long_term --max-memories 500 --user alice

        holdfast quota set episodic --max-memories unlimited --max-bytes 1000000000
    """
    if max_memories is None and max_bytes is None:
        raise InvalidInputError("give --max-memories, --max-bytes, or both")
    limits = {"max_memories": _read(max_memories, "--max-memories"), "max_bytes": _read(max_bytes, "--max-bytes")}
    call.engine.quotas.set(kind, **limits, user_id=user)
    given = {name: None if value == "unlimited" else value for name, value in limits.items() if value is not None}
    return {"memory_type": kind.value, "user_id": user, **given}


def _read(text: str | None, name: str) -> int | str | None:
    if text is None or text in ("unlimited", "default"):
        return text
    digits = text.replace(",", "").replace("_", "")
    if not digits.isdecimal() or int(digits) >= 2**63:
        most = 2**63 - 1
        raise InvalidInputError(f"{name} must be a whole number from 0 to {most}, unlimited or default, not {text!r}")
    return int(digits)


def _format(limit: int | str | None) -> str:
    return "unlimited" if limit is None else limit if isinstance(limit, str) else f"{limit:,}"
