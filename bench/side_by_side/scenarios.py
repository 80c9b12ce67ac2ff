"""What each system is asked to do, in a process of its own: ``python -m bench.side_by_side.scenarios …``.

One line of JSON for each scenario, as soon as it is done. A scenario that takes longer than a minute is stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np

from bench.side_by_side.data import QUESTIONS, SAID, TOPICS, facts, questions
from bench.side_by_side.systems import SYSTEMS

LIMIT: Final = 60
#: Seconds after which no more calls are timed, if there were this many.
_ENOUGH, _LEAST = 10.0, 30
#: A store is started so often.
_STARTS: Final = 3
#: For so many seconds it is waited for an expired fact to be gone.
_PATIENCE: Final = 5.0
#: Each of the other users of a store has so many facts.
_EACH: Final = 1_000
USER: Final = "ann"
BATCH: Final = 500


class StoppedError(BaseException):
    """The minute is over. Not an ``Exception``: no system is to take it for one of its own."""


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Stop what takes longer."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise StoppedError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds at the median and beyond."""
    p50, p95, p99 = np.percentile(np.array(seconds) * 1_000, (50, 95, 99))
    return {
        "p50": round(p50, 4),
        "p95": round(p95, 4),
        "p99": round(p99, 4),
        "per_second": round(1 / np.mean(seconds), 1),
        "calls": len(seconds),
    }


def timed(call: Callable[[Any], object], items: Iterable[Any], warm: int = 5) -> dict[str, float]:
    """How long each call takes, once it is warm: of all of them, or of as many as are made in ten seconds."""
    took: list[float] = []
    since = time.perf_counter()
    for number, item in enumerate(items):
        begun = time.perf_counter()
        if len(took) >= _LEAST and begun > since + _ENOUGH:
            break
        call(item)
        if number >= warm:
            took.append(time.perf_counter() - begun)
    return spread(took)


