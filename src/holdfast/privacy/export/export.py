"""Exports: everything that is held on a person, as one object or as a ZIP.

The ZIP has files for programs and a page for people. It is written as it is read, in bounded memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import IO, Any, Final, NamedTuple, cast

from holdfast.core import errors
from holdfast.core.errors import quote
from holdfast.core.records import MemoryType, Subject
from holdfast.core.values import check_id, iso, name_in_logs, to_json, when
from holdfast.privacy.export.readers import (
    LEFT_OUT,
    PARTS,
    File,
    Line,
    Part,
    Person,
    Sources,
    line_schema,
    read_memories,
)
from holdfast.results.lifecycle import ExportResult
from holdfast.storage.objects import disk

_log = logging.getLogger("holdfast.export")
#: Where an export goes: a path, or something open that takes bytes.
Target = str | os.PathLike[str] | IO[bytes]
Progress = Callable[[int], None]
FORMAT: Final = "holdfast-export"
VERSION: Final = 1
CONSISTENCY: Final = (
    "Everything that was held from the beginning of the export to its end is in it exactly once. Each thing is as it "
    "was at one moment of that time, not all things at the same moment."
)
#: Parts that have a file for each thing, and what the lines after its first are called.
_NESTED: Final = {"conversations": "messages", "threads": "rows"}
#: Progress is shown every so many lines.
_STRIDE: Final = 100
_CHUNK: Final = 1 << 16
#: The first moment that a ZIP can have.
_EARLIEST: Final = 315_532_800_000_000


class Exports:
    """Exports what is held on users, of any tenant of a store."""

    def __init__(self, sources: Sources, now: Callable[[], int]) -> None:
        self._sources = sources
        self._now = now

    def export(
        self, tenant: str, user_id: str, to: Target | None = None, *, progress: Progress = lambda _count: None
    ) -> ExportResult:
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
            raise errors.InvalidInputError(f"to must be a path or a binary stream to write the ZIP to, not {quote(to)}")
        begun, check = self._begin(person)
        answer: dict[str, Any] = {"user_id": user_id, "export_date": iso(now)}
        if to is None:
            found: Mapping[str, Any] = {part.name: list(_list_lines(part, person, progress)) for part in PARTS}
            counts = {name: len(lines) for name, lines in found.items()}
            check()
        else:

            def write(target: IO[bytes], scratch: Path | None) -> Contents:
                return ExportWriter(target, person, now).write(scratch, check, progress)

            found, incomplete = _write_to(to, write)
            counts = dict(found)
            answer |= {"incomplete": incomplete, "file": os.fspath(to) if isinstance(to, str | os.PathLike) else None}
        held = {name: count for name, count in counts.items() if count}
        _log.info("exported what is held on user %s: %s", name_in_logs(begun), held or "nothing")
        memories = {kind.value: found[kind.value] for kind in MemoryType}
        rest = {name: value for name, value in found.items() if name not in memories}
        return cast("ExportResult", answer | {"memories": memories} | rest)

    def lines(self, tenant: str, user_id: str) -> Iterator[Line]:
        """The same as ``export`` without ``to``, one thing after the other while it is read."""
        self._now()
        person = Person(self._sources, tenant, check_id(user_id, "user_id"))
        _, check = self._begin(person)
        for part in PARTS:
            yield from _list_lines(part, person, lambda _count: None)
        check()

    def _begin(self, person: Person) -> tuple[str | None, Callable[[], str | None]]:
        """The pseudonym of the user who is exported, and what gives it again, or raises if the user was erased."""
        begun = self._sources.reader.alias(person.subject)
        if begun is None and not any(True for part in PARTS for file in part.files(person) for _ in file.lines):
            raise errors.NotFoundError(
                f"user {person.user_id!r} of tenant {person.tenant!r} does not exist, and nothing was written; list "
                "the users with: holdfast user list"
            )

        def check() -> str | None:
            ended = self._sources.reader.alias(person.subject)
            if begun not in (None, ended):
                raise errors.StaleError(
                    f"user {person.user_id!r} was erased while being exported; nothing of it was kept"
                )
            return ended

        return begun, check

    def of_kind(self, tenant: str, user_id: str, kind: MemoryType) -> list[Line]:
        """Everything that is held on a user of one durable kind, in whatever state."""
        self._now()
        return list(read_memories(Person(self._sources, tenant, check_id(user_id, "user_id")), kind))

    def size(self, tenant: str, user_id: str) -> int:
        """About how many lines an export has: what ``progress`` comes to."""
        return self._sources.reader.size(Subject.check(tenant, user_id))


def _list_lines(part: Part, person: Person, progress: Progress) -> Iterator[Line]:
    """The lines of a part; a conversation has its messages in it, and a thread its rows."""
    for file in part.files(person):
        if part.name in _NESTED:
            head, *lines = file.lines
            yield {**head, _NESTED[part.name]: lines}
            progress(1 + len(lines))
        else:
            for line in file.lines:
                yield line
                progress(1)


# --- files ------------------------------------------------------------------------------------------------------------


class Contents(NamedTuple):
    """What was written: how many lines of each part, and how many memories are incomplete."""

    counts: dict[str, int]
    incomplete: int


def check_target(path: Path, example: str) -> Path:
    """The file that a path leads to, through links, which stay. ``InvalidInputError`` for what is no place for a file:
    a folder, a file in a folder that is not there, or a device, a pipe or a socket, which a file would replace.
    """
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise errors.InvalidInputError(f"{path} is a folder; name the file to write, such as {path / example}")
    if not real.parent.is_dir():
        raise errors.InvalidInputError(f"there is no folder {real.parent} to write {real.name} to; make it first")
    if os.path.lexists(real) and not real.is_file():
        raise errors.InvalidInputError(
            f"{path} is a device, a pipe or a socket, which a file would replace; name a file"
        )
    return real


def _write_to(to: Target, write: Callable[[IO[bytes], Path | None], Contents]) -> Contents:
    """Write to a stream; or beside a path, and then take its place: the whole file is there, durably, or nothing has
    changed.
    """
    if not isinstance(to, str | os.PathLike):
        with _translate_errors("the stream"):
            return write(to, None)
    path = check_target(Path(to), "export.zip")
    draft = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.part")
    with _translate_errors(str(path)):
        try:
            with disk.new_file(draft) as file:
                written = write(file, path.parent)
                disk.sync_file(file)
                disk.name_file(file, draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        disk.sync_folder(path.parent)
    return written


@contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Let an error of the file system say where it happened, and what to do. A closed pipe stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        error = errors.StoreFullError if problem.errno in disk.NO_ROOM else errors.StoreUnavailableError
        raise error(
            f"cannot write the export to {where}: {problem.strerror}; no file was left; check its permissions and space"
        ) from problem


@dataclass
class ExportWriter:
    """Writes a ZIP: the files of each part, then the page of them all, the schema and the manifest."""

    target: IO[bytes]
    person: Person
    now: int
    files: list[dict[str, Any]] = field(default_factory=list)
    incomplete: int = 0

    def write(self, scratch: Path | None, check: Callable[[], str | None], progress: Progress) -> Contents:
        """Write everything that is held on a user. At the end ``check`` gives the pseudonym, or raises.

        ``scratch`` is the folder for the page, in a file without a name, while it is written.
        """
        self._zip = zipfile.ZipFile(self.target, "w", zipfile.ZIP_DEFLATED)
        try:
            with tempfile.TemporaryFile(dir=scratch) as self._page:
                counts = self._write_all(check, progress)
        except BaseException:
            self._zip.fp = None  # so the ZIP has no end, and nobody takes it for whole
            raise
        self._zip.close()
        return Contents(counts, self.incomplete)

    def _write_all(self, check: Callable[[], str | None], progress: Progress) -> dict[str, int]:
        counts = {part.name: self._write_part(part, progress) for part in PARTS}
        about = {"user_id": self.person.user_id, "export_date": iso(self.now), "pseudonym": check()}
        with self._entry("index.html", sum(counts.values())) as write:
            write(_page_head(about, counts))
            self._page.seek(0)
            while chunk := self._page.read(_CHUNK):
                write(chunk)
            write(b"</body></html>\n")
        with self._entry("schema.json", None) as write:
            write(_pretty(line_schema()))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            **about,
            "consistency": CONSISTENCY,
            "counts": counts,
            "incomplete": self.incomplete,
            "left_out": dict(LEFT_OUT),
            "files": list(self.files),
        }
        with self._entry("manifest.json", None) as write:
            write(_pretty(manifest))
        return counts

    def _write_part(self, part: Part, progress: Progress) -> int:
        self._page.write(_bytes(f'<h2 id="{part.name}">{escape(part.title)}</h2>\n'))
        written = [self._write_file(file, progress) for file in part.files(self.person)]
        if not sum(written):
            self._page.write(b"<p>Nothing.</p>\n")
        return len(written) if part.name in _NESTED else sum(written)

    def _write_file(self, file: File, progress: Progress) -> int:
        is_list, count = file.name.endswith(".json"), 0
        with self._entry(file.name, 0) as write:
            write(b"[" if is_list else b"")
            for count, line in enumerate(file.lines, 1):
                write(b",\n" if is_list and count > 1 else b"")
                write(_encode(line) + (b"" if is_list else b"\n"))
                self._page.write(_page_article(line))
                self.incomplete += line["type"] == "memory" and line["note"] is not None
                if count % _STRIDE == 0:
                    progress(_STRIDE)
            write(b"]\n" if is_list else b"")
            self.files[-1]["records"] = count
        progress(count % _STRIDE)
        return count

    @contextmanager
    def _entry(self, name: str, records: int | None) -> Iterator[Callable[[bytes], object]]:
        """A file of the ZIP, and the manifest's line for it."""
        info = zipfile.ZipInfo(name, when(max(self.now, _EARLIEST)).timetuple()[:6])
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o600 << 16
        about = {"name": name} | ({} if records is None else {"records": records})
        self.files.append(about)
        digest, size = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as entry:

            def write(data: bytes) -> None:
                nonlocal size
                digest.update(data)
                size += len(data)
                entry.write(data)

            yield write
        about |= {"bytes": size, "sha256": digest.hexdigest()}


