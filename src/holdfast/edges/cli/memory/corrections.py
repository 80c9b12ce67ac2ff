"""``holdfast correct | history | revert``: what a memory says is corrected, looked at as it was, and brought back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.records import MemoryType
from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.memory.memories import read_text
from holdfast.edges.cli.options import MemoryId, of_memory
from holdfast.edges.cli.output import Cell, cut, minute, table


def _show_corrected(done: Mapping[str, Any]) -> str:
    return f"Corrected {done['memory_id']}, which is at version {done['version']}."


@command(app, "correct", of_memory, render=_show_corrected)
def correct(call: Call, *, memory_id: MemoryId, text: str, reason: str | None = None) -> Any:
    """Let a memory say something else. What it said is out of recall at once; holdfast history shows it.

    Options:
        TEXT  What it says from now on; - reads it from standard input.
        --reason TEXT  Why, as the history shows it.

    Examples:
        id=$(holdfast add "Lives in Paris" --user alice --quiet)
        holdfast correct $id "Lives in Lyon" --user alice --reason "She moved"
    """
    return call.memory.correct(memory_id, read_text(text), reason=reason)


@table("version>, from!, until!, ended by, reason, memory", empty="Nothing found.")
def _show_versions(one: Mapping[str, Any]) -> list[Cell]:
    until = "now" if one["ended_at"] is None else minute(one["ended_at"])
    why = (one["ended_by"] or "", one["reason"] or "")
    return [str(one["version"]), minute(one["started_at"]), until, *why, cut(one["content"], 60)]


@command(app, "history", of_memory, render=_show_versions)
def history(
    call: Call, *, memory_id: str | None = None, key: str | None = None, kind: MemoryType = MemoryType.LONG_TERM
) -> Any:
    """Show what a memory says and said before, oldest first, with who ended each version, and why.

    Options:
        [ID]  The memory's id.
        --key NAME  What the memory goes by, instead of its id.
        --kind -k KIND  The kind of the memory that goes by the key.

    Examples:
        holdfast add "Lives in Paris" --user alice --key home_city
        holdfast add "Lives in Lyon" --user alice --key home_city
        holdfast history --user alice --key home_city
    """
    return call.memory.history(memory_id, key=key, memory_type=kind)


@command(app, "revert", of_memory, render=_show_corrected)
def revert(call: Call, *, memory_id: MemoryId, to: int) -> Any:
    """Let a memory say again what it said in an earlier version, as a new version.

    Options:
        --to VERSION  Which version, as holdfast history shows it.

    Examples:
        id=$(holdfast add "Lives in Paris" --user alice --quiet)
        holdfast correct $id "Lives in Lyon" --user alice
        holdfast revert $id --to 1 --user alice
    """
    return call.memory.revert(memory_id, to)
