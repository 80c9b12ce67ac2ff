"""``holdfast add | search | get | delete | restore | explain | rehydrate``: the verbs of a memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from holdfast.core.errors import (
    InvalidContentError,
    InvalidFilterError,
    InvalidInputError,
    InvalidKindError,
    InvalidMetadataError,
)
from holdfast.core.records import MemoryType
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import (
    DEFAULT_AGENT,
    DEFAULT_TENANT,
    Agent,
    Home,
    Json,
    MemoryId,
    Session,
    Tenant,
    Url,
    User,
)
from holdfast.edges.cli.output import show
from holdfast.edges.cli.render import show_explanation, show_memory, show_results
from holdfast.edges.cli.store import open_engine, open_memory

_KINDS = "short_term, long_term, persona, episodic, entity or structured"


@command(
    app,
    "add",
    examples=(
        'holdfast add "Enjoys skiing and mountain views" --user alice --meta topic=sports',
        "echo 'Prefers a window seat' | holdfast add - --user alice --kind persona",
        """holdfast add '{"city": "Lisbon", "nights": 4}' -u alice --kind structured""",
    ),
)
def add(
    *,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input.")],
    kind: Annotated[
        MemoryType, typer.Option("--kind", "-k", metavar="KIND", help=f"The kind of memory: {_KINDS}.")
    ] = MemoryType.LONG_TERM,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="JSON", help="What is said of it, as a JSON object.")
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option(
            "--meta", metavar="KEY=VALUE", help="One field of the metadata; a value that is JSON is read as JSON."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Who or what it comes from; the agent, if not given."),
    ] = None,
    derived_from: Annotated[
        list[str] | None,
        typer.Option(
            "--derived-from", metavar="ID", help="A memory or message that it was made from; may be repeated."
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="At the quota, recycle the oldest tenth to make room.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the new memory's id and nothing else.")] = False,
    user: User,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remember a text. When the command ends, it is on the disk."""
    if kind is MemoryType.WORKING:
        _refuse_working()
    said = read_metadata(metadata, meta or ())
    content = _read_stdin() if text == "-" else text
    with open_memory(home, url, tenant, (user, agent, session), quiet=as_json) as memory:
        verb = memory.add_with_auto_prune if prune else memory.add
        added = verb(content, kind, said, source=source, derived_from=derived_from)
    if quiet and not as_json:
        typer.echo(added["memory_id"])
    else:
        show(added, _show_added, as_json=as_json)


