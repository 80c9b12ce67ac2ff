"""The guard: a process that runs this file, obeys its caller, and ends the server when the caller is gone."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_FAREWELL: Final = 20.0
"""Seconds that a server may take to stop before it is killed."""
_INHERITED: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""All that a server sees of the environment: no PGHOST, no AWS_PROFILE."""


def stand_guard(base: str, user: str) -> None:
    """Make a folder, obey one line after the other, and clean up when they end, as they do when their sender dies."""
    folder = tempfile.mkdtemp(prefix="holdfast-", dir=base)
    ward = _Ward(folder, user)
    try:
        if user:
            shutil.chown(folder, user)
        _reply(folder)
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            if verb == "end":
                break
            _reply(getattr(ward, verb)(*arguments))
    finally:
        ward.leave()
        shutil.rmtree(folder)
    _reply(None)


def _reply(answer: object) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps(answer), flush=True)


class _Ward:
    """The process under guard; its methods are the verbs that a guard obeys."""

    def __init__(self, folder: str, user: str) -> None:
        self._folder, self._user = folder, user
        self._process: subprocess.Popen[bytes] | None = None
        self._farewell = int(signal.SIGTERM)

    def start(self, command: list[str], farewell: int) -> None:
        self._farewell = farewell
        account: dict[str, Any] = {}
        if self._user:
            import pwd

            account = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []}
        with Path(self._folder, "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={name: os.environ[name] for name in _INHERITED if name in os.environ} | {"LC_ALL": "C"},
                preexec_fn=self._die_with_guard,  # noqa: PLW1509 - the guard has one thread
                **account,
            )

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> int | None:
        return None if self._process is None else self._process.wait()

    def stop(self, number: int) -> None:
        if self._process is not None and self.running():
            self._process.send_signal(number)
            try:
                self._process.wait(_FAREWELL)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill the process and all its children, which may be in process groups of their own."""
        if self._process is None or not self.running():
            return
        import psutil  # PostgreSQL's wheel needs it as well

        def is_alive(process: psutil.Process) -> bool:
            with suppress(psutil.NoSuchProcess):
                return bool(process.status() != psutil.STATUS_ZOMBIE)  # a zombie holds nothing, and may stay a while
            return False

        parent = psutil.Process(self._process.pid)
        parent.suspend()  # so that no child is started behind our back, nor told that another is gone
        family = [*parent.children(recursive=True), parent]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        while any(map(is_alive, family)):
            time.sleep(0.001)

    def leave(self) -> None:
        self.stop(self._farewell)

    def _die_with_guard(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, self._farewell)  # 1 is PR_SET_PDEATHSIG


if __name__ == "__main__":
    stand_guard(sys.argv[1], sys.argv[2])