def _encode(line: Line) -> bytes:
    """A line as JSON, without its end."""
    try:
        return to_json(line).encode()
    except UnicodeEncodeError:  # half of a surrogate pair is JSON as an escape, but not UTF-8
        return json.dumps(line, allow_nan=False, separators=(",", ":"), default=dict).encode()


def _pretty(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode(errors="backslashreplace") + b"\n"


# --- the page for people: plain HTML that loads nothing; everything on it is escaped ----------------------------------

#: The text of a line is the first of these fields that it has.
_TEXTS: Final = ("content", "summary")
#: A value that is shorter as JSON is shown on one line.
_SHORT: Final = 100


def _page_head(about: Mapping[str, object], counts: Mapping[str, int]) -> bytes:
    """The beginning of the page, with how much is in each section."""
    template = Template(resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    rows = [
        f'<tr><td><a href="#{part.name}">{escape(part.title)}</a></td><td>{counts[part.name]:,}</td></tr>\n'
        for part in PARTS
    ]
    safe = {name: escape(str(value)) for name, value in about.items()}
    return _bytes(template.substitute(safe, counts="".join(rows)))


def _page_article(line: Line) -> bytes:
    """One thing that is held."""
    said = next((name for name in _TEXTS if line.get(name)), None)
    about = "".join(
        f"<dt>{_label(name)}</dt><dd>{escape(_to_text(value))}</dd>"
        for name, value in line.items()
        if name not in ("type", said) and value not in (None, {}, "")
    )
    words = "" if said is None else f'<p class="said">{escape(line[said])}</p>'
    return _bytes(f'<article class="{escape(line["type"])}">{words}<dl>{about}</dl></article>\n')


@cache
def _label(name: str) -> str:
    return escape(name.replace("_", " "))


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = to_json(value)
    return text if len(text) < _SHORT else json.dumps(value, ensure_ascii=False, indent=1, default=dict)


def _bytes(text: str) -> bytes:
    return text.encode(errors="xmlcharrefreplace")
