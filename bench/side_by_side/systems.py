"""The systems that are compared, each behind the same few methods. They are imported only where they run.

What a system has no verb for, its class has no method for. A search gives the ten best texts.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

import numpy as np

from bench.side_by_side.data import Fact

Embed = Callable[[Sequence[str]], Any]
BEST: Final = 10
#: The environment variable with the URL of an empty PostgreSQL database.
DATABASE: Final = "SIDE_BY_SIDE_POSTGRES"


class System:
    """A store in a folder, with one user's facts."""

    packages: ClassVar[tuple[str, ...]] = ()
    does: ClassVar[str] = ""
    """What it does, and what not, as the page says it."""
    is_shared = True
    """Several processes may have it open."""

    def __init__(self, folder: Path, embed: Embed) -> None:
        self.folder = folder
        self.embed = embed
        self.open()

    def open(self) -> None:
        """Open the store."""

    def close(self) -> None:
        """Let go of its files."""

    def add(self, user: str, fact: Fact) -> str:
        """Store a fact; its id."""
        raise NotImplementedError

    def add_many(self, user: str, some: Sequence[Fact]) -> list[str]:
        """Store many at once, if there is a way; else one by one."""
        return [self.add(user, fact) for fact in some]

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        """The texts that match best, of a topic if one is given."""
        raise NotImplementedError

    def size(self) -> int:
        """Bytes on the disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @classmethod
    def versions(cls) -> str:
        """What is installed."""
        return ", ".join(f"{name} {version(name)}" for name in cls.packages)


class Holdfast(System):
    """Holdfast on its embedded engine."""

    does = (
        "SQLite, each write synced to the disk; searches vectors and words; a delete can be undone for 15 days "
        "and is in the audit chain, delete all is an erasure with a certificate"
    )
    packages = ()
    url: str | None = None

    def open(self) -> None:
        from holdfast import Holdfast as Engine

        is_new = not (self.folder / "home").exists()
        self._engine = Engine.open(self.url, home=self.folder / "home", embedder=_Vectors(self.embed))
        if is_new:
            self._engine.quotas.set("long_term", max_memories="unlimited")  # a user may have 10,000 otherwise

    @classmethod
    def versions(cls) -> str:
        from holdfast import __version__

        return f"holdfast {__version__}"

    def close(self) -> None:
        self._engine.close()

    def add(self, user: str, fact: Fact) -> str:
        return self._engine.manager(user, "agent").add(fact.text, "long_term", {"topic": fact.topic})["memory_id"]

    def add_many(self, user: str, some: Sequence[Fact]) -> list[str]:
        texts, about = [fact.text for fact in some], [{"topic": fact.topic} for fact in some]
        return self._engine.manager(user, "agent").add_many(texts, "long_term", about)["memory_ids"]

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        filters = None if topic is None else {"topic": topic}
        found = self._engine.manager(user, "agent").retrieve(question, top_k=BEST, filters=filters)
        return [str(one["content"]) for one in found]

    def correct(self, user: str, item: str, text: str) -> None:
        self._engine.manager(user, "agent").correct(item, text)

    def delete(self, user: str, item: str) -> None:
        self._engine.manager(user, "agent").delete(item)

    def delete_all(self, user: str) -> None:
        self._engine.erase_user(user)

    def expire(self, user: str, fact: Fact, seconds: float) -> str:
        return self._engine.manager(user, "agent").structured.put(
            "notes", {"text": fact.text}, search_text=fact.text, ttl=seconds
        )

    def can_read(self, user: str, item: str) -> bool:
        from holdfast import NotFoundError

        try:
            return bool(self._engine.manager(user, "agent").get(item))
        except NotFoundError:
            return False

    def sweep(self) -> None:
        self._engine.sweep(confirm=True)

    def context(self, user: str, question: str) -> None:
        self._engine.manager(user, "agent").context(question, max_tokens=1_000)

    def count(self, user: str) -> int:
        return self._engine.quotas.get("long_term", user).memories


class _Vectors:
    """The vectors that everyone has, as an embedder of Holdfast."""

    id, dim = "side-by-side", 256

    def __init__(self, embed: Embed) -> None:
        self.embed = embed


class HoldfastOnPostgres(Holdfast):
    """Holdfast on PostgreSQL."""

    does = "the same on PostgreSQL"

    def open(self) -> None:
        self.url = os.environ[DATABASE]
        super().open()

    def size(self) -> int:
        return _database_size()


class Mem0(System):
    """mem0 with a local Qdrant and ``infer=False``."""

    does = "local Qdrant, `infer=False`: no model is asked; searches vectors; one process at a time"
    packages = ("mem0ai", "qdrant-client")
    is_shared = False

    def open(self) -> None:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(self.folder / "mem0"))
        from mem0 import Memory

        store = {"path": str(self.folder / "qdrant"), "on_disk": True, "embedding_model_dims": 256}
        key = {"api_key": "none: no model is asked"}
        self._memory: Any = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": {**store, "collection_name": "facts"}},
                "history_db_path": str(self.folder / "history.db"),
                "embedder": {"provider": "openai", "config": {**key, "embedding_dims": 256}},
                "llm": {"provider": "openai", "config": key},
            }
        )
        self._memory.embedding_model = _Mem0Vectors(self.embed)

    def close(self) -> None:
        self._memory.close()
        self._memory.vector_store.client.close()

    def add(self, user: str, fact: Fact) -> str:
        done = self._memory.add(fact.text, user_id=user, metadata={"topic": fact.topic}, infer=False)
        return str(done["results"][0]["id"])

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        filters = {"user_id": user, **({} if topic is None else {"topic": topic})}
        found = self._memory.search(question, filters=filters, top_k=BEST)
        return [one["memory"] for one in found["results"]]

    def correct(self, user: str, item: str, text: str) -> None:
        del user
        self._memory.update(item, text)

    def delete(self, user: str, item: str) -> None:
        del user
        self._memory.delete(item)

    def delete_all(self, user: str) -> None:
        self._memory.delete_all(user_id=user)


class _Mem0Vectors:
    def __init__(self, embed: Embed) -> None:
        self._embed = embed

    def embed(self, text: str, _action: str | None = None) -> list[float]:
        return list(map(float, self._embed([text])[0]))

    def embed_batch(self, texts: list[str], _action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]


class Chroma(System):
    """Chroma with a persistent client: one collection, in which each item names its user."""

    does = "a persistent client; searches vectors; each item names its user"
    packages = ("chromadb",)

    def open(self) -> None:
        import chromadb
        from chromadb.config import Settings

        self._client: Any = chromadb.PersistentClient(str(self.folder), settings=Settings(anonymized_telemetry=False))
        self._items: Any = self._client.get_or_create_collection("facts", embedding_function=None)

    def close(self) -> None:
        from chromadb.api.client import SharedSystemClient

        self._client._system.stop()
        SharedSystemClient.clear_system_cache()

    def add(self, user: str, fact: Fact) -> str:
        return self.add_many(user, [fact])[0]

    def add_many(self, user: str, some: Sequence[Fact]) -> list[str]:
        ids = [uuid4().hex for _ in some]
        texts = [fact.text for fact in some]
        about = [{"user": user, "topic": fact.topic} for fact in some]
        self._items.add(ids=ids, documents=texts, embeddings=self.embed(texts), metadatas=about)
        return ids

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        where: Any = {"user": user} if topic is None else {"$and": [{"user": user}, {"topic": topic}]}
        found = self._items.query(query_embeddings=self.embed([question]), n_results=BEST, where=where)
        return list(found["documents"][0])

    def correct(self, user: str, item: str, text: str) -> None:
        del user
        self._items.update(ids=[item], documents=[text], embeddings=self.embed([text]))

    def delete(self, user: str, item: str) -> None:
        del user
        self._items.delete(ids=[item])

    def delete_all(self, user: str) -> None:
        self._items.delete(where={"user": user})

    def count(self, user: str) -> int:
        return len(self._items.get(where={"user": user}, include=[])["ids"])


class LangGraphInMemory(System):
    """LangGraph's store in memory, a namespace for each user."""

    does = "vectors in the process's memory; nothing is written to a disk"
    packages = ("langgraph-checkpoint",)
    is_shared = False
    ttl: ClassVar[Any] = {"refresh_on_read": False, "omit_expired": True}

    def open(self) -> None:
        self._stack = ExitStack()
        index: Any = {"dims": 256, "embed": lambda texts: [list(map(float, v)) for v in self.embed(texts)]}
        self._store = self.make({**index, "fields": ["text"]})

    def make(self, index: Any) -> Any:
        """The store."""
        return import_module("langgraph.store.memory").InMemoryStore(index=index)

    def close(self) -> None:
        self._stack.close()

    def add(self, user: str, fact: Fact) -> str:
        item = uuid4().hex
        self._store.put(("facts", user), item, {"text": fact.text, "topic": fact.topic})
        return item

    def add_many(self, user: str, some: Sequence[Fact]) -> list[str]:
        put = import_module("langgraph.store.base").PutOp
        ids = [uuid4().hex for _ in some]
        values = zip(ids, some, strict=True)
        self._store.batch([put(("facts", user), item, {"text": one.text, "topic": one.topic}) for item, one in values])
        return ids

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        wanted = None if topic is None else {"topic": topic}
        found = self._store.search(("facts", user), query=question, filter=wanted, limit=BEST)
        return [str(one.value["text"]) for one in found]

    def correct(self, user: str, item: str, text: str) -> None:
        self._store.put(("facts", user), item, {"text": text, "topic": "food"})

    def delete(self, user: str, item: str) -> None:
        self._store.delete(("facts", user), item)

    def delete_all(self, user: str) -> None:
        while items := self._store.search(("facts", user), limit=500):
            for one in items:
                self._store.delete(one.namespace, one.key)

    def can_read(self, user: str, item: str) -> bool:
        return self._store.get(("facts", user), item) is not None


