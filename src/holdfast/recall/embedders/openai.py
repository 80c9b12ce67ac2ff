"""Embeddings from an OpenAI-compatible service (OpenAI itself, vLLM, llama.cpp, Ollama, LM Studio and others)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from holdfast.core.errors import EmbedderError
from holdfast.ports.feed import Vectors
from holdfast.recall.embedders.unit_vectors import clean_text, unit_rows
from holdfast.recall.model_service import ModelService

MAX_CHARS = 8_000
"""How much of a text is sent: no more than 8,192 tokens, the usual limit, in any script."""
MAX_INPUTS = 256
"""How many texts go into one request, if they are short."""
MAX_REQUEST_CHARS = 200_000
"""How many characters go into one request: services limit its tokens too."""


class OpenAIEmbedder:
    """Asks ``POST <base_url>/embeddings``, at the first ``embed`` and not before.

    How long the vectors are is learnt from the first answer (``dim``, asked before that, embeds one word) and every
    later answer is held to it. The id names the model and the address, because two services may give one name to two
    models. At most the first ``MAX_CHARS`` characters of a text are sent; empty texts are not sent at all.
    """

    def __init__(self, service: ModelService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._dim: int | None = None

    @property
    def id(self) -> str:
        return self._service.name

    @property
    def dim(self) -> int:
        if self._dim is None:
            self._ask(["dimension"])
        assert self._dim is not None  # noqa: S101  (an answer without vectors raises)
        return self._dim

    def embed(self, texts: Sequence[str]) -> Vectors:
        cleaned = [clean_text(text, MAX_CHARS) for text in texts]
        filled = [row for row, text in enumerate(cleaned) if text]
        parts = [self._ask([cleaned[row] for row in batch]) for batch in _batches(filled, cleaned)]
        rows = np.zeros((len(texts), self.dim), np.float32)
        if parts:
            rows[filled] = np.concatenate(parts)
        return rows

    def _ask(self, texts: list[str]) -> Vectors:
        answer = self._service.post("/embeddings", {"model": self._service.model, "input": texts})
        vectors = _in_order(answer, len(texts), self.id)
        with self._lock:
            rows = unit_rows(vectors, count=len(texts), dim=self._dim, source=self.id)
            self._dim = rows.shape[1]
        return rows


def _batches(rows: list[int], texts: list[str]) -> Iterator[list[int]]:
    """``rows`` in runs that one request can take."""
    batch: list[int] = []
    chars = 0
    for row in rows:
        if batch and (len(batch) == MAX_INPUTS or chars + len(texts[row]) > MAX_REQUEST_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(row)
        chars += len(texts[row])
    if batch:
        yield batch


def _in_order(answer: Any, count: int, source: str) -> list[Any]:
    """The answer's vectors in the order of the texts: services may send them in any, and number them by ``index``."""
    try:
        if len(answer["data"]) != count:
            raise EmbedderError(f"{source} answered with {len(answer['data'])} embeddings for {count} texts")
        placed = {item.get("index", place): item["embedding"] for place, item in enumerate(answer["data"])}
        return [placed[place] for place in range(count)]
    except (LookupError, TypeError, AttributeError) as error:
        raise EmbedderError(
            f"{source} did not answer with an embedding for each of {count} texts ({type(error).__name__}: {error})"
        ) from error
