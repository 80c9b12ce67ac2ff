"""The pages that describe the API, in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from browser.browsers import Window
from browser.world import BEGAN, World
from clocks import FakeClock
from holdfast import Holdfast


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An empty store: the pages describe what can be asked for."""
    clock = FakeClock(BEGAN)
    with Holdfast.open(home=tmp_path_factory.mktemp("docs") / "home", clock=clock) as holdfast:
        yield World(holdfast, clock)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_pages_that_describe_the_api_can_be_used_by_everyone(shared: Callable[..., Window], path: str) -> None:
    opened = shared()
    opened.open(path)
    # Each operation is shown alike; axe takes long for a hundred of them.
    opened.page.evaluate("document.querySelectorAll('details').forEach((one, place) => place > 5 && one.remove())")
    assert opened.violations("region", "landmark-one-main", "color-contrast") == []
    assert opened.complaints == []
