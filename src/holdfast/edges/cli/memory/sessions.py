"""``holdfast session list | show | remove``: conversations, kept beside the short-term window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import minute, show_rows
from holdfast.edges.cli.selection import OfAgent, OfUser
from holdfast.edges.cli.store import open_engine

_SHOWN: Final = 60
_ADD: Final = 'holdfast add "Where is my order?" -k short_term -u alice -a helpdesk -s s1'

session = add_group(
    "session",
    about="List, read and remove conversations.",
    examples=["holdfast session list alice"],
)

AgentId = Annotated[str, typer.Argument(metavar="AGENT", help="The agent that it was with.")]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


@command(session, "list", examples=(f"{_ADD}\nholdfast session list alice",))
def list_sessions(
    *,
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose sessions.")],
    agent: OfAgent = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the sessions of a user, the latest active first."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.sessions.list(user, agent)
    show(found, _show_sessions, as_json=as_json)


@command(session, "show", examples=(f"{_ADD}\nholdfast session show helpdesk s1",))
def show_session(
    *,
    agent: AgentId,
    session_id: SessionId,
    user: OfUser = None,
    last: Annotated[int | None, typer.Option("--last", "-n", metavar="N", help="Only the last messages.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the messages of a session, in order. Where users share its name, say whose it is."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.sessions.history(agent, session_id, user_id=user, limit=last)
    show(found, _show_messages, as_json=as_json)


@command(session, "remove", examples=(f"{_ADD}\nholdfast session remove helpdesk s1",))
def remove_session(
    *,
    agent: AgentId,
    session_id: SessionId,
    user: OfUser = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send a session to the recycle bin; its short-term window is gone for good."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        count = engine.sessions.remove(agent, session_id, user_id=user)
    show({"agent_id": agent, "session_id": session_id, "messages": count}, _show_removed, as_json=as_json)


def _show_sessions(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("No sessions.")
        return
    rows = []
    for one in found:
        about = Text(printable(one["summary"] or ""))
        about.truncate(_SHOWN, overflow="ellipsis")
        agent, name = printable(one["agent_id"]), printable(one["session_id"] or "")
        rows.append((name, agent, f"{one['messages']:,}", minute(one["updated_on"]), about))
    show_rows(console, ("id!", "agent", "messages>", "last active!", "about"), rows)


def _show_messages(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("No messages.")
    for message in found:
        console.print(Text(f"{minute(message['timestamp'])}  {printable(message['role'])}", style="bright_black"))
        console.print(Text(printable(message["content"], lines=True)), soft_wrap=True)


def _show_removed(console: Console, done: Mapping[str, Any]) -> None:
    said = f"Recycled session {done['session_id']} with {done['messages']:,} messages"
    console.print(f"{printable(said)}; holdfast recycle restore --session brings it back.", soft_wrap=True)
