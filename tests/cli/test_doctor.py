"""The doctor: finds what is broken, says what to do, survives it, and changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

import raw
from cli.examining import examine, leave_settings
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.backups.service import DAILY, WEEKLY
from holdfast.core.errors import InvalidSettingsError
from holdfast.core.records import Subject
from holdfast.edges.cli.app import app
from holdfast.health import sqlite as sqlite_health
from holdfast.health.checks import Check, Status
from holdfast.health.doctor import check_health, check_workers
from holdfast.privacy.ledger import Ledger
from holdfast.settings import read_settings
from holdfast.storage.objects import open_objects
from holdfast.storage.relational.database import migrations
from holdfast.storage.sqlite.database import APPLICATION_ID


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_settings(tmp_path, monkeypatch)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that is not there yet."""
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Path:
    with Holdfast.open(home=home) as engine:
        engine.manager("alice", "cli").add("Likes tea")
    return home / "holdfast.db"


def test_a_healthy_store_passes_every_check(home: Path, store: Path) -> None:
    with Holdfast.open(home=home) as engine:
        engine.schedule.run_due(datetime.now(UTC) + timedelta(minutes=1))
        for kinds in (DAILY, WEEKLY):
            engine.backups.verify(engine.backups.create(kinds).id, restore=True)
    code, checks = examine("--home", str(home))
    assert code == 0
    unwell = {name: check["detail"] for name, check in checks.items() if check["status"] != "ok"}
    assert list(unwell) == ["keys"], "they lie on the same disk as the backups"
    expected = (
        "python settings home disk store schema foreign_tables journal integrity clock schedule overdue audit archive "
        "master_key backups keys embedder summarizer workers"
    )
    assert list(checks) == expected.split()
    assert "wal mode" in checks["journal"]["detail"]
    assert "256 dimensions" in checks["embedder"]["detail"]


def test_a_store_that_is_not_there_yet_is_fine_and_is_not_made(home: Path) -> None:
    code, checks = examine("--home", str(home))
    assert code == 0
    assert "not there yet" in checks["store"]["detail"]
    assert not home.exists()


def test_it_says_how_many_workers_a_machine_has_room_for(home: Path) -> None:
    settings = read_settings({"HOLDFAST_INDEX_MIB": "512"}, home=home)
    (check,) = check_workers(settings, 4, 16 << 30)
    assert (check.status, check.fix) == (Status.OK, None)
    assert "--workers 4` uses all of them, with indexes of up to 2,048 MiB together of 16,384 MiB" in check.detail
    (check,) = check_workers(settings, 8, 4 << 30)
    assert check.status is Status.WARNING
    assert "HOLDFAST_INDEX_MIB" in str(check.fix)
    (check,) = check_workers(settings, 1, 0)
    assert (check.status, "of memory" in check.detail) == (Status.OK, False)


def test_it_says_where_each_setting_came_from_and_hides_passwords(
    home: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "holdfast.toml").write_text('index_mib = 64\nsummarizer = "openai:m@http://me:secret@localhost/v1"\n')
    monkeypatch.setenv("HOLDFAST_BUSY_SECONDS", "7")
    _, checks = examine("--home", str(home))
    said = checks["settings"]["detail"]
    assert f"home = {home} (argument)" in said
    assert "busy_seconds = 7 (HOLDFAST_BUSY_SECONDS)" in said
    assert f"index_mib = 64 ({home / 'holdfast.toml'})" in said
    assert "embedder = static (default)" in said
    assert "secret" not in said


