"""Whatever people write is shown as what it is: no page runs it, is turned around by it or drowns in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from api.world import AGENT
from clocks import FakeClock
from console.browser import Site
from holdfast import Holdfast
from holdfast.edges.console.catalog import PAGES
from holdfast.edges.console.table import Page

SCRIPT = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'"
TURNED = "safe \u202etxt.exe\u2066 \u0000".replace("\u0000", "")
NASTY = f"{SCRIPT}{TURNED}"
USER, SESSION = f"u{SCRIPT}", f"s{SCRIPT}"[:60]
LONG_USER = "x" * 200


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A world in which every text that someone may write is hostile."""
    with (
        Holdfast.open(home=tmp_path_factory.mktemp("hostile") / "home", clock=FakeClock()) as holdfast,
        Site(holdfast) as site,
    ):
        engine = site.world.engine
        memory = engine.manager(USER, AGENT, SESSION)
        ids = site.world.ids
        ids["memory_id"] = memory.add(
            NASTY, metadata={"k" + SCRIPT: NASTY}, key="key" + SCRIPT, source="import:" + SCRIPT
        )["memory_id"]
        memory.correct(ids["memory_id"], NASTY + "2", reason=NASTY)
        memory.add(NASTY + "3", derived_from=[ids["memory_id"]])
        memory.short_term.add_message("user", NASTY)
        engine.holds.add(user_id=USER, reason=NASTY, author="legal")
        engine.agents.add("agent" + SCRIPT[:30], NASTY)
        engine.tools.add("tool" + SCRIPT[:30], NASTY)
        engine.manager(LONG_USER, "a" * 200, "s" * 200).add("x" * 1_000_000)
        yield site


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.path)
@pytest.mark.parametrize("user", [USER, LONG_USER], ids=["script", "long"])
def test_no_page_runs_what_people_wrote(hostile: Site, page: Page, user: str) -> None:
    agent = AGENT if user == USER else "a" * 200
    named = {**hostile.world.ids, "user_id": user, "agent_id": agent, "session_id": SESSION, "query": NASTY}
    shown = hostile.known("admin", tenant="*").get(page.path, **named)
    browser = hostile.known("admin")
    for seen in (shown, browser.get(page.path, **named)):
        assert not re.search(r"<script>|<img src=x|onerror=alert\(1\)>", seen.html)
        read = re.sub(r"<textarea.*?</textarea>", "", seen.html, flags=re.DOTALL)
        read = re.sub(r"<[^>]*>", "", read)  # a field to enter something in keeps to itself
        assert "\u202e" not in read
        assert "\u2066" not in read
        assert len(seen.html) < 200_000


def test_a_long_text_is_cut_with_a_way_to_all_of_it(hostile: Site) -> None:
    browser = hostile.known("admin")
    listed = browser.get("/console/memories", user_id=LONG_USER)
    assert len(listed.html) < 100_000
    path = re.search(r'data-item href="([^"]+)"', listed.html)
    assert path
    shown = browser.get(path[1].replace("&amp;", "&"))
    assert len(shown.html) < 100_000
    everything = re.search(r'href="([^"]+all=1[^"]*)"', shown.html)
    assert everything
    assert len(browser.get(everything[1].replace("&amp;", "&")).html) > 1_000_000


def test_a_hostile_user_is_found_and_named(hostile: Site) -> None:
    shown = hostile.known("admin").get("/console/memories", user_id=USER)
    assert "&lt;script&gt;" in shown.html
    assert "\\u202e" in shown.html
