"""``holdfast import | batch``: memories from mem0, ChatGPT, Claude and lines of JSON; operations from lines of JSON."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

from holdfast.core.access import LOCAL
from holdfast.core.audit import CLI
from holdfast.core.errors import InvalidInputError
from holdfast.core.values import iso
from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import STDIO, DryRun, of_memory, of_tenant
from holdfast.edges.cli.output import ExitCode, Output, Part, Rows, plural, warn
from holdfast.installation import missing_extra

#: So many are imported in one step; and shown of those that were skipped.
_BATCH: Final = 200
_SHOWN: Final = 20
_LISTED: Final = 1_000
_COUNTED: Final = ("added", "corrected", "existing", "kept_out")


class Origin(StrEnum):
    """Where memories come from."""

    MEM0 = "mem0"
    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    JSONL = "jsonl"


def _show_imported(done: Mapping[str, Any]) -> Iterator[Part]:
    counts = [(name.replace("_", " "), done[name]) for name in _COUNTED]
    yield Rows("what, memories>", [*counts, ("skipped", done["skipped_count"])])
    for one in done["skipped"][:_SHOWN]:
        yield warn(f"{one['where']}: {one['reason']}")
    if done["skipped_count"] > _SHOWN:
        yield f"({done['skipped_count'] - _SHOWN:,} more were skipped; --report FILE writes all of them)"
    if done["dry_run"]:
        yield f"Nothing was written: {plural(done['added'], 'memory')} would be added."
    elif done["added"]:
        yield f"Undo it with: {done['undo']}"


@command(app, "import", of_memory, render=_show_imported)
def import_memories(
    call: Call,
    *,
    origin: Origin,
    path: Path,
    source: str | None = None,
    of: str | None = None,
    report: Path | None = None,
    dry_run: DryRun = False,
) -> Any:
    """Import memories from elsewhere, with the dates that they had. Run again, it adds what is new.

    Conversations become episodes, all else long-term memories. What is wrong with one does not stop the others.

    Options:
        ORIGIN  mem0 (its local Qdrant), chatgpt or claude (an export), or jsonl.
        PATH  The file, the folder or the ZIP.
        --source NAME  Where they come from, to undo it by; import:ORIGIN:DATE, if not given.
        --of NAME  The user in mem0; USER, if not given.
        --report FILE  Write what was skipped, and why, as lines of JSON.

    Examples:
        echo '{"content": "Likes tea", "created_at": "2024-05-01", "id": "1"}' > notes.jsonl
        holdfast import jsonl notes.jsonl --user alice --dry-run
        holdfast import jsonl notes.jsonl --user alice --source import:notes
        holdfast forget --source import:notes --user alice
        rm notes.jsonl
    """
    memory = call.memory
    named = source or f"import:{origin.value}:{iso(call.engine.services.now())[:10]}"
    with ExitStack() as stack:
        tally = _Tally(stack.enter_context(_open_report(report)) if report is not None else None)
        advance = stack.enter_context(call.progress("Importing", None))
        found = _read(origin, path, of or memory.user_id)
        while batch := list(islice(found, _BATCH)):
            items = [one for one in batch if one.item is not None]
            done = memory.import_memories([one.item for one in items], source=named, dry_run=dry_run)
            tally.add(batch, items, done)
            advance(len(batch))
    undo = f"holdfast forget --source {shlex.quote(named)} --user {shlex.quote(memory.user_id)}"
    return {"source": named, "dry_run": dry_run, **tally.counts, "skipped": tally.skipped, "undo": undo}


class _Tally:
    """What became of all that was read; each one that was skipped is a line of the report, if there is one."""

    def __init__(self, report: IO[str] | None) -> None:
        self._report = report
        self.counts = dict.fromkeys((*_COUNTED, "skipped_count"), 0)
        self.skipped: list[dict[str, Any]] = []

    def add(self, batch: Sequence[Any], items: Sequence[Any], done: Mapping[str, Any]) -> None:
        """Count what was read, and what became of those that are memories."""
        for one in batch:
            if one.item is None:
                self._skip(one.where, None, one.problem)
        for name in _COUNTED:
            self.counts[name] += done[name]
        for one in done["skipped"]:
            self._skip(items[one["position"]].where, one["key"], one["reason"])

    def _skip(self, where: str, key: str | None, reason: str) -> None:
        self.counts["skipped_count"] += 1
        one = {"where": where, "key": key, "reason": reason}
        if len(self.skipped) < _LISTED:
            self.skipped.append(one)
        if self._report is not None:
            self._report.write(json.dumps(one) + "\n")


def _open_report(report: Path) -> IO[str]:
    try:
        return report.open("w", encoding="utf-8")
    except OSError as problem:
        raise InvalidInputError(f"cannot write {report}: {problem.strerror or problem}") from None


def _read(origin: Origin, path: Path, of: str) -> Iterator[Any]:
    """What is at a path, one at a time."""
    from holdfast.integrations import imports  # noqa: PLC0415 - only this command needs it
    from holdfast.integrations.mem0 import read_mem0  # noqa: PLC0415

    if not path.exists():
        raise InvalidInputError(f"there is nothing at {path}; name the file, the folder or the ZIP to import")
    readers: dict[Origin, Callable[[Path], Iterator[Any]]] = {
        Origin.MEM0: lambda where: read_mem0(where, of),
        Origin.CHATGPT: imports.read_chatgpt,
        Origin.CLAUDE: imports.read_claude,
        Origin.JSONL: imports.read_jsonl,
    }
    return readers[origin](path)


# --- operations from lines of JSON ------------------------------------------------------------------------------------


def _show_batch(done: Mapping[str, Any]) -> Iterator[Part]:
    yield Rows("what, operations>", [("carried out", done["carried_out"]), ("failed", done["failed"])])
    for one in done["failures"][:_SHOWN]:
        yield warn(f"line {one['line']}: {one['problem']['detail']}")
    if done["failed"] > _SHOWN:
        yield f"({done['failed'] - _SHOWN:,} more failed; --results FILE has what became of each)"


@command(app, "batch", of_tenant, render=_show_batch)
def batch(call: Call, *, file: str, results: Path | None = None) -> Any:
    """Carry out operations from lines of JSON, in order, each by itself: what fails does not stop the others.

    A line is an item of POST /v1/batch: {"operation": "add_memory", "input": {…}}. Ends with exit code 1 if one of them
    failed. Needs the extra called server.

    Options:
        FILE  The file; - reads stdin.
        --results FILE  Write what became of each operation, as lines of JSON.

    Examples:
        echo '{"operation":"recall","input":{"user_id":"alice","agent_id":"cli","query":"tea"}}' > ops
        holdfast batch ops
        holdfast batch - --results done.jsonl --json < ops
        rm ops done.jsonl
    """
    try:
        from holdfast.edges.access.gate import Gate  # noqa: PLC0415 - what serving needs is imported for it
        from holdfast.edges.operations.batches import run_line  # noqa: PLC0415
        from holdfast.edges.operations.outputs import encode  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        raise missing_extra("holdfast batch", "server") from problem

    gate = Gate(call.engine, LOCAL, call.engine.tenant)
    counts = {"carried_out": 0, "failed": 0}
    failures: list[dict[str, Any]] = []
    with ExitStack() as stack:
        lines = sys.stdin.buffer if file == STDIO else stack.enter_context(_open_lines(file))
        report = None if results is None else stack.enter_context(_open_report(results))
        advance = stack.enter_context(call.progress("Carrying out", None))
        for number, line in enumerate(lines, 1):
            if line.strip():
                done = run_line(gate, line, number, edge=CLI)
                counts["failed" if "problem" in done else "carried_out"] += 1
                if "problem" in done and len(failures) < _LISTED:
                    failures.append({"line": number, **done})
                if report is not None:
                    report.write(encode({"line": number, **done}).decode() + "\n")
                advance(1)
    code = ExitCode.FAILED if counts["failed"] else ExitCode.FINE
    return Output({**counts, "failures": failures}, code=code)


def _open_lines(file: str) -> IO[bytes]:
    try:
        return Path(file).open("rb")
    except OSError as problem:
        raise InvalidInputError(f"cannot read {file}: {problem.strerror or problem}") from None
