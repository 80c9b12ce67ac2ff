"""Processes that configure: killed at any moment, or many at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from launcher import start_script

SCRIPT = Path(__file__).with_name("child.py")
SECONDS = 120


def start(*arguments: object) -> subprocess.Popen[str]:
    return start_script(SCRIPT, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_inv_ret_1_a_process_that_is_killed_before_any_step_leaves_the_old_policy_or_the_new_one(home: Path) -> None:
    with Holdfast.open(home=home) as holdfast:
        holdfast.domains.configure("rag", {"older_than_days": 30, "limit": 30})
    process = start("die", home)
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    seen = [json.loads(line) for line in out.splitlines()]
    pairs = [one["pair"] for one in seen]
    assert all(days == limit for days, limit in pairs), "never half of a change"
    assert [one["killed"] for one in seen] == [True] * (len(seen) - 1) + [False]
    values = [30, *(limit for _, limit in pairs)]
    grown = [after - before for before, after in pairwise(values)]
    assert set(grown) == {0, 1}, "killed early it is the old one, killed late the new one"
    assert grown.count(0) > 5
    assert grown[-1] == 1
    with Holdfast.open(home=home) as holdfast:
        holdfast.domains.configure("memory", {"limit": 3})
        assert holdfast.domains.get("rag")["limit"] == values[-1]
    assert len(list(home.rglob(".incoming/*"))) == 0, "what the killed ones left behind is gone"


@pytest.mark.parametrize("heard", [1, 9])
def test_what_was_done_before_a_process_was_killed_stays_done(home: Path, heard: int) -> None:
    process = start("count", home, "rag.limit", 10_000)
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        last = [process.stdout.readline() for _ in range(heard + 1)][-1]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()  # not communicate(), which skips what was read ahead
    finally:
        end(process)
    done = int((rest.splitlines() or [last])[-1] if rest.endswith("\n") else last)
    with Holdfast.open(home=home) as holdfast:
        assert holdfast.domains.get("rag")["limit"] in {done, done + 1}


def test_eight_processes_that_configure_at_once_lose_nothing(home: Path) -> None:
    names = ("older_than_days", "limit", "keep_session_ids", "keep_context_ids")
    fields = [f"{domain}.{name}" for domain in ("memory", "rag") for name in names]
    times = 12
    process = start("together", home, times, *fields)
    try:
        out, _ = process.communicate(timeout=SECONDS)
    finally:
        end(process)
    said = [json.loads(line) for line in out.splitlines()]
    assert said == [[0, [str(number) for number in range(1, times + 1)]]] * 8
    last = {"older_than_days": times, "limit": times, "keep_session_ids": [f"s{times}"], "keep_context_ids": [times]}
    with Holdfast.open(home=home) as holdfast:
        for domain in ("memory", "rag"):
            policy: Any = holdfast.domains.get(domain)
            assert {name: policy[name] for name in names} == last
