"""An export as a ZIP: written as it is gathered, to a file or a stream, with no more than a page of it in memory."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from holdfast.core.times import when
from holdfast.privacy.export import html
from holdfast.privacy.export.locations import LEFT_OUT, PLACES, Place
from holdfast.privacy.export.readers import File, Person
from holdfast.privacy.export.rows import Line, encoded
from holdfast.privacy.export.schema import line_schema

FORMAT: Final = "holdfast-export"
VERSION: Final = 1
CONSISTENCY: Final = (
    "Everything that was held from the beginning of the export to its end is in it exactly once. Each thing is as it "
    "was at one moment of that time, not all things at the same moment."
)
#: Progress is told every so many lines.
_STRIDE: Final = 100

Progress = Callable[[int], None]


class Contents(NamedTuple):
    """What was written: how much of each place, and how many things were not all there."""

    counts: dict[str, int]
    incomplete: int


class ExportWriter:
    """Writes a ZIP: each place's files, then the page of them all, the schema and the manifest."""

    def __init__(self, target: IO[bytes], *, at: int, scratch: Path | None) -> None:
        """``scratch`` is the folder in which the page grows, in a file without a name."""
        self._page: IO[bytes] = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - closed with the rest
        self._tap = _Tap(target)
        self._zip = zipfile.ZipFile(self._tap, "w", zipfile.ZIP_DEFLATED)
        self._date = when(max(at, _EARLIEST)).timetuple()[:6]
        self._files: list[dict[str, Any]] = []
        self._incomplete = 0

    def __enter__(self) -> ExportWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._page.close()
        self._tap.is_open = kind is None  # else there is no end to it, so that nobody takes it for whole
        self._zip.close()

    def write(self, person: Person, export_date: str, check: Callable[[], str | None], progress: Progress) -> Contents:
        """Write everything that is held on a person; ``check`` is asked for their pseudonym, or raises, at the end."""
        counts = {place.name: self._place(place, person, progress) for place in PLACES}
        pseudonym = check()
        titles = {place.name: (place.title, counts[place.name]) for place in PLACES}
        with self._entry("index.html", sum(counts.values())) as write:
            write(html.head(person.user_id, export_date, titles))
            self._page.seek(0)
            shutil.copyfileobj(self._page, _Sink(write))
            write(html.foot())
        with self._entry("schema.json", None) as write:
            write(_pretty(line_schema()))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "user_id": person.user_id,
            "export_date": export_date,
            "pseudonym": pseudonym,
            "consistency": CONSISTENCY,
            "counts": counts,
            "incomplete": self._incomplete,
            "left_out": dict(LEFT_OUT),
            "files": list(self._files),
        }
        with self._entry("manifest.json", None) as write:
            write(_pretty(manifest))
        return Contents(counts, self._incomplete)

    def _place(self, place: Place, person: Person, progress: Progress) -> int:
        self._page.write(html.section(place.name, place.title))
        count = files = 0
        for file in place.files(person):
            count += self._file(file, progress)
            files += 1
        if not count:
            self._page.write(html.nothing())
        return files if place.name == "conversations" else count

    def _file(self, file: File, progress: Progress) -> int:
        is_list = file.name.endswith(".json")
        with self._entry(file.name, 0) as write:
            if is_list:
                write(b"[")
            for count, line in enumerate(file.lines, 1):
                write(b",\n" if is_list and count > 1 else b"")
                write(encoded(line) + (b"" if is_list else b"\n"))
                self._tell(line)
                if count % _STRIDE == 0:
                    progress(_STRIDE)
                self._files[-1]["records"] = count
            if is_list:
                write(b"]\n")
        written: int = self._files[-1]["records"]
        progress(written % _STRIDE)
        return written

    def _tell(self, line: Line) -> None:
        self._page.write(html.article(line))
        self._incomplete += line["type"] == "memory" and line["note"] is not None

    @contextmanager
    def _entry(self, name: str, records: int | None) -> Iterator[Callable[[bytes], object]]:
        """A file of the ZIP, and the manifest's line for it."""
        info = zipfile.ZipInfo(name, self._date)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o600 << 16
        about = {"name": name} | ({} if records is None else {"records": records})
        self._files.append(about)
        digest, size = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as entry:

            def write(data: bytes) -> None:
                nonlocal size
                digest.update(data)
                size += len(data)
                entry.write(data)

            yield write
        about |= {"bytes": size, "sha256": digest.hexdigest()}


class _Sink(NamedTuple):
    """What ``copyfileobj`` writes to."""

    write: Callable[[bytes], object]


class _Tap:
    """What a ZIP is written through: once it is shut, nothing more gets out."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self.is_open = True

    def write(self, data: bytes, /) -> int:
        if self.is_open:
            self._target.write(data)
        return len(data)

    def flush(self) -> None:
        if self.is_open:
            self._target.flush()

    def close(self) -> None:
        """Whoever opened the target closes it."""


#: The first moment that a ZIP can tell.
_EARLIEST: Final = 315_532_800_000_000


def _pretty(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode(errors="backslashreplace") + b"\n"
