"""Jobs: what takes longer than a page may, run in a thread of the process that began it.

How far a job is lies in the store, so that every process that serves the console shows its page. What came of it lies
there for an hour, and goes with a user whom it names.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
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
#: Whoever starts a job is kept for so long: what is over by then is shown at once.
_SHORT_SECONDS: Final = 0.25
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
    is_waiting: bool = False
    """It sends a file, and begins when the browser asks for that."""
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
        self._starting = threading.Lock()

    def start(self, token: str, action: Action, fields: Fields, run: Callable[..., Any], once: str = "") -> Job:
        """Run something in a thread; ``RateLimitedError`` while too many run.

        ``once`` is of the page that confirmed it: what is sent twice from there is one job.
        """
        job = Job(_derive_id(token, action, once) if once else secrets.token_urlsafe(12), action.name)
        with self._starting:
            if once and self._store.find(job.id, hash_token(token)) is not None:
                return job
            thread = self._begin(job, token, action, fields, run)
        thread.join(_SHORT_SECONDS)
        return job

    def _begin(self, job: Job, token: str, action: Action, fields: Fields, run: Callable[..., Any]) -> threading.Thread:
        if not self._running.acquire(blocking=False):
            raise RateLimitedError(f"{_MOST_RUNNING} jobs are running already; try again when one has ended")
        try:
            self._store.forget(self._now() - CONSOLE_JOBS_KEPT)
            self._save(job, token)
            thread = threading.Thread(
                target=self._run, args=(job, token, action, fields, run), name=f"console job {job.id}", daemon=True
            )
            thread.start()
        except BaseException:
            self._running.release()
            raise
        return thread

    def offer(self, token: str, action: Action, fields: Fields) -> Job:
        """A job that sends a file, and begins when the browser asks for it."""
        job = Job(secrets.token_urlsafe(12), action.name, is_waiting=True)
        self._save(job, token, json.dumps({"fields": fields}))
        return job

    def send(self, job: Job, token: str, action: Action, run: Callable[..., Any]) -> Callable[[io.RawIOBase], None]:
        """What writes the file of a job, and notes how much was sent. A file can be sent again."""

        def write(file: io.RawIOBase) -> None:
            begun = Job(job.id, job.action)
            self._follow(begun, token, action, job.fields, lambda advance: run(_CountedFile(file, advance)))

        return write

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
        elif not (job.is_over or job.is_waiting) and found.seen_at < self._now() - _LOST:
            job.is_over = True
            job.problem = publish(StaleError("the process that ran it has ended; see what it did, and start it again"))
        return job

    def _run(self, job: Job, token: str, action: Action, fields: Fields, run: Callable[..., Any]) -> None:
        try:
            with suppress(Exception):  # whatever it is, the page of the job says so
                self._follow(
                    job, token, action, fields, run if action.operation.takes_progress else lambda _advance: run()
                )
        finally:
            self._running.release()

    def _follow(self, job: Job, token: str, action: Action, fields: Fields, run: Callable[..., Any]) -> None:
        """Run something, and note how far it is and what came of it."""
        began, over = time.monotonic(), threading.Event()

        def advance(count: int, step: str = "") -> None:
            job.seconds = time.monotonic() - began
            job.advance(count, step)

        def note() -> None:
            while not over.wait(_NOTE_SECONDS):
                job.seconds = time.monotonic() - began
                self._save(job, token, kept)

        noting = threading.Thread(target=note, name=f"console job {job.id}, progress", daemon=True)
        content: dict[str, Any] = {"fields": {n: value for n, value in fields.items() if n not in action.forgets}}
        kept = json.dumps(content) if action.sends_file else None  # it can be sent again
        noting.start()
        try:
            result = run(advance)
            if isinstance(result, dict):
                result = {name: value for name, value in result.items() if name not in action.forgets}
            content["result"] = result
        except BrokenPipeError:
            content["problem"] = publish(StaleError("the browser stopped reading; export it again"))._asdict()
            raise
        except Exception as problem:
            content["problem"] = publish(problem)._asdict()
            raise
        finally:
            over.set()
            noting.join()
            job.seconds, job.is_over = time.monotonic() - began, True
            is_nameless = bool(action.forgets) and "problem" not in content
            self._save(job, token, json.dumps(content, default=str), is_nameless=is_nameless)

    def _save(self, job: Job, token: str, content: str | None = None, *, is_nameless: bool = False) -> None:
        said = {name: value for name, value in asdict(job).items() if name in _SAID}
        try:
            self._store.save(
                job.id, hash_token(token), json.dumps(said), content, now=self._now(), is_nameless=is_nameless
            )
        except HoldfastError:
            if not job.seconds:  # what has not begun is not begun
                raise


_SAID: Final = ("action", "seconds", "done", "steps", "is_over", "is_waiting")


class _CountedFile(io.RawIOBase):
    """A file that tells how much is written to it."""

    def __init__(self, file: io.RawIOBase, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._advance(len(data))
        return len(data)


def _derive_id(token: str, action: Action, once: str) -> str:
    return hashlib.sha256(f"{token} {action.name} {once}".encode("utf-8", "backslashreplace")).hexdigest()[:16]


def hash_token(token: str) -> bytes:
    """What a browser is known by in the store."""
    return hashlib.sha256(b"holdfast-console-job" + token.encode("utf-8", "backslashreplace")).digest()
