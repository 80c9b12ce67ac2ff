"""Retention domains: policies for resources that are kept elsewhere.

Examples:
    holdfast domain list
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from rich.text import Text

from holdfast.core.domains import DOMAINS, FIELDS
from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import STDIO, Confirm, declare, read_bytes, read_object
from holdfast.edges.cli.output import Cell, Output, Part, Rows, minute, plural, table

domain = add_group(__name__, "domain", __doc__)

Name = Annotated[str, declare("DOMAIN", f"The domain: {' or '.join(DOMAINS)}.")]
Resources = Annotated[str, declare("FILE", "The resources: a JSON list, or one JSON object a line; - for stdin.")]


def _show_policies(policies: Mapping[str, Mapping[str, Any]]) -> Iterator[Part]:
    rows = [(field, *(_format(policy[field]) for policy in policies.values())) for field in FIELDS]
    yield Rows(", ".join(("field", *policies)), rows)


def _show_all(found: Mapping[str, Any]) -> Iterator[Part]:
    yield from _show_policies({name: found[name] for name in DOMAINS})
    yield f"Last changed: {minute(found['updated_at'])}."


@command(domain, "list", render=_show_all)
def list_domains(call: Call) -> Any:
    """List the policies of both domains.

    Examples:
        holdfast domain list

        holdfast domain list --json
    """
    return call.engine.domains.list()


@command(domain, "get")
def get_domain(call: Call, *, name: Name) -> Any:
    """Show the policy of a domain.

    Examples:
        holdfast domain get memory
    """
    return Output(call.engine.domains.get(name), lambda policy: _show_policies({name: policy}))


@command(domain, "set")
def set_domain(
    call: Call,
    *,
    name: Name,
    older_than_days: float | None = None,
    source_type: list[str] | None = None,
    keep_session: list[str] | None = None,
    keep_context: list[float] | None = None,
    limit: float | None = None,
    vacuum: bool | None = None,
    auto_gc: bool | None = None,
    config: str | None = None,
    confirm: Confirm = False,
) -> Any:
    """Change a domain's policy: what is given; the rest, and the other domain, stay as they are.

    Numbers are brought into their bounds, and what a field cannot be leaves it as it was. What makes memories of
    Holdfast's own go earlier needs --confirm.

    Options:
        --older-than-days DAYS  What is older may go: 1 to 3,650.
        --source-type TYPE  context, action or thought; once for each.
        --keep-session SESSION  Never let it go; once for each, "" for none.
        --keep-context NUMBER  Never let it go; once for each, 0 for none.
        --limit COUNT  So many at a time: 1 to 20,000.
        --vacuum/--no-vacuum  Give space back afterwards.
        --auto-gc/--no-auto-gc  Let sweeps collect Holdfast's own memories by the memory domain.
        --config JSON  Fields as an object, as get --json shows them; options win.

    Examples:
        holdfast domain set rag --older-than-days 90 --source-type context --limit 1000

        holdfast domain set memory --keep-session sess_abc123 --keep-context 7

        holdfast domain set memory --auto-gc --confirm

        holdfast domain set rag --config '{"older_than_days": 60, "source_types": ["thought"]}'
    """
    given = (older_than_days, source_type, keep_session, keep_context, limit, vacuum, auto_gc)
    named = {field: value for field, value in zip(FIELDS, given, strict=True) if value is not None}
    wanted = {**(read_object(config, "--config") or {}), **named}
    done = call.engine.domains.configure(name, wanted, confirm=confirm)
    return Output(done, lambda said: _show_policies({name: said["policy"]}))


def _show_evaluation(found: Mapping[str, Any]) -> Iterator[Part]:
    rows = [(_name_of(one), minute(str(one.get("created_at", "")), "unknown")) for one in found["eligible"]]
    if rows:
        yield Rows("may go!, made", rows)
    if found["protected"]:
        yield Rows("protected because, resources>", Counter(one["reason"] for one in found["protected"]).items())
    counts = found["counts"]
    left = counts["total"] - counts["eligible"] - counts["protected"]
    more = f"; {left:,} more may go next time" if left else ""
    made = f"{counts['eligible']:,} of {counts['total']:,} may go, made up to {minute(found['cutoff_date'])}"
    yield f"{made}{more}. Nothing was deleted."


@command(domain, "apply", render=_show_evaluation)
def apply_domain(call: Call, *, name: Name, file: Resources) -> Any:
    """Say which resources may go by a domain's policy, and which are protected and why. Nothing is deleted.

    Examples:
        file=$(mktemp)
        echo '{"id": 1, "source_type": "context", "created_at": "2024-05-01T08:00Z"}' > $file
        holdfast domain apply memory $file
        rm $file
    """
    resources = _read_resources(file)
    return call.engine.domains.apply(name, resources)


def _show_params(found: Mapping[str, Any]) -> Iterator[Part]:
    yield Rows("parameter, value", [(name, _format(value)) for name, value in found.items()])


@command(domain, "gc-params", render=_show_params)
def resolve_gc_params(call: Call, *, name: Name, args: str | None = None, validated: str | None = None) -> Any:
    """Say with which parameters a garbage collection of your own runs: what it was called with, then the policy's.

    Options:
        --args JSON  What the collection was called with, as an object.
        --validated JSON  What your own checks made of it; the rest is handed on.

    Examples:
        holdfast domain gc-params memory

        holdfast domain gc-params rag --args '{"limit": 100}'
    """
    raw, checked = read_object(args, "--args"), read_object(validated, "--validated")
    return call.engine.domains.resolve_gc_params(name, raw, checked)


def _show_archived(done: Mapping[str, Any]) -> str:
    size = plural(done["total_size_bytes"], "byte")
    return f"Archived {plural(done['resource_count'], 'resource')} ({size}) as {done['archive_id']}."


@command(domain, "archive", render=_show_archived)
def archive_domain(call: Call, *, name: Name, file: Resources, note: str | None = None) -> Any:
    """Write resources to cold storage, with a manifest of checksums, and read them back. Nothing is deleted.

    Options:
        --note TEXT  What the manifest is to say.

    Examples:
        file=$(mktemp)
        echo '{"id": 1, "source_type": "context", "created_at": "2024-05-01T08:00Z"}' > $file
        holdfast domain archive rag $file
        rm $file
    """
    resources = _read_resources(file)
    return call.engine.domains.archive(name, resources, None if note is None else {"note": note})


@table("archive!, made!, resources>, bytes>, note", empty="There are no archives.")
def _show_archives(one: Mapping[str, Any]) -> list[Cell]:
    made, note = minute(one["created_at"]), one["note"] or "none"
    return [one["archive_id"], made, one["resource_count"], one["total_size_bytes"], note]


@command(domain, "archives", render=_show_archives)
def list_archives(call: Call, *, name: Name) -> Any:
    """List the archives of a domain, the oldest first.

    Examples:
        holdfast domain archives memory
    """
    return call.engine.domains.archives(name)


@command(domain, "read", render=lambda found: [Text(json.dumps(resource)) for resource in found["resources"]])
def read_archive(call: Call, *, name: Name, archive: str) -> Any:
    """Print the resources of an archive, one JSON object a line, each compared with its checksum.

    Options:
        ID  The archive's id.

    Examples:
        file=$(mktemp)
        echo '{"id": 1}' | holdfast domain archive rag - --note "before the move" --json > $file
        archive=$(sed -n 's/.*"archive_id": "\\(.*\\)".*/\\1/p' $file)
        rm $file
        holdfast domain read rag $archive
    """
    return call.engine.domains.read_archive(name, archive)


def _read_resources(file: str) -> list[Any]:
    """The resources of a file: a JSON list, or an object a line."""
    try:
        text = read_bytes(file).decode()
        listed = (
            json.loads(text) if text.lstrip().startswith("[") else map(json.loads, filter(str.strip, text.splitlines()))
        )
        return list(listed)
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as problem:
        name = "stdin" if file == STDIO else file
        raise InvalidInputError(f"{name} is neither a JSON list nor one JSON object a line: {problem}") from problem


def _format(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _name_of(resource: Mapping[str, Any]) -> str:
    return str(resource.get("id", json.dumps(resource, ensure_ascii=False, default=str)))[:80]
