"""Homes for tests: folders that are opened with ``Holdfast.open(home=...)``, and the engines that keep what is in them.

A home on SQLite is a folder that is not there before it is opened. One on PostgreSQL has a database of its own, and a ``holdfast.toml`` that names it: so
whoever opens the home, be it another process, finds the same store. An engine that is named here and cannot start is an
error of the test run, never a skip.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import databases
from databases import TestDatabase
from holdfast.core.clock import IdSource
from holdfast.lifecycle.part_registry import OpenParts
from holdfast.ports.stores import Tenant
from holdfast.settings import Settings, read_settings
from holdfast.storage.relational.database import Database
from holdfast.storage.stores import open_database, stores_over

ENGINES = ("sqlite", "postgres")
#: For tests that are about the file of the store itself, or about what is decided before a store is asked.
on_sqlite = pytest.mark.parametrize("engine_name", ["sqlite"])


def settings_of(home: Path) -> Settings:
    """The settings that a home is opened with, whatever the environment says."""
    return read_settings({}, home=home)


def database_of(home: Path) -> Database:
    """The database of a home, for tests of what is beneath the engine; to be closed."""
    return open_database(settings_of(home))


def tenant_of(database: Database, name: str, now: Callable[[], int], **stores: Any) -> Tenant:
    """A tenant of a database, for tests of a service by itself; some of its stores may be others."""
    usual = stores_over(database)

    def find(store: str) -> Any:
        return stores.get(store) or getattr(usual, store)

    new_id, parts = IdSource(lambda _bits: 1).next, OpenParts("")
    return Tenant(find, name=name, now=now, new_id=new_id, open_part=parts.open)


class Homes:
    """Homes below a folder, on one engine; their databases are given back when the block ends."""

    def __init__(self, engine_name: str, folder: Path) -> None:
        if engine_name not in ENGINES:
            raise ValueError(f"there is no engine {engine_name!r}; there are {', '.join(ENGINES)}")
        self._on_postgres = engine_name == "postgres"
        self._folder = folder
        self._databases: dict[Path, TestDatabase] = {}

    def new(self, name: str = "home") -> Path:
        """A home with nothing in it."""
        home = self._folder / name
        if self._on_postgres:
            home.mkdir(mode=0o700)
            self._keep(home, databases.take())
        return home

    def copy(self, source: Path, name: str) -> Path:
        """A home with all that is in another, which nobody may have open."""
        home = self._folder / name
        shutil.copytree(source, home)
        if self._on_postgres:
            self._keep(home, databases.take_copy(self._databases[source]))
        return home

    def tables(self, home: Path) -> dict[str, bytes]:
        """Every row that a server has of a home, by table; none, if it is all in the home's own files."""
        return self._databases[home].read().tables if home in self._databases else {}

    def throw_out(self, home: Path) -> None:
        """End every connection to a home's server."""
        self._databases[home].throw_out()

    def remove(self, home: Path) -> None:
        """Remove a home and all that is in it."""
        shutil.rmtree(home)
        if home in self._databases:
            databases.give_back(self._databases.pop(home))

    def close(self) -> None:
        """Give the databases back; the folders stay."""
        while self._databases:
            databases.give_back(self._databases.popitem()[1])

    def _keep(self, home: Path, database: TestDatabase) -> None:
        self._databases[home] = database
        (home / "holdfast.toml").write_text(f"url = {json.dumps(database.url)}\n")
        (home / "holdfast.toml").chmod(0o600)

    def __enter__(self) -> Homes:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()
