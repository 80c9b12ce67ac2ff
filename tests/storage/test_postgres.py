"""PostgreSQL as a store: how it is opened, what it must have, what its schema is, and what it says when it cannot."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from bench.servers import PostgresServer, postgres
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import raw
from clocks import FakeClock, wait_until
from holdfast import Holdfast
from holdfast.core.errors import (
    ClosedError,
    HoldfastError,
    InvalidSettingsError,
    StorageError,
    StoreAwayError,
    StoreBusyError,
    StoreReadOnlyError,
    StoreTooNewError,
    StoreUnavailableError,
)
from holdfast.core.records import Subject
from holdfast.ports.coordination import Lease
from holdfast.storage.postgres import connect as opening_module
from holdfast.storage.postgres import database as database_module
from holdfast.storage.postgres.connect import ALL_TABLES, BY_SUBJECT, EVERYWHERE
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.transactions import PACKAGE, STATEMENTS, Column, binary_cursor
from holdfast.storage.relational.database import Migration, migrations
from storage.postgres_relay import Fuse, relayed

SECRET = "hunter2"  # noqa: S105
_roles = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@contextmanager
def opened(url: str) -> Iterator[PostgresDatabase]:
    with closing(PostgresDatabase(url, pool_size=2)) as database:
        yield database


def refusal(url: str, kind: type[HoldfastError]) -> HoldfastError:
    """The error of an attempt to open a store, which must tell the password to nobody."""
    with pytest.raises(HoldfastError) as caught, opened(url):
        pass
    problem: BaseException | None = caught.value
    assert type(problem) is kind, problem
    while problem is not None:
        assert SECRET not in f"{problem} {problem!r}"
        problem = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
    return caught.value


def administer(url: str, statement: LiteralString, *names: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def new_role(server: PostgresServer) -> str:
    role = f"role_{next(_roles)}"
    administer(server.url(), "CREATE ROLE {} LOGIN", role)
    return role


# --- a URL that leads nowhere ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://holdfast:{SECRET}@[::bad/x",
        f"postgresql://holdfast:{SECRET} {SECRET}@127.0.0.1/x",
        f"postgresql://holdfast:{SECRET}%zz@127.0.0.1/x",
        f'postgresql://holdfast:a"{SECRET}"b c@127.0.0.1/x',
        f"postgresql://holdfast:p@{SECRET}@127.0.0.1/x",
        f"postgresql://holdfast:{SECRET}/p@127.0.0.1/x",
        f"postgresql://holdfast:p/{SECRET}@127.0.0.1/x",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?nonsense=1",
        f"postgresql://holdfast:{SECRET}@127.0.0.1:five/x",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?connect_timeout={SECRET}",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?keepalives_idle=1.5",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?options=-csearch_path%3D",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?options=-c%20search_path%3D%22{SECRET}",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?options=--search-path%3DUpper",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?options=-csearch_path%3D%22$user%22,public",
        f"postgresql://holdfast:{SECRET}@127.0.0.1/x?options=-csearch_path%3D{'long' * 16}",
    ],
)
def test_a_url_that_is_not_understood_is_refused_without_quoting_it(url: str) -> None:
    problem = refusal(url, InvalidSettingsError)
    assert "write it as postgresql://user:password@host:5432/database" in str(problem)
    assert not problem.retryable


@pytest.mark.parametrize(
    "rest",
    [
        "?sslmode=bogus",
        "?target_session_attrs=bogus",
        "?sslmode=require",
        "?channel_binding=require",
        "?options=-csearch_path%3Dmy%20schema",
        "?options=-cnonsense%3D1",
        "?options=-cstatement_timeout%3Dsoon",
        "?options=-cmax_connections%3D9",
    ],
)
def test_a_connection_that_can_never_be_made_is_not_worth_another_try(server: PostgresServer, rest: str) -> None:
    problem = refusal(server.url(tcp=True) + rest, StoreUnavailableError)
    assert "correct HOLDFAST_URL" in str(problem)
    assert not problem.retryable


def test_a_port_where_nobody_listens_may_be_tried_again(server: PostgresServer) -> None:
    problem = refusal(f"postgresql://holdfast:{SECRET}@127.0.0.1:1/memories", StoreAwayError)
    assert "'memories' at 127.0.0.1:1 does not answer" in str(problem)
    assert problem.retryable


def test_a_wrong_password_a_wrong_database_and_a_wrong_role_are_told_apart(server: PostgresServer) -> None:
    assert "check user and password" in str(refusal(server.url(tcp=True, password=SECRET), StoreUnavailableError))
    assert '"nowhere" does not exist' in str(refusal(server.url("nowhere"), StoreUnavailableError))
    assert '"nobody_here" does not exist' in str(refusal(server.url(user="nobody_here"), StoreUnavailableError))


def test_a_server_without_a_connection_to_spare_is_busy(server: PostgresServer) -> None:
    role = new_role(server)
    administer(server.url(), "ALTER ROLE {} CONNECTION LIMIT 0", role)
    assert refusal(server.url(user=role), StoreBusyError).retryable


# --- a server that lacks something -------------------------------------------------------------------------------------


def test_a_server_needs_no_extension(server: PostgresServer) -> None:
    url = server.new_database()
    administer(server.url(), "ALTER DATABASE {} SET extension_control_path = '/nowhere'", name_of(url))
    with opened(url), psycopg.connect(url) as connection:
        assert connection.execute("SELECT extname FROM pg_extension").fetchall() == [("plpgsql",)]


def test_a_server_that_is_too_old_is_refused(server: PostgresServer) -> None:
    with relayed(server, server.new_database(), version="14.13") as (_, url):
        assert "is PostgreSQL 14; Holdfast needs 15 or newer" in str(refusal(url, StoreUnavailableError))


def test_a_role_that_may_not_make_things_is_told_what_it_needs(server: PostgresServer) -> None:
    role, url = new_role(server), server.new_database()
    theirs = server.url(name_of(url), user=role)
    problem = str(refusal(theirs, StoreUnavailableError))
    assert "are not there yet, and this user may not make them (permission denied" in problem
    assert "run holdfast init-db as their owner" in problem
    administer(url, "GRANT CREATE ON DATABASE {} TO {}", name_of(url), role)
    with opened(theirs):
        pass
    administer(url, "REVOKE CONNECT ON DATABASE {} FROM PUBLIC", name_of(url))
    assert not refusal(theirs, StoreUnavailableError).retryable


def test_a_role_that_may_create_needs_nothing_more(server: PostgresServer, tmp_path: Path) -> None:
    role, url = new_role(server), server.new_database()
    administer(url, "GRANT CREATE ON DATABASE {} TO {}", name_of(url), role)
    with Holdfast.open(server.url(name_of(url), user=role), home=tmp_path) as holdfast:
        memory_id = holdfast.manager("ann", "guide").add("likes trains", "long_term")["memory_id"]
        assert [hit["memory_id"] for hit in holdfast.manager("ann", "guide").retrieve("trains")] == [memory_id]


def test_a_database_that_cannot_be_written_says_so(server: PostgresServer) -> None:
    url = server.new_database()
    with opened(url):
        pass
    administer(url, "ALTER DATABASE {} SET default_transaction_read_only = on", name_of(url))
    with opened(url) as database, pytest.raises(StoreReadOnlyError, match=r"name the primary"), database.write() as tx:
        tx.number_for(Subject("t", "u"))


def test_a_table_that_is_gone_is_no_matter_of_trying_again(server: PostgresServer) -> None:
    url = server.new_database()
    with opened(url) as database:
        administer(url, "DROP TABLE holdfast.leases")
        with pytest.raises(StorageError, match=r"restore a backup") as problem, database.read() as tx:
            tx.all(Lease, "coordination.lease", ("sweeper",))
        assert not problem.value.retryable


def test_tables_are_not_distributed_where_citus_is_not(server: PostgresServer) -> None:
    with pytest.raises(StoreUnavailableError, match=r"does not have the citus extension .* HOLDFAST_DISTRIBUTE"):
        PostgresDatabase(server.new_database(), distribute=True)


# --- who waits for whom ------------------------------------------------------------------------------------------------


def write_for(database: PostgresDatabase, subject: Subject) -> None:
    with database.write() as tx:
        tx.number_for(subject)


def govern(database: PostgresDatabase, tenant: str) -> None:
    with database.govern(tenant):
        pass


def test_nobody_writes_for_a_tenant_that_is_being_governed_and_nobody_governs_one_that_is_written_for(
    server: PostgresServer,
) -> None:
    url = server.new_database()
    with opened(url) as one, closing(PostgresDatabase(url, busy_seconds=0.1)) as hasty:
        write_for(one, Subject("t", "u"))
        with one.govern("t"):
            with pytest.raises(StoreBusyError):
                write_for(hasty, Subject("t", "u"))
            with pytest.raises(StoreBusyError):
                write_for(hasty, Subject("t", "one who was never seen"))
            with pytest.raises(StoreBusyError):
                govern(hasty, "t")
            write_for(hasty, Subject("tt", "u"))
        with one.write() as tx:
            tx.number_for(Subject("t", "u"))
            with pytest.raises(StoreBusyError):
                govern(hasty, "t")
            with pytest.raises(StoreBusyError):
                write_for(hasty, Subject("t", "u"))
            write_for(hasty, Subject("t", "another"))
            govern(hasty, "tt")


# --- the schema --------------------------------------------------------------------------------------------------------


def test_a_migration_keeps_what_is_there(server: PostgresServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.new_database()
    with Holdfast.open(url, home=home) as holdfast:
        memory_id = holdfast.manager("alice", "agent").add("a note")["memory_id"]
    steps = migrations(PACKAGE)
    step = Migration(steps[-1].number + 1, "ALTER TABLE schemas ADD COLUMN note text")
    monkeypatch.setattr(opening_module, "migrations", lambda package: [*steps, step])

    with Holdfast.open(url, home=home) as holdfast:
        assert holdfast.manager("alice", "agent").get(memory_id)["content"] == "a note"
        assert "note" in raw.columns(holdfast, "schemas")
        assert raw.rows(holdfast, "SELECT version FROM schema_version") == [(step[0],)]


def test_a_schema_of_a_newer_version_is_left_alone(server: PostgresServer) -> None:
    url = server.new_database()
    with opened(url):
        pass
    administer(url, "UPDATE holdfast.schema_version SET version = 999")
    assert "has schema version 999" in str(refusal(url, StoreTooNewError))


def test_two_schemas_of_one_database_are_two_stores(server: PostgresServer) -> None:
    url = server.new_database()
    other = f"{url}&options=-csearch_path%3Dsomewhere"
    with opened(url) as one, opened(other) as another:
        with one.write() as tx:
            tx.number_for(Subject("t", "u"))
        with another.read() as tx:
            assert tx.number_of(Subject("t", "u")) is None


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("-csearch_path%3D%22My-Schema%22", "My-Schema"),
        ("-c%20search_path%3D%22My%5C%20%22%22own%22%22%22,public", 'My "own"'),
        ("--search-path%3Dfirst%20-csearch_path%3Dlast,public%20-clock_timeout%3D5", "last"),
    ],
)
def test_a_schema_is_read_from_the_url_as_postgres_reads_it(server: PostgresServer, written: str, name: str) -> None:
    url = f"{server.new_database()}&options={written}"
    with psycopg.connect(url) as connection:  # what the server itself makes of it
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        assert connection.execute("SELECT current_schema").fetchone() == (name,)
    with opened(url) as database:
        assert database.schema == name


@pytest.mark.parametrize(
    ("setting", "rest"),
    [
        ("standard_conforming_strings = off", ""),
        ("client_encoding = 'LATIN1'", "&client_encoding=LATIN1"),
        ("client_encoding = 'LATIN1'", "&options=-cclient_encoding%3DLATIN1"),
    ],
)
def test_what_others_set_for_a_database_changes_no_text(
    server: PostgresServer, tmp_path: Path, setting: LiteralString, rest: str
) -> None:
    url = server.new_database()
    administer(server.url(), f"ALTER DATABASE {{}} SET {setting}", name_of(url))
    texts = [f"Zoë's naïve \\ 日本 {number}" for number in range(4)]  # the later ones rely on the first
    with Holdfast.open(url + rest, home=tmp_path) as holdfast:
        memory = holdfast.manager("zoë\\", "guide")
        for text in texts:
            memory.add(text, metadata={"said": text})
    with Holdfast.open(url, home=tmp_path) as holdfast:
        found = holdfast.manager("zoë\\", "guide").list_memories("long_term")
    assert sorted(one["content"] for one in found) == texts
    assert all(one["metadata"]["said"] == one["content"] for one in found)


def test_every_table_is_spread_by_subject_or_whole_everywhere(server: PostgresServer) -> None:
    url = server.new_database()
    with opened(url), psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT relname, (SELECT attname FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum = indkey[0]) "
            "FROM pg_class JOIN pg_index ON indrelid = pg_class.oid AND indisprimary "
            "WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'"
        )
        first_of_key: dict[str, str] = dict(found.fetchall())
    assert first_of_key.keys() == ALL_TABLES
    assert not set(BY_SUBJECT) & set(EVERYWHERE)
    assert {first_of_key[table] for table in BY_SUBJECT} == {"subject"}


@pytest.mark.parametrize("made", [1, 3, 4, 5, 6])
def test_an_opening_that_breaks_off_is_made_good_by_the_next(server: PostgresServer, made: int) -> None:
    def makes(statement: bytes) -> bool:
        return not statement.startswith((b"SELECT", b"SET"))

    with relayed(server, server.new_database()) as (relay, url):
        with relay.burning(Fuse(made, wanted=makes)) as fuse:
            assert refusal(url, StoreAwayError).retryable
            assert fuse.burnt.is_set()
        with opened(url) as database, database.write() as tx:
            assert tx.number_for(Subject("t", "u")) == 1


def test_what_is_closed_says_so(server: PostgresServer) -> None:
    with opened(server.new_database()) as database:
        database.check_usable()
    with pytest.raises(ClosedError, match=r"open it again"), database.read():
        pass
    database.close()


def test_who_waits_for_a_connection_while_it_is_closed_is_told_so(server: PostgresServer) -> None:
    database = PostgresDatabase(server.new_database(), pool_size=1)
    told: list[HoldfastError] = []

    def ask() -> None:
        try:
            database.ask(str, "dues.tenants")
        except HoldfastError as problem:
            told.append(problem)

    waiting = threading.Thread(target=ask)
    with database.read():
        waiting.start()
        wait_until(lambda: database._pool.get_stats()["requests_waiting"] == 1)
        database.close()
        waiting.join(30)
    assert [type(problem) for problem in told] == [ClosedError]


@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        ("records.named", "records_by_name records_by_text"),
        ("records.get_named", "records_by_name"),
        ("records.get_all_named", "records_by_name"),
        ("records.of_text", "records_by_text records_pkey versions_by_text"),
        ("records.live_of_text", "records_by_text"),
        ("records.fetch", "records_by_id"),
        ("records.refreshable", "records_by_id"),
        ("versions.at", "records_by_id versions_pkey"),
    ],
)
def test_a_lookup_goes_by_its_indexes_before_the_server_knows_the_tables(
    unknown_tables: psycopg.Connection, statement: str, indexes: str
) -> None:
    text = query_of(unknown_tables, STATEMENTS[statement].text)
    unknown_tables.execute(b"PREPARE lookup AS " + text)
    values = ", ".join("NULL" for _ in range(len(set(re.findall(rb"\$\d+", text)))))
    plan = "\n".join(row[0] for row in unknown_tables.execute(f"EXPLAIN EXECUTE lookup({values})".encode()))
    unknown_tables.execute("DEALLOCATE lookup")
    found = re.findall(r"(?<!Subquery )Scan (?:using (\w+) )?on (?:records|versions)\b", plan)
    assert sorted(found) == indexes.split(), plan


def query_of(connection: psycopg.Connection, statement: bytes) -> bytes:
    """A statement; of one that calls a function of ours, the function's query, which ``EXPLAIN`` does not show."""
    called = re.search(rb"FROM (\w+)\(\$1", statement)
    if called is None:
        return statement
    function = "SELECT proargnames[:pronargs], oidvectortypes(proargtypes), prosrc FROM pg_proc WHERE proname = %s"
    names, types, source = connection.execute(function, [called[1].decode()]).fetchone() or ([], "", "")
    query = source.partition("RETURN QUERY")[2].rpartition(";\nEND")[0]
    for place, (name, of_type) in enumerate(zip(names, types.split(", "), strict=True), 1):
        query = re.sub(rf"\b{name}\b", f"${place}::{of_type}", query)
    return str(query).encode()


