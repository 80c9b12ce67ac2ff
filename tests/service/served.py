"""``holdfast serve`` as tests start it: the installed script, in a process of its own, on a port that was free."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from clocks import wait_until

SCRIPT = Path(sys.executable).with_name("holdfast")
PATIENCE = 60.0


class Served:
    """A service that runs: where it is, what it logs, and how it ends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.where = self._announced()
        self.url: str = self.where["url"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def _announced(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if line == "}\n":
                said: dict[str, Any] = json.loads(text)
                return said
        raise AssertionError(f"it ended before it served: {self.process.wait(PATIENCE)} {''.join(self.lines)}")

    @property
    def log(self) -> list[dict[str, Any]]:
        """What was logged so far."""
        return [json.loads(line) for line in list(self.lines)]

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False, **more)

    def ready(self) -> dict[str, Any]:
        with self.client() as client:
            said: dict[str, Any] = client.get("/readyz").json()
            return said

    def wait_ready(self) -> None:
        wait_until(lambda: self.ready()["status"] == "ready")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell it to end; its exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reading.join(PATIENCE)
        return code


@contextmanager
def served(home: Path, *options: str, environ: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A service on a home of its own, while the block runs."""
    command = [str(SCRIPT), "serve", "--port", "0", "--log-format", "json", "--json", "--home", str(home), *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**env, **(environ or {})}) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked yet how."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def child_of(pid: int) -> int:
    """The one child of a process, whichever of its threads started it."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    (child,) = [int(child) for file in files for child in file.read_text().split()]
    return child
