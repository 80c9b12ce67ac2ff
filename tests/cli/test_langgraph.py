"""``holdfast langgraph``: a database is governed by one command, looked at, and thinned."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.shell import Shell
from clocks import FakeClock
from integrations.graphs import PLACES, Place, config_of, langgraph_time, say, talk


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A SQLite file with a thread that was idle for 31 days, one that was not, and one of nobody."""
    with PLACES["sqlite"](tmp_path) as made:
        graph = talk(made.saver)
        with langgraph_time(FakeClock(datetime.now(UTC) - timedelta(days=31))):
            say(graph, config_of("idle"), "hello")
        for number in range(5):
            say(graph, config_of("busy", "bob"), f"text {number}")
        say(graph, config_of("nobodys", None), "hello")
        yield made


def test_one_command_governs_a_database(shell: Shell, place: Place) -> None:
    file = place.url.removeprefix("sqlite:///")
    said = shell.ok("langgraph", "govern", file, "--user-from", "user_id", "--agent-from", "assistant_id")
    assert f"SQLite file {file} is governed as 'langgraph': 3 threads of 2 users." in said
    assert "nobodys: no owner can be read" in said

    assert "history" in shell.ok("sweep", "--dry-run")
    assert shell.json("sweep")["counts"]["recycle"] == 1
    assert talk(place.saver).get_state(config_of("idle")).values == {}
    (binned,) = shell.json("recycle", "list")
    assert binned["session_id"] == "idle"
    shell.ok("recycle", "restore", "--session", "idle")
    assert talk(place.saver).get_state(config_of("idle")).values != {}


def test_the_status_lists_what_is_left_alone_until_somebody_is_named_for_it(shell: Shell, place: Place) -> None:
    assert "No LangGraph database is governed" in shell.ok("langgraph", "status")
    shell.ok("langgraph", "govern", place.url)
    (found,) = shell.json("langgraph", "status")
    assert (found["threads"], found["users"], found["without_owner"]) == (3, 2, 1)
    assert [left["thread_id"] for left in found["left_alone"]] == ["nobodys"]
    assert "--unowned-as" in shell.ok("langgraph", "status")
    named = shell.ok("langgraph", "govern", place.url, "--unowned-as", "service")
    assert "Without an owner: 1 thread, now of user service." in named
    assert "nobodys" not in shell.ok("langgraph", "status")


def test_thinning_is_asked_for_and_leaves_what_is_held(shell: Shell, place: Place) -> None:
    assert "No LangGraph database is governed" in shell.ok("langgraph", "thin", "--keep-last", "2")
    shell.ok("langgraph", "govern", place.url)
    shell.ok("hold", "add", "--session", "idle", "--reason", "a dispute")
    said = shell.ok("langgraph", "thin", "--keep-last", "2")
    assert "langgraph: 1 thread thinned by" in said
    assert shell.json("langgraph", "status")[0]["thinned"] == 1
    assert "of thread busy." in shell.ok("langgraph", "restore", "busy")
    code, error = shell.error("langgraph", "restore", "busy")
    assert (code, error["message"]) == (1, "no earlier checkpoints of thread 'busy' are in the recycle bin")
    assert "Holds keep 1 thread whole." in said
    assert shell.json("langgraph", "thin", "--keep-last", "2", "--name", "another") == []
    code, error = shell.error("langgraph", "thin", "--keep-last", "0")
    assert (code, error["code"]) == (2, "invalid_input")


def test_a_database_that_is_released_is_nobody_s_concern_any_more(shell: Shell, place: Place) -> None:
    shell.ok("langgraph", "govern", place.url)
    shell.ok("sweep")
    code, error = shell.error("langgraph", "release", "langgraph")
    assert (code, error["code"]) == (4, "confirmation_needed")
    assert "1 sessions, or earlier states of some, are in the recycle bin" in error["message"]
    assert "is not governed any more" in shell.ok("langgraph", "release", "langgraph", "--confirm")
    assert "No LangGraph database is governed" in shell.ok("langgraph", "status")
    assert shell.error("langgraph", "release", "langgraph")[1]["code"] == "not_found"


def test_a_database_that_is_none_of_langgraph_is_refused(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty.db").write_bytes(b"")
    for url, code, words in (
        (str(tmp_path / "empty.db"), "not_a_store", "no table 'checkpoints'"),
        (str(tmp_path / "missing.db"), "store_unavailable", "there is no SQLite file"),
        ("mysql://somewhere/threads", "invalid_input", "sqlite:///… or postgresql://…"),
    ):
        _, error = shell.error("langgraph", "govern", url)
        assert error["code"] == code
        assert words in error["message"]
    assert shell.json("langgraph", "status") == []
