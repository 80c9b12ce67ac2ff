"""Anthropic's memory tool keeps its files in Holdfast."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from anthropic.tools import BetaAbstractMemoryTool, BetaLocalFilesystemMemoryTool, ToolError
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import HeldError
from holdfast.integrations.anthropic_memory import HoldfastAsyncMemoryTool, HoldfastMemoryTool

#: What a tool answers does not depend on the engine.
on_sqlite = pytest.mark.parametrize("engine_name", ["sqlite"], scope="module")


@pytest.fixture
def tool(holdfast: Holdfast, user_id: str) -> HoldfastMemoryTool:
    return HoldfastMemoryTool(holdfast.manager(user_id, "helper"))


def ask(tool: BetaAbstractMemoryTool, command: str, path: str = "/memories", **fields: Any) -> str:
    """What a tool answers to a command; an error has its text after ``ERROR``."""
    given = {"old_path": path} if command == "rename" else {"path": path}
    try:
        answer = str(tool.call({"command": command, **given, **fields}))
    except ToolError as problem:
        return f"ERROR {problem.content}"
    except (OSError, ValueError):
        return "ERROR of the machine"
    if answer.startswith("Here're"):  # how large a folder is, each file system says as it likes
        first, root, *lines = answer.split("\n")
        return "\n".join([first, *(re.sub(r"^\S+(\t.*/)$", r"-\1", line) for line in (f"{root}/", *lines))])
    return answer


def remove_empty_folders(root: Path) -> None:
    """Holdfast has no folders without files."""
    for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


class Twins:
    """The tool in Holdfast and the kit's own one, asked the same."""

    def __init__(self, mine: HoldfastMemoryTool, folder: Path) -> None:
        self.mine, self.theirs = mine, BetaLocalFilesystemMemoryTool(str(folder))

    def ask(self, command: str, path: str = "/memories", **fields: Any) -> str:
        mine, theirs = ask(self.mine, command, path, **fields), ask(self.theirs, command, path, **fields)
        remove_empty_folders(self.theirs.memory_root)
        if theirs == "ERROR of the machine":  # it would show the model where the folder lies
            assert mine.startswith("ERROR "), (command, path, fields)
        else:
            assert mine == theirs, (command, path, fields)
        return mine

    def compare_files(self) -> None:
        files = self.mine.files.list("/memories")
        assert files == {
            f"/memories/{path.relative_to(self.theirs.memory_root)}": path.stat().st_size
            for path in self.theirs.memory_root.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def twins(tool: HoldfastMemoryTool, tmp_path: Path) -> Twins:
    return Twins(tool, tmp_path)


@on_sqlite
def test_it_is_declared_as_the_kit_declares_it(tool: HoldfastMemoryTool) -> None:
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
    cached = HoldfastMemoryTool(tool.files.memory, cache_control={"type": "ephemeral"})
    assert cached.to_dict()["cache_control"] == {"type": "ephemeral"}


@on_sqlite
def test_files_are_made_and_shown(twins: Twins) -> None:
    assert "2 levels deep" in twins.ask("view")
    for path, text in {
        "/memories/a.txt": "one\ntwo\nthree\n",
        "/memories/notes/tea.md": "Grüße 🎿\r\n" * 200,
        "/memories/notes/deep/er/b.md": "x" * 3_000,
        "/memories/.hidden": "secret",
        "/memories/notes/.git/config": "[core]",
        "/memories/empty": "",
    }.items():
        assert twins.ask("create", path, file_text=text) == f"File created successfully at: {path}"
    for path in ("/memories", "/memories/", "/memories/notes", "/memories/notes/deep", "/memories/a.txt"):
        assert twins.ask("view", path).startswith("Here")
    for path in (
        "/memories/.hidden",
        "/memories/empty",
        "/memories/./notes/../a.txt",
        "/memories//a.txt/",
        "/memoriesa.txt",
    ):
        assert twins.ask("view", path).startswith("Here's the content")
    for range_ in ([1, 2], [2, -1], [0, 1], [3, 99], [9, 12], [2, 1], [-5, 2], [1, -2], [1], []):
        twins.ask("view", "/memories/a.txt", view_range=range_)
    twins.compare_files()


@on_sqlite
@pytest.mark.parametrize(
    ("command", "path", "fields", "says"),
    [
        ("view", "/etc/passwd", {}, "Path must start with /memories, got: /etc/passwd"),
        ("view", "/memories/../secret", {}, "would escape /memories"),
        ("view", "/memories/../../memories/a.txt", {}, "would escape /memories"),
        ("view", "/memories/none", {}, "does not exist. Please provide a valid path."),
        ("create", "/memories/a.txt", {"file_text": "x"}, "File /memories/a.txt already exists"),
        ("create", "/memories/notes", {"file_text": "x"}, "File /memories/notes already exists"),
        ("create", "/memories", {"file_text": "x"}, "File /memories already exists"),
        ("create", "/memories/a.txt/b", {"file_text": "x"}, "is a file; nothing can be in it"),
        ("str_replace", "/memories/none", {"old_str": "a", "new_str": "b"}, "does not exist"),
        ("str_replace", "/memories/notes", {"old_str": "a", "new_str": "b"}, "is not a file."),
        ("str_replace", "/memories/a.txt", {"old_str": "four", "new_str": "b"}, "did not appear verbatim"),
        ("str_replace", "/memories/a.txt", {"old_str": "o", "new_str": "b"}, "Multiple occurrences .* in lines: 1, 2."),
        ("str_replace", "/memories/a.txt", {"old_str": "", "new_str": "b"}, "Multiple occurrences"),
        ("insert", "/memories/none", {"insert_line": 0, "insert_text": "x"}, "does not exist"),
        ("insert", "/memories/notes", {"insert_line": 0, "insert_text": "x"}, "is not a file."),
        ("insert", "/memories/a.txt", {"insert_line": 4, "insert_text": "x"}, r"within the range \[0, 3\]"),
        ("insert", "/memories/a.txt", {"insert_line": -1, "insert_text": "x"}, "Invalid `insert_line`"),
        ("delete", "/memories", {}, "Cannot delete the /memories directory itself"),
        ("delete", "/memories/none", {}, "The path /memories/none does not exist"),
        ("rename", "/memories", {"new_path": "/memories/b"}, "Cannot rename the /memories directory itself"),
        ("rename", "/memories/none", {"new_path": "/memories/b"}, "The path /memories/none does not exist"),
        ("rename", "/memories/a.txt", {"new_path": "/memories/notes"}, "The destination /memories/notes already"),
        ("rename", "/memories/a.txt", {"new_path": "/memories"}, "The destination /memories already exists"),
        ("rename", "/memories/a.txt", {"new_path": "/memories/../b"}, "would escape"),
        ("rename", "/memories/notes", {"new_path": "/memories/notes/in"}, "Cannot move /memories/notes into itself"),
        ("rename", "/memories/a.txt", {"new_path": "/memories/notes/tea.md/x"}, "is a file; nothing can be in it"),
    ],
)
def test_what_cannot_be_done_is_said_in_the_kit_s_words(
    twins: Twins, command: str, path: str, fields: dict[str, Any], says: str
) -> None:
    twins.ask("create", "/memories/a.txt", file_text="one\ntwo\nthree\n")
    twins.ask("create", "/memories/notes/tea.md", file_text="green")
    assert re.search(f"^ERROR .*{says}", twins.ask(command, path, **fields))
    twins.compare_files()


@on_sqlite
def test_files_are_changed_moved_and_deleted(twins: Twins) -> None:
    twins.ask("create", "/memories/a.txt", file_text="\n".join(map(str, range(20))))
    twins.ask("create", "/memories/notes/b.txt", file_text="b")
    twins.ask("str_replace", "/memories/a.txt", old_str="0\n1\n", new_str="zero\r\n")
    twins.ask("str_replace", "/memories/a.txt", old_str="18\n", new_str="")
    twins.ask("str_replace", "/memories/notes/b.txt", old_str="b", new_str="")
    twins.ask("str_replace", "/memories/notes/b.txt", old_str="", new_str="aaa")
    twins.ask("str_replace", "/memories/notes/b.txt", old_str="aa", new_str="c")
    for line, text in ((0, "first"), (3, "two\nlines\n\n"), (1, "")):
        twins.ask("insert", "/memories/a.txt", insert_line=line, insert_text=text)
    twins.ask("view", "/memories/a.txt")
    twins.ask("rename", "/memories/a.txt", new_path="/memories/notes/deep/a.txt")
    twins.ask("rename", "/memories/notes", new_path="/memories/old/notes")
    twins.compare_files()
    twins.ask("view", "/memories/old")
    twins.ask("delete", "/memories/old/notes/b.txt")
    twins.ask("delete", "/memories/old")
    assert twins.mine.clear_all_memory() == twins.theirs.clear_all_memory()
    twins.compare_files()


_PATHS = st.sampled_from(
    ["", "/a", "/b", "/dir", "/dir/a", "/dir/b", "/dir/sub/a", "/dir/sub", "/.dot/a", "/a/b", "/dir/../b", "/../c"]
).map(lambda path: f"/memories{path}")
_TEXTS = st.text("a\nb", max_size=6)
_commands = st.one_of(
    st.fixed_dictionaries({"command": st.just("view"), "path": _PATHS}),
    st.fixed_dictionaries({"command": st.just("create"), "path": _PATHS, "file_text": _TEXTS}),
    st.fixed_dictionaries({"command": st.just("create"), "path": _PATHS, "file_text": _TEXTS}),
    st.fixed_dictionaries({"command": st.just("str_replace"), "path": _PATHS, "old_str": _TEXTS, "new_str": _TEXTS}),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "path": _PATHS, "insert_line": st.integers(-1, 4), "insert_text": _TEXTS}
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": _PATHS}),
    st.fixed_dictionaries({"command": st.just("rename"), "path": _PATHS, "new_path": _PATHS}),
)


