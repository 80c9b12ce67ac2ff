"""The console of a real service on loopback, in a real browser: one store, two addresses, one browser for each module."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser

from browser.browsers import WIDE, Window, open_browser
from browser.world import BEGAN, World, fill_store
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.run import build_api, build_service
from mcp_clients import listening


class Addresses(NamedTuple):
    """Where the store is served."""

    keyless: str
    """To the local caller, who needs no key."""
    keyed: str
    """To those who sign in."""


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """The home of a store in which some months have passed. It takes seconds to fill, so modules get copies of it."""
    clock, home = FakeClock(BEGAN), tmp_path_factory.mktemp("console") / "home"
    with Holdfast.open(home=home, clock=clock) as holdfast:
        return home, fill_store(holdfast, clock)


@pytest.fixture(scope="module")
def world(filled: tuple[Path, World], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home, made = filled
    own, clock = tmp_path_factory.mktemp("console") / "home", FakeClock(made.clock.now)
    shutil.copytree(home, own)
    with Holdfast.open(home=own, clock=clock) as holdfast:
        yield World(holdfast, clock, dict(made.ids), made.certificate)


@pytest.fixture(scope="module")
def addresses(world: World) -> Iterator[Addresses]:
    open_one, keyed_one = (serve_all(world.holdfast, keys_required=keys) for keys in (False, True))
    with listening(open_one) as keyless, listening(keyed_one) as keyed:
        yield Addresses(keyless.removesuffix("/mcp"), keyed.removesuffix("/mcp"))


def serve_all(holdfast: Holdfast, *, keys_required: bool) -> Any:
    """All layers of ``holdfast serve``; as often as a browser likes."""
    limits = Limits.of(holdfast.settings)._replace(rate_per_second=0)
    api = build_api(holdfast, keys_required=keys_required)
    return build_service(api, holdfast, limits=limits, keys_required=keys_required)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(browser: Browser, addresses: Addresses) -> Iterator[Callable[..., Window]]:
    """One window for all tests of a module that only look; another without scripts."""
    contexts = {scripts: browser.new_context(java_script_enabled=scripts, viewport=WIDE) for scripts in (True, False)}
    windows = {scripts: Window(one.new_page(), addresses.keyless) for scripts, one in contexts.items()}

    def give(*, scripts: bool = True) -> Window:
        windows[scripts].complaints.clear()
        return windows[scripts]

    yield give
    for context in contexts.values():
        context.close()


@pytest.fixture
def window(browser: Browser, addresses: Addresses) -> Iterator[Callable[..., Window]]:
    """Opens windows: ``scripts``, ``colours`` (light, dark), a ``size``, and a key's ``secret`` to sign in with."""
    opened = []

    def open_window(
        *, scripts: bool = True, colours: Any = "light", size: Any = WIDE, secret: str | None = None
    ) -> Window:
        context = browser.new_context(java_script_enabled=scripts, color_scheme=colours, viewport=size)
        opened.append(context)
        context.set_default_timeout(60_000)
        made = Window(context.new_page(), addresses.keyless if secret is None else addresses.keyed)
        if secret is not None:
            made.sign_in(secret)
        return made

    yield open_window
    for context in opened:
        context.close()
