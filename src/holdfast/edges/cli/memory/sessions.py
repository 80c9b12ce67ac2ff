"""List, read, add to and remove conversations.

Examples:
    holdfast session list alice
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import OfAgent, OfUser, declare, of_memory, read_bytes, read_object
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


def _show_added(done: Mapping[str, Any]) -> str:
    name = done["session_id"] or "without a name"
    return f"Session {name} has {plural(len(done['message_ids']), 'message')} of the file."


@command(session, "add", of_memory, render=_show_added)
def add_messages(call: Call, *, file: str) -> Any:
    """Add messages from a file to a session, all of them or none.

    Each line is a message as JSON: its role and content, and, if you like, metadata, an external_id (your own id: a
    message that the session has is not added again) and a timestamp (when it was said).

    Options:
        FILE  The file; - reads stdin.

    Examples:
        echo '{"role": "user", "content": "Where is my order?", "external_id": "msg_1"}' > messages.jsonl
        holdfast session add messages.jsonl -u alice -a helpdesk -s s1
        rm messages.jsonl
    """
    try:
        lines = read_bytes(file).decode().split("\n")
    except UnicodeDecodeError as problem:
        raise InvalidInputError(f"{file} is not UTF-8 text: {problem.reason} at byte {problem.start:,}") from None
    messages = [
        read_object(line, f"line {number} of {file}", InvalidInputError) or {}
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    return {"session_id": call.memory.session_id, "message_ids": call.memory.short_term.add_messages(messages)}


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
