"""A store behind a pooler that changes connections between transactions, and does not know prepared statements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from bench.servers import PostgresServer, postgres
from psycopg import sql

from cli.examining import examine, leave_settings
from holdfast import Holdfast
from holdfast.core.errors import StoreUnavailableError
from storage.postgres_pooler import pooled


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL, behind the pooler, of a store that was made without it."""
    leave_settings(tmp_path, monkeypatch)
    straight = server.new_database()
    with Holdfast.open(straight, home=tmp_path / "home"):
        pass
    with psycopg.connect(straight, autocommit=True) as connection:  # as the page on deployment says
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET search_path = holdfast, public").format(database))
    with pooled(straight) as pooler:
        yield pooler


def use_together(url: str, home: Path) -> None:
    """Two engines take turns on the connections to the server."""
    with Holdfast.open(url, home=home) as one, Holdfast.open(url, home=home) as other:
        for number in range(5):
            one.manager("alice", "agent").add(f"Likes tea number {number}")
            other.manager("bob", "agent").add(f"Likes chess number {number}")
        assert len(other.manager("alice", "agent").retrieve("tea", top_k=9)) == 5
        assert one.sweep().counts["delete"] == 0
        assert one.audit.verify()


def test_a_pooler_that_mixes_up_prepared_statements_is_named_with_what_to_set(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"PgBouncer before 1\.21 .* set HOLDFAST_PREPARE=no"):
        use_together(url, tmp_path / "home")


def test_without_prepared_statements_such_a_pooler_serves(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PREPARE", "no")
    use_together(url, tmp_path / "home")
    code, checks = examine("--home", str(tmp_path / "home"), "--url", url)
    assert code == 0, checks


def test_the_doctor_gives_the_advice_of_the_problem_it_met(url: str, tmp_path: Path) -> None:
    code, checks = examine("--home", str(tmp_path / "home"), "--url", url)
    broken = {name: check["fix"] for name, check in checks.items() if "PgBouncer before 1.21" in check["detail"]}
    assert code == 3
    assert {name: fix for name, fix in broken.items() if "HOLDFAST_PREPARE=no" not in fix} == {}
    assert "schedule" in broken
