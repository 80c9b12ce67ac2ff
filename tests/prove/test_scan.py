"""The search for a mark finds it in every form, however it is packed."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import math
import sqlite3
import struct
import tarfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast_prove.scan import Wanted, search

MARK = "qwrtzplkjhgf"
TEXT = f"The key is called {MARK}, says Ann: élan."


def _zip(text: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a note", text * 9)
    return stream.getvalue()


def _tar(text: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        member = tarfile.TarInfo("a note")
        member.size = len(text.encode())
        archive.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


FORMS: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "JSON": lambda text: json.dumps({"text": text}).encode(),
    "URL": lambda text: urllib.parse.quote(text).encode(),
    "utf-16": lambda text: text.encode("utf-16-le"),
    "hex": lambda text: text.encode().hex().encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64, one on": lambda text: base64.b64encode(b"a" + text.encode()),
    "base64, two on": lambda text: base64.b64encode(b"ab" + text.encode()),
    "zlib among others": lambda text: b"before" + zlib.compress(text.encode() * 9) + b"after",
    "gzip": lambda text: gzip.compress(text.encode()),
    "bzip2": lambda text: bz2.compress(text.encode()),
    "xz": lambda text: lzma.compress(text.encode()),
    "base64 in gzip in zlib": lambda text: zlib.compress(gzip.compress(base64.b64encode(text.encode()))),
    "zlib, cut off": lambda text: zlib.compress(text.encode() + bytes(range(256)) * 99)[:-40],
    "zip": _zip,
    "tar.gz": _tar,
    "escapes of JSON": lambda text: "".join(f"\\u{ord(char):04x}" for char in text).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_mark_is_found_in_every_form(form: str) -> None:
    assert search([("a place", FORMS[form](TEXT))], Wanted([MARK], {})).keys() == {MARK}
    assert search([("a place", FORMS[form](TEXT.replace(MARK, "another")))], Wanted([MARK], {})) == {}


@pytest.mark.parametrize(("module", "name"), [("zstandard", "compress"), ("lz4.frame", "compress")])
def test_what_python_lacks_is_read_where_the_package_is_there(module: str, name: str) -> None:
    packed = getattr(pytest.importorskip(module), name)(TEXT.encode() * 9)
    assert search([("a place", packed)], Wanted([MARK], {})).keys() == {MARK}


@pytest.mark.parametrize("number", ["e", "f", "d"])
def test_a_vector_is_found_by_a_piece_of_it(number: str) -> None:
    vector = [math.sin(value) for value in range(64)]
    packed = struct.pack(f"<64{number}", *vector)
    assert search([("a place", b"x" + packed[32:96])], Wanted([], {MARK: vector})).keys() == {MARK}
    assert search([("a place", packed[::-1])], Wanted([], {MARK: vector})) == {}


def test_a_vector_is_found_by_its_steps() -> None:
    vector = [math.sin(value) / 3 for value in range(64)]
    packed = struct.pack("64b", *(round(127 * part / max(map(abs, vector))) for part in vector))
    assert search([("a place", b"x" + packed[32:])], Wanted([], {MARK: vector})) == {
        MARK: {"a place": "vector in 8-bit steps"}
    }


def test_files_are_read_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / f"{MARK}.txt").write_text("nothing")
    found = search([tmp_path], Wanted([MARK], {}))
    assert found == {MARK: {f"deep/{MARK}.txt": "name"}}


@pytest.mark.parametrize("deleted", [False, True])
def test_sqlite_is_read_in_its_tables_its_log_and_its_free_pages(tmp_path: Path, deleted: bool) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE notes (packed)")
        connection.execute("INSERT INTO notes VALUES (?)", (zlib.compress(TEXT.encode() + bytes(range(256)) * 99, 0),))
        connection.commit()
        if deleted:
            connection.execute("DELETE FROM notes")
            connection.commit()
        assert search([tmp_path], Wanted([MARK], {})).keys() == {MARK}
