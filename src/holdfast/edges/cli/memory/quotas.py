"""``holdfast quota show | set``: how much of each kind a user may hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from holdfast.core.errors import InvalidInputError
from holdfast.core.records import DURABLE, MemoryType
from holdfast.edges.cli.app import app, command, with_examples
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import show
from holdfast.edges.cli.render import show_rows
from holdfast.edges.cli.store import open_engine

quota = typer.Typer(no_args_is_help=True)
app.add_typer(
    quota,
    name="quota",
    help="Show and set how much of each kind a user may hold.",
    epilog=with_examples(["holdfast quota show alice"]),
)


@command(quota, "show", examples=("holdfast quota show alice",))
def show_quota(
    *,
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose quotas.")],
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show what a user holds of each kind, and how much they may."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        usages = [{"memory_type": kind.value, **engine.quotas.get(kind, user)._asdict()} for kind in DURABLE]
    show(usages, _show_usages, as_json=as_json)


@command(
    quota,
    "set",
    examples=(
        "holdfast quota set long_term --max-memories 500 --user alice",
        "holdfast quota set episodic --max-memories unlimited --max-bytes 1000000000",
    ),
)
def set_quota(
    *,
    kind: Annotated[MemoryType, typer.Argument(metavar="KIND", help=f"The kind of memory: {', '.join(DURABLE)}.")],
    max_memories: Annotated[
        str | None, typer.Option("--max-memories", metavar="N", help="How many memories; unlimited: no limit.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option("--max-bytes", metavar="N", help="How many bytes of content; unlimited: no limit.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user", "-u", metavar="USER", help="For whom; everyone without a quota of their own, if not given."
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Set a quota. A lower one removes nothing: it stops further writes."""
    limits = {"max_memories": _limit("--max-memories", max_memories), "max_bytes": _limit("--max-bytes", max_bytes)}
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        engine.quotas.set(kind, **limits, user_id=user)
    given = {name: None if value == math.inf else value for name, value in limits.items() if value is not None}
    show({"memory_type": kind.value, "user_id": user, **given}, _show_set, as_json=as_json)


def _limit(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    if text == "unlimited":
        return math.inf
    digits = text.replace(",", "").replace("_", "")
    if not digits.isdecimal():
        raise InvalidInputError(f"{option} must be a whole number of at least 0, or unlimited, not {text!r}")
    return int(digits)


def _show_usages(console: Console, usages: Sequence[dict[str, Any]]) -> None:
    rows = [
        (
            usage["memory_type"],
            f"{usage['memories']:,}",
            _shown(usage["max_memories"]),
            f"{usage['bytes']:,}",
            _shown(usage["max_bytes"]),
        )
        for usage in usages
    ]
    show_rows(console, ("kind", "memories>", "at most>", "bytes>", "at most>"), rows)


def _show_set(console: Console, done: dict[str, Any]) -> None:
    whom = done["user_id"] or "everyone without a quota of their own"
    limits = [
        f"{_shown(done[name])} {unit}"
        for name, unit in (("max_memories", "memories"), ("max_bytes", "bytes"))
        if name in done
    ]
    console.print(f"Quota of {done['memory_type']} for {whom}: {', '.join(limits)}.", soft_wrap=True)


def _shown(limit: int | None) -> str:
    return "unlimited" if limit is None else f"{limit:,}"
