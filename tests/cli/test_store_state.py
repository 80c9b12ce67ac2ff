"""Commands where a store was lost, or belongs to another keyring."""

from __future__ import annotations

from pathlib import Path

import pytest

import databases
from cli.examining import examine
from cli.shell import Shell


@pytest.fixture
def lost(shell: Shell) -> Shell:
    """A home with a backup whose store is gone."""
    shell.ok("add", "Likes tea", "--user", "alice")
    shell.ok("backup", "create")
    for path in shell.home.glob("holdfast.db*"):
        path.unlink()
    return shell


def test_a_lost_store_is_not_replaced_by_an_empty_one(lost: Shell) -> None:
    (made,) = [path.name for path in (lost.home / "backups" / "backups").iterdir()]
    for words in (("add", "Likes coffee", "--user", "alice"), ("backup", "create"), ("serve", "--check")):
        code, error = lost.error(*words)
        assert (code, error["code"]) == (1, "store_lost"), words
        assert made in error["message"]
        assert "holdfast backup restore latest" in error["message"]
    assert not list(lost.home.glob("holdfast.db*"))


def test_a_lost_store_is_restored(lost: Shell) -> None:
    assert len(lost.json("backup", "list")) == 1
    lost.ok("backup", "verify", "latest", "--restore")
    code, error = lost.error("add", "Likes coffee", "--user", "alice")
    assert (code, error["code"]) == (1, "store_lost"), "looking at backups makes no store that could be used"
    lost.ok("backup", "restore", "latest")
    assert [one["content"] for one in lost.json("search", "tea", "--user", "alice")] == ["Likes tea"]


def test_one_may_begin_with_an_empty_store_by_saying_so(lost: Shell) -> None:
    lost.ok("--new-store", "add", "Likes coffee", "--user", "alice")
    assert [one["content"] for one in lost.json("search", "coffee", "--user", "alice")] == ["Likes coffee"]


def test_an_empty_store_that_was_begun_on_request_is_whole(shell: Shell) -> None:
    shell.ok("add", "Likes tea", "--user", "alice")
    shell.ok("audit", "seal")
    for path in shell.home.glob("holdfast.db*"):
        path.unlink()
    shell.ok("--new-store", "add", "Likes coffee", "--user", "alice")
    assert shell.json("audit", "verify")["ok"]
    shell.ok("audit", "seal")


def test_the_service_begins_with_an_empty_store_by_saying_so(lost: Shell) -> None:
    lost.ok("--new-store", "serve", "--check", "--port", "0")
    lost.ok("add", "Likes coffee", "--user", "alice")


def test_doctor_knows_a_store_that_was_lost(lost: Shell) -> None:
    code, checks = examine("--home", str(lost.home))
    assert (code, checks["store"]["status"]) == (3, "failed")
    assert "held memories" in checks["store"]["detail"]
    lost.ok("backup", "list")
    code, checks = examine("--home", str(lost.home))
    assert (code, checks["store"]["status"]) == (3, "failed"), "a look at the backups made no store"


def test_doctor_knows_a_home_with_another_keyring(shell: Shell, tmp_path: Path) -> None:
    shell.ok("add", "Likes tea", "--user", "alice")
    shell.ok("backup", "create")
    other = tmp_path / "other"
    code, checks = examine("--home", str(other), "--url", f"sqlite:///{shell.home / 'holdfast.db'}")
    assert (code, checks["keyring"]["status"]) == (3, "failed")
    assert "HOLDFAST_STATE_URL" in checks["keyring"]["fix"]
    assert not (other / "keys").exists()


def test_doctor_warns_of_a_shared_store_with_keys_in_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = databases.take()
    try:
        _, checks = examine("--home", str(tmp_path), "--url", database.url)
        assert checks["state"]["status"] == "warning"
        assert "a folder that other machines may not see" in checks["state"]["detail"]
        assert "HOLDFAST_MASTER_KEY" in checks["state"]["fix"]
        monkeypatch.setenv("HOLDFAST_STATE_URL", "s3://bucket/state")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        _, checks = examine("--home", str(tmp_path), "--url", database.url)
        assert checks["state"]["detail"].startswith("the master key is in")
        monkeypatch.setenv("HOLDFAST_MASTER_KEY", "command:true")
        assert "state" not in examine("--home", str(tmp_path), "--url", database.url)[1]
    finally:
        databases.give_back(database)
