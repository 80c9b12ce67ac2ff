"""What a sweep removes beside memories and conversations: single messages, agents, tools, and what belongs to a removed
agent and has not followed it yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.core.decisions import BIN_REASON
from holdfast.core.records import State
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.sweeping.plan import Line, add_up
from holdfast.ports.conversations import MessageBin
from holdfast.ports.rules import BinReader, Census
from holdfast.ports.work import Lease

MESSAGE: Final = "message"
_SOME: Final = 1_000


@dataclass(eq=False, repr=False)
class Purge:
    """The same for a plan, which counts it, and for a sweep, which carries it out after the moves of records."""

    tenant: str
    dues: BinReader
    history: MessageBin
    registry: Registry

    def due(self, upto: int, going: Callable[[], Container[str]]) -> Iterator[tuple[Census, State, str]]:
        """How much leaves up to a moment, where to and why. ``going`` tells what rules send to the bin before that."""
        for census in self.dues.message_census(self.tenant, upto):
            yield census, State.DELETED, BIN_REASON
        yield from self.registry.purge_census(upto, going)

    def carry_out(self, upto: int, *, now: int, lease: Callable[[], Lease | None], bin: bool) -> tuple[Line, ...]:  # noqa: A002
        """Let go what was due up to a moment, of the bin if that is swept; what went."""
        lines: list[Line] = []
        self.registry.finish_unfinished(lease(), "remove", note=lines.append)
        if bin:
            gone: Counter[str] = Counter()
            while True:
                count, size = self.history.purge_messages(self.tenant, at=upto, now=now, limit=_SOME, lease=lease())
                gone.update(records=count, bytes=size)
                if count < _SOME:
                    break
            if gone["records"]:
                lines.append(Line(MESSAGE, "delete", BIN_REASON, gone["records"], gone["bytes"]))
            self.registry.purge_due(now, lease(), at=upto, note=lines.append)
        return add_up(lines)
