"""A program that does one thing to a store and is killed (SIGKILL) before its n-th effect on a disk.

It reads lines of JSON (``home``, ``now``, ``do``, ``at``, …), does each in a process of its own that it forks, so that
nothing is loaded twice, and writes ``true`` for one that was killed and ``false`` for one that came to its end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from holdfast import Holdfast
from holdfast.storage.objects.local import LocalObjects

DEEDS: dict[str, Callable[..., object]] = {
    "erase": lambda holdfast, user_id: holdfast.erase_user(user_id),
    "backup": lambda holdfast: holdfast.backups.create(full=True),
    "rotate": lambda holdfast: holdfast.backups.rotate(),
    "restore": lambda holdfast, backup_id, **whom: holdfast.backups.restore(backup_id, **whom),
}


class Countdown:
    """Ends the process before its n-th effect: a transaction's commit, an object written, objects deleted."""

    def __init__(self, at: int) -> None:
        self._left = at

    def tick(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def watch(self, holdfast: Holdfast) -> None:
        for name in ("put", "delete"):
            setattr(LocalObjects, name, self._before(getattr(LocalObjects, name)))
        database: Any = holdfast.database
        for name in ("write", "govern", "alone"):
            setattr(database, name, self._at_commit(getattr(database, name)))

    def _before(self, effect: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.tick()
            return effect(*arguments, **options)

        return counted

    def _at_commit(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def counted(*arguments: Any) -> Any:
            with begin(*arguments) as tx:
                yield tx
                self.tick()

        return counted


def do(order: dict[str, Any]) -> None:
    """One thing, until it is done or the process is gone."""
    moment = datetime.fromisoformat(order["now"])
    holdfast = Holdfast.open(home=order["home"], clock=lambda: moment)
    Countdown(order["at"]).watch(holdfast)
    DEEDS[order["do"]](holdfast, **order["with"])
    holdfast.close()


def main() -> None:
    """Do as told, line by line."""
    from holdfast.recall.embedders import open_embedder

    open_embedder("static").embed(["so that it is loaded"])
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            do(json.loads(line))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(json.dumps(status == -signal.SIGKILL if status <= 0 else "it failed") + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