@on_sqlite
@settings(max_examples=25)
@given(commands=st.lists(_commands, min_size=5, max_size=20))
def test_any_commands_do_what_the_kit_s_own_tool_does(
    holdfast: Holdfast,
    new_user: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
    commands: list[dict[str, Any]],
) -> None:
    twins = Twins(HoldfastMemoryTool(holdfast.manager(new_user(), "helper")), tmp_path_factory.mktemp("files"))
    for command in commands:
        twins.ask(**command)
        twins.compare_files()


@on_sqlite
def test_what_no_text_can_hold_is_refused_in_words(tool: HoldfastMemoryTool) -> None:
    assert "lone surrogate" in ask(tool, "create", "/memories/a", file_text="half \ud83d")
    assert "NUL" in ask(tool, "create", "/memories/a", file_text="a\x00b")
    assert "control" in ask(tool, "create", "/memories/a\nb", file_text="a")
    assert "give file_text" in ask(tool, "create", "/memories/a")
    assert "too large" in ask(tool, "create", "/memories/a", file_text="x" * 9_000_000)
    assert tool.files.list("/memories") == {}


def test_edits_at_once_lose_nothing(tool: HoldfastMemoryTool) -> None:
    ask(tool, "create", "/memories/a", file_text="")
    insert = lambda number: ask(tool, "insert", "/memories/a", insert_line=0, insert_text=f"line {number}")  # noqa: E731
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(insert, range(12)))
        made = list(pool.map(lambda _: ask(tool, "create", "/memories/b", file_text="b"), range(6)))
    done = [number for number, answer in enumerate(answers) if answer == "The file /memories/a has been edited."]
    assert all(answer.startswith("ERROR ") for number, answer in enumerate(answers) if number not in done)
    text = ask(tool, "view", "/memories/a")
    assert sorted(re.findall(r"line \d+", text)) == sorted(f"line {number}" for number in done)
    assert made.count("File created successfully at: /memories/b") == 1


