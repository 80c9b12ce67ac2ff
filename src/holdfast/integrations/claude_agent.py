"""Sessions of the Claude Agent SDK: transcripts are kept, held, exported and erased as conversations are.

ClaudeAgentOptions(session_store=HoldfastSessionStore(holdfast, user_id="alice"), …)
"""

from __future__ import annotations

import json
from asyncio import to_thread
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Final

from holdfast.core.errors import NotFoundError
from holdfast.core.values import to_stored_json
from holdfast.engine import Holdfast
from holdfast.installation import missing_extra
from holdfast.memory.short_term import ShortTerm
from holdfast.results.memory import MessageResult

try:
    from claude_agent_sdk import SessionStore, fold_session_summary
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )
except ImportError:
    raise missing_extra("a session store for the Claude Agent SDK", "claude-agent") from None

#: In the metadata of an entry: the subpath of its transcript, "" for that of the session itself.
_TRANSCRIPT: Final = "transcript"


class HoldfastSessionStore(SessionStore):
    """A ``SessionStore`` for one user. A project is an agent, and a session is a session.

    Transcripts of subagents lie in their session: the rule, the hold, the removal and the return of a session reach
    them too. What is deleted goes to the recycle bin, and ``HeldError`` refuses to delete what a hold keeps.
    """

    def __init__(self, holdfast: Holdfast, user_id: str) -> None:
        self._holdfast, self._user_id = holdfast, user_id

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep entries, all or none; one whose ``uuid`` the transcript has is not added again."""
        of = key.get("subpath", "")
        said = [
            {
                "role": entry["type"],
                "content": to_stored_json(entry),
                "metadata": {_TRANSCRIPT: of},
                "external_id": _identify(of, entry.get("uuid")),
            }
            for entry in entries
        ]
        await to_thread(self._session(key).add_messages, said)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """The entries of a transcript in their order; ``None`` if there are none."""
        found = await self._read(key, key.get("subpath", ""))
        return [json.loads(one["content"]) for one in found] or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, with their last activity."""
        found = await to_thread(self._holdfast.sessions.list, self._user_id, project_key)
        return [
            {"session_id": name, "mtime": int(datetime.fromisoformat(one["updated_on"]).timestamp() * 1_000)}
            for one in found
            if (name := one["session_id"]) is not None
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What the sessions of a project are about, made of their transcripts."""
        summaries: list[SessionSummaryEntry] = []
        for one in await self.list_sessions(project_key):
            key: SessionKey = {"project_key": project_key, "session_id": one["session_id"]}
            if entries := await self.load(key):
                summaries.append({**fold_session_summary(None, key, entries), "mtime": one["mtime"]})
        return summaries

    async def delete(self, key: SessionKey) -> None:
        """Send a session with all of its transcripts, or one transcript of a subagent, to the recycle bin."""
        if of := key.get("subpath"):
            found = await self._read(key, of)
            await to_thread(self._session(key).delete, [one["message_id"] for one in found])
            return
        with suppress(NotFoundError):
            await to_thread(
                self._holdfast.sessions.remove, key["project_key"], key["session_id"], user_id=self._user_id
            )

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The transcripts of subagents of a session."""
        found = await to_thread(self._session(key).get_full_history)
        return list(dict.fromkeys(of for one in found if (of := one["metadata"].get(_TRANSCRIPT))))

    async def _read(self, key: SessionKey, of: str) -> list[MessageResult]:
        """The messages that a transcript is kept as."""
        found = await to_thread(self._session(key).get_full_history)
        return [one for one in found if one["metadata"].get(_TRANSCRIPT) == of]

    def _session(self, key: SessionKey | SessionListSubkeysKey) -> ShortTerm:
        return self._holdfast.manager(self._user_id, key["project_key"], key["session_id"]).short_term


def _identify(of: str, uuid: str | None) -> str | None:
    """What an entry is told by within its session: another transcript may have one with the same ``uuid``."""
    if not uuid:
        return None
    return blake2b(f"{of} {uuid}".encode(), digest_size=16).hexdigest() if of else str(uuid)
