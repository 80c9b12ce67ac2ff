"""A browser for a module's tests, pages in it, and what went wrong in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, sync_playwright

import chromium

PHONE: ViewportSize = {"width": 390, "height": 844}
WIDE: ViewportSize = {"width": 1280, "height": 900}
_AXE = Axe().axe_script


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser. It ends with the block: while it runs, its thread has an event loop, in which no other can be run."""
    path = chromium.find_browser()
    if path == chromium.NONE:
        pytest.skip(f"{chromium.SETTING}={chromium.NONE}")
    if path is None:
        pytest.fail(chromium.ADVICE)
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=[*options, "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@dataclass
class Window:
    """A page in a browser, what it complained of, and how often something in it was clicked."""

    page: Page
    url: str
    """Of the service."""
    complaints: list[str] = field(default_factory=list)
    clicks: int = 0

    def __post_init__(self) -> None:
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._note_request)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note_request(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # by another click, or a download
            self.complaints.append(f"{request.url}: {request.failure}")

    def open(self, path: str) -> Page:
        """Go to a page of the service."""
        self.page.goto(self.url + path)
        return self.page

    def sign_in(self, secret: str) -> None:
        """Sign in to the console with a key."""
        self.open("/console/sign-in").get_by_label("API key").fill(secret)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/console")

    def click(self, name: str | Any, *, role: Any = None, inside: Any = None) -> None:
        """Click a link or a button, by what it says, and count it."""
        self.clicks += 1
        where = inside or self.page
        found = name if not isinstance(name, str) else where.get_by_role(role or "link", name=name)
        if isinstance(name, str) and role is None:
            found = found.or_(where.get_by_role("button", name=name))
        found.first.click()

    def text(self) -> str:
        """What the page says to a reader."""
        said: str = self.page.locator("main").inner_text()
        return said

    def violations(self, *rules: str, colours: bool = True) -> list[str]:
        """What axe-core finds wrong with the page; by these rules alone, if any are named. Colours take the longest."""
        if not self.page.evaluate("'axe' in globalThis"):
            self.page.evaluate(_AXE)
        options: dict[str, Any] = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        options |= {} if colours else {"rules": {"color-contrast": {"enabled": False}}}
        found = self.page.evaluate("options => axe.run(options).then(found => found.violations)", options)
        return [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]

    def look(self, path: str, *, in_all: bool = True) -> str:
        """Open a page, and find nothing wrong with it: on a wide screen, and (where ``in_all``) with its light colours, and
        on a phone in dark ones. What it says to a reader.
        """
        response = self.page.goto(self.url + path)
        assert response is not None
        said = self.text()
        assert response.status == 200, said[:500]
        assert self.violations(colours=in_all) == []
        if in_all:
            self.page.emulate_media(color_scheme="dark")
            self.page.set_viewport_size(PHONE)
            assert self.violations("color-contrast", "scrollable-region-focusable") == []
            assert not self.is_too_wide()
            self.page.emulate_media(color_scheme="light")
            self.page.set_viewport_size(WIDE)
        assert not self.is_too_wide()
        assert self.complaints == []
        return said

    def is_too_wide(self) -> bool:
        """Whether a reader would have to scroll sideways."""
        wide: bool = self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        return wide
