"""Anthropic's memory tool: the files that Claude writes are kept, held, exported and erased as memories are.

client.beta.messages.run_tools(tools=[HoldfastMemoryTool(holdfast.manager("alice", "helper"))], …)
"""

from __future__ import annotations

import posixpath
import re
from asyncio import to_thread
from collections import Counter
from typing import Any, Final

from holdfast.core.errors import HoldfastError, StaleError
from holdfast.core.records import MemoryType
from holdfast.installation import missing_extra
from holdfast.manager import Memory
from holdfast.memory.structured import DocumentPut

try:
    from anthropic.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types import beta
except ImportError:
    raise missing_extra("a memory tool for Anthropic's client", "anthropic") from None

_ROOT: Final = "/memories"
#: Paths are resolved below this folder, so that one that leads out of the root is seen to do so.
_BASE: Final = "/holdfast"
_MAX_LINES: Final = 999_999
_MAX_FILES: Final = 100_000
_MISSING: Final = "The path {} does not exist. Please provide a valid path."


class HoldfastMemoryTool(BetaAbstractMemoryTool):
    """The memory tool of a user and an agent. A file is a structured document, which ``retrieve`` finds too.

    It answers as the tool of the kit does that keeps files in a folder. Differences: a folder is there while a file is
    in it, and its size is that of its files. What is deleted goes to the recycle bin. What a hold keeps, what another
    has changed meanwhile, and what cannot be stored is refused with a ``ToolError``, which the model reads.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        collection: str = "memories",
        cache_control: beta.BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._memory, self._collection = memory, collection

    def execute(self, command: beta.BetaMemoryTool20250818Command) -> Any:
        """Carry out a command."""
        try:
            return super().execute(command)
        except HoldfastError as problem:
            raise ToolError(str(problem)) from problem

    def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """A file with line numbers, or what is in a folder, two levels deep."""
        path, files = self._find(command.path)
        if path not in files:
            return _list_folder(command.path, path, files)
        _, text, _ = self._read(command.path)
        if text.count("\n") >= _MAX_LINES:
            raise ToolError(f"File {command.path} exceeds maximum line limit of {_MAX_LINES:,} lines.")
        first, last = command.view_range if len(command.view_range or ()) == 2 else (1, -1)  # type: ignore[misc]
        numbered = _number(text, max(1, first), None if last == -1 else last)
        return f"Here's the content of {command.path} with line numbers:\n{numbered}"

    def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """Make a file that is not there."""
        taken = f"File {command.path} already exists"
        try:
            self._put(self._find_room(command.path, taken), command.file_text, version=0)
        except StaleError:
            raise ToolError(taken) from None
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Put a text in the place of one that occurs once in a file."""
        old = command.old_str
        path, text, version = self._read(command.path)
        found = [text.count("\n", 0, match.start()) for match in re.finditer(f"(?={re.escape(old)})", text)]
        if not found:
            raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {command.path}.")
        if text.count(old) > 1:
            places = f"Multiple occurrences of old_str `{old}` in lines: {', '.join(str(line + 1) for line in found)}"
            raise ToolError(f"No replacement was performed. {places}. Please ensure it is unique")
        changed = text.replace(old, command.new_str)
        self._put(path, changed, version=version)
        what = "The memory file has been edited. Here is the snippet showing the change (with line numbers)"
        return f"{what}:\n{_number(changed, max(1, found[0] - 1), found[0] + 3)}"

    def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Put lines into a file, after the line of a number."""
        path, text, version = self._read(command.path)
        lines = text.removesuffix("\n").split("\n") if text else []
        if not 0 <= command.insert_line <= len(lines):
            within = f"It should be within the range [0, {len(lines)}]."
            raise ToolError(f"Invalid `insert_line` parameter: {command.insert_line}. {within}")
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        self._put(path, "\n".join(lines).removesuffix("\n") + "\n", version=version)
        return f"The file {command.path} has been edited."

    def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """Send a file, or a folder with all that is in it, to the recycle bin: all of it or nothing."""
        path, files = self._find(command.path, "The path {} does not exist")
        if path == _ROOT:
            raise ToolError(f"Cannot delete the {_ROOT} directory itself")
        self._memory.structured.put_many(list(map(self._draft, files)))
        return f"Successfully deleted {command.path}"

    def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """Give a file or a folder another path."""
        if _resolve(command.old_path) == _ROOT:
            raise ToolError(f"Cannot rename the {_ROOT} directory itself")
        new = self._find_room(command.new_path, f"The destination {command.new_path} already exists")
        old, files = self._find(command.old_path, "The path {} does not exist")
        if new.startswith(f"{old}/"):
            raise ToolError(f"Cannot move {command.old_path} into itself")
        puts: list[DocumentPut] = []
        for path, text, version in map(self._read, files):
            puts += [self._draft(new + path[len(old) :], text, version=0), self._draft(path, version=version)]
        self._memory.structured.put_many(puts)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear_all_memory(self) -> str:
        """Send all files to the recycle bin."""
        self._memory.structured.put_many(list(map(self._draft, self._files(_ROOT))))
        return "All memory cleared"

    def _files(self, path: str) -> dict[str, int]:
        """The file of a path, or all files of a folder, with their sizes."""
        where = {"collection": self._collection, "key": {"prefix": path}}
        found = self._memory.list_memories(MemoryType.STRUCTURED, where, limit=_MAX_FILES, include_archived=True)
        sizes = {one["metadata"]["key"]: one["metadata"]["bytes"] for one in found}
        return {name: sizes[name] for name in sorted(sizes) if f"{name}/".startswith(f"{path}/")}

    def _find(self, given: str, missing: str = _MISSING) -> tuple[str, dict[str, int]]:
        """A path that is there, and its files."""
        path = _resolve(given)
        files = self._files(path)
        if not files and path != _ROOT:
            raise ToolError(missing.format(given))
        return path, files

    def _find_room(self, given: str, taken: str) -> str:
        """A path that is not there, and that no file is above of."""
        path = above = _resolve(given)
        if path == _ROOT or self._files(path):
            raise ToolError(taken)
        while (above := posixpath.dirname(above)) != _ROOT:
            if self._memory.structured.read(self._collection, above) is not None:
                raise ToolError(f"The path {above} is a file; nothing can be in it")
        return path

    def _read(self, given: str) -> tuple[str, str, int]:
        """The path of a file, its text and its version."""
        path, files = self._find(given)
        file = self._memory.structured.read(self._collection, path) if path in files else None
        if file is None:
            raise ToolError(f"The path {given} is not a file.")
        return path, str((file["document"] or {})["text"]), file["version"]

    def _put(self, path: str, text: Any, *, version: int) -> None:
        if not isinstance(text, str):  # commands are not checked before they come here
            raise ToolError(f"The text of {path} is missing; give file_text")
        self._memory.structured.put_many([self._draft(path, text, version=version)])

    def _draft(self, path: str, text: str | None = None, *, version: int | None = None) -> DocumentPut:
        """What is to be at a path; without a text, nothing."""
        new: DocumentPut = {"collection": self._collection, "key": path, "document": None, "if_version": version}
        if text is not None:
            size = len(text.encode("utf-8", "replace"))
            new |= {"document": {"path": path, "text": text}, "metadata": {"bytes": size}}
        return new


class HoldfastAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same for ``AsyncAnthropic``: each command is carried out in a worker thread."""

    def __init__(self, tool: HoldfastMemoryTool) -> None:
        super().__init__(cache_control=tool._cache_control)
        self._tool = tool

    async def execute(self, command: beta.BetaMemoryTool20250818Command) -> Any:
        """Carry out a command."""
        return await to_thread(self._tool.execute, command)

    view = create = str_replace = insert = delete = rename = execute

    async def clear_all_memory(self) -> str:
        """Send all files to the recycle bin."""
        return await to_thread(self._tool.clear_all_memory)


