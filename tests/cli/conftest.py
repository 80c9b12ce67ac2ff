"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.shell import Shell


@pytest.fixture
def shell(home: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands on a home of their own, as wide as a pipe is, whatever the terminal that the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)
    return Shell(home)
