"""The doctor on backups: whether there are any, how old, whether they are good, and where their keys lie."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.examining import examine, leave_settings
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.backups.service import DAILY, WEEKLY
from holdfast.health import doctor
from holdfast.privacy.keys.master import new_master_text
from holdfast.storage.objects.urls import read_place


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_settings(tmp_path, monkeypatch)


def make(home: Path, *days_ago: tuple[Iterable[str], int], tried: bool = True) -> list[str]:
    """Make backups of some kinds, so many days ago; their ids."""
    made: list[str] = []
    for kinds, days in days_ago:
        with Holdfast.open(home=home, clock=FakeClock(datetime.now(UTC) - timedelta(days=days))) as engine:
            if not made:
                engine.manager("alice", "cli").add("Likes tea", "long_term")
            made.append(engine.backups.create(kinds).id)
            if tried:
                assert engine.backups.verify(made[-1], restore=True)
    return made


def test_a_store_that_was_never_backed_up_is_a_warning(home: Path) -> None:
    with Holdfast.open(home=home) as engine:
        engine.manager("alice", "cli").add("Likes tea")
    code, checks = examine("--home", str(home))
    assert (code, checks["backups"]["status"]) == (0, "warning")
    assert "no backup was ever made" in checks["backups"]["detail"]
    assert "holdfast backup create" in checks["backups"]["fix"]
    assert "keys" not in checks


@pytest.mark.parametrize(
    ("daily", "weekly", "said"),
    [
        (1, 7, None),
        (3, 7, "the newest of the other kinds is 3 days old"),
        (1, 9, "the newest of persona is 9 days old"),
        (1, None, "there is none of persona"),
    ],
)
def test_backups_that_are_too_old_are_a_warning(home: Path, daily: int, weekly: int | None, said: str | None) -> None:
    make(home, *([] if weekly is None else [(WEEKLY, weekly)]), (DAILY, daily))
    _, checks = examine("--home", str(home))
    assert checks["backups"]["status"] == ("ok" if said is None else "warning")
    assert (said or "the newest is of") in checks["backups"]["detail"]


def test_backups_that_were_never_tried_are_a_warning_and_damaged_ones_a_failure(home: Path) -> None:
    made, _ = make(home, (DAILY, 0), (WEEKLY, 0), tried=False)
    _, checks = examine("--home", str(home))
    assert (checks["backups"]["status"], made in checks["backups"]["detail"]) == ("warning", True)
    assert "--restore" in checks["backups"]["fix"]

    (segment,) = (path for path in (home / "backups" / "segments").iterdir() if made in path.name)
    segment.write_bytes(b"damaged")
    with Holdfast.open(home=home) as engine:
        assert not engine.backups.verify(made)
    code, checks = examine("--home", str(home))
    assert (code, checks["backups"]["status"]) == (3, "failed")
    assert f"something is wrong with {made}" in checks["backups"]["detail"]

    (home / "backups" / "backups" / made / "manifest.json").write_bytes(b"{}")
    code, checks = examine("--home", str(home))
    assert (code, checks["backups"]["status"]) == (3, "failed")
    assert "is damaged" in checks["backups"]["detail"]
    assert "--full" in checks["backups"]["fix"]


def test_backups_of_an_unknown_keyring_are_not_to_be_made_anew(home: Path) -> None:
    make(home, (None, 0))  # type: ignore[arg-type]
    (home / "keys").rename(home / "elsewhere")
    code, checks = examine("--home", str(home))
    assert (code, checks["backups"]["status"]) == (3, "failed")
    assert "which this store's keyring does not know" in checks["backups"]["detail"]
    assert checks["backups"]["fix"] == "name the keyring that belongs to it in HOLDFAST_STATE_URL"
    assert "master_key" not in checks, "there is no key that one should open"


def test_a_master_key_that_is_lost_or_another_is_a_failed_check(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(home, (None, 0))  # type: ignore[arg-type]
    _, checks = examine("--home", str(home))
    assert checks["master_key"]["status"] == "ok"

    file = home / "keys" / "master.key"
    right = file.read_text()
    file.unlink()
    code, checks = examine("--home", str(home))
    assert (code, checks["master_key"]["status"]) == (3, "failed")
    assert "the master key is missing" in checks["master_key"]["detail"]
    assert f"put the file {file} back" in checks["master_key"]["fix"]
    assert "or set HOLDFAST_MASTER_KEY" in checks["master_key"]["fix"]
    assert not file.exists(), "none was made"

    for wrong, said in ((new_master_text(), "was wrapped with master key"), ("nonsense", "is no master key")):
        monkeypatch.setenv("HOLDFAST_MASTER_KEY", wrong)
        code, checks = examine("--home", str(home))
        assert (code, checks["master_key"]["status"]) == (3, "failed")
        assert said in checks["master_key"]["detail"]
        assert "HOLDFAST_MASTER_KEY" in checks["master_key"]["fix"]
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", right.strip())
    assert examine("--home", str(home))[1]["master_key"]["status"] == "ok"


def test_a_master_key_is_also_missed_where_only_a_signing_key_is_wrapped(home: Path) -> None:
    with Holdfast.open(home=home) as engine:
        engine.manager("alice", "cli").add("Likes tea", "long_term")
        engine.erase_user("alice")
    (home / "keys" / "master.key").unlink()
    _, checks = examine("--home", str(home))
    assert checks["master_key"]["status"] == "failed"


def test_a_wrapped_key_that_is_damaged_is_a_failed_check(home: Path) -> None:
    make(home, (None, 0))  # type: ignore[arg-type]
    for path in (home / "keys").glob("[0-9a-f][0-9a-f]/*.json"):
        path.write_text("{}")
    _, checks = examine("--home", str(home))
    assert checks["master_key"]["status"] == "failed"
    assert "copy of the keyring" in checks["master_key"]["fix"]


def test_keys_on_the_disk_of_the_backups_are_a_warning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(home, (None, 0))  # type: ignore[arg-type]
    code, checks = examine("--home", str(home))
    assert (code, checks["keys"]["status"]) == (0, "warning")
    assert "on the same disk" in checks["keys"]["detail"]
    assert "HOLDFAST_BACKUP_URL" in checks["keys"]["fix"]


def test_buckets_are_told_apart_by_their_names_and_disks_by_their_devices(tmp_path: Path) -> None:
    pairs = [
        ("s3://one/backups", "s3://one/state", True),
        ("s3://one/backups", "s3://two/state", False),
        ("s3://one/backups", "gs://one/state", False),
        (tmp_path.as_uri(), "s3://one/state", False),
        (f"{tmp_path.as_uri()}/a", f"{tmp_path.as_uri()}/b/c", True),
        (f"{tmp_path.as_uri()}/a", "file:///dev/holdfast", False),
    ]
    for one, other, shared in pairs:
        assert doctor._is_same_disk(read_place(one), read_place(other)) is shared, (one, other)


def test_a_place_that_does_not_answer_or_cannot_be_written_is_a_failed_check(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for url in (f"{tmp_path.as_uri()}/file/backups", "ftp://nowhere/backups"):
        monkeypatch.setenv("HOLDFAST_BACKUP_URL", url)
        code, checks = examine("--home", str(home))
        assert (code, checks["backups"]["status"]) == (3, "failed"), url
        assert "HOLDFAST_BACKUP_URL" in checks["backups"]["fix"]
