"""The console over a small world: the service as it is served, and browsers that signed in with keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clocks import FakeClock
from console.browser import Site
from holdfast import Holdfast


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the tests of a module. They change nothing that others depend on."""
    with (
        Holdfast.open(home=tmp_path_factory.mktemp("console") / "home", clock=FakeClock()) as holdfast,
        Site(holdfast) as made,
    ):
        yield made


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """One for a test that changes something."""
    with Holdfast.open(home=tmp_path / "home", clock=FakeClock()) as holdfast, Site(holdfast) as made:
        yield made
