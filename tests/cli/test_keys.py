"""Keys on the command line: made, listed, checked, changed."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from cli.shell import Shell, run
from holdfast import Holdfast
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.keys.master import new_master_text
from holdfast.privacy.keys.signatures import read_public
from holdfast.storage.objects import open_objects

NOW = 1_768_478_400_000_000
ANN, BOB = "a" * 32, "b" * 32


@pytest.fixture
def keyed(shell: Shell) -> Shell:
    """A home with the keys of two users, and one to sign with."""
    shell.home.mkdir()
    for who in (ANN, BOB):
        Keyring(open_objects(shell.home.as_uri()), "", shell.home / "keys" / "master.key").ensure(who, now=NOW)
    shell.ok("key", "rotate", "--signing")
    return shell


def test_a_new_master_key_is_32_random_bytes(shell: Shell) -> None:
    first, second = (run("key", "new", home=shell.home).stdout for _ in range(2))

    assert first != second
    assert len(base64.b64decode(first.strip(), validate=True)) == 32
    assert not shell.home.exists(), "nothing was opened for it"


def test_keys_are_listed_by_pseudonym_and_never_shown(keyed: Shell) -> None:
    found = keyed.json("key", "list")

    assert [(one["purpose"], one["id"]) for one in found[:2]] == [("data", ANN), ("data", BOB)]
    assert found[2]["purpose"] == "signing"
    assert {len(one["master"]) for one in found} == {16}
    assert ANN in keyed.ok("key", "list")
    assert len(keyed.json("key", "list", "-n", "1")) == 1
    master = (keyed.home / "keys" / "master.key").read_text().strip()
    assert master not in keyed.ok("key", "list")


def test_a_home_without_keys_has_none(shell: Shell) -> None:
    assert shell.ok("key", "list") == "There are no keys yet.\n"
    assert shell.json("key", "check") == {"ok": True, "keys": 0, "wrong": []}
    assert shell.error("key", "public")[1]["code"] == "not_found"
    assert shell.error("key", "rotate")[1]["code"] == "not_found"
    assert not shell.home.exists()


def test_a_check_says_which_keys_the_master_key_does_not_open(keyed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "opens every key (3)" in keyed.ok("key", "check")
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", new_master_text())

    result = keyed("key", "check")
    assert result.exit_code == 3
    assert ANN in result.stdout
    assert len(json.loads(keyed("key", "check", "--json").stdout)["wrong"]) == 3


def test_the_master_key_is_changed_in_its_file(keyed: Shell) -> None:
    file = keyed.home / "keys" / "master.key"
    before = file.read_text()
    done = keyed.json("key", "rotate")

    assert (done["rewrapped"], done["left"], done["file"], done["next"]) == (3, [], str(file), None)
    assert file.read_text() != before
    assert not file.with_name("master.key.old").exists()
    assert keyed.json("key", "check")["ok"]
    assert {one["master"] for one in keyed.json("key", "list")} == {done["master"]}
    assert "Keep a copy" in keyed.ok("key", "rotate")


def test_a_change_that_was_cut_short_is_gone_on_with(keyed: Shell) -> None:
    file = keyed.home / "keys" / "master.key"
    (keyed.home / "keys" / "master.key.old").write_text(file.read_text())
    file.write_text(new_master_text())
    assert keyed.json("key", "check")["ok"], "both are there meanwhile"

    assert keyed.json("key", "rotate")["rewrapped"] == 3
    assert not file.with_name("master.key.old").exists()
    assert keyed.json("key", "check")["ok"]


def test_the_master_key_is_changed_to_one_that_is_given(
    keyed: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new.key"
    new.write_text(new_master_text() + "\n")
    shown = keyed.ok("key", "rotate", "--new", f"file:{new}")

    assert f"set HOLDFAST_MASTER_KEY=file:{new}" in " ".join(shown.split())
    assert keyed("key", "check").exit_code == 3, "the old one is of no use any more"
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", f"file:{new}")
    assert keyed.json("key", "check")["ok"]
    text = new_master_text()
    assert text not in keyed.ok("key", "rotate", "--new", text)
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", text)
    assert keyed.json("key", "check")["ok"]


def test_the_file_that_a_link_leads_to_is_changed_and_the_link_stays(
    keyed: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, link = tmp_path / "secrets" / "real.key", tmp_path / "run" / "master.key"
    for path in (real, link):
        path.parent.mkdir()
    (keyed.home / "keys" / "master.key").rename(real)
    link.symlink_to(real)
    before = real.read_text()
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", f"file:{link}")

    assert keyed.json("key", "rotate")["file"] == str(real)

    assert link.is_symlink()
    assert real.read_text() != before
    assert keyed.json("key", "check")["ok"]
    assert [path.name for path in real.parent.iterdir() if path.suffix != ".lock"] == ["real.key"]
    (tmp_path / "run" / "other.key").symlink_to(real)
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", f"file:{tmp_path / 'run' / 'other.key'}")
    assert keyed.json("key", "check")["ok"], "a link that is made anew leads to the new key"


def test_lost_keys_are_abandoned_only_if_that_is_confirmed(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.ok("add", "Likes tea", "--user", "alice")
    shell.ok("backup", "create")
    assert "opens every key" in shell.ok("key", "abandon")
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", new_master_text())

    code, error = shell.error("key", "abandon")

    assert (code, error["code"]) == (4, "confirmation_needed")
    assert "backups: 1, cold objects: 0" in error["message"]
    assert shell.error("backup", "create")[1]["code"] == "master_key"
    assert "Set aside 1 key of users, the one of the store, the one that signs." in shell.ok(
        "key", "abandon", "--confirm"
    )
    shell.ok("backup", "create")
    assert shell.json("backup", "verify", "latest", "--restore")["good"]
    assert shell.json("key", "check")["ok"]


@pytest.mark.parametrize("new", ["", "short", "file:/no/such/file", "command:false", "aGVsbG8="])
def test_what_is_no_master_key_changes_nothing(keyed: Shell, new: str) -> None:
    code, error = keyed.error("key", "rotate", "--new", new)

    assert code in (1, 2)
    assert "--new" in error["message"]
    assert keyed.json("key", "check")["ok"]


def test_a_key_that_is_not_in_a_file_can_only_be_changed_to_one_that_is_given(
    keyed: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", (keyed.home / "keys" / "master.key").read_text().strip())
    code, error = keyed.error("key", "rotate")

    assert (code, error["code"]) == (2, "invalid_input")
    assert "--new" in error["message"]


def test_the_wrong_master_key_changes_nothing(keyed: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.key"
    wrong.write_text(new_master_text())
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", f"file:{wrong}")
    before = wrong.read_text()

    for given in ((), ("--new", new_master_text())):
        code, error = keyed.error("key", "rotate", *given)
        assert (code, error["code"]) == (1, "master_key")
    assert wrong.read_text() == before
    monkeypatch.delenv("HOLDFAST_MASTER_KEY")
    assert keyed.json("key", "check")["ok"]


def test_what_cannot_be_opened_is_named_and_left(keyed: Shell) -> None:
    (path,) = (keyed.home / "keys").rglob(f"{ANN}.json")
    path.write_text("nonsense")
    result = keyed("key", "rotate")

    assert result.exit_code == 3
    assert f"stayed as before:\n  {ANN}" in result.stdout
    assert "damaged" in keyed.ok("key", "list")
    assert keyed.home.joinpath("keys", "master.key.old").exists() is False


def test_an_open_engine_goes_on_while_the_master_key_is_changed_in_its_file(shell: Shell) -> None:
    with Holdfast.open(home=shell.home) as engine:
        key = engine.keyring.ensure(ANN, now=NOW)
        shell.ok("key", "rotate")
        assert engine.keyring.get(ANN) == key
        engine.keyring.ensure(BOB, now=NOW)
    assert shell.json("key", "check") == {"ok": True, "keys": 2, "wrong": []}


def test_the_public_half_is_handed_out(keyed: Shell) -> None:
    said = keyed.json("key", "public")
    old = said["id"]

    assert keyed.ok("key", "public") == said["public"]
    assert len(read_public(said["public"])) == 32
    assert keyed.json("key", "rotate", "--signing")["signing_key"] != old
    assert keyed.json("key", "public", old) == said, "that of an older key, too"
    assert keyed.error("key", "public", "nonsense")[1]["code"] == "not_found"
    assert keyed.error("key", "rotate", "--signing", "--new", "x")[0] == 2
