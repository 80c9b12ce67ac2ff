"""``holdfast export``: everything that is held on a person, as a ZIP or as one JSON document."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.progress import is_watched, show_progress
from holdfast.edges.cli.render import minute, show_rows
from holdfast.edges.cli.store import open_engine

_STDOUT: Final = "-"
_ADD: Final = 'holdfast add "Likes tea" --user alice'
#: What a file's name is left with of a user's id.
_UNSAFE: Final = re.compile(r"[^\w.@+-]+")


@command(
    app,
    "export",
    examples=(
        f"{_ADD}\nholdfast export alice --to alice.zip",
        f"{_ADD}\nholdfast export alice --json",
        f"{_ADD}\nholdfast export alice --to - > alice.zip",
    ),
)
def export(
    *,
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose data.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="FILE", help="The ZIP to write, or - for stdout; export-USER.zip here, if not given."
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Export everything that is held on a user: in every state, of every kind, from every place.

    The ZIP has a page to read (index.html) and files for programs, with a schema. With --json and without --to, all of
    it is one JSON document on stdout, which is put together in memory.
    """
    if to == _STDOUT and as_json:
        raise InvalidInputError("--to - writes the ZIP to stdout, where --json would write too; leave one of them out")
    if to == _STDOUT and sys.stdout.isatty():
        raise InvalidInputError("a ZIP is nothing for a terminal; write it to a file, or into a pipe: --to - > FILE")
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        exports = engine.parts.exports
        total = exports.size(engine.tenant, user) if is_watched(silent=as_json) else 0
        with show_progress("exporting", total, silent=as_json) as advance:
            if as_json and to is None:
                done = engine.export_user(user, progress=advance)
            else:
                target: Any = sys.stdout.buffer if to == _STDOUT else to or f"export-{_UNSAFE.sub('_', user)}.zip"
                done = engine.export_user(user, target, progress=advance)
    if to != _STDOUT:
        show(done, _show_done, as_json=as_json)


def _show_done(console: Console, done: Mapping[str, Any]) -> None:
    counts = {**done["memories"], **{name: count for name, count in done.items() if name in _COUNTED}}
    rows = [(name.replace("_", " "), f"{count:,}") for name, count in counts.items() if count]
    if rows:
        show_rows(console, ("held!", "how many>"), rows)
    else:
        console.print(f"Nothing is held on {printable(done['user_id'])}.")
    if done["incomplete"]:
        console.print(
            f"Of {done['incomplete']:,} of the memories only a part could be read; each has a note that says why.",
            style="yellow",
            soft_wrap=True,
        )
    console.print(f"Written to {printable(done['file'])}, as of {minute(done['export_date'])}.", soft_wrap=True)


_COUNTED: Final = ("conversations", "facts", "collections", "quotas", "rules", "holds", "audit")
