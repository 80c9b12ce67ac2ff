"""``holdfast migrate``: a whole store into another database, without anything lost on the way."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import Home, Json
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.progress import show_progress
from holdfast.edges.cli.render import show_rows

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.storage.transfer.migrate import Transferred

From = Annotated[
    str | None,
    typer.Option("--from", metavar="URL", help="The store to copy; HOLDFAST_URL or the home's, if not given."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="URL", help="An empty database: postgresql://user@host:5432/database."),
]

#: The folders of the state store.
_KEPT: Final = ("keys", "ledger", "erased", "certificates", "revoked", "state")


@command(app, "migrate", examples=('holdfast add "Likes tea" --user alice\nholdfast migrate --dry-run',))
def migrate(
    *,
    source: From = None,
    target: To = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be copied, and whether it can be; change nothing.")
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Copy everything into PostgreSQL: holdfast migrate --to postgresql://user@host:5432/database

    Stop whatever uses the store first. All rows are read back and compared; until then the copy cannot be opened. Cut
    short, the same command goes on where it stopped. The old store is left as it is. A password is best left out of
    the command: PGPASSWORD and ~/.pgpass are read.
    """
    from holdfast.settings import read_settings  # noqa: PLC0415 - not needed for --help

    if target is None and not dry_run:
        raise typer.BadParameter("say where to copy to: --to postgresql://user@host:5432/database")
    settings = read_settings(os.environ, url=source, home=home)
    called = "HOLDFAST_URL" if source is None else "--from"
    if dry_run:
        show(_look(settings, target, called), _show_plan, as_json=as_json)
        return
    assert target is not None  # noqa: S101 - see above
    done = _copy(settings, target, called, silent=as_json)
    show(done, _show_done, as_json=as_json)
    if not done["audit"]["ok"]:
        raise typer.Exit(ExitCode.UNHEALTHY)


def _look(settings: Settings, target: str | None, called: str) -> dict[str, Any]:
    from holdfast.storage.transfer.migrate import count_rows  # noqa: PLC0415
    from holdfast.storage.transfer.stores import check_target, open_source  # noqa: PLC0415 - not needed for --help

    begun = None if target is None else check_target(settings.url, target)
    with closing(open_source(settings.url, settings, called)) as source:
        with source.read() as reader:
            counts = count_rows(reader)
        place = source.place
    return {
        "from": place,
        "unfinished_copy_of": begun,
        "rows": sum(counts.values()),
        "tables": [{"table": name, "rows": rows} for name, rows in counts.items()],
        "notes": _notes(settings, counts),
    }


def _copy(settings: Settings, url: str, called: str, *, silent: bool) -> dict[str, Any]:
    from holdfast.storage.transfer.migrate import transfer  # noqa: PLC0415
    from holdfast.storage.transfer.stores import check_target, open_source, open_target  # noqa: PLC0415

    check_target(settings.url, url)
    with (
        closing(open_source(settings.url, settings, called)) as source,
        closing(open_target(url, settings)) as target,
    ):
        done = transfer(source, target, partial(show_progress, silent=silent))
        return {"from": source.place, "to": target.place, **_shown(done), "notes": _notes(settings, done.counts)}


def _shown(done: Transferred) -> dict[str, Any]:
    return {
        "rows": sum(done.counts.values()),
        "copied": done.copied,
        "seconds": round(done.seconds, 3),
        "rows_per_second": round(done.copied / done.seconds) if done.seconds else 0,
        "resumed": done.begun.is_resumed,
        "begun_anew": done.begun.is_anew,
        "tables": [{"table": name, "rows": rows, "verified": True} for name, rows in done.counts.items()],
        "audit": {"ok": not done.findings, "findings": [finding._asdict() for finding in done.findings]},
    }


