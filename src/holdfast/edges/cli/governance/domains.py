"""``holdfast domain list | get | set | apply | gc-params | archive | archives | read``: policies for other stores."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from holdfast.core.domains import DOMAINS, FIELDS
from holdfast.core.errors import InvalidInputError, quote
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import counted, minute, show_rows
from holdfast.edges.cli.selection import Author, Confirm
from holdfast.edges.cli.store import open_engine

domain = add_group(
    "domain",
    about="Retention domains: policies for resources that are kept elsewhere.",
    examples=["holdfast domain list"],
)

Name = Annotated[str, typer.Argument(metavar="DOMAIN", help=f"The domain: {' or '.join(DOMAINS)}.")]
Resources = Annotated[
    str,
    typer.Argument(metavar="FILE", help="The resources: a JSON list, or one JSON object a line; - for stdin."),
]
_SAMPLE = """\
file=$(mktemp)
echo '{"id": 1, "source_type": "context", "created_at": "2024-05-01T08:00Z"}' > $file"""


@command(domain, "list", examples=("holdfast domain list", "holdfast domain list --json"))
def list_domains(*, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """List the policies of both domains."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.domains.list()
    show(found, _show_all, as_json=as_json)


@command(domain, "get", examples=("holdfast domain get memory",))
def get_domain(
    *, name: Name, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False
) -> None:
    """Show the policy of a domain."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        policy = engine.domains.get(name)
    show(policy, lambda console, found: _show_policies(console, {name: found}), as_json=as_json)


@command(
    domain,
    "set",
    examples=(
        "holdfast domain set rag --older-than-days 90 --source-type context --limit 1000",
        "holdfast domain set memory --keep-session sess_abc123 --keep-context 7",
        "holdfast domain set memory --auto-gc --confirm",
        """holdfast domain set rag --config '{"older_than_days": 60, "source_types": ["thought"]}'""",
    ),
)
def set_domain(
    *,
    name: Name,
    older_than_days: Annotated[
        float | None, typer.Option("--older-than-days", metavar="DAYS", help="What is older may go: 1 to 3,650.")
    ] = None,
    source_type: Annotated[
        list[str] | None,
        typer.Option("--source-type", metavar="TYPE", help="context, action or thought; once for each."),
    ] = None,
    keep_session: Annotated[
        list[str] | None,
        typer.Option("--keep-session", metavar="SESSION", help='Never let it go; once for each, "" for none.'),
    ] = None,
    keep_context: Annotated[
        list[float] | None,
        typer.Option("--keep-context", metavar="NUMBER", help="Never let it go; once for each, 0 for none."),
    ] = None,
    limit: Annotated[
        float | None, typer.Option("--limit", metavar="COUNT", help="So many at a time: 1 to 20,000.")
    ] = None,
    vacuum: Annotated[bool | None, typer.Option("--vacuum/--no-vacuum", help="Give space back afterwards.")] = None,
    auto_gc: Annotated[
        bool | None,
        typer.Option("--auto-gc/--no-auto-gc", help="Let sweeps collect Holdfast's own memories by the memory domain."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="JSON", help="Fields as an object, as get --json shows them; options win."),
    ] = None,
    confirm: Confirm = False,
    author: Author = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Change a domain's policy: what is given; the rest, and the other domain, stay as they are.

    Numbers are brought into their bounds, and what a field cannot be leaves it as it was. What makes memories of
    Holdfast's own go earlier needs --confirm.
    """
    given = (older_than_days, source_type, keep_session, keep_context, limit, vacuum, auto_gc)
    named = {field: value for field, value in zip(FIELDS, given, strict=True) if value is not None}
    wanted = {**(_object(config, "--config") or {}), **named}
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        done = engine.domains.configure(name, wanted, confirm=confirm, author=author)
    show(done, lambda console, said: _show_policies(console, {name: said["policy"]}), as_json=as_json)


