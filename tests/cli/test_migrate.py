"""``holdfast migrate`` on the command line."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.servers import PostgresServer

from cli.examining import examine, leave_settings
from cli.shell import Shell, program, read_terminal
from clocks import FakeClock
from conformance.engines import postgres_server
from holdfast import Holdfast, KeyringError
from storage.full_store import LONG

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "move-to-postgres.md"
EXAMPLE = "postgresql://holdfast@db.example.com:5432/holdfast"


@pytest.fixture
def url() -> str:
    """A database behind a password, as databases are."""
    return postgres_server().new_database(tcp=True)


@pytest.fixture
def filled(shell: Shell) -> Shell:
    shell.ok("add", "Likes tea", "-u", "ann")
    shell.ok("add", "Formal, and brief", "-u", "bob", "-k", "persona")
    shell.ok("hold", "add", "-u", "ann", "--reason", "Case 4711")
    return shell


def rows_of(said: dict[str, Any]) -> dict[str, int]:
    return {line["table"]: line["rows"] for line in said["tables"] if line["rows"]}


def test_a_store_is_copied_and_found_in_the_new_place(filled: Shell, url: str) -> None:
    done = filled.json("migrate", "--to", url)
    assert rows_of(done)["records"] == 2
    assert all(line["verified"] for line in done["tables"])
    assert done["rows"] == done["copied"] == sum(rows_of(done).values())
    assert (done["audit"], done["resumed"], done["notes"]) == ({"ok": True, "findings": []}, False, [])
    assert PostgresServer.password not in str(done)
    (found,) = filled.json("search", "tea", "-u", "ann", "--url", url)
    assert found["content"] == "Likes tea"
    assert filled.json("search", "tea", "-u", "ann")[0]["memory_id"] == found["memory_id"], "the old one is there too"


def test_a_store_is_copied_into_the_place_of_one_that_was_lost(filled: Shell) -> None:
    lost = postgres_server().new_database()
    filled.ok("add", "Likes coffee", "-u", "ann", "--url", lost)
    with psycopg.connect(lost, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
    code, error = filled.error("search", "coffee", "-u", "ann", "--url", lost)
    assert (code, error["code"]) == (1, "store_lost")

    filled.ok("migrate", "--to", lost)

    (found,) = filled.json("search", "tea", "-u", "ann", "--url", lost)
    assert found["content"] == "Likes tea"


def test_people_see_a_table_and_what_to_do_next(filled: Shell, url: str) -> None:
    shown = filled.ok("migrate", "--to", url)
    assert re.search(r"records +2 +the same", shown)
    assert re.search(r"Copied \d+ rows in [\d.]+ s \([\d,]+ a second\) into PostgreSQL database", shown)
    assert "Now set HOLDFAST_URL to the new store." in shown
    assert PostgresServer.password not in shown


def test_a_dry_run_counts_and_changes_nothing(filled: Shell, url: str) -> None:
    said = filled.json("migrate", "--to", url, "--dry-run")
    assert rows_of(said)["records"] == 2
    assert said["unfinished_copy_of"] is None
    shown = filled.ok("migrate", "--dry-run")
    assert re.search(r"records +2", shown)
    assert shown.endswith("Nothing was changed.\n")
    filled.ok("migrate", "--to", url)
    code, error = filled.error("migrate", "--to", url, "--dry-run")
    assert (code, error["code"]) == (1, "conflict")


def test_a_database_in_use_is_refused(filled: Shell, url: str) -> None:
    filled.ok("add", "must stay", "-u", "someone", "--url", url)
    code, error = filled.error("migrate", "--to", url)
    assert (code, error["code"]) == (1, "conflict")
    assert "nothing was changed" in error["message"]
    assert filled.json("search", "stay", "-u", "someone", "--url", url)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "say where to copy to"),
        (["--to", "sqlite:///other.db"], 2, "not into SQLite"),
        (["--to", "mysql://root:secret@host/db"], 2, "is not understood"),
        (["--to", "postgresql://me:secret@127.0.0.1:1/db"], 75, "does not answer"),
        (["--to", EXAMPLE, "--from", "redis://:secret@host"], 2, "is not understood"),
    ],
)
def test_wrong_urls_are_told_without_their_passwords(
    filled: Shell, arguments: list[str], code: int, words: str
) -> None:
    if "--from" in arguments:
        arguments = [postgres_server().new_database() if one == EXAMPLE else one for one in arguments]
    ended, error = filled.error("migrate", *arguments)
    assert (ended, words in error["message"], "secret" in error["message"]) == (code, True, False), error


def test_a_url_that_is_refused_is_told_by_the_option_it_was_given_in(filled: Shell, url: str) -> None:
    wrong = url.replace(PostgresServer.password, "secret")
    nowhere = url.replace("/holdfast_", "/nowhere_")
    for option, given in (("--to", wrong), ("--to", nowhere), ("--from", wrong), ("--from", nowhere)):
        others = ("--to", url) if option == "--from" else ()
        _, error = filled.error("migrate", option, given, *others)
        assert error["code"] == "store_unavailable"
        assert error["message"].endswith(option), error


def test_a_source_that_is_not_there_is_an_error(shell: Shell, url: str, tmp_path: Path) -> None:
    code, error = shell.error("migrate", "--from", f"sqlite:///{tmp_path / 'none.db'}", "--to", url)
    assert (code, error["code"]) == (1, "store_unavailable")


def test_what_stays_behind_is_named(home: Path, clock: FakeClock, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "travel").add(LONG, "long_term")
        clock.advance(days=366)
        holdfast.sweep()
        holdfast.audit.seal()
    monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", "valkey://:secret@127.0.0.1:6379/0")
    notes = Shell(home).json("migrate", "--to", url)["notes"]
    assert len(notes) == 5
    assert notes[0] == "Short-term memory is in valkey://:…@127.0.0.1:6379/0 and stays there."
    assert f"aws s3 sync {home / 'archive'} s3://" in notes[1]
    assert f"lie in {home}, in keys/, state/: without them" in notes[2]
    assert str(home / "keys" / "master.key") in notes[3]
    assert str(home / "state") in notes[4]
    monkeypatch.setenv("HOLDFAST_ARCHIVE_URL", "s3://bucket/archive")
    monkeypatch.setenv("HOLDFAST_STATE_URL", "s3://bucket/state")
    said = Shell(home).json("migrate", "--dry-run")["notes"]
    assert len(said) == 3, "a bucket is reached from everywhere"
    assert not any("s3://" in note for note in said)


def test_what_the_page_and_the_command_name_is_all_that_another_home_needs(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that lies outside of the store is made, and is named; copied, archived memories can be read."""
    leave_settings(tmp_path, monkeypatch)
    old, new = tmp_path / "old", tmp_path / "new"
    clock = FakeClock(datetime.now(UTC) - timedelta(days=400))
    with Holdfast.open(home=old, clock=clock) as holdfast:
        memory_id = holdfast.manager("ann", "travel").add(LONG, "long_term")["memory_id"]
        holdfast.manager("bob", "travel").add("Likes tea")
        holdfast.erase_user("bob")
        holdfast.access.revoke(holdfast.access.create("agent", rights=["read"], tenant="default")[0].id)
        clock.advance(days=399)
        holdfast.sweep()
        holdfast.audit.seal()
        holdfast.backups.create()
    there = {path.name for path in old.iterdir() if not path.name.startswith((".", "holdfast.db"))}
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}/`" in page for name in there), there
    (note,) = [note for note in Shell(old).json("migrate", "--to", url)["notes"] if "HOLDFAST_STATE_URL" in note]
    assert all(f"{name}/" in note for name in there - {"archive", "backups"}), note

    new.mkdir()
    for name in ("archive", "state", "ledger", "erased"):
        shutil.copytree(old / name, new / name)
    code, checks = examine("--home", str(new), "--url", url)
    assert (code, checks["cold_memories"]["status"]) == (3, "failed")
    assert "HOLDFAST_STATE_URL" in checks["cold_memories"]["fix"]
    with pytest.raises(KeyringError, match="Set HOLDFAST_STATE_URL"):
        Holdfast.open(url, home=new)

    shutil.copytree(old / "keys", new / "keys")
    assert examine("--home", str(new), "--url", url)[1]["cold_memories"]["status"] == "ok"
    with Holdfast.open(url, home=new) as holdfast:
        assert holdfast.manager("ann", "travel").rehydrate(memory_id)["content"] == LONG


def test_a_terminal_shows_how_far_it_is(filled: Shell, url: str) -> None:
    mine, its = pty.openpty()
    env = {**os.environ, "HOLDFAST_HOME": str(filled.home), "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [program(), "migrate", "--to", url, "--json"], env=env, stdout=subprocess.DEVNULL, stderr=its
    ):
        pass
    with subprocess.Popen(
        [program(), "migrate", "--to", postgres_server().new_database()], env=env, stdout=subprocess.DEVNULL, stderr=its
    ) as watched:
        assert watched.wait(60) == 0
    os.close(its)
    seen = read_terminal(mine)
    assert "copying" in seen
    assert "comparing" in seen
