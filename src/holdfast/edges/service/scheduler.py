"""The process beside the service that runs the schedule: ``python -m holdfast.edges.service.scheduler``.

One line of JSON on its standard input says which store; it ends when that input ends. The job that is running then has
some seconds to come to its end. After that its lease is given back: its next batch finds that out and is not applied,
and whoever takes the lease next runs what is left of the slot.
"""

from __future__ import annotations

import io
import json
import logging
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Final

from holdfast.core.errors import HoldfastError
from holdfast.edges.service.logs import LogFormat, install_logs
from holdfast.engine import Holdfast
from holdfast.lifecycle.schedule.leadership import lower_priority
from holdfast.storage.relational.coordination import SqlLeases

_log = logging.getLogger("holdfast.scheduler")
#: What this process is started as.
COMMAND: Final = (sys.executable, "-m", "holdfast.edges.service.scheduler")


def first_line(home: str | None, url: str | None, *, form: LogFormat, finish_seconds: float) -> str:
    """The line of JSON that starts it: on standard input, since others can see a command line and the URL may hold a
    password.
    """
    return json.dumps({"home": home, "url": url, "log_format": form.value, "finish_seconds": finish_seconds})


def main() -> None:
    """Run the schedule until standard input ends, or until SIGTERM."""
    lower_priority()
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the other one says when to stop
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Unbuffered: a thread that waits in a buffered read would be in the way of the interpreter's end.
    with io.FileIO(0, closefd=False) as given:
        orders: dict[str, Any] = json.loads(given.readline())
        install_logs(LogFormat(orders["log_format"]))
        threading.Thread(target=_await_end, args=(given, stop), daemon=True).start()
        try:
            _run(orders, stop)
        except Exception as problem:  # noqa: BLE001 - the log tells it without what it may quote; it starts again
            _log.critical("the schedule cannot be run", exc_info=problem)
            sys.exit(1)


def _run(orders: dict[str, Any], stop: threading.Event) -> None:
    with Holdfast.open(orders["url"], home=orders["home"]) as holdfast:
        done = threading.Event()
        handing = threading.Thread(target=_hand_back, args=(holdfast, stop, done, orders["finish_seconds"]))
        handing.start()
        try:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            holdfast.schedule.serve(stop)
        finally:
            stop.set()
            done.set()
            handing.join()


def _await_end(given: io.FileIO, stop: threading.Event) -> None:
    """Set ``stop`` when there is nothing left to read."""
    while given.read(4_096):
        pass
    stop.set()


def _hand_back(holdfast: Holdfast, stop: threading.Event, done: threading.Event, seconds: float) -> None:
    """Once it is to stop: give the lease of a job that takes too long back, so that it ends at its next batch."""
    stop.wait()
    if done.wait(seconds):
        return
    lease = holdfast.schedule.lease
    if lease is None:
        return
    with suppress(HoldfastError):  # then it runs out by itself, a few seconds after this process has ended
        _log.warning("the job that runs is handed back after %g s; what is left of it is done by the next run", seconds)
        SqlLeases(holdfast.database).release(lease)


if __name__ == "__main__":
    main()
