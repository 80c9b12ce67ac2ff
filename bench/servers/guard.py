"""What every server needs: a guard between it and the caller, a port of its own, and to be found."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_WARD: Final = Path(__file__).with_name("ward.py")
_PATIENCE: Final = 60.0
"""Seconds that a server may take to answer, which after a crash includes its recovery."""
_LONGEST_FOLDER: Final = 70
"""Bytes; a socket's path may have 103 on macOS and 107 on Linux, and ours adds 31."""


class ServerError(RuntimeError):
    """A server is not installed, did not start, or is gone; the message ends with what it said last."""


class Service:
    """A command under a guard that is running once it is ready."""

    def __init__(
        self,
        name: str,
        guard: Guard,
        command: Sequence[str],
        is_ready: Callable[[], bool],
        *,
        stop: signal.Signals = signal.SIGTERM,
        farewell: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._name, self._guard, self._command, self._is_ready = name, guard, list(command), is_ready
        self._stop, self._farewell = stop, farewell

    def start(self) -> None:
        if self._guard.ask("running"):
            raise ServerError(f"{self._name} is running already; stop it first")
        self._guard.ask("start", self._command, self._farewell)
        deadline = time.monotonic() + _PATIENCE
        while not self._is_ready():
            if not self._guard.ask("running"):
                raise ServerError(f"{self._name} did not start; it said:\n{self._guard.last_words()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self._name} is silent after {_PATIENCE} s; it said:\n{self._guard.last_words()}")
            time.sleep(0.01)

    def stop(self) -> None:
        self._guard.ask("stop", self._stop)

    def kill(self) -> None:
        self._guard.ask("kill")


class Server:
    """A service that can be started again."""

    _service: Service

    def start(self) -> None:
        """Start on the data that is there, if it keeps any, and return when it answers."""
        self._service.start()

    def stop(self) -> None:
        """Shut down in order; whatever is only in its memory is lost."""
        self._service.stop()

    def kill(self) -> None:
        """Crash: every process is gone at once, without a word to anyone."""
        self._service.kill()

    def restart(self) -> None:
        self.stop()
        self.start()


class Guard:
    """The process that runs ``ward.py``, from the side of the caller: one question, one answer, one at a time."""

    def __init__(self, base: str, user: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WARD), base, user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt at the terminal is for the tests to handle
        )
        self.folder = Path(self._answer())

    def ask(self, verb: str, *arguments: object) -> Any:
        with self._lock:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError, ValueError):  # the answer, or its lack, tells
                self._process.stdin.write(json.dumps([verb, *arguments]) + "\n")
                self._process.stdin.flush()
            return self._answer()

    def run(self, command: Sequence[str]) -> None:
        """Run a command to its end."""
        self.ask("start", command, signal.SIGTERM)
        if self.ask("wait") != 0:
            raise ServerError(f"{Path(command[0]).name} failed; it said:\n{self.last_words()}")

    def last_words(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def end(self) -> None:
        try:
            self.ask("end")
            self._process.communicate()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)  # only where the guard was killed is anything left

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = "" if self._process.stdout.closed else self._process.stdout.readline()
        if line:
            return json.loads(line)
        if not self._process.stdout.closed:
            with suppress(BrokenPipeError):
                self._process.communicate()
        raise ServerError(f"the guard of a server ended ({self._process.returncode}), and the server with it")


@contextmanager
def guarded(user: str = "") -> Iterator[Guard]:
    guard = Guard(_choose_base(user), user)
    try:
        yield guard
    finally:
        guard.end()


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of loopback that is free, and stays ours while the server is down.

    Linux gives a port that is bound, if only by a socket that does not listen, to nobody who asks for any port; and a
    server that asks for this one gets it, since both sides allow reuse. Elsewhere the port is only likely to stay free.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = int(holder.getsockname()[1])
        if sys.platform != "linux":
            holder.close()
        yield port


def _choose_base(user: str) -> str:
    """Where folders of servers are made: a short path that ``user`` can reach."""
    bases = list(dict.fromkeys((tempfile.gettempdir(), "/tmp")))  # noqa: S108 - our folder in it is private
    for base in bases:
        if len(os.fsencode(base)) <= _LONGEST_FOLDER and (not user or is_open(Path(base))):
            return base
    raise ServerError(f"no server can live in {' or '.join(bases)}: too long a path, or closed to the user {user!r}")


def is_open(path: Path) -> bool:
    """Whether any user can reach the path, and enter or run it."""
    real = path.resolve()
    return all(step.stat().st_mode & 0o001 for step in (real, *real.parents))


def find_package(name: str, what: str) -> Path:
    """The folder of an installed package, found without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ServerError(f"{what} is not installed; install it with pip install 'holdfast[dev]'")
    return Path(found.origin).parent