def peak_memory() -> int:
    """The most bytes that this process has had in memory; what the one had that started it does not count."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmHWM"))


class Run:
    """One system with a store of some size; each scenario is a method."""

    def __init__(self, name: str, size: int, folder: Path, vectors: Path) -> None:
        texts = json.loads((vectors / "texts.json").read_text(encoding="utf-8"))
        places, matrix = dict(zip(texts, count(), strict=False)), np.load(vectors / "vectors.npy")
        self.begun = time.perf_counter()
        self.name, self.size, self.folder, self.vectors = name, size, folder, vectors
        self.system: Any = SYSTEMS[name](folder, lambda some: matrix[[places[text] for text in some]])
        self.others = 0
        self.ids: list[str] = []

    def fill_others(self) -> None:
        """Let other users have facts."""
        said = facts(min(_EACH, self.size))
        for number in range(self.others // len(said)):
            for at in range(0, len(said), BATCH):
                self.system.add_many(f"user {number}", said[at : at + BATCH])

    def fill(self) -> dict[str, Any]:
        """Add in bulk."""
        said = facts(self.size)
        begun = time.perf_counter()
        for at in range(0, len(said), BATCH):
            self.ids += self.system.add_many(USER, said[at : at + BATCH])
        return {"per_second": round(len(said) / (time.perf_counter() - begun), 1), "disk": self.system.size()}

    def add(self) -> dict[str, Any]:
        return timed(lambda fact: self.system.add(USER, fact), facts(SAID["added"] or 0, "added"))

    def recall(self) -> dict[str, Any]:
        found = timed(lambda asked: self.system.recall(USER, asked), questions(QUESTIONS), 20)
        return {**found, "memory": peak_memory()}

    def filtered(self) -> dict[str, Any]:
        asked = [(question, TOPICS[number % 10]) for number, question in enumerate(questions(100))]
        return timed(lambda one: self.system.recall(USER, *one), asked, 10)

    def correct(self) -> dict[str, Any]:
        pairs = list(zip(self.ids, facts(SAID["corrected"] or 0, "corrected"), strict=False))
        return timed(lambda pair: self.system.correct(USER, pair[0], pair[1].text), pairs)

    def delete(self) -> dict[str, Any]:
        return timed(lambda item: self.system.delete(USER, item), self.ids[200:300])

    def context(self) -> dict[str, Any]:
        return timed(lambda asked: self.system.context(USER, asked), questions(60), 10)

    def expiry(self) -> dict[str, Any]:
        """How long after its moment a fact can still be found, and whether it can be read by its id then."""
        fact = facts(1, "expiring")[0]
        begun = time.time()
        item = self.system.expire(USER, fact, 1.0)
        made = time.time()  # its moment is between a second after the one and a second after the other
        while (now := time.time()) < made + 1.0 + _PATIENCE:
            if not self.system.can_read(USER, item):
                return {"late": round(max(0.0, now - begun - 1.0) * 1_000, 1), "readable": False}
            time.sleep(0.005)
        return {"late": None, "readable": True}

    def sweep(self) -> dict[str, Any]:
        """Recall while what has expired is removed."""
        for fact in facts(SAID["expiring"] or 0, "expiring")[1:]:
            self.system.expire(USER, fact, 1.0)
        time.sleep(1.1)
        sweeper = threading.Thread(target=self.system.sweep)
        took: list[float] = []
        asked = iter(questions(QUESTIONS) * 100)
        sweeper.start()
        while sweeper.is_alive() or len(took) < 50:
            begun = time.perf_counter()
            self.system.recall(USER, next(asked))
            took.append(time.perf_counter() - begun)
        sweeper.join()
        return spread(took)

    def cold_start(self) -> dict[str, Any]:
        """Import the system in a new process, open the store, and ask the first question."""
        if type(self.system).__name__ in ("LangGraphInMemory", "Floor", "FloorOnPostgres"):
            raise NotImplementedError
        self.system.close()
        try:
            took = [float(_answer_of(self._elsewhere("first_recall")))]
            while len(took) < _STARTS and sum(took) < _ENOUGH:
                took.append(float(_answer_of(self._elsewhere("first_recall"))))
        finally:
            self.system.open()
        return spread(took)

    def two_processes(self) -> dict[str, Any]:
        """Two processes add at once: how many a second, and how many are missing then."""
        if not self.system.is_shared:
            raise NotImplementedError
        before = self.system.count(USER)
        self.system.close()
        both = [self._elsewhere("adds", seed) for seed in ("first", "second")]
        try:
            took = [float(_answer_of(one)) for one in both]
        finally:
            self.system.open()
        added = (SAID["first"] or 0) + (SAID["second"] or 0)
        return {"per_second": round(added / max(took), 1), "lost": added - (self.system.count(USER) - before)}

    def delete_all(self) -> dict[str, Any]:
        """Delete all that a user has; how long it takes, and how many of their texts are in the files then."""
        texts = [fact.text for fact in facts(self.size)][1_000 if self.size > 1_000 else 300 :][:200]
        begun = time.perf_counter()
        self.system.delete_all(USER)
        took = time.perf_counter() - begun
        self.system.close()
        held = [path.read_bytes() for path in self.folder.rglob("*") if path.is_file()]
        left = sum(any(text.encode() in data for data in held) for text in texts)
        return {"p50": round(took * 1_000, 2), "left": left, "of": len(texts)}

    def _elsewhere(self, what: str, *more: str) -> subprocess.Popen[str]:
        asked = [self.name, str(self.size), str(self.folder), str(self.vectors), what, *more]
        command = [sys.executable, "-W", "ignore", "-m", "bench.side_by_side.scenarios", *asked]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def first_recall(self) -> None:
        """For the new process: since it began to import and open the store."""
        self.system.recall(USER, questions(1)[0])
        _say(f"{time.perf_counter() - self.begun}")

    def adds(self, seed: str) -> None:
        """For one of two processes."""
        begun = time.perf_counter()
        for fact in facts(SAID[seed] or 0, seed):
            self.system.add(USER, fact)
        _say(f"{time.perf_counter() - begun}")


def _answer_of(process: subprocess.Popen[str]) -> str:
    """What a process said; it ends with whoever waits for it."""
    try:
        return process.communicate()[0]
    finally:
        process.kill()
        process.wait()


SCENARIOS: Final = (
    Run.fill,
    Run.add,
    Run.recall,
    Run.filtered,
    Run.correct,
    Run.delete,
    Run.context,
    Run.expiry,
    Run.sweep,
    Run.cold_start,
    Run.two_processes,
    Run.delete_all,
)


def carry_out(run: Run, scenario: Callable[[Run], dict[str, Any]]) -> dict[str, Any]:
    """What a scenario measured, or why it did not."""
    try:
        with limit(LIMIT):
            return scenario(run)
    except StoppedError:
        return {"stopped": f"over {LIMIT} s"}
    except (NotImplementedError, AttributeError) as problem:
        named = isinstance(problem, NotImplementedError) or problem.obj is run.system
        return {"none": "it has no such verb"} if named else {"failed": repr(problem)}
    except Exception as problem:  # noqa: BLE001 - a peer that fails is shown as failed, with why
        return {"failed": f"{type(problem).__name__}: {problem}"[:300]}


def _say(line: str) -> None:
    os.write(_OUT, line.encode() + b"\n")


def main(name: str, size: str, folder: str, vectors: str, *more: str) -> None:
    """All scenarios; or, in a process that one of them has started, what that wants of it."""
    run = Run(name, int(size), Path(folder), Path(vectors))
    if more and not more[0].isdecimal():
        getattr(run, more[0])(*more[1:])
        return
    _say(json.dumps({"versions": SYSTEMS[name].versions(), "python": sys.version.split()[0]}))
    run.others = int(more[0]) if more else 0
    run.fill_others()
    for scenario in SCENARIOS:
        begun = time.perf_counter()
        found = carry_out(run, scenario)
        _say(json.dumps({scenario.__name__: {**found, "seconds": round(time.perf_counter() - begun, 1)}}))
        if scenario is Run.fill and "per_second" not in found:
            break  # without its facts the rest means nothing


_OUT = 1
if __name__ == "__main__":
    _OUT = os.dup(1)  # what a system prints is not an answer
    os.dup2(2, 1)
    main(*sys.argv[1:])
