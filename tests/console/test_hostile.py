"""Whatever people write is shown as what it is: no page runs it, is turned around by it or drowns in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from api.world import AGENT
from api.world import USER as KNOWN
from clocks import FakeClock
from console.browser import Site
from holdfast import Holdfast
from holdfast.edges.console.catalog import ACTIONS, PAGES
from holdfast.edges.console.table import Page
from holdfast.edges.operations.catalog import OPERATIONS

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


#: What somebody may write into an address: bytes that are no text, texts that end early, and very long ones.
ATTEMPTS = ("a%00b", "..%2F..%2Fx", "%ff%fe", "%ed%a0%80", "x" * 10_000, "a%0d%0aSet-Cookie:%20x=1", "-1", "9" * 400)
OWN = ("cursor", "query", "type", "day", "created_from", "created_before", "all", "threads", "state")
FOUND = {page.path: {*page.calls, *page.may_call} for page in PAGES.values()}
ASKED = {f"/console/do/{action.name}": {action.operation_name} for action in ACTIONS.values()}


@pytest.mark.parametrize("path", [*FOUND, *ASKED])
def test_whatever_an_address_has_is_answered_by_a_page(site: Site, path: str) -> None:
    browser = site.known("admin", tenant="*")
    browser.cookies.set("holdfast_tenant", "acme", domain="localhost.local", path="/console")
    known = {"user_id": KNOWN, "agent_id": AGENT, "session_id": "s1", **site.world.ids}
    operations = (FOUND | ASKED)[path]
    names = sorted({name for one in operations for name in OPERATIONS[one].inputs.model_fields} | {*OWN})
    for number, name in enumerate(names):
        asked = {one: value for one, value in known.items() if one != name}
        attempt = ATTEMPTS[(number + len(path)) % len(ATTEMPTS)]
        shown = browser.get(f"{path}?{urlencode(asked)}&{name}={attempt}")
        assert shown.status < 500, (name, attempt)
        assert shown.response.headers["content-type"].startswith("text/html")
        assert "set-cookie" not in shown.response.headers


def test_a_path_that_is_none_is_answered_by_a_page(site: Site) -> None:
    browser = site.known("admin", tenant="*")
    for attempt in ATTEMPTS:
        for folder in ("do", "jobs", "record", ""):
            shown = browser.get(f"/console/{folder}/{attempt}")
            assert shown.status in (403, 404, 414, 422), (folder, attempt)
        assert browser.get(f"/console/static/{attempt}").status in (403, 404)


BROKEN = (
    ("multipart/form-data; boundary=x", b"--x\r\nbroken"),
    ("multipart/form-data", b"zz"),
    ("application/json", b"{}"),
    ("application/x-www-form-urlencoded", b"proof=%ff&" * 5),
)


@pytest.mark.parametrize(
    "path", ["do/delete_memory", "do/verify_certificate", "tenant", "sign-out", "sign-in", "nothing"]
)
def test_a_form_that_cannot_be_read_is_refused_by_a_page(site: Site, path: str) -> None:
    browser = site.known("admin", tenant="*")
    for kind, body in BROKEN:
        refused = browser.request("POST", f"/console/{path}", content=body, headers={"content-type": kind})
        assert refused.status in (400, 403, 422), (kind, refused.text)
        assert "was refused" in refused.text or "form" in refused.text
