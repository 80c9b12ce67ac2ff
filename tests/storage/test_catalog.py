"""The catalogue lists every table, column, file and object that there is, and erasure reaches all that is a user's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import notes_part
import raw
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.privacy.export.readers import LEFT_OUT, PARTS
from holdfast.storage.catalog import LOCATIONS, TABLES, Backup, Erase, Owner, Spread, Table, Where, tables_in
from holdfast.storage.relational.database import Database
from homes import ENGINES, Homes, database_of, settings_of
from privacy.sentinels import Sentinel, unlisted
from storage.full_store import fill

USERS = {"subject", "user_id"}


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    with closing(database_of(home)) as opened:
        yield opened


def tables_of(engine_name: str) -> list[Table]:
    return [table for table in TABLES if table.is_in_sqlite or engine_name == "postgres"]


def schema_of(database: Database, engine_name: str) -> dict[str, set[str]]:
    listed = (
        "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'"
        if engine_name == "postgres"
        else "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return {name: set(raw.columns(database, name)) for (name,) in raw.rows(database, listed)}


# --- tables -----------------------------------------------------------------------------------------------------------


def test_every_table_and_column_of_an_engine_is_in_the_catalogue(database: Database, engine_name: str) -> None:
    listed = {
        table.name: set(table.columns) - (set(table.sqlite) if engine_name == "sqlite" else set())
        for table in tables_of(engine_name)
    }
    assert schema_of(database, engine_name) == listed, "list it in storage/catalog.json, with what becomes of it"


def test_a_table_with_a_column_for_users_is_a_users_and_erasure_reaches_it() -> None:
    assert {table.name for table in TABLES if USERS & set(table.columns) and table.owner is not Owner.USER} == set()
    for table in TABLES:
        assert (table.erase is Erase.NOTHING) == (table.owner is not Owner.USER), table.name
        assert bool(table.kept_because) == (table.erase is Erase.KEPT), table.name


def test_a_table_with_something_of_a_user_is_exported_or_says_why_not() -> None:
    for table in TABLES:
        assert not (table.export and table.left_out_because), table.name
        assert table.export or table.left_out_because or table.owner is not Owner.USER, table.name
    parts = {"memories" if part.file.startswith("memories/") else part.name for part in PARTS}
    assert {table.export for table in TABLES if table.export} == parts
    assert {table.name for table in TABLES if table.left_out_because} < set(LEFT_OUT)


def test_what_belongs_to_one_user_is_backed_up_under_that_users_key() -> None:
    for table in tables_in(Backup.OWN):
        assert table.owner is Owner.USER, table.name
        assert table.name == "subjects" or "subject" in table.columns, table.name
    for table in tables_in(Backup.NAMED):
        assert {"tenant", "user_id"} <= set(table.columns), table.name
    assert all(table.is_copied for table in TABLES if table.backup is not Backup.NONE)


def test_what_is_spread_by_subject_has_the_subject_first_in_its_key() -> None:
    assert {table.key[0] for table in TABLES if table.spread is Spread.SUBJECT} == {"subject"}


def rows_of_user(holdfast: Holdfast, engine_name: str, number: int, mark: str) -> dict[str, int]:
    """How many rows of each table belong to a user, by the number or by a mark in the text."""
    counts = {}
    for table in tables_of(engine_name):
        if "subject" in table.columns and table.columns["subject"] == "int":
            whose = table.sqlite.get("subject", "subject") if engine_name == "sqlite" else "subject"
            query = f"SELECT 1 FROM {table.name} WHERE coalesce({whose}, ?) = ?"  # noqa: S608
            counts[table.name] = len(raw.rows(holdfast, query, (number, number)))
        else:
            query = f"SELECT * FROM {table.name}"  # noqa: S608
            counts[table.name] = sum(mark in repr(row) for row in raw.rows(holdfast, query))
    rules = {no for (no,) in raw.rows(holdfast, "SELECT no FROM rules")}
    profiles = [row for (row,) in raw.rows(holdfast, "SELECT rules FROM profiles WHERE rules <> '[]'")]
    counts["profiles"] = sum(any(int(no) not in rules for no in row.strip("[]").split(",")) for row in profiles)
    return counts


def test_erasure_removes_the_rows_of_every_table_of_users(
    homes: Homes, clock: FakeClock, engine_name: str, tmp_path: Path
) -> None:
    sentinel = Sentinel()
    with Holdfast(settings_of(homes.new()), clock=clock) as holdfast:
        sentinel.plant(holdfast, clock)
        memory = holdfast.manager(sentinel.user_id, "guide")
        memory.add("derived", "persona", derived_from=[memory.add("a source")["memory_id"]])
        memory.delete(memory.add("not to come back")["memory_id"], keep_out=True)
        memory.retrieve("what is new?")
        holdfast.parts.add(notes_part.KIND, f"sqlite:///{tmp_path}/notes.db", unowned_as=sentinel.user_id)
        found = json.dumps({"user_id": sentinel.user_id, "said": sentinel.mark})
        holdfast.services.console_jobs.save("job", b"owner", "{}", found, now=0, is_nameless=False)
        holdfast.audit.seal()
        [(number,)] = raw.rows(holdfast, "SELECT no FROM subjects WHERE subject = ?", (f"default/{sentinel.user_id}",))
        before = rows_of_user(holdfast, engine_name, number, sentinel.mark)
        users = [table for table in tables_of(engine_name) if table.owner is Owner.USER]
        gone = {table.name for table in users if table.erase is not Erase.KEPT} - {"profiles"}
        assert {name for name in gone if not before[name]} == set(), "this test must put something into each of them"

        assert not holdfast.erase_user(sentinel.user_id).pending

        after = rows_of_user(holdfast, engine_name, number, sentinel.mark)
        kept = {table.name for table in TABLES if table.erase is Erase.KEPT}
        assert {name for name, count in after.items() if count} <= kept


# --- files, objects and keys ------------------------------------------------------------------------------------------


def test_every_file_of_a_home_is_in_the_catalogue(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    sentinel = Sentinel()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        fill(holdfast, clock)
        unwanted = holdfast.manager("someone", "guide")
        unwanted.delete(unwanted.add("not to come back")["memory_id"], keep_out=True)
        sentinel.plant(holdfast, clock)
        holdfast.erase_user(sentinel.user_id)
        holdfast.domains.configure("rag", {"limit": 9})
        holdfast.domains.archive("rag", [{"id": "r1"}])
        made = holdfast.backups.create()
        assert holdfast.backups.verify(made.id, restore=True)
        holdfast.backups.rotate(confirm=True)
        files = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
    folders = {Where.COLD: "archive/", Where.BACKUPS: "backups/"}
    for where, folder in folders.items():
        within = [name.removeprefix(folder) for name in files if name.startswith(folder)]
        assert within
        assert unlisted(within, where) == []
    others = [name for name in files if not name.startswith(tuple(folders.values()))]
    assert unlisted(others, Where.HOME, Where.STATE) == []


def test_every_location_of_users_says_how_erasure_reaches_it() -> None:
    nothing = "nothing of a user is in it"
    assert [one.names for one in LOCATIONS if (one.erased == nothing) == (one.owner is Owner.USER)] == []
