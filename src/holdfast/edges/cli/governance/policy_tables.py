"""How rules look: what they say, what they would come to, and what a file changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from holdfast.edges.cli.output import printable
from holdfast.edges.cli.render import show_rows

_SCOPE = {"user_id": "user", "agent_id": "agent", "session_id": "session", "memory_id": "memory"}
_TIMES = ("archive_after_days", "delete_after_days", "keep_days")
_DONE = {"set": "green", "remove": "yellow", "keep": "bright_black"}


def show_policies(console: Console, rules: Sequence[Mapping[str, Any]]) -> None:
    """Every rule, one line each."""
    rows = [(rule["memory_type"], _whose(rule), *_times(rule), f"{rule['version'] or ''}") for rule in rules]
    show_rows(console, ("kind", "for", "archive after>", "delete after>", "keep>", "version>"), rows)


def show_life(console: Console, life: Mapping[str, Any]) -> None:
    """What the rules that meet come to."""
    words = (("archive", "archive_after_days", "archive_by"), ("delete", "delete_after_days", "delete_by"))
    rows = [(what, _days(life[days], "never"), printable(life[by] or "")) for what, days, by in words]
    if life["keep_days"] is not None:
        rows.append(("keep", _days(life["keep_days"], ""), printable(life["keep_by"] or "")))
    show_rows(console, (life["memory_type"], "after", "because of"), rows)


def show_rules(console: Console, found: Mapping[str, Any]) -> None:
    """How long each kind is kept."""
    for line in found["summary"].splitlines():
        console.print(printable(line), soft_wrap=True, markup=False, highlight=False)


def show_set(console: Console, done: Mapping[str, Any]) -> None:
    """A rule that was set."""
    console.print(f"Rule for {done['memory_type']}, {_whose(done)}: {_said(done)}.", soft_wrap=True)
    _show_due(console, done)


def show_removed(console: Console, done: Mapping[str, Any]) -> None:
    """A rule that was taken away."""
    console.print(f"The rule for {done['memory_type']}, {_whose(done)}, is gone.", soft_wrap=True)
    _show_due(console, done)


def show_preview(console: Console, found: Mapping[str, Any]) -> None:
    """What a rule would come to."""
    rule = found["rule"]
    console.print(
        f"Rule for {rule['memory_type']}, {_whose(rule)}: {_said(rule)}. Nothing was changed.", soft_wrap=True
    )
    if found["shortens"]:
        console.print("It shortens retention, so that setting it needs --confirm.", style="yellow")
    if not _show_due(console, found):
        console.print("It makes nothing due at once.")


def show_changes(console: Console, done: Mapping[str, Any]) -> None:
    """What a file changes, or changed."""
    rows = [
        (
            Text(change["action"], style=_DONE[change["action"]]),
            change["memory_type"],
            _whose(change),
            *_times(change),
        )
        for change in done["changes"]
    ]
    show_rows(console, ("", "kind", "for", "archive after>", "delete after>", "keep>"), rows)
    changed = sum(change["action"] != "keep" for change in done["changes"])
    if done["shortens"] and not done["applied"]:
        console.print("Together they shorten retention, so that applying them needs --confirm.", style="yellow")
    _show_due(console, done)
    if not changed:
        console.print("Every rule of the file is in force already.")
    elif done["applied"]:
        console.print(f"Applied: {changed:,} changed.", style="green")
    else:
        console.print(f"{changed:,} to change; nothing was changed yet.")


def _show_due(console: Console, found: Mapping[str, Any]) -> bool:
    """How much became due at once; whether anything did."""
    due = ", ".join(f"{count:,} to {action}" for action, count in found["newly_due"].items() if count)
    if due:
        console.print(f"Due at once: {due} ({found['bytes']:,} bytes); holdfast sweep --dry-run shows them.")
    if found["held"]:
        console.print(f"On hold, or they would be due at once: {found['held']:,}.")
    return bool(due)


def _whose(rule: Mapping[str, Any]) -> str:
    named = [f"{word} {rule[part]}" for part, word in _SCOPE.items() if rule.get(part) is not None]
    wide = {"default": "by default", "domain": "the memory domain"}.get(str(rule.get("level")), "the tenant")
    return printable(", ".join(named)) or wide


def _times(rule: Mapping[str, Any]) -> list[str]:
    return [_days(rule.get(name), "") for name in _TIMES]


def _days(value: float | str | None, absent: str) -> str:
    if value is None:
        return absent
    if isinstance(value, str):
        return value
    return f"{value:.6g} d" if value >= 1 else f"{value * 24:.6g} h"


def _said(rule: Mapping[str, Any]) -> str:
    words = zip(("archive after", "delete after", "keep"), _times(rule), strict=True)
    return ", ".join(f"{word} {value}" for word, value in words if value)
