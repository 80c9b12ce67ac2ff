"""The comparison with peers says what was measured, what was stopped, and what failed and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.side_by_side import page, scenarios
from bench.side_by_side.data import facts, questions
from bench.side_by_side.systems import SYSTEMS, Floor, System

MEASURED = {"p50": 2.0, "p95": 3.0, "p99": 4.0, "per_second": 500.0}


@pytest.fixture
def run(tmp_path: Path) -> scenarios.Run:
    """The floor with a store that is filled."""
    (tmp_path / "store").mkdir()
    texts = [fact.text for seed in ("facts", "added") for fact in facts(300, seed)] + questions(300)
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    np.save(tmp_path / "vectors.npy", np.eye(900, 256, dtype=np.float32))
    made = scenarios.Run("floor", 300, tmp_path / "store", tmp_path)
    assert scenarios.carry_out(made, scenarios.Run.fill)["per_second"] > 0
    return made


def test_a_scenario_is_measured_or_says_why_it_is_not(run: scenarios.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scenarios.carry_out(run, scenarios.Run.recall)["p50"] > 0
    assert scenarios.carry_out(run, scenarios.Run.correct) == {"none": "it has no such verb"}

    def fails(*_arguments: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Floor, "add", fails)
    assert scenarios.carry_out(run, scenarios.Run.add) == {"failed": "OSError: the disk is full"}

    def runs_on(*_arguments: object) -> None:
        raise scenarios.StoppedError

    monkeypatch.setattr(Floor, "add", runs_on)
    assert scenarios.carry_out(run, scenarios.Run.add) == {"stopped": "over 60 s"}
    run.system.close()


def test_the_floor_finds_what_is_closest(run: scenarios.Run) -> None:
    first = facts(300)[0].text
    run.system.embed = lambda _texts: np.eye(1, 256, dtype=np.float32)  # the vector of the first
    assert run.system.recall("ann", "whatever")[0] == first
    run.system.close()


def test_a_cost_that_grows_with_the_square_has_the_exponent_two() -> None:
    assert page._exponent([(10, 3.0), (100, 300.0), (1_000, 30_000.0)]) == pytest.approx(2.0)


def test_the_page_shows_figures_failures_and_growth(tmp_path: Path) -> None:
    (tmp_path / "img").mkdir()
    whole: dict[str, Any] = dict.fromkeys(("add", "recall", "filtered", "correct", "delete", "cold_start"), MEASURED)
    whole |= {"fill": {"per_second": 9_000.0, "disk": 2_000_000}, "two_processes": {"per_second": 9.0, "lost": 3}}
    whole |= {"delete_all": {"p50": 5.0, "left": 7, "of": 200}, "expiry": {"late": None, "readable": True}}
    broken = {"versions": "mem0ai 1", "fill": {"failed": "it is not installed"}}
    slow = {**whole, "recall": {"stopped": "over 60 s"}}
    quick = {**whole, "delete": {**MEASURED, "p50": 1.0}}
    beside = {"Holdfast": whole, "mem0": broken, "Chroma": slow, "sqlite-vec by hand": quick}
    kept = {str(size): beside for size in (10_000, 1_000, 100_000)}
    kept |= {f"{size} of {size}": {"Holdfast": whole} for size in (1_000, 10_000, 100_000)}
    kept |= {f"1000 of {others}": {"Holdfast": whole} for others in (11_000, 101_000, 1_001_000)}
    page.write(tmp_path, kept)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "| Holdfast | 2.00 (4.00) | 2.00 (4.00) |" in text
    assert "| Holdfast | 9,000 | – | 9 | 5 | – | 2 |" in text
    assert "| Chroma | 2.00 (4.00) | stopped |" in text
    assert "| mem0 | failed | failed |" in text
    assert "mem0 failed: it is not installed" in text
    assert "| | 1,000 facts | 10,000 facts | 100,000 facts |" in text
    faster = "2.00; sqlite-vec by hand 1.00"
    assert f"| Holdfast: delete, ms | {faster} | {faster} | {faster} |" in text
    assert "Holdfast: add, ms |" not in text
    assert "| Holdfast | 7 | never | 3 |" in text
    assert text.count("| Holdfast: recall | 2.00 | 2.00 | 2.00 | 0.00 |") == 2
    assert "| 11,000 | 101,000 | 1,001,000 | exponent |" in text
    assert (tmp_path / "img" / "side_by_side_1000.svg").stat().st_size > 1_000


def test_the_top_of_the_page_says_where_holdfast_is_first_and_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: dict[str, Any] = {"add": MEASURED, "fill": {"per_second": 9_000.0}, "recall": MEASURED}
    ours |= {"delete_all": {"p50": 5.0, "left": 0}}
    other = {**ours, "add": {**MEASURED, "p50": 1.0}, "recall": {**MEASURED, "p50": 30.0}}
    other |= {"delete_all": {"p50": 5.0, "left": 186}}
    unfair = {**other, "add": {**MEASURED, "p50": 0.1}}
    by_hand = {"delete_all": {"p50": 2.0, "left": 200}}
    beside = {"Chroma": other, "LangGraph InMemoryStore": unfair, "sqlite-vec by hand": by_hand}
    kept = {"10000": {"Holdfast": ours, **beside}, "100000 of 100000": {"Holdfast": ours}}
    (tmp_path / "side_by_side.json").write_text(json.dumps(kept))
    monkeypatch.setattr(page, "DATA", tmp_path)
    first, behind, left = page.shorten()
    assert first.startswith(
        "**First**, or within a tenth of it, of the libraries that write to a disk, with 10,000 facts"
    )
    assert "recall 2.00 ms (30.00)" in first
    assert "added in bulk 9,000 a second (9,000)" in first
    assert "**Behind** one of them: add 2.00 ms (1.00). Behind two tables" in behind  # not what writes to no disk
    assert "by hand, which do less: delete all 5 ms (2)." in behind
    assert "0 are left in its files (Chroma 186, LangGraph InMemoryStore 186, sqlite-vec by hand 200)" in left


def test_every_system_can_be_filled_and_asked() -> None:
    for system in SYSTEMS.values():
        assert system.recall is not System.recall
        assert system.add is not System.add
        assert system.does


def test_calls_are_timed_until_all_are_made_or_it_took_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scenarios.timed(lambda _item: None, range(100), warm=5)["calls"] == 95
    monkeypatch.setattr(scenarios, "_ENOUGH", 0.0)
    assert scenarios.timed(lambda _item: None, range(100), warm=5)["calls"] == scenarios._LEAST
