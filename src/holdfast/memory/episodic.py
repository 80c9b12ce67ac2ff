"""Episodic memory: tasks that an agent went through, with their steps, messages, tool calls and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.core.errors import InvalidContentError, quote
from holdfast.core.records import ALL, MemoryType, Message
from holdfast.core.values import (
    MAX_DERIVED_FROM,
    MAX_QUERY_BYTES,
    Origin,
    check_content,
    check_count,
    check_metadata,
    dump_json,
    is_id,
    iso,
    past_moment,
)
from holdfast.lifecycle.bulk_delete import clear_aged
from holdfast.memory.records import Draft, DurableRecords
from holdfast.recall.index import Query, SearchOptions

if TYPE_CHECKING:
    from holdfast.results.memory import EpisodeMessageResult, EpisodeResult

_EPISODIC: Final = MemoryType.EPISODIC
#: A summary has at most this part of an episode's text, but room for a few sentences in any case; and it has no more
#: than people like to read, and agents to pay for, with each of several episodes found. The task is kept beside it.
_SUMMARY_PART: Final = 5
_SUMMARY_LEAST, _SUMMARY_MOST = 300, 4_000

Step = str | Mapping[str, Any]


class Episodic:
    """``memory.episodic``: the agent's episodes with this user."""

    def __init__(self, records: DurableRecords) -> None:
        self._records, self._services = records, records.services

    def record_episode(
        self,
        task: str,
        steps: Sequence[Step] = (),
        *,
        messages: Sequence[Step] = (),
        tool_calls: Sequence[Step] = (),
        summary: str | None = None,
        timestamp: datetime | float | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        derived_from: Sequence[str] | None = None,
    ) -> str:
        """Keep an episode; its id.

        ``steps``, ``messages`` and ``tool_calls`` are texts or JSON objects (a message has ``role`` and ``content``).
        The episode ended at ``timestamp`` (an aware datetime, seconds since 1970 or ISO 8601; now, if not given). A
        summary that is not given is made. Where ``derived_from`` is not given, it is derived from those of the messages
        that have a ``message_id``, as a conversation's history gives them (the last 1,000).
        """
        check_content(task, "task")
        origin = self._records.origin(source, derived_from)
        parts = {"steps": steps, "messages": messages, "tool_calls": tool_calls}
        draft = self._draft(task, parts, summary, check_metadata(metadata), origin)
        ended_at = None if timestamp is None else self._ended_at(timestamp)
        return self._records.write(_EPISODIC, [replace(draft, dated_at=ended_at)])[0][0]

    def _draft(
        self,
        task: str,
        parts: Mapping[str, Sequence[Step]],
        summary: str | None,
        metadata: Mapping[str, Any],
        origin: Origin,
    ) -> Draft:
        """An episode before it is written."""
        body: dict[str, Any] = {"task": task} | {part: _check_list(items, part) for part, items in parts.items()}
        size = len(dump_json(body, InvalidContentError, "the episode"))
        if size > self._services.max_content_bytes:
            raise InvalidContentError(
                f"an episode of {size:,} characters is too large (max: {self._services.max_content_bytes:,}); "
                "leave out bulky tool results, or record it as several episodes"
            )
        given = origin.derived_from is not None
        return Draft(
            content=self._summary(body) if summary is None else check_content(summary, "summary"),
            metadata={**metadata, "task": task},
            body=body,
            origin=origin if given else origin._replace(derived_from=_message_ids(body["messages"])),
        )

    def query_similar_episodes(self, query: str, top_k: int = 5) -> list[EpisodeResult]:
        """The episodes most like a query, best first: id, task, summary, date, score, and whether it is archived."""
        asked, now = self._encode(query), self._services.now()
        options = SearchOptions(check_count(top_k, "top_k"), now, include_archived=True)
        return [
            {
                "episode_id": record.id,
                "task": record.metadata.get("task"),
                "summary": record.content,
                "date": iso(record.dated_at),
                "score": hit.score,
                "is_archived": record.is_archived(now),
            }
            for record, hit in self._records.search(_EPISODIC, asked, options)
        ]

    def _encode(self, query: str) -> Query:
        return self._services.recall.encode_query(check_content(query, "query", max_bytes=MAX_QUERY_BYTES))

    def get_messages(self, episode_id: str) -> list[dict[str, Any]] | Literal["archived"]:
        """The messages of an episode; ``"archived"`` once only its summary is kept."""
        return self._detail(episode_id, "messages")

    def get_steps(self, episode_id: str) -> list[dict[str, Any]] | Literal["archived"]:
        """The steps of an episode; ``"archived"`` once only its summary is kept."""
        return self._detail(episode_id, "steps")

    def get_tool_calls(self, episode_id: str) -> list[dict[str, Any]] | Literal["archived"]:
        """The tool calls of an episode; ``"archived"`` once only its summary is kept."""
        return self._detail(episode_id, "tool_calls")

    def query_messages(self, query: str, top_k: int = 5) -> list[EpisodeMessageResult]:
        """The single messages most like a query, from the episodes most like it; archived episodes have none left."""
        asked, now = self._encode(query), self._services.now()
        pairs = self._records.search(_EPISODIC, asked, SearchOptions(max(10, check_count(top_k, "top_k")), now))
        places = {f"{r.id}:{n}": (r, n, m) for r, _ in pairs for n, m in enumerate((r.body or {}).get("messages", ()))}
        items = [
            Message(place, "", _text(message), record.dated_at, {})
            for place, (record, _, message) in places.items()
            if str(message.get("content", "")).strip()
        ]
        hits = self._services.recall.rank_items_once(self._records.scope, items, asked, SearchOptions(top_k, now))
        return [
            {
                "episode_id": record.id,
                "position": place,
                "role": message.get("role"),
                "content": message.get("content"),
                "date": iso(record.dated_at),
                "score": hit.score,
            }
            for hit in hits
            for record, place, message in [places[hit.id]]
        ]

    def cleanup_old_episodes(self) -> int:
        """Send episodes that are past their active time (90 days, unless a rule says otherwise) to the recycle bin,
        without waiting for a sweep, which would archive them; how many. With the agent ``*``: of all agents.
        """
        scope, services = self._records.scope, self._services
        user = None if scope.user_id == ALL else scope.subject
        agent = None if scope.agent_id == ALL else scope.agent_id
        return clear_aged(services.tenant(scope.tenant), _EPISODIC, subject=user, agent_id=agent).moved

    def _detail(self, episode_id: str, part: str) -> list[dict[str, Any]] | Literal["archived"]:
        record = self._records.read(episode_id, only=_EPISODIC)
        if record.is_archived(self._services.now()):
            return "archived"
        found: list[dict[str, Any]] = (record.body or {}).get(part, [])
        return found

    def _summary(self, body: Mapping[str, Any]) -> str:
        texts = [text for part in ("steps", "messages") for item in body[part] if (text := _text(item))]
        most = min(_SUMMARY_MOST, max(_SUMMARY_LEAST, sum(map(len, texts)) // _SUMMARY_PART))
        return self._services.summarizer.summarize(texts, max_chars=most) or body["task"]

    def _ended_at(self, timestamp: datetime | float | str) -> int:
        return past_moment(timestamp, now=self._services.now(), advice="record an episode after its end")


_EMPTY: Final[dict[str, Any]] = {"task": None, "steps": [], "messages": [], "tool_calls": []}


def draft_episode(episodes: Episodic, item: Mapping[str, Any], metadata: dict[str, Any], origin: Origin) -> Draft:
    """An episode from elsewhere: with its task and its parts, or nothing but its summary."""
    if "task" not in item:
        return draft_summary(item.get("content") or "", metadata, origin)
    parts = {part: item.get(part) or () for part in ("steps", "messages", "tool_calls")}
    return episodes._draft(check_content(item["task"], "task"), parts, item.get("content"), metadata, origin)


def draft_summary(content: str, metadata: dict[str, Any], origin: Origin) -> Draft:
    """An episode that is nothing but its summary."""
    return Draft(content, metadata, origin, _EMPTY)


def _check_list(items: object, what: str) -> list[dict[str, Any]]:
    """Texts and objects as a list of objects."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Sequence):
        raise InvalidContentError(f"{what} must be a list of texts or objects, not {quote(items)}")
    listed = []
    for place, item in enumerate(items):
        if not isinstance(item, str | Mapping):
            raise InvalidContentError(f"{what}[{place}] must be a text or an object, not {quote(item)}")
        listed.append({"content": item} if isinstance(item, str) else dict(item))
    return listed


def _message_ids(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The ids that messages of a conversation have there, each once."""
    ids = [message["message_id"] for message in messages if is_id(message.get("message_id"))]
    return tuple(dict.fromkeys(ids))[-MAX_DERIVED_FROM:]


def _text(item: Mapping[str, Any]) -> str:
    """What an item says: its content, after who said it."""
    content = item.get("content")
    if not isinstance(content, str):
        return " ".join(f"{key}: {value}" for key, value in item.items() if isinstance(value, str | int | float))
    return f"{item['role']}: {content}" if item.get("role") else content
