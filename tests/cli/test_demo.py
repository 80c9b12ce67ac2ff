"""The tour: it shows what it promises, in a place of its own, without waiting where nobody watches."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from holdfast.core.records import TYPES
from holdfast.edges.cli.app import app
from holdfast.edges.cli.stage import Stage
from holdfast.edges.cli.tour import STOPS, take


def test_the_tour_shows_every_stop_and_never_touches_the_users_store(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{home}/mine.db")
    monkeypatch.setenv("HOLDFAST_EMBEDDER", "openai:none@http://127.0.0.1:9/v1")
    monkeypatch.setenv("COLUMNS", "100")
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert not home.exists()
    shown = result.stdout
    for kind in TYPES:
        assert kind in shown
    for said in (
        "Enjoys skiing and mountain views",
        "QuotaExceededError: quota for long_term memories of user 'bob' exceeded",
        "2 oldest went to the recycle bin",
        "deleted ",
        "restored  █████ 1.00  The door code of the chalet is 4711",
        "(is_compressed: True) and came back the same",
        "Maria works at Acme    2023-02-01  2025-06-01",
        "Maria works at Globex  2025-06-01  now",
        "The night train leaves at 21:40",
        "until removed; cold after 365 days",
        "90 days in full, 365 days in all",
        "1 hour after the last message",
        "episodic    recycle        2  365 days after it ended, by the default for episodic",
        "91 days later  archived  Looked for another flight",
        "10 days later  The spare key is under the blue pot  deleted by the user          5",
        "1 came back: The spare key is under the blue pot",
        "is on hold and was not deleted",
        "A hold keeps it until it is released: Case 4711.",
        "This episodic memory is archived. It is to be moved to the recycle bin on",
        "refused        a hold stands",
        "the chain is whole",
        "390  ███   3 (2 archived)",
        "the same as what it holds",
        "1 user of yesterday's backup cannot be read any more",
        "is signed, and is genuine",
        "p95",
        "from holdfast import MemoryManager",
    ):
        assert said in shown
    assert "NOT" not in shown
    assert "\x1b" not in shown


def test_its_help_says_how_many_stops_there_are() -> None:
    shown = CliRunner().invoke(app, ["demo", "--help"])
    assert f"tour in {len(STOPS)} stops" in " ".join(shown.stdout.split())


def test_on_a_terminal_the_tour_has_frames_and_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    measured = take(Stage(screen, pause_seconds=0.5), str(tmp_path))
    assert isinstance(screen.file, io.StringIO)
    assert "╭" in screen.file.getvalue()
    assert pauses.count(0.5) == len(STOPS)
    assert measured["stops"] == [title for title, _ in STOPS]
    assert {"operation", "memory_type", "count", "p50_ms", "p95_ms"} <= measured["latencies"][0].keys()
