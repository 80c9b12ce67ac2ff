"""``holdfast serve | mcp | metrics``: the service in one command, and what it offers by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.core.values import check_id
from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import of_store
from holdfast.edges.cli.output import Output, Part, write
from holdfast.installation import missing_extra
from holdfast.settings import MAX_WORKERS
from holdfast.telemetry import export

if TYPE_CHECKING:
    from holdfast.edges.service.run import Where

_PLACES: Final = {
    "console": "console",
    "api": "REST",
    "docs": "its pages",
    "mcp": "MCP",
    "metrics": "metrics",
    "ready": "readiness",
}


@command(app, "serve", of_store)
def serve(
    call: Call,
    *,
    host: str = "127.0.0.1",
    port: int = 8422,
    no_schedule: bool = False,
    keyless: bool = False,
    log_format: str | None = None,
    stop_seconds: float = 20.0,
    workers: int = 1,
    check: bool = False,
) -> None:
    """Serve REST, MCP, metrics and health at one address, and run the schedule in a process beside it.

    Without API keys it serves this machine only, and asks nobody who they are. Once a key was made (holdfast access
    create), every caller needs one, from the next start on. Ctrl-C or SIGTERM ends it, after the requests that are
    being answered. Needs the extra called server.

    Options:
        --host HOST  Where to listen; 0.0.0.0 for every machine that gets here.
        --port PORT  The port; 0 for any that is free.
        --no-schedule  Do not run the schedule: another process does.
        --keyless  Serve this machine without asking for keys, though there are some.
        --log-format FORMAT  How the log on standard error is written: json, or text (as it is on a terminal).
        --stop-seconds SECONDS  How long requests have to finish at the end: 1 to 3,600.
        --workers N  By how many processes it serves: 1 to 64, one for each core. They share the store and all limits.
        --check  Open everything that serving needs, say where it would be, and end.

    Examples:
        holdfast serve --check --port 0

        holdfast serve --check --port 0 --json
    """
    if log_format not in (None, "json", "text"):
        raise InvalidInputError(f"--log-format must be json or text, not {log_format!r}")
    if not 1 <= stop_seconds <= 3_600:
        raise InvalidInputError(f"--stop-seconds must be a number from 1 to 3,600, not {stop_seconds:g}")
    if not 1 <= workers <= MAX_WORKERS:
        raise InvalidInputError(f"--workers must be a number from 1 to {MAX_WORKERS}, not {workers}")
    try:
        from holdfast.edges.service.logs import LogFormat  # noqa: PLC0415 - what serving needs is imported to serve
        from holdfast.edges.service.run import Options, run  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        raise missing_extra("holdfast serve", "server") from problem

    if call.is_new_store:
        call.engine.close()  # from here on it is the store that is served

    def announce(where: Where) -> None:
        show = partial(_show_places, check=check, keyless=keyless)
        write(Output(where.as_dict(), show), as_json=call.as_json)
        sys.stdout.flush()  # whoever reads it through a pipe waits for it

    form = LogFormat(log_format or ("text" if sys.stderr.isatty() else "json"))
    options = Options(host, port, not no_schedule, form, stop_seconds, keyless, call.home, call.url, workers)
    run(options, announce=announce, check=check)


def _show_places(said: Mapping[str, Any], *, check: bool, keyless: bool) -> Iterator[Part]:
    yield Text.assemble("Holdfast would serve at " if check else "Holdfast serves at ", (said["url"], "bold"))
    for name, meaning in _PLACES.items():
        yield Text(f"  {meaning:<10} {said[name]}")
    if said["keys_required"]:
        yield "Callers need an API key: Authorization: Bearer …"
    elif keyless:  # as was asked for, though there may be keys
        yield "No API keys are asked for (--keyless): this machine only is served, whoever uses it."
    else:
        yield "No API keys are asked for: this machine only is served, whoever uses it."
        yield "Make a key with: holdfast access create --name laptop --right write"
    if not said["schedule"]:
        yield "The schedule is not run here: see that another process runs it."
    if not check:
        yield "Ctrl-C ends it."


@command(app, "mcp")
def mcp(call: Call, *, user: str | None = None, agent: str | None = None) -> Any:
    """Serve an agent at standard input and output with tools to remember, search and forget (MCP).

    It ends when standard input does. Clients start it themselves: docs/howto/mcp.md has what to paste into their
    configuration. With an API key in HOLDFAST_API_KEY, the agent may do what the key allows; without, everything.
    With --json it prints the tools with their schemas, and ends.

    Options:
        --user -u USER  Whose memory is meant where a call does not say.
        --agent -a AGENT  Which agent is meant where a call does not say.

    Examples:
        holdfast mcp --user alice --agent claude </dev/null

        holdfast mcp --json
    """
    for given, what in ((user, "user_id"), (agent, "agent_id")):
        if given is not None:
            check_id(given, what)
    try:
        import mcp.server  # noqa: F401, PLC0415 - the extra is looked for here only
    except ImportError:
        raise missing_extra("holdfast mcp", "mcp") from None
    from holdfast.edges.mcp.tools import Defaults, describe_tool  # noqa: PLC0415 - the extra may not be installed
    from holdfast.edges.mcp.transport import serve_stdio  # noqa: PLC0415
    from holdfast.edges.operations.catalog import TOOLS  # noqa: PLC0415

    defaults, secret = Defaults(user, agent), os.environ.get("HOLDFAST_API_KEY") or None
    if call.as_json:
        tools = [describe_tool(tool, defaults, keyed=secret is not None) for tool in TOOLS.values()]
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    engine = call.engine
    if sys.stdin.isatty():  # nobody but a person who tries it out
        call.tell("waiting for an MCP client on standard input; Ctrl-C ends it")
    if engine.telemetry is not None:
        export()
    serve_stdio(engine, secret=secret, defaults=defaults)
    return None


@command(app, "metrics")
def metrics(call: Call) -> Any:
    """Print all metrics in Prometheus' format, as a textfile collector takes them.

    Needs prometheus-client, which comes with the extra called metrics.

    Examples:
        holdfast metrics

        holdfast metrics --json
    """
    if not call.as_json:
        return Output(None, text=call.engine.metrics().decode())
    return [
        {
            "name": family.name,
            "type": family.type,
            "help": family.documentation,
            "samples": [{"name": one.name, "labels": one.labels, "value": one.value} for one in family.samples],
        }
        for family in call.engine.collector.collect()
    ]
