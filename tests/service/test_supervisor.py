"""The process beside the service: kept running, started again when it dies, stopped in peace, gone with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from holdfast.edges.service.scheduler import ProcessState, Supervisor

UNTIL_THE_END = "import sys; print('ready', flush=True); sys.stdin.readline(); sys.stdin.read()"
PATIENCE = 30


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes soon; bounded."""
    pause = threading.Event()
    for _ in range(PATIENCE * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come")


@contextmanager
def kept(code: str, told: str = "", **more: object) -> Iterator[Supervisor]:
    supervisor = Supervisor("schedule", [sys.executable, "-c", code], told, **more)  # type: ignore[arg-type]
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop(PATIENCE)


def test_it_is_told_what_it_needs_and_says_when_it_is_ready(tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = f"import sys, pathlib; pathlib.Path({str(note)!r}).write_text(sys.stdin.readline()); print('ready', flush=True); sys.stdin.read()"
    with kept(code, "the password") as supervisor:
        until(lambda: supervisor.state.ready)
        assert note.read_text() == "the password\n"
        assert supervisor.state == ProcessState(supervisor.state.pid, ready=True, restarts=0, trouble=None)
        assert b"the password" not in Path(f"/proc/{supervisor.state.pid}/cmdline").read_bytes()


def test_one_that_is_killed_is_started_again() -> None:
    with kept(UNTIL_THE_END, delays=(0.01,)) as supervisor:
        until(lambda: supervisor.state.ready)
        first = supervisor.state.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: supervisor.state.ready and supervisor.state.pid != first)
        assert supervisor.state.restarts == 1
        assert "holdfast_schedule_restarts_total 1.0" in metrics(supervisor)
        assert "holdfast_schedule_up 1.0" in metrics(supervisor)


def test_one_that_keeps_dying_is_started_again_later_and_later() -> None:
    waited: list[float] = []

    class Delays(tuple[float, ...]):
        def __getitem__(self, index: object) -> float:  # type: ignore[override]
            waited.append(super().__getitem__(index))  # type: ignore[call-overload]
            return 0.001

    with kept("raise SystemExit(3)", delays=Delays((1.0, 2.0, 4.0)), steady_seconds=1e9) as supervisor:
        until(lambda: len(waited) >= 5)
        assert supervisor.state.restarts >= 4
        until(lambda: supervisor.state.trouble == "ended with exit code 3; starts again soon")
        assert "holdfast_schedule_up 0.0" in metrics(supervisor)
    assert waited[:5] == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_one_that_ran_well_for_long_is_started_again_at_once() -> None:
    waited: list[float] = []

    class Delays(tuple[float, ...]):
        def __getitem__(self, index: object) -> float:  # type: ignore[override]
            waited.append(super().__getitem__(index))  # type: ignore[call-overload]
            return 0.001

    with kept("raise SystemExit(3)", delays=Delays((1.0, 2.0, 4.0)), steady_seconds=0.0):
        until(lambda: len(waited) >= 3)
    assert set(waited) == {1.0}


def test_what_cannot_be_started_is_trouble_and_no_crash() -> None:
    supervisor = Supervisor("schedule", ["/no/such/program"], delays=(0.001,))
    supervisor.start()
    until(lambda: supervisor.state.restarts >= 2)
    assert "could not be started" in (supervisor.state.trouble or "")
    assert supervisor.stop(PATIENCE)


def test_a_stop_lets_it_finish(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with kept(f"{UNTIL_THE_END}; open({str(done)!r}, 'w').close()") as supervisor:
        until(lambda: supervisor.state.ready)
        assert supervisor.stop(PATIENCE)
    assert done.exists()
    assert supervisor.state.restarts == 0
    assert supervisor.state.trouble == "stopped"


def test_one_that_does_not_stop_is_ended() -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    with kept(stubborn, term_seconds=0.1) as supervisor:
        until(lambda: supervisor.state.ready)
        pid = supervisor.state.pid
        assert pid is not None
        assert not supervisor.stop(0.01)
        until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_stop_before_the_start_is_none() -> None:
    assert Supervisor("schedule", [sys.executable, "-c", UNTIL_THE_END]).stop(1)


def test_it_ends_when_its_parent_is_no_more() -> None:
    parent = (
        "import sys, time\n"
        "from holdfast.edges.service.scheduler import Supervisor\n"
        f"supervisor = Supervisor('schedule', [sys.executable, '-c', {UNTIL_THE_END!r}])\n"
        "supervisor.start()\n"
        "while not supervisor.state.ready: time.sleep(0.01)\n"
        "print(supervisor.state.pid, flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    until(lambda: is_gone(child))


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked yet how."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def metrics(supervisor: Supervisor) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(supervisor)
    return str(generate_latest(registry).decode())
