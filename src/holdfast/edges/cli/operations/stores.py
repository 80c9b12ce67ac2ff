"""``holdfast init-db | migrate | reembed``: the tables of a store, its way into another database, other vectors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import DryRun, of_store
from holdfast.edges.cli.output import ExitCode, Output, Part, Rows, bad, bold, good, indent, plural, warn

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.storage.transfer.migrate import Transferred

#: The folders of the state store.
_KEPT: Final = ("keys", "ledger", "erased", "certificates", "revoked", "state")


#: Names of users and databases that need no quotes, in SQL and in psql.
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def _show_ready(done: Mapping[str, Any]) -> str:
    return f"The tables of {done['store']} are there and up to date."


@command(app, "init-db", of_store, render=_show_ready)
def init_db(
    call: Call,
    *,
    print_: bool = False,
    owner: str = "holdfast_owner",
    app_user: str = "holdfast_app",
    database: str = "holdfast",
) -> Any:
    """Make the tables of a store, or bring them up to date: as their owner, before a new version is started.

    Whatever opens the store does the same, if its user may. With --print nothing is opened: it prints what an
    administrator of PostgreSQL does first, for psql: two users, the database, and what each may do there.

    Options:
        --print  Print the users and grants, as a script for psql.
        --owner NAME  The user that owns the tables.
        --app-user NAME  The user that processes connect as.
        --database NAME  The database.

    Examples:
        holdfast init-db
        holdfast init-db --print --database memories
    """
    if print_:
        script = _write_roles(owner, app_user, database)
        return Output({"sql": script}, text=script)
    from holdfast.storage.stores import store_url  # noqa: PLC0415 - not needed for --help

    return {"store": store_url(call.engine.settings)}


def _write_roles(owner: str, app_user: str, database: str) -> str:
    """The script that makes users and grants."""
    names = {"owner": owner, "app": app_user, "database": database}
    for option, name in names.items():
        if not _NAME.fullmatch(name):
            raise typer.BadParameter(
                f"the name {name!r} of the {option} must be of a-z, 0-9 and _, 63 at most, and begin with no digit"
            )
    script = resources.files(__package__).joinpath("roles.sql").read_text(encoding="utf-8")
    return script.format(**names, **{f"{name}_text": f"'{value}'" for name, value in names.items()})


@command(app, "migrate", of_store)
def migrate(call: Call, *, from_: str | None = None, to: str | None = None, dry_run: DryRun = False) -> Any:
    """Copy everything into PostgreSQL: holdfast migrate --to postgresql://user@host:5432/database

    Stop whatever uses the store first. All rows are read back and compared; until then the copy cannot be opened. Cut
    short, the same command goes on where it stopped. The old store is left as it is. A password is best left out of
    the command: PGPASSWORD and ~/.pgpass are read.

    Options:
        --from URL  The store to copy; HOLDFAST_URL or the home's, if not given.
        --to URL  An empty database: postgresql://user@host:5432/database.

    Examples:
        holdfast add "Likes tea" --user alice
        holdfast migrate --dry-run
    """
    from holdfast.settings import read_settings  # noqa: PLC0415 - not needed for --help

    if to is None and not dry_run:
        raise typer.BadParameter("say where to copy to: --to postgresql://user@host:5432/database")
    settings = read_settings(os.environ, url=from_ or call.url, home=call.home)
    called = "--from" if from_ else "--url" if call.url else "HOLDFAST_URL"
    if to is None or dry_run:
        return Output(_look(settings, to, called), _show_plan)
    done = _copy(call, settings, to, called)
    return Output(done, _show_done, code=0 if done["audit"]["ok"] else ExitCode.UNHEALTHY)


def _look(settings: Settings, target: str | None, called: str) -> dict[str, Any]:
    from holdfast.storage.transfer.stores import check_target, count_rows, open_source  # noqa: PLC0415 - not for --help

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


def _copy(call: Call, settings: Settings, url: str, called: str) -> dict[str, Any]:
    from holdfast.storage.transfer.migrate import transfer  # noqa: PLC0415
    from holdfast.storage.transfer.stores import check_target, open_source, open_target  # noqa: PLC0415

    check_target(settings.url, url)
    with closing(open_source(settings.url, settings, called)) as source, closing(open_target(url, settings)) as target:
        done = transfer(source, target, call.progress)
        return {"from": source.place, "to": target.place, **_to_dict(done), "notes": _notes(settings, done.counts)}


def _to_dict(done: Transferred) -> dict[str, Any]:
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
    from holdfast.settings import mask_password  # noqa: PLC0415
    from holdfast.storage.objects.urls import read_place  # noqa: PLC0415

    notes = []
    if settings.short_term_url:
        notes.append(f"Short-term memory is in {mask_password(settings.short_term_url)} and stays there.")
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


def _show_plan(plan: Mapping[str, Any]) -> Iterator[Part]:
    yield f"From {plan['from']} would be copied:"
    rows = [(line["table"], line["rows"]) for line in plan["tables"] if line["rows"]]
    yield Rows("table!, rows>", [*rows, (bold("in all"), bold(plan["rows"]))])
    if plan["unfinished_copy_of"] is not None:
        yield f"A copy of {plan['unfinished_copy_of']} was begun there."
    yield from map(warn, plan["notes"])
    yield "Nothing was changed."


def _show_done(done: Mapping[str, Any]) -> Iterator[Part]:
    rows = [(line["table"], line["rows"], "the same") for line in done["tables"] if line["rows"]]
    yield Rows("table!, rows>, compared", [*rows, (bold("in all"), bold(done["rows"]), "the same")])
    how = "The source had changed, so the copy was begun anew. " if done["begun_anew"] else ""
    how += "Went on where it was cut short. " if done["resumed"] else ""
    rate = f"{plural(done['copied'], 'row')} in {done['seconds']:.1f} s ({done['rows_per_second']:,} a second)"
    yield good(f"{how}Copied {rate} into {done['to']}.")
    if not done["audit"]["ok"]:
        yield bad("The audit chain is BROKEN, as it is in the source:")
        for finding in done["audit"]["findings"]:
            yield indent(f"{finding['chain']} {finding['seq']}: {finding['problem']}")
    yield from map(warn, done["notes"])
    yield "Now set HOLDFAST_URL to the new store. The old one was left as it was."


def _show_reembedded(done: Mapping[str, Any]) -> str:
    count, model = done["reembedded"], done["model"]
    already = f"Every memory has vectors of {model} already."
    return f"Embedded {plural(count, 'memory')} with {model}." if count else already


@command(app, "reembed", render=_show_reembedded)
def reembed(call: Call) -> Any:
    """Give every memory vectors of the embedder in use, after HOLDFAST_EMBEDDER has changed.

    Recall does this by itself, a little with each query; this does all of it now.

    Examples:
        holdfast reembed
    """
    engine = call.engine
    engine.embedder.embed(["is it there?"])  # the engine writes on without its embedder; here that is the point
    with call.progress("embedding memories", None) as advance:
        return {"reembedded": engine.reembed(advance), "model": engine.embedder.id}
