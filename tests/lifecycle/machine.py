"""A machine whose clocks say what a test wants: ``python machine.py MOMENT cli ARGUMENTS…`` or ``… run SCRIPT HOME``.

The wall clock begins at the moment and goes on from there. The steady one begins at zero, as after a start of the
machine. Both are replaced before Holdfast is imported, so that nothing of it ever sees the real time.
"""

from __future__ import annotations

import datetime as dates
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Machine:
    """Starts processes on a home, each on a machine whose clock says another time."""

    def __init__(self, home: Path, start: dates.datetime) -> None:
        self.home = home
        self.start = start

    def cli(self, days: float, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of Holdfast, so many days after the start."""
        return self._run(days, "cli", *arguments, "--home", str(self.home))

    def run(self, days: float, script: str) -> str:
        """What a script prints that has ``holdfast`` open, so many days after the start."""
        done = self._run(days, "run", script, str(self.home))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, days: float, *arguments: str) -> subprocess.CompletedProcess[str]:
        moment = (self.start + dates.timedelta(days=days)).isoformat()
        settings = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        command = [sys.executable, __file__, moment, *arguments]
        return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=600, check=False)


def replace_clocks(moment: str) -> None:
    """Let both clocks of this process begin anew."""
    real, began = dates.datetime, time.monotonic_ns()
    start = int(dates.datetime.fromisoformat(moment).timestamp()) * 1_000_000_000
    real_gettime_ns = time.clock_gettime_ns

    def passed() -> int:
        return time.monotonic_ns() - began

    def wall() -> int:
        return start + passed()

    class Kind(type):
        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, real)

    class Moment(dates.datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(wall() / 1e9, tz)

    def gettime_ns(clock: int) -> int:
        if clock == time.CLOCK_REALTIME:
            return wall()
        return passed() if clock == time.CLOCK_BOOTTIME else real_gettime_ns(clock)

    vars(dates)["datetime"] = Moment
    vars(time).update(time_ns=wall, time=lambda: wall() / 1e9, clock_gettime_ns=gettime_ns)


def main(moment: str, how: str, *arguments: str) -> None:
    replace_clocks(moment)
    if how == "cli":
        from holdfast.edges.cli import main as command

        sys.argv = ["holdfast", *arguments]
        command()
    else:
        from holdfast import Holdfast

        script, home = arguments
        with Holdfast.open(home=home) as holdfast:
            exec(script, {"holdfast": holdfast})  # noqa: S102 - a script of the tests


if __name__ == "__main__":
    main(*sys.argv[1:])
