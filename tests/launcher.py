"""Commands and scripts for tests that run them in processes of their own: forks of one that has imported everything.

A shell finds ``holdfast``, and ``script``, which is called as Python is, in ``Launcher.folder``. What stands there hands its
arguments, folder, environment and open files to the launcher, which forks; and ends as the fork ended. To import Holdfast
takes many times as long as that. Whoever is to kill what was started starts it with ``start_script``.
The clocks of a launcher can be other than the machine's: a fork whose environment has ``MOMENT`` begins at that time.
"""

from __future__ import annotations

import array
import datetime as dates
import marshal
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

MOMENT = "LAUNCHER_MOMENT"
#: It imports only what is built into the interpreter, since it runs for each command.
_ASK = """#!{python} -IS
import _signal, _socket, marshal, os, sys
asked = _socket.socket(_socket.AF_UNIX)
asked.connect({address!r})
order = marshal.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), dict(os.environ)])
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
asked.sendmsg([len(order).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
asked.sendall(order)
with open(asked.fileno()) as answers:
    fork = int(answers.readline())
    for number in (_signal.SIGINT, _signal.SIGTERM):
        _signal.signal(number, lambda number, frame: os.kill(fork, number))
    code = int(answers.readline() or -_signal.SIGKILL)
if code < 0:
    if code != -_signal.SIGKILL:
        _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Launcher:
    """A process that forks commands, and the folder in which shells find them."""

    def __init__(self, *, clocks: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="launcher-"))  # the launcher removes it when it ends
        address = str(self.folder / "socket")
        for name in ("holdfast", "script", "kill"):
            path = self.folder / name
            path.write_text(_ASK.format(python=sys.executable, address=address))
            path.chmod(0o700)
        command = [sys.executable, __file__, address, *(["clocks"] if clocks else [])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._owner = os.getpid()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def close(self) -> None:
        if os.getpid() == self._owner:  # a fork of the tests uses what belongs to the process that it is a fork of
            self._process.communicate(timeout=60)

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def path(self) -> str:
        """What ``PATH`` has to be for a shell that is to find the command here, and the Python of the tests."""
        return os.pathsep.join([str(self.folder), str(Path(sys.executable).parent), os.environ["PATH"]])


class Forked(subprocess.Popen[str]):
    """A script in a fork of the launcher, from the side of whoever started it."""

    def send_signal(self, sig: int) -> None:
        """Send it to the fork. What stands for that here ends as the fork does, as soon as it is gone."""
        kill = [str(launcher().folder / "kill"), str(self.pid)]
        if self.poll() is not None:
            return
        if sig != signal.SIGKILL or subprocess.run(kill, check=False, timeout=60).returncode:  # there is none yet
            super().send_signal(sig)


def start_script(*arguments: object, **options: Any) -> Forked:
    """Start a script, as ``python`` would with these arguments."""
    return Forked([launcher().folder / "script", *map(str, arguments)], text=True, **options)


# --- the process that forks -------------------------------------------------------------------------------------------

_began = time.monotonic_ns()
_forks: dict[int, tuple[int, socket.socket]] = {}
"""By the process that stands for it: a fork, and where to tell how it ended."""
_start: int | None = None
"""Where the wall clock of this process began, in nanoseconds; the steady one began at zero. Else both are the machine's."""


def _replace_clocks() -> None:
    """Let both clocks of this process be such that they can begin anew; to be called before Holdfast is imported."""
    real, real_time_ns, real_gettime_ns = dates.datetime, time.time_ns, time.clock_gettime_ns

    def wall() -> int:
        return real_time_ns() if _start is None else _start + time.monotonic_ns() - _began

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
        if clock == time.CLOCK_BOOTTIME and _start is not None:
            return time.monotonic_ns() - _began
        return real_gettime_ns(clock)

    vars(dates)["datetime"] = Moment
    vars(time).update(time_ns=wall, time=lambda: wall() / 1e9, clock_gettime_ns=gettime_ns)


def _begin_at(moment: str) -> None:
    global _start, _began  # noqa: PLW0603 - the clocks of a process
    _began = time.monotonic_ns()
    _start = int(dates.datetime.fromisoformat(moment).timestamp()) * 1_000_000_000