@on_sqlite
def test_an_async_client_is_given_the_same_tool(tool: HoldfastMemoryTool) -> None:
    other = HoldfastAsyncMemoryTool(tool)

    async def program() -> list[Any]:
        made = await other.call({"command": "create", "path": "/memories/a", "file_text": "one"})
        with pytest.raises(ToolError, match="already exists"):
            await other.call({"command": "create", "path": "/memories/a", "file_text": "two"})
        return [made, await other.call({"command": "view", "path": "/memories/a"}), await other.clear_all_memory()]

    made, shown, cleared = asyncio.run(program())
    assert (made, cleared) == ("File created successfully at: /memories/a", "All memory cleared")
    assert shown.endswith("     1\tone")
    assert other.to_dict() == tool.to_dict()
    assert tool.files.list("/memories") == {}


def test_a_file_in_cold_storage_is_read_listed_and_changed(
    tool: HoldfastMemoryTool, holdfast: Holdfast, clock: FakeClock
) -> None:
    ask(tool, "create", "/memories/notes/tea.md", file_text="green tea\n" * 300)
    clock.advance(days=181)
    assert holdfast.sweep(confirm=True).counts["archive"] >= 1
    assert "2.9K\t/memories/notes/tea.md" in ask(tool, "view")
    assert "   300\tgreen tea" in ask(tool, "view", "/memories/notes/tea.md")
    assert "already exists" in ask(tool, "create", "/memories/notes", file_text="x")
    assert ask(tool, "insert", "/memories/notes/tea.md", insert_line=0, insert_text="black").endswith("edited.")
    assert "     1\tblack" in ask(tool, "view", "/memories/notes/tea.md")
    assert ask(tool, "delete", "/memories/notes").startswith("Successfully")