@pytest.fixture(scope="module")
def unknown_tables(server: PostgresServer) -> Iterator[psycopg.Connection]:
    """Ten thousand records of one user, with a version that ended, of which the server has no statistics; plans are
    made for any values.
    """
    url = server.new_database()
    PostgresDatabase(url, pool_size=1).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = holdfast; ALTER TABLE records SET (autovacuum_enabled = off)")
        connection.execute("ALTER TABLE versions SET (autovacuum_enabled = off)")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(
            "INSERT INTO records (subject, key, kind, version, profile, aged_from, created_at, updated_at, dated_at, size, "
            "text_hash, id, state, agent_id, name, metadata, terms, content) "
            "SELECT 1, n, 6, 1, 1, 0, 0, 0, 0, 1, n, n::text, 'active', 'a', n::text, repeat('m', 400), '', '' "
            "FROM generate_series(1, 10000) AS n"
        )
        connection.execute(
            "INSERT INTO versions (subject, key, version, started_at, ended_at, actor, size, text_hash, terms, metadata, "
            "content) SELECT 1, n, 1, 0, 0, 'a', 1, n, '', repeat('m', 400), '' FROM generate_series(1, 10000) AS n"
        )
        yield connection


# --- dead rows --------------------------------------------------------------------------------------------------------


