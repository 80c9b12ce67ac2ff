"""Backups on the command line: made, listed, verified, restored and rotated."""

from __future__ import annotations

import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.shell import Shell, program, read_terminal
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.backups.catalog import Backup
from holdfast.edges.cli.operations.backups import _together


@pytest.fixture
def kept(shell: Shell) -> Shell:
    """A home with some of Alice's memories and one of Bob's."""
    with Holdfast.open(home=shell.home) as engine:
        alice = engine.manager("alice", "travel_agent", "s1")
        alice.add_many(["Likes tea", "Lives in Paris"], "long_term")
        alice.add("Speaks plainly", "persona")
        alice.short_term.add_message("user", "Hello")
        engine.manager("bob", "travel_agent").add("Likes coffee", "long_term")
    return shell


def lose(shell: Shell, user_id: str) -> str:
    """Remove a memory of a user for good; its id."""
    clock = FakeClock(datetime.now(UTC))
    with Holdfast.open(home=shell.home, clock=clock) as engine:
        memory = engine.manager(user_id, "travel_agent", "s1")
        lost = str(memory.list_memories("long_term")[0]["memory_id"])
        memory.delete(lost)
        clock.now += timedelta(days=16)
        engine.recycle.purge()
    return lost


# --- making and listing -----------------------------------------------------------------------------------------------


def test_a_backup_is_made_and_listed(kept: Shell) -> None:
    assert kept.ok("backup", "list") == "No backup has been made yet; make one with: holdfast backup create\n"
    said = kept.ok("backup", "create")
    made = kept.json("backup", "create", "--kind", "persona")

    assert "4 memories of 2 users (every kind)" in said
    assert (made["kinds"], made["memories"], made["good"]) == (["persona"], 1, None)
    first, second = kept.json("backup", "list")
    assert (second["id"], first["memories"], first["users"]) == (made["id"], 4, 2)
    listed = kept.ok("backup", "list")
    assert listed.splitlines()[0].split()[:3] == ["backup", "made", "kinds"]
    assert first["id"] in listed
    assert "not tried yet" in listed
    assert kept.json("backup", "create", "--full")["written"] > kept.json("backup", "create")["written"]


def test_kinds_that_are_never_backed_up_are_refused(kept: Shell) -> None:
    code, error = kept.error("backup", "create", "--kind", "working")
    assert (code, "never backed up" in error["message"]) == (2, True)
    assert kept.error("backup", "create", "--kind", "nonsense")[0] == 2


def test_what_is_wrong_with_a_backup_ends_with_exit_code_3(kept: Shell) -> None:
    made = kept.json("backup", "create")["id"]
    check = kept.json("backup", "verify", "latest")
    assert (check["good"], check["restored"], check["memories"]) == (True, False, 4)
    assert f"holdfast backup verify {made} --restore" in kept.ok("backup", "verify", made)
    assert kept.json("backup", "list")[0]["good"] is None
    assert kept.ok("backup", "verify", "latest", "--restore").startswith("Good: restored on trial and compared")
    assert "good (" in kept.ok("backup", "list")
    (segment,) = (kept.home / "backups" / "segments").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    found = kept("backup", "verify", "latest")

    assert found.exit_code == 3
    assert "DAMAGED" in found.stdout
    assert "not as it was written" in " ".join(found.stdout.split())
    assert kept("backup", "verify", made, "--json").exit_code == 3
    assert "not as it was written" in str(kept.json("backup", "list"))
    _, error = kept.error("backup", "restore", "latest", "--yes")
    assert error["code"] == "not_found", "it is known to be damaged"
    assert "not as it was written" in error["message"]


def test_what_is_not_there_is_said_plainly(kept: Shell) -> None:
    for words in (("verify", "latest"), ("restore", "latest")):
        code, error = kept.error("backup", *words)
        assert (code, error["code"]) == (1, "not_found")
        assert "holdfast backup create" in error["message"]
    kept.ok("backup", "create")
    assert kept.error("backup", "verify", "nonsense")[1]["code"] == "not_found"
    assert kept.error("backup", "restore", "latest", "--memory", "x")[0] == 2


