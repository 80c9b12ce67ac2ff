"""What a check is, and how it is run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from importlib import resources
from pathlib import Path
from typing import Final, ParamSpec

from holdfast.core.errors import HoldfastError, StorageError

P = ParamSpec("P")
#: What to do about what a check found, where that takes a sentence.
ADVICE: Final[dict[str, str]] = json.loads(resources.files("holdfast.health").joinpath("advice.json").read_bytes())


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


def ok(detail: str) -> Check:
    """All is well."""
    return Check("", Status.OK, detail)


def warn(detail: str, fix: str) -> Check:
    """It works, and deserves a look."""
    return Check("", Status.WARNING, detail, fix)


def fail(problem: HoldfastError | str, fix: str) -> Check:
    """It does not work."""
    passing = isinstance(problem, HoldfastError) and problem.retryable
    return Check("", Status.FAILED, str(problem), f"try again later; {fix}" if passing else fix)


def named(name: str, found: Check | str) -> Check:
    """The check of this name; what was found in words is well."""
    return replace(ok(found) if isinstance(found, str) else found, name=name)


def check(
    name: str, fix: str | Callable[[HoldfastError], str] = ""
) -> Callable[[Callable[P, Check | str | None]], Callable[P, list[Check]]]:
    """Make a check of a function that looks at one thing: of the ``Check`` that it returns, or of what it found, in
    words; of nothing, if it returns ``None``. Where it raises, the check has failed, and says how to ``fix`` that.
    """

    def decorate(look: Callable[P, Check | str | None]) -> Callable[P, list[Check]]:
        @wraps(look)
        def run(*args: P.args, **kwargs: P.kwargs) -> list[Check]:
            try:
                found = look(*args, **kwargs)
            except HoldfastError as problem:
                found = fail(problem, fix if isinstance(fix, str) else fix(problem))
            return [] if found is None else [named(name, found)]

        return run

    return decorate


def advice_of(problem: HoldfastError) -> str:
    """What a message says is to be done: its last part."""
    _, found, advice = str(problem).rpartition("; ")
    return advice if found else "look at the server's log"


def advise(fix: str) -> Callable[[HoldfastError], str]:
    """What to do: what the problem itself says where it is the store's, ``fix`` for any other."""
    return lambda problem: advice_of(problem) if isinstance(problem, StorageError) else fix


def elapsed_ms(start: float) -> float:
    """Milliseconds since a moment of ``time.perf_counter``."""
    return (time.perf_counter() - start) * 1_000


def nearest_existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def can_write(folder: Path) -> bool:
    """Whether files can be made in a folder."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
