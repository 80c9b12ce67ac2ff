"""Other applications in the same database: neither takes the other's tables for its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from bench.servers import PostgresServer, postgres
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

from cli.examining import examine, leave_settings
from holdfast import Holdfast
from holdfast.core.errors import StoreUnavailableError

#: What LangGraph's savers and stores call their tables, on PostgreSQL and SQLite.
OF_LANGGRAPH = {
    "checkpoints", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations", "writes",
    "store", "store_migrations", "store_vectors", "vector_migrations",
}  # fmt: skip
SAVED: RunnableConfig = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_settings(tmp_path, monkeypatch)


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def url(server: PostgresServer) -> str:
    """A database for a role that has the name of Holdfast's schema, so that it looks there first for a table."""
    database = server.new_database()
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("holdfast",)
        assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',)
    return database


def test_langgraph_goes_on_in_a_database_in_which_holdfast_was_opened(url: str, tmp_path: Path) -> None:
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        saver.put(SAVED, empty_checkpoint(), {"source": "input"}, {})

    with Holdfast.open(url, home=tmp_path / "home") as holdfast:
        holdfast.manager("alice", "agent").add("Likes tea")
        assert holdfast.audit.verify()

    with PostgresSaver.from_conn_string(url) as saver:
        saver.put(SAVED, empty_checkpoint(), {"source": "loop"}, {})
        assert len(list(saver.list(SAVED))) == 2


def test_no_table_has_a_name_that_langgraph_uses(url: str, tmp_path: Path) -> None:
    with Holdfast.open(url, home=tmp_path / "home"), psycopg.connect(url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'").fetchall()
        assert not {name for (name,) in found} & OF_LANGGRAPH
    with Holdfast.open(home=tmp_path / "home"), closing(sqlite3.connect(tmp_path / "home" / "holdfast.db")) as file:
        found = file.execute("SELECT name FROM sqlite_schema").fetchall()
        assert not {name for (name,) in found} & OF_LANGGRAPH


def test_the_doctor_notices_tables_of_others_in_the_schema(url: str, tmp_path: Path) -> None:
    with Holdfast.open(url, home=tmp_path / "home"):
        pass
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()  # as this role, into Holdfast's schema

    _, checks = examine("--home", str(tmp_path / "home"), "--url", url)

    assert checks["foreign_tables"]["status"] == "warning"
    assert "checkpoint_writes, checkpoints" in checks["foreign_tables"]["detail"]
    assert "does not back them up" in checks["foreign_tables"]["fix"]


def test_the_doctor_notices_a_role_that_finds_holdfasts_tables_in_place_of_its_own(url: str, tmp_path: Path) -> None:
    with Holdfast.open(url, home=tmp_path / "home"):
        pass
    run(url, "CREATE TABLE public.sessions (id text)")

    _, checks = examine("--home", str(tmp_path / "home"), "--url", url)

    assert checks["foreign_tables"]["status"] == "warning"
    assert "in place of public.sessions" in checks["foreign_tables"]["detail"]
    assert "SET search_path" in checks["foreign_tables"]["fix"]


def test_a_schema_in_which_others_have_such_tables_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    run(url, "CREATE SCHEMA holdfast CREATE TABLE records (id text) CREATE TABLE other (id text)")

    _, checks = examine("--home", str(tmp_path / "home"), "--url", url)
    with pytest.raises(StoreUnavailableError, match="names that Holdfast uses: records; name another schema"):
        Holdfast.open(url, home=tmp_path / "home")

    assert checks["foreign_tables"]["status"] == "failed"
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast' ORDER BY 1"
        ).fetchall()
        assert found == [("other",), ("records",)]


def test_the_doctor_notices_tables_of_others_in_the_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Holdfast.open(home=home) as holdfast:
        holdfast.manager("alice", "agent").add("Likes tea")
    _, checks = examine("--home", str(home))
    assert checks["foreign_tables"]["status"] == "ok"

    with closing(sqlite3.connect(home / "holdfast.db")) as file:
        file.execute("CREATE TABLE checkpoints (thread_id TEXT)")
        file.commit()
    _, checks = examine("--home", str(home))

    assert (checks["foreign_tables"]["status"], checks["foreign_tables"]["detail"].split(": ")[1]) == (
        "warning",
        "checkpoints",
    )
    with Holdfast.open(home=home) as holdfast:
        assert holdfast.audit.verify()
