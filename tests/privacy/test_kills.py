"""Killed with no warning before any effect of erasing, backing up, rotating or restoring: it is made good."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from homes import Homes
from lifecycle.soundness import check_sound
from privacy.backups.losses import lose, remember, rows_in
from privacy.sentinels import Sentinel
from retain import Retain

HERE = Path(__file__).parent
STATE = ("keys", "ledger", "erased", "certificates", "backups", "archive")


class Victims:
    """Processes that are killed."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", str(HERE / "victims.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def kill(self, home: Path, clock: FakeClock, at: int, do: str, **options: Any) -> bool:
        """Whether a process that does something was killed before an effect; else it came to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"home": str(home), "now": clock.now.isoformat(), "at": at, "do": do, "with": options}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        assert said in (True, False), said
        return bool(said)

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    made = Victims()
    yield made
    made.close()


@pytest.fixture(scope="module")
def engine_name() -> str:
    return "sqlite"


def test_an_erasure_that_is_killed_anywhere_is_made_good(homes: Homes, clock: FakeClock, victims: Victims) -> None:
    before, sentinel = homes.new("before"), Sentinel()
    with Retain.open(home=before, clock=clock) as retain:
        retain.manager("bob", "guide").add("Likes tea", "long_term")
        sentinel.plant(retain, clock)
        backup = retain.backups.create().id
    killed = 0
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "erase", user_id=sentinel.user_id):
        with Retain.open(home=home, clock=clock) as retain:
            begun = [entry.key for entry in retain.ledger.entries()]
            certified = {one["subject"] for one in retain.certificates.list()}
            assert certified == set(begun), f"opening finished it, killed before effect {killed}"
            assert not retain.erase_user(sentinel.user_id).pending
            assert retain.manager("bob", "guide").count_memories("long_term") == 1
            assert retain.audit.verify()
            (alias,) = {entry.key for entry in retain.ledger.entries()}
            assert {one["subject"] for one in retain.certificates.list()} == {alias}
            assert retain.ledger.is_carried_out(alias)
            checked = retain.backups.verify(backup, restore=True)
            assert (checked.problems, checked.erased) == ((), 1)
        assert sentinel.hits(homes, home) == [], f"killed before effect {killed}"
        for name in ("retain.db", "retain.db-wal", "retain.db-shm"):
            (home / name).unlink(missing_ok=True)
        with Retain.open(home=home, clock=clock, new_store=True) as retain:
            assert retain.backups.restore(backup).whole
            assert retain.manager("bob", "guide").count_memories("long_term") == 1
            assert retain.manager(sentinel.user_id, "guide").count_memories("long_term") == 0
        assert sentinel.hits(homes, home) == [], f"restored after being killed before effect {killed}"
        homes.remove(home)
        killed += 1
    assert killed > 10


def test_a_backup_that_is_killed_anywhere_leaves_those_before_it_whole(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    home = homes.new()
    with Retain.open(home=home, clock=clock) as retain:
        remember(retain, "ann")
        first = retain.backups.create().id
    killed = 0
    while victims.kill(home, clock, killed, "backup"):
        with Retain.open(home=home, clock=clock) as retain:
            listed = [one.id for one in retain.backups.list()]
            assert first in listed
            assert all(retain.backups.verify(one, restore=True) for one in listed), "none, or a whole one"
        killed += 1
    assert killed >= 3
    with Retain.open(home=home, clock=clock) as retain:
        assert len(retain.backups.list()) >= 2
        retain.backups.rotate()
        assert all(retain.backups.verify(one.id, restore=True) for one in retain.backups.list())
        makers = {path.name.rpartition("-")[0] for path in (home / "backups" / "segments").iterdir()}
        assert makers == {one.id for one in retain.backups.list()}, "what was left of the others is gone"


def test_a_rotation_that_is_killed_anywhere_keeps_every_backup_whole(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    before = homes.new("before")
    with Retain.open(home=before, clock=clock) as retain:
        for user_id in ("ann", "bob", "eve"):
            remember(retain, user_id)
        retain.backups.create()
        retain.manager("bob", "guide").add("one more", "long_term")
        retain.backups.create()
        alias = str(retain.erase_user("ann").alias)
    killed = 0
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "rotate"):
        with Retain.open(home=home, clock=clock) as retain:
            assert [bool(retain.backups.verify(one.id, restore=True)) for one in retain.backups.list()] == [True, True]
            retain.backups.rotate()
            assert [retain.backups.verify(one.id).erased for one in retain.backups.list()] == [0, 0]
        files = [path for path in (home / "backups").rglob("*") if path.is_file()]
        assert not [path for path in files if alias.encode() in path.read_bytes()], "nothing is sealed for her any more"
        homes.remove(home)
        killed += 1
    assert killed > 5


def test_a_restore_that_is_killed_anywhere_is_finished_by_the_next(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    before = homes.new("before")
    with Retain.open(home=before, clock=clock) as retain:
        kept = remember(retain, "ann")
        wanted = {table: rows_in(retain, table, "ann") for table in ("records", "facts", "history")}
        backup = retain.backups.create()
        lose(retain, clock, "ann", *kept.values())
    killed = 0
    options: dict[str, Any] = {"backup_id": backup.id, "user_id": "ann"}
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "restore", **options):
        with Retain.open(home=home, clock=clock) as retain:
            retain.backups.restore(**options)
            ids = {row[0] for row in _ids(retain)}
            assert ids == set(kept.values()), f"killed before effect {killed}"
            assert len(rows_in(retain, "facts", "ann")) == len(wanted["facts"])
            assert rows_in(retain, "history", "ann") == wanted["history"]
            check_sound(retain)
        homes.remove(home)
        killed += 1
    assert killed >= 3


def test_a_whole_restore_that_is_killed_has_restored_all_or_nothing(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    before = homes.new("before")
    with Retain.open(home=before, clock=clock) as retain:
        kept = remember(retain, "ann")
        backup = retain.backups.create()
    for name in ("retain.db", "retain.db-wal", "retain.db-shm"):
        (before / name).unlink(missing_ok=True)
    killed = 0
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "restore", backup_id=backup.id):
        with Retain.open(home=home, clock=clock) as retain:
            assert {row[0] for row in _ids(retain)} in (set(), set(kept.values())), f"killed before effect {killed}"
            retain.backups.restore(backup.id)
            assert {row[0] for row in _ids(retain)} == set(kept.values())
        homes.remove(home)
        killed += 1
    assert killed >= 2


def _ids(retain: Retain) -> list[Any]:
    import raw

    return list(raw.rows(retain, "SELECT id FROM records"))
