"""Runs the tests in several processes, each a fork of the one that has imported and collected them all.

To import and to collect everything takes longer than many a folder of tests: it is done once. A fork asks for the tests
of one file after another, and tells what came of each. Files whose tests take long come first, so that all forks end at
about the same time.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

#: Folders whose tests are many and short.
_SHORT = ("recall", "requirements", "console", "memory", "conformance", "core")
_ENDED = object()


class Forks:
    """So many processes that run tests, and what each of them has still to run."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._forks: dict[Connection, _Fork] = {}
        self._numbers = iter(range(sys.maxsize))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None
        self._waiting = _files(session.items)
        try:
            for _ in range(min(self._count, len(self._waiting))):
                self._start(session)
            while self._forks:
                for pipe in wait(list(self._forks)):
                    assert isinstance(pipe, Connection)
                    self._hear(session, pipe)
        finally:
            for pipe, fork in self._forks.items():  # it ends when it finds nobody to tell
                pipe.close()
                os.waitpid(fork.process, 0)
        return True

    def _start(self, session: pytest.Session) -> None:
        ours, theirs = Pipe()
        folder = session.config._tmp_path_factory.getbasetemp() / f"fork-{next(self._numbers)}"  # type: ignore[attr-defined]
        folder.mkdir()
        sys.stdout.flush()
        sys.stderr.flush()
        if process := os.fork():
            theirs.close()
            self._forks[ours] = _Fork(process)
            return
        for pipe in (ours, *self._forks):
            pipe.close()
        code = 1
        try:
            _run(session, theirs, folder)
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            code = 0
        except (BrokenPipeError, EOFError, KeyboardInterrupt):
            pass  # the run was given up
        except BaseException:  # noqa: BLE001 - what it is stands on the terminal, and the code fails the run
            traceback.print_exc()
        finally:
            os._exit(code)

    def _hear(self, session: pytest.Session, pipe: Connection) -> None:
        """Do what a fork asks for: tell of a test, or give it more tests."""
        fork, config = self._forks[pipe], session.config
        told: Any = _ENDED
        with suppress(EOFError, ConnectionResetError):
            told = pipe.recv()
        if told is _ENDED:
            self._end(session, pipe)
            return
        if told is None:
            given = self._waiting.popleft() if self._waiting else []
            fork.tests.extend(given)
            pipe.send(given)
            return
        report = config.hook.pytest_report_from_serializable(config=config, data=told)
        config.hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            fork.tests.popleft()
            config.hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)

    def _end(self, session: pytest.Session, pipe: Connection) -> None:
        """See how a fork ended. If it died, the test that it ran has failed, and another fork goes on."""
        fork = self._forks.pop(pipe)
        pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(fork.process, 0)[1])
        if not code and not fork.tests:
            return
        where = session.items[fork.tests.popleft()] if fork.tests else session.items[-1]
        text = f"The process that ran this test ended with {code}; a negative number is that of a signal."
        report = pytest.TestReport(where.nodeid, where.location, {}, "failed", text, "call")
        session.config.hook.pytest_runtest_logreport(report=report)
        if fork.tests:
            self._waiting.appendleft(list(fork.tests))
            self._start(session)


class _Fork:
    """A process that runs tests, and those that it has not ended, by their numbers."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.tests: deque[int] = deque()


def _files(items: Sequence[pytest.Item]) -> deque[list[int]]:
    """The numbers of the tests of each file. Those of a file share fixtures, so one process runs them one after another;
    those of ``browser`` share a browser.
    """

    def place(number: int) -> Path:
        path = items[number].path
        return path.parent if path.parent.name == "browser" else path

    files = (list(numbers) for _, numbers in groupby(range(len(items)), key=place))

    def rank(numbers: list[int]) -> int:
        folder = items[numbers[0]].path.parent.name
        return _SHORT.index(folder) + 1 if folder in _SHORT else 0

    return deque(sorted(files, key=rank))


# --- in a fork --------------------------------------------------------------------------------------------------------


class _Teller:
    """Tells what came of a test."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._pipe.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _run(session: pytest.Session, pipe: Connection, folder: Path) -> None:
    """Run what is given, until nothing is."""
    config: Any = session.config
    capture = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # its files are those of all forks
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.get_terminal_writer()._file = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    config._tmp_path_factory._basetemp = folder
    config.pluginmanager.register(_Teller(config, pipe))
    numbers = _ask(pipe)
    number = next(numbers, None)
    while number is not None and not session.shouldfail:
        following = next(numbers, None)
        after = None if following is None else session.items[following]
        config.hook.pytest_runtest_protocol(item=session.items[number], nextitem=after)
        number = following
    config._ensure_unconfigure()


def _ask(pipe: Connection) -> Iterator[int]:
    while True:
        pipe.send(None)
        if not (given := pipe.recv()):
            return
        yield from given
