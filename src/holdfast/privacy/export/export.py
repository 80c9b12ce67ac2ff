"""Exports: everything that is held on a person, as one object or as a ZIP."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from holdfast.core.errors import (
    InvalidInputError,
    NotFoundError,
    StaleError,
    StoreFullError,
    StoreUnavailableError,
    quote,
)
from holdfast.core.records import MemoryType, Subject
from holdfast.core.values import check_id, iso, name_in_logs
from holdfast.privacy.export.archive import Contents, ExportWriter, Progress
from holdfast.privacy.export.readers import PARTS, Part, Person, Sources, read_memories
from holdfast.privacy.export.rows import Line
from holdfast.storage.objects.disk import sync_folder

_T = TypeVar("_T")
_log = logging.getLogger("holdfast.export")
#: Where an export goes: a path, or something open that takes bytes.
Target = str | os.PathLike[str] | IO[bytes]
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Exports:
    """Exports what is held on users, of any tenant of a store."""

    def __init__(self, sources: Sources, now: Callable[[], int]) -> None:
        self._sources = sources
        self._now = now

    def export(
        self, tenant: str, user_id: str, to: Target | None = None, *, progress: Progress = lambda _count: None
    ) -> dict[str, Any]:
        """Everything that is held on a user: ``user_id``, ``export_date``, ``memories`` by kind, and the rest by part.

        With ``to`` (a path, or a binary stream) it is written there as a ZIP, in bounded memory, and the answer has
        counts where it would have lists. A path gets the whole file or none. ``NotFoundError``, and no file, if nothing
        is held on such a user; ``StaleError``, and no file, if the user is erased meanwhile.
        """
        now = self._now()
        person = Person(self._sources, tenant, check_id(user_id, "user_id"))
        if isinstance(to, str | os.PathLike):
            check_target(Path(to), "export.zip")
        elif to is not None and not hasattr(to, "write"):
            raise InvalidInputError(f"to must be a path or a binary stream to write the ZIP to, not {quote(to)}")
        begun = self._sources.reader.alias(person.subject)
        if begun is None and not any(True for part in PARTS for file in part.files(person) for _ in file.lines):
            raise NotFoundError(
                f"user {user_id!r} of tenant {tenant!r} does not exist, and nothing was written; list the users with: "
                "holdfast user list"
            )

        def check() -> str | None:
            ended = self._sources.reader.alias(person.subject)
            if begun not in (None, ended):
                raise StaleError(f"user {user_id!r} was erased while being exported; nothing of it was kept")
            return ended

        answer: dict[str, Any] = {"user_id": user_id, "export_date": iso(now)}
        if to is None:
            found = {part.name: list(_list_lines(part, person, progress)) for part in PARTS}
            _log_exported(check(), {name: len(lines) for name, lines in found.items()})
            return answer | _by_kind(found)

        def write(target: IO[bytes], scratch: Path | None) -> Contents:
            with ExportWriter(target, at=now, scratch=scratch) as writer:
                return writer.write(person, answer["export_date"], check, progress)

        contents = _write_to(to, write)
        _log_exported(begun, contents.counts)
        file = os.fspath(to) if isinstance(to, str | os.PathLike) else None
        return answer | _by_kind(contents.counts) | {"incomplete": contents.incomplete, "file": file}

    def of_kind(self, tenant: str, user_id: str, kind: MemoryType) -> list[Line]:
        """Everything that is held on a user of one durable kind, in whatever state."""
        self._now()
        return list(read_memories(Person(self._sources, tenant, check_id(user_id, "user_id")), kind))

    def size(self, tenant: str, user_id: str) -> int:
        """About how many lines an export has: what ``progress`` comes to."""
        return self._sources.reader.size(Subject.checked(tenant, user_id))


def _log_exported(alias: str | None, counts: Mapping[str, int]) -> None:
    found = {name: count for name, count in counts.items() if count}
    _log.info("exported what is held on user %s: %s", name_in_logs(alias), found or "nothing")


def _by_kind(found: dict[str, Any]) -> dict[str, Any]:
    kinds = {part.name for part in PARTS if part.is_memory}
    return {"memories": {kind.value: found[kind.value] for kind in MemoryType}} | {
        name: value for name, value in found.items() if name not in kinds
    }


def _list_lines(part: Part, person: Person, progress: Progress) -> Iterator[Line]:
    """The lines of a part; a conversation has its messages in it."""
    for file in part.files(person):
        if part.name == "conversations":
            head, *messages = file.lines
            yield {**head, "messages": messages}
            progress(1 + len(messages))
        else:
            for line in file.lines:
                yield line
                progress(1)


def _write_to(to: Target, write: Callable[[IO[bytes], Path | None], Contents]) -> Contents:
    if not isinstance(to, str | os.PathLike):
        with _translate_errors("the stream"):
            return write(to, None)
    path = check_target(Path(to), "export.zip")
    with _translate_errors(str(path)):
        return write_whole(path, lambda file: write(file, path.parent))


@contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Let an error of the file system say where it happened, and what to do. A closed pipe stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        error = StoreFullError if problem.errno in _FULL else StoreUnavailableError
        raise error(
            f"cannot write the export to {where}: {problem.strerror}; no file was left; check its permissions and space"
        ) from problem


def check_target(path: Path, example: str) -> Path:
    """The file that a path leads to, through links, which stay. ``InvalidInputError`` for what is no place for a file:
    a folder, a file in a folder that is not there, or a device, a pipe or a socket, which a file would replace.
    """
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise InvalidInputError(f"{path} is a folder; name the file to write, such as {path / example}")
    if not real.parent.is_dir():
        raise InvalidInputError(f"there is no folder {real.parent} to write {real.name} to; make it first")
    if os.path.lexists(real) and not real.is_file():
        raise InvalidInputError(f"{path} is a device, a pipe or a socket, which a file would replace; name a file")
    return real


def write_whole(path: Path, write: Callable[[IO[bytes]], _T]) -> _T:
    """Write beside a path, then take its place: the whole file is there, durably, or nothing has changed."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            written = write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return written
