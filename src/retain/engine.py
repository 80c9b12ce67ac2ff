"""The engine: opens the store that the settings name and hands out memories. The only module that knows every part."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from retain.core.content import check_count, check_id, check_tenant
from retain.core.errors import InvalidInputError, told
from retain.core.records import Message, Scope, Usage
from retain.core.times import Clock
from retain.core.types import DURABLE, MemoryType, kind_of
from retain.kinds.latency import Latencies
from retain.kinds.parts import Parts
from retain.kinds.short_term import shown_message
from retain.manager import Memory
from retain.ports import Embedder
from retain.recall.embedders import open_embedder
from retain.recall.service import Recall
from retain.recall.summaries import open_summarizer
from retain.settings import Settings, read_settings, sqlite_path
from retain.storage.sqlite.conversations import SqliteHistory, SqliteShortTerm
from retain.storage.sqlite.database import Database
from retain.storage.sqlite.facts import SqliteFacts
from retain.storage.sqlite.records import SqliteFeed, SqliteRecords
from retain.storage.sqlite.schemas import SqliteSchemas

logging.getLogger("retain").addHandler(logging.NullHandler())  # heard by those who set up logging, by nobody else


def system_clock() -> datetime:
    """The present, by the machine's clock."""
    return datetime.now(UTC)