class LangGraphOnSqlite(LangGraphInMemory):
    """LangGraph's store in a file of SQLite; without vectors, where Python's sqlite3 loads no extensions."""

    does = "SQLite; without vectors, because this Python's sqlite3 loads no extensions: it lists what passes the filter"
    packages = ("langgraph-checkpoint-sqlite",)
    is_shared = True

    def make(self, index: Any) -> Any:
        index = index if hasattr(sqlite3.Connection, "enable_load_extension") else None
        kind = import_module("langgraph.store.sqlite").SqliteStore
        path = str(self.folder / "store.db")
        store = self._stack.enter_context(kind.from_conn_string(path, index=index, ttl=self.ttl))
        store.setup()
        return store

    def expire(self, user: str, fact: Fact, seconds: float) -> str:
        item = uuid4().hex
        self._store.put(("facts", user), item, {"text": fact.text, "topic": fact.topic}, ttl=seconds / 60)
        return item

    def sweep(self) -> None:
        self._store.sweep_ttl()

    def count(self, user: str) -> int:
        return len(self._store.search(("facts", user), limit=1_000_000))


class LangGraphOnPostgres(LangGraphOnSqlite):
    """LangGraph's store in PostgreSQL with pgvector."""

    does = "PostgreSQL with pgvector; searches vectors; a delete is for good"
    packages = ("langgraph-checkpoint-postgres",)

    def make(self, index: Any) -> Any:
        kind = import_module("langgraph.store.postgres").PostgresStore
        store = self._stack.enter_context(kind.from_conn_string(os.environ[DATABASE], index=index, ttl=self.ttl))
        store.setup()
        return store

    def size(self) -> int:
        return _database_size()


