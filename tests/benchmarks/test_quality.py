"""Recall is measured on any set of a documented form: the figures are right, and what is no set is refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.recall import peers, quality
from bench.recall.comparison import Figures, bootstrap, compare, describe, judge, tabulate
from bench.recall.sets import Memory, Question, SetError, read_set

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "measure-recall.md"


@pytest.fixture
def tea() -> dict[str, Any]:
    """The set of the page."""
    found = re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    loaded: dict[str, Any] = json.loads(found[1])
    return loaded


def write(folder: Path, content: object) -> Path:
    path = folder / "set.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


# --- the figures ------------------------------------------------------------------------------------------------------


def test_a_question_is_judged_by_where_its_answers_stand() -> None:
    found = judge(["a", "x", "b", "y", "z", "c"], frozenset("abcd"))
    assert (found.any1, found.any10, found.mrr10, found.precision5) == (1.0, 1.0, 1.0, 0.4)
    assert (found.recall5, found.recall10) == (0.5, 0.75)
    # 1/log2(2) + 1/log2(4) + 1/log2(7), of 1/log2(2) + 1/log2(3) + 1/log2(4) + 1/log2(5)
    assert found.ndcg10 == pytest.approx((1 + 0.5 + 0.356207) / (1 + 0.630930 + 0.5 + 0.430677), abs=1e-5)


def test_what_is_not_found_and_what_stands_after_the_tenth_counts_nothing() -> None:
    assert judge([], frozenset("a")) == Figures(0, 0, 0, 0, 0, 0, 0)
    assert judge([*"0123456789", "a"], frozenset("a")) == Figures(0, 0, 0, 0, 0, 0, 0)
    assert judge(["x", "a"], frozenset("a")).mrr10 == 0.5


def test_an_interval_is_as_wide_as_chance_and_closed_where_there_is_none() -> None:
    assert bootstrap([0.25] * 30) == (0.25, 0.25, 0.25)
    low, mean, high = bootstrap([0.0, 1.0] * 200)
    assert mean == 0.5
    assert (low, high) == pytest.approx((0.5 - 1.96 * 0.5 / 20, 0.5 + 1.96 * 0.5 / 20), abs=0.01)


def test_differences_are_paired_so_that_what_is_always_a_bit_worse_is_seen_to_be() -> None:
    ours = [Figures(0, value, value, 0, 0, value, 0) for value in np.linspace(0.1, 1.0, 50)]
    theirs = [Figures(0, one.recall5 - 0.1, one.recall10, 0, 0, one.ndcg10, 0) for one in ours]
    groups = compare({"ours": ours, "theirs": theirs}, ["even", "odd"] * 25)
    lines = list(describe(groups))
    assert [line.split(":")[0].strip() for line in lines if "interval" in line] == [
        "all questions (50)",
        "even (25)",
        "odd (25)",
    ]
    rows = list(tabulate(groups))
    assert rows[3].startswith("| theirs | 0.450 [")
    assert "| +0.100 [+0.100, +0.100] | 0.550 [" in rows[3]
    assert rows[3].endswith("| +0.000 [+0.000, +0.000] |")
    assert rows[5] == "| R@10 | even (25) | odd (25) |"
    assert rows[8] == "| theirs | 0.541 | 0.559 |"
    assert "+0.100 [+0.100, +0.100]" in lines[2]  # paired, though either mean is uncertain by far more
    assert "+0.000 [+0.000, +0.000]" in lines[2]


# --- the form ---------------------------------------------------------------------------------------------------------


def test_a_set_has_conversations_with_messages_and_questions(tea: dict[str, Any], tmp_path: Path) -> None:
    (one,) = read_set(write(tmp_path, tea)).collections
    assert one.memories[0] == Memory("m1", "I drink oolong in the morning", "monday")
    assert one.questions[1] == Question("Where does my sister live?", frozenset({"m2"}), "people")


def test_a_set_may_ask_about_the_messages_of_another(tea: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tea.json").write_text(json.dumps(tea), encoding="utf-8")
    questions = tea["conversations"][0]["questions"]
    other: dict[str, Any] = {
        "name": "more",
        "conversations": [{"id": "ann", "messages_of": "tea.json", "questions": questions}],
    }
    assert len(read_set(write(tmp_path, other)).collections[0].memories) == 3
    other["conversations"][0]["id"] = "bob"
    with pytest.raises(SetError, match=r"tea\.json has no conversation 'bob'"):
        read_set(write(tmp_path, other))


def test_locomo_is_read_as_it_is(tmp_path: Path) -> None:
    turns = [
        {"dia_id": "D1:1", "speaker": "Ann", "text": "Look!", "blip_caption": "a boat"},
        {"dia_id": "D1:2", "speaker": "Bob", "text": "Nice"},
    ]
    asked = [
        {"question": "What did Ann show?", "evidence": ["D1:1; D1:2"], "category": 4},
        {"question": "Never said", "evidence": ["D1:1"], "category": 5},
        {"question": "No such turn", "evidence": ["D9:9"], "category": 1},
    ]
    sample = {"conversation": {"session_1": turns, "session_1_date_time": "noon"}, "qa": asked}
    (one,) = read_set(write(tmp_path, [sample])).collections
    assert [memory.text for memory in one.memories] == ["Ann: Look! [a boat]", "Bob: Nice"]
    assert one.questions == [Question("What did Ann show?", frozenset({"D1:1", "D1:2"}), "category 4")]


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (("name",), "", "the set must have 'name', a text that is not empty, not \"\""),
        (("conversations",), {}, "the set must have 'conversations', a list with something in it, not {}"),
        (("conversations", 0), 7, "conversation 1 must be an object, not 7"),
        (("conversations", 0, "id"), None, "conversation 1 must have 'id', a text"),
        (("conversations", 0, "messages"), [], "conversation 'ann' must have 'messages', a list with something in it"),
        (("conversations", 0, "messages", 1, "id"), 2, "message 2 of conversation 'ann' must have 'id', a text"),
        (("conversations", 0, "messages", 2, "text"), None, "message 3 of conversation 'ann' must have 'text'"),
        (("conversations", 0, "messages", 1, "id"), "m1", "has more than one message with the id 'm1'"),
        (("conversations", 0, "questions", 0, "gold"), [], "question 1 of conversation 'ann' must have 'gold'"),
        (("conversations", 0, "questions", 1, "gold"), ["m9"], "question 2 of conversation 'ann' names 'm9' as gold"),
        (("conversations", 0, "questions", 1, "gold"), [["m1"]], "which is no message of its conversation"),
    ],
)
def test_what_is_wrong_with_a_set_is_said(
    place: tuple[Any, ...], value: object, complaint: str, tea: dict[str, Any], tmp_path: Path
) -> None:
    part: Any = tea
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(SetError, match=re.escape(complaint)) as refused:
        read_set(write(tmp_path, tea))
    assert str(refused.value).startswith(f"{tmp_path / 'set.json'} is not a set to measure recall with: ")


def test_a_file_that_is_no_set_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetError, match="it cannot be read"):
        read_set(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("tea", encoding="utf-8")
    with pytest.raises(SetError, match="it is not JSON"):
        read_set(tmp_path / "text.json")
    with pytest.raises(SetError, match="it is a list, and not LoCoMo's"):
        read_set(write(tmp_path, [1, 2]))
    with pytest.raises(SystemExit, match="is not a set to measure recall with"):
        quality.main([str(tmp_path / "text.json"), "--peers"])


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_the_page_shows(
    tea: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(write(tmp_path, tea)), "--embedders", "static", "onnx:/nowhere", "--docs", str(tmp_path), "--peers"]
    quality.main(command)
    printed = capsys.readouterr().out
    shown = re.search(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    assert printed.startswith(shown[1])
    assert "Holdfast, static without words and neighbours" in printed
    assert "\nhabits (1): " in printed
    assert "\nHoldfast, onnx:/nowhere: " in printed  # it is named, with why
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    best = "1.000 [1.000, 1.000]"
    assert f"| Holdfast, static | {best} |  | {best} |  | {best} |  |" in page
    assert "| R@10 | habits (1) | people (1) |" in page
    assert "| Holdfast, static without words |" in page
    assert "without words and neighbours" not in page  # that is left to the terminal and to the JSON
    assert "without words and neighbours" in (tmp_path / "recall.json").read_text(encoding="utf-8")
    assert (tmp_path / "img" / "recall_beside.svg").exists()
    assert "Holdfast, onnx:/nowhere: " in page


@pytest.fixture
def vectors(tea: dict[str, Any], tmp_path: Path) -> Path:
    (one,) = tea["conversations"]
    texts = [part["text"] for part in (*one["messages"], *one["questions"])]
    (tmp_path / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    np.save(tmp_path / "vectors.npy", np.eye(3, 256, dtype=np.float32)[[0, 1, 2, 1, 2]])
    return tmp_path


def test_a_peer_finds_with_the_vectors_that_it_is_given(
    tea: dict[str, Any], vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PEERS", Path(sys.executable))
    messages = tea["conversations"][0]["messages"]
    messages.append({"id": "m4", "text": messages[0]["text"]})  # the same text twice
    found = peers.run("LangGraph InMemoryStore", write(vectors, tea), vectors, "")
    assert not isinstance(found, str), found
    assert [sorted(ids) for ids in found] == [["m1", "m2", "m3", "m4"]] * 2
    assert [ids[0] for ids in found] == ["m2", "m3"]


def test_a_peer_that_is_slow_or_not_there_is_shown_as_that(
    tea: dict[str, Any], vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(vectors, tea)
    monkeypatch.setattr(peers, "PEERS", Path(sys.executable))
    assert peers.run("LangGraph InMemoryStore", path, vectors, "", 0) == "stopped after 0 seconds"
    tea["conversations"] *= 10_000  # it reads and adds for seconds
    path = write(vectors, tea)
    monkeypatch.setattr(peers, "_PATIENCE", 100)
    assert peers.run("LangGraph InMemoryStore", path, vectors, "", 1) == "stopped after 1 seconds of a processor"
    monkeypatch.setattr(peers, "PEERS", vectors / "python")
    assert str(peers.run("Chroma", path, vectors, "")).endswith("run: make peers")
