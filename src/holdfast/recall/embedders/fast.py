"""Embeddings from the models that the ``fastembed`` package knows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.core.errors import EmbedderError, EmbedderUnavailableError, InvalidSettingsError, MissingExtraError
from holdfast.installation import missing_extra
from holdfast.ports.feed import Vectors
from holdfast.recall.embedders.unit_vectors import clean_text, unit_rows

MAX_CHARS = 65_536
"""How much of a text is embedded; each model cuts further, at its own number of tokens."""

_BATCH = 64


class FastEmbedder:
    """A model by the name that fastembed gives it, on this machine's processor.

    fastembed itself downloads a model that is not in its cache (``FASTEMBED_CACHE_PATH``), at the first ``embed``. Only
    asking for ``dim`` imports fastembed before that.
    """

    def __init__(self, model: str) -> None:
        self._name = model
        self._lock = threading.Lock()
        self._dim: int | None = None
        self._model: Any = None

    @property
    def id(self) -> str:
        return f"fastembed:{self._name}"

    @property
    def dim(self) -> int:
        if self._dim is None:
            self._dim = _known_dim(self._name)
        return self._dim

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), self.dim), np.float32)
        cleaned = [clean_text(text, MAX_CHARS) for text in texts]
        filled = [row for row, text in enumerate(cleaned) if text]
        if filled:
            model = self._model or self._load()
            try:
                raw = list(model.embed([cleaned[row] for row in filled], batch_size=_BATCH))
            except Exception as error:  # fastembed and onnxruntime promise no narrower class
                raise EmbedderError(f"{self.id} could not embed {len(filled)} texts: {error}") from error
            rows[filled] = unit_rows(raw, count=len(filled), dim=self._dim, source=self.id)
        return rows

    def _load(self) -> Any:
        with self._lock:
            if self._model is None:
                try:
                    self._model = _import_fastembed().TextEmbedding(model_name=self._name)
                except MissingExtraError:
                    raise
                except Exception as error:
                    raise EmbedderUnavailableError(
                        f"fastembed could not load {self._name!r} ({error}); it downloads a model at its first use: "
                        "check the network, or put the model into the folder that FASTEMBED_CACHE_PATH names"
                    ) from error
            return self._model


def _import_fastembed() -> Any:
    try:
        import fastembed  # noqa: PLC0415  (optional, and slow to import)
    except ImportError as error:
        raise missing_extra("the fastembed embedder", "fastembed") from error
    return fastembed


def _known_dim(name: str) -> int:
    models = _import_fastembed().TextEmbedding.list_supported_models()
    dims = {model["model"].lower(): int(model["dim"]) for model in models}
    try:
        return dims[name.lower()]
    except KeyError:
        raise InvalidSettingsError(
            f"fastembed has no model {name!r}; it has {', '.join(sorted(dims))}; or give a folder: onnx:/path/to/folder"
        ) from None
