"""Embedders: what turns texts into vectors, chosen by one setting.

Each module is imported when its embedder is chosen, so that the default costs nothing of the others.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from holdfast.core.errors import EmbedderError, EmbedderUnavailableError, InvalidSettingsError, quote
from holdfast.installation import missing_extra
from holdfast.ports.feed import Embedder
from holdfast.recall.model_service import open_service
from holdfast.settings import without_password

ACCEPTED = "static, onnx:/path/to/folder, fastembed:<model>, openai:<model>@<base_url>"
"""The forms of the setting, for messages and references."""


def open_embedder(setting: str) -> Embedder:
    """The embedder that ``setting`` (``HOLDFAST_EMBEDDER``) names; nothing is loaded or asked before it is used.

    - ``static``: the bundled vectors, the default;
    - ``onnx:/path/to/folder``: an ONNX model and its tokenizer (extra ``onnx``);
    - ``fastembed:BAAI/bge-small-en-v1.5``: a model that fastembed knows (extra ``fastembed``);
    - ``openai:text-embedding-3-small@https://api.openai.com/v1``: an OpenAI-compatible service, with the key in
      ``HOLDFAST_OPENAI_API_KEY``, if it needs one (for OpenAI itself also ``OPENAI_API_KEY``).

    Raises ``InvalidSettingsError`` for anything else, ``MissingExtraError`` where a package is not installed.
    """
    match setting.strip().partition(":"):
        case ("static", "", _):
            return _static()
        case ("onnx", _, folder) if folder:
            from holdfast.recall.embedders.onnx import OnnxEmbedder  # noqa: PLC0415

            _require("onnxruntime", extra="onnx")
            return OnnxEmbedder(Path(folder).expanduser())
        case ("fastembed", _, model) if model:
            from holdfast.recall.embedders.fast import FastEmbedder  # noqa: PLC0415

            _require("fastembed", extra="fastembed")
            return FastEmbedder(model)
        case ("openai", _, text) if service := open_service(
            text, failed=EmbedderError, unavailable=EmbedderUnavailableError
        ):
            from holdfast.recall.embedders.openai import OpenAIEmbedder  # noqa: PLC0415

            return OpenAIEmbedder(service)
    raise InvalidSettingsError(
        f"HOLDFAST_EMBEDDER={quote(without_password(setting))} names no embedder; accepted: {ACCEPTED}"
    )


def _static() -> Embedder:
    from holdfast.recall.embedders.static import StaticEmbedder  # noqa: PLC0415

    return StaticEmbedder()


def _require(package: str, *, extra: str) -> None:
    """Raise ``MissingExtraError`` unless ``package`` is installed; it is not imported."""
    if importlib.util.find_spec(package) is None:
        raise missing_extra("this embedder", extra)
