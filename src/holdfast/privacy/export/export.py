"""Exports: everything that is held on a person, as one object or as a ZIP."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from holdfast.core.content import check_id
from holdfast.core.errors import InvalidInputError, StaleError, StoreFullError, StoreUnavailableError, quote
from holdfast.core.ids import name_in_logs
from holdfast.core.times import iso
from holdfast.core.types import MemoryType
from holdfast.privacy.export.archive import Contents, ExportWriter, Progress
from holdfast.privacy.export.files import check_target, write_whole
from holdfast.privacy.export.locations import PLACES, Place
from holdfast.privacy.export.readers import Person, Sources, memories
from holdfast.privacy.export.rows import Line

_log = logging.getLogger("holdfast.export")
#: Where an export goes: a path, or something open that takes bytes.
Target = str | os.PathLike[str] | IO[bytes]
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Exports:
    """Gathers what is held on people, of any tenant of a store."""

    def __init__(self, sources: Sources, now: Callable[[], int]) -> None:
        self._sources = sources
        self._now = now

    def export(
        self, tenant: str, user_id: str, to: Target | None = None, *, progress: Progress = lambda _count: None
    ) -> dict[str, Any]:
        """Everything that is held on a user: ``user_id``, ``export_date``, ``memories`` by kind, and the rest by place.

        With ``to`` (a path, or a binary stream) it is written there as a ZIP, in bounded memory, and the answer has
        counts where it would have lists. A path gets the whole file or none. ``StaleError``, and no file, if the user
        is erased meanwhile; an object store that does not answer is its own error.
        """
        now = self._now()
        person = Person(self._sources, tenant, check_id(user_id, "user_id"))
        begun = self._sources.reader.alias(person.subject)

        def check() -> str | None:
            ended = self._sources.reader.alias(person.subject)
            if begun not in (None, ended):
                raise StaleError(f"user {user_id!r} was erased while being exported; nothing of it was kept")
            return ended

        answer: dict[str, Any] = {"user_id": user_id, "export_date": iso(now)}
        if to is None:
            found = {place.name: list(_listed(place, person, progress)) for place in PLACES}
            _log_exported(check(), {name: len(lines) for name, lines in found.items()})
            return answer | _by_kind(found)

        def write(target: IO[bytes], scratch: Path | None) -> Contents:
            with ExportWriter(target, at=now, scratch=scratch) as writer:
                return writer.write(person, answer["export_date"], check, progress)

        contents = _written(to, write)
        _log_exported(begun, contents.counts)
        file = os.fspath(to) if isinstance(to, str | os.PathLike) else None
        return answer | _by_kind(contents.counts) | {"incomplete": contents.incomplete, "file": file}

    def of_kind(self, tenant: str, user_id: str, kind: MemoryType) -> list[Line]:
        """Everything that is held on a user of one durable kind, in whatever state."""
        self._now()
        return list(memories(Person(self._sources, tenant, check_id(user_id, "user_id")), kind))

    def size(self, tenant: str, user_id: str) -> int:
        """About how many lines an export has: what ``progress`` comes to."""
        return self._sources.reader.size(f"{tenant}/{check_id(user_id, 'user_id')}")


def _log_exported(alias: str | None, counts: Mapping[str, int]) -> None:
    found = {name: count for name, count in counts.items() if count}
    _log.info("exported what is held on user %s: %s", name_in_logs(alias), found or "nothing")


def _by_kind(found: dict[str, Any]) -> dict[str, Any]:
    kinds = {place.name for place in PLACES if place.is_memory}
    return {"memories": {kind.value: found[kind.value] for kind in MemoryType}} | {
        name: value for name, value in found.items() if name not in kinds
    }


def _listed(place: Place, person: Person, progress: Progress) -> Iterator[Line]:
    """What lies in a place; a conversation has its messages in it."""
    for file in place.files(person):
        if place.name == "conversations":
            head, *messages = file.lines
            yield {**head, "messages": messages}
            progress(1 + len(messages))
        else:
            for line in file.lines:
                yield line
                progress(1)


def _written(to: Target, write: Callable[[IO[bytes], Path | None], Contents]) -> Contents:
    if not isinstance(to, str | os.PathLike):
        if not hasattr(to, "write"):
            raise InvalidInputError(f"to must be a path or a binary stream to write the ZIP to, not {quote(to)}")
        with _explained("the stream"):
            return write(to, None)
    path = check_target(Path(to), "export.zip")
    with _explained(str(path)):
        return write_whole(path, lambda file: write(file, path.parent))


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """What goes wrong with writing, in our words; who has closed a pipe has seen enough, and is told so as ever."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        error = StoreFullError if problem.errno in _FULL else StoreUnavailableError
        raise error(
            f"cannot write the export to {where}: {problem.strerror}; no file was left; check its permissions and space"
        ) from problem
