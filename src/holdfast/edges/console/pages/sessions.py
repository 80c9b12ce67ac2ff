"""Sessions: whose there are, what was said in one, and what belongs to it elsewhere."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.errors import StorageError
from holdfast.edges.console.formats import link
from holdfast.edges.console.table import Effect, Fields, Section, Undo
from holdfast.edges.console.visit import Visit

sessions = Section("Sessions")
_PATH: Final = "/sessions"


@sessions.page(_PATH, calls=["list_sessions"], may_call=["list_users", "list_threads"])
def show_sessions(visit: Visit) -> dict[str, Any]:
    """The sessions of a user; while none is named, the users to choose from."""
    asked = {"user_id": visit.user_id, **{name: visit.query.get(name) for name in ("agent_id", "cursor")}}
    users = found = threads = away = None
    if asked["user_id"] is not None:
        try:
            threads = visit.call("list_threads", user_id=asked["user_id"], cursor=visit.query.get("threads"), limit=50)
        except StorageError as problem:
            away = str(problem)
        found = visit.call("list_sessions", **asked, limit=50)
    elif visit.may("list_users"):
        users = visit.call("list_users", cursor=asked["cursor"], limit=50)
    return {"asked": asked, "found": found, "users": users, "threads": threads, "away": away}


@sessions.page(f"{_PATH}/conversation", calls=["list_messages"], title="A conversation")
def show_conversation(visit: Visit) -> dict[str, Any]:
    """What was said in a session, the last page of it first."""
    names = ("user_id", "agent_id", "session_id", "which", "cursor")
    asked = {name: visit.query.get(name) for name in names}
    return {"asked": asked, "found": visit.call("list_messages", **asked, limit=100)}


@sessions.action(
    "remove_session",
    "Send a session to the recycle bin",
    "Send it to the bin",
    back=lambda fields: link(_PATH, user_id=fields.get("user_id")),
    describe=lambda fields, result: f"session {fields['session_id']} is in the bin, with {result['messages']} messages",
    undo=lambda fields, _result: Undo("restore_recycled", fields),
    is_danger=True,
)
def preview_removal(_visit: Visit, fields: Fields) -> Effect:
    """Say what goes."""
    return Effect(
        [
            f"session {fields['session_id']} of user {fields['user_id']} goes to the recycle bin for 15 days",
            "its messages go with it, and what belongs to it elsewhere",
            "its window of short-term memory is gone for good",
        ]
    )
