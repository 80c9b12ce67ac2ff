"""``holdfast mcp``: memory for an agent that speaks the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Final

import typer

from holdfast.core.content import check_id
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Tenant, Url
from holdfast.edges.cli.output import error_console, write_json
from holdfast.edges.cli.store import open_engine
from holdfast.installation import missing_extra

_KEY: Final = "HOLDFAST_API_KEY"


@command(
    app,
    "mcp",
    examples=(
        "holdfast mcp --user alice --agent claude </dev/null",
        "holdfast mcp --json",
    ),
)
def mcp(
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", metavar="USER", help="Whose memory is meant where a call does not say."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", metavar="AGENT", help="Which agent is meant where a call does not say."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the tools with their schemas as one JSON document, and end.")
    ] = False,
) -> None:
    """Serve an agent at standard input and output with tools to remember, search and forget (MCP).

    It ends when standard input does. Clients start it themselves: docs/howto/mcp.md has what to paste into their
    configuration. With an API key in HOLDFAST_API_KEY, the agent may do what the key allows; without, everything.
    """
    for given, what in ((user, "user_id"), (agent, "agent_id")):
        if given is not None:
            check_id(given, what)
    _check_extra()
    from holdfast.edges.mcp.tools import Defaults  # noqa: PLC0415 - the extra may not be installed
    from holdfast.edges.mcp.transport import serve_stdio  # noqa: PLC0415

    defaults = Defaults(user, agent)
    secret = os.environ.get(_KEY) or None
    if as_json:
        write_json(_catalogue(defaults, keyed=secret is not None))
        return
    with open_engine(home, url, tenant) as engine:
        if sys.stdin.isatty():  # nobody but a person who tries it out
            error_console().print("waiting for an MCP client on standard input; Ctrl-C ends it", soft_wrap=True)
        serve_stdio(engine, secret=secret, defaults=defaults)


def _check_extra() -> None:
    try:
        import mcp.server  # noqa: F401, PLC0415 - the extra is looked for here only
    except ImportError:
        raise missing_extra("holdfast mcp", "mcp") from None


def _catalogue(defaults: Any, *, keyed: bool) -> list[dict[str, Any]]:
    from holdfast.edges.mcp.tools import describe_tool  # noqa: PLC0415 - not needed for --help
    from holdfast.edges.operations.catalog import TOOLS  # noqa: PLC0415

    tools = [describe_tool(tool, defaults, keyed=keyed) for tool in TOOLS.values()]
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