@command(domain, "apply", examples=(f"{_SAMPLE}\nholdfast domain apply memory $file\nrm $file",))
def apply_domain(
    *,
    name: Name,
    file: Resources,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say which resources may go by a domain's policy, and which are protected and why. Nothing is deleted."""
    resources = _read(file)
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.domains.apply(name, resources)
    show(found, _show_evaluation, as_json=as_json)


@command(
    domain,
    "gc-params",
    examples=("holdfast domain gc-params memory", """holdfast domain gc-params rag --args '{"limit": 100}'"""),
)
def resolve_gc_params(
    *,
    name: Name,
    args: Annotated[
        str | None, typer.Option("--args", metavar="JSON", help="What the collection was called with, as an object.")
    ] = None,
    validated: Annotated[
        str | None,
        typer.Option("--validated", metavar="JSON", help="What your own checks made of it; the rest is handed on."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say with which parameters a garbage collection of your own runs: what it was called with, then the policy's."""
    raw_args, validated_args = _object(args, "--args"), _object(validated, "--validated")
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.domains.resolve_gc_params(name, raw_args, validated_args)
    show(found, _show_params, as_json=as_json)


@command(domain, "archive", examples=(f"{_SAMPLE}\nholdfast domain archive rag $file\nrm $file",))
def archive_domain(
    *,
    name: Name,
    file: Resources,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="What the manifest is to say.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Write resources to cold storage, with a manifest of checksums, and read them back. Nothing is deleted."""
    resources = _read(file)
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        done = engine.domains.archive(name, resources, None if note is None else {"note": note})
    show(done, _show_archived, as_json=as_json)


@command(domain, "archives", examples=("holdfast domain archives memory",))
def list_archives(
    *, name: Name, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False
) -> None:
    """List the archives of a domain, the oldest first."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.domains.archives(name)
    show(found, _show_archives, as_json=as_json)


@command(
    domain,
    "read",
    examples=(
        """\
file=$(mktemp)
echo '{"id": 1}' | holdfast domain archive rag - --note "before the move" --json > $file
archive=$(sed -n 's/.*"archive_id": "\\(.*\\)".*/\\1/p' $file)
rm $file
holdfast domain read rag $archive""",
    ),
)
def read_archive(
    *,
    name: Name,
    archive: Annotated[str, typer.Argument(metavar="ID", help="The archive's id.")],
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Print the resources of an archive, one JSON object a line, each compared with its checksum."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.domains.read_archive(name, archive)
    show(found, _show_resources, as_json=as_json)


def _read(file: str) -> list[Any]:
    """The resources of a file: a JSON list, or an object a line."""
    try:
        text = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
        if text.lstrip().startswith("["):
            listed = json.loads(text)
        else:
            listed = [json.loads(line) for line in text.splitlines() if line.strip()]
    except OSError as problem:
        raise InvalidInputError(f"cannot read {file}: {problem.strerror or problem}") from problem
    except (ValueError, RecursionError) as problem:
        raise InvalidInputError(
            f"{'stdin' if file == '-' else file} is neither a JSON list nor one JSON object a line: {problem}"
        ) from problem
    return list(listed)


def _object(text: str | None, option: str) -> dict[str, Any] | None:
    """The JSON object that an option gives."""
    if text is None:
        return None
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InvalidInputError(f"{option} is not JSON: {problem}") from problem
    if not isinstance(given, dict):
        raise InvalidInputError(f"{option} must be a JSON object, such as '{{\"limit\": 100}}', not {quote(given)}")
    return given


def _show_all(console: Console, found: Mapping[str, Any]) -> None:
    _show_policies(console, {name: found[name] for name in DOMAINS})
    changed = found["updated_at"]
    console.print("Never changed." if changed is None else f"Last changed: {minute(changed)}.", soft_wrap=True)


def _show_params(console: Console, found: Mapping[str, Any]) -> None:
    show_rows(console, ("parameter", "value"), [(printable(name), _told(value)) for name, value in found.items()])


def _show_policies(console: Console, policies: Mapping[str, Mapping[str, Any]]) -> None:
    names = list(policies)
    rows = [(field, *(_told(policies[name][field]) for name in names)) for field in FIELDS]
    show_rows(console, ("", *names), rows)


def _told(value: Any) -> str:
    if isinstance(value, list):
        return printable(", ".join(str(item) for item in value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _show_evaluation(console: Console, found: Mapping[str, Any]) -> None:
    counts = found["counts"]
    rows = [(_name_of(resource), minute(str(resource.get("created_at", "")))) for resource in found["eligible"]]
    if rows:
        show_rows(console, ("may go!", "made"), rows)
    reasons = Counter(one["reason"] for one in found["protected"])
    if reasons:
        show_rows(console, ("protected because", "resources>"), [(why, f"{count:,}") for why, count in reasons.items()])
    left = counts["total"] - counts["eligible"] - counts["protected"]
    more = f"; {left:,} more may go next time" if left else ""
    console.print(
        f"{counts['eligible']:,} of {counts['total']:,} may go, made up to {minute(found['cutoff_date'])}{more}. "
        "Nothing was deleted.",
        soft_wrap=True,
    )


def _name_of(resource: Mapping[str, Any]) -> str:
    return printable(str(resource.get("id", json.dumps(resource, ensure_ascii=False, default=str))))[:80]


def _show_archived(console: Console, done: Mapping[str, Any]) -> None:
    console.print(
        f"Archived {counted(done['resource_count'], 'resource')} ({counted(done['total_size_bytes'], 'byte')}) "
        f"as {done['archive_id']}.",
        soft_wrap=True,
    )


def _show_archives(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("There are no archives.")
        return
    rows = [
        (
            one["archive_id"],
            minute(one["created_at"]),
            f"{one['resource_count']:,}",
            f"{one['total_size_bytes']:,}",
            printable(one["note"] or ""),
        )
        for one in found
    ]
    show_rows(console, ("archive!", "made!", "resources>", "bytes>", "note"), rows)


def _show_resources(console: Console, found: Mapping[str, Any]) -> None:
    for resource in found["resources"]:
        console.print(json.dumps(resource, ensure_ascii=True), soft_wrap=True)
