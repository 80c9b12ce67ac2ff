"""What mem0, ChatGPT and Claude keep is read as they write it; what is damaged is named, and nothing of it is run."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast import Holdfast, InvalidInputError
from holdfast.edges.cli.app import app
from holdfast.integrations import imports
from holdfast.integrations.imports import Found, read_chatgpt, read_claude, read_jsonl
from holdfast.integrations.mem0 import read_mem0, read_pickle

# --- mem0 -------------------------------------------------------------------------------------------------------------

POINTS: list[dict[str, Any]] = [
    {
        "data": "Ann likes green tea",
        "user_id": "ann",
        "created_at": "2026-05-01T10:00:00-07:00",
        "hash": "1",
        "topic": "drinks",
    },
    {
        "data": "Ann lives in Leeds",
        "user_id": "ann",
        "created_at": "2026-05-02T10:00:00-07:00",
        "tags": ["home", {"n": 1.5}],
    },
    {"data": "Bob likes coffee", "user_id": "bob", "created_at": "2026-05-03T10:00:00-07:00"},
]


@pytest.fixture(scope="module")
def mem0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as mem0 makes it: by Qdrant's own client, in its local mode."""
    folder = tmp_path_factory.mktemp("mem0") / "qdrant"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from qdrant_client import QdrantClient, models

        client = QdrantClient(path=str(folder))
        client.create_collection("mem0", vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
        points = [models.PointStruct(id=n + 1, vector=[0.1, 0.2], payload=one) for n, one in enumerate(POINTS)]
        client.upsert("mem0", points=points)
        client.close()
    return folder


def storage(folder: Path) -> Path:
    return next(folder.rglob("storage.sqlite"))


def test_memories_of_mem0_are_read_with_their_dates_and_metadata(mem0: Path) -> None:
    found = list(read_mem0(mem0, "ann"))
    tea, home, bob = found
    assert tea.item == {
        "key": "mem0:1",
        "content": "Ann likes green tea",
        "metadata": {"topic": "drinks"},
        "created_at": "2026-05-01T10:00:00-07:00",
        "updated_at": None,
    }
    assert home.item is not None
    assert home.item["metadata"] == {"tags": ["home", {"n": 1.5}]}
    assert "belongs to mem0's user 'bob'" in bob.problem
    assert list(read_mem0(storage(mem0), "ann")) == found


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.path}",))


def add_point(file: Path, pickled: bytes) -> None:
    with sqlite3.connect(file) as database:
        database.execute("INSERT INTO points VALUES (?, ?)", (os.urandom(8).hex(), pickled))
    database.close()


def test_nothing_of_a_store_is_run(mem0: Path, tmp_path: Path) -> None:
    file = tmp_path / "storage.sqlite"
    file.write_bytes(storage(mem0).read_bytes())
    sprung = tmp_path / "sprung"
    add_point(file, pickle.dumps({"id": 9, "payload": {"data": Trap(sprung), "user_id": "ann"}}))
    add_point(file, pickle.dumps(Trap(sprung)))
    add_point(file, b"\x80\x04cos\nsystem\n(X\x04\x00\x00\x00truetR.")
    add_point(file, b"no pickle at all")
    add_point(file, pickle.dumps({"id": 1, "payload": {"data": "fine", "user_id": "ann"}})[:-9])
    found = list(read_mem0(file, "ann"))
    assert len(found) == 8
    assert [one.item is None for one in found] == [False, False, True, True, True, True, True, True]
    assert all(one.problem for one in found[2:])
    assert not sprung.exists()


def nest(depth: int) -> Any:
    value: Any = ["tea"]
    for _ in range(depth):
        value = [value, value]
    return value


