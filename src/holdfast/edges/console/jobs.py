"""Jobs: what takes longer than a page may, run in a thread, seen by the browser that started it.

They live in this process: what they did is in the store, and a job that another process runs is not known here.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.core.errors import NotFoundError, RateLimitedError
from holdfast.edges.console.table import Action, Fields
from holdfast.edges.operations.errors import PublicError, publish
from holdfast.edges.operations.operation import Form

#: So many run at once, and so many are remembered for so long.
_MOST_RUNNING: Final = 4
_MOST_KEPT: Final = 64
_KEPT_SECONDS: Final = 3_600.0


@dataclass
class Job:
    """One run of an action."""

    id: str
    owner: str
    """The token of the browser that started it."""
    action: Action
    fields: Fields
    began: float
    done: int = 0
    """How far it is, in what it counts."""
    ended: float | None = None
    result: Any = None
    problem: PublicError | None = None

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return (self.ended or time.monotonic()) - self.began


@dataclass
class Jobs:
    """The jobs of this process."""

    kept: dict[str, Job] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, owner: str, action: Action, fields: Fields, run: Callable[..., Any]) -> Job:
        """Run something in a thread; ``RateLimitedError`` while too many run."""
        job = Job(secrets.token_urlsafe(12), owner, action, fields, time.monotonic())
        with self._lock:
            if sum(one.ended is None for one in self.kept.values()) >= _MOST_RUNNING:
                raise RateLimitedError(f"{_MOST_RUNNING} jobs are running already; try again when one has ended")
            self._forget()
            self.kept[job.id] = job
        threading.Thread(target=self._run, args=(job, run), name=f"console job {job.id}", daemon=True).start()
        return job

    def get(self, job_id: str, owner: str) -> Job:
        """A job of this browser's; ``NotFoundError`` if there is none."""
        job = self.kept.get(job_id)
        if job is None or job.owner != owner:
            raise NotFoundError(
                "there is no such job here; it was another browser's or another server's, or is long over"
            )
        return job

    def _run(self, job: Job, run: Callable[..., Any]) -> None:
        def advance(count: int) -> None:
            job.done += count

        try:
            job.result = run(advance) if job.action.operation.form is Form.LINES else run()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the page of the job says so
            job.problem = publish(problem)
        job.ended = time.monotonic()

    def _forget(self) -> None:
        """Let go of those that ended long ago, and of the oldest where there are too many."""
        old = time.monotonic() - _KEPT_SECONDS
        over = [one for one in self.kept.values() if one.ended is not None]
        too_many = max(0, len(self.kept) - _MOST_KEPT + 1)
        for number, job in enumerate(over):
            if number < too_many or (job.ended or 0) < old:
                del self.kept[job.id]
