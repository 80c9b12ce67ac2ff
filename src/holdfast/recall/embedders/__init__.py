"""Embedders: what turns texts into vectors, chosen by one setting.

Each module is imported when its embedder is chosen, so that the default costs nothing of the others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import EmbedderError, EmbedderUnavailableError, InvalidSettingsError, quote
from holdfast.installation import missing_extra
from holdfast.ports.feed import Embedder, Vectors
from holdfast.settings import mask_password

ACCEPTED = "static, minilm, onnx:/path/to/folder, fastembed:<model>, openai:<model>@<base_url>"
"""The forms of the setting, for messages and references."""


def open_embedder(setting: str) -> Embedder:
    """The embedder that ``setting`` (``HOLDFAST_EMBEDDER``) names; nothing is loaded or asked before it is used.

    - ``static``: the bundled vectors, the default;
    - ``minilm``: all-MiniLM-L6-v2, about 6 ms a text and better with other words (extra ``minilm``);
    - ``onnx:/path/to/folder``: an ONNX model and its tokenizer (extra ``onnx``);
    - ``fastembed:BAAI/bge-small-en-v1.5``: a model that fastembed knows (extra ``fastembed``);
    - ``openai:text-embedding-3-small@https://api.openai.com/v1``: an OpenAI-compatible service, with the key in
      ``HOLDFAST_OPENAI_API_KEY``, if it needs one (for OpenAI itself also ``OPENAI_API_KEY``).

    Raises ``InvalidSettingsError`` for anything else, ``MissingExtraError`` where a package is not installed.
    """
    match setting.strip().partition(":"):
        case ("static", "", _):
            return _static()
        case ("minilm", "", _):
            from holdfast.recall.embedders.onnx import open_minilm  # noqa: PLC0415

            _require("onnxruntime", extra="minilm")
            return open_minilm()
        case ("onnx", _, folder) if folder:
            from holdfast.recall.embedders.onnx import OnnxEmbedder  # noqa: PLC0415

            _require("onnxruntime", extra="onnx")
            return OnnxEmbedder(Path(folder).expanduser())
        case ("fastembed", _, model) if model:
            from holdfast.recall.embedders.onnx import FastEmbedder  # noqa: PLC0415

            _require("fastembed", extra="fastembed")
            return FastEmbedder(model)
        case ("openai", _, text):
            from holdfast.recall.model_service import OpenAIEmbedder, open_service  # noqa: PLC0415

            if service := open_service(text, failed=EmbedderError, unavailable=EmbedderUnavailableError):
                return OpenAIEmbedder(service)
    raise InvalidSettingsError(
        f"HOLDFAST_EMBEDDER={quote(mask_password(setting))} names no embedder; accepted: {ACCEPTED}"
    )


def _static() -> Embedder:
    from holdfast.recall.embedders.static import StaticEmbedder  # noqa: PLC0415

    return StaticEmbedder()


def _require(package: str, *, extra: str) -> None:
    """Raise ``MissingExtraError`` unless ``package`` is installed; it is not imported."""
    if importlib.util.find_spec(package) is None:
        raise missing_extra("this embedder", extra)


def unit_rows(raw: Any, *, count: int, dim: int | None, source: str) -> Vectors:
    """``raw`` as ``count`` float32 rows of unit length (rows of zeros stay zeros).

    Raises ``EmbedderError``, naming ``source``, unless it is a table of finite numbers, of that many rows and, where
    ``dim`` is known, of that width.
    """
    try:
        table = np.asarray(raw, np.float64)
    except (TypeError, ValueError) as error:
        raise EmbedderError(f"{source} gave something that is no table of numbers: {error}") from error
    if table.ndim != 2 or len(table) != count or table.shape[1] == 0:
        raise EmbedderError(f"{source} gave vectors of shape {table.shape} for {count} texts")
    if dim is not None and table.shape[1] != dim:
        raise EmbedderError(
            f"{source} gave vectors of {table.shape[1]} dimensions where it gave {dim} before; was the model changed?"
        )
    if not np.isfinite(table).all():
        raise EmbedderError(f"{source} gave vectors with numbers that are not finite")
    largest = np.abs(table).max(axis=1, keepdims=True)  # scaled by it first, so that no square leaves the range
    table /= np.where(largest > 0, largest, 1)
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    unit: Vectors = (table / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def clean_text(text: str, max_chars: int) -> str:
    """The first ``max_chars`` characters of ``text``, stripped; what UTF-8 cannot carry becomes ``?``."""
    return text[:max_chars].strip().encode("utf-8", "replace").decode()


def embed_filled(
    texts: Sequence[str], max_chars: int, embed: Callable[[list[str]], Vectors], dim: Callable[[], int]
) -> Vectors:
    """A row for each text: what ``embed`` gives for the cleaned ones that are not empty, and zeros for the others."""
    cleaned = [clean_text(text, max_chars) for text in texts]
    filled = [row for row, text in enumerate(cleaned) if text]
    found = embed([cleaned[row] for row in filled]) if filled else None
    rows = np.zeros((len(texts), dim()), np.float32)
    if found is not None:
        rows[filled] = found
    return rows
