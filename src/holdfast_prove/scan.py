"""Searches bytes for a text: as it is, encoded, compressed, within databases and archives, and as a vector."""

from __future__ import annotations

import base64
import bz2
import io
import lzma
import shutil
import sqlite3
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from holdfast_prove.adapter import Place

#: Within each other, things are opened this deep, and all together to so many bytes.
_DEPTH: Final = 4
_MOST_BYTES: Final = 1 << 29
_STEP: Final = 1 << 12
#: So many bytes of a vector are looked for at once, and so many times: it may lie on several pages of a file.
_WINDOW: Final = 32
_WINDOWS: Final = 8
_SQLITE: Final = b"SQLite format 3\0"
_NUMBERS: Final = {"float32": "f", "float16": "e", "float64": "d", "8-bit steps": "b"}
#: How many steps the largest number of a vector has in 8 bits.
_STEPS: Final = 127


def encode(text: str) -> dict[str, bytes]:
    """A short text of ASCII letters in every form in which it is looked for."""
    raw = text.encode()
    forms = {
        "plain": raw,
        "upper case": raw.upper(),
        "utf-16-le": text.encode("utf-16-le"),
        "utf-16-be": text.encode("utf-16-be"),
        "hex": raw.hex().encode(),
        "upper hex": raw.hex().upper().encode(),
        "JSON escapes": "".join(f"\\u{ord(char):04x}" for char in text).encode(),
        "URL escapes": "".join(f"%{byte:02X}" for byte in raw).encode(),
        "reversed": raw[::-1],
    }
    for offset in range(3):
        first, end = -(-offset * 8 // 6), (offset + len(raw)) * 8 // 6
        for name, coder in (("base64", base64.b64encode), ("base64url", base64.urlsafe_b64encode)):
            forms[f"{name} at {offset}"] = coder(bytes(offset) + raw)[first:end]
    return forms


def encode_vector(vector: Sequence[float]) -> dict[str, list[bytes]]:
    """Pieces of a vector in every form in which it is looked for; those that say nothing are left out."""
    forms = {}
    step = max(map(abs, vector), default=0) / _STEPS or 1
    for name, number in _NUMBERS.items():
        with suppress(struct.error, OverflowError):
            numbers = [round(part / step) for part in vector] if number == "b" else vector
            data = struct.pack(f"<{len(vector)}{number}", *numbers)
            pieces = [data[at : at + _WINDOW] for at in range(0, len(data) - _WINDOW + 1, _WINDOW)][:_WINDOWS]
            forms[f"vector in {name}"] = [piece for piece in pieces if len(set(piece)) > _WINDOW // 4]
    return forms


class Wanted:
    """Texts that are looked for, each by a short mark in it, and its vector if there is one."""

    def __init__(self, marks: Iterable[str], vectors: Mapping[str, Sequence[float]]) -> None:
        self._pieces = [(mark, form, piece) for mark in marks for form, piece in encode(mark).items()]
        for mark, vector in vectors.items():
            self._pieces += [(mark, form, piece) for form, pieces in encode_vector(vector).items() for piece in pieces]

    def find(self, data: bytes) -> list[tuple[str, str]]:
        """The marks that are in the data, each with the forms in which it is."""
        return [(mark, form) for mark, form, piece in self._pieces if piece in data]


def search(places: Iterable[Place], wanted: Wanted) -> dict[str, dict[str, str]]:
    """For each mark that was found, the places where it is, and how."""
    found: dict[str, dict[str, str]] = {}
    for name, data in read_places(places):
        for mark, form in [*wanted.find(data), *((mark, "name") for mark, _ in wanted.find(name.encode()))]:
            found.setdefault(mark, {}).setdefault(name, form)
    return found


def read_places(places: Iterable[Place]) -> Iterator[tuple[str, bytes]]:
    """Every file and all that is in it, by its name."""
    left = [_MOST_BYTES]
    for path, name, data in read_plainly(places):
        if path is not None and data.startswith(_SQLITE):
            yield from _read_sqlite(name, path)
        yield from _unpack(name, data, _DEPTH, left)


def read_plainly(places: Iterable[Place]) -> Iterator[tuple[Path | None, str, bytes]]:
    """Every file as it is: its path, its name, and what is in it."""
    for place in places:
        if isinstance(place, tuple):
            yield None, *place
            continue
        root = Path(place)
        for path in [root] if root.is_file() else root.rglob("*"):
            with suppress(OSError):  # a log that has just been removed
                if path.is_file():
                    name = path.name if path == root else str(path.relative_to(root))
                    yield path, name, path.read_bytes()


def _unpack(name: str, data: bytes, depth: int, left: list[int]) -> Iterator[tuple[str, bytes]]:
    yield name, data
    left[0] -= len(data)
    if depth == 0 or left[0] < 0:
        return
    for inner, content in _open_all(data):
        yield from _unpack(f"{name} ({inner})", content, depth - 1, left)


def _open_all(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What is packed in the data, wherever it begins."""
    if data.startswith(_SQLITE):
        size = struct.unpack(">H", data[16:18])[0] or 512
        size = 65_536 if size == 1 else size
        # what is longer than a page goes on in others, each of which begins with the number of the next
        yield "pages", b"".join(data[at + 4 : at + size] for at in range(size, len(data), size))
    with suppress(zipfile.BadZipFile, RuntimeError, NotImplementedError, zlib.error, OSError):
        if b"PK\x03\x04" in data[:4]:
            archive = zipfile.ZipFile(io.BytesIO(data))
            yield from ((f"zip: {name}", archive.read(name)) for name in archive.namelist())
    with suppress(tarfile.TarError, OSError):
        if data[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(data)) as members:
                yield from ((f"tar: {one.name}", file.read()) for one in members if (file := members.extractfile(one)))
    if data.startswith(b"PAR1"):
        yield from _read_parquet(data)
    for name, magics, opener in _STREAMS:
        for magic in magics:
            at = data.find(magic)
            while at >= 0:
                if content := _inflate(opener, data, at):
                    yield name, content
                at = data.find(magic, at + 1)


def _inflate(opener: Callable[[], Any], data: bytes, at: int) -> bytes:
    """As much of a compressed stream as can be read: the end of one that was overwritten is missing."""
    parts: list[bytes] = []
    with suppress(Exception):  # what looks like a stream need not be one; each kind has errors of its own
        stream = opener()
        for start in range(at, len(data), _STEP):
            parts.append(stream.decompress(data[start : start + _STEP]))
            if getattr(stream, "eof", False):
                break
    return b"".join(parts)


def _outside(module: str, name: str) -> Callable[[], Any]:
    """A decompressor of a package that need not be there; without it such streams are not opened."""
    return lambda: getattr(import_module(module), name)()  # noqa: PLW0108 - imported when it is needed


class _Zstd:
    """Reads zstd with whichever package is there."""

    def __init__(self) -> None:
        try:
            self._stream: Any = import_module("compression.zstd").ZstdDecompressor()
        except ImportError:
            self._stream = import_module("zstandard").ZstdDecompressor().decompressobj()

    def decompress(self, data: bytes) -> bytes:
        content: bytes = self._stream.decompress(data)
        return content


_STREAMS: Final[Sequence[tuple[str, Sequence[bytes], Callable[[], Any]]]] = (
    ("zlib", (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), zlib.decompressobj),
    ("gzip", (b"\x1f\x8b\x08",), lambda: zlib.decompressobj(31)),
    ("bzip2", (b"BZh",), bz2.BZ2Decompressor),
    ("xz", (b"\xfd7zXZ\0",), lzma.LZMADecompressor),
    ("zstd", (b"\x28\xb5\x2f\xfd",), _Zstd),
    ("lz4", (b"\x04\x22\x4d\x18",), _outside("lz4.frame", "LZ4FrameDecompressor")),
)


def _read_sqlite(name: str, path: Path) -> Iterator[tuple[str, bytes]]:
    """The values of every table, of a copy with its log: a value may lie on several pages."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        for suffix in ("", "-wal"):
            if (source := path.with_name(path.name + suffix)).exists():
                shutil.copyfile(source, f"{copy}{suffix}")
        with suppress(sqlite3.Error), closing(sqlite3.connect(copy)) as connection:
            connection.text_factory = bytes
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
            for (table,) in tables.fetchall():
                quoted = table.decode().replace('"', '""')
                rows = connection.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - a name that the file has itself
                values = [value for row in rows for value in row if isinstance(value, bytes) and len(value) > 3]
                left = [_MOST_BYTES]
                yield from _unpack(f"{name} (table {table.decode()})", b"\n".join(values), _DEPTH - 1, left)


def _read_parquet(data: bytes) -> Iterator[tuple[str, bytes]]:
    with suppress(Exception):  # without pyarrow it is searched as it is; a damaged file too
        table = import_module("pyarrow.parquet").read_table(io.BytesIO(data))
        yield "parquet", repr(table.to_pydict()).encode()
