"""Show and set how long things live, and for whom.

Examples:
    holdfast policy list
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from holdfast.core.errors import InvalidRuleError, quote
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import Confirm, DryRun, declare, of_memory, of_scope
from holdfast.edges.cli.output import Cell, Part, Rows, dim, good, option_of, plural, table, warn

policy = add_group(__name__, "policy", __doc__)

_KINDS = "short_term, long_term, persona, episodic, entity, structured, history, audit, or '*' for every kind"
_SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id")
_TIMES: Final = {"archive_after_days": "archive after", "delete_after_days": "delete after", "keep_days": "keep"}
_STYLES: Final = {"set": good, "remove": warn, "keep": dim}

Kind = Annotated[str, declare("KIND", f"What lives so long: {_KINDS}.")]
ArchiveAfter = Annotated[str | None, declare("--archive-after DAYS", "Archive it at this age, or never.")]
DeleteAfter = Annotated[str | None, declare("--delete-after DAYS", "Remove it at this age, or never.")]
Versions = Annotated[int | None, declare("--versions N", "Keep so many ended versions of a memory.")]
VersionsFor = Annotated[str | None, declare("--versions-for DAYS", "Keep ended versions so long, or forever.")]
Keep = Annotated[str | None, declare("--keep DAYS", "Let no rule and no prune remove it before, or forever.")]


@table("kind, for, archive after>, delete after>, keep>, old versions>, version>", empty="There are no rules.")
def _show_rules(rule: Mapping[str, Any]) -> list[Cell]:
    return [rule["memory_type"], _whose(rule), *_times_of(rule), str(rule["version"] or "default")]


@command(policy, "list", render=_show_rules)
def list_policies(call: Call) -> Any:
    """List every rule in force: the defaults first, then from the widest to the most specific.

    Examples:
        holdfast policy list

        holdfast policy list --json
    """
    return call.engine.policies.list()


def _show_life(life: Mapping[str, Any]) -> Iterator[Part]:
    rows = [
        (what, _format_days(life[f"{what}_after_days"], "never"), life[f"{what}_by"] or "no rule")
        for what in ("archive", "delete")
    ]
    if life["keep_days"] is not None:
        rows.append(("keep", _format_days(life["keep_days"], "unset"), life["keep_by"] or "no rule"))
    if life["versions"] is not None:
        rows.append(("old versions", _format_versions(life), life["versions_by"]))
    yield Rows(f"{life['memory_type']}, after, because of", rows)


@command(policy, "get", of_scope, render=_show_life)
def get_policy(call: Call, *, kind: Kind) -> Any:
    """Show how long a kind lives for a user, an agent and a session, and which rules say so.

    Examples:
        holdfast policy get episodic --user alice --agent travel_agent
    """
    return call.engine.policies.get(kind, **call.scope)


@command(policy, "show", of_memory, render=lambda found: found["summary"].splitlines())
def show_rules_in_force(call: Call) -> Any:
    """Say how long each kind is kept for a user and an agent, by the rules in force, and which holds keep things.

    Examples:
        holdfast policy show --user alice --agent travel_agent
    """
    return call.memory.rules()


def _show_set(done: Mapping[str, Any]) -> Iterator[Part]:
    yield f"{_describe(done)}."
    yield from _show_due(done)


@command(policy, "set", of_scope, render=_show_set)
def set_policy(
    call: Call,
    *,
    kind: Kind,
    archive_after: ArchiveAfter = None,
    delete_after: DeleteAfter = None,
    keep: Keep = None,
    versions: Versions = None,
    versions_for: VersionsFor = None,
    confirm: Confirm = False,
) -> Any:
    """Set a rule, in place of the one for the same kind and scope; for the whole tenant, if no scope is given.

    One that shortens retention needs --confirm; holdfast policy preview says what it comes to.

    Examples:
        holdfast policy set episodic --agent travel_agent --archive-after 30 --delete-after 180 --confirm

        holdfast policy set long_term --user alice --keep 730

        holdfast policy set entity --delete-after never

        holdfast policy set persona --user alice --versions 20 --versions-for forever
    """
    times = _read_times(archive_after, delete_after, keep, versions_for)
    times |= {} if versions is None else {"versions": versions}
    return call.engine.policies.set(kind, **call.scope, **times, confirm=confirm)


def _show_removed(done: Mapping[str, Any]) -> Iterator[Part]:
    yield f"The rule for {done['memory_type']}, {_whose(done)}, is gone."
    yield from _show_due(done)


@command(policy, "remove", of_scope, render=_show_removed)
def remove_policy(call: Call, *, kind: Kind, confirm: Confirm = False) -> Any:
    """Take a rule away: what it said is again said by wider rules, or by the defaults.

    Examples:
        holdfast policy set entity --delete-after 400 --confirm
        holdfast policy remove entity
    """
    return call.engine.policies.remove(kind, **call.scope, confirm=confirm)


def _show_preview(found: Mapping[str, Any]) -> Iterator[Part]:
    yield f"{_describe(found['rule'])}. Nothing was changed."
    if found["shortens"]:
        yield warn("It shortens retention, so that setting it needs --confirm.")
    yield from _show_due(found)
    if not any((*found["newly_due"].values(), found["versions_due"]["versions"])):
        yield "It makes nothing due at once."


@command(policy, "preview", of_scope, render=_show_preview)
def preview_policy(
    call: Call,
    *,
    kind: Kind,
    archive_after: ArchiveAfter = None,
    delete_after: DeleteAfter = None,
    keep: Keep = None,
    versions: Versions = None,
    versions_for: VersionsFor = None,
) -> Any:
    """Say what a rule would come to, and change nothing.

    Examples:
        holdfast policy preview episodic --delete-after 100
    """
    times = _read_times(archive_after, delete_after, keep, versions_for)
    times |= {} if versions is None else {"versions": versions}
    found = call.engine.policies.preview(kind, **call.scope, **times)
    return {"rule": found.rule, "shortens": found.shortens, **found.effect}


def _show_changes(done: Mapping[str, Any]) -> Iterator[Part]:
    rows = [
        (_STYLES[change["action"]](change["action"]), change["memory_type"], _whose(change), *_times_of(change))
        for change in done["changes"]
    ]
    yield Rows("change, kind, for, archive after>, delete after>, keep>, old versions>", rows)
    changed = sum(change["action"] != "keep" for change in done["changes"])
    if done["shortens"] and not done["applied"]:
        yield warn("Together they shorten retention, so that applying them needs --confirm.")
    yield from _show_due(done)
    if not changed:
        yield "Every rule of the file is in force already."
    elif done["applied"]:
        yield good(f"Applied: {changed:,} changed.")
    else:
        yield f"{changed:,} to change; nothing was changed yet."


@command(policy, "apply", render=_show_changes)
def apply_file(call: Call, *, file: Path, dry_run: DryRun = False, confirm: Confirm = False) -> Any:
    """Apply the rules in a file: all of them in one instant, or none.

    Other rules stay, unless it says exclusive = true. A file that shortens retention asks first, or needs --confirm.

    Options:
        FILE  A TOML file with a policy table for each rule.

    Examples:
        file=$(mktemp)
        echo 'policy = [{memory_type = "entity", delete_after_days = 400}]' > $file
        holdfast policy apply $file --dry-run
        holdfast policy apply $file --confirm
        rm $file
    """
    from holdfast.lifecycle.policies import read_policies  # noqa: PLC0415 - not for --help

    wanted, exclusive = read_policies(file)
    policies = call.engine.policies
    if dry_run or (not confirm and call.can_ask):
        changes = policies.preview_all(wanted, exclusive=exclusive)
        if not dry_run and changes.preview.shortens:
            parts = _show_changes({**changes.to_dict(), "applied": False})
            call.ask("It shortens retention. Apply it?", parts, otherwise="the rules shorten retention")
            confirm = True
    if not dry_run:
        changes = policies.set_all(wanted, exclusive=exclusive, confirm=confirm)
    return {**changes.to_dict(), "applied": not dry_run}


def _show_due(found: Mapping[str, Any]) -> Iterator[Part]:
    """How much became due at once."""
    all_due = [f"{count:,} to {action}" for action, count in found["newly_due"].items() if count]
    versions, memories = found["versions_due"]["versions"], found["versions_due"]["memories"]
    all_due += [f"{plural(versions, 'old version')} of {plural(memories, 'memory')} to delete"] if versions else []
    if due := ", ".join(all_due):
        yield f"Due at once: {due} ({plural(found['bytes'], 'byte')}); holdfast sweep --dry-run shows them."
    if found["held"]:
        yield f"On hold, or they would be due at once: {found['held']:,}."


def _describe(rule: Mapping[str, Any]) -> str:
    words = zip((*_TIMES.values(), "keep old versions:"), _times_of(rule), strict=True)
    times = ", ".join(f"{word} {value}" for word, value in words if value != "unset")
    return f"Rule for {rule['memory_type']}, {_whose(rule)}: {times}"


def _whose(rule: Mapping[str, Any]) -> str:
    named = [f"{part.removesuffix('_id')} {rule[part]}" for part in _SCOPE if rule.get(part) is not None]
    wide = {"default": "by default", "domain": "the memory domain"}.get(str(rule.get("level")), "the tenant")
    return ", ".join(named) or wide


def _times_of(rule: Mapping[str, Any]) -> list[str]:
    return [*(_format_days(rule.get(name), "unset") for name in _TIMES), _format_versions(rule)]


def _format_versions(rule: Mapping[str, Any]) -> str:
    count, days = rule.get("versions"), rule.get("versions_days")
    parts = [] if count is None else [f"{count:,}"]
    parts += [] if days is None else [str(days) if days == "forever" else f"for {_format_days(days, 'unset')}"]
    return " ".join(parts) or "unset"


def _format_days(value: float | str | None, absent: str) -> str:
    if value is None or isinstance(value, str):
        return value or absent
    return f"{value:.6g} d" if value >= 1 else f"{value * 24:.6g} h"


def _read_times(*times: str | None) -> dict[str, Any]:
    """The times that were given, by the engine's names for them."""
    given = zip((*_TIMES, "versions_days"), times, strict=True)
    return {name: _read_days(text, option_of(name)) for name, text in given if text is not None}


def _read_days(text: str, name: str) -> float | str:
    if text in ("never", "forever"):
        return text
    try:
        number = float(text)
    except ValueError:
        raise InvalidRuleError(f"{name} must be a number of days, or never, not {quote(text)}") from None
    return int(number) if number.is_integer() else number
