"""``holdfast erase``: everything of a person goes, for good, and a certificate says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.errors import ConfirmationNeededError, InvalidInputError
from holdfast.core.records import Subject
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import error_console, printable, show
from holdfast.edges.cli.privacy.certificates import show_places
from holdfast.edges.cli.progress import is_watched
from holdfast.edges.cli.render import show_rows
from holdfast.edges.cli.store import open_engine

if TYPE_CHECKING:
    from holdfast.engine import Holdfast
    from holdfast.privacy.erasure import Erasure

_ADD: Final = "holdfast add 'Likes tea' --user alice"
_PAGES: Final = (".html", ".htm")


@command(
    app,
    "erase",
    examples=(
        f"{_ADD}\nholdfast erase alice --dry-run",
        f"{_ADD}\nfile=$(mktemp)\nholdfast erase alice --yes --certificate $file\nrm $file",
        f"{_ADD}\nholdfast erase alice --yes --json",
    ),
)
def erase(
    *,
    user: Annotated[str, typer.Argument(metavar="USER", help="Who is to be forgotten.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; you have looked at what goes.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would go, or what keeps it; change nothing.")
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", metavar="FILE", help="Write the certificate there; as a page, if it ends in .html."
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Erase a user for good: every memory of every kind, from every place, past the recycle bin.

    A signed certificate says what was found, removed and left. Refused while a hold stands on anything of theirs. Where
    something is away just now it is pending, with exit code 75: the next sweep, or the same command, goes on with it.
    """
    _check_writable(certificate)
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        if dry_run or not yes:
            found = _look(engine, user)
            if dry_run:
                show(found, _show_found, as_json=as_json)
                return
            _ask(found, silent=as_json)
        done = _erase(engine, user, certificate, silent=as_json)
    show(done, _show_done, as_json=as_json)
    if done["pending"]:
        raise typer.Exit(ExitCode.TRY_AGAIN)


def _look(engine: Holdfast, user: str) -> dict[str, Any]:
    """What there is of a user, more or less: others may be writing. ``HeldError`` while a hold keeps it."""
    from holdfast.core.records import DURABLE  # noqa: PLC0415 - not needed for --help

    engine.eraser.check(Subject(engine.tenant, user))  # what would be refused is not asked about
    kinds = {kind.value: engine.quotas.get(kind, user).memories for kind in DURABLE}
    total = engine.parts.reader.size(Subject(engine.tenant, user))
    return {"user_id": user, "memories": kinds, "memories_and_messages": max(total, sum(kinds.values()))}


def _ask(found: Mapping[str, Any], *, silent: bool) -> None:
    if silent or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfirmationNeededError(
            f"erasing {found['user_id']!r} removes all that is kept of them "
            f"({found['memories_and_messages']:,} memories and messages), for good; nothing was changed: look with "
            "--dry-run, then confirm with --yes"
        )
    _show_found(error_console(), found)
    typer.confirm("It cannot be brought back. Erase it?", err=True, abort=True)


def _erase(engine: Holdfast, user: str, file: Path | None, *, silent: bool) -> dict[str, Any]:
    if is_watched(silent=silent):
        with error_console().status("erasing, and looking again in every place"):
            erasure = engine.erase_user(user)
    else:
        erasure = engine.erase_user(user)
    if file is not None and erasure.certificate:
        _write(file, erasure.certificate)
    return _shown(user, erasure, file)


def _shown(user: str, erasure: Erasure, file: Path | None) -> dict[str, Any]:
    issued = erasure.certificate or {}
    return {
        "user_id": user,
        "pseudonym": erasure.alias,
        "pending": erasure.pending,
        "waiting_for": list(erasure.waiting_for),
        "memories": dict(erasure.kinds),
        "places": [place._asdict() for place in erasure.places],
        "certificate": issued.get("id"),
        "file": str(file) if file is not None and issued else None,
    }


def _check_writable(file: Path | None) -> None:
    """Refuse a place that a certificate cannot be written to before anything is erased."""
    from holdfast.privacy.export.export import check_target  # noqa: PLC0415 - not needed for --help

    if file is not None:
        check_target(file, "certificate.json")


def _write(file: Path, issued: Mapping[str, Any]) -> None:
    from holdfast.privacy.certificates.certificate import readable_page  # noqa: PLC0415 - not needed for --help

    text = readable_page(issued) if file.suffix.lower() in _PAGES else json.dumps(issued, indent=2) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InvalidInputError(
            f"all was erased, but the certificate cannot be written to {file}: {problem.strerror}; it is kept: "
            f"holdfast certificate show {issued['id']} --json"
        ) from None


def _show_found(console: Console, found: Mapping[str, Any]) -> None:
    who = printable(found["user_id"])
    if not found["memories_and_messages"]:
        console.print(f"Nothing is kept of {who}.")
        return
    console.print(f"Of {who} would go:")
    rows = [(kind, f"{count:,}") for kind, count in found["memories"].items() if count]
    total = Text(f"{found['memories_and_messages']:,}", style="bold")
    words = Text("in all, with messages, the bin and the archive", style="bold")
    show_rows(console, ("memories!", "how many>"), [*rows, (words, total)])


def _show_done(console: Console, done: Mapping[str, Any]) -> None:
    who = printable(done["user_id"])
    found = any(place[name] for place in done["places"] for name in ("found", "removed", "left"))
    if done["pseudonym"] is None and not done["pending"] and not found:
        console.print(f"Nothing is kept of {who} (any more); nothing to certify.")
        return
    show_places(console, done["places"])
    if done["pending"]:
        console.print(
            f"Nobody can find or read anything of {who} any more, but not all of it is gone yet:", style="yellow"
        )
        for reason in done["waiting_for"]:
            console.print(Text(f"  {printable(reason)}"), soft_wrap=True)
        console.print("The next sweep goes on with it, and so does this command. The certificate comes then.")
        return
    if done["pseudonym"] is None:
        console.print(f"Nothing was ever kept of {who} under a pseudonym; nothing to certify.")
        return
    console.print(f"Erased {who}, pseudonym {done['pseudonym']}.", style="green", soft_wrap=True)
    if done["certificate"] is None:
        console.print("No certificate could be issued; see the warning above.", style="bold red")
    else:
        where = f", written to {printable(done['file'])}" if done["file"] else ""
        console.print(f"Certificate {done['certificate']}{where}.", soft_wrap=True)