@command(
    app,
    "search",
    examples=(
        'holdfast search "holiday ideas" --user alice --top-k 3',
        "holdfast search tea -u alice -k long_term -k persona --explain",
        """holdfast search dinner -u alice --filter '{"price": {"lt": 30}}' --json""",
    ),
)
def search(
    *,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in your own words.")],
    kind: Annotated[
        list[MemoryType] | None,
        typer.Option("--kind", "-k", metavar="KIND", help=f"{_KINDS}; may be repeated. long_term, if not given."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-n", metavar="N", help="How many memories at most.")] = 5,
    where: Annotated[
        str | None, typer.Option("--filter", "-f", metavar="JSON", help="Only memories whose metadata passes this.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Archived memories too.")] = False,
    user: User,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Recall the memories that bear on a query, best first."""
    if MemoryType.WORKING in (kind or ()):
        _refuse_working()
    filters = None if where is None else _read_object(where, "--filter", InvalidFilterError)
    with open_memory(home, url, tenant, (user, agent, session), quiet=as_json) as memory:
        found = memory.retrieve(query, kind or None, top_k, filters, include_archived=archived or None, explain=explain)
    show(found, show_results, as_json=as_json)


@command(
    app,
    "get",
    examples=('id=$(holdfast add "Likes tea" --user alice --quiet)\nholdfast get $id --user alice',),
)
def get(
    *,
    memory_id: MemoryId,
    user: User,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show one memory with all that is known of it."""
    with open_memory(home, url, tenant, (user, agent, session), quiet=as_json) as memory:
        found = memory.get(memory_id)
    show(found, show_memory, as_json=as_json)


@command(
    app,
    "delete",
    examples=(
        'id=$(holdfast add "Likes tea" --user alice --quiet)\nholdfast delete $id --user alice',
        """\
id=$(holdfast add "Likes tea" --user alice --quiet)
holdfast add "Bring tea" --user alice --derived-from $id
holdfast delete $id --user alice --with-derived""",
    ),
)
def delete(
    *,
    memory_id: MemoryId,
    with_derived: Annotated[
        bool, typer.Option("--with-derived", help="All that was derived from it goes to the bin, too.")
    ] = False,
    user: User,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send a memory to the recycle bin, out of recall at once. (A short-term message is gone for good.)"""
    with open_memory(home, url, tenant, (user, agent, session), quiet=as_json) as memory:
        done = memory.delete(memory_id, with_derived=with_derived)
    show(done, _show_deleted, as_json=as_json)


@command(
    app,
    "restore",
    examples=(
        "id=$(holdfast add 'Likes tea' -u alice --quiet)\nholdfast delete $id -u alice\nholdfast restore $id -u alice",
    ),
)
def restore(
    *,
    memory_id: MemoryId,
    user: User,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Bring a memory back from the recycle bin, exactly as it was."""
    with open_memory(home, url, tenant, (user, agent, session), quiet=as_json) as memory:
        back = memory.restore(memory_id)
    show(back, _show_restored, as_json=as_json)


@command(
    app,
    "explain",
    examples=("id=$(holdfast add 'Likes tea' --user alice --quiet)\nholdfast explain $id",),
)
def explain(
    *,
    memory_id: MemoryId,
    user: Annotated[
        str | None,
        typer.Option(
            "--user", "-u", metavar="USER", help="Whose it is; of a memory that is gone for good, this must be said."
        ),
    ] = None,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say which rules a memory lives under, what happens to it next, and what protects it; or how it went."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        source = engine if user is None else engine.manager(user, agent, session)
        said = source.explain(memory_id)
    show(said, show_explanation, as_json=as_json)


@command(
    app,
    "rehydrate",
    examples=(
        """\
id=$(holdfast add "Likes tea" --user alice --quiet)
holdfast policy set long_term --archive-after 0.00001 --confirm
sleep 1
holdfast sweep
holdfast rehydrate $id --user alice""",
    ),
)
def rehydrate(
    *,
    memory_id: MemoryId,
    user: User,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Bring a memory back from cold storage: whole, in recall again, its age counted from now on."""
    with open_memory(home, url, tenant, (user, agent, session), quiet=as_json) as memory:
        found = memory.rehydrate(memory_id)
    show(found, show_memory, as_json=as_json)


def _show_added(console: Console, added: Mapping[str, Any]) -> None:
    room = added["quota_remaining"]
    parts = [added["memory_type"], f"{added['latency_ms']:.1f} ms"]
    parts += [] if room is None else [f"room for {room:,} more"]
    parts += [f"{added['pruned']:,} old ones recycled"] if "pruned" in added else []
    parts += [f"{added['dropped']:,} old ones left the window"] if "dropped" in added else []
    console.print(f"Remembered {added['memory_id']} ({', '.join(parts)}).", soft_wrap=True)


def _show_deleted(console: Console, done: Mapping[str, Any]) -> None:
    if done["operation"] == "recycle":
        console.print(f"Recycled {done['memory_id']}; holdfast restore brings it back.")
    else:
        console.print(f"Deleted {done['memory_id']} for good.")
    for gone in done.get("deleted_with", ()):
        console.print(f"Recycled {gone} with it, which was derived from it.")
    for left in done.get("derived", ()):
        console.print(f"{left} was derived from it and is still there.")
    if done.get("derived"):
        console.print("(holdfast delete ID --with-derived takes a memory and all that was derived from it.)")


def _show_restored(console: Console, back: Mapping[str, Any]) -> None:
    console.print(f"Restored {back['memory_id']}.")
    for came in back.get("restored_with", ()):
        console.print(f"Restored {came} with it, which was derived from it.")


def _refuse_working() -> NoReturn:
    raise InvalidKindError(
        "working memory lives in the process of an agent and ends with it, so the command line has none; "
        f"use --kind {_KINDS.replace(' or ', ', or ')}"
    )


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as problem:
        raise InvalidContentError(f"standard input is not UTF-8 text: {problem}") from None


def read_metadata(text: str | None, fields: Sequence[str]) -> dict[str, Any] | None:
    """Metadata from both of its options; a single field wins over the object."""
    said = {} if text is None else _read_object(text, "--metadata", InvalidMetadataError)
    for field in fields:
        key, equals, value = field.partition("=")
        if not key or not equals:
            raise InvalidMetadataError(f"--meta {field!r} is not understood; write it as key=value")
        try:
            said[key] = json.loads(value, parse_constant=lambda name: name)
        except ValueError:
            said[key] = value
    return said or None


def _read_object(text: str, option: str, error: type[InvalidInputError]) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise error(f'{option} is not JSON: {problem}; write it as \'{{"key": "value"}}\'') from None
    if not isinstance(value, dict):
        raise error(f'{option} must be a JSON object, such as \'{{"key": "value"}}\', not {text:.60}')
    return value
