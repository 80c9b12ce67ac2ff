"""An export as a ZIP of files for programs and a page for people. It is written as it is read, in bounded memory."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from html import escape
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from holdfast.core.values import to_json, when
from holdfast.privacy.export.readers import LEFT_OUT, PARTS, File, Part, Person
from holdfast.privacy.export.rows import Line, encode, line_schema

FORMAT: Final = "holdfast-export"
VERSION: Final = 1
CONSISTENCY: Final = (
    "Everything that was held from the beginning of the export to its end is in it exactly once. Each thing is as it "
    "was at one moment of that time, not all things at the same moment."
)
#: Progress is shown every so many lines.
_STRIDE: Final = 100
_CHUNK: Final = 1 << 16

Progress = Callable[[int], None]


class Contents(NamedTuple):
    """What was written: how many lines of each part, and how many memories are incomplete."""

    counts: dict[str, int]
    incomplete: int


class ExportWriter:
    """Writes a ZIP: the files of each part, then the page of them all, the schema and the manifest."""

    def __init__(self, target: IO[bytes], *, at: int, scratch: Path | None) -> None:
        """``scratch`` is the folder for the page, in a file without a name, while it is written."""
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
        self._tap.is_open = kind is None  # else the ZIP has no end, so that nobody takes it for whole
        self._zip.close()

    def write(self, person: Person, export_date: str, check: Callable[[], str | None], progress: Progress) -> Contents:
        """Write everything that is held on a user. At the end ``check`` gives the pseudonym, or raises."""
        counts = {part.name: self._write_part(part, person, progress) for part in PARTS}
        pseudonym = check()
        titles = {part.name: (part.title, counts[part.name]) for part in PARTS}
        with self._entry("index.html", sum(counts.values())) as write:
            write(_page_head(person.user_id, export_date, titles))
            self._page.seek(0)
            while chunk := self._page.read(_CHUNK):
                write(chunk)
            write(b"</body></html>\n")
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

    def _write_part(self, part: Part, person: Person, progress: Progress) -> int:
        self._page.write(_page_section(part.name, part.title))
        count = files = 0
        for file in part.files(person):
            count += self._write_file(file, progress)
            files += 1
        if not count:
            self._page.write(b"<p>Nothing.</p>\n")
        return files if part.name == "conversations" else count

    def _write_file(self, file: File, progress: Progress) -> int:
        is_list = file.name.endswith(".json")
        with self._entry(file.name, 0) as write:
            if is_list:
                write(b"[")
            for count, line in enumerate(file.lines, 1):
                write(b",\n" if is_list and count > 1 else b"")
                write(encode(line) + (b"" if is_list else b"\n"))
                self._show(line)
                if count % _STRIDE == 0:
                    progress(_STRIDE)
                self._files[-1]["records"] = count
            if is_list:
                write(b"]\n")
        written: int = self._files[-1]["records"]
        progress(written % _STRIDE)
        return written

    def _show(self, line: Line) -> None:
        self._page.write(_page_article(line))
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


class _Tap:
    """The target of a ZIP. Once it is shut, nothing more is written."""

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
        """The caller closes the target."""


#: The first moment that a ZIP can have.
_EARLIEST: Final = 315_532_800_000_000


def _pretty(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode(errors="backslashreplace") + b"\n"


# --- the page for people: plain HTML that loads nothing; everything on it is escaped ----------------------------------

#: The text of a line is the first of these fields that it has.
_TEXTS: Final = ("content", "summary")
#: A value that is shorter as JSON is shown on one line.
_SHORT: Final = 100
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "article{border-top:1px solid #ccc;padding:.5rem 0;content-visibility:auto}"
    "article.message{margin-left:2rem}"
    "p.said{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:0 1rem;margin:0;font-size:.8rem;color:#555}"
    "dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}"
    "table{border-collapse:collapse}td{padding:0 1rem 0 0}"
)
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _page_head(user_id: str, export_date: str, counts: Mapping[str, tuple[str, int]]) -> bytes:
    """The beginning of the page; ``counts`` are the title of each section, and how much is in it, by name."""
    rows = "".join(
        f'<tr><td><a href="#{escape(name)}">{escape(title)}</a></td><td>{count:,}</td></tr>\n'
        for name, (title, count) in counts.items()
    )
    return _bytes(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>Data held on {escape(user_id)}</title>\n<style>{_STYLE}</style></head><body>\n"
        f"<h1>Data held on {escape(user_id)}</h1>\n"
        f"<p>As of {escape(export_date)}. The same is in the other files of this archive, for programs: "
        "manifest.json lists them, schema.json describes them.</p>\n"
        f"<table>\n{rows}</table>\n"
    )


def _page_section(name: str, title: str) -> bytes:
    """The beginning of a section."""
    return _bytes(f'<h2 id="{escape(name)}">{escape(title)}</h2>\n')


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