class Retain:
    """An open engine. Use it in a ``with`` block, or ``close()`` it; safe for many threads, starts none."""

    def __init__(self, settings: Settings, *, tenant: str = "default", clock: Clock | None = None) -> None:
        if not isinstance(settings, Settings):
            raise InvalidInputError(f"Retain is opened with Retain.open({told(settings)}), not with Retain(...)")
        self.settings = settings
        self.tenant = check_tenant(tenant)
        if clock is not None and not callable(clock):
            raise InvalidInputError(f"clock must be a callable that returns an aware datetime, not {told(clock)}")
        self.embedder: Embedder = open_embedder(settings.embedder)
        summarizer = open_summarizer(settings.summarizer)
        self.database = Database(sqlite_path(settings.url), busy_seconds=settings.busy_seconds)
        feed = SqliteFeed(self.database)
        self.recall = Recall(feed, self.embedder, max_bytes=settings.index_bytes)
        self._parts = Parts(
            records=SqliteRecords(self.database),
            history=SqliteHistory(self.database),
            short_term=SqliteShortTerm(self.database),
            facts=SqliteFacts(self.database),
            schemas=SqliteSchemas(self.database),
            recall=self.recall,
            summarizer=summarizer,
            clock=clock or system_clock,
            check=self.database.check_usable,
            max_content_bytes=settings.max_content_bytes,
        )
        try:
            feed.adopt(self.recall.model)
        except BaseException:
            self.database.close()
            raise
        self.quotas = Quotas(self._parts, self.tenant)
        self.sessions = Sessions(self._parts, self.tenant)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        home: str | Path | None = None,
        tenant: str = "default",
        clock: Clock | None = None,
    ) -> Retain:
        """Open the store at ``url`` (or the one that ``home``, the environment or ``retain.toml`` name).

        ``clock`` is a callable without arguments that returns an aware datetime; the system's clock by default.
        """
        return cls(read_settings(os.environ, url=url, home=home), tenant=tenant, clock=clock)

    def manager(
        self,
        user_id: str,
        agent_id: str,
        session_id: str | None = None,
        auto_prune: bool = False,  # noqa: FBT001
    ) -> MemoryManager:
        """The memory of a user as an agent sees it, in a session."""
        return MemoryManager(user_id, agent_id, session_id, auto_prune, engine=self)

    @property
    def parts(self) -> Parts:
        """What memories are made of."""
        return self._parts

    @property
    def latencies(self) -> Latencies:
        """How long operations took in this process."""
        return self._parts.latencies

    def reembed(self, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Give every memory of the tenant vectors of the embedder in use; how many lacked them.

        Recall does this by itself, a little with each query; this does all of it now. Memories whose vectors are of
        another model are found by their words meanwhile, never by comparing vectors of two models.
        """
        return self.recall.reembed(self.tenant, progress, kinds=DURABLE)

    def close(self) -> None:
        """Close the store. What is called afterwards raises ``ClosedError``."""
        self.database.close()
        self._parts.working.forget()
        self.recall.forget()

    def __enter__(self) -> Retain:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()


class MemoryManager(Memory):
    """The memory of one user as one agent sees it; without an ``engine``, in the store that the settings name."""

    def __init__(
        self,
        user_id: str,
        agent_id: str,
        session_id: str | None = None,
        auto_prune: bool = False,  # noqa: FBT001 - the name and place people know
        *,
        engine: Retain | None = None,
    ) -> None:
        engine = engine or default_engine()
        scope = Scope.checked(engine.tenant, user_id, agent_id, session_id)
        super().__init__(engine.parts, scope, auto_prune=auto_prune)


class Quotas:
    """``retain.quotas``: how much of a kind a user may hold."""

    def __init__(self, parts: Parts, tenant: str) -> None:
        self._parts = parts
        self._tenant = tenant

    def set(
        self,
        kind: MemoryType | str,
        max_memories: float | None = None,
        max_bytes: float | None = None,
        user_id: str | None = None,
    ) -> None:
        """Set limits for a user, or for everyone who has none of their own. ``None`` leaves one as it is;
        ``math.inf`` takes it away. A lower limit removes nothing: it stops further writes.
        """
        row = kind_of(kind)
        if not row.durable:
            raise InvalidInputError(f"the size of {row.name} memory is fixed (max: {row.max_memories:,})")
        given = {"max_memories": max_memories, "max_bytes": max_bytes}
        limits = {name: _limit(name, value) for name, value in given.items() if value is not None}
        if not limits:
            raise InvalidInputError("give max_memories, max_bytes, or both")
        user = None if user_id is None else check_id(user_id, "user_id")
        self._parts.records.set_quota(self._tenant, user, row, limits)

    def get(self, kind: MemoryType | str, user_id: str) -> Usage:
        """What a user holds of a kind, and how much they may."""
        row = kind_of(kind)
        if not row.durable:
            raise InvalidInputError(
                f"{row.name} memory is counted where it is used: count_memories({row.name.value!r})"
            )
        return self._parts.records.usage(f"{self._tenant}/{check_id(user_id, 'user_id')}", row)


class Sessions:
    """``retain.sessions``: conversations, kept beside the short-term window."""

    def __init__(self, parts: Parts, tenant: str) -> None:
        self._parts = parts
        self._tenant = tenant

    def history(
        self, agent_id: str, session_id: str | None = None, *, user_id: str | None = None, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """Every message of a session, in order; with ``limit``, its last ones. Where users share a name, say whose."""
        asked = Scope.checked(self._tenant, "anybody" if user_id is None else user_id, agent_id, session_id)
        if limit is not None:
            check_count(limit, "limit", most=10**9)
        users = self._parts.history.owners(self._tenant, agent_id, session_id) if user_id is None else [asked.user_id]
        if len(users) > 1:
            raise InvalidInputError(
                f"{len(users)} users have a session {session_id!r} with agent {agent_id!r}; say which with user_id="
            )
        found: list[Message] = []
        for user in users:
            scope = Scope.checked(self._tenant, user, agent_id, session_id)
            found += self._parts.history.messages(scope, limit=limit)
        return [shown_message(message) for message in found]

    def list(self, user_id: str, agent_id: str | None = None) -> list[dict[str, Any]]:
        """The sessions of a user, the latest active first."""
        agent = None if agent_id is None else check_id(agent_id, "agent_id")
        return self._parts.history.sessions(self._tenant, check_id(user_id, "user_id"), agent)


def _limit(name: str, value: float) -> int | None:
    if value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInputError(
            f"{name} must be a whole number of at least 0, or math.inf for no limit, not {told(value)}"
        )
    return value


_defaults: dict[Settings, Retain] = {}
_defaults_lock = threading.Lock()


def _after_fork() -> None:
    """A forked process opens an engine of its own: its parent's, and the lock as it was, are of no use to it."""
    global _defaults_lock  # noqa: PLW0603
    _defaults.clear()
    _defaults_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def default_engine() -> Retain:
    """The engine of this process that the settings name, opened when it is first needed."""
    settings = read_settings(os.environ)
    with _defaults_lock:
        engine = _defaults.get(settings)
        if engine is None or not engine.database.usable:
            engine = _defaults[settings] = Retain(settings)
            atexit.register(engine.close)
        return engine
