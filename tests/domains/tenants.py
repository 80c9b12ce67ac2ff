"""Tenants for tests of which each example begins with nothing: new ones of one open store."""

from __future__ import annotations

from itertools import count

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.lifecycle.domains import Domains


class Tenants:
    """Tenants that nobody has used yet, in one open store."""

    def __init__(self, holdfast: Holdfast, clock: FakeClock) -> None:
        self.holdfast = holdfast
        self.clock = clock
        self._numbers = count()

    def open(self) -> Holdfast:
        """The store for a tenant of whom nothing is kept."""
        return self.holdfast.of_tenant(f"tenant {next(self._numbers)}")

    def new(self) -> Domains:
        """Domains that nothing was ever said of."""
        return self.open().domains
