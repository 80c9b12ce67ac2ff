"""The pages that describe the API, in a browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browser.browsers import PHONE, Window


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_pages_that_describe_the_api_open_and_can_be_used_by_everyone(
    window: Callable[..., Window], colours: str
) -> None:
    opened = window(colours=colours)
    for path in ("/", "/docs"):
        opened.open(path)
        assert opened.violations() == [], path
    assert opened.complaints == []


def test_they_fit_on_a_phone(window: Callable[..., Window]) -> None:
    opened = window(size=PHONE)
    for path in ("/", "/docs"):
        opened.open(path)
        assert not opened.is_too_wide(), path