class Inspeximus(System):
    """inspeximus with its own ranking by words."""

    does = "a JSON file; ranks by words of its own"
    packages = ("inspeximus",)

    def open(self) -> None:
        self._store: Any = import_module("inspeximus").Inspeximus(str(self.folder / "memory.json"))

    def add(self, user: str, fact: Fact) -> str:
        key = uuid4().hex
        self._store.remember(fact.text, key=key, source={"doc": user}, user_id=user)
        return key

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        if topic is not None:
            raise NotImplementedError
        return [one["text"] for one in self._store.recall(question, k=BEST, user_id=user)]

    def correct(self, user: str, item: str, text: str) -> None:
        self._store.remember(text, key=item, source={"doc": user}, user_id=user)

    def delete(self, user: str, item: str) -> None:
        del user
        self._store.forget(where=lambda record: record.get("key") == item)

    def delete_all(self, user: str) -> None:
        self._store.forget_subject(user, exact=True)


class SqliteVec(System):
    """A table of texts and one of ``sqlite-vec``, written by hand: what somebody does without a library."""

    does = "two tables and no library: texts, and vectors in `vec0`; each write synced to the disk"
    packages = ("sqlite-vec", "apsw")

    def open(self) -> None:
        import apsw

        self._db = apsw.Connection(str(self.folder / "facts.db"))
        self._db.enable_load_extension(True)
        self._db.load_extension(import_module("sqlite_vec").loadable_path())
        self._db.set_busy_timeout(60_000)
        self._db.transaction_mode = "IMMEDIATE"
        self._db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS facts (id INTEGER PRIMARY KEY, user TEXT, topic TEXT, text TEXT)")
        self._db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS vectors USING vec0 "
            "(id INTEGER PRIMARY KEY, user TEXT PARTITION KEY, topic TEXT, vector FLOAT[256] DISTANCE_METRIC=cosine)"
        )

    def close(self) -> None:
        self._db.close()

    def add(self, user: str, fact: Fact) -> str:
        return self.add_many(user, [fact])[0]

    def add_many(self, user: str, some: Sequence[Fact]) -> list[str]:
        ids = []
        with self._db:
            for fact, vector in zip(some, self.embed([fact.text for fact in some]), strict=True):
                self._db.execute(
                    "INSERT INTO facts (user, topic, text) VALUES (?, ?, ?)", (user, fact.topic, fact.text)
                )
                ids.append(str(self._db.last_insert_rowid()))
                row = (int(ids[-1]), user, fact.topic, _packed(vector))
                self._db.execute("INSERT INTO vectors (id, user, topic, vector) VALUES (?, ?, ?, ?)", row)
        return ids

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        also = "" if topic is None else " AND topic = ?"
        asked = (_packed(self.embed([question])[0]), BEST, user, *([] if topic is None else [topic]))
        sql = f"SELECT id FROM vectors WHERE vector MATCH ? AND k = ? AND user = ?{also} ORDER BY distance"  # noqa: S608 - words of ours
        ids = [row[0] for row in self._db.execute(sql, asked)]
        get = "SELECT text FROM facts WHERE id = ?"
        return [text for item in ids for (text,) in self._db.execute(get, (item,))]

    def correct(self, user: str, item: str, text: str) -> None:
        del user
        with self._db:
            self._db.execute("UPDATE facts SET text = ? WHERE id = ?", (text, int(item)))
            vector = _packed(self.embed([text])[0])
            self._db.execute("UPDATE vectors SET vector = ? WHERE id = ?", (vector, int(item)))

    def delete(self, user: str, item: str) -> None:
        del user
        with self._db:
            self._db.execute("DELETE FROM facts WHERE id = ?", (int(item),))
            self._db.execute("DELETE FROM vectors WHERE id = ?", (int(item),))

    def delete_all(self, user: str) -> None:
        with self._db:
            self._db.execute("DELETE FROM facts WHERE user = ?", (user,))
            self._db.execute("DELETE FROM vectors WHERE user = ?", (user,))

    def count(self, user: str) -> int:
        return int(next(iter(self._db.execute("SELECT count(*) FROM facts WHERE user = ?", (user,))))[0])


