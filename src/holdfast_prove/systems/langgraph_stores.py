"""LangGraph's stores: a namespace for each user, as its documentation shows it."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

from langgraph.store.memory import InMemoryStore

from holdfast_prove.adapter import Claims, Place
from holdfast_prove.systems.word_vectors import DIMENSIONS, embed

_REFERENCE: Final = "https://reference.langchain.com/python/langgraph.store/base"
_GONE: Final = ("Delete an item.", f"{_REFERENCE}/BaseStore/delete")
_CLAIMS: Final = {
    "search": _GONE,
    "correction": ("Store or update an item in the store.", f"{_REFERENCE}/BaseStore/put"),
}
_EXPIRED: Final = (
    (
        "If True, and if the store supports this option, expired items will not be returned by GET or SEARCH, or "
        "included in namespace listings, even before a TTL sweep deletes them."
    ),
    f"{_REFERENCE}/TTLConfig/omit_expired",
)
_INDEX: Final[Any] = {"dims": DIMENSIONS, "embed": lambda texts: [embed(text) for text in texts], "fields": ["text"]}
_TTL: Final[Any] = {"refresh_on_read": False, "omit_expired": True}


class LangGraphInMemory:
    """The store in memory. Its place is all that it holds."""

    version = version("langgraph-checkpoint")
    claims: ClassVar[Claims] = dict(_CLAIMS)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._store = self._open()

    def _open(self) -> Any:
        return InMemoryStore(index=_INDEX)

    def add(self, user_id: str, text: str) -> str:
        """Put an item."""
        record_id = uuid4().hex
        self._store.put(("memories", user_id), record_id, {"text": text})
        return record_id

    def search(self, user_id: str, query: str) -> list[str]:
        """Search the user's namespace."""
        return [str(item.value["text"]) for item in self._store.search(("memories", user_id), query=query, limit=20)]

    def get(self, user_id: str, record_id: str) -> str | None:
        """Get an item."""
        item = self._store.get(("memories", user_id), record_id)
        return None if item is None else str(item.value["text"])

    def delete(self, user_id: str, record_id: str) -> None:
        """Delete an item."""
        self._store.delete(("memories", user_id), record_id)

    def erase_user(self, user_id: str) -> None:
        """Delete what a search of the user's namespace lists: there is no verb for it."""
        while items := self._store.search(("memories", user_id), limit=100):
            for item in items:
                self._store.delete(item.namespace, item.key)

    def places(self) -> Iterable[Place]:
        """What the store holds in memory."""
        return [("memory", pickle.dumps((dict(self._store._data), {**self._store._vectors})))]

    def correct(self, user_id: str, record_id: str, text: str) -> None:
        """Put another value under the same key."""
        self._store.put(("memories", user_id), record_id, {"text": text})

    def embed(self, text: str) -> list[float]:
        """The vector of a text."""
        return embed(text)

    def close(self) -> None:
        """Close the store."""
        self._stack.close()


class LangGraphOnSqlite(LangGraphInMemory):
    """The store in a file of SQLite; without vectors, where Python's sqlite3 loads no extensions. It has no option
    to hide what has expired, so that it does not claim it.
    """

    version = version("langgraph-checkpoint-sqlite")
    claims: ClassVar[Claims] = {**_CLAIMS, "restart": _GONE}
    processes = True

    def _open(self) -> Any:
        from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415 - not needed for the others

        path = str(self._folder / "store.db")
        index = _INDEX if hasattr(sqlite3.Connection, "enable_load_extension") else None
        store = self._stack.enter_context(SqliteStore.from_conn_string(path, index=index, ttl=_TTL))
        store.setup()
        return store

    def places(self) -> Iterable[Place]:
        """The database file and what lies beside it."""
        return [self._folder]

    def reopen(self) -> None:
        """Close it and open it again."""
        self._stack.close()
        self._store = self._open()

    def expire(self, user_id: str, text: str, seconds: float) -> str:
        """Put an item with a time to live."""
        record_id = uuid4().hex
        self._store.put(("memories", user_id), record_id, {"text": text}, ttl=seconds / 60)
        return record_id


class LangGraphOnPostgres(LangGraphOnSqlite):
    """The store in PostgreSQL, with pgvector. The server's files are the operator's."""

    version = version("langgraph-checkpoint-postgres")
    claims: ClassVar[Claims] = {**_CLAIMS, "restart": _GONE, "expiry": _EXPIRED}

    def _open(self) -> Any:
        from langgraph.store.postgres import PostgresStore  # noqa: PLC0415 - not needed for the others

        from holdfast_prove.systems.postgres_server import Database  # noqa: PLC0415

        noted = self._folder / "database"
        if not noted.exists():
            self._database = Database.new()
            noted.write_text(self._database.url)
        self._url = noted.read_text()
        store = self._stack.enter_context(PostgresStore.from_conn_string(self._url, index=_INDEX, ttl=_TTL))
        store.setup()
        return store

    def places(self) -> Iterator[Place]:
        """Every row of every table."""
        from holdfast_prove.systems.postgres_server import read_tables  # noqa: PLC0415

        yield from read_tables(self._url)

    def maintain(self) -> None:
        """Let the server make its statistics."""
        from holdfast_prove.systems.postgres_server import analyze  # noqa: PLC0415

        analyze(self._url)

    def other_places(self) -> Iterable[Path]:
        """The server's files."""
        from holdfast_prove.systems.postgres_server import data_folder  # noqa: PLC0415

        return data_folder(self._url)

    def close(self) -> None:
        """Close the store, and drop the database that was made for it."""
        super().close()
        if database := getattr(self, "_database", None):
            database.drop()
