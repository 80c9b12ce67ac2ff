"""Sessions of the OpenAI Agents SDK in Holdfast: what was said is kept, held, exported and erased as conversations are.

await Runner.run(agent, "Hello", session=HoldfastSession("s1", holdfast, user_id="alice", agent_id="helpdesk"))
"""

from __future__ import annotations

import json
from asyncio import to_thread
from contextlib import suppress
from typing import Any, Final, cast

from holdfast.core.errors import InvalidContentError, NotFoundError
from holdfast.core.values import check_content, to_stored_json
from holdfast.engine import Holdfast
from holdfast.installation import missing_extra
from holdfast.results.memory import MessageResult

try:
    from agents import TResponseInputItem
    from agents.memory import SessionSettings
    from agents.memory.session_settings import resolve_session_limit
except ImportError:
    raise missing_extra("a session for the OpenAI Agents SDK", "openai-agents") from None

#: In the metadata of a message: its content is the JSON of an item.
_ITEM: Final = "is_item"


class HoldfastSession:
    """A ``Session`` of a user with an agent.

    A plain message is kept as text, so that what ``short_term.add_message`` wrote is part of the conversation; any
    other item is kept as JSON. What is popped or cleared goes to the recycle bin, and ``HeldError`` refuses to remove
    what a hold keeps. Items have no ids that tell a repeated one: each is added.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        holdfast: Holdfast,
        *,
        user_id: str,
        agent_id: str,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id, self.session_settings = session_id, session_settings
        self._holdfast = holdfast
        self._memory = holdfast.manager(user_id, agent_id, session_id)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The conversation in its order; with ``limit``, its last items."""
        most = resolve_session_limit(limit, self.session_settings)
        if most == 0:
            return []
        last = None if most is None or most < 0 else most
        return [_to_item(one) for one in await to_thread(self._memory.short_term.get_full_history, last)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none."""
        await to_thread(self._memory.short_term.add_messages, list(map(_to_message, items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Send the last item to the recycle bin, and return it."""
        popped = await to_thread(self._memory.short_term.pop_message)
        return None if popped is None else _to_item(popped)

    async def clear_session(self) -> None:
        """Send the conversation to the recycle bin."""
        with suppress(NotFoundError):
            remove, memory = self._holdfast.sessions.remove, self._memory
            await to_thread(remove, memory.agent_id, self.session_id, user_id=memory.user_id)


def _to_message(given: TResponseInputItem) -> dict[str, Any]:
    item = cast("dict[str, Any]", given)
    if item.keys() == {"role", "content"} and item["role"]:
        with suppress(InvalidContentError):  # a list of parts, or a text that is stored only within JSON
            return {"role": item["role"], "content": check_content(item["content"], may_be_empty=True)}
    role = item.get("role") or item.get("type") or "item"
    return {"role": role, "content": to_stored_json(item), "metadata": {_ITEM: True}}


def _to_item(message: MessageResult) -> TResponseInputItem:
    if message["metadata"].get(_ITEM):
        return cast("TResponseInputItem", json.loads(message["content"]))
    return cast("TResponseInputItem", {"role": message["role"], "content": message["content"]})
