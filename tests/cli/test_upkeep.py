"""The audit chain, the schedule and the metrics on the command line."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

import raw
from cli.shell import Shell, program, use_until_now
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.edges.cli.app import log_on_stderr
from holdfast.edges.cli.governance import schedule
from holdfast.edges.cli.options import read_usage
from holdfast.lifecycle.schedule.schedule import JOBS


def break_store(home: Path, statement: str) -> None:
    with Holdfast.open(home=home) as engine:
        raw.run(engine, statement)


# --- the audit chain --------------------------------------------------------------------------------------------------


def test_the_tail_shows_what_happened_the_newest_last_without_naming_users(shell: Shell) -> None:
    assert shell.ok("audit", "tail") == "The audit chain is empty.\n"
    memory_id = shell.ok("add", "Likes tea", "-u", "alice", "-q").strip()
    shell.ok("delete", memory_id, "-u", "alice")
    shell.ok("restore", memory_id, "-u", "alice")
    entries = shell.json("audit", "tail", "-n", "2")
    assert [entry["action"] for entry in entries] == ["recycled", "restored"]
    shown = shell.ok("audit", "tail", "--user", "alice")
    assert memory_id in shown
    assert "alice" not in shown
    assert shell.json("audit", "tail", "--user", "bob") == []
    assert shell.error("audit", "tail", "-n", "-1")[0] == 2


def test_a_whole_chain_is_verified_and_sealed(shell: Shell) -> None:
    shell.ok("hold", "add", "-u", "alice", "--reason", "Case 4711")
    assert shell.ok("audit", "seal").startswith("Checkpoint 1 seals 1 entry of 1 chain")
    assert shell.json("audit", "verify") == {
        "ok": True, "chains": 1, "entries": 1, "checkpoints": 1, "problems": 0, "findings": [],
    }  # fmt: skip
    assert shell.ok("audit", "verify") == "Whole: 1 entry of 1 chain, 1 checkpoint.\n"


def test_a_broken_chain_ends_with_3_and_says_what_is_wrong(shell: Shell) -> None:
    shell.ok("hold", "add", "-u", "alice", "--reason", "Case 4711")
    break_store(shell.home, "UPDATE audit SET entry = replace(entry, 'hold.added', 'hold.adder')")
    broken = shell("audit", "verify")
    assert broken.exit_code == 3
    assert "BROKEN: 1 problem " in broken.stdout
    told = shell("audit", "verify", "--json")
    assert told.exit_code == 3
    said = json.loads(told.stdout)
    assert (said["ok"], len(said["findings"])) == (False, 1)
    assert said["findings"][0]["problem"] in broken.stdout


def test_a_store_that_was_set_back_is_sealed_only_with_a_reason(shell: Shell) -> None:
    shell.ok("hold", "add", "-u", "alice", "--reason", "Case 4711")
    shell.ok("audit", "seal")
    break_store(shell.home, "DELETE FROM audit_checkpoints")
    break_store(shell.home, "DELETE FROM sealed")
    assert shell("audit", "verify").exit_code == 3
    assert shell.error("audit", "seal")[1]["code"] == "conflict"
    assert shell.error("audit", "seal", "--accept", " ")[0] == 2
    assert "Checkpoint" in shell.ok("audit", "seal", "--accept", "Restored the backup of Monday")
    assert shell.ok("audit", "verify").startswith("Whole")


# --- the schedule -----------------------------------------------------------------------------------------------------


def test_the_schedule_lists_every_job_with_and_without_a_command(shell: Shell) -> None:
    said = shell.json("schedule")
    assert [job["name"] for job in said["jobs"]] == [job.name for job in JOBS]
    assert [job["name"] for job in shell.json("schedule", "list")["jobs"]] == [job.name for job in JOBS]
    shown, again = shell.ok("schedule"), shell.ok("schedule", "list")
    assert "Nothing has run yet" in shown
    assert shown.splitlines()[0].split()[-1] == "what"
    assert "sweeps" in said["jobs"][0]
    assert "0 3 * * *" in shown
    assert [line.split()[0] for line in again.splitlines()] == [line.split()[0] for line in shown.splitlines()]
    *first, last = (job.name for job in JOBS)
    named = f"{', '.join(first)} or {last}"
    assert get_args(read_usage(schedule.set_job).params[0].annotation)[1].help == f"The job: {named}."


def test_a_job_is_set_disabled_and_put_back(shell: Shell) -> None:
    row = shell.json("schedule", "set", "daily", "--cron", "30 4 * * *", "--timezone", "Europe/Berlin")
    assert (row["cron"], row["timezone"], row["enabled"]) == ("30 4 * * *", "Europe/Berlin", True)
    assert "disabled" in shell.ok("schedule", "set", "daily", "--disable")
    assert shell.json("schedule")["jobs"][3]["enabled"] is False
    row = shell.json("schedule", "set", "daily", "--cron", "default", "--timezone", "default", "--enable")
    assert (row["cron"], row["timezone"], row["enabled"]) == ("0 3 * * *", "UTC", True)


@pytest.mark.parametrize(
    "given",
    [
        ("set", "daily"),
        ("set", "nonsense", "--enable"),
        ("set", "daily", "--cron", "whenever"),
        ("set", "daily", "--timezone", "Mars/Olympus"),
        ("set", "daily", "--enable", "--disable"),
        ("run", "nonsense"),
    ],
    ids=" ".join,
)
def test_a_schedule_that_makes_no_sense_is_wrong_input(shell: Shell, given: tuple[str, ...]) -> None:
    code, error = shell.error("schedule", *given)
    assert (code, error["code"]) == (2, "invalid_input")


def test_a_group_that_lists_takes_its_options_before_its_commands_too(shell: Shell) -> None:
    assert shell.json("schedule", "--tenant", "acme") == shell.json("schedule", "--tenant", "acme", "list")
    code, error = shell.error("schedule", "--tenant", "a/b", "list")
    assert (code, error["code"]) == (2, "invalid_scope")


def test_running_once_runs_what_is_due_and_ends(shell: Shell) -> None:
    assert shell.ok("schedule", "run", "--once") == "Nothing is due.\n"
    with Holdfast.open(home=shell.home, clock=FakeClock(datetime.now(UTC) - timedelta(days=8))) as engine:
        engine.manager("alice", "cli").add("Likes tea")
    break_store(shell.home, "UPDATE jobs SET since = since - 8 * 86400 * 1000000")
    done = shell.json("schedule", "run", "--once")
    assert [one["name"] for one in done["ran"]] == [job.name for job in JOBS]
    assert all(one["error"] is None for one in done["ran"])
    shown = shell.ok("schedule")
    assert "Nothing has run yet" not in shown
    assert "nothing due" in shown


def test_a_job_that_fails_ends_with_1_and_says_why(shell: Shell) -> None:
    shell.ok("hold", "add", "-u", "alice", "--reason", "Case 4711")
    shell.ok("audit", "seal")
    shell.ok("schedule", "run", "--once")
    break_store(shell.home, "DELETE FROM audit_checkpoints")
    break_store(shell.home, "INSERT INTO jobs (name, since) VALUES ('daily', 0) ON CONFLICT DO UPDATE SET since = 0")
    with Holdfast.open(home=shell.home) as engine:
        engine.manager("alice", "cli").add("Likes tea")
    failed = shell("schedule", "run", "--once")
    assert failed.exit_code == 1
    assert "failed: nothing was sealed" in failed.stdout
    assert failed.stderr == ""
    assert "failed: nothing was sealed" in shell.ok("schedule")


def test_one_job_runs_by_hand(shell: Shell, home: Path) -> None:
    with Holdfast.open(home=home, clock=FakeClock(datetime.now(UTC) - timedelta(days=100))) as engine:
        engine.manager("alice", "cli").episodic.record_episode("Book a flight", ["booked"])
    use_until_now(home)
    assert shell.ok("schedule", "run", "episodes") == "episodes: 1 archived.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: str(number.name))
def test_serving_goes_on_until_a_signal_ends_it(home: Path, number: signal.Signals) -> None:
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    command = [str(program()), "schedule", "run"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert server.stdout is not None
        assert server.stderr.readline().startswith("Running jobs when they are due")
        server.send_signal(number)
        assert server.wait(timeout=60) == 0
        assert server.stdout.read() == f"Ended by {number.name}.\n"
        assert server.stderr.read() == ""


def test_what_a_served_job_has_to_say_is_one_line_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    with log_on_stderr(schedule._Lines(), logging.INFO):
        problem = ValueError("two\nlines")
        logging.getLogger("holdfast.schedule").error("the job %s failed", "daily", exc_info=problem)
        logging.getLogger("holdfast.latency").warning("slow")
    logging.getLogger("holdfast.schedule").warning("not heard any more")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("20")
    assert line.endswith("error: the job daily failed: ValueError: two lines")


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_are_printed_as_prometheus_reads_them_or_as_json(shell: Shell) -> None:
    memory_id = shell.ok("add", "Likes tea", "-u", "alice", "-q").strip()
    shell.ok("delete", memory_id, "-u", "alice")
    assert 'memory_deleted_total{memory_type="long_term",reason="user"} 1.0' in shell.ok("metrics").splitlines()
    families = {family["name"]: family for family in shell.json("metrics")}
    assert families["memory_deleted"]["samples"][0]["value"] == 1
    assert families["memory_age_days"]["type"] == "histogram"


def test_a_job_that_backs_up_says_what_it_made_and_tried(shell: Shell) -> None:
    shell.ok("add", "Likes tea", "--user", "alice")
    made = shell.ok("schedule", "run", "backup")
    (backup,) = shell.json("backup", "list")
    assert f"made backup {backup['id']} (1 memory)" in made
    assert "restored 1 backup on trial" in shell.ok("schedule", "run", "backup_trial")


def test_a_job_that_found_nothing_to_do_is_not_logged(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    with Holdfast.open(home=shell.home, clock=clock) as engine, caplog.at_level(logging.INFO, "holdfast.schedule"):
        engine.schedule.run_due()
        clock.advance(minutes=5)
        assert "minutely" in [run["name"] for run in engine.schedule.run_due()]
        assert "the job minutely ran" not in caplog.text
        clock.advance(days=1)
        engine.schedule.run_due()
        assert "the job backup ran" in caplog.text, "it has made one"
