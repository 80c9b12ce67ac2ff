"""What a check is, and how it is run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from holdfast.core.errors import HoldfastError


class Status(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what was found, and what to do about it (``None`` where all is well)."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


def ok(name: str, detail: str) -> Check:
    """All is well."""
    return Check(name, Status.OK, detail)


def warn(name: str, detail: str, fix: str) -> Check:
    """It works, and deserves a look."""
    return Check(name, Status.WARNING, detail, fix)


def fail(name: str, problem: HoldfastError | str, fix: str) -> Check:
    """It does not work."""
    passing = isinstance(problem, HoldfastError) and problem.retryable
    return Check(name, Status.FAILED, str(problem), f"try again later; {fix}" if passing else fix)


def run_check(name: str, look: Callable[[], Check | str], fix: str | Callable[[HoldfastError], str]) -> Check:
    """The check that a look makes, or one of what it found in words; a failed one, with ``fix``, where it raises."""
    try:
        found = look()
    except HoldfastError as problem:
        return fail(name, problem, fix if isinstance(fix, str) else fix(problem))
    return ok(name, found) if isinstance(found, str) else found


def advice_of(problem: HoldfastError) -> str:
    """What a message says is to be done: its last part."""
    _, found, advice = str(problem).rpartition("; ")
    return advice if found else "look at the server's log"


def elapsed_ms(start: float) -> float:
    """Milliseconds since a moment of ``time.perf_counter``."""
    return (time.perf_counter() - start) * 1_000


def nearest_existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def can_write(folder: Path) -> bool:
    """Whether files can be made in a folder."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
