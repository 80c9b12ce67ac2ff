"""The doctor: finds what is broken, says what to do, survives it, and changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from retain import Retain
from retain.cli.app import app
from retain.health import Check, Status, check_health


def examine(*args: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code and the checks by their names."""
    result = CliRunner().invoke(app, ["doctor", "--json", *args])
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)}


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("RETAIN_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def store(home: Path) -> Path:
    with Retain.open(home=home) as engine:
        engine.manager("alice", "cli").add("Likes tea")
    return home / "retain.db"


def test_a_healthy_store_passes_every_check(home: Path, store: Path) -> None:
    code, checks = examine("--home", str(home))
    assert code == 0
    assert {check["status"] for check in checks.values()} == {"ok"}
    expected = "python settings home disk store schema journal integrity embedder summarizer"
    assert list(checks) == expected.split()
    assert "wal mode" in checks["journal"]["detail"]
    assert "256 dimensions" in checks["embedder"]["detail"]


def test_a_store_that_is_not_there_yet_is_fine_and_is_not_made(home: Path) -> None:
    code, checks = examine("--home", str(home))
    assert code == 0
    assert "not there yet" in checks["store"]["detail"]
    assert not home.exists()


def test_it_says_where_each_setting_came_from_and_hides_passwords(
    home: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "retain.toml").write_text('index_mib = 64\nsummarizer = "openai:m@http://me:secret@localhost/v1"\n')
    monkeypatch.setenv("RETAIN_BUSY_SECONDS", "7")
    _, checks = examine("--home", str(home))
    said = checks["settings"]["detail"]
    assert f"home = {home} (argument)" in said
    assert "busy_seconds = 7 (RETAIN_BUSY_SECONDS)" in said
    assert f"index_mib = 64 ({home / 'retain.toml'})" in said
    assert "embedder = static (default)" in said
    assert "secret" not in said


def test_a_file_that_is_no_store_is_a_failed_check_and_the_rest_is_still_looked_at(home: Path) -> None:
    home.mkdir()
    (home / "retain.db").write_bytes(b"nothing like a database, and long enough to be looked at " * 20)
    code, checks = examine("--home", str(home))
    assert code == 3
    assert checks["store"]["status"] == "failed"
    assert checks["store"]["fix"]
    assert checks["embedder"]["status"] == "ok"


def test_damage_inside_the_store_is_found(home: Path, store: Path) -> None:
    with Retain.open(home=home) as engine:
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
        ("RETAIN_EMBEDDER", "nonsense", "embedder"),
        ("RETAIN_EMBEDDER", "onnx:/no/such/folder", "embedder"),
        ("RETAIN_SUMMARIZER", "nonsense", "summarizer"),
        ("RETAIN_URL", "mongodb://localhost", "store"),
        ("RETAIN_INDEX_MIB", "lots", "settings"),
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


def test_a_settings_file_that_cannot_be_read_is_a_failed_check(home: Path) -> None:
    home.mkdir()
    (home / "retain.toml").write_text("colour = 'blue'")
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
from retain.health import check_health
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
    assert fine.stdout.splitlines()[-1] == "7 checks, nothing is broken."
    monkeypatch.setenv("RETAIN_EMBEDDER", "nonsense")
    broken = CliRunner().invoke(app, ["doctor", "--home", str(home)])
    assert broken.exit_code == 3
    assert "✗" in broken.stdout
    assert "what to do" in broken.stdout
    assert broken.stdout.splitlines()[-1] == "1 of 7 checks failed."


def test_checks_are_values_that_a_service_can_use(home: Path) -> None:
    first, *_ = check_health({}, home=home)
    assert isinstance(first, Check)
    assert first.status is Status.OK
    assert first.fix is None