def test_what_grows_without_bounds_is_refused() -> None:
    assert read_pickle(pickle.dumps([1, "a", None, True, 2.5, b"x", (1, 2), {"k": [1]}])) == [
        1, "a", None, True, 2.5, b"x", [1, 2], {"k": [1]},
    ]  # fmt: skip
    for value in (nest(40), nest(60), list(range(300_000))):
        with pytest.raises(ValueError, match="it "):
            read_pickle(pickle.dumps(value))


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(protocol: int) -> None:
    value: Any = {"payload": {"data": "tea", "n": [1, 2**40, -5, 2.5], "t": (), "d": {}, "é": None}}
    plain: Any = {"payload": {"data": "tea", "n": [1, 2**40, -5, 2.5], "t": [], "d": {}, "é": None}}
    assert read_pickle(pickle.dumps(value, protocol=protocol)) == plain


def test_a_folder_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"has no storage\.sqlite"):
        list(read_mem0(tmp_path, "ann"))
    (tmp_path / "storage.sqlite").write_text("no database, but long enough to be looked at as one" * 20)
    with pytest.raises(InvalidInputError, match="is not a store of Qdrant"):
        list(read_mem0(tmp_path, "ann"))


# --- ChatGPT ----------------------------------------------------------------------------------------------------------


def chatgpt_node(
    name: str, parent: str | None, role: str, text: Any, when: float | None, *children: str
) -> dict[str, Any]:
    parts = text if isinstance(text, list) else [text]
    message = {"author": {"role": role}, "create_time": when, "content": {"content_type": "text", "parts": parts}}
    return {"id": name, "parent": parent, "children": list(children), "message": message}


CHATGPT = {
    "conversation_id": "c1",
    "title": "A journey",
    "create_time": 1_760_000_000.0,
    "current_node": "d",
    "mapping": {
        "root": {"id": "root", "parent": None, "children": ["a"], "message": None},
        "a": chatgpt_node("a", "root", "system", "You are helpful.", None, "b", "x"),
        "b": chatgpt_node("b", "a", "user", ["A train to Leeds?", {"asset_pointer": "file"}], 1_760_000_001.5, "c"),
        "x": chatgpt_node("x", "a", "user", "an earlier wording", 1_760_000_000.5),
        "c": chatgpt_node("c", "b", "tool", "searched", 1_760_000_002, "d"),
        "d": chatgpt_node("d", "c", "assistant", "At 9:15.", 1_760_000_003),
    },
}


def test_of_a_conversation_with_chatgpt_the_branch_that_was_shown_is_read(tmp_path: Path) -> None:
    (tmp_path / "conversations.json").write_text(
        json.dumps([CHATGPT, {**CHATGPT, "current_node": None, "id": "c2"}, {}])
    )
    (tmp_path / "memories.json").write_text(
        json.dumps([{"id": "m1", "content": "Likes trains.", "created_at": "2026-01-01"}])
    )
    first, second, bad, memory = read_chatgpt(tmp_path)
    assert first.item == {
        "key": "chatgpt:c1",
        "memory_type": "episodic",
        "task": "A journey",
        "messages": [
            {"role": "user", "content": "A train to Leeds?", "timestamp": 1_760_000_001.5},
            {"role": "assistant", "content": "At 9:15.", "timestamp": 1_760_000_003},
        ],
        "metadata": {},
        "created_at": 1_760_000_001.5,
        "updated_at": 1_760_000_003,
    }
    assert second.item is not None
    assert second.item["messages"] == first.item["messages"], "without a current node, the newest leaf leads"
    assert "does not have the form" in bad.problem
    assert memory.item is not None
    assert (memory.item["key"], memory.item["content"]) == ("chatgpt:memory:m1", "Likes trains.")


def test_a_long_conversation_is_read_in_parts_and_a_loop_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_PART_CHARS", 10)
    loop = json.loads(json.dumps(CHATGPT))
    loop["mapping"]["root"]["parent"] = "d"
    (tmp_path / "conversations.json").write_text(json.dumps([loop]))
    parts = [one.item for one in read_chatgpt(tmp_path) if one.item is not None]
    assert [(one["key"], one["task"]) for one in parts] == [
        ("chatgpt:c1", "A journey"),
        ("chatgpt:c1#2", "A journey (2)"),
    ]


