"""``holdfast export``: everything that is held on a person, from the command line."""

from __future__ import annotations

import io
import json
import secrets
import subprocess
import zipfile
from pathlib import Path

import pytest

from cli.shell import Shell, program, run
from clocks import FakeClock
from holdfast import Holdfast


def fill(shell: Shell, user: str = "alice") -> None:
    shell.ok("add", "Likes tea", "-u", user)
    shell.ok("add", "Hello", "-k", "short_term", "-u", user, "-a", "helpdesk", "-s", "s1")
    shell.ok("hold", "add", "-u", user, "--reason", "Case 4711")


def contents(archive: Path | bytes) -> list[str]:
    source = io.BytesIO(archive) if isinstance(archive, bytes) else archive
    with zipfile.ZipFile(source) as opened:
        return [json.loads(line)["content"] for line in opened.read("memories/long_term.jsonl").splitlines()]


def test_the_zip_is_written_where_it_is_wanted_and_told_of(shell: Shell, tmp_path: Path) -> None:
    fill(shell)
    file = tmp_path / "alice.zip"
    said = shell.ok("export", "alice", "--to", str(file))
    assert contents(file) == ["Likes tea"]
    assert f"Written to {file}" in said
    for words in ("long term", "short term", "conversations", "holds"):
        assert words in said
    done = shell.json("export", "alice", "--to", str(file))
    assert done["memories"]["long_term"] == 1
    assert (done["conversations"], done["holds"], done["incomplete"]) == (1, 1, 0)
    assert done["file"] == str(file)


def test_without_a_name_the_zip_is_written_here_under_a_name_that_is_safe(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell.ok("add", "Likes tea", "-u", "../al ice/x")
    shell.ok("export", "../al ice/x")
    assert contents(tmp_path / "export-.._al_ice_x.zip") == ["Likes tea"]


def test_json_alone_is_the_whole_export_as_one_document(shell: Shell) -> None:
    fill(shell)
    said = shell.json("export", "alice")
    assert [*said][:3] == ["user_id", "export_date", "memories"]
    assert [line["content"] for line in said["memories"]["long_term"]] == ["Likes tea"]
    assert [message["content"] for message in said["conversations"][0]["messages"]] == ["Hello"]
    assert [hold["reason"] for hold in said["holds"]] == ["Case 4711"]


def test_a_pipe_gets_the_zip_and_nothing_else(shell: Shell) -> None:
    fill(shell)
    done = subprocess.run(
        [program(), "export", "alice", "--to", "-", "--home", str(shell.home)],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert contents(done.stdout) == ["Likes tea"]
    assert done.stderr == b""


def test_whoever_has_seen_enough_of_the_zip_sees_no_traceback(shell: Shell) -> None:
    noise = secrets.token_hex(2**20)  # more than a pipe holds, however it is compressed
    shell.ok("add", noise, "-u", "alice")
    command = [str(program()), "export", "alice", "--to", "-", "--home", str(shell.home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(2) == b"PK"
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode != 0


def test_the_export_of_a_user_whom_nobody_knows_fails_and_writes_nothing(shell: Shell, tmp_path: Path) -> None:
    shell.ok("add", "Likes tea", "-u", "alice")
    for options in (("--to", str(tmp_path / "nobody.zip")), ("--to", "-"), ("--json",)):
        result = shell("export", "nobody", *options)
        assert result.exit_code == 1
        assert "user 'nobody' of tenant 'default' does not exist" in result.stderr
        assert result.stdout == ""
    assert list(tmp_path.glob("*.zip*")) == []


def test_what_could_not_be_read_is_told_of(shell: Shell, tmp_path: Path) -> None:
    clock = FakeClock()
    with Holdfast.open(home=shell.home, clock=clock) as engine:
        engine.manager("alice", "a").add("She likes tea with milk. " * 50)
        clock.advance(days=366)
        engine.sweep(confirm=True)
    for path in (shell.home / "archive").rglob("*"):
        if path.is_file():
            path.unlink()
    said = shell.ok("export", "alice", "--to", str(tmp_path / "alice.zip"))
    assert "Only a part of 1 memory could be read" in said
    (shell.home / "archive").rename(tmp_path / "away")
    (tmp_path / "alice.zip").unlink()
    code, error = shell.error("export", "alice", "--to", str(tmp_path / "alice.zip"))
    assert (code, error["code"], error["retryable"]) == (75, "object_store_unavailable", True)
    assert not (tmp_path / "alice.zip").exists()


def test_wrong_usage_ends_with_2(shell: Shell, tmp_path: Path) -> None:
    assert shell.error("export", "alice", "--to", "-")[0] == 2
    assert shell.error("export", "alice", "--to", str(tmp_path))[0] == 2
    assert shell.error("export", "alice", "--to", str(tmp_path / "no" / "a.zip"))[0] == 2
    assert shell.error("export", "*")[0] == 2
    assert run("export", home=shell.home).returncode == 2
