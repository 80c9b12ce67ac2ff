"""Jobs: what takes longer than a page may, run in a thread of the process that began it.

How far a job is lies in the store, so that every process that serves the console shows its page. What came of it lies
there for an hour, and goes with a user whom it names.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast.core.errors import HoldfastError, NotFoundError, RateLimitedError, StaleError
from holdfast.core.values import SECOND
from holdfast.edges.console.table import Action, Fields
from holdfast.edges.operations.errors import PublicError, publish
from holdfast.ports.coordination import CONSOLE_JOBS_KEPT, ConsoleJobStore

#: So many run at once in a process; how far each is, is noted so often.
_MOST_RUNNING: Final = 4
_NOTE_SECONDS: Final = 0.5
#: A job of which nobody has heard for so long was cut short.
_LOST: Final = 60 * SECOND


@dataclass
class Step:
    """A step of a job that tells its steps."""

    name: str
    seconds: float
    """When it was reached, since the job began."""
    count: int = 0


@dataclass
class Job:
    """One run of an action: how far it is, and what came of it."""

    id: str
    action: str
    seconds: float = 0.0
    """How long it has run."""
    done: int = 0
    """How far it is, in what it counts."""
    steps: list[Step] = field(default_factory=list)
    is_over: bool = False
    fields: Fields = field(default_factory=dict)
    result: Any = None
    problem: PublicError | None = None
    is_cleared: bool = False
    """What came of it is not kept, because somebody was erased meanwhile."""

    def advance(self, count: int, step: str = "") -> None:
        """Count what was done, in a step where it has steps."""
        self.done += count
        if step and step not in (one.name for one in self.steps):
            self.steps.append(Step(step, self.seconds))
        for one in self.steps:
            if one.name == step:
                one.count += count


class Jobs:
    """The jobs of a store's console. Those that run here are known here, too."""

    def __init__(self, store: ConsoleJobStore, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._running = threading.BoundedSemaphore(_MOST_RUNNING)

    def start(self, token: str, action: Action, fields: Fields, run: Callable[..., Any]) -> Job:
        """Run something in a thread; ``RateLimitedError`` while too many run."""
        if not self._running.acquire(blocking=False):
            raise RateLimitedError(f"{_MOST_RUNNING} jobs are running already; try again when one has ended")
        job = Job(secrets.token_urlsafe(12), action.name)
        try:
            self._store.forget(self._now() - CONSOLE_JOBS_KEPT)
            self._save(job, token)
            threading.Thread(
                target=self._run, args=(job, token, action, fields, run), name=f"console job {job.id}", daemon=True
            ).start()
        except BaseException:
            self._running.release()
            raise
        return job

    def get(self, job_id: str, token: str) -> Job:
        """A job of this browser's, whichever process runs it; ``NotFoundError`` if there is none."""
        found = self._store.find(job_id, hash_token(token))
        if found is None or found.seen_at < self._now() - CONSOLE_JOBS_KEPT:
            raise NotFoundError("there is no such job here; it was another browser's, or is long over")
        said, content = json.loads(found.said), json.loads(found.content or "{}")
        steps = [Step(**one) for one in said.pop("steps")]
        problem = content.pop("problem", None)
        job = Job(job_id, **said, **content, steps=steps, is_cleared=found.is_cleared and not content)
        if problem is not None:
            job.problem = PublicError(**problem)
        elif not job.is_over and found.seen_at < self._now() - _LOST:
            job.is_over = True
            job.problem = publish(StaleError("the process that ran it has ended; see what it did, and start it again"))
        return job

    def _run(self, job: Job, token: str, action: Action, fields: Fields, run: Callable[..., Any]) -> None:
        began, over = time.monotonic(), threading.Event()

        def advance(count: int, step: str = "") -> None:
            job.seconds = time.monotonic() - began
            job.advance(count, step)

        def note() -> None:
            while not over.wait(_NOTE_SECONDS):
                job.seconds = time.monotonic() - began
                self._save(job, token)

        noting = threading.Thread(target=note, name=f"console job {job.id}, progress", daemon=True)
        noting.start()
        content: dict[str, Any] = {"fields": {n: value for n, value in fields.items() if n not in action.forgets}}
        try:
            result = run(advance) if action.operation.takes_progress else run()
            if isinstance(result, dict):
                result = {name: value for name, value in result.items() if name not in action.forgets}
            content["result"] = result
        except Exception as problem:  # noqa: BLE001 - whatever it is, the page of the job says so
            content["problem"] = publish(problem)._asdict()
        finally:
            over.set()
            noting.join()
            job.seconds, job.is_over = time.monotonic() - began, True
            is_nameless = bool(action.forgets) and "problem" not in content
            self._save(job, token, json.dumps(content, default=str), is_nameless=is_nameless)
            self._running.release()

    def _save(self, job: Job, token: str, content: str | None = None, *, is_nameless: bool = False) -> None:
        said = {name: value for name, value in asdict(job).items() if name in _SAID}
        try:
            self._store.save(
                job.id, hash_token(token), json.dumps(said), content, now=self._now(), is_nameless=is_nameless
            )
        except HoldfastError:
            if not job.seconds:  # what has not begun is not begun
                raise


_SAID: Final = ("action", "seconds", "done", "steps", "is_over")


def hash_token(token: str) -> bytes:
    """What a browser is known by in the store."""
    return hashlib.sha256(b"holdfast-console-job" + token.encode("utf-8", "backslashreplace")).digest()