def test_a_setting_can_be_read_from_a_file_that_the_environment_names(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "busy"
    secret.write_text("7\n")
    monkeypatch.setenv("HOLDFAST_BUSY_SECONDS_FILE", str(secret))
    _, checks = examine("--home", str(home))
    assert f"busy_seconds = 7 (HOLDFAST_BUSY_SECONDS_FILE ({secret}))" in checks["settings"]["detail"]
    assert "unknown" not in checks["settings"]["detail"]


@pytest.mark.parametrize(
    ("content", "also", "said"),
    [(None, None, "cannot read the file"), ("\n", None, "is empty"), ("7", "8", "are both set; leave one of them out")],
)
def test_a_file_of_a_setting_that_says_nothing_sure_is_refused(
    content: str | None, also: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "busy"
    if content is not None:
        file.write_text(content)
    environ = {"HOLDFAST_BUSY_SECONDS_FILE": str(file), "HOLDFAST_BUSY_SECONDS": also or ""}
    with pytest.raises(InvalidSettingsError, match=said):
        read_settings(environ, home=tmp_path)


def test_a_file_that_is_no_store_is_a_failed_check_and_the_rest_is_still_looked_at(home: Path) -> None:
    home.mkdir()
    (home / "holdfast.db").write_bytes(b"nothing like a database, and long enough to be looked at " * 20)
    code, checks = examine("--home", str(home))
    assert code == 3
    assert checks["store"]["status"] == "failed"
    assert checks["store"]["fix"]
    assert checks["embedder"]["status"] == "ok"


def test_a_store_of_an_older_version_is_left_as_it_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_health, "_NEWEST", sqlite_health._NEWEST + 1)
    home.mkdir()
    path = home / "holdfast.db"
    number, script = migrations("holdfast.storage.sqlite")[-1]
    connection = apsw.Connection(str(path))
    connection.execute(f"{script};PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={number}")
    connection.close()
    before = path.read_bytes()
    code, checks = examine("--home", str(home))
    assert (code, checks["schema"]["status"]) == (0, "ok")
    assert f"version {number}; the next opening brings it to" in checks["schema"]["detail"]
    assert path.read_bytes() == before


def test_damage_inside_the_store_is_found(home: Path, store: Path) -> None:
    with Holdfast.open(home=home) as engine:
        engine.manager("alice", "cli").add_many([f"Tea number {n}" for n in range(500)])
    data = bytearray(store.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 8192] = os.urandom(8192)
    store.write_bytes(data)
    code, checks = examine("--home", str(home))
    assert code == 3
    assert any(check["status"] == "failed" for name, check in checks.items() if name in ("store", "integrity"))


@pytest.mark.parametrize(
    ("variable", "value", "broken"),
    [
        ("HOLDFAST_EMBEDDER", "nonsense", "embedder"),
        ("HOLDFAST_EMBEDDER", "onnx:/no/such/folder", "embedder"),
        ("HOLDFAST_SUMMARIZER", "nonsense", "summarizer"),
        ("HOLDFAST_URL", "mongodb://localhost", "store"),
        ("HOLDFAST_INDEX_MIB", "lots", "settings"),
        ("HOLDFAST_ARCHIVE_URL", "ftp://somewhere", "archive"),
        ("HOLDFAST_ARCHIVE_URL", "file:///dev/null/archive", "archive"),
    ],
)
def test_a_setting_that_does_not_work_is_a_failed_check(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, broken: str
) -> None:
    monkeypatch.setenv(variable, value)
    code, checks = examine("--home", str(home))
    assert code == 3
    assert [name for name, check in checks.items() if check["status"] == "failed"] == [broken]
    assert checks[broken]["fix"]


# --- the lifecycle ----------------------------------------------------------------------------------------------------


def test_a_schedule_that_never_ran_is_a_warning_that_says_what_to_do(home: Path, store: Path) -> None:
    code, checks = examine("--home", str(home))
    assert code == 0
    assert checks["schedule"]["status"] == "warning"
    assert "holdfast schedule run --once" in checks["schedule"]["fix"]
    assert "holdfast serve" in checks["schedule"]["fix"], "which runs it, too"
    assert examine("--home", str(home))[1]["schedule"]["status"] == "warning", "looking enrols nothing"


def test_jobs_that_nobody_ever_ran_are_a_failed_check_once_something_waits_for_them(home: Path) -> None:
    begun = FakeClock(datetime.now(UTC) - timedelta(days=10))
    with Holdfast.open(home=home, clock=begun) as engine:
        engine.manager("alice", "cli").add("Likes tea")
    code, checks = examine("--home", str(home))
    assert (code, checks["schedule"]["status"]) == (0, "warning"), "nothing is due yet"
    with Holdfast.open(home=home, clock=begun) as engine:
        begun.advance(days=-90)
        engine.manager("alice", "cli").episodic.record_episode("Book a flight", ["booked"])
    code, checks = examine("--home", str(home))
    assert (code, checks["schedule"]["status"]) == (3, "failed")
    assert "the job episodes is overdue" in checks["schedule"]["detail"]
    assert "holdfast schedule run --once" in checks["schedule"]["fix"]


def test_what_it_says_of_a_clock_that_was_ahead_is_what_helps(home: Path) -> None:
    clock = FakeClock(datetime.now(UTC) + timedelta(days=3_650))
    with Holdfast.open(home=home, clock=clock) as engine:
        engine.manager("alice", "cli").add("Likes tea")
        engine.sweep()
        clock.advance(minutes=1)
        engine.schedule.run("daily")
    code, checks = examine("--home", str(home))
    assert (code, checks["clock"]["status"], checks["schedule"]["status"]) == (3, "failed", "failed")
    assert "sweep with --confirm" in checks["clock"]["fix"]
    assert "holdfast sweep --confirm" in checks["schedule"]["detail"]
    assert CliRunner().invoke(app, ["sweep", "--confirm", "--home", str(home)]).exit_code == 0
    code, checks = examine("--home", str(home))
    assert (code, checks["clock"]["status"], checks["schedule"]["status"]) == (0, "ok", "warning")
    assert CliRunner().invoke(app, ["sweep", "--home", str(home)]).exit_code == 0


def test_a_job_that_failed_or_waits_for_too_long_is_a_failed_check(home: Path) -> None:
    clock = FakeClock(datetime.now(UTC) - timedelta(hours=3))
    with Holdfast.open(home=home, clock=clock) as engine:
        engine.schedule.enrol()
        clock.advance(minutes=1)
        engine.schedule.run_due()
    code, checks = examine("--home", str(home))
    assert code == 3
    assert "the job minutely is overdue" in checks["schedule"]["detail"]
    with Holdfast.open(home=home) as engine:
        engine.schedule.run_due()
    assert examine("--home", str(home))[0] == 0
    with Holdfast.open(home=home) as engine:
        raw.run(engine, "UPDATE jobs SET error = 'the disk was full' WHERE name = 'minutely'")
    code, checks = examine("--home", str(home))
    assert code == 3
    assert "the disk was full" in checks["schedule"]["detail"]


def test_a_disabled_job_deserves_a_look(home: Path, store: Path) -> None:
    with Holdfast.open(home=home) as engine:
        engine.schedule.run_due(datetime.now(UTC) + timedelta(minutes=1))
        engine.schedule.set("archive", enabled=False)
    code, checks = examine("--home", str(home))
    assert (code, checks["schedule"]["status"]) == (0, "warning")
    assert "disabled: archive" in checks["schedule"]["detail"]


@pytest.mark.parametrize(("days", "status"), [(89, "ok"), (92, "ok"), (99, "warning")])
def test_what_has_waited_for_more_than_a_week_is_a_warning(home: Path, days: int, status: str) -> None:
    with Holdfast.open(home=home, tenant="acme", clock=FakeClock(datetime.now(UTC) - timedelta(days=days))) as engine:
        engine.manager("alice", "cli").episodic.record_episode("Book a flight", ["booked"])
    _, checks = examine("--home", str(home))
    assert checks["overdue"]["status"] == status
    assert ("episodic" in checks["overdue"]["detail"]) == (days > 90)


def test_a_clock_that_is_behind_the_last_sweep_is_a_failed_check(home: Path) -> None:
    with Holdfast.open(home=home, clock=FakeClock(datetime.now(UTC) + timedelta(days=1))) as engine:
        engine.sweep()
    code, checks = examine("--home", str(home))
    assert code == 3
    assert "the clock says" in checks["clock"]["detail"]


def test_an_audit_chain_that_was_set_back_is_a_failed_check(home: Path, store: Path) -> None:
    with Holdfast.open(home=home) as engine:
        engine.audit.seal()
    _, checks = examine("--home", str(home))
    assert "checkpoint 1 seals" in checks["audit"]["detail"]
    with Holdfast.open(home=home) as engine:
        raw.run(engine, "DELETE FROM audit_checkpoints")
    code, checks = examine("--home", str(home))
    assert (code, checks["audit"]["status"]) == (3, "failed")
    assert "holdfast audit verify" in checks["audit"]["fix"]


def test_cold_memories_that_cannot_be_read_are_a_failed_check(home: Path) -> None:
    clock = FakeClock(datetime.now(UTC) - timedelta(days=400))
    with Holdfast.open(home=home, clock=clock) as engine:
        for user in ("alice", "bob"):
            engine.manager(user, "cli").add("Likes tea, and has liked it for a long time. " * 20)
        assert "cold_memories" not in examine("--home", str(home))[1]
        clock.advance(days=399)
        engine.sweep()
    code, checks = examine("--home", str(home))
    assert (code, checks["cold_memories"]["detail"]) == (0, "they can be read (2 objects were opened)")

    def told_without(folder: str) -> str:
        (home / folder).rename(home / "put away")
        code, checks = examine("--home", str(home))
        (home / "put away").rename(home / folder)
        assert (code, checks["cold_memories"]["status"]) == (3, "failed")
        assert "HOLDFAST_STATE_URL" in checks["cold_memories"]["fix"]
        return str(checks["cold_memories"]["detail"])

    assert "is not in the keyring" in told_without("keys")
    assert "there is no object archive" in told_without("archive/archive")
    for key in (home / "keys").glob("*/*.json"):  # erased, and the store does not know of it yet
        Ledger(open_objects(home.as_uri())).begin(key.stem, at=0)
        key.unlink()
    assert examine("--home", str(home))[0] == 0


def test_an_erasure_that_a_hold_keeps_is_a_warning_and_names_nobody(home: Path, store: Path) -> None:
    with Holdfast.open(home=home) as engine:
        alias = str(engine.services.reader.alias(Subject("default", "alice")))
        engine.ledger.begin(alias, at=1)  # and it died
        engine.holds.add(user_id="alice", reason="Case 4711", author="legal")
    with Holdfast.open(home=home):
        pass

    code, checks = examine("--home", str(home))

    assert (code, checks["erasures"]["status"]) == (0, "warning")
    assert alias in checks["erasures"]["detail"]
    assert "alice" not in checks["erasures"]["detail"]
    assert "holdfast hold list" in checks["erasures"]["fix"]


def test_a_bucket_that_does_not_answer_is_a_failed_check(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ARCHIVE_URL", "s3://memories/cold")
    for name, value in (
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_REGION", "eu-central-1"),
    ):
        monkeypatch.setenv(name, value)
    code, checks = examine("--home", str(home))
    assert (code, checks["archive"]["status"]) == (3, "failed")
    assert checks["archive"]["fix"].startswith("try again later")


def test_looking_changes_nothing(home: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "HOLDFAST_EMBEDDER", "openai:other@http://127.0.0.1:9/v1"
    )  # a model that the store has not adopted

    def content() -> list[object]:
        connection = apsw.Connection(str(store))
        tables = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found: list[object] = [list(connection.execute(f"SELECT * FROM {name}")) for name in sorted(tables)]  # noqa: S608
        connection.close()
        return found

    def files() -> dict[str, bytes]:
        found = [path for path in home.rglob("*") if path.is_file() and not path.name.startswith("holdfast.db")]
        return {str(path): path.read_bytes() for path in found}

    before = content(), files()
    examine("--home", str(home))
    assert (content(), files()) == before
    for folder in ("archive", "backups", "keys"):
        assert not (home / folder).exists()


def test_a_settings_file_that_cannot_be_read_is_a_failed_check(home: Path) -> None:
    home.mkdir()
    (home / "holdfast.toml").write_text("colour = 'blue'")
    code, checks = examine("--home", str(home))
    assert code == 3
    assert "colour" in checks["settings"]["detail"]


def test_a_home_that_is_a_file_is_a_failed_check(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, checks = examine("--home", str(tmp_path / "file"))
    assert code == 3
    assert checks["home"]["status"] == "failed"


def test_a_home_that_cannot_be_written_is_a_failed_check() -> None:
    program = """
import os, stat, sys, tempfile
from holdfast.health.doctor import check_health, check_workers
home = tempfile.mkdtemp()
check_health({}, home=home)  # loads what somebody else may not be able to read
os.chmod(home, stat.S_IRUSR | stat.S_IXUSR)
if os.geteuid() == 0:  # the superuser may write anywhere: be somebody else
    os.chown(home, 65534, 65534)
    os.setuid(65534)
(found,) = [check for check in check_health({}, home=home) if check.name == "home"]
print(found.status, found.fix)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd="/", capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("failed make ")
    assert "chmod" in done.stdout


def test_for_people_it_is_a_table_that_ends_with_the_verdict(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = CliRunner().invoke(app, ["doctor", "--home", str(home)])
    assert fine.exit_code == 0
    assert "✓" in fine.stdout
    assert "what to do" not in fine.stdout
    assert fine.stdout.splitlines()[-1] == "10 checks, nothing is broken."
    monkeypatch.setenv("HOLDFAST_EMBEDDER", "nonsense")
    broken = CliRunner().invoke(app, ["doctor", "--home", str(home)])
    assert broken.exit_code == 3
    assert "✗" in broken.stdout
    assert "what to do" in broken.stdout
    assert broken.stdout.splitlines()[-1] == "1 of 10 checks failed."


def test_checks_are_values_that_a_service_can_use(home: Path) -> None:
    first, *_ = check_health({}, home=home)
    assert isinstance(first, Check)
    assert first.status is Status.OK
    assert first.fix is None
