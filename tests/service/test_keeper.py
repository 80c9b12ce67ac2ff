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

from holdfast.edges.service.supervisor import Keeper, Standing

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
def kept(code: str, told: str = "", **more: object) -> Iterator[Keeper]:
    keeper = Keeper("schedule", [sys.executable, "-c", code], told, **more)  # type: ignore[arg-type]
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop(PATIENCE)


def test_it_is_told_what_it_needs_and_says_when_it_is_ready(tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = f"import sys, pathlib; pathlib.Path({str(note)!r}).write_text(sys.stdin.readline()); print('ready', flush=True); sys.stdin.read()"
    with kept(code, "the password") as keeper:
        until(lambda: keeper.standing.ready)
        assert note.read_text() == "the password\n"
        assert keeper.standing == Standing(keeper.standing.pid, ready=True, restarts=0, trouble=None)
        assert b"the password" not in Path(f"/proc/{keeper.standing.pid}/cmdline").read_bytes()


def test_one_that_is_killed_is_started_again() -> None:
    with kept(UNTIL_THE_END, delays=(0.01,)) as keeper:
        until(lambda: keeper.standing.ready)
        first = keeper.standing.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: keeper.standing.ready and keeper.standing.pid != first)
        assert keeper.standing.restarts == 1
        assert "holdfast_schedule_restarts_total 1.0" in metrics(keeper)
        assert "holdfast_schedule_up 1.0" in metrics(keeper)


def test_one_that_keeps_dying_is_started_again_later_and_later() -> None:
    waited: list[float] = []

    class Delays(tuple[float, ...]):
        def __getitem__(self, index: object) -> float:  # type: ignore[override]
            waited.append(super().__getitem__(index))  # type: ignore[call-overload]
            return 0.001

    with kept("raise SystemExit(3)", delays=Delays((1.0, 2.0, 4.0)), steady_seconds=1e9) as keeper:
        until(lambda: len(waited) >= 5)
        assert keeper.standing.restarts >= 4
        until(lambda: keeper.standing.trouble == "ended with exit code 3; starts again soon")
        assert "holdfast_schedule_up 0.0" in metrics(keeper)
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
    keeper = Keeper("schedule", ["/no/such/program"], delays=(0.001,))
    keeper.start()
    until(lambda: keeper.standing.restarts >= 2)
    assert "could not be started" in (keeper.standing.trouble or "")
    assert keeper.stop(PATIENCE)


def test_a_stop_lets_it_finish(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with kept(f"{UNTIL_THE_END}; open({str(done)!r}, 'w').close()") as keeper:
        until(lambda: keeper.standing.ready)
        assert keeper.stop(PATIENCE)
    assert done.exists()
    assert keeper.standing.restarts == 0
    assert keeper.standing.trouble == "stopped"


def test_one_that_does_not_stop_is_ended() -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    with kept(stubborn, term_seconds=0.1) as keeper:
        until(lambda: keeper.standing.ready)
        pid = keeper.standing.pid
        assert pid is not None
        assert not keeper.stop(0.01)
        until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_stop_before_the_start_is_none() -> None:
    assert Keeper("schedule", [sys.executable, "-c", UNTIL_THE_END]).stop(1)


def test_it_ends_when_its_parent_is_no_more() -> None:
    parent = (
        "import sys, time\n"
        "from holdfast.edges.service.supervisor import Keeper\n"
        f"keeper = Keeper('schedule', [sys.executable, '-c', {UNTIL_THE_END!r}])\n"
        "keeper.start()\n"
        "while not keeper.standing.ready: time.sleep(0.01)\n"
        "print(keeper.standing.pid, flush=True)\n"
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


def metrics(keeper: Keeper) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(keeper)
    return str(generate_latest(registry).decode())
