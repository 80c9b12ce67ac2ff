"""mem0 with a local Qdrant and ``infer=False``: no model reads or rewrites what is stored."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final

from holdfast_prove.adapter import Claims, Place
from holdfast_prove.systems.word_vectors import DIMENSIONS, embed

_DELETE: Final = "https://docs.mem0.ai/core-concepts/memory-operations/delete"
_UPDATE: Final = "https://docs.mem0.ai/core-concepts/memory-operations/update"
_GONE: Final = (
    "Confirm the response message, then re-run search or check the dashboard/logs to ensure the memory is gone."
)
_ERASURE: Final = "Satisfies user erasure (GDPR/CCPA) without touching the rest of your data."


class _Embedder:
    """What mem0 asks for vectors."""

    def embed(self, text: str, _action: str | None = None) -> list[float]:
        return embed(text)

    def embed_batch(self, texts: list[str], _action: str | None = None) -> list[list[float]]:
        return [embed(text) for text in texts]


class Mem0:
    """Its expiry is to the day and hides from lists only, as its documentation says; so it is not tried."""

    version = version("mem0ai")
    claims: ClassVar[Claims] = {
        "search": (_GONE, _DELETE),
        "restart": (_GONE, _DELETE),
        "erased": (_ERASURE, _DELETE),
        "others": (_ERASURE, _DELETE),
        "correction": ("Mem0 overwrites the stored value and adjusts indexes.", _UPDATE),
    }

    def __init__(self, folder: Path) -> None:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder / "mem0"))
        self._folder = folder
        self._open()

    def _open(self) -> None:
        from mem0 import Memory  # noqa: PLC0415 - it reads the environment when it is imported

        store = {"path": str(self._folder / "qdrant"), "on_disk": True, "embedding_model_dims": DIMENSIONS}
        key = {"api_key": "none: no model is asked"}
        self._memory: Any = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": {**store, "collection_name": "prove"}},
                "history_db_path": str(self._folder / "history.db"),
                "embedder": {"provider": "openai", "config": {**key, "embedding_dims": DIMENSIONS}},
                "llm": {"provider": "openai", "config": key},
            }
        )
        self._memory.embedding_model = _Embedder()

    def add(self, user_id: str, text: str) -> str:
        """Add a text as it is."""
        return str(self._memory.add(text, user_id=user_id, infer=False)["results"][0]["id"])

    def search(self, user_id: str, query: str) -> list[str]:
        """Search the user's memories."""
        found = self._memory.search(query, filters={"user_id": user_id}, top_k=20)
        return [one["memory"] for one in found["results"]]

    def get(self, user_id: str, record_id: str) -> str | None:
        """Get a memory."""
        del user_id
        found = self._memory.get(record_id)
        return found["memory"] if found else None

    def delete(self, user_id: str, record_id: str) -> None:
        """Delete a memory."""
        del user_id
        self._memory.delete(record_id)

    def erase_user(self, user_id: str) -> None:
        """Delete all memories of the user."""
        self._memory.delete_all(user_id=user_id)

    def places(self) -> Iterable[Place]:
        """Qdrant's files, the history and the settings."""
        return [self._folder]

    def reopen(self) -> None:
        """Close it and open it again."""
        self.close()
        self._open()

    def correct(self, user_id: str, record_id: str, text: str) -> None:
        """Update a memory."""
        del user_id
        self._memory.update(record_id, text)

    def embed(self, text: str) -> list[float]:
        """The vector of a text."""
        return embed(text)

    def close(self) -> None:
        """Give the files back."""
        self._memory.close()
        self._memory.vector_store.client.close()
