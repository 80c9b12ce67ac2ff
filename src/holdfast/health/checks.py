"""What a check is, and how one is made of something that may raise."""

from __future__ import annotations

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


def warned(name: str, detail: str, fix: str) -> Check:
    """It works, and deserves a look."""
    return Check(name, Status.WARNING, detail, fix)


def failed(name: str, problem: HoldfastError | str, fix: str) -> Check:
    """It does not work."""
    passing = isinstance(problem, HoldfastError) and problem.retryable
    return Check(name, Status.FAILED, str(problem), f"try again later; {fix}" if passing else fix)


def checked(name: str, look: Callable[[], Check], fix: str) -> Check:
    """What a look comes to; a failed check with this ``fix`` if it raises."""
    try:
        return look()
    except HoldfastError as problem:
        return failed(name, problem, fix)


def advice_of(problem: HoldfastError) -> str:
    """What a message says is to be done: its last part."""
    _, found, advice = str(problem).rpartition("; ")
    return advice if found else "look at the server's log"


def tried(name: str, look: Callable[[], str], fix: str) -> Check:
    """The same, for a look that tells what it found."""
    return checked(name, lambda: ok(name, look()), fix)


def since(start: float) -> float:
    """Milliseconds since a moment of ``time.perf_counter``."""
    return (time.perf_counter() - start) * 1_000


def nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())
