"""What tests of the retention domains share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clocks import FakeClock
from domains.tenants import Tenants
from holdfast import Holdfast


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    clock = FakeClock()
    with Holdfast.open(home=tmp_path_factory.mktemp("homes") / "home", clock=clock) as holdfast:
        yield Tenants(holdfast, clock)
