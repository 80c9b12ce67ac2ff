"""Ordinary texts: cut without the compiled tokenizer, and exactly as it would cut them."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench.recall.quality import DATA
from bench.recall.sets import read_set
from bench.speed import questions, sentences
from hypothesis import given
from hypothesis import strategies as st

from holdfast.recall import terms
from holdfast.recall.embedders import clean_text, static
from holdfast.recall.embedders.static import MAX_CHARS, Pieces, StaticEmbedder, read_pieces

FILE = static._package_folder() / static._TOKENIZER
TOKENS = 32_000


@cache
def pieces() -> Pieces:
    found = read_pieces(FILE, TOKENS)
    assert found is not None, "the tokenizer's file is another one: are texts still cut as it says?"
    return found


def compiled(text: str) -> list[int]:
    return static._read_tokenizer(FILE, TOKENS)(text)


def texts() -> list[str]:
    """Prose, code and many languages."""
    collections = [one for path in sorted(DATA.glob("*.json")) for one in read_set(path).collections]
    found = list({text: None for one in collections for text in one.texts})
    code = Path(static.__file__).read_text(encoding="utf-8").splitlines()
    return [*found, *code, *sentences(200, 1), *questions(200, 2)]


def test_a_word_of_the_vocabulary_is_one_token() -> None:
    words = [word for word in pieces()._ids if word.startswith("▁") and "▁" not in word[1:] and len(word) > 1]
    assert len(words) > 10_000
    assert [word for word in words if pieces().cut_part(word) != (pieces()._ids[word],)] == []


def test_no_token_has_a_digit_and_anything_else() -> None:
    assert [
        token for token in pieces()._ids if re.search("[0-9]", token) and not re.fullmatch("[0-9]|<0x..>", token)
    ] == []


def test_ordinary_texts_are_cut_as_the_tokenizer_cuts_them() -> None:
    cleaned = [clean for text in texts() if (clean := clean_text(text, MAX_CHARS))]
    cut = {text: pieces().cut(text) for text in cleaned}
    assert [text for text, ids in cut.items() if ids is not None and ids != compiled(text)] == []
    assert sum(ids is not None for ids in cut.values()) > 0.9 * len(cut), "few are left to the tokenizer"


@given(
    st.one_of(
        st.text(min_size=1, max_size=60),
        st.text(alphabet="aab ce\n<s>/unk0x▁'.é漢🎿", min_size=1, max_size=60),
        st.lists(st.sampled_from(["a", "aa", "ing", "the", " ", "1", "00", "er", "T", ".", "b7"]), min_size=1).map(
            "".join
        ),
    )
)
def test_any_text_is_cut_as_the_tokenizer_cuts_it_or_left_to_it(text: str) -> None:
    cleaned = clean_text(text, MAX_CHARS)
    if cleaned:
        assert pieces().cut(cleaned) in (None, compiled(cleaned))
        assert static._bundled_tokens()(text) == compiled(cleaned), "with words that are known already, too"


@pytest.mark.parametrize("text", ["<s> begins", "two  spaces", "▁", "<unk>", "x" * 49])
def test_what_means_more_to_the_tokenizer_is_left_to_it(text: str) -> None:
    assert pieces().cut(text) is None


def test_words_are_kept_until_they_are_to_be_forgotten() -> None:
    tokens = static._bundled_tokens()
    assert tokens._pieces is not None
    kept: Any = tokens._pieces.cut_word
    before = tokens("Zyxwvia skis")
    assert kept.cache_info().currsize > 0
    terms.forget()
    assert kept.cache_info().currsize == 0
    assert tokens("Zyxwvia skis") == before


def test_a_file_that_is_another_one_is_left_to_the_tokenizer(tmp_path: Path) -> None:
    other = tmp_path / "tokenizer.json"
    other.write_bytes(FILE.read_bytes() + b"\n")
    assert read_pieces(other, TOKENS) is None
    assert read_pieces(tmp_path / "nowhere", TOKENS) is None
    assert read_pieces(FILE, TOKENS - 1) is None, "there are vectors for fewer tokens"


def test_before_and_after_the_tokenizer_is_loaded_a_text_has_the_same_vector() -> None:
    embedder = StaticEmbedder()
    text = "Ada enjoys skiing and noodles in Lisbon"
    first = embedder.embed([text])[0]
    embedder.embed(["two  spaces are left to the tokenizer"])
    assert (embedder.embed([text])[0] == first).all()


_CHILD = """
import sys
from pathlib import Path
from holdfast import Holdfast

def mapped():
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(".safetensors")]

with Holdfast.open(home=sys.argv[1]) as holdfast:
    memory = holdfast.manager("user", "agent")
    assert not mapped(), "importing and opening load no weights"
    assert "tokenizers" not in sys.modules
    memory.add("User enjoys skiing and mountain views")
    (line,) = mapped()
    assert line.split()[1].startswith("r--"), line
    assert memory.retrieve("skiing preferences")
    assert "tokenizers" not in sys.modules, "ordinary texts do not need it"
    memory.add_many([f"memory number {n:030}" for n in range(1_000)])
    assert "tokenizers" not in sys.modules, "nor do many numbers"
    memory.add("x" * 49)
    assert "tokenizers" in sys.modules, "a word that is unusually long does"
    assert "wordllama" not in sys.modules
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows what a process has mapped")
def test_weights_are_mapped_at_first_need_and_the_tokenizer_when_a_text_is_unusual(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "home")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@given(st.lists(st.text(alphabet="aab ce<s>/unk0x'.é漢🎿-[#", max_size=30), max_size=5))
def test_lines_have_as_many_tokens_by_themselves_as_in_their_text(lines: list[str]) -> None:
    text = clean_text("\n".join(lines), MAX_CHARS)
    counted, true = static.TokenCounter()(text), len(compiled(text)) if text else 0
    if any(mark in text for mark in static._MARKS):
        assert counted >= true, "never too few"
    elif all(line == line.strip() for line in text.split("\n")):
        assert counted == true
