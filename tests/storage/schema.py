"""The schema of a new store as text, one object a paragraph. ``python tests/storage/schema.py`` writes schema.txt anew."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import apsw

from holdfast.storage.sqlite.database import SqliteDatabase

LISTING = Path(__file__).with_name("schema.txt")
ADVICE = "the schema changed; if that was meant (with a new migration), run: python tests/storage/schema.py"


def listing(connection: apsw.Connection) -> str:
    """Everything that defines a store, in a form that does not depend on spaces and comments."""
    pragmas = [
        f"PRAGMA {name} = {connection.pragma(name)}" for name in ("application_id", "user_version", "auto_vacuum")
    ]
    rows = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC, name"
    )
    objects = [" ".join(re.sub(r"--[^\n]*", "", str(row[0])).split()) for row in rows]
    return "\n\n".join(["\n".join(pragmas), *objects]) + "\n"


def new_store(folder: Path) -> str:
    """The listing of a store that was just made."""
    database = SqliteDatabase(folder / "holdfast.db")
    try:
        with database.read() as tx:
            return listing(tx.connection)
    finally:
        database.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        LISTING.write_text(new_store(Path(folder)), encoding="utf-8")
