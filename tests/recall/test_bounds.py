"""What one text may cost: however long it is and whatever its shape, a bounded part of it is embedded and indexed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import InvalidContentError, InvalidInputError
from holdfast.core.records import Fact, MemoryType, Record, Scope
from holdfast.core.values import MAX_CONTENT_BYTES, MAX_JSON_VALUES, MAX_METADATA_BYTES
from holdfast.recall import summaries, terms
from holdfast.recall.passages import INDEXED_CHARS, MAX_PASSAGES, split_record
from holdfast.recall.summaries import READ_CHARS, ExtractiveSummarizer
from holdfast.storage.relational import attachments

_RNG = random.Random(3)
#: A third of the largest content: more would only take longer to make.
_LENGTH = MAX_CONTENT_BYTES // 3
SHAPES = {
    "prose": "the ferry to Lisbon leaves at nine. " * (_LENGTH // 36),
    "one word": "a" * _LENGTH,
    "many words": " ".join(f"w{number}" for number in range(_LENGTH // 8)),
    "unspaced": "".join(_RNG.choices([chr(code) for code in range(0x4E00, 0xA000)], k=_LENGTH // 3)),
    "combining marks": "a" + "\u0301\u0323" * (_LENGTH // 4),
    "characters that stand for many": "\ufdfa" * (_LENGTH // 3),
    "flags": "\U0001f1e6" * (_LENGTH // 4),
    "joints": "a-b.c'd_E" * (_LENGTH // 9),
    "lines": "a\n" * (_LENGTH // 2),
    "sentences": "A b. " * (_LENGTH // 5),
    "white space": "a" + " " * (_LENGTH - 2) + "b",
}


def record(kind: MemoryType, content: str, **more: Any) -> Record:
    scope = Scope("default", "alice", "agent", None)
    return Record(id="1", kind=kind, scope=scope, content=content, created_at=0, updated_at=0, dated_at=0, **more)


def check_bounded(passages: list[str]) -> None:
    assert 1 <= len(passages) <= MAX_PASSAGES
    assert sum(map(len, passages)) <= 2 * INDEXED_CHARS, "an episode's summary and its messages, each within the bound"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [MemoryType.LONG_TERM, MemoryType.EPISODIC, MemoryType.ENTITY])
def test_of_any_text_a_bounded_part_is_indexed(kind: MemoryType, shape: str) -> None:
    passages = split_record(record(kind, SHAPES[shape]))
    check_bounded(passages)
    assert len(terms.encode(passages)) // terms.ENTRY.itemsize <= 2 * INDEXED_CHARS


@pytest.mark.parametrize("shape", SHAPES)
def test_of_any_text_a_bounded_number_of_terms_is_made(shape: str) -> None:
    passages = split_record(record(MemoryType.LONG_TERM, SHAPES[shape]))
    assert sum(len(terms.tokenize(passage)) for passage in passages) <= 3 * INDEXED_CHARS


def test_a_short_text_is_indexed_whole() -> None:
    text = "x" * (INDEXED_CHARS - 2) + " y"
    assert "".join(split_record(record(MemoryType.LONG_TERM, text))).endswith("y")


@pytest.mark.parametrize(
    "document",
    [
        {"n" * 900: {"m" * 900: {"o" * 900: [1] * 60_000}}},
        {f"key {number}": f"value {number}" for number in range(90_000)},
    ],
    ids=["long names around many values", "many fields"],
)
def test_of_a_document_no_more_fields_are_looked_at_than_are_indexed(document: dict[str, Any]) -> None:
    check_bounded(split_record(record(MemoryType.STRUCTURED, "{}", metadata={"document": document})))


def test_of_an_episode_no_more_messages_are_looked_at_than_are_indexed() -> None:
    looked: list[int] = []

    class Noticed(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            looked.append(1)
            return super().get(name, default)

    body = {"messages": [Noticed(content="hello there, friend") for _ in range(100_000)], "steps": []}
    check_bounded(split_record(record(MemoryType.EPISODIC, "A summary", body=body)))
    assert len(looked) <= INDEXED_CHARS / 20 + 1


def test_a_summary_is_made_of_the_beginning_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def tokenize(text: str) -> list[str]:
        read.append(len(text))
        return terms.tokenize(text)

    monkeypatch.setattr(summaries, "tokenize", tokenize)
    texts = [f"Ann: I met Bob{number} in Lisbon on day {number}." for number in range(100_000)]
    summary = ExtractiveSummarizer().summarize(texts, max_chars=500)
    assert "Bob" in summary
    assert sum(read) <= 12 * READ_CHARS, "each sentence is looked at a few times"
    chosen = summaries._cut_to_read(texts)
    assert (chosen[0], chosen[-1]) == (texts[0], texts[-1])
    assert sum(map(len, chosen)) <= READ_CHARS


# --- what is said of it, and what is refused --------------------------------------------------------------------------


def test_the_answer_says_how_much_of_a_long_text_is_indexed_and_all_of_it_is_kept(memory: MemoryManager) -> None:
    text = "the piano is out of tune. " * 4_000 + "zanzibar"
    added = memory.add(text)
    assert added["indexed_chars"] == INDEXED_CHARS == 65_536
    assert "indexed_chars" not in memory.add("short")
    assert memory.get(added["memory_id"])["content"] == text
    assert memory.retrieve("piano", top_k=1)[0]["memory_id"] == added["memory_id"]
    assert memory.retrieve("zanzibar", top_k=1)[0]["score"] < memory.retrieve("piano", top_k=1)[0]["score"]


def test_a_document_has_at_most_200000_values(memory: MemoryManager) -> None:
    assert MAX_JSON_VALUES == 200_000
    memory.structured.put("facts", {"x": [1] * 199_999})
    with pytest.raises(InvalidContentError, match="more than 200,000 values"):
        memory.structured.put("facts", {"x": [1] * 200_000})
    with pytest.raises(InvalidContentError, match="more than 200,000 values"):
        memory.episodic.record_episode("a task", messages=[{"a": 1, "b": 2}] * 80_000)
    assert MAX_METADATA_BYTES < 2 * MAX_JSON_VALUES


def test_attributes_are_at_most_500_at_once_and_each_known_fact_is_read_once(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = holdfast.manager("alice", "agent")
    with pytest.raises(InvalidInputError, match="501 attributes at once are too many"):
        memory.entity.add("Bob", "person", {f"a{number}": number for number in range(501)})
    memory.entity.add("Bob", "person", {f"a{number}": number for number in range(500)})
    read: list[int] = []
    stored = attachments.parse_fact

    def parse_fact(row: Fact) -> Fact:
        read.append(1)
        return stored(row)

    monkeypatch.setattr(attachments, "parse_fact", parse_fact)
    memory.entity.set("Bob", {f"a{number}": -number for number in range(500)})
    assert len(read) <= 500 + 1_000, "once to see what ends, once (with what ended) to tell what holds"
    assert memory.entity.get("Bob")["attributes"]["a7"] == -7
