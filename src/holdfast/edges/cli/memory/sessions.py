"""List, read and remove conversations.

Examples:
    holdfast session list alice
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from rich.text import Text

from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import OfAgent, OfUser, declare
from holdfast.edges.cli.output import Cell, Part, cut, dim, minute, plural, printable, table

session = add_group(__name__, "session", __doc__)

AgentId = Annotated[str, declare("AGENT", "The agent that it was with.")]
SessionId = Annotated[str, declare("SESSION", "The session's id.")]


@table("id!, agent, messages>, last active!, about", empty="No sessions.")
def _show_sessions(one: Mapping[str, Any]) -> list[Cell]:
    about = cut(one["summary"] or "not summarized yet", 60)
    return [one["session_id"] or "none", one["agent_id"], one["messages"], minute(one["updated_on"]), about]


@command(session, "list", render=_show_sessions)
def list_sessions(call: Call, *, user: str, agent: OfAgent = None) -> Any:
    """List the sessions of a user, the latest active first.

    Options:
        USER  Whose sessions.

    Examples:
        holdfast add "Where is my order?" -k short_term -u alice -a helpdesk -s s1
        holdfast session list alice
    """
    return call.engine.sessions.list(user, agent)


def _show_messages(found: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    if not found:
        yield "No messages."
    for message in found:
        yield dim(f"{minute(message['timestamp'])} {message['role']}")
        yield Text(printable(message["content"], lines=True))


@command(session, "show", render=_show_messages)
def show_session(
    call: Call, *, agent: AgentId, session_id: SessionId, user: OfUser = None, last: int | None = None
) -> Any:
    """Show the messages of a session, in order. Where users share its name, say whose it is.

    Options:
        --last -n N  Only the last messages.

    Examples:
        holdfast add "Where is my order?" -k short_term -u alice -a helpdesk -s s1
        holdfast session show helpdesk s1
    """
    return call.engine.sessions.history(agent, session_id, user_id=user, limit=last)


def _show_removed(done: Mapping[str, Any]) -> str:
    said = f"Recycled session {done['session_id']} with {plural(done['messages'], 'message')}"
    return f"{said}; holdfast recycle restore --session brings it back."


@command(session, "remove", render=_show_removed)
def remove_session(call: Call, *, agent: AgentId, session_id: SessionId, user: OfUser = None) -> Any:
    """Send a session to the recycle bin; its short-term window is gone for good.

    Examples:
        holdfast add "Where is my order?" -k short_term -u alice -a helpdesk -s s1
        holdfast session remove helpdesk s1
    """
    count = call.engine.sessions.remove(agent, session_id, user_id=user)
    return {"agent_id": agent, "session_id": session_id, "messages": count}
