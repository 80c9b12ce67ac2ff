"""The tour: it shows what it promises, in a place of its own, without waiting where nobody watches."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from holdfast.core.records import TYPES
from holdfast.demo import Tour
from holdfast.edges.cli.app import app
from holdfast.edges.cli.operations import doctor


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
    shown = " ".join(result.stdout.split())
    for kind in TYPES:
        assert kind in shown
    for number, stop in enumerate(Tour.stops, start=1):
        assert f"{number}. {stop.__doc__}" in shown
    for said in (
        "long_term Enjoys skiing and mountain views 365 days never",
        "episodic Moved the dinner to Friday because of rain 90 days 365 days",
        "short_term I would rather fly in the morning never 1 h",
        "Is allergic to peanuts and shellfish",
        "Adores spicy noodles from street stalls",
        "QuotaExceededError: quota for long_term memories of user 'bob' exceeded",
        "2 oldest went to the recycle bin",
        "A deleted memory is out of recall at once, and in the recycle bin for 15 days.",
        "it has 5 days left, and comes back whole: The door code of the chalet is 4711",
        "Maria works at Acme 2023-02-01 2025-06-01",
        "Maria works at Globex 2025-06-01 now",
        "91 days later archived Looked for another flight",
        "is on hold and was not deleted",
        "A hold keeps it until it is released: Case 4711.",
        "365 days after it ended, by the default for episodic",
        "0 5 (0 archived) nothing",
        "390 4 (2 archived)",
        "the same as what it holds",
        "1 user of the backup cannot be read any more",
        "is signed, and is genuine",
        "entries and is whole",
        "p95",
        "from holdfast import MemoryManager",
    ):
        assert said in shown, said
    assert "NOT" not in shown
    assert "\x1b" not in result.stdout


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stop of the tour, for tests of how it is shown."""
    monkeypatch.setattr(Tour, "stops", Tour.stops[:1])


@pytest.mark.usefixtures("short")
def test_on_a_terminal_the_tour_has_frames_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(doctor, "console", lambda: screen)
    assert CliRunner().invoke(app, ["demo"]).exit_code == 0
    assert isinstance(screen.file, io.StringIO)
    assert "╭" in screen.file.getvalue()
    assert pauses.count(1.2) == len(Tour.stops)


@pytest.mark.usefixtures("short")
def test_for_a_program_the_tour_is_what_it_measured() -> None:
    measured = json.loads(CliRunner().invoke(app, ["demo", "--json"]).stdout)
    assert measured["stops"] == [stop.__doc__ for stop in Tour.stops]
    assert {"operation", "memory_type", "count", "p50_ms", "p95_ms"} <= measured["latencies"][0].keys()
