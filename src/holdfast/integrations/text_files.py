"""A folder of text files in structured memory, for tools with which a model keeps notes.

A file is a document, which ``retrieve`` finds too; a folder is there while a file is in it. What is deleted goes to the
recycle bin. Errors say what a model can do about them, in the words of the tools that models have been taught to use.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from holdfast.core.errors import ConflictError, InvalidInputError, NotFoundError, StaleError
from holdfast.core.records import MemoryType
from holdfast.manager import Memory
from holdfast.memory.structured import DocumentPut

#: Paths are resolved below this folder, so that one that leads out of the root is seen to do so.
_BASE: Final = "/holdfast"
_MAX_FILES: Final = 100_000
_MISSING: Final = "The path {} does not exist. Please provide a valid path."


class TextFile(NamedTuple):
    """A file, as it was read."""

    path: str
    text: str
    version: int


class TextFiles:
    """The files of a user, below a root. Each change is one transaction; it is refused, with ``StaleError``, where
    another has changed the file since it was read.
    """

    def __init__(self, memory: Memory, *, root: str, collection: str) -> None:
        self.memory, self.root, self._collection = memory, root, collection

    def list(self, path: str) -> dict[str, int]:
        """The file of a resolved path, or all files of a folder, with their sizes in bytes."""
        where = {"collection": self._collection, "key": {"prefix": path}}
        found = self.memory.list_memories(MemoryType.STRUCTURED, where, limit=_MAX_FILES, include_archived=True)
        sizes = {one["metadata"]["key"]: one["metadata"]["bytes"] for one in found}
        return {name: sizes[name] for name in sorted(sizes) if f"{name}/".startswith(f"{path}/")}

    def find(self, given: str, missing: str = _MISSING) -> tuple[str, dict[str, int]]:
        """A path that is there, resolved, and its files."""
        path = self._resolve(given)
        files = self.list(path)
        if not files and path != self.root:
            raise NotFoundError(missing.format(given))
        return path, files

    def read(self, given: str) -> TextFile:
        """The file of a path."""
        path, files = self.find(given)
        file = self.memory.structured.read(self._collection, path) if path in files else None
        if file is None:
            raise ConflictError(f"The path {given} is not a file.")
        return TextFile(path, str((file["document"] or {})["text"]), file["version"])

    def create(self, given: str, text: Any) -> None:
        """Make a file that is not there."""
        taken = f"File {given} already exists"
        path = self._find_room(given, taken)
        if not isinstance(text, str):
            raise InvalidInputError(f"The text of {path} is missing; give file_text")
        try:
            self._put([self._draft(path, text, version=0)])
        except StaleError:
            raise ConflictError(taken) from None

    def replace(self, given: str, old_str: str, new_str: str) -> tuple[str, int]:
        """Put a text in the place of one that occurs once in a file; the text of the file, and the line of the change,
        counted from 0.
        """
        file = self.read(given)
        found = [file.text.count("\n", 0, at.start()) for at in re.finditer(f"(?={re.escape(old_str)})", file.text)]
        if not found:
            raise InvalidInputError(
                f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {given}."
            )
        if file.text.count(old_str) > 1:
            places = f"occurrences of old_str `{old_str}` in lines: {', '.join(str(line + 1) for line in found)}"
            raise InvalidInputError(f"No replacement was performed. Multiple {places}. Please ensure it is unique")
        changed = file.text.replace(old_str, new_str)
        self._put([self._draft(file.path, changed, version=file.version)])
        return changed, found[0]

    def insert(self, given: str, insert_line: int, insert_text: str) -> None:
        """Put lines into a file, after the line of a number."""
        file = self.read(given)
        lines = file.text.removesuffix("\n").split("\n") if file.text else []
        if not 0 <= insert_line <= len(lines):
            within = f"It should be within the range [0, {len(lines)}]."
            raise InvalidInputError(f"Invalid `insert_line` parameter: {insert_line}. {within}")
        lines.insert(insert_line, insert_text.rstrip("\n"))
        self._put([self._draft(file.path, "\n".join(lines).removesuffix("\n") + "\n", version=file.version)])

    def delete(self, given: str) -> None:
        """Send a file, or a folder with all that is in it, to the recycle bin: all of it or nothing."""
        path, files = self.find(given, "The path {} does not exist")
        if path == self.root:
            raise InvalidInputError(f"Cannot delete the {self.root} directory itself")
        self._put(map(self._draft, files))

    def rename(self, old_path: str, new_path: str) -> None:
        """Give a file, or a folder with all that is in it, another path: all of it or nothing."""
        if self._resolve(old_path) == self.root:
            raise InvalidInputError(f"Cannot rename the {self.root} directory itself")
        new = self._find_room(new_path, f"The destination {new_path} already exists")
        old, files = self.find(old_path, "The path {} does not exist")
        if new.startswith(f"{old}/"):
            raise InvalidInputError(f"Cannot move {old_path} into itself")
        puts: list[DocumentPut] = []
        for path, text, version in map(self.read, files):
            puts += [self._draft(new + path[len(old) :], text, version=0), self._draft(path, version=version)]
        self._put(puts)

    def clear(self) -> None:
        """Send all files to the recycle bin."""
        self._put(map(self._draft, self.list(self.root)))

    def _resolve(self, path: str) -> str:
        """A path as it is kept, without `.` and `..`."""
        if not path.startswith(self.root):
            raise InvalidInputError(f"Path must start with {self.root}, got: {path}")
        full = posixpath.normpath(f"{_BASE}{self.root}/{path[len(self.root) :]}")
        if not f"{full}/".startswith(f"{_BASE}{self.root}/"):
            raise InvalidInputError(f"Path {path} would escape {self.root} directory")
        return full[len(_BASE) :]

    def _find_room(self, given: str, taken: str) -> str:
        """A path that is not there, and that no file is above of."""
        path = above = self._resolve(given)
        if path == self.root or self.list(path):
            raise ConflictError(taken)
        while (above := posixpath.dirname(above)) != self.root:
            if self.memory.structured.read(self._collection, above) is not None:
                raise ConflictError(f"The path {above} is a file; nothing can be in it")
        return path

    def _put(self, puts: Iterable[DocumentPut]) -> None:
        self.memory.structured.put_many([*puts])

    def _draft(self, path: str, text: str | None = None, *, version: int | None = None) -> DocumentPut:
        """What is to be at a path; without a text, nothing."""
        new: DocumentPut = {"collection": self._collection, "key": path, "document": None, "if_version": version}
        if text is not None:
            size = len(text.encode("utf-8", "replace"))
            new |= {"document": {"path": path, "text": text}, "metadata": {"bytes": size}}
        return new