def test_a_sweep_leaves_few_dead_rows(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, clock = server.new_database(), FakeClock()
    monkeypatch.setattr(database_module, "_DEAD_ROWS", 10)
    monkeypatch.setattr(database_module.PostgresDatabase, "give_back", lambda _self, _pages: 0)
    with Holdfast.open(url, home=tmp_path, clock=clock) as holdfast:
        holdfast.manager("ann", "guide").add_many([f"fact {n}" for n in range(50)], "long_term")
        clock.advance(days=365)
        assert holdfast.sweep().counts["archive"] == 50
    monkeypatch.undo()
    monkeypatch.setattr(database_module, "_DEAD_ROWS", 10)
    statistics = "SELECT n_dead_tup, vacuum_count FROM pg_stat_user_tables WHERE relname = 'records'"
    with opened(url) as database, psycopg.connect(url, autocommit=True) as connection:
        dead, vacuums = connection.execute(statistics).fetchone() or (0, 0)
        assert (dead >= 50, vacuums) == (True, 0), "each move has left a row"

        assert database.give_back(100) == 0

        assert connection.execute(statistics).fetchone() == (0, 1)
        database.give_back(100)
        assert connection.execute(statistics).fetchone() == (0, 1), "and nothing is done where there is nothing to do"


@pytest.mark.parametrize("values", [[1, -(2**63), 2**63 - 1], ["", "Zoë", None], [b"", None, b"\0x"], [None, None], []])
def test_a_column_arrives_as_it_was_sent(server: PostgresServer, values: list[object]) -> None:
    types = {int: b"bigint[]", str: b"text[]", bytes: b"bytea[]"}
    column = Column(values)
    with opened(server.new_database()) as database, database.outside() as connection:
        (found,) = binary_cursor(connection).execute(b"SELECT $1::" + types[column.kind], (column,)).fetchone() or ()
    assert found == values
