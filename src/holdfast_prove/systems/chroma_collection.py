"""Chroma with a persistent client: one collection, in which each item names its user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

import chromadb
from chromadb.api.client import SharedSystemClient
from chromadb.config import Settings

from holdfast_prove.adapter import Claims, Place
from holdfast_prove.systems.word_vectors import embed

_DELETE: Final = "https://docs.trychroma.com/docs/collections/delete-data"
_GONE: Final = "The embeddings, documents, and metadata associated with each item will be deleted."
_FILTER: Final = "It will delete all items in the collection that match the where filter."


class Chroma:
    """Of the bytes in its files its documentation says nothing; they are looked at, and do not count."""

    version = chromadb.__version__
    claims: ClassVar[Claims] = {
        "search": (_GONE, _DELETE),
        "restart": (
            "Data will be persisted automatically and loaded on start (if it exists).",
            "https://docs.trychroma.com/docs/run-chroma/clients",
        ),
        "others": (_FILTER, _DELETE),
        "correction": (
            "Any property of records in a collection can be updated with .update",
            "https://docs.trychroma.com/docs/collections/update-data",
        ),
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "chroma"
        self._open()

    def _open(self) -> None:
        settings = Settings(anonymized_telemetry=False)
        self._client: Any = chromadb.PersistentClient(str(self._folder), settings=settings)
        self._collection: Any = self._client.get_or_create_collection("prove", embedding_function=None)

    def add(self, user_id: str, text: str) -> str:
        """Add an item."""
        record_id = uuid4().hex
        self._collection.add(ids=[record_id], documents=[text], embeddings=[embed(text)], metadatas=[{"user": user_id}])
        return record_id

    def search(self, user_id: str, query: str) -> list[str]:
        """Query the user's items by vector."""
        found = self._collection.query(query_embeddings=[embed(query)], n_results=20, where={"user": user_id})
        return list(found["documents"][0])

    def get(self, user_id: str, record_id: str) -> str | None:
        """Get an item."""
        found = self._collection.get(ids=[record_id], where={"user": user_id})["documents"]
        return found[0] if found else None

    def delete(self, user_id: str, record_id: str) -> None:
        """Delete an item."""
        del user_id
        self._collection.delete(ids=[record_id])

    def erase_user(self, user_id: str) -> None:
        """Delete the items that name the user."""
        self._collection.delete(where={"user": user_id})

    def places(self) -> Iterable[Place]:
        """The database and the vector index."""
        return [self._folder]

    def reopen(self) -> None:
        """Close it and open it again."""
        self.close()
        self._open()

    def settle(self, verb: str) -> None:
        """After either: its own vacuum command."""
        del verb
        self.close()
        program = Path(sys.executable).with_name("chroma")
        command = [str(program), "vacuum", "--path", str(self._folder), "--force"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - its own program
        if done.returncode:
            raise RuntimeError(f"chroma vacuum failed: {done.stderr.strip() or done.stdout.strip()}")
        self._open()

    def correct(self, user_id: str, record_id: str, text: str) -> None:
        """Update an item."""
        del user_id
        self._collection.update(ids=[record_id], documents=[text], embeddings=[embed(text)])

    def embed(self, text: str) -> list[float]:
        """The vector of a text."""
        return embed(text)

    def close(self) -> None:
        """Let go of the files."""
        self._client._system.stop()
        SharedSystemClient.clear_system_cache()
