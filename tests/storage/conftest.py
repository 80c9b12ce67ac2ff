"""A store in a folder of its own, and records to put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.samples import NOW, Person, entry
from holdfast.core.records import TYPES, MemoryType, Record
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.sqlite.database import SqliteDatabase

ME = Person("t", "u")
Put = Callable[..., Record]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "holdfast.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    opened = SqliteDatabase(path)
    yield opened
    opened.close()


@pytest.fixture
def put() -> Put:
    def write(database: SqliteDatabase, content: str = "User enjoys skiing", **fields: Any) -> Record:
        made = entry(ME, content, **fields)
        kind = TYPES[MemoryType.LONG_TERM]
        SqlRecords(database).insert(ME.subject, kind, [made], prune=False, now=NOW)
        return made.record

    return write
