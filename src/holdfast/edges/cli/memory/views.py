"""How memories look: boxes and colours on a terminal, one line each in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from holdfast.edges.cli.output import (
    Part,
    Rows,
    console,
    cut,
    dim,
    facts,
    minute,
    new_table,
    plural,
    printable,
    to_json,
)

_BAR: Final = 5
#: A result is one line where its id would not fit into a table; so much of the content is shown in any case.
_LEAST_TABLE, _LEAST_CONTENT = 72, 20
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_HIDDEN: Final = frozenset({"document", "attributes"})


def bar(score: float) -> Text:
    """A score from 0 to 1 as a small bar with its number."""
    full, part = divmod(round(min(max(score, 0.0), 1.0) * _BAR * 8), 8)
    drawn = ("█" * full + (_EIGHTHS[part] if part else "")).ljust(_BAR, "·")
    colour = "green" if score >= 0.5 else "yellow" if score >= 0.2 else "bright_black"
    return Text.assemble((drawn, colour), f" {score:.2f}")


def show_results(results: Sequence[Mapping[str, Any]], target: Console | None = None) -> Iterator[Part]:
    """What a search found, best first: the content cut to the width, the id in full."""
    target = target or console()
    if not results:
        yield "Nothing found."
    elif target.is_terminal and target.width >= _LEAST_TABLE:
        made = new_table(target)
        for name in ("score", "kind"):
            made.add_column(name, no_wrap=True)
        made.add_column("memory")
        for result in results:
            made.add_row(bar(result["score"]), *_cells(result, max(36, target.width - 34)))
        yield made
    else:
        for result in results:
            yield from _lines(result, target.width)


def show_memory(memory: Mapping[str, Any]) -> Iterator[Part]:
    """One memory with all that is known of it, its content whole."""
    values = {
        "id": memory["memory_id"],
        "kind": memory["memory_type"] + (" (archived)" if memory["is_archived"] else ""),
        "agent": memory["agent_id"],
        "session": memory["session_id"] or "",
        "created": memory["created_at"],
        "updated": memory["updated_at"] if memory["updated_at"] != memory["created_at"] else "",
        "source": memory["source"],
        "made from": ", ".join(memory["derived_from"]),
        "metadata": to_json(memory["metadata"]),
    }
    values |= {part.replace("_", " "): to_json(memory.get(part)) for part in ("steps", "messages", "tool_calls")}
    yield from facts(values)
    yield ""
    yield Text(printable(memory["content"], lines=True))


def show_explanation(said: Mapping[str, Any]) -> Iterator[Part]:
    """Why a memory is as it is: in a sentence, then the rules, the next move, what protects it, what happened."""
    yield Text(printable(said["summary"]), style="bold")
    rules, coming = said.get("rules") or {}, said["next"]
    values = {
        "id": said["memory_id"],
        "kind": str(said["memory_type"] or ""),
        "state": said["state"] + ("" if said["is_visible"] else " (out of recall)"),
        "created": said.get("created_at", ""),
        "source": said.get("source", ""),
        "made from": ", ".join(said.get("derived_from", ())),
        "made of it": ", ".join(said.get("derived", ())),
        "archive": _explain_rule(rules, "archive_after_days", "archive_by", "after {}"),
        "remove": _explain_rule(rules, "delete_after_days", "delete_by", "after {}"),
        "keep": _explain_rule(rules, "keep_days", "keep_by", "for {}"),
        "next": "" if coming is None else f"{coming['action']} at {coming['at'] or 'its end'}: {coming['reason']}",
        "bin": f"{plural(said['days_left'], 'day')} left: {said['removed_because']}" if "days_left" in said else "",
    }
    for hold in said["protected_by"]:
        values[f"hold {hold['hold_id']}"] = f"{hold['reason']} (by {hold['author']}, {hold['created_at']})"
    yield from facts(values)
    if said.get("history"):
        yield ""
        rows = [(minute(one["at"]), one["action"], str(one.get("reason") or "not given")) for one in said["history"]]
        yield Rows("at!, what happened!, why", rows)


def score_parts(result: Mapping[str, Any]) -> str:
    """The parts of a score, in words; what adds nothing is left out."""
    parts = result.get("explanation", {}).items()
    return ", ".join(f"{name} {value:.2f}" for name, value in parts if round(value, 2)) or "nothing speaks for it"


def _explain_rule(rules: Mapping[str, Any], days: str, by: str, words: str) -> str:
    """What a rule says; nothing, where none does."""
    length = rules.get(days)
    if length is None:
        return ""
    if not isinstance(length, int | float):
        return f"for ever ({rules[by]})"
    return f"{words.format('1 day' if length == 1 else f'{length:g} days')} ({rules[by]})"


def _lines(result: Mapping[str, Any], width: int) -> Iterator[Text]:
    line = Text.assemble(bar(result["score"]), f"  {result['memory_type']:<10}  {result['memory_id']}  ")
    yield line + cut(result["content"], max(_LEAST_CONTENT, width - line.cell_len))
    if "explanation" in result:
        yield Text(f"    {score_parts(result)}")


def _cells(result: Mapping[str, Any], room: int) -> tuple[Text, Text]:
    lines = [cut(result["content"], room), dim(result["memory_id"])]
    if metadata := {name: value for name, value in result["metadata"].items() if name not in _HIDDEN}:
        said = cut(to_json(metadata), room)
        said.stylize("cyan")
        lines.append(said)
    if "explanation" in result:
        lines.append(Text(score_parts(result), style="magenta"))
    kind = Text(result["memory_type"], style="bold" if result["memory_type"] == "working" else "")
    return kind, Text("\n").join(lines)
