"""Anthropic's memory tool: the files that Claude writes are kept, held, exported and erased as memories are.

client.beta.messages.run_tools(tools=[HoldfastMemoryTool(holdfast.manager("alice", "helper"))], …)
"""

from __future__ import annotations

from asyncio import to_thread
from collections import Counter
from typing import Any, Final

from holdfast.core.errors import HoldfastError
from holdfast.installation import missing_extra
from holdfast.integrations.text_files import TextFiles
from holdfast.manager import Memory

try:
    from anthropic.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types import beta
except ImportError:
    raise missing_extra("a memory tool for Anthropic's client", "anthropic") from None

_ROOT: Final = "/memories"
_MAX_LINES: Final = 999_999


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
        self.files = TextFiles(memory, root=_ROOT, collection=collection)

    def execute(self, command: beta.BetaMemoryTool20250818Command) -> Any:
        """Carry out a command."""
        try:
            return super().execute(command)
        except HoldfastError as problem:
            raise ToolError(str(problem)) from problem

    def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """A file with line numbers, or what is in a folder, two levels deep."""
        path, files = self.files.find(command.path)
        if path not in files:
            return _list_folder(command.path, path, files)
        text = self.files.read(command.path).text
        if text.count("\n") >= _MAX_LINES:
            raise ToolError(f"File {command.path} exceeds maximum line limit of {_MAX_LINES:,} lines.")
        first, last = command.view_range if len(command.view_range or ()) == 2 else (1, -1)  # type: ignore[misc]
        numbered = _number(text, max(1, first), None if last == -1 else last)
        return f"Here's the content of {command.path} with line numbers:\n{numbered}"

    def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """Make a file that is not there."""
        self.files.create(command.path, command.file_text)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Put a text in the place of one that occurs once in a file."""
        changed, line = self.files.replace(command.path, command.old_str, command.new_str)
        what = "The memory file has been edited. Here is the snippet showing the change (with line numbers)"
        return f"{what}:\n{_number(changed, max(1, line - 1), line + 3)}"

    def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Put lines into a file, after the line of a number."""
        self.files.insert(command.path, command.insert_line, command.insert_text)
        return f"The file {command.path} has been edited."

    def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """Send a file, or a folder with all that is in it, to the recycle bin: all of it or nothing."""
        self.files.delete(command.path)
        return f"Successfully deleted {command.path}"

    def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """Give a file or a folder another path."""
        self.files.rename(command.old_path, command.new_path)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear_all_memory(self) -> str:
        """Send all files to the recycle bin."""
        self.files.clear()
        return "All memory cleared"


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
