"""A machine whose clocks say what a test wants.

The wall clock begins at a moment and goes on from there. The steady one begins at zero, as after a start of the
machine. Both were replaced before Holdfast was imported, so that nothing of it ever sees the real time.
"""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

from launcher import MOMENT, launcher

_SCRIPT = """
from holdfast import Holdfast
with Holdfast.open(home={home!r}) as holdfast:
    exec({script!r}, {{"holdfast": holdfast}})
"""


class Machine:
    """Starts processes on a home, each on a machine whose clock says another time."""

    def __init__(self, home: Path, start: datetime) -> None:
        self.home = home
        self.start = start

    def cli(self, days: float, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of Holdfast, so many days after the start."""
        return self._run(days, "holdfast", *arguments, "--home", str(self.home))

    def run(self, days: float, script: str) -> str:
        """What a script prints that has ``holdfast`` open, so many days after the start."""
        done = self.attempt(_SCRIPT.format(home=str(self.home), script=script), days)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def attempt(self, script: str, days: float = 0) -> subprocess.CompletedProcess[str]:
        """How a script ends, so many days after the start."""
        return self._run(days, "script", "-c", script)

    def _run(self, days: float, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        settings = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        settings[MOMENT] = (self.start + timedelta(days=days)).isoformat()
        command = [str(launcher(clocks=True).folder / name), *arguments]
        return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=600, check=False)
