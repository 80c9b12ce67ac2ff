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
from holdfast import Holdfast
from homes import Homes
from lifecycle.soundness import check_sound
from privacy.backups.losses import lose, remember, rows_in
from privacy.sentinels import Sentinel

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
    with Holdfast.open(home=before, clock=clock) as holdfast:
        holdfast.manager("bob", "guide").add("Likes tea", "long_term")
        sentinel.plant(holdfast, clock)
        backup = holdfast.backups.create().id
    killed = 0
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "erase", user_id=sentinel.user_id):
        with Holdfast.open(home=home, clock=clock) as holdfast:
            begun = [entry.key for entry in holdfast.ledger.entries()]
            certified = {one["subject"] for one in holdfast.certificates.list()}
            assert certified == set(begun), f"opening finished it, killed before effect {killed}"
            assert not holdfast.erase_user(sentinel.user_id).pending
            assert holdfast.manager("bob", "guide").count_memories("long_term") == 1
            assert holdfast.audit.verify()
            (alias,) = {entry.key for entry in holdfast.ledger.entries()}
            assert {one["subject"] for one in holdfast.certificates.list()} == {alias}
            assert holdfast.ledger.is_carried_out(alias)
            checked = holdfast.backups.verify(backup, restore=True)
            assert (checked.problems, checked.erased) == ((), 1)
        assert sentinel.hits(homes, home) == [], f"killed before effect {killed}"
        for name in ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm"):
            (home / name).unlink(missing_ok=True)
        with Holdfast.open(home=home, clock=clock, new_store=True) as holdfast:
            assert holdfast.backups.restore(backup).whole
            assert holdfast.manager("bob", "guide").count_memories("long_term") == 1
            assert holdfast.manager(sentinel.user_id, "guide").count_memories("long_term") == 0
        assert sentinel.hits(homes, home) == [], f"restored after being killed before effect {killed}"
        homes.remove(home)
        killed += 1
    assert killed > 10


def test_a_backup_that_is_killed_anywhere_leaves_those_before_it_whole(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        remember(holdfast, "ann")
        first = holdfast.backups.create().id
    killed = 0
    while victims.kill(home, clock, killed, "backup"):
        with Holdfast.open(home=home, clock=clock) as holdfast:
            listed = [one.id for one in holdfast.backups.list()]
            assert first in listed
            assert all(holdfast.backups.verify(one, restore=True) for one in listed), "none, or a whole one"
        killed += 1
    assert killed >= 3
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert len(holdfast.backups.list()) >= 2
        holdfast.backups.rotate()
        assert all(holdfast.backups.verify(one.id, restore=True) for one in holdfast.backups.list())
        makers = {path.name.rpartition("-")[0] for path in (home / "backups" / "segments").iterdir()}
        assert makers == {one.id for one in holdfast.backups.list()}, "what was left of the others is gone"


def test_a_rotation_that_is_killed_anywhere_keeps_every_backup_whole(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    before = homes.new("before")
    with Holdfast.open(home=before, clock=clock) as holdfast:
        for user_id in ("ann", "bob", "eve"):
            remember(holdfast, user_id)
        holdfast.backups.create()
        holdfast.manager("bob", "guide").add("one more", "long_term")
        holdfast.backups.create()
        alias = str(holdfast.erase_user("ann").alias)
    killed = 0
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "rotate"):
        with Holdfast.open(home=home, clock=clock) as holdfast:
            assert [bool(holdfast.backups.verify(one.id, restore=True)) for one in holdfast.backups.list()] == [
                True,
                True,
            ]
            holdfast.backups.rotate()
            assert [holdfast.backups.verify(one.id).erased for one in holdfast.backups.list()] == [0, 0]
        files = [path for path in (home / "backups").rglob("*") if path.is_file()]
        assert not [path for path in files if alias.encode() in path.read_bytes()], "nothing is sealed for her any more"
        homes.remove(home)
        killed += 1
    assert killed > 5


def test_a_restore_that_is_killed_anywhere_is_finished_by_the_next(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    before = homes.new("before")
    with Holdfast.open(home=before, clock=clock) as holdfast:
        kept = remember(holdfast, "ann")
        wanted = {table: rows_in(holdfast, table, "ann") for table in ("records", "facts", "history")}
        backup = holdfast.backups.create()
        lose(holdfast, clock, "ann", *kept.values())
    killed = 0
    options: dict[str, Any] = {"backup_id": backup.id, "user_id": "ann"}
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "restore", **options):
        with Holdfast.open(home=home, clock=clock) as holdfast:
            holdfast.backups.restore(**options)
            ids = {row[0] for row in _ids(holdfast)}
            assert ids == set(kept.values()), f"killed before effect {killed}"
            assert len(rows_in(holdfast, "facts", "ann")) == len(wanted["facts"])
            assert rows_in(holdfast, "history", "ann") == wanted["history"]
            check_sound(holdfast)
        homes.remove(home)
        killed += 1
    assert killed >= 3


def test_a_whole_restore_that_is_killed_has_restored_all_or_nothing(
    homes: Homes, clock: FakeClock, victims: Victims
) -> None:
    before = homes.new("before")
    with Holdfast.open(home=before, clock=clock) as holdfast:
        kept = remember(holdfast, "ann")
        backup = holdfast.backups.create()
    for name in ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm"):
        (before / name).unlink(missing_ok=True)
    killed = 0
    while victims.kill(home := homes.copy(before, f"at {killed}"), clock, killed, "restore", backup_id=backup.id):
        with Holdfast.open(home=home, clock=clock) as holdfast:
            assert {row[0] for row in _ids(holdfast)} in (set(), set(kept.values())), f"killed before effect {killed}"
            holdfast.backups.restore(backup.id)
            assert {row[0] for row in _ids(holdfast)} == set(kept.values())
        homes.remove(home)
        killed += 1
    assert killed >= 2


def _ids(holdfast: Holdfast) -> list[Any]:
    import raw

    return list(raw.rows(holdfast, "SELECT id FROM records"))