def test_a_large_export_is_read_one_conversation_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_CHUNK_CHARS", 100)
    (tmp_path / "conversations.json").write_text(
        json.dumps([{**CHATGPT, "conversation_id": str(n)} for n in range(5)], indent=1)
    )
    assert [one.item["key"] for one in read_chatgpt(tmp_path) if one.item] == [f"chatgpt:{n}" for n in range(5)]
    torn = json.dumps([CHATGPT, CHATGPT])[:-100]
    (tmp_path / "conversations.json").write_text(torn)
    whole, rest = read_chatgpt(tmp_path)
    assert whole.item is not None
    assert "entry 2" in rest.where
    assert "is not JSON" in rest.problem


# --- Claude -----------------------------------------------------------------------------------------------------------

CLAUDE = {
    "uuid": "u1",
    "name": "",
    "created_at": "2026-01-01T10:00:00Z",
    "chat_messages": [
        {"sender": "human", "text": "Hello", "created_at": "2026-01-01T10:00:00Z", "content": []},
        {
            "sender": "assistant",
            "created_at": "2026-01-01T10:00:05Z",
            "content": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "Good morning."}],
        },
    ],
}


def test_an_export_of_claude_is_read_from_its_zip(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    project = {
        "uuid": "p1", "name": "Tea", "description": "All about tea.", "created_at": "2026-01-02T00:00:00Z",
        "docs": [{"uuid": "d1", "filename": "a.md", "content": "First.\n\nSecond.", "created_at": "2026-01-03T00:00:00Z"}],
    }  # fmt: skip
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("export/conversations.json", json.dumps([CLAUDE]))
        archive.writestr("export/memories.json", json.dumps([{"conversations_memory": "Ann swims.\n\nAnn skis."}]))
        archive.writestr("export/projects.json", json.dumps([project]))
    items = [one.item or {} for one in read_claude(path)]
    assert items[0]["task"] == "Untitled"
    assert [one["content"] for one in items[0]["messages"]] == ["Hello", "Good morning."]
    assert [one["role"] for one in items[0]["messages"]] == ["user", "assistant"]
    assert [one["content"] for one in items[1:]] == ["Ann swims.", "Ann skis.", "All about tea.", "First.", "Second."]
    assert items[-1]["metadata"] == {"project": "Tea", "file": "a.md"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match=r"has no conversations\.json"):
        list(read_claude(tmp_path / "empty"))


# --- lines ------------------------------------------------------------------------------------------------------------


def test_lines_say_what_is_wrong_with_each(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_bytes(b'{"content": "a", "id": 7}\n\n[1]\n{"no\n\xff\n{"content": "b"}\n{"content": "b"}\n')
    found = list(read_jsonl(path))
    assert [one.where.rpartition(" ")[2] for one in found] == ["1", "3", "4", "5", "6", "7"]
    assert found[0] == Found("notes.jsonl, line 1", {"content": "a", "metadata": {}, "key": "jsonl:7"})
    assert found[4].item == found[5].item, "without an id, the same line is the same memory"
    assert [bool(one.problem) for one in found] == [False, True, True, True, False, False]
    path.write_text('{"content": "a", "created": "2026-01-01"}\n')
    assert "no field 'created'" in str(next(read_jsonl(path)).problem)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))

    def run(*words: str, code: int = 0) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if code == 0 else done.output

    return run


def test_an_import_is_tried_carried_out_repeated_and_undone(mem0: Path, tmp_path: Path, shell: Any) -> None:
    words = ("import", "mem0", str(mem0), "--user", "ann", "--source", "import:mem0:test")
    assert shell(*words, "--dry-run")["added"] == 2
    assert shell("list", "--user", "ann") == []
    report = tmp_path / "report.jsonl"
    done = shell(*words, "--report", str(report))
    assert (done["added"], done["skipped_count"]) == (2, 1)
    assert json.loads(report.read_text())["reason"] == done["skipped"][0]["reason"]
    assert (shell(*words)["added"], shell(*words)["existing"]) == (0, 2)
    assert {one["created_at"][:10] for one in shell("list", "--user", "ann", "--archived")} == {
        "2026-05-01",
        "2026-05-02",
    }
    assert shell("import", "mem0", str(mem0), "--user", "robert", "--of", "bob")["added"] == 1
    assert done["undo"] == "holdfast forget --source import:mem0:test --user ann"
    assert shell(*done["undo"].split()[1:])["memories"] == 2
    assert shell("list", "--user", "ann", "--archived") == []