def test_backups_that_no_key_is_known_of_are_told_to_be_so(kept: Shell) -> None:
    kept.ok("backup", "create")
    (kept.home / "keys").rename(kept.home / "elsewhere")
    for words in (("verify", "latest"), ("restore", "latest")):
        code, error = kept.error("backup", *words)
        assert (code, error["code"]) == (1, "keyring")
        assert "belongs to keyring" in error["message"]
        assert "HOLDFAST_STATE_URL" in error["message"]
    assert not (kept.home / "keys").exists(), "no other key was made"


def test_what_there_is_one_of_is_said_so(shell: Shell) -> None:
    with Holdfast.open(home=shell.home) as engine:
        engine.manager("alice", "travel_agent").add("Likes tea", "long_term")
    assert "1 memory of 1 user (every kind)" in shell.ok("backup", "create")
    assert "1 memory of 1 user," in shell.ok("backup", "verify", "latest")
    lose(shell, "alice")
    said = shell.ok("backup", "restore", "latest", "--yes").splitlines()
    assert said[0].endswith(": 1 user.")
    assert said[2].split() == ["memories", "brought", "back", "1"]


# --- restoring --------------------------------------------------------------------------------------------------------


def test_a_lost_machine_is_restored_from_the_latest_backups_together(kept: Shell, tmp_path: Path) -> None:
    daily = ("long_term", "episodic", "entity", "structured")
    kept.ok("backup", "create", *(word for kind in daily for word in ("--kind", kind)))
    kept.ok("backup", "create", "--kind", "persona")
    elsewhere = Shell(tmp_path / "elsewhere")
    elsewhere.home.mkdir()
    for folder in ("backups", "keys"):
        (kept.home / folder).rename(elsewhere.home / folder)

    first, second = elsewhere.json("backup", "restore", "latest")

    assert (first["whole"], first["memories"], first["messages"]) == (True, 3, 1)
    assert (second["whole"], second["kinds"], second["memories"]) == (False, ["persona"], 1)
    assert len(elsewhere.json("search", "tea", "-u", "alice")) == 2
    assert elsewhere.json("audit", "verify")["ok"]


def test_what_one_user_lost_comes_back_when_someone_has_said_yes(kept: Shell) -> None:
    made = kept.json("backup", "create")["id"]
    lost, also = lose(kept, "alice"), lose(kept, "bob")
    code, error = kept.error("backup", "restore", made, "--user", "alice")
    assert (code, error["code"]) == (4, "confirmation_needed")
    assert kept("backup", "restore", "latest").exit_code == 4, "nobody can be asked"
    assert kept("get", lost, "-u", "alice").exit_code == 1

    said = kept.ok("backup", "restore", made, "--user", "alice", "--yes")

    assert "Restored what was missing" in said
    assert "memories brought back" in said
    assert kept("get", lost, "-u", "alice", "-a", "travel_agent").exit_code == 0
    assert kept("get", also, "-u", "bob", "-a", "travel_agent").exit_code == 1
    (one,) = kept.json("backup", "restore", made, "--user", "bob", "--memory", also, "--yes")
    assert one["memories"] == 1
    assert "memories that were there already" in kept.ok("backup", "restore", made, "--yes")


def test_a_memory_in_the_recycle_bin_is_left_there_and_pointed_to(kept: Shell) -> None:
    made = kept.json("backup", "create")["id"]
    with Holdfast.open(home=kept.home) as engine:
        memory = engine.manager("alice", "travel_agent", "s1")
        (own,) = memory.list_memories("persona")
        memory.delete(own["memory_id"])
    asked = ("backup", "restore", made, "--user", "alice", "--memory", own["memory_id"], "--yes")

    (one,) = kept.json(*asked)
    assert (one["memories"], one["kept"], one["binned"]) == (0, 0, 1)
    said = kept.ok(*asked)
    assert "there already" not in said
    assert "Restored" not in said
    way = f"holdfast recycle restore --memory {own['memory_id']} --user alice"
    assert f"The recycle bin has 1 of them: {way}\n" in said
    kept.ok(*way.split()[1:])
    assert "memories that were there already" in kept.ok(*asked)


def test_what_is_overwritten_was_not_missing(kept: Shell) -> None:
    made = kept.json("backup", "create")["id"]
    said = kept.ok("backup", "restore", made, "--user", "alice", "--overwrite", "--yes")
    assert said.startswith(f"Restored what it holds from backup {made}")


