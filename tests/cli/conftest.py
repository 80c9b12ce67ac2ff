"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.shell import Shell


@pytest.fixture
def shell(home: Path) -> Shell:
    """Commands on a home of their own."""
    return Shell(home)