def test_a_hold_keeps_files_and_the_model_is_told(tool: HoldfastMemoryTool, holdfast: Holdfast, user_id: str) -> None:
    ask(tool, "create", "/memories/notes/a", file_text="a")
    ask(tool, "create", "/memories/notes/b", file_text="b")
    (kept,) = [one for one in tool.files.memory.structured.find("memories") if one["key"] == "/memories/notes/b"]
    hold = holdfast.holds.add(memory_id=kept["memory_id"], reason="litigation", author="counsel")
    assert "hold" in ask(tool, "delete", "/memories/notes/b")
    assert "hold" in ask(tool, "delete", "/memories/notes")
    assert "hold" in ask(tool, "rename", "/memories/notes", new_path="/memories/old")
    assert set(tool.files.list("/memories")) == {"/memories/notes/a", "/memories/notes/b"}, "all of it or nothing"
    with pytest.raises(HeldError):
        holdfast.erase_user(user_id)

    holdfast.holds.release(hold.id)
    assert ask(tool, "delete", "/memories/notes").startswith("Successfully")
    assert holdfast.recycle.restore(user_id=user_id) == 2
    assert "b" in ask(tool, "view", "/memories/notes/b")


def test_erasing_the_user_and_exporting_reach_the_files(
    tool: HoldfastMemoryTool, holdfast: Holdfast, user_id: str, export: Callable[[str], str]
) -> None:
    ask(tool, "create", "/memories/sweets.md", file_text="Marzipan")
    ask(tool, "create", "/memories/gone.md", file_text="Nougat")
    ask(tool, "delete", "/memories/gone.md")
    twin = HoldfastMemoryTool(holdfast.manager(f"{user_id} and sons", "helper"))
    ask(twin, "create", "/memories/sweets.md", file_text="Fudge")
    assert tool.files.memory.retrieve("marzipan", "structured")[0]["metadata"]["key"] == "/memories/sweets.md"

    documents = [json.loads(line) for line in export(user_id).splitlines()]
    texts = [one["metadata"]["document"]["text"] for one in documents if one.get("memory_type") == "structured"]
    assert sorted(texts) == ["Marzipan", "Nougat"]

    assert holdfast.erase_user(user_id).certificate is not None
    assert ask(tool, "view", "/memories/sweets.md").startswith("ERROR")
    assert "Fudge" in ask(twin, "view", "/memories/sweets.md")
