"""A store is copied whole into PostgreSQL, or not at all; and what was cut short goes on."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import raw
from clocks import FakeClock
from conformance.engines import postgres_server
from holdfast import Holdfast
from holdfast.core.errors import (
    ConflictError,
    HoldfastError,
    InvalidInputError,
    StaleError,
    StorageError,
    StoreBusyError,
    StoreUnavailableError,
)
from holdfast.settings import Settings, read_settings
from holdfast.storage.catalog import COPIED, COUNTERS
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.transfer.migrate import Show, Transferred, transfer
from holdfast.storage.transfer.stores import check_target, open_source, open_target
from lifecycle.fuses import DeathError
from storage.full_store import KEPT_OUT, USERS, answers, fill, lose

CHILD = """
import os, signal, sys
from contextlib import closing, contextmanager
from pathlib import Path
from holdfast.settings import read_settings
from holdfast.storage.transfer.stores import SqliteReader
from holdfast.storage.transfer.stores import open_source, open_target
from holdfast.storage.transfer.migrate import transfer

home, url, deadly, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

@contextmanager
def show(what, total):
    left = count if what == deadly else None
    def advance(rows):
        nonlocal left
        if left is not None:
            left -= rows
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    yield advance
    if left is not None:
        os.kill(os.getpid(), signal.SIGKILL)

def reading(self, table, after=None, rows=SqliteReader.rows):
    for number, row in enumerate(rows(self, table, after)):
        if table == "records" and number == count:
            os.kill(os.getpid(), signal.SIGKILL)
        yield row

if deadly == "reading":
    SqliteReader.rows = reading
settings = read_settings({}, home=Path(home))
with closing(open_source(settings.url, settings)) as source, closing(open_target(url, settings)) as target:
    transfer(source, target, show, batch=3)
"""


class Full:
    """A full store: where it is, when it is, and what it answers."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = FakeClock()
        with Holdfast.open(home=home, clock=self.clock) as holdfast:
            fill(holdfast, self.clock)
            self.answers = answers(holdfast)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Full:
    return Full(tmp_path_factory.mktemp("full") / "home")


@pytest.fixture
def full(original: Full, home: Path) -> Full:
    """A full store of the test's own."""
    shutil.copytree(original.home, home)
    copied = object.__new__(Full)
    copied.home, copied.answers = home, original.answers
    copied.clock = FakeClock(original.clock.now)
    return copied


@pytest.fixture
def url() -> str:
    return postgres_server().new_database()


def settings_of(full: Full) -> Settings:
    return read_settings({}, home=full.home)


@contextmanager
def quiet(_what: str, _total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _count: None


def migrate(full: Full, url: str, *, show: Show = quiet, batch: int = 1_000, source: str | None = None) -> Transferred:
    settings = settings_of(full)
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_source(source or settings.url, settings)))
        target = stack.enter_context(closing(open_target(url, settings)))
        return transfer(opened, target, show, batch=batch)


def reopened(full: Full, url: str) -> Holdfast:
    return Holdfast.open(url, home=full.home, clock=full.clock)


