"""A store that is there for a while and leaves nothing behind, whatever ends the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from holdfast.storage.relational.database import migrations
from holdfast.storage.transfer.sqlite import SqliteFill, SqliteView


class Scratch(NamedTuple):
    """It, to be filled and then read."""

    fill: SqliteFill
    view: SqliteView
    connection: apsw.Connection


@contextmanager
def scratch_store() -> Iterator[Scratch]:
    """An empty store in a file that has no name, where the system allows that: it is gone when the process is."""
    with tempfile.TemporaryDirectory(prefix="holdfast-trial-") as folder:
        path = Path(folder) / "trial.db"
        with closing(apsw.Connection(str(path))) as connection:
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "temp_store=MEMORY"):
                connection.execute(f"PRAGMA {pragma}")
            for _, script in migrations("holdfast.storage.sqlite"):
                connection.execute(script)
            with suppress(OSError):
                path.unlink()
            yield Scratch(SqliteFill(connection), SqliteView(connection, "a trial restore"), connection)
