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
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from holdfast.core.errors import HoldfastError
from holdfast.edges.service.logs import LogFormat, install_logs
from holdfast.engine import Holdfast
from holdfast.lifecycle.schedule.leadership import lower_priority
from holdfast.storage.relational.coordination import SqlLeases

_log = logging.getLogger("holdfast.scheduler")
#: Seconds before it is started again: the first time, the second, and so on; the last for all further times.
DELAYS: Final = (0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
#: One that ran for longer than this was well; should it end, it is started again as if it were the first time.
STEADY_SECONDS: Final = 120.0
#: How long it has between being asked to end by a signal and being ended.
TERM_SECONDS: Final = 2.0


class ProcessState(NamedTuple):
    """How it is with the process."""

    pid: int | None
    ready: bool
    restarts: int
    trouble: str | None
    """Why it is not running, or not ready."""


def describe_process(name: str, now: ProcessState) -> Iterable[Any]:
    """The metrics of a process."""
    yield GaugeMetricFamily(
        f"holdfast_{name}_up", f"1 while the process that runs the {name} is up.", value=int(now.ready)
    )
    yield CounterMetricFamily(
        f"holdfast_{name}_restarts",
        f"How often the process that runs the {name} was started again.",
        value=now.restarts,
    )


@dataclass(eq=False, repr=False)
class Supervisor:
    """Keeps one process running from ``start`` to ``stop``. Safe for many threads."""

    name: str
    command: Sequence[str]
    first_line: str = ""
    pass_fds: Sequence[int] = field(default=(), kw_only=True)
    """Files that the process is given open, under the same numbers."""
    delays: Sequence[float] = field(default=DELAYS, kw_only=True)
    steady_seconds: float = field(default=STEADY_SECONDS, kw_only=True)
    term_seconds: float = field(default=TERM_SECONDS, kw_only=True)
    now: Callable[[], float] = field(default=time.monotonic, kw_only=True)

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.state = ProcessState(None, ready=False, restarts=0, trouble="not started yet")
        self._thread = threading.Thread(target=self._keep, name=f"holdfast-{self.name}", daemon=True)

    def start(self) -> None:
        """Start the process, and keep it running from now on."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Let the process end when it is done with what it is at; it is not started again."""
        with self._lock:
            self._stopping.set()
            if self._process is not None and self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()

    def stop(self, seconds: float) -> bool:
        """Ask it to stop, wait, and end it if it has not ended by then; whether it ended by itself."""
        self.ask_to_stop()
        if not self._thread.ident:
            return True
        self._thread.join(seconds)
        if not self._thread.is_alive():
            return True
        _log.warning("the process of the %s did not end within %g s and is ended now", self.name, seconds)
        for end in (subprocess.Popen[bytes].terminate, subprocess.Popen[bytes].kill):
            process = self._process
            if process is not None:
                end(process)
            self._thread.join(self.term_seconds)
        return False

    def collect(self) -> Iterable[Any]:
        """Its metrics, for a Prometheus registry."""
        return describe_process(self.name, self.state)

    # --- within its thread --------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        short_runs = 0
        while not self._stopping.is_set():
            began = self.now()
            ended = self._run_once()
            if self._stopping.is_set():
                break
            short_runs = 1 if self.now() - began >= self.steady_seconds else short_runs + 1
            delay = self.delays[min(short_runs, len(self.delays)) - 1]
            restarts = self.state.restarts + 1
            self.state = ProcessState(None, ready=False, restarts=restarts, trouble=f"{ended}; starts again soon")
            _log.error("the process of the %s %s; it is started again in %g s", self.name, ended, delay)
            self._stopping.wait(delay)
        self.state = self.state._replace(pid=None, ready=False, trouble="stopped")

    def _run_once(self) -> str:
        """Run it until it ends; how it ended, in words."""
        try:
            process = self._begin()
        except OSError as problem:
            return f"could not be started ({problem})"
        if process is None:
            return "was not started"
        with process:
            self.state = ProcessState(process.pid, ready=False, restarts=self.state.restarts, trouble="starting")
            assert process.stdout is not None  # noqa: S101 - a pipe
            for line in process.stdout:
                if line.strip() == b"ready":
                    self.state = self.state._replace(ready=True, trouble=None)
                    _log.info("the process of the %s is up", self.name, extra={"fields": {"pid": process.pid}})
            code = process.wait()
        with self._lock:
            self._process = None
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def _begin(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            pipe = subprocess.PIPE
            process = subprocess.Popen(  # noqa: S603 - a command of our own
                self.command, stdin=pipe, stdout=pipe, pass_fds=self.pass_fds
            )
            self._process = process
            assert process.stdin is not None  # noqa: S101 - a pipe
            with suppress(OSError):  # it has ended already, and that is seen in a moment
                process.stdin.write(f"{self.first_line}\n".encode())
                process.stdin.flush()
            return process


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
