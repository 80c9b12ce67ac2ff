"""Requests that are cut short by a kill, in processes of their own.

``python crashes.py`` reads what is asked for as lines of JSON. It forks a process for each, which opens the home, sends
one request and is killed at the n-th commit of it, and says how that process ended.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

SECONDS = 120
TESTS = Path(__file__).parent.parent


class Crasher:
    """The process that forks the others."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(TESTS), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def send(self, home: Path, request: list[Any], *, when: str, at: int) -> bool:
        """Send a request from a process that is killed ``before`` or ``after`` a commit; whether it was killed, and did
        not come to its end before.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(home), request, when, at]) + "\n")
        self._process.stdin.flush()
        return bool(json.loads(self._process.stdout.readline()) == -signal.SIGKILL)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    from api.client import Client
    from clocks import FakeClock
    from holdfast import Holdfast
    from holdfast.edges.rest.app import build_app
    from holdfast.recall.embedders import open_embedder, static

    vars(static)["_read_tokenizer"] = cache(static._read_tokenizer)
    open_embedder("static").embed([""])  # read once for all of them, as are the routes and what requests import
    with (
        tempfile.TemporaryDirectory() as folder,
        Holdfast.open(home=folder, clock=FakeClock()) as holdfast,
        Client(build_app(holdfast, keys_required=False)) as client,
    ):
        body = {"user_id": "ann", "agent_id": "guide", "content": "tea"}
        client.request("POST", "/v1/memories", json=body, headers={"Idempotency-Key": "key"})
    gc.freeze()
    for line in sys.stdin:
        home, (method, path, options), when, at = json.loads(line)
        pid = os.fork()
        if pid == 0:
            with Holdfast.open(home=home, clock=FakeClock()) as holdfast:
                with Client(build_app(holdfast, keys_required=False)) as client:
                    _be_killed(when, at)
                    assert client.request(method, path, **options).status_code < 300
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - it is what the test waits for


def _be_killed(when: str, at: int) -> None:
    """Kill this process before or after the n-th commit from now on."""
    from holdfast.storage.postgres.database import PostgresDatabase
    from holdfast.storage.sqlite.database import SqliteDatabase

    seen = {"before": 0, "after": 0}

    def pass_by(moment: str) -> None:
        seen[moment] += 1
        if moment == when and seen[moment] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(write: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
        @contextmanager
        def killed(*arguments: Any) -> Iterator[Any]:
            with write(*arguments) as tx:
                yield tx
                pass_by("before")
            pass_by("after")

        return killed

    writes = ((SqliteDatabase, "write"), (PostgresDatabase, "_write"), (PostgresDatabase, "_write_optimistically"))
    for database, name in writes:
        setattr(database, name, wrap(getattr(database, name)))


if __name__ == "__main__":
    main()
