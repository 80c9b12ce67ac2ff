"""Starting the processes of ``child.py``, talking with them, and being sure that they end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from launcher import start_script

SCRIPT = Path(__file__).with_name("child.py")
SECONDS = 120


class Child:
    """A running process that answers in lines of JSON."""

    def __init__(self, verb: str, *arguments: object) -> None:
        self.process = start_script(SCRIPT, verb, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def hear(self) -> Any:
        """The next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait(SECONDS)} instead of answering"
        return json.loads(line)

    def tell(self, word: object) -> None:
        """What it waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def rest(self) -> list[Any]:
        """All that is still to be heard, until the process has ended; a line cut short by a kill is not heard."""
        assert self.process.stdout is not None
        lines = self.process.stdout.readlines()  # communicate() would miss what was read ahead with the last line heard
        self.process.communicate(timeout=SECONDS)
        return [json.loads(line) for line in lines if line.endswith("\n")]


@contextmanager
def children(count: int, verb: str, *arguments: object) -> Iterator[list[Child]]:
    """Several processes; none of them outlives the block."""
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            child = Child(verb, *arguments)
            stack.callback(_end, child.process)
            started.append(child)
        yield started


def answers(verb: str, *arguments: object) -> list[Any]:
    """All that one process says; it must end well."""
    with children(1, verb, *arguments) as (child,):
        said = child.rest()
        assert child.process.returncode == 0
        return said


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
