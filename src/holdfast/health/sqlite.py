"""A store in one file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from holdfast.core.errors import HoldfastError, NotAStoreError
from holdfast.core.records import MIB
from holdfast.health.checks import ADVICE, Check, Status, check, elapsed_ms, fail, named, nearest_existing, ok, warn
from holdfast.health.store import check_lifecycle, find_loss
from holdfast.settings import Settings, sqlite_path
from holdfast.storage.catalog import TABLES
from holdfast.storage.relational.database import migrations
from holdfast.storage.sqlite.database import APPLICATION_ID, SqliteDatabase

_SLOW_WRITE_MS: Final = 50.0
_PATIENCE_SECONDS: Final = 5.0
_NEWEST: Final = migrations("holdfast.storage.sqlite")[-1].number


def check_sqlite(settings: Settings) -> Iterator[Check]:
    """The checks of the file; where it does not open, that alone."""
    try:
        path = sqlite_path(settings.url)
    except HoldfastError as problem:
        yield named("store", fail(problem, "correct HOLDFAST_URL"))
        return
    yield from _check_disk(path.parent)
    if not path.exists() or path.stat().st_size == 0:
        yield named("store", find_loss(settings) or f"{path} (not there yet; the first memory makes it)")
        return
    size = f"{path} ({path.stat().st_size / MIB:,.1f} MiB)"
    version = _version(path)
    if version is not None and version < _NEWEST:  # opening it would bring it up to date
        yield named("store", size)
        coming = f"version {version}; the next opening brings it to {_NEWEST}, and then there is more to see"
        yield named("schema", coming)
        return
    try:
        database = SqliteDatabase(path, busy_seconds=_PATIENCE_SECONDS)
    except HoldfastError as problem:
        yield named("store", fail(problem, ADVICE["file_unusable"]))
        return
    with closing(database):
        yield named("store", size)
        yield named("schema", f"version {version} (this Holdfast knows up to {_NEWEST})")
        yield from _check_foreign_tables(database)
        yield from _check_journal(database)
        (integrity,) = _check_integrity(database)
        yield integrity
        if integrity.status is Status.OK:  # what is damaged need not be asked further
            yield from check_lifecycle(database, settings)


def _version(path: Path) -> int | None:
    """The version of a store's schema; ``None`` if that cannot be told, or it is no store of ours."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(int(_PATIENCE_SECONDS * 1_000))
            is_ours = int(connection.pragma("application_id")) == APPLICATION_ID
            return int(connection.pragma("user_version")) if is_ours else None
    except apsw.Error:
        return None


@check("foreign_tables")
def _check_foreign_tables(database: SqliteDatabase) -> Check:
    """That no other application keeps tables in the file."""
    statement = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    with database.read() as tx:
        there = {str(name) for (name,) in tx.connection.execute(statement)}
    if foreign := sorted(there - {table.name for table in TABLES}):
        return warn(f"the file has tables that are not Holdfast's: {', '.join(foreign)}", ADVICE["file_foreign_tables"])
    return ok("the file has no table of another application")


@check("journal")
def _check_journal(database: SqliteDatabase) -> Check:
    with database.read() as tx:
        mode = tx.connection.pragma("journal_mode")
    found = f"{mode} mode, SQLite {apsw.sqlite_lib_version()}"
    if mode == "wal":
        return ok(found)
    return warn(found, "keep the store on a local disk: here readers wait for writers")


@check("integrity", "restore a backup: the file is damaged")
def _check_integrity(database: SqliteDatabase) -> str:
    watch = time.perf_counter()
    if problems := database.check():
        raise NotAStoreError("\n".join(problems[:5]))
    return f"quick check passed in {elapsed_ms(watch):,.0f} ms"


@check("disk")
def _check_disk(folder: Path) -> Check:
    """How long a durable write takes beside the store: every ``add`` waits for one."""
    there = nearest_existing(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".holdfast-doctor-") as file:
            watch = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took = elapsed_ms(watch)
    except OSError as problem:
        return fail(f"cannot write in {there}: {problem.strerror}", f"make {there} writable")
    found = f"a durable write takes {took:.2f} ms"
    if took > _SLOW_WRITE_MS:
        return warn(found, "put the store on a faster disk: every add waits this long")
    return ok(found)