def test_an_export_of_holdfast_is_imported_elsewhere(tmp_path: Path, shell: Any) -> None:
    shell("add", "Ann likes tea.", "--user", "ann", "--key", "tea")
    shell("add", "Be brief.", "--user", "ann", "--kind", "persona")
    binned = shell("add", "Forget me.", "--user", "ann")["memory_id"]
    shell("delete", binned, "--user", "ann")
    shell("export", "ann", "--to", str(tmp_path / "ann.zip"))
    done = shell("import", "jsonl", str(tmp_path / "ann.zip"), "--user", "bea")
    assert (done["added"], done["skipped_count"]) == (2, 2), "of what is in the bin, and of the audit chain, nothing"
    (tea,) = shell("list", "--user", "bea", "--kind", "long_term")
    (old,) = shell("list", "--user", "ann", "--kind", "long_term")
    assert {name: tea[name] for name in ("content", "key", "created_at")} == {
        name: old[name] for name in ("content", "key", "created_at")
    }


def test_entities_of_an_export_are_imported_with_what_holds_of_them(tmp_path: Path, shell: Any) -> None:
    with Holdfast.open(home=tmp_path / "home") as holdfast:
        entity = holdfast.manager("ann", "cli").entity
        entity.add("Zoe", "person", {"job": "cook"}, description="Her sister", since="2025-01-01")
        entity.relate("Zoe", "lives_in", "Leeds", since="2025-02-01")
        entity.relate("Zoe", "works_at", "ACME", since="2025-03-01", until="2025-04-01")
    shell("export", "ann", "--to", str(tmp_path / "ann.zip"))
    done = shell("import", "jsonl", str(tmp_path / "ann.zip"), "--user", "bea")
    assert (done["added"], done["corrected"]) == (3, 1), "the relation is told of an entity that is there by then"
    assert "a fact that has ended is not imported" in {one["reason"] for one in done["skipped"]}
    with Holdfast.open(home=tmp_path / "home") as holdfast:
        zoe = holdfast.manager("bea", "cli").entity.get("Zoe")
        assert (zoe["entity_type"], zoe["description"], zoe["attributes"]) == ("person", "Her sister", {"job": "cook"})
        assert [(one["target"], one["since"][:10]) for one in zoe["relations"]] == [("Leeds", "2025-02-01")]
    again = shell("import", "jsonl", str(tmp_path / "ann.zip"), "--user", "bea")
    assert (again["added"], again["corrected"], again["existing"]) == (0, 0, 4)


def test_an_entity_on_a_line_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "entities.jsonl"
    path.write_text(
        '{"memory_type": "entity", "name": "Zoe", "attributes": {"job": "cook"}}\n'
        '{"memory_type": "entity", "content": "Zoe"}\n'
        '{"memory_type": "entity", "attributes": {}}\n'
    )
    first, *others = read_jsonl(path)
    assert first.item == {
        "key": "entity:Zoe",
        "memory_type": "entity",
        "name": "Zoe",
        "attributes": {"job": "cook"},
        "metadata": {},
    }
    assert ["'content'" in others[0].problem, "has none" in others[1].problem] == [True, True]


def test_an_export_that_comes_back_to_its_own_store_adds_nothing(tmp_path: Path, shell: Any) -> None:
    shell("add", "Ann likes tea.", "--user", "ann", "--key", "tea")
    shell("add", "Be brief.", "--user", "ann", "--kind", "persona")
    shell("export", "ann", "--to", str(tmp_path / "ann.zip"))
    done = shell("import", "jsonl", str(tmp_path / "ann.zip"), "--user", "ann")
    assert (done["added"], done["existing"]) == (0, 2)


def test_what_is_not_there_is_named(tmp_path: Path, shell: Any) -> None:
    assert "there is nothing at" in shell("import", "claude", str(tmp_path / "no"), "--user", "ann", code=2)