def assert_same(full: Full, url: str) -> None:
    with reopened(full, url) as holdfast:
        found = answers(holdfast)
    for name, expected in full.answers.items():
        assert found[name] == expected, name


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True, options="-csearch_path=holdfast,public") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def tables_of(url: str) -> set[str]:
    return {row[0] for row in execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")}


# --- all of it --------------------------------------------------------------------------------------------------------


def test_the_copy_gives_the_same_answers_to_everything(full: Full, url: str) -> None:
    done = migrate(full, url)
    assert not done.findings
    assert [table.name for table in COPIED if not done.counts[table.name]] == [], "there is something of everything"
    assert (done.begun.is_resumed, done.begun.is_anew) == (False, False)
    assert done.copied == sum(done.counts.values())
    assert_same(full, url)


def test_the_copy_goes_on_working(full: Full, url: str) -> None:
    migrate(full, url)
    with reopened(full, url) as holdfast:
        for user in (*USERS, "new"):
            memory = holdfast.manager(user, "travel", "s2")
            added = memory.add("Prefers the aisle", "long_term")["memory_id"]
            assert memory.retrieve("aisle")[0]["memory_id"] == added
            memory.short_term.add_message("user", "and on it goes")
            if user in USERS:
                assert memory.add(KEPT_OUT, "persona")["operation"] == "kept_out"
                home = memory.history(key="home")
                assert [one["content"] for one in home] == ["Lives in Rome.", "Lives in Oslo."]
                lives = next(one for one in memory.list_memories("long_term") if one["content"] == "Lives in Oslo.")
                assert memory.revert(lives["memory_id"], 1)["version"] == 3
        assert holdfast.recycle.restore(user_id="bob") > 0
        assert holdfast.recycle.restore(agent_id="gone") > 0
        ann = holdfast.manager("ann", "travel", "s2")
        cold = [one for one in ann.list_memories("long_term", include_archived=True) if one["is_archived"]]
        assert [ann.rehydrate(one["memory_id"])["content"].count("Rex") for one in cold] == [30]
        full.clock.advance(days=400)
        assert holdfast.sweep(confirm=True).total > 0
        holdfast.audit.seal()
        assert holdfast.audit.verify()


def test_numbers_are_never_given_twice_not_even_those_of_what_is_gone(full: Full, url: str) -> None:
    with Holdfast.open(home=full.home, clock=full.clock) as holdfast:
        lose(holdfast, full.clock)
    migrate(full, url)
    with closing(SqliteDatabase(full.home / "holdfast.db")) as database:
        given = dict(raw.rows(database, "SELECT name, seq FROM sqlite_sequence"))
        assert given["sessions"] > raw.rows(database, "SELECT max(no) FROM sessions")[0][0], "the largest is gone"
    for counter in COUNTERS:
        if counter.table in given:
            name = f"'{counter.sequence}'" if counter.sequence else f"pg_get_serial_sequence('{counter.table}', 'no')"
            assert execute(url, f"SELECT nextval({name})") == [(given[counter.table] + 1,)]


def test_one_database_is_copied_into_another(full: Full, url: str) -> None:
    migrate(full, url)
    other = postgres_server().new_database()
    with closing(psycopg.connect(url, autocommit=True)):
        assert not migrate(full, other, source=url).findings
    assert_same(full, other)


def test_a_store_is_copied_into_a_schema_of_another_name(full: Full, url: str) -> None:
    elsewhere = f"{url}&options=-csearch_path%3Dmemories"
    migrate(full, elsewhere)
    assert_same(full, elsewhere)
    assert tables_of(url) == set()


def test_an_empty_store_is_copied_too(home: Path, url: str, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock):
        pass
    settings = read_settings({}, home=home)
    with closing(open_source(settings.url, settings)) as source, closing(open_target(url, settings)) as target:
        assert transfer(source, target, quiet).counts["records"] == 0
    with Holdfast.open(url, home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "travel").add("the first", "long_term")


# --- cut short --------------------------------------------------------------------------------------------------------


def die_at(count: int) -> Show:
    """Shows progress to someone who dies of it, so many words in."""
    heard = 0

    @contextmanager
    def show(_what: str, _total: int) -> Iterator[Callable[[int], None]]:
        def advance(_rows: int) -> None:
            nonlocal heard
            heard += 1
            if heard == count:
                raise DeathError(str(count))

        yield advance

    return show


def test_however_often_it_is_cut_short_the_copy_is_the_same(full: Full, url: str) -> None:
    rows = deaths = 0
    for count in range(1, 1_000, 4):
        try:
            done = migrate(full, url, show=die_at(count), batch=2)
        except DeathError:
            deaths += 1
        else:
            break
        with pytest.raises(StoreUnavailableError, match="unfinished copy"):
            reopened(full, url)
        said = execute(url, "SELECT (said::json->>'rows')::int FROM copying WHERE name != 'source'")
        assert sum(row[0] for row in said) >= rows, "what was copied stays copied"
        rows = sum(row[0] for row in said)
    assert deaths > 10
    assert done.begun.is_resumed
    assert done.copied == sum(done.counts.values()) - rows
    assert_same(full, url)


@pytest.mark.parametrize(
    ("what", "count"), [("copying", 0), ("copying", 40), ("copying", 10**9), ("reading", 10), ("comparing", 10**9)]
)
def test_a_killed_process_is_no_loss(full: Full, url: str, what: str, count: int) -> None:
    arguments = [sys.executable, "-c", CHILD, str(full.home), url, what, str(count)]
    killed = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with pytest.raises(StoreUnavailableError, match="finish it with the same holdfast migrate"):
        reopened(full, url)
    assert migrate(full, url).begun.is_resumed
    assert_same(full, url)


def test_a_server_that_breaks_off_is_no_loss(full: Full, url: str) -> None:
    @contextmanager
    def cutting(what: str, _total: int) -> Iterator[Callable[[int], None]]:
        def advance(_rows: int) -> None:
            if what == "comparing":
                execute(
                    url,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid != pg_backend_pid()",
                )

        yield advance

    with pytest.raises(HoldfastError) as broken:
        migrate(full, url, show=cutting)
    assert broken.value.retryable
    assert migrate(full, url).copied == 0
    assert_same(full, url)


def test_two_processes_do_not_copy_into_one_database(full: Full, url: str) -> None:
    second: list[type[BaseException]] = []

    @contextmanager
    def joined(what: str, _total: int) -> Iterator[Callable[[int], None]]:
        def advance(_rows: int) -> None:
            if what == "copying" and not second:
                second.append(HoldfastError)
                migrate(full, url)

        yield advance

    with pytest.raises((StoreBusyError, StorageError)):
        migrate(full, url, show=joined, batch=2)
    assert_same(full, url)


# --- a source that does not stand still -------------------------------------------------------------------------------


def test_a_source_that_is_written_meanwhile_is_refused_and_copied_anew(full: Full, url: str) -> None:
    @contextmanager
    def writing(what: str, _total: int) -> Iterator[Callable[[int], None]]:
        if what == "comparing":
            with Holdfast.open(home=full.home, clock=full.clock) as holdfast:
                holdfast.manager("ann", "travel", "s2").add("written meanwhile", "long_term")
                full.answers = answers(holdfast)
        yield lambda _count: None

    with pytest.raises(StaleError, match="was written while it was copied"):
        migrate(full, url, show=writing)
    with pytest.raises(StoreUnavailableError):
        reopened(full, url)
    assert migrate(full, url).begun.is_anew
    assert_same(full, url)


@pytest.mark.parametrize(
    "change",
    [
        lambda holdfast: holdfast.manager("ann", "travel", "s2").short_term.add_message("user", "one more"),
        lambda holdfast: holdfast.quotas.set("long_term", max_memories=77, user_id="ann"),
        lambda holdfast: holdfast.manager("ann", "travel", "s2").entity.set("Rex", {"age": 9}),
        lambda holdfast: holdfast.manager("ann", "travel", "s2").structured.define("orders", {"type": "object"}),
        lambda holdfast: holdfast.holds.add(user_id="ann", reason="Case 2", author="dpo"),
        lambda holdfast: holdfast.agents.add("another"),
        lambda holdfast: holdfast.recycle.restore(user_id="bob"),
        lambda holdfast: holdfast.schedule.set("daily", enabled=False),
    ],
)
def test_whatever_changed_in_the_source_the_copy_begins_anew(
    full: Full, url: str, change: Callable[[Holdfast], object]
) -> None:
    with pytest.raises(DeathError):
        migrate(full, url, show=die_at(30), batch=2)
    with Holdfast.open(home=full.home, clock=full.clock) as holdfast:
        change(holdfast)
    assert migrate(full, url).begun.is_anew


def test_a_store_that_was_moved_meanwhile_is_still_the_same(full: Full, url: str, tmp_path: Path) -> None:
    with pytest.raises(DeathError):
        migrate(full, url, show=die_at(30), batch=2)
    full.home = full.home.rename(tmp_path / "elsewhere")
    assert migrate(full, url).begun.is_resumed


# --- a copy that is not the same --------------------------------------------------------------------------------------

TAMPERING = {
    "a changed row": "UPDATE records SET metadata = '{}' WHERE key = (SELECT min(key) FROM records WHERE kind = 3)",
    "a changed byte": "UPDATE history SET content = set_byte(content, 3, 7) WHERE key = (SELECT min(key) FROM history)",
    "a missing row": "DELETE FROM facts WHERE id = (SELECT min(id) FROM facts)",
    "another row": "INSERT INTO books (tenant, version, defaults, software) VALUES ('another', 1, '{}', '0.1.0')",
    "two values that changed places": "UPDATE sessions SET agent_id = session_id, session_id = agent_id",
}


@pytest.mark.parametrize("statement", TAMPERING.values(), ids=TAMPERING.keys())
def test_a_copy_that_is_not_the_same_is_not_made_usable(full: Full, url: str, statement: str) -> None:
    @contextmanager
    def tampering(what: str, _total: int) -> Iterator[Callable[[int], None]]:
        if what == "comparing":
            execute(url, statement)
        yield lambda _count: None

    with pytest.raises(StorageError, match="is not the same"):
        migrate(full, url, show=tampering)
    with pytest.raises(StoreUnavailableError):
        reopened(full, url)
    assert migrate(full, url).begun.is_anew


def test_a_broken_audit_chain_is_copied_as_it_is_and_told(full: Full, url: str) -> None:
    with closing(SqliteDatabase(full.home / "holdfast.db")) as database:
        raw.run(
            database,
            "UPDATE audit SET entry = replace(entry, 'hold.added', 'hold.adder') "
            "WHERE no = (SELECT max(no) FROM audit WHERE entry LIKE '%hold.added%')",
        )
        raw.run(database, "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'audit'")
    found = migrate(full, url).findings
    assert len(found) == 2, "also what only the source can know: how many entries it ever wrote"
    with reopened(full, url) as holdfast:
        assert holdfast.audit.verify().problems == 1


# --- refused ----------------------------------------------------------------------------------------------------------


def test_a_database_that_is_in_use_is_refused_and_left_as_it_is(full: Full, url: str) -> None:
    with Holdfast.open(url, home=full.home, clock=full.clock) as holdfast:
        kept = holdfast.manager("someone", "else").add("must stay", "long_term")["memory_id"]
        with pytest.raises(ConflictError, match=r"is in use: it has rows in subjects.*nothing was changed"):
            migrate(full, url)
        assert holdfast.manager("someone", "else").get(kept)["content"] == "must stay"
        assert "copying" not in tables_of(url)


def test_a_store_that_was_only_opened_counts_as_empty(full: Full, url: str) -> None:
    with Holdfast.open(url, home=full.home, clock=full.clock):
        pass
    migrate(full, url)
    assert_same(full, url)


def test_half_a_copy_of_another_store_is_refused(full: Full, url: str, tmp_path: Path, clock: FakeClock) -> None:
    with pytest.raises(DeathError):
        migrate(full, url, show=die_at(30), batch=2)
    another = tmp_path / "another"
    with Holdfast.open(home=another, clock=clock) as holdfast:
        holdfast.manager("ann", "travel").add("of another store", "long_term")
    with pytest.raises(ConflictError, match=r"unfinished copy of .*holdfast\.db; finish that"):
        migrate(full, url, source=f"sqlite:///{another / 'holdfast.db'}")
    assert migrate(full, url).begun.is_resumed
    assert_same(full, url)


def test_looking_at_a_target_changes_nothing(full: Full, url: str) -> None:
    assert check_target(settings_of(full).url, url) is None
    assert tables_of(url) == set()
    with pytest.raises(DeathError):
        migrate(full, url, show=die_at(30), batch=2)
    assert check_target(settings_of(full).url, url) == str(full.home / "holdfast.db")


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("sqlite:///elsewhere.db", "invalid_settings", "not into SQLite"),
        ("mysql://root:secret@host/db", "invalid_settings", "is not understood"),
        ("postgresql://user:secret@127.0.0.1:1/db", "store_away", "does not answer"),
        ("postgresql://user:secret@127.0.0.1:port/db", "invalid_settings", "is not understood"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused(full: Full, target: str, code: str, words: str) -> None:
    with pytest.raises(HoldfastError, match=words) as refused:
        check_target(settings_of(full).url, target)
    assert refused.value.code == code
    assert "secret" not in str(refused.value)


def test_a_source_that_is_not_there_is_not_made(full: Full, url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="there is no store at"):
        migrate(full, url, source=f"sqlite:///{tmp_path / 'nothing.db'}")
    assert not (tmp_path / "nothing.db").exists()
    with pytest.raises(InvalidInputError, match="is not understood"):
        migrate(full, url, source="mongodb://host/db")


def test_a_store_is_not_copied_into_itself(full: Full, url: str) -> None:
    with Holdfast.open(url, home=full.home, clock=full.clock):
        pass
    with pytest.raises(InvalidInputError, match="both the source and the target"):
        migrate(full, url, source=url)
    with Holdfast.open(url, home=full.home, clock=full.clock):
        pass