def _resolve(path: str) -> str:
    """A path as it is kept, without `.` and `..`."""
    if not path.startswith(_ROOT):
        raise ToolError(f"Path must start with {_ROOT}, got: {path}")
    full = posixpath.normpath(f"{_BASE}{_ROOT}/{path[len(_ROOT) :]}")
    if not f"{full}/".startswith(f"{_BASE}{_ROOT}/"):
        raise ToolError(f"Path {path} would escape {_ROOT} directory")
    return full[len(_BASE) :]


def _list_folder(given: str, path: str, files: dict[str, int]) -> str:
    """The names in a folder, two levels deep, without hidden ones, each with its size."""
    sizes: Counter[tuple[tuple[str, ...], bool]] = Counter()
    for name, size in files.items():
        parts = tuple(name[len(path) + 1 :].split("/"))
        for depth in range(1, min(2, len(parts)) + 1):
            sizes[parts[:depth], depth < len(parts)] += size
    lines = [f"{_show_size(sum(files.values()))}\t{given}"]
    for (parts, is_folder), size in sorted(sizes.items()):
        if not any(part.startswith(".") for part in parts):
            lines.append(f"{_show_size(size)}\t{given}/{'/'.join(parts)}{'/' if is_folder else ''}")
    listing = "\n".join(lines)
    return f"Here're the files and directories up to 2 levels deep in {given}, excluding hidden items:\n{listing}"


def _number(text: str, first: int, last: int | None) -> str:
    """Lines of a text with their numbers."""
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(text.split("\n")[first - 1 : last], first))


def _show_size(count: int) -> str:
    power = min(max(count.bit_length() - 1, 0) // 10, 3)
    size = count / 1024**power
    return f"{size:.{0 if size.is_integer() else 1}f}{'BKMG'[power]}"