class Floor(System):
    """The least that anyone can do: append a line and sync it; one product of the question with all vectors."""

    does = "the least that anyone can do: one synced append; one product with all vectors"
    packages = ("numpy",)
    is_shared = False

    def open(self) -> None:
        self._file = (self.folder / "facts.txt").open("ab", buffering=0)
        self._texts: list[str] = []
        self._vectors = np.zeros((0, 256), np.float32)

    def close(self) -> None:
        self._file.close()

    def add(self, user: str, fact: Fact) -> str:
        del user
        self._file.write(f"{fact.topic} {fact.text}\n".encode())
        os.fsync(self._file.fileno())
        return fact.text

    def add_many(self, user: str, some: Sequence[Fact]) -> list[str]:
        del user
        texts = [fact.text for fact in some]
        self._vectors = np.vstack([self._vectors, self.embed(texts)])
        self._texts += texts
        self._file.write("\n".join(texts).encode())
        os.fsync(self._file.fileno())
        return texts

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        del user
        if topic is not None:
            raise NotImplementedError
        scores = self._vectors @ self.embed([question])[0]
        best = np.argpartition(scores, -BEST)[-BEST:]
        return [self._texts[place] for place in best[np.argsort(-scores[best])]]


class FloorOnPostgres(System):
    """The least that anyone can do on a server: insert a row; one round trip that asks for nothing."""

    does = "the least that anyone can do on PostgreSQL: one inserted row, committed; one round trip that reads nothing"
    packages = ("psycopg",)
    is_shared = False

    def open(self) -> None:
        import psycopg

        self._connection = psycopg.connect(os.environ[DATABASE], autocommit=True)
        self._connection.execute("CREATE TABLE IF NOT EXISTS floor (fact text)")

    def close(self) -> None:
        self._connection.close()

    def add(self, user: str, fact: Fact) -> str:
        del user
        self._connection.execute("INSERT INTO floor VALUES (%s)", (fact.text,))
        return fact.text

    def add_many(self, user: str, some: Sequence[Fact]) -> list[str]:
        del user
        with self._connection.cursor().copy("COPY floor FROM STDIN") as copy:
            for fact in some:
                copy.write_row((fact.text,))
        return [fact.text for fact in some]

    def recall(self, user: str, question: str, topic: str | None = None) -> list[str]:
        del user, question
        if topic is not None:
            raise NotImplementedError
        self._connection.execute("SELECT 1")
        return []

    def size(self) -> int:
        return _database_size()


SYSTEMS: Final[dict[str, type[System]]] = {
    "Holdfast": Holdfast,
    "Holdfast (PostgreSQL)": HoldfastOnPostgres,
    "mem0": Mem0,
    "Chroma": Chroma,
    "LangGraph InMemoryStore": LangGraphInMemory,
    "LangGraph SqliteStore": LangGraphOnSqlite,
    "LangGraph PostgresStore": LangGraphOnPostgres,
    "inspeximus": Inspeximus,
    "sqlite-vec by hand": SqliteVec,
    "floor": Floor,
    "floor (PostgreSQL)": FloorOnPostgres,
}


def _packed(vector: Iterable[float]) -> bytes:
    numbers = list(map(float, vector))
    return struct.pack(f"{len(numbers)}f", *numbers)


def _database_size() -> int:
    import psycopg

    with psycopg.connect(os.environ[DATABASE]) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0