def _notes(settings: Settings, counts: Mapping[str, int]) -> list[str]:
    """What is not in the store, and stays where it is."""
    from holdfast.privacy.keys.master import master_file  # noqa: PLC0415 - not needed for --help
    from holdfast.settings import without_password  # noqa: PLC0415
    from holdfast.storage.objects.urls import read_place  # noqa: PLC0415

    notes = []
    if settings.short_term_url:
        notes.append(f"Short-term memory is in {without_password(settings.short_term_url)} and stays there.")
    place = read_place(settings.cold_url())
    if counts["packs"] and place.scheme == "file":
        notes.append(
            f"Archived memories lie in the folder {place.folder}, which other machines cannot reach. To use the store "
            f"from several, copy it to a bucket (aws s3 sync {place.folder} s3://bucket/archive, or rclone copy) and "
            "set HOLDFAST_ARCHIVE_URL=s3://bucket/archive."
        )
    place = read_place(settings.keeping_url())
    if place.scheme == "file" and (there := [name for name in _KEPT if _is_needed(place.folder / name)]):
        notes.append(
            f"Keys, the ledger of erasures and what else is kept outside of the store lie in {place.folder}, in "
            f"{', '.join(f'{name}/' for name in there)}: without them archived memories and backups cannot be read. "
            "Keep this home, or copy them to the new one; or copy them to a bucket, but for keys/master.key, and set "
            "HOLDFAST_STATE_URL=s3://bucket/state."
        )
    file = master_file(settings.master_key, settings.master_path())
    if file is not None and file.exists():
        notes.append(
            f"The master key, which opens those keys, is in {file}: every machine needs it, by HOLDFAST_MASTER_KEY or "
            "in that file of its home; not in a bucket."
        )
    if counts["audit_checkpoints"]:
        notes.append(
            f"The last audit checkpoint is noted in {settings.home / 'state'}: keep this home, or copy that folder "
            "to the new one."
        )
    return notes


def _is_needed(folder: Path) -> bool:
    """Whether a folder holds anything but notes of which stores were served: the new one is noted anew."""
    return folder.is_dir() and any(path.name != "stores" for path in folder.iterdir())


def _show_plan(console: Console, plan: Mapping[str, Any]) -> None:
    console.print(f"From {printable(plan['from'])} would be copied:", soft_wrap=True)
    rows = [(line["table"], f"{line['rows']:,}") for line in plan["tables"] if line["rows"]]
    show_rows(console, ("table!", "rows>"), [*rows, _total(plan["rows"])])
    if plan["unfinished_copy_of"] is not None:
        console.print(f"A copy of {printable(plan['unfinished_copy_of'])} was begun there.", soft_wrap=True)
    _show_notes(console, plan)
    console.print("Nothing was changed.")


def _show_done(console: Console, done: Mapping[str, Any]) -> None:
    rows = [(line["table"], f"{line['rows']:,}", "the same") for line in done["tables"] if line["rows"]]
    show_rows(console, ("table!", "rows>", "compared"), [*rows, (*_total(done["rows"]), "")])
    how = "The source had changed, so the copy was begun anew. " if done["begun_anew"] else ""
    how += "Went on where it was cut short. " if done["resumed"] else ""
    rate = f"{done['copied']:,} rows in {done['seconds']:.1f} s ({done['rows_per_second']:,} a second)"
    console.print(f"{how}Copied {rate} into {printable(done['to'])}.", style="green", soft_wrap=True)
    if not done["audit"]["ok"]:
        console.print("The audit chain is BROKEN, as it is in the source:", style="bold red")
        for finding in done["audit"]["findings"]:
            console.print(f"  {printable(finding['chain'])} {finding['seq']}: {printable(finding['problem'])}")
    _show_notes(console, done)
    console.print("Now set HOLDFAST_URL to the new store. The old one was left as it was.", soft_wrap=True)


def _show_notes(console: Console, said: Mapping[str, Any]) -> None:
    for note in said["notes"]:
        console.print(Text(printable(note), style="yellow"), soft_wrap=True)


def _total(rows: int) -> tuple[Text, Text]:
    return Text("in all", style="bold"), Text(f"{rows:,}", style="bold")
