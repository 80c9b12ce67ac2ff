"""Maintenance lets other processes go first; a command that somebody waits for does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROBE = """
import os, sys
from holdfast.edges.cli import main
sys.argv = ["holdfast", *sys.argv[1:], "--help"]
before = os.nice(0)
try:
    main()
finally:
    sys.stderr.write(str(os.nice(0) - before))
"""


def given_up(*command: str) -> int:
    """How much of its priority a command gives up."""
    done = subprocess.run([sys.executable, "-c", _PROBE, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no niceness")
def test_sweeps_schedules_and_backups_make_way_and_a_search_does_not() -> None:
    assert given_up("sweep") > 0
    assert given_up("backup") > 0
    assert given_up("schedule") > 0
    assert given_up("search") == 0
