"""``holdfast serve``: the service in one command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import Home, Json, Url
from holdfast.edges.cli.output import console, write_json
from holdfast.edges.cli.store import open_engine, wants_new_store
from holdfast.installation import missing_extra

if TYPE_CHECKING:
    from holdfast.edges.service.logs import LogFormat
    from holdfast.edges.service.run import Where

_PORT: Final = 8422
_STOP_SECONDS: Final = 20.0
_PLACES: Final = {"api": "REST", "docs": "its pages", "mcp": "MCP", "metrics": "metrics", "ready": "readiness"}
_FORMATS: Final = ("json", "text")


def _form(value: str | None) -> str | None:
    if value not in (None, *_FORMATS):
        raise typer.BadParameter(f"{value!r} is not one of: {', '.join(_FORMATS)}")
    return value


@command(app, "serve", examples=("holdfast serve --check --port 0", "holdfast serve --check --port 0 --json"))
def serve(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Where to listen; 0.0.0.0 for every machine that gets here.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", help="The port; 0 for any that is free.")] = _PORT,
    no_schedule: Annotated[
        bool, typer.Option("--no-schedule", help="Do not run the schedule: another process does.")
    ] = False,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Serve this machine without asking for keys, though there are some.")
    ] = False,
    log_format: Annotated[
        str | None,
        typer.Option(
            "--log-format",
            metavar="FORMAT",
            callback=_form,
            help="How the log on standard error is written: json, or text (as it is on a terminal).",
        ),
    ] = None,
    stop_seconds: Annotated[
        float,
        typer.Option(
            "--stop-seconds", metavar="SECONDS", min=1, max=3_600, help="How long requests have to finish at the end."
        ),
    ] = _STOP_SECONDS,
    check: Annotated[
        bool, typer.Option("--check", help="Open everything that serving needs, say where it would be, and end.")
    ] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Serve REST, MCP, metrics and health at one address, and run the schedule in a process beside it.

    Without API keys it serves this machine only, and asks nobody who they are. Once a key was made (holdfast access
    create), every caller needs one, from the next start on. Ctrl-C or SIGTERM ends it, after the requests that are
    being answered. Needs the extra called server.
    """
    try:
        from holdfast.edges.service.logs import LogFormat  # noqa: PLC0415 - what serving needs is imported to serve
        from holdfast.edges.service.run import Options, run  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        raise missing_extra("holdfast serve", "server") from problem

    form: LogFormat = LogFormat(log_format or ("text" if sys.stderr.isatty() else "json"))
    if wants_new_store.get():
        with open_engine(home, url):
            pass  # from here on it is the store that is served
    options = Options(host, port, not no_schedule, form, stop_seconds, keyless, home, url)
    run(options, announce=lambda where: _announce(where, as_json=as_json, check=check, keyless=keyless), check=check)


def _announce(where: Where, *, as_json: bool, check: bool, keyless: bool) -> None:
    said = where.as_dict()
    if as_json:
        write_json(said)
    else:
        _show(console(), said, check=check, keyless=keyless)
    sys.stdout.flush()  # whoever reads it through a pipe waits for it


def _show(out: Console, said: dict[str, Any], *, check: bool, keyless: bool) -> None:
    out.print(
        Text.assemble(("Holdfast would serve at " if check else "Holdfast serves at ", ""), (said["url"], "bold"))
    )
    for name, meaning in _PLACES.items():
        out.print(f"  {meaning:<10} {said[name]}", soft_wrap=True)
    if said["keys_required"]:
        out.print("Callers need an API key: Authorization: Bearer …", soft_wrap=True)
    elif keyless:  # as was asked for, though there may be keys
        out.print("No API keys are asked for (--keyless): this machine only is served, whoever uses it.")
    else:
        out.print("No API keys are asked for: this machine only is served, whoever uses it.")
        out.print("Make a key with: holdfast access create --name laptop --right write", soft_wrap=True)
    if not said["schedule"]:
        out.print("The schedule is not run here: see that another process runs it.")
    if not check:
        out.print("Ctrl-C ends it.")
