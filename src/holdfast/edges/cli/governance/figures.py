"""``holdfast overview``, ``forecast`` and ``life``: the tenant at a glance, the days to come, and all of one memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import MemoryId
from holdfast.edges.cli.output import Cell, Part, Rows, cut, facts, good, indent, minute, plural, warn

_DAYS: Final = 120
_ACTIONS: Final = ("archive", "recycle", "delete")


def _show_overview(seen: Mapping[str, Any]) -> Iterator[Part]:
    live = sum(one["memories"] for one in seen["kept"] if one["state"] != "recycled")
    yield f"{plural(live, 'memory')} of {plural(seen['users'], 'user')}, as of {minute(seen['at'])} UTC."
    rows = [
        [one["memory_type"], one["state"], one["memories"], one["bytes"]] for one in seen["kept"] if one["memories"]
    ]
    if rows:
        yield Rows("kind!, state!, memories>, bytes>", rows)
    overdue = sum(seen["overdue"]["counts"].values())
    if overdue:
        yield warn(f"Overdue: {_count(seen['overdue'])}, since {minute(seen['overdue']['since'])}.")
    yield f"The next sweep, {minute(seen['next_sweep_at'], 'which nothing runs')}: {_count(seen['next_sweep'])}."
    held = seen["holds"]
    if held["count"]:
        covered = "" if held["memories"] is None else f" cover {plural(held['memories'], 'memory')}"
        yield f"{plural(held['count'], 'hold')}{covered}; see them with: holdfast hold list"
    backup = seen["backup"]
    yield good(f"Last backup: {minute(backup['created_at'])}.") if backup else warn("There is no backup.")
    erased = seen["erasures"]
    if erased["count"]:
        pending = f", {erased['pending']:,} not certified yet" if erased["pending"] else ""
        yield f"Erased in 30 days: {plural(erased['count'], 'user')}{pending}."


def _count(due: Mapping[str, Any]) -> str:
    least = "" if due["is_whole"] else "at least "
    said = [f"{least}{due['counts'][action]:,} to {action}" for action in _ACTIONS if due["counts"].get(action)]
    return ", ".join(said) or "nothing is due"


@command(app, "overview", render=_show_overview)
def overview(call: Call) -> Any:
    """Show the tenant at a glance: what is kept, what is overdue, what the next sweep does, holds, backup, erasures.

    It comes from counters and indexes. What is due is counted whatever holds keep.

    Examples:
        holdfast overview

        holdfast overview --json
    """
    return call.engine.overview()


def _show_forecast(found: Mapping[str, Any]) -> Iterator[Part]:
    days: Sequence[Mapping[str, Any]] = found["days"]
    rows: list[list[Cell]] = [
        [minute(one["at"]), *(one["new"].get(action, 0) for action in _ACTIONS), one["held"]]
        for one in days
        if any(one["new"].values())
    ]
    if not rows:
        yield f"Nothing becomes due until {minute(days[-1]['at'])}."
        return
    yield f"What becomes due by {minute(days[-1]['at'])}, on the days on which something does. Nothing was changed."
    yield Rows("until!, archive>, to the bin>, delete>, held>", rows)
    for one in days[-1]["set_aside"]:
        yield warn(f"Set aside: {one['user_id'] or one['agent_id']} would lose {one['due']:,} of {one['of']:,}.")
    yield "The exact plan for a moment: holdfast sweep --dry-run --at +30d"


@command(app, "forecast", render=_show_forecast)
def forecast(call: Call, *, days: int = _DAYS, confirm: bool = False) -> Any:
    """Show what the rules will do on each of the days to come. Changes nothing.

    Options:
        --days -d N  So many days.
        --confirm  Count those too who would lose much at once.

    Examples:
        holdfast forecast

        holdfast forecast --days 30 --json
    """
    with call.progress("counting", None) as advance:
        return call.engine.forecast(days, confirm=confirm, progress=advance)


def _show_life(story: Mapping[str, Any]) -> Iterator[Part]:
    memory = story["memory"]
    yield str(story["summary"])
    if memory is not None:
        yield from facts(
            content=memory["content"][:200],
            agent=memory["agent_id"],
            session=memory["session_id"],
            state=story["state"],
        )
    steps: list[list[Cell]] = [
        [minute(one["at"]), one["action"], one["actor"], cut(one["reason"] or one["rule"] or "", 80)]
        for one in story["steps"]
    ]
    steps += [[minute(one["at"]), f"due: {one['action']}", "", cut(one["reason"], 80)] for one in story["coming"]]
    if steps:
        yield Rows("when!, what!, who, why", steps)
    for name, related in (("It was made from:", story["sources"]), ("Made from it:", story["derived"])):
        if related:
            yield name
            yield from (indent(one["memory_id"]) for one in related)


@command(app, "life", render=_show_life)
def life(call: Call, *, memory_id: MemoryId, user: str) -> Any:
    """Show all that is known of a memory, in whatever state, or of one that is gone: each move, who did it, by which
    rule, and what is due.

    Options:
        --user -u USER  Whose memory it is.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast life $id --user alice
    """
    return call.engine.life(user, memory_id)
