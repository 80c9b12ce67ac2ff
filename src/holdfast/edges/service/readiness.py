"""Whether the service can do its work now, and if not, which part is in the way.

Each part is looked at by itself, in a thread of its own, and for one look at a time: a part that hangs is waited for by
nobody, and delays no other. An answer comes within a part of a second, whatever hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from holdfast.core.errors import HoldfastError

#: How long an answer waits for looks that have begun: with what else it takes, it comes within 300 ms.
ANSWER_SECONDS: Final = 0.15
#: Probes within so many seconds are given one answer: asking is not to be a load.
KEPT_SECONDS: Final = 1.0

Look = Callable[[], str | None]
"""What is wrong, or ``None``."""


class Part(NamedTuple):
    """Something that the service needs."""

    look: Look
    needed: bool = True
    """Whether nothing is to be sent here while it is away; else it is only named."""
    kept_seconds: float = KEPT_SECONDS


class Found(NamedTuple):
    """What was found: for each part what is wrong with it, or ``None``."""

    checks: Mapping[str, str | None]
    needed: frozenset[str]

    @property
    def ready(self) -> bool:
        """Whether all is well that is needed."""
        return not any(wrong for name, wrong in self.checks.items() if name in self.needed)

    @property
    def whole(self) -> bool:
        """Whether all is well."""
        return not any(self.checks.values())

    def as_dict(self, *, detailed: bool) -> dict[str, Any]:
        """``detailed`` says why: that may name hosts and files, and is not for everyone."""
        said = {
            name: "ok" if wrong is None else wrong if detailed else "not ready" for name, wrong in self.checks.items()
        }
        return {"status": "ready" if self.ready else "not_ready", "checks": said}


class _Watched:
    """One part, and what was found when it was last looked at."""

    def __init__(self, name: str, part: Part, now: Callable[[], float]) -> None:
        self.part = part
        self._name = name
        self._now = now
        self._looking: Future[str | None] | None = None
        self._at: float | None = None
        self._wrong: str | None = None

    def refresh(self) -> Future[str | None] | None:
        """The look that is under way, begun if what is known is too old; ``None`` if it is not."""
        self._take()
        if self._looking is None and (self._at is None or self._now() - self._at >= self.part.kept_seconds):
            self._looking = Future()
            name = f"holdfast-ready-{self._name}"  # a daemon: a look that hangs keeps no process from ending
            threading.Thread(target=_ask, args=(self.part.look, self._looking), name=name, daemon=True).start()
        return self._looking

    def wrong(self, seconds: float) -> str | None:
        """What is wrong, as far as is known after waiting so long."""
        self._take()
        if self._looking is None:
            return self._wrong
        return self._wrong or f"no answer within {seconds:g} s"

    def _take(self) -> None:
        """Take what a look has found, if it has ended."""
        if self._looking is not None and self._looking.done():
            self._wrong, self._at, self._looking = self._looking.result(), self._now(), None


class Readiness:
    """Looks at all parts at once, and answers in time."""

    def __init__(
        self,
        parts: Mapping[str, Part],
        *,
        seconds: float = ANSWER_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._parts = {name: _Watched(name, part, now) for name, part in parts.items()}
        self._needed = frozenset(name for name, part in parts.items() if part.needed)

    async def look(self) -> Found:
        """What is found now, or was found a moment ago; of a part that does not answer in time, that it does not."""
        looking = [one for part in self._parts.values() if (one := part.refresh()) is not None]
        if looking:
            await asyncio.wait(map(asyncio.wrap_future, looking), timeout=self._seconds)
        return Found({name: part.wrong(self._seconds) for name, part in self._parts.items()}, self._needed)


def _ask(look: Look, found: Future[str | None]) -> None:
    try:
        found.set_result(look())
    except HoldfastError as problem:
        found.set_result(str(problem))
    except BaseException as problem:  # noqa: BLE001 - it is told that something is wrong, and logged by nobody else
        found.set_result(f"it failed unexpectedly ({type(problem).__name__})")
