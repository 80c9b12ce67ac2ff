"""``holdfast add | list | search | get | update | delete | restore | explain | rehydrate``: the verbs of a memory."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final

from holdfast.core.errors import InvalidContentError, InvalidFilterError, InvalidKindError, InvalidMetadataError
from holdfast.core.records import DURABLE, MemoryType
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.call import Call
from holdfast.edges.cli.memory.views import show_explanation, show_memory, show_results
from holdfast.edges.cli.options import (
    DEFAULT_AGENT,
    KINDS,
    STDIO,
    Agent,
    Limit,
    MemoryId,
    Metadata,
    Quiet,
    Session,
    declare,
    of_memory,
    of_tenant,
    read_bytes,
    read_object,
)
from holdfast.edges.cli.output import Cell, Output, Part, cut, list_of, minute

_PAGE: Final = 100
_SHOWN: Final = 60
_ADD: Final = 'id=$(holdfast add "Likes tea" --user alice --quiet)'

DerivedFrom = Annotated[
    list[str] | None, declare("--derived-from ID", "A memory or message that it was made from; may be repeated.")
]
Archived = Annotated[bool, declare("--archived", "Archived memories too.")]


def _show_added(added: Mapping[str, Any]) -> str:
    parts = [added["memory_type"], f"{added['latency_ms']:.1f} ms"]
    parts += [f"room for {added['quota_remaining']:,} more"] if added["quota_remaining"] is not None else []
    parts += [f"{added['pruned']:,} old ones recycled"] if "pruned" in added else []
    parts += [f"{added['dropped']:,} old ones left the window"] if "dropped" in added else []
    return f"Remembered {added['memory_id']} ({', '.join(parts)})."


@command(app, "add", of_memory, render=_show_added)
def add(
    call: Call,
    *,
    text: str,
    kind: MemoryType = MemoryType.LONG_TERM,
    metadata: Metadata = None,
    meta: list[str] | None = None,
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
        --source NAME  Who or what it comes from; the agent, if not given.
        --prune  At the quota, recycle the oldest tenth to make room.

    Examples:
        holdfast add "Enjoys skiing and mountain views" --user alice --meta topic=sports

        echo 'Prefers a window seat' | holdfast add - --user alice --kind persona

        holdfast add '{"city": "Lisbon", "nights": 4}' -u alice --kind structured
    """
    _check_kinds([kind])
    said, content = read_metadata(metadata, meta or ()) or None, _read_text(text)
    verb = call.memory.add_with_auto_prune if prune else call.memory.add
    added = verb(content, kind, said, source=source, derived_from=derived_from)
    return Output(added, text=f"{added['memory_id']}\n" if quiet else None)


def _to_row(one: Mapping[str, Any]) -> list[Cell]:
    archived = " (archived)" if one["is_archived"] else ""
    return [
        one["memory_id"],
        one["memory_type"] + archived,
        minute(one["created_at"]),
        one["source"],
        cut(one["content"], _SHOWN),
    ]


@command(
    app, "list", of_memory, render=list_of("id!, kind!, created!, source, memory", _to_row, empty="Nothing found.")
)
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
    options = {"include_archived": archived, "source": source}
    found = heapq.merge(
        *(_read_pages(call, one, before, options) for one in kind or DURABLE),
        key=lambda one: str(one["memory_id"]),  # ids sort by the moment that they were made at
        reverse=True,
    )
    session = call.scope.get("session_id")
    return list(islice((one for one in found if session in (None, one["session_id"])), limit))


def _read_pages(
    call: Call, kind: MemoryType, before: str | None, options: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    page = call.memory.list_memories(kind, limit=_PAGE, before=before, **options)
    yield from page
    if len(page) == _PAGE:
        yield from _read_pages(call, kind, page[-1]["memory_id"], options)


@command(app, "search", of_memory, render=show_results)
def search(
    call: Call,
    *,
    query: str,
    kind: list[MemoryType] | None = None,
    top_k: int = 5,
    filter_: str | None = None,
    explain: bool = False,
    archived: Archived = False,
) -> Any:
    """Recall the memories that bear on a query, best first.

    Options:
        QUERY  What to look for, in your own words.
        --kind -k KIND  <kinds>; may be repeated. long_term, if not given.
        --top-k -n N  How many memories at most.
        --filter -f JSON  Only memories whose metadata passes this.
        --explain  Show the parts of each score.

    Examples:
        holdfast search "holiday ideas" --user alice --top-k 3

        holdfast search tea -u alice -k long_term -k persona --explain

        holdfast search dinner -u alice --filter '{"price": {"lt": 30}}' --json
    """
    _check_kinds(kind or ())
    filters = None if filter_ is None else read_object(filter_, "--filter", InvalidFilterError)
    return call.memory.retrieve(query, kind or None, top_k, filters, include_archived=archived or None, explain=explain)


@command(app, "get", of_memory, render=show_memory)
def get(call: Call, *, memory_id: MemoryId) -> Any:
    """Show one memory with all that is known of it.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast get $id --user alice
    """
    return call.memory.get(memory_id)


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
    content = None if text is None else _read_text(text)
    if fields and metadata is None:
        fields = {**call.memory.get(memory_id)["metadata"], **fields}
    said = fields if fields or metadata is not None else None
    if content is None and said is None and source is None and derived_from is None:
        raise InvalidContentError(
            "nothing is to be changed; give a TEXT, --metadata, --meta, --source or --derived-from"
        )
    return call.memory.update(memory_id, content, said, source=source, derived_from=derived_from)


def _show_deleted(done: Mapping[str, Any]) -> Iterator[Part]:
    if done["operation"] == "recycle":
        yield f"Recycled {done['memory_id']}; holdfast restore brings it back."
    else:
        yield f"Deleted {done['memory_id']} for good."
    for gone in done.get("deleted_with", ()):
        yield f"Recycled {gone} with it, which was derived from it."
    for left in done.get("derived", ()):
        yield f"{left} was derived from it and is still there."
    if done.get("derived"):
        yield "(holdfast delete ID --with-derived takes a memory and all that was derived from it.)"


@command(app, "delete", of_memory, render=_show_deleted)
def delete(call: Call, *, memory_id: MemoryId, with_derived: bool = False) -> Any:
    """Send a memory to the recycle bin, out of recall at once. (A short-term message is gone for good.)

    Options:
        --with-derived  All that was derived from it goes to the bin, too.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast delete $id --user alice

        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast add "Bring tea" --user alice --derived-from $id
        holdfast delete $id --user alice --with-derived
    """
    return call.memory.delete(memory_id, with_derived=with_derived)


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


@command(app, "explain", of_tenant, render=show_explanation)
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


@command(app, "rehydrate", of_memory, render=show_memory)
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


def _read_text(text: str) -> str:
    if text != STDIO:
        return text
    try:
        return read_bytes(STDIO).decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as problem:
        raise InvalidContentError(f"standard input is not UTF-8 text: {problem}") from None


def read_metadata(text: str | None, fields: Sequence[str]) -> dict[str, Any]:
    """Metadata from both of its options; a single field wins over the object."""
    said = {} if text is None else read_object(text, "--metadata", InvalidMetadataError)
    for field in fields:
        key, equals, value = field.partition("=")
        if not key or not equals:
            raise InvalidMetadataError(f"--meta {field!r} is not understood; write it as key=value")
        try:
            said[key] = json.loads(value, parse_constant=lambda name: name)
        except ValueError:
            said[key] = value
    return said
