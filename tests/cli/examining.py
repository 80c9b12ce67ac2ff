"""How tests see the doctor."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.edges.cli.app import app


def examine(*args: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code and the checks by their names."""
    result = CliRunner().invoke(app, ["doctor", "--json", *args])
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)}


def leave_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder, without any setting that the environment may have."""
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
