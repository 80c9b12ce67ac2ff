"""``holdfast add | list | search | context | get | update | rehydrate``: memories are added, found and changed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from holdfast.core.errors import InvalidContentError, InvalidFilterError, InvalidKindError
from holdfast.core.prompts import Format
from holdfast.core.records import ALL_KINDS, DURABLE, MemoryType
from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import (
    KINDS,
    STDIO,
    Limit,
    MemoryId,
    Metadata,
    Quiet,
    declare,
    of_memory,
    read_bytes,
    read_metadata,
    read_object,
)
from holdfast.edges.cli.output import (
    Cell,
    Output,
    Part,
    Rows,
    assemble,
    console,
    cut,
    dim,
    facts,
    minute,
    plural,
    printable,
    table,
    to_json,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_PAGE: Final = 100
_BAR: Final = 5
#: A result is one line where its id would not fit into a table; so much of the content is shown in any case.
_LEAST_TABLE, _LEAST_CONTENT = 72, 20
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_HIDDEN: Final = frozenset({"document", "attributes"})

DerivedFrom = Annotated[
    list[str] | None, declare("--derived-from ID", "A memory or message that it was made from; may be repeated.")
]
Archived = Annotated[bool, declare("--archived", "Archived memories too.")]


def _show_added(added: Mapping[str, Any]) -> Iterator[Part]:
    parts = [added["memory_type"], f"{added['latency_ms']:.1f} ms"]
    parts += [f"room for {added['quota_remaining']:,} more"] if added["quota_remaining"] is not None else []
    parts += [f"{plural(added['pruned'], 'old memory')} recycled"] if "pruned" in added else []
    parts += [f"{plural(added['dropped'], 'old message')} left the window"] if "dropped" in added else []
    if "corrected_to" in added:
        yield f"Not remembered: {added['memory_id']} said this before it was corrected. It says now:"
        yield f"  {added['corrected_to']}"
        yield f'If this is so again: holdfast correct {added["memory_id"]} "…"'
    elif added["operation"] == "exists":
        yield f"It is there already: {added['memory_id']} ({', '.join(parts)})."
    elif added["operation"] == "kept_out":
        yield f"Not remembered: this text is kept out since {added['memory_id']} was deleted (holdfast kept-out list)."
    elif "version" in added:
        yield f"Corrected {added['memory_id']}, which is at version {added['version']} ({', '.join(parts)})."
    else:
        yield f"Remembered {added['memory_id']} ({', '.join(parts)})."
    for one in added.get("similar", ()):
        yield assemble("Close to it: ", _bar(one["score"]), f"  {one['memory_id']}  ") + cut(one["content"], 60)


@command(app, "add", of_memory, render=_show_added)
def add(
    call: Call,
    *,
    text: str,
    kind: MemoryType = MemoryType.LONG_TERM,
    metadata: Metadata = None,
    meta: list[str] | None = None,
    key: str | None = None,
    supersedes: str | None = None,
    dedupe: bool | None = None,
    similar: int = 0,
    source: str | None = None,
    derived_from: DerivedFrom = None,
    prune: bool = False,
    quiet: Quiet = False,
) -> Any:
    """Remember a text. When the command ends, it is on the disk.

    Options:
        TEXT  What to remember; - reads it from standard input.
        --kind -k KIND  The kind of memory: <kinds>.
        --meta KEY=VALUE  One field of the metadata; a value that is JSON is read as JSON.
        --key NAME  What it goes by: a memory that does already says this from now on.
        --supersedes ID  The memory that says this from now on.
        --dedupe/--no-dedupe  If the text is there already, or was corrected, show that memory instead of adding it
            again. If neither is given, HOLDFAST_DEDUPE decides.
        --similar N  Show up to so many memories that are close to it.
        --source NAME  Who or what it comes from; the agent, if not given.
        --prune  At the quota, recycle the oldest tenth to make room.

    Examples:
        holdfast add "Enjoys skiing and mountain views" --user alice --meta topic=sports

        echo 'Prefers a window seat' | holdfast add - --user alice --kind persona

        holdfast add '{"city": "Lisbon", "nights": 4}' -u alice --kind structured

        holdfast add "enjoys skiing" --user alice --dedupe --similar 3

        holdfast add "Lives in Paris" -u alice --key home_city
        holdfast add "Lives in Lyon" -u alice --key home_city
    """
    _check_kinds([kind])
    said, content = read_metadata(metadata, meta or ()) or None, read_text(text)
    call.memory.auto_prune = prune
    asked: dict[str, Any] = {"key": key, "supersedes": supersedes, "dedupe": dedupe, "similar": similar}
    added = call.memory.add(content, kind, said, **asked, source=source, derived_from=derived_from)
    return Output(added, text=f"{added['memory_id']}\n" if quiet else None)


@table("id!, kind!, created!, source, memory", empty="Nothing found.")
def _show_memories(one: Mapping[str, Any]) -> list[Cell]:
    kind = one["memory_type"] + (" (archived)" if one["is_archived"] else "")
    return [one["memory_id"], kind, minute(one["created_at"]), one["source"], cut(one["content"], 60)]


@command(app, "list", of_memory, render=_show_memories)
def list_memories(
    call: Call,
    *,
    kind: list[MemoryType] | None = None,
    source: str | None = None,
    archived: Archived = False,
    limit: Limit = 50,
    before: str | None = None,
) -> Any:
    """List what is remembered of a user, newest first. With --session, only what belongs to that session.

    Of persona and episodic memories, each agent sees its own.

    Options:
        --kind -k KIND  <durable kinds>; may be repeated. All of them, if not given.
        --source NAME  Only what came from there.
        --before ID  Only memories older than this: the next page.

    Examples:
        holdfast add "Likes tea" --user alice
        holdfast list --user alice

        holdfast list -u alice --kind persona --kind episodic --agent travel_agent --limit 20 --json
    """
    if MemoryType.SHORT_TERM in (kind or ()):
        raise InvalidKindError("short-term messages belong to a session; show them with: holdfast session show")
    _check_kinds(kind or ())
    options: dict[str, Any] = {"include_archived": archived, "source": source}
    found = heapq.merge(
        *(_read_pages(call, one, before, **options) for one in kind or DURABLE),
        key=lambda one: str(one["memory_id"]),  # ids sort by the moment that they were made at
        reverse=True,
    )
    session = call.scope.get("session_id")
    return list(islice((one for one in found if session in (None, one["session_id"])), limit))


def _read_pages(call: Call, kind: MemoryType, before: str | None, **options: Any) -> Iterator[Mapping[str, Any]]:
    page = call.memory.list_memories(kind, limit=_PAGE, before=before, **options)
    yield from page
    if len(page) == _PAGE:
        yield from _read_pages(call, kind, page[-1]["memory_id"], **options)


def _show_conflicts(found: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    if not found:
        yield "No two memories were found that are about the same thing and differ."
    for one in found:
        yield assemble(_bar(one["score"]), f"  {one['why']}")
        for name in ("older", "newer"):
            said = one[name]
            yield assemble(f"    {name}  {said['memory_id']}  {said['created_at'][:10]}  ") + cut(said["content"], 60)


@command(app, "conflicts", of_memory, render=_show_conflicts)
def conflicts(call: Call, *, kind: MemoryType = MemoryType.LONG_TERM, limit: Limit = 20) -> Any:
    """List pairs of memories that are about the same thing and differ, with why. Both may be true; nothing is changed.

    Options:
        --kind -k KIND  long_term, persona or structured.

    Examples:
        holdfast add "Lives in Paris" --user alice
        holdfast add "Lives in Lyon" --user alice
        holdfast conflicts --user alice
    """
    return call.memory.conflicts(kind, limit=limit)


def _bar(score: float) -> Text:
    """A score from 0 to 1 as a small bar with its number."""
    full, part = divmod(round(min(max(score, 0.0), 1.0) * _BAR * 8), 8)
    drawn = ("█" * full + (_EIGHTHS[part] if part else "")).ljust(_BAR, "·")
    colour = "green" if score >= 0.5 else "yellow" if score >= 0.2 else "bright_black"
    return assemble((drawn, colour), f" {score:.2f}")


def show_results(results: Sequence[Mapping[str, Any]], target: Console | None = None) -> Iterator[Part]:
    """What a search found, best first: the content cut to the width, the id in full."""
    target = target or console()
    if not results:
        yield "Nothing found."
    elif target.is_terminal and target.width >= _LEAST_TABLE:
        room = max(36, target.width - 34)
        rows = [(_bar(one["score"]), one["memory_type"], _to_cell(one, room)) for one in results]
        yield Rows("score!, kind!, memory", rows)
    else:
        for one in results:
            line = assemble(_bar(one["score"]), f"  {one['memory_type']:<10}  {one['memory_id']}  ")
            yield line + cut(one["content"], max(_LEAST_CONTENT, target.width - line.cell_len))
            if "count" in one:
                yield assemble(f"    {one['count']} memories have this text")
            if "explanation" in one:
                yield assemble(f"    {_join_score(one['explanation'])}")


def _to_cell(result: Mapping[str, Any], room: int) -> Text:
    lines = [cut(result["content"], room), dim(result["memory_id"])]
    if metadata := {name: value for name, value in result["metadata"].items() if name not in _HIDDEN}:
        lines.append(assemble((cut(to_json(metadata), room).plain, "cyan")))
    if "count" in result:
        lines.append(dim(f"{result['count']} memories have this text"))
    if "explanation" in result:
        lines.append(assemble((_join_score(result["explanation"]), "magenta")))
    return assemble("\n").join(lines)


def _join_score(parts: Mapping[str, float]) -> str:
    """The parts of a score, in words; what adds nothing is left out."""
    said = [f"{name} {value:.2f}" for name, value in parts.items() if round(value, 2)]
    return ", ".join(said) or "nothing speaks for it"


@command(app, "search", of_memory, render=show_results)
def search(
    call: Call,
    *,
    query: str,
    kind: list[MemoryType] | None = None,
    top_k: int = 5,
    filter_: str | None = None,
    as_of: str | None = None,
    min_score: float | None = None,
    explain: bool = False,
    archived: Archived = False,
) -> Any:
    """Recall the memories that bear on a query, best first.

    Options:
        QUERY  What to look for, in your own words.
        --kind -k KIND  <kinds>; may be repeated. Every kind that has something on it, if not given.
        --top-k -n N  How many memories at most.
        --filter -f JSON  Only memories whose metadata passes this.
        --as-of WHEN  What was remembered then, of what may be read now; a date and time as ISO 8601.
        --min-score SCORE  Leave out what scores less. A score of 0.5 means: as likely related as not.
        --explain  Show the parts of each score.

    Examples:
        holdfast search "holiday ideas" --user alice --top-k 3

        holdfast search tea -u alice -k long_term -k persona --explain

        holdfast search dinner -u alice --filter '{"price": {"lt": 30}}' --json

        holdfast search "where she lives" -u alice --as-of 2026-01-31
    """
    _check_kinds(kind or ())
    filters = read_object(filter_, "--filter", InvalidFilterError)
    options: dict[str, Any] = {"include_archived": archived or None, "as_of": as_of, "min_score": min_score}
    return call.memory.retrieve(query, kind or ALL_KINDS, top_k, filters, **options, explain=explain)


@command(app, "context", of_memory)
def context(
    call: Call,
    *,
    query: str | None = None,
    max_tokens: int = 1_000,
    kind: list[MemoryType] | None = None,
    format_: Format = Format.TEXT,
) -> Any:
    """Print one block for a prompt: who the agent is, what it knows now, its episodes, the conversation.

    Options:
        [QUERY]  What is asked or to be done; the newest memories, if not given.
        --max-tokens -n N  How many tokens it has at most.
        --kind -k KIND  <kinds>; may be repeated. All of them, if not given.
        --format FORMAT  text, messages or json.

    Examples:
        holdfast add "Alice prefers night trains" --user alice
        holdfast context "a journey to Vienna by train" --user alice

        holdfast context "dinner" -u alice --agent cook --session s1 -n 300 --format messages
    """
    _check_kinds(kind or ())
    block = call.memory.context(query, max_tokens=max_tokens, kinds=kind or ALL_KINDS, format=format_)
    return Output(block.to_dict(), text=f"{block.text}\n" if block.text else "")


def _show_memory(memory: Mapping[str, Any]) -> Iterator[Part]:
    """One memory with all that is known of it, its content whole."""
    yield from facts(
        id=memory["memory_id"],
        kind=memory["memory_type"] + (" (archived)" if memory["is_archived"] else ""),
        agent=memory["agent_id"],
        session=memory["session_id"],
        created=memory["created_at"],
        updated=memory["updated_at"] if memory["updated_at"] != memory["created_at"] else None,
        version=str(memory["version"]) if memory["version"] > 1 else None,
        key=memory.get("key"),
        source=memory["source"],
        made_from=", ".join(memory["derived_from"]),
        **{part: to_json(memory.get(part)) for part in ("metadata", "steps", "messages", "tool_calls")},
    )
    yield ""
    yield assemble(printable(memory["content"], lines=True))


@command(app, "get", of_memory, render=_show_memory)
def get(call: Call, *, memory_id: MemoryId, as_of: str | None = None) -> Any:
    """Show one memory with all that is known of it.

    Options:
        --as-of WHEN  As it was then; a date and time as ISO 8601.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast get $id --user alice
    """
    return call.memory.get(memory_id, as_of=as_of)


@command(app, "update", of_memory, render=lambda changed: f"Updated {changed['memory_id']}.")
def update(
    call: Call,
    *,
    memory_id: MemoryId,
    text: str | None = None,
    metadata: str | None = None,
    meta: list[str] | None = None,
    source: str | None = None,
    derived_from: DerivedFrom = None,
) -> Any:
    """Change what a memory says, its metadata, or where it comes from. What is not given stays, and so does its age.

    Options:
        [TEXT]  What it says from now on; - reads it from stdin.
        --metadata JSON  What is said of it, as a JSON object, in place of what was said.
        --meta KEY=VALUE  One field of the metadata; others stay.
        --source NAME  Who or what it comes from.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast update $id "Likes green tea" --user alice

        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast update $id --user alice --meta topic=drinks
    """
    fields = read_metadata(metadata, meta or ())
    content = None if text is None else read_text(text)
    if fields and metadata is None:
        fields = {**call.memory.get(memory_id)["metadata"], **fields}
    said = fields if fields or metadata is not None else None
    if content is None and said is None and source is None and derived_from is None:
        raise InvalidContentError(
            "nothing is to be changed; give a TEXT, --metadata, --meta, --source or --derived-from"
        )
    return call.memory.update(memory_id, content, said, source=source, derived_from=derived_from)


@command(app, "rehydrate", of_memory, render=_show_memory)
def rehydrate(call: Call, *, memory_id: MemoryId) -> Any:
    """Bring a memory back from cold storage: whole, in recall again, its age counted from now on.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast policy set long_term --archive-after 0.00001 --confirm
        sleep 1
        holdfast sweep
        holdfast rehydrate $id --user alice
    """
    return call.memory.rehydrate(memory_id)


def _check_kinds(kinds: Sequence[MemoryType]) -> None:
    if MemoryType.WORKING in kinds:
        raise InvalidKindError(
            "working memory lives in the process of an agent and ends with it, so the command line has none; "
            f"use --kind {KINDS.replace(' or ', ', or ')}"
        )


def read_text(text: str) -> str:
    """A text that was given, or what standard input has."""
    if text != STDIO:
        return text
    try:
        return read_bytes(STDIO).decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as problem:
        raise InvalidContentError(f"standard input is not UTF-8 text: {problem}") from None
