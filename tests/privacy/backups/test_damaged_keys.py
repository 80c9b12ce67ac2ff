"""A key that cannot be opened costs its user the backup, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.examining import examine
from cli.shell import Shell
from clocks import FakeClock
from holdfast import Holdfast
from homes import Homes, on_sqlite
from privacy.backups.losses import alias_of

KINDS = ["long_term"]


def damage(home: Path, pseudonym: str) -> bytes:
    """Damage the key of a user; what it was."""
    path = home / "keys" / pseudonym[:2] / f"{pseudonym}.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


@pytest.fixture
def damaged(home: Path, clock: FakeClock) -> tuple[Path, str, bytes]:
    """A home with a backup of ann and bob, both of whom wrote since, and a damaged key of ann's; whose, and what it was."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        for user in ("ann", "bob"):
            holdfast.manager(user, "guide").add(f"{user} likes tea", "long_term")
        holdfast.backups.verify(holdfast.backups.create().id, restore=True)
        clock.advance(days=1)
        for user in ("ann", "bob"):
            holdfast.manager(user, "guide").add(f"{user} likes biscuits", "long_term")
        pseudonym = alias_of(holdfast, "ann")
        assert pseudonym is not None
        return home, pseudonym, damage(home, pseudonym)


def test_one_damaged_key_does_not_stop_the_backup_of_the_others(
    damaged: tuple[Path, str, bytes], clock: FakeClock, homes: Homes
) -> None:
    home, pseudonym, whole = damaged
    with Holdfast.open(home=home, clock=clock) as holdfast:
        made = holdfast.backups.create()
        assert (made.users, made.memories, made.left_out) == (1, 2, (pseudonym,))
        assert f"without 1 user, whose keys are damaged or not opened by the master key ({pseudonym})" in str(
            made.problem
        )
        assert holdfast.backups.get(made.id).left_out == (pseudonym,)
        assert holdfast.backups.verify(made.id, restore=True), "what is in it is good"
        done = holdfast.backups.restore(made.id, user_id="bob")
        assert done.kept == 2
        path = home / "keys" / pseudonym[:2] / f"{pseudonym}.json"
        path.write_bytes(whole)
        again = holdfast.backups.create()
        assert (again.users, again.left_out, again.problem) == (2, (), None)


def test_a_backup_without_someone_lets_no_older_one_go(damaged: tuple[Path, str, bytes], clock: FakeClock) -> None:
    home, _, _ = damaged
    with Holdfast.open(home=home, clock=clock) as holdfast:
        (first,) = holdfast.backups.list()
        lacking = holdfast.backups.create()
        assert holdfast.backups.verify(lacking.id, restore=True)
        clock.advance(days=31)
        assert holdfast.backups.rotate().kept[0] == first.id
        assert first.id in {one.id for one in holdfast.backups.list()}, "it alone has what ann wrote"


def test_the_schedule_says_who_is_not_in_a_backup(damaged: tuple[Path, str, bytes], clock: FakeClock) -> None:
    home, pseudonym, _ = damaged
    with Holdfast.open(home=home, clock=clock) as holdfast:
        clock.advance(days=1)
        holdfast.schedule.run_due(clock())
        (job,) = [row for row in holdfast.schedule.list() if row["name"] == "backup"]
        assert job["last_result"] is not None
        assert job["last_result"]["left_out"] == [pseudonym]


@on_sqlite
def test_the_command_and_doctor_say_who_is_not_in_a_backup(home: Path) -> None:
    shell = Shell(home)
    for user in ("ann", "bob"):
        shell.ok("add", f"{user} likes tea", "--user", user)
    shell.ok("backup", "create")
    with Holdfast.open(home=home) as holdfast:
        pseudonym = alias_of(holdfast, "ann")
    assert pseudonym is not None
    damage(home, pseudonym)
    shell.ok("add", "ann likes biscuits", "--user", "ann")

    result = shell("backup", "create", "--json")

    assert result.exit_code == 3
    assert json.loads(result.stdout)["left_out"] == [pseudonym]
    shown = shell("backup", "create")
    assert shown.exit_code == 3
    assert "NOT EVERYONE is in it" in shown.stdout
    code, checks = examine("--home", str(home))
    assert code == 3
    assert checks["backups"]["status"] == "failed"
    assert pseudonym in checks["backups"]["detail"]
