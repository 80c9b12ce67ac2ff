"""Tests that run in forks: each of them is told of, whatever becomes of its process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CONFTEST = """
from forks import Forks

def pytest_configure(config):
    config.pluginmanager.register(Forks(2))
"""
_TESTS = """
import os, pytest

@pytest.fixture
def left_behind():
    yield
    raise ValueError("it was left behind")

def test_right(tmp_path): pass
def test_wrong(): assert "tea" == "coffee"
def test_deadly(): os._exit(3)
def test_right_after_it(): pass
def test_untidy(left_behind): pass
def test_skipped(): pytest.skip("not today")
"""


def _run(folder: Path, *options: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(_CONFTEST)
    for name in ("one", "other"):
        (folder / f"test_{name}.py").write_text(_TESTS if name == "one" else "def test_of_another_file(): pass\n")
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *options, "."]
    environment = {"PYTHONPATH": str(Path(__file__).parent), "TMPDIR": str(folder), "COLUMNS": "120"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and to load them takes longest
    ended = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return ended.returncode, ended.stdout


def test_what_fails_dies_or_leaves_something_behind_fails_the_run_and_the_rest_is_run(tmp_path: Path) -> None:
    code, told = _run(tmp_path)
    assert code == 1
    assert "2 failed, 4 passed, 1 skipped, 1 error" in told
    assert "FAILED test_one.py::test_wrong - AssertionError: assert 'tea' == 'coffee'" in told
    assert "The process that ran this test ended with 3" in told
    assert "ERROR test_one.py::test_untidy - ValueError: it was left behind" in told


def test_what_is_right_is_a_success(tmp_path: Path) -> None:
    code, told = _run(tmp_path, "-k", "right or another")
    assert (code, "3 passed, 4 deselected" in told) == (0, True), told
