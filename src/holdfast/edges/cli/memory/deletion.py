"""``holdfast delete | restore | explain | forget``: memories go to the recycle bin, come back, and say why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import DEFAULT_AGENT, Agent, DryRun, MemoryId, OfUser, Session, of_memory, of_tenant
from holdfast.edges.cli.output import Part, Rows, facts, minute, plural, printable


def _show_deleted(done: Mapping[str, Any]) -> Iterator[Part]:
    if done.get("kept_out"):
        yield f"Recycled {done['memory_id']}. Its text is kept out from now on (holdfast kept-out list)."
        yield f"holdfast restore brings it back after holdfast kept-out lift {done['memory_id']}."
    elif done["operation"] == "recycle":
        yield f"Recycled {done['memory_id']}; holdfast restore brings it back."
    else:
        yield f"Deleted {done['memory_id']} for good."
    for gone in done.get("deleted_with", ()):
        because = "has the same text, or was" if done.get("kept_out") else "was"
        yield f"Recycled {gone} with it, which {because} derived from it."
    for left in done.get("derived", ()):
        yield f"{left} was derived from it and is still there."
    if done.get("derived"):
        yield "(holdfast delete ID --with-derived takes a memory and all that was derived from it.)"


@command(app, "delete", of_memory, render=_show_deleted)
def delete(call: Call, *, memory_id: MemoryId, with_derived: bool = False, keep_out: bool = False) -> Any:
    """Send a memory to the recycle bin, out of recall at once. (A short-term message is gone for good.)

    Options:
        --with-derived  All that was derived from it goes to the bin, too.
        --keep-out  Its text does not come back, whoever adds it again.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast delete $id --user alice

        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast add "Bring tea" --user alice --derived-from $id
        holdfast delete $id --user alice --with-derived
    """
    return call.memory.delete(memory_id, with_derived=with_derived, keep_out=keep_out)


def _show_restored(back: Mapping[str, Any]) -> Iterator[Part]:
    yield f"Restored {back['memory_id']}."
    for came in back.get("restored_with", ()):
        yield f"Restored {came} with it, which was derived from it."


@command(app, "restore", of_memory, render=_show_restored)
def restore(call: Call, *, memory_id: MemoryId) -> Any:
    """Bring a memory back from the recycle bin, exactly as it was.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast delete $id -u alice
        holdfast restore $id -u alice
    """
    return call.memory.restore(memory_id)


def _show_explanation(said: Mapping[str, Any]) -> Iterator[Part]:
    """Why a memory is as it is: in a sentence, then the rules, the next move, what protects it, what happened."""
    yield Text(printable(said["summary"]), style="bold")
    rules, coming = said.get("rules") or {}, said["next"]
    holds = {
        f"hold {hold['hold_id']}": f"{hold['reason']} (by {hold['author']}, {hold['created_at']})"
        for hold in said["protected_by"]
    }
    yield from facts(
        id=said["memory_id"],
        kind=said["memory_type"],
        state=said["state"] + ("" if said["is_visible"] else " (out of recall)"),
        created=said.get("created_at"),
        source=said.get("source"),
        made_from=", ".join(said.get("derived_from", ())),
        made_of_it=", ".join(said.get("derived", ())),
        archive=_explain_rule(rules, "archive_after_days", "after"),
        remove=_explain_rule(rules, "delete_after_days", "after"),
        keep=_explain_rule(rules, "keep_days", "for"),
        next=None if coming is None else f"{coming['action']} at {coming['at'] or 'its end'}: {coming['reason']}",
        bin=f"{plural(said['days_left'], 'day')} left: {said['removed_because']}" if "days_left" in said else None,
        **holds,
    )
    if said.get("history"):
        yield ""
        rows = [(minute(one["at"]), one["action"], str(one.get("reason") or "not given")) for one in said["history"]]
        yield Rows("at!, what happened!, why", rows)


def _explain_rule(rules: Mapping[str, Any], name: str, word: str) -> str:
    """What a rule says; nothing, where none does."""
    length, by = rules.get(name), rules.get(f"{name.partition('_')[0]}_by")
    if isinstance(length, int | float):
        return f"{word} {'1 day' if length == 1 else f'{length:g} days'} ({by})"
    return "" if length is None else f"for ever ({by})"


@command(app, "explain", of_tenant, render=_show_explanation)
def explain(
    call: Call, *, memory_id: MemoryId, user: str | None = None, agent: Agent = DEFAULT_AGENT, session: Session = None
) -> Any:
    """Say which rules a memory lives under, what happens to it next, and what protects it; or how it went.

    Whose memory:
        --user -u USER  Whose it is; needed for a memory that is gone for good.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast explain $id
    """
    source = call.engine if user is None else call.engine.manager(user, agent, session)
    return source.explain(memory_id)


def _show_forgotten(counts: Mapping[str, Any]) -> Iterator[Part]:
    if not counts["by_kind"] and not counts["held"]:
        yield f"Nothing is there that came from {counts['source']}."
        return
    verb = "would go" if counts["dry_run"] else "went"
    if counts["by_kind"]:
        yield Rows(f"kind, {verb}>", list(counts["by_kind"].items()))
        what = f"{plural(counts['memories'], 'memory')} that came from {counts['source']}, and {counts['derived']:,}"
        users = plural(counts["users"], "user")
        yield f"{what} derived from them, of {users}, {verb} to the recycle bin until {counts['purge_at'][:10]}."
    if counts["held"]:
        yield f"A hold keeps {plural(counts['held'], 'memory')} (holdfast hold list)."
    if counts["by_kind"] and not counts["dry_run"]:
        yield f"Bring them back with: holdfast recycle restore --bundle '{counts['bundle']}'"


@command(app, "forget", render=_show_forgotten)
def forget(call: Call, *, source: str, user: OfUser = None, dry_run: DryRun = False) -> Any:
    """Send all that came from a source, of one user or of all, and all that was derived from it, to the recycle bin for
    15 days.

    Options:
        --source NAME  Where it came from, such as import:crm or agent:NAME.

    Examples:
        holdfast add "Visited Rome" --user alice --source import:crm
        holdfast forget --source import:crm --dry-run
        holdfast forget --source import:crm
        holdfast recycle restore --bundle source:import:crm
    """
    return call.engine.forget_source(source, user, dry_run=dry_run)
