"""Threads that one process moves while another writes them, or that a process was moving when it was killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.integrations.langgraph.threads import Threads
from integrations.graphs import PLACES, Place, config_of, langgraph_time, look, say, talk
from launcher import start_script

#: Does something to a session, and is killed before or after the part of it was moved, or never.
MOVER = """
import os, signal, sys
from holdfast import Holdfast
from holdfast.integrations.langgraph.parts import ThreadPart
from holdfast.storage.relational.history import SqlHistory

home, verb, moment = sys.argv[1:]
def die(*args, **more):
    os.kill(os.getpid(), signal.SIGKILL)
if moment == "before":
    ThreadPart.recycle = ThreadPart.restore = die
elif moment == "after":
    SqlHistory.note_followed = die
with Holdfast.open(home=home) as holdfast:
    print("ready", flush=True)
    if verb == "sweep":
        sys.stdin.readline()
        holdfast.sweep(confirm=True)
    elif verb == "remove":
        holdfast.sessions.remove("helper", "trip", user_id="ann")
    else:
        holdfast.recycle.restore(session_id="trip")
"""


@dataclass
class World:
    """An application with threads, and where the store that governs them lies."""

    place: Place
    home: Path

    def __post_init__(self) -> None:
        self.graph = talk(self.place.saver)
        with Holdfast.open(home=self.home) as holdfast:
            Threads(self.place.url, schema=self.place.schema, engine=holdfast)

    def start(self, verb: str, moment: str = "never") -> subprocess.Popen[str]:
        """Another process that does something to the store."""
        return start_script("-c", MOVER, self.home, verb, moment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def kill(self, verb: str, moment: str) -> None:
        """The same, killed at a moment."""
        with self.start(verb, moment) as process:
            process.communicate(timeout=60)
        assert process.returncode == -9


@pytest.fixture(params=sorted(PLACES))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with PLACES[request.param](tmp_path) as place:
        yield World(place, tmp_path / "home")


def test_a_process_that_is_killed_between_a_session_and_its_thread_is_made_good_by_the_next(world: World) -> None:
    say(world.graph, config_of("trip"), "to Rome")
    before = look(world.graph, config_of("trip"))
    for moment in ("before", "after"):
        world.kill("remove", moment)
        assert bool(world.graph.get_state(config_of("trip")).values) is (moment == "before"), "whole in one place"
        with Holdfast.open(home=world.home) as holdfast:
            holdfast.parts.follow()
            assert world.graph.get_state(config_of("trip")).values == {}
            (threads,) = Threads.governed(holdfast)
            assert (threads.status()["in_bin"], threads.status()["threads"]) == (1, 0)
        world.kill("restore", moment)
        with Holdfast.open(home=world.home) as holdfast:
            holdfast.parts.follow()
            assert look(world.graph, config_of("trip")) == before
            assert holdfast.recycle.list() == []


def test_a_process_that_writes_on_while_another_sweeps_wins_or_fails_and_no_thread_is_halved(world: World) -> None:
    names = [f"trip {number}" for number in range(24)]
    with langgraph_time(FakeClock(datetime.now(UTC) - timedelta(days=40))):
        for name in names:
            say(world.graph, config_of(name), "to Rome")
    won, refused = set(), []
    with world.start("sweep") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        configs = {name: world.graph.get_state(config_of(name)).config for name in names}
        process.stdin.write("\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        for name in reversed(names):  # as a run does that read its state before
            config: Any = {"configurable": {**config_of(name)["configurable"], **configs[name]["configurable"]}}
            try:
                world.graph.update_state(config, {"said": ["and on to Naples"]})
                won.add(name)
            except Exception as problem:  # noqa: BLE001 - of either engine
                refused.append(str(problem))
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert all("recycle bin" in problem for problem in refused), refused
    with Holdfast.open(home=world.home) as holdfast:
        holdfast.parts.follow()
        (threads,) = Threads.governed(holdfast)
        assert threads.status()["threads"] + threads.status()["in_bin"] == len(names)
        for name in [str(item["session_id"]) for item in holdfast.recycle.list()]:
            assert world.graph.get_state(config_of(name)).values == {}
            holdfast.recycle.restore(session_id=name)
    for name in names:
        said = look(world.graph, config_of(name))[0]["said"]
        assert said[0] == "to Rome"
        assert ("and on to Naples" in said) is (name in won), name
