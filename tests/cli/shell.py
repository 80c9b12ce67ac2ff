"""Commands as tests run them: in this process, on a home of their own; or in a process of their own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from holdfast import Holdfast
from holdfast.edges.cli.app import app
from launcher import launcher

#: The installed script.
SCRIPT = Path(sys.executable).with_name("holdfast")


def use_until_now(home: Path) -> None:
    """A store in which the last write is old has been in use since, so that it believes the machine's clock."""
    with Holdfast.open(home=home, clock=lambda: datetime.now(UTC)) as engine:
        engine.trust.note(engine.services.now())


def program() -> Path:
    """What behaves as the installed script does, and starts faster."""
    return launcher().folder / "holdfast"


class Shell:
    """Runs commands in the same process, on a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, [*args, "--home", str(self.home)], input=stdin)

    def ok(self, *args: str, stdin: str | bytes | None = None) -> str:
        """What a command that must succeed prints."""
        result = self(*args, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *args: str, stdin: str | bytes | None = None) -> Any:
        """The JSON document of a command that must succeed."""
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def error(self, *args: str, stdin: str | bytes | None = None) -> tuple[int, dict[str, Any]]:
        """The exit code and the JSON error of a command that must fail, with nothing on stdout."""
        result = self(*args, "--json", stdin=stdin)
        assert result.stdout == ""
        return result.exit_code, json.loads(result.stderr)["error"]


def run(*args: str, home: Path, **extra: Any) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    return subprocess.run([program(), *args], env=env, capture_output=True, text=True, timeout=60, check=False, **extra)


def read_terminal(end: int) -> str:
    """All that was shown on a terminal, by a program that has ended and at whose end it is closed. It comes in pieces."""
    pieces = []
    with suppress(OSError):  # that was all
        while select.select([end], [], [], 1)[0] and (piece := os.read(end, 65_536)):
            pieces.append(piece)
    os.close(end)
    return b"".join(pieces).decode(errors="replace")
