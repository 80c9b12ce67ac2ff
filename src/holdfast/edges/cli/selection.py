"""The options that say what something is for, where each of them may be left out; and who says so."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

_WHAT: Final = "What it is for"

OfUser = Annotated[
    str | None, typer.Option("--user", "-u", metavar="USER", help="What a user has.", rich_help_panel=_WHAT)
]
OfAgent = Annotated[
    str | None, typer.Option("--agent", "-a", metavar="AGENT", help="What an agent has.", rich_help_panel=_WHAT)
]
OfSession = Annotated[
    str | None, typer.Option("--session", "-s", metavar="SESSION", help="What a session has.", rich_help_panel=_WHAT)
]
OneMemory = Annotated[
    str | None, typer.Option("--memory", "-m", metavar="ID", help="One memory.", rich_help_panel=_WHAT)
]
Confirm = Annotated[bool, typer.Option("--confirm", help="You have looked at what it comes to.")]
Author = Annotated[
    str | None,
    typer.Option("--author", metavar="NAME", help="Who does it, for the audit chain; never a user's id."),
]


def scope_of(
    user: str | None, agent: str | None = None, session: str | None = None, memory: str | None = None
) -> dict[str, Any]:
    """The parts of a scope that were given, by the engine's names for them."""
    given = {"user_id": user, "agent_id": agent, "session_id": session, "memory_id": memory}
    return {name: value for name, value in given.items() if value is not None}
