"""``holdfast sweep``, ``explain`` and ``rehydrate``: what is due is shown before it is done, done as shown, and told after."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.shell import Shell, program, read_terminal, use_until_now
from clocks import FakeClock
from holdfast import Holdfast


def ago(days: float) -> FakeClock:
    """A clock that stands so many days in the past (or, below 0, in the future)."""
    return FakeClock(datetime.now(UTC) - timedelta(days=days))


@pytest.fixture
def old(home: Path) -> dict[str, str]:
    """A memory and an episode of 400 days ago, an episode of 100, a memory that was deleted 20 days ago."""
    with Holdfast.open(home=home, clock=ago(400)) as engine:
        memory = engine.manager("alice", "travel_agent", "s1")
        cold = memory.add("Prefers tea to coffee", "long_term", {"topic": "contract"})["memory_id"]
        past = memory.episodic.record_episode("Book a flight", ["searched", "booked"])
    with Holdfast.open(home=home, clock=ago(100)) as engine:
        recent = engine.manager("bob", "travel_agent").episodic.record_episode("Book a train", ["looked", "booked"])
    with Holdfast.open(home=home, clock=ago(20)) as engine:
        memory = engine.manager("bob", "travel_agent")
        gone = memory.add("A typing error")["memory_id"]
        memory.delete(gone)
    use_until_now(home)
    return {"cold": cold, "past": past, "recent": recent, "gone": gone}


DUE = {("episodic", "archive"): 1, ("episodic", "recycle"): 1, ("long_term", "archive"): 1, ("long_term", "delete"): 1}


def test_a_dry_run_says_what_is_due_and_why_and_changes_nothing(shell: Shell, old: dict[str, str]) -> None:
    plan = shell.json("sweep", "--dry-run")
    assert {(line["memory_type"], line["action"]): line["records"] for line in plan["lines"]} == DUE
    assert "365 days after it was made, by the default for long_term" in [line["reason"] for line in plan["lines"]]
    assert {sample["memory_id"] for sample in plan["samples"]} == set(old.values())
    assert plan["bytes"] > 0
    shown = shell.ok("sweep", "--dry-run")
    for said in (old["cold"], "alice", "15 days in the recycle bin", "nothing was changed", "in all"):
        assert said in shown
    assert shell.json("sweep", "--dry-run")["counts"] == plan["counts"]


def test_the_command_that_a_dry_run_prints_carries_out_exactly_that_plan(shell: Shell, old: dict[str, str]) -> None:
    printed = shell.ok("sweep", "--dry-run").splitlines()[-1].strip()
    words = shlex.split(printed)
    assert words[:3] == ["holdfast", "sweep", "--digest"]
    assert words[4:] == ["--home", str(shell.home)]
    report = shell.json(*words[1:4])
    assert report["digest"] == words[3]
    assert {(line["memory_type"], line["action"]): line["records"] for line in report["lines"]} == DUE
    code, error = shell.error(*words[1:4])
    assert (code, error["code"]) == (4, "plan_changed")
    assert shell.ok("sweep") == "Nothing was due.\n"


def test_a_plan_whose_records_changed_is_refused(shell: Shell, old: dict[str, str]) -> None:
    digest = shell.json("sweep", "--dry-run")["digest"]
    shell.ok("delete", old["cold"], "-u", "alice")
    assert shell.error("sweep", "--digest", digest)[0] == 4
    assert shell.json("explain", old["gone"], "--user", "bob")["state"] == "recycled", "nothing was swept"


@pytest.mark.parametrize("at", ["+300d", "+43w", "+7200h"])
def test_a_forecast_is_made_for_a_moment_to_come_and_cannot_be_carried_out(
    shell: Shell, old: dict[str, str], at: str
) -> None:
    forecast = shell.json("sweep", "--dry-run", "--at", at)
    assert forecast["counts"]["recycle"] == 2, "the younger episode too"
    assert forecast["apply"] is None
    assert "lies ahead" in shell.ok("sweep", "--dry-run", "--at", at)
    code, error = shell.error("sweep", "--at", at)
    assert (code, error["code"]) == (2, "invalid_input")


def test_a_moment_can_be_a_date_or_in_the_past(shell: Shell, old: dict[str, str]) -> None:
    assert shell.json("sweep", "--dry-run", "--at", "2001-01-01")["counts"] == {"archive": 0, "recycle": 0, "delete": 0}
    before = shell.json("sweep", "--dry-run", "--at=-20d")
    assert before["counts"] == {"archive": 1, "recycle": 1, "delete": 0}


@pytest.mark.parametrize("at", ["soon", "+5", "+5x", "+d", "2026-13-01", "2026-01-01T10:00:00", "+99999999999d", "-"])
def test_a_moment_that_is_not_understood_is_wrong_input(shell: Shell, at: str) -> None:
    code, error = shell.error("sweep", "--dry-run", f"--at={at}")
    assert (code, error["code"]) == (2, "invalid_input")


def test_a_digest_that_is_none_or_comes_with_a_dry_run_is_wrong_input(shell: Shell) -> None:
    assert shell.error("sweep", "--digest", "nonsense")[0] == 2
    assert shell.error("sweep", "--dry-run", "--digest", "nonsense")[0] == 2


def test_sweeping_says_what_was_done_and_what_is_held(shell: Shell, old: dict[str, str]) -> None:
    shell.ok("hold", "add", "--tag", "topic=contract", "--reason", "Case 4711")
    assert "1 more are due, and kept by holds" in shell.ok("sweep", "--dry-run")
    said = shell.ok("sweep")
    assert "1 were due, and kept by holds" in said
    assert "Swept in" in said
    assert shell.json("explain", old["cold"])["state"] == "active", "kept whole"


def test_who_would_lose_much_is_set_aside_until_confirmed(shell: Shell, home: Path) -> None:
    with Holdfast.open(home=home, clock=ago(10)) as engine:
        engine.manager("alice", "a").add_many([f"Note {n}" for n in range(1_001)])
        engine.manager("bob", "b").add_many(["One", "Two"])
    shell.ok("policy", "set", "long_term", "--delete-after", "5", "--confirm")
    shown = shell.ok("sweep", "--dry-run")
    assert "Set aside" in shown
    assert "alice       1,001  1,001" in shown
    swept = shell("sweep")
    assert swept.exit_code == 0
    assert "warning: user 'alice' would lose 1,001 of 1,001 memories" in swept.stderr
    assert "set aside" in swept.stdout
    assert shell.json("sweep", "--dry-run")["set_aside"][0]["user_id"] == "alice"
    plan = shell.json("sweep", "--dry-run", "--confirm")
    assert plan["apply"].startswith(f"holdfast sweep --digest {plan['digest']} --confirm")
    assert shell.json("sweep", "--confirm")["counts"]["recycle"] == 1_001


def test_a_clock_behind_the_last_sweep_asks_first(shell: Shell, home: Path, old: dict[str, str]) -> None:
    with Holdfast.open(home=home, clock=ago(-1)) as engine:
        engine.sweep(at=datetime(2001, 1, 1, tzinfo=UTC))
    code, error = shell.error("sweep")
    assert (code, error["code"]) == (4, "clock")
    assert shell.json("sweep", "--confirm")["counts"]["archive"] == 2


def test_on_a_terminal_a_sweep_shows_its_progress(home: Path, old: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "HOLDFAST_HOME": str(home), "TERM": "xterm"}
    done = subprocess.run([program(), "sweep"], env=env, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=True)
    os.close(theirs)
    drawn = read_terminal(ours)
    assert "sweeping" in drawn
    assert "4/4" in drawn
    assert b"sweeping" not in done.stdout


# --- explain and rehydrate --------------------------------------------------------------------------------------------


def test_explain_gives_the_sentence_first_then_rule_next_move_holds_and_history(
    shell: Shell, old: dict[str, str]
) -> None:
    shell.ok("hold", "add", "--memory", old["recent"], "--reason", "Case 4711", "--author", "legal")
    first, *rest = shell.ok("explain", old["recent"]).splitlines()
    assert first.startswith("This episodic memory is active.")
    assert "A hold keeps it" in first
    told = "\n".join(rest)
    assert "after 90 days (the default for episodic)" in told
    assert "next:      archive at " in told
    assert "Case 4711 (by legal" in told
    assert shell.json("explain", old["recent"])["next"]["action"] == "archive"


def test_explain_tells_of_a_memory_that_is_gone_how_it_went_if_told_whose_it_was(
    shell: Shell, old: dict[str, str]
) -> None:
    assert "days left: deleted by the user" in shell.ok("explain", old["gone"])
    shell.ok("sweep")
    code, error = shell.error("explain", old["gone"])
    assert (code, error["code"]) == (1, "not_found")
    said = shell.json("explain", old["gone"], "--user", "bob")
    assert (said["state"], said["reason"]) == ("deleted", "deleted by the user")
    assert "recycled" in shell.ok("explain", old["gone"], "--user", "bob")


def test_explain_knows_short_term_messages_by_their_session(shell: Shell) -> None:
    scope = ("-u", "alice", "-s", "s1")
    memory_id = shell.ok("add", "Good morning", "-k", "short_term", *scope, "-q").strip()
    assert "seconds from now" in shell.ok("explain", memory_id, *scope)


@pytest.mark.parametrize("memory_id", ["nonsense", "00000000-0000-7000-8000-000000000000"])
def test_explaining_what_is_not_there_is_an_error(shell: Shell, memory_id: str) -> None:
    for more in ((), ("--user", "alice")):
        assert shell.error("explain", memory_id, *more)[1]["code"] == "not_found"


def test_a_memory_comes_back_from_cold_storage_whole(shell: Shell, old: dict[str, str]) -> None:
    shell.ok("sweep")
    assert shell.json("search", "tea", "-u", "alice") == []
    back = shell.json("rehydrate", old["cold"], "-u", "alice")
    assert (back["content"], back["is_archived"]) == ("Prefers tea to coffee", False)
    assert shell.json("search", "tea", "-u", "alice")[0]["memory_id"] == old["cold"]
    code, error = shell.error("rehydrate", old["cold"], "-u", "alice")
    assert (code, error["code"]) == (1, "conflict")
    assert shell.error("rehydrate", old["recent"], "-u", "bob", "-a", "travel_agent")[1]["code"] == "conflict"
