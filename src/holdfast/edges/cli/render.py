"""How memories and tables look: boxes and colours on a terminal, one line each in a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.edges.cli.output import printable

_BAR: Final = 5
#: A result is one line where its id would not fit into a table; so much of the content is shown in any case.
_LEAST_TABLE, _LEAST_CONTENT = 72, 20
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_HIDDEN: Final = frozenset({"document", "attributes"})


def bar(score: float) -> Text:
    """A score from 0 to 1 as a small bar with its number."""
    eighths = round(min(max(score, 0.0), 1.0) * _BAR * 8)
    full, part = divmod(eighths, 8)
    drawn = ("█" * full + (_EIGHTHS[part] if part else "")).ljust(_BAR, "·")
    colour = "green" if score >= 0.5 else "yellow" if score >= 0.2 else "bright_black"
    return Text.assemble((drawn, colour), f" {score:.2f}")


def table(console: Console, *columns: str) -> Table:
    """An empty table with these columns (one ending in ``>`` is a column of numbers; for ``!`` see ``show_rows``)."""
    framed = console.is_terminal
    made = Table(
        box=box.ROUNDED if framed else None,
        border_style="bright_black",
        header_style="bold",
        pad_edge=framed,
        padding=(0, 1) if framed else (0, 2, 0, 0),
    )
    for name in columns:
        made.add_column(name.rstrip(">!"), justify="right" if name.endswith(">") else "left")
    return made


def show_rows(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """A table of rows. A column whose name ends in ``!`` (ids, which people copy, and times) is never cut or broken."""
    made = table(console, *columns)
    for row in rows:
        cells = [cell if isinstance(cell, Text) else Text(cell) for cell in row]
        for name, column, cell in zip(columns, made.columns, cells, strict=True):
            if name.endswith("!"):
                column.no_wrap, column.min_width = True, max(column.min_width or 0, cell.cell_len)
        made.add_row(*cells)
    console.print(made)


def minute(moment: str | None, absent: str = "") -> str:
    """An ISO moment as a table shows it: to the minute, in UTC."""
    return absent if moment is None else moment[:16].replace("T", " ")


def counted(count: int, one: str, more: str | None = None) -> str:
    """How many of something there are, in words: ``1 memory``, ``2 memories``; without ``more``, an s makes several."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def show_facts(console: Console, facts: Mapping[str, str], *, width: int = 10) -> None:
    """Names and values, one line each; what is empty is left out."""
    for name, value in facts.items():
        if value:
            words = Text.assemble((f"{name + ':':<{width}} ", "bright_black"), printable(value))
            console.print(words, soft_wrap=True)


def show_results(console: Console, results: Sequence[Mapping[str, Any]]) -> None:
    """What a search found, best first: the content cut to the width, the id in full."""
    if not results:
        console.print("Nothing found.")
    elif console.is_terminal and console.width >= _LEAST_TABLE:
        _show_result_table(console, results)
    else:
        for result in results:
            _show_result_line(console, result)


def show_memory(console: Console, memory: Mapping[str, Any]) -> None:
    """One memory with all that is known of it, its content whole."""
    facts = {
        "id": memory["memory_id"],
        "kind": memory["memory_type"] + (" (archived)" if memory["is_archived"] else ""),
        "agent": memory["agent_id"],
        "session": memory["session_id"] or "",
        "created": memory["created_at"],
        "updated": memory["updated_at"] if memory["updated_at"] != memory["created_at"] else "",
        "source": memory["source"],
        "made from": ", ".join(memory["derived_from"]),
        "metadata": json.dumps(memory["metadata"], ensure_ascii=False) if memory["metadata"] else "",
    }
    for part in ("steps", "messages", "tool_calls"):
        if memory.get(part):
            facts[part.replace("_", " ")] = json.dumps(memory[part], ensure_ascii=False)
    show_facts(console, facts)
    console.print()
    console.print(Text(printable(memory["content"], lines=True)), soft_wrap=True)


def show_explanation(console: Console, said: Mapping[str, Any]) -> None:
    """Why a memory is as it is: in a sentence, then the rules, the next move, what protects it, what happened."""
    console.print(Text(printable(said["summary"]), style="bold"), soft_wrap=True)
    rules, coming = said.get("rules") or {}, said["next"]
    facts = {
        "id": said["memory_id"],
        "kind": str(said["memory_type"] or ""),
        "state": said["state"] + ("" if said["is_visible"] else " (out of recall)"),
        "created": said.get("created_at", ""),
        "source": said.get("source", ""),
        "made from": ", ".join(said.get("derived_from", ())),
        "made of it": ", ".join(said.get("derived", ())),
        "archive": _rule(rules, "archive_after_days", "archive_by", "after {}"),
        "remove": _rule(rules, "delete_after_days", "delete_by", "after {}"),
        "keep": _rule(rules, "keep_days", "keep_by", "for {}"),
        "next": "" if coming is None else f"{coming['action']} at {coming['at'] or 'its end'}: {coming['reason']}",
        "bin": f"{_days(said['days_left'])} left: {said['removed_because']}" if "days_left" in said else "",
    }
    for hold in said["protected_by"]:
        facts[f"hold {hold['hold_id']}"] = f"{hold['reason']} (by {hold['author']}, {hold['created_at']})"
    show_facts(console, facts)
    if said.get("history"):
        console.print()
        rows = [
            (minute(entry["at"]), entry["action"], printable(str(entry.get("reason") or "")))
            for entry in said["history"]
        ]
        show_rows(console, ("at!", "what happened!", "why"), rows)


def _rule(rules: Mapping[str, Any], days: str, by: str, words: str) -> str:
    """What a rule says; nothing, where none does."""
    length = rules.get(days)
    if length is None:
        return ""
    return f"{words.format(_days(length)) if isinstance(length, int | float) else 'for ever'} ({rules[by]})"


def _days(count: float) -> str:
    return f"{count:g} {'day' if count == 1 else 'days'}"


def score_parts(result: Mapping[str, Any]) -> str:
    """The parts of a score, in words; what adds nothing is left out."""
    parts = result.get("explanation", {}).items()
    return ", ".join(f"{name} {value:.2f}" for name, value in parts if round(value, 2)) or "nothing speaks for it"


def _show_result_line(console: Console, result: Mapping[str, Any]) -> None:
    line = Text.assemble(bar(result["score"]), f"  {result['memory_type']:<10}  {result['memory_id']}  ")
    content = Text(printable(result["content"]))
    content.truncate(max(_LEAST_CONTENT, console.width - line.cell_len), overflow="ellipsis")
    console.print(line + content, soft_wrap=True)
    if "explanation" in result:
        console.print(f"    {score_parts(result)}", soft_wrap=True)


def _show_result_table(console: Console, results: Sequence[Mapping[str, Any]]) -> None:
    made = table(console, "score", "kind", "memory")
    made.columns[0].no_wrap = made.columns[1].no_wrap = True
    room = max(36, console.width - 34)
    for result in results:
        content = Text(printable(result["content"]))
        content.truncate(room, overflow="ellipsis")
        lines = [content, Text(result["memory_id"], style="bright_black")]
        if metadata := {name: value for name, value in result["metadata"].items() if name not in _HIDDEN}:
            said = Text(printable(json.dumps(metadata, ensure_ascii=False)), style="cyan")
            said.truncate(room, overflow="ellipsis")
            lines.append(said)
        if "explanation" in result:
            lines.append(Text(score_parts(result), style="magenta"))
        kind = Text(result["memory_type"], style="bold" if result["memory_type"] == "working" else "")
        made.add_row(bar(result["score"]), kind, Text("\n").join(lines))
    console.print(made)