def _warm_up() -> None:
    """Import all that commands need, so that forks have it."""
    import gc

    import typer.main
    from typer.testing import CliRunner

    import holdfast.edges.mcp.transport
    import holdfast.integrations.langgraph.threads  # noqa: F401
    from holdfast.edges.cli.app import app
    from holdfast.recall.embedders import static

    vars(typer.main)["get_command"] = cache(typer.main.get_command)
    typer.main.get_command(app)
    vars(static)["_read_tokenizer"] = cache(static._read_tokenizer)
    vars(static)["read_pieces"] = cache(static.read_pieces)
    with tempfile.TemporaryDirectory() as home:
        add, search = (["add", "tea", "--user", "ann"], ["search", "tea", "--user", "ann"])
        for command in (add, search, ["sweep"], ["backup", "create"]):
            CliRunner().invoke(app, [*command, "--home", home], catch_exceptions=False)
    gc.collect()
    gc.freeze()


def _serve(address: str) -> None:
    """Fork for whoever asks, and tell how forks ended, until standard input ends."""
    _warm_up()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen(64)
        print("ready", flush=True)  # noqa: T201 - it is what the test waits for
        while True:
            ready = select.select([sys.stdin, door, woken], [], [])[0]
            if sys.stdin in ready:
                shutil.rmtree(Path(address).parent)
                return
            if woken in ready:
                os.read(woken, 4096)
                _reap()
            if door in ready:
                asked, _ = door.accept()
                (stands_for,) = struct.unpack("i8x", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if (fork := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    door.close()
                    os._exit(_answer(asked))
                _forks[stands_for] = fork, asked


def _reap() -> None:
    """Wait for the forks that have ended, and tell how."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            (stands_for,) = (one for one, (fork, _) in _forks.items() if fork == ended[0])
            with _forks.pop(stands_for)[1] as asked, suppress(BrokenPipeError):
                asked.send(f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())


def _answer(asked: socket.socket) -> int:
    """Run what is asked for in this process; its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for _, other in _forks.values():
        other.close()
    asked.send(f"{os.getpid()}\n".encode())
    files = array.array("i")
    first, passed, *_ = asked.recvmsg(4, socket.CMSG_SPACE(3 * files.itemsize))
    files.frombytes(passed[0][2])
    with asked.makefile("rb") as stream:
        how, arguments, folder, environment = marshal.loads(stream.read(int.from_bytes(first, "big")))  # noqa: S302 - from our own script
    asked.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - not a path
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if MOMENT in environment:
        _begin_at(environment[MOMENT])
    code = _run(how, arguments)
    for stream_out in (sys.stdout, sys.stderr):
        try:
            stream_out.flush()
        except BrokenPipeError:
            code = code or 1
    return code


def _run(how: str, arguments: list[str]) -> int:
    import traceback

    try:
        if how == "holdfast":
            from holdfast.edges.cli import main

            sys.argv = [how, *arguments]
            main()
        elif how == "kill":
            fork, _ = _forks.get(int(arguments[0])) or sys.exit(1)
            os.kill(fork, signal.SIGKILL)
        else:
            _run_script(*arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter ends
        traceback.print_exc()
        return 1
    return 0


def _run_script(path: str, *arguments: str) -> None:
    """Run a script of the tests, as the interpreter does: the text after ``-c``, or a file."""
    import runpy

    if path == "-c":
        sys.argv, code = ["-c", *arguments[1:]], compile(arguments[0], "script", "exec", dont_inherit=True)
        exec(code, {"__name__": "__main__"})  # noqa: S102
    else:
        sys.argv = [path, *arguments]
        runpy.run_path(path, run_name="__main__")


@cache
def launcher(*, clocks: bool = False) -> Launcher:
    """The launcher of this process; it ends with it."""
    import atexit

    started = Launcher(clocks=clocks)
    atexit.register(started.close)
    return started


if __name__ == "__main__":
    if sys.argv[2:]:
        _replace_clocks()
    _serve(sys.argv[1])