def on_terminal(home: Path, *args: str, answer: str = "") -> tuple[int, str]:
    """The exit code of a command on a terminal, and what it shows there beside its answer."""
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    env = {**os.environ, "HOLDFAST_HOME": str(home), "TERM": "dumb"}
    done = subprocess.run(
        [program(), *args], env=env, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, timeout=60, check=False
    )
    os.close(theirs)
    shown = read_terminal(ours)
    return done.returncode, shown


def test_on_a_terminal_it_says_what_would_be_brought_back_and_asks(kept: Shell) -> None:
    code, shown = on_terminal(kept.home, "backup", "create", "--kind", "long_term")
    assert code == 0, shown
    (made,) = kept.json("backup", "list")
    lost = lose(kept, "alice")

    code, asked = on_terminal(kept.home, "backup", "restore", "latest", answer="n\n")

    assert "The store is in use: what is missing of everyone would be brought back from" in asked
    assert made["id"] in asked
    assert code == 1, asked
    assert kept("get", lost, "-u", "alice", "-a", "travel_agent").exit_code == 1


def test_the_latest_backups_together_have_each_kind_once() -> None:
    def made(name: str, *kinds: str, problem: str | None = None) -> Backup:
        return Backup(name, "2026-01-01", kinds, 1, 1, 1, 1, "", None, None, problem)

    daily = ("entity", "episodic", "long_term", "structured")
    found = [
        made("a", *daily),
        made("b", "persona"),
        made("c", *daily, "persona"),
        made("d", "persona"),
        made("e", *daily),
        made("f", "persona", problem="damaged"),
        made("g", "entity"),
        Backup("h", "", (), 0, 0, 0, 0, "", False, None, "damaged"),
    ]

    assert [one.id for one in _together(found)] == ["e", "d"]
    assert [one.id for one in _together(found[:3])] == ["c"]
    assert [one.id for one in _together(found[1:2])] == ["b"]
    assert _together(found[-1:]) == []


# --- rotating ---------------------------------------------------------------------------------------------------------


def test_a_rotation_says_what_it_did(kept: Shell) -> None:
    old = FakeClock(datetime.now(UTC) - timedelta(days=40))
    with Holdfast.open(home=kept.home, clock=old) as engine:
        first = engine.backups.create().id
    kept.ok("backup", "create")
    assert "no later one is good" in kept.ok("backup", "rotate")
    kept.ok("backup", "verify", "latest", "--restore")
    kept.ok("erase", "bob", "--yes")

    done = kept.json("backup", "rotate")

    assert (done["removed"], done["kept"], len(done["rewritten"])) == ([first], [], 1)
    assert done["objects"] > 0
    assert kept.ok("backup", "rotate") == "Removed 0 objects that no backup refers to.\n"


def test_a_backup_that_is_dated_ahead_is_named_passed_over_and_removed_by_hand(kept: Shell) -> None:
    with Holdfast.open(home=kept.home, clock=FakeClock(datetime.now(UTC) + timedelta(days=2))) as engine:
        ahead = engine.backups.create().id
    assert kept.json("backup", "rotate", "--confirm")["ahead"] == [ahead]
    assert "dated later than now: left alone" in kept.ok("backup", "rotate")
    assert "dated later" in kept.ok("backup", "list")
    right = kept.json("backup", "create")["id"]
    assert kept.json("backup", "verify", "latest", "--restore")["id"] == right
    code, error = kept.error("backup", "remove", ahead)
    assert (code, error["code"]) == (4, "confirmation_needed")
    assert f"Removed backup {ahead}." in kept.ok("backup", "remove", ahead, "--confirm")
    assert kept.error("backup", "remove", right, "--confirm")[1]["code"] == "confirmation_needed"
    assert kept.json("backup", "remove", right, "--confirm", "--even-last")["removed"] == [right]


def test_a_clock_behind_what_a_sweep_has_seen_must_be_confirmed(kept: Shell) -> None:
    with Holdfast.open(home=kept.home, clock=FakeClock(datetime.now(UTC) + timedelta(days=2))) as engine:
        engine.sweep()
    for verb in ("rotate", "create"):
        code, error = kept.error("backup", verb)
        assert (code, error["code"]) == (4, "clock")
    kept.ok("backup", "create", "--confirm")
    kept.ok("backup", "create")
