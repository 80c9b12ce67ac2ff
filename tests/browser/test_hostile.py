"""What people wrote is shown as what it is, whatever it is: it runs nothing, loads nothing, and breaks no page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest

from browser.browsers import Window
from browser.world import BEGAN, World
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.edges.console.catalog import PAGES

SCRIPT = "<script>globalThis.broken = 1</script><img src=x onerror='globalThis.broken = 1'>\"'></td></table>{{ 7 * 7 }}"
BIDI = "\u202eevil\u202c \u2066txt.exe\u2069 \u200f\u0627"
LONG = "W" * 200
TEXT = f"{SCRIPT} {BIDI} {LONG}"
USER, AGENT, SESSION = f"u{SCRIPT}"[:200], f"a{SCRIPT}"[:200], LONG


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A store with such texts in every field that somebody can write."""
    with Holdfast.open(home=tmp_path_factory.mktemp("hostile") / "home", clock=FakeClock(BEGAN)) as holdfast:
        memory = holdfast.manager(USER, AGENT, SESSION)
        metadata = {"topic": TEXT, "tags": [TEXT[:200]]}
        first = memory.add(TEXT, metadata=metadata, key=SCRIPT[:200], source=SCRIPT[:200])["memory_id"]
        memory.correct(first, TEXT[::-1], reason=TEXT)
        memory.add(TEXT * 2_500, "long_term", metadata)  # about a megabyte
        memory.add(TEXT, "persona")
        memory.add({TEXT: TEXT}, "structured", {"collection": SCRIPT[:100]})
        memory.entity.add(SCRIPT[:100], SCRIPT[:100], {TEXT[:100]: TEXT})
        memory.short_term.add_message(SCRIPT[:200], TEXT, {"x": TEXT})
        memory.delete(memory.add(TEXT, metadata=metadata, derived_from=[first])["memory_id"])
        holdfast.agents.add(AGENT, TEXT, {TEXT: TEXT})
        holdfast.tools.add(LONG, TEXT, {TEXT: TEXT})
        holdfast.policies.set(
            "long_term", user_id=USER, agent_id=AGENT, session_id=SESSION, delete_after_days=900, confirm=True
        )
        hold = holdfast.holds.add(
            user_id=USER, agent_id=AGENT, tag=f"topic={SCRIPT}"[:200], reason=TEXT, author=LONG
        ).id
        yield World(holdfast, FakeClock(BEGAN), {"home": first, "hold": hold})


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_what_is_hostile_as_text(shared: Callable[..., Window], world: World, path: str) -> None:
    named = {"user_id": USER, "agent_id": AGENT, "session_id": SESSION, "memory_id": world.ids["home"], "query": TEXT}
    opened = shared()
    shown = opened.open(f"{path}?{urlencode(named)}")
    assert shown.evaluate("globalThis.broken") is None
    assert shown.locator("main script, main img, main [onerror]").count() == 0
    assert "\u202e" not in opened.text()
    assert len(shown.content()) < 200_000
    assert shown.locator("main table").count() == shown.content().count("</table>")
    opened.page.set_viewport_size({"width": 390, "height": 844})
    assert not opened.is_too_wide()
    opened.page.set_viewport_size({"width": 1280, "height": 900})
    assert not opened.is_too_wide()
    assert [one for one in opened.complaints if "status of 4" not in one] == []
