"""The pages that describe the API, in a browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browser.browsers import Window


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_pages_that_describe_the_api_can_be_used_by_everyone(shared: Callable[..., Window], path: str) -> None:
    opened = shared()
    opened.open(path)
    assert opened.violations("region", "landmark-one-main", "color-contrast") == []
    assert opened.complaints == []
