"""The process that runs the schedule: it ends when it is told to, and hands back what it cannot finish."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import LeaseLostError
from holdfast.edges.service.logs import LogFormat
from holdfast.edges.service.scheduler import COMMAND, _hand_back, first_line


def begun(home: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdin is not None
    process.stdin.write(first_line(str(home), None, form=LogFormat.JSON, finish_seconds=10) + "\n")
    process.stdin.flush()
    return process


def test_it_runs_what_is_due_until_its_input_ends(home: Path) -> None:
    long_ago = FakeClock()
    with Holdfast.open(home=home, clock=long_ago) as holdfast:
        holdfast.schedule.enrol()  # its slots have been waiting since
        holdfast.manager("alice", "agent").add("Likes tea")
        holdfast.policies.set("long_term", delete_after_days=0.5, confirm=True)
    with begun(home) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        lines = [json.loads(process.stderr.readline()) for _ in range(2)]
        _, rest = process.communicate(timeout=30)
    assert process.returncode == 0
    assert any("the job minutely ran" in line["message"] for line in lines), rest
    with Holdfast.open(home=home) as holdfast:
        jobs = {job["name"]: job for job in holdfast.schedule.list()}
        recycled = [entry["actor"] for entry in holdfast.audit.tail(20) if entry["action"] == "recycled"]
    assert recycled == ["schedule"]
    assert jobs["minutely"]["last_finished"] is not None
    assert not any(job["running"] for job in jobs.values())


def test_a_store_that_cannot_be_opened_is_told_and_ends_it(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_bytes(b"no database" * 1_000)
    with begun(tmp_path) as process:
        out, said = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    (line,) = map(json.loads, said.splitlines())
    assert (line["message"], line["code"]) == ("the schedule cannot be run", "not_a_store")


def test_a_sweep_that_is_handed_back_ends_at_its_next_batch_and_the_next_one_goes_on(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("alice", "agent")
    memory.add_many([f"note {n}" for n in range(600)])
    holdfast.policies.set("long_term", delete_after_days=1, confirm=True)
    clock.advance(days=2)
    stop, done, moved = threading.Event(), threading.Event(), [0]
    stop.set()

    def hand_back_once(count: int) -> None:
        moved[0] += count
        if holdfast.schedule.lease is not None and moved[0] == count:
            _hand_back(holdfast, stop, done, seconds=0)

    with pytest.raises(LeaseLostError, match="released"):
        holdfast.sweep(confirm=True, progress=hand_back_once)
    assert 0 < moved[0] < 600
    report = holdfast.sweep(confirm=True)
    assert report.counts["recycle"] == 600 - moved[0]
    assert memory.count_memories() == 0


def test_nothing_is_handed_back_if_nothing_runs(holdfast: Holdfast) -> None:
    stop = threading.Event()
    stop.set()
    _hand_back(holdfast, stop, threading.Event(), seconds=0)
    assert holdfast.schedule.lease is None
