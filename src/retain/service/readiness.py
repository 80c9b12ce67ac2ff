"""Whether the service can do its work now, and if not, what is in the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from retain.core.errors import RetainError

_ANSWER_SECONDS: Final = 5.0
#: Probes within so many seconds are given one answer: asking is not to be a load.
_KEPT_SECONDS: Final = 1.0

Look = Callable[[], str | None]
"""What is wrong, or ``None``."""


class Found(NamedTuple):
    """What was found: for each check what is wrong with it, or ``None``."""

    checks: Mapping[str, str | None]

    @property
    def ready(self) -> bool:
        return not any(self.checks.values())

    def as_dict(self, *, detailed: bool) -> dict[str, Any]:
        """``detailed`` says why: that may name hosts and files, and is not for everyone."""
        said = {
            name: "ok" if wrong is None else wrong if detailed else "not ready" for name, wrong in self.checks.items()
        }
        return {"status": "ready" if self.ready else "not_ready", "checks": said}


class Readiness:
    """Looks, in a thread, one look at a time; a look that takes too long is an answer as well."""

    def __init__(
        self,
        checks: Mapping[str, Look],
        *,
        seconds: float = _ANSWER_SECONDS,
        kept_seconds: float = _KEPT_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checks = checks
        self._seconds = seconds
        self._kept_seconds = kept_seconds
        self._now = now
        self._last: tuple[float, Found] | None = None
        self._looking: asyncio.Task[Found] | None = None

    async def look(self) -> Found:
        """What is found now, or was found a moment ago."""
        if self._last is not None and self._now() - self._last[0] < self._kept_seconds:
            return self._last[1]
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        done, _ = await asyncio.wait({self._looking}, timeout=self._seconds)
        if done:
            return self._looking.result()
        return Found(dict.fromkeys(self._checks, f"no answer within {self._seconds:g} s"))

    async def _look(self) -> Found:
        found = Found(await asyncio.to_thread(lambda: {name: _asked(look) for name, look in self._checks.items()}))
        self._last = (self._now(), found)
        return found


def _asked(look: Look) -> str | None:
    try:
        return look()
    except RetainError as problem:
        return str(problem)
