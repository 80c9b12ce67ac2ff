"""Every page and every action of the console in a real browser, tried from its table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from browser.browsers import Window
from browser.world import AGENT, SESSION, TOOL, USER, World
from holdfast.core.access import Right
from holdfast.edges.console.catalog import ACTIONS, PAGES, SECTIONS

Open = Callable[..., Window]
paths = pytest.mark.parametrize("path", PAGES)
actions = pytest.mark.parametrize("name", ACTIONS)


#: An action for each form that actions have: axe finds in the others what it finds in these.
SHAPES = {
    (frozenset(entry.form for entry in action.entries), action.is_danger, action.is_question): name
    for name, action in ACTIONS.items()
}


def about(world: World) -> str:
    """What a page may be asked about: a user of the world, and what is theirs."""
    named = {"user_id": USER, "agent_id": AGENT, "session_id": SESSION, "query": "where does the user live"}
    return urlencode({**named, "memory_id": world.ids["home"]})


def fields_of(world: World, name: str) -> dict[str, Any]:
    """What an action is told, so that it can show its effect."""
    given = {
        "user_id": USER,
        "agent_id": AGENT,
        "session_id": SESSION,
        "tool_id": TOOL,
        "memory_id": world.ids["binned" if name == "restore_recycled" else "home"],
        "hold_id": world.ids["hold"],
        "backup_id": world.ids["backup"],
        "memory_type": "long_term",
        "name": "daily",
        "cron": "0 4 * * *",
        "archive_after_days": "200",
        "max_memories": "100",
        "content": "User lives in Lyon",
        "reason": "Case 12",
        "to": "1",
    }
    return {field: given[field] for field in ACTIONS[name].operation.inputs.model_fields if field in given}


@paths
def test_a_page_can_be_used_by_everyone_and_says_the_same_without_scripts(
    shared: Open, world: World, path: str
) -> None:
    asked = f"{path}?{about(world)}"
    said = shared().look(asked)
    without = shared(scripts=False)
    without.open(asked)
    assert without.text() == said
    assert without.complaints == []


@pytest.mark.parametrize("path", sorted({section.pages[0].path for section in SECTIONS}))
def test_an_entry_of_the_navigation_opens_with_nothing_chosen(shared: Open, path: str) -> None:
    shared().look(path, in_all=False)


@actions
def test_an_action_shows_its_effect_before_it_is_confirmed(shared: Open, world: World, name: str) -> None:
    opened, path = shared(), f"/console/do/{name}?{urlencode(fields_of(world, name))}"
    if name in SHAPES.values():
        opened.look(path, in_all=False)
    else:
        opened.open(path)
        assert not opened.is_too_wide()
        assert opened.complaints == []
    shows_effect = not (ACTIONS[name].is_question or ACTIONS[name].asks)
    assert opened.page.get_by_role("heading", name="What it does").count() == 1 or not shows_effect


@pytest.mark.parametrize("scripts", [True, False])
def test_jobs_are_followed_to_their_end_with_and_without_scripts(window: Open, scripts: bool) -> None:
    opened = window(scripts=scripts)
    opened.open(f"/console/erasure?user_id={USER}")
    with opened.page.expect_download() as saved:
        opened.click("Export all that is kept")
    assert saved.value.path().stat().st_size > 1_000
    if not scripts:
        opened.click("See how much was sent")
    opened.page.get_by_text(re.compile(r"[\d.]+ kB in ")).wait_for()
    opened.open(f"/console/erasure?user_id={USER}")
    opened.click("See what would go")
    opened.page.get_by_role("button", name="Erase for good").wait_for()
    opened.open("/console/audit")
    opened.click("Verify the chain")
    opened.page.get_by_text("The audit chain is whole.").wait_for()
    assert opened.complaints == []


#: Pages as the browser gets them: status and text.
_FETCH = "paths => Promise.all(paths.map(one => fetch(one).then(got => got.text().then(text => [got.status, text]))))"
KEYS = [
    *((right.value, {}) for right in Right),
    ("admin", {"operator": True}),
    ("govern", {"users": [USER]}),
    ("write", {"agents": [AGENT]}),
]


@pytest.mark.parametrize(("right", "bounds"), KEYS, ids=str)
def test_a_key_is_shown_the_pages_that_it_may_see_and_no_others(
    window: Open, world: World, right: str, bounds: dict[str, Any]
) -> None:
    secret = world.key(right, **bounds)
    opened = window(secret=secret)
    principal = world.holdfast.access.identify(secret)
    links = opened.page.get_by_role("navigation", name="Console").get_by_role("link")
    shown = [str(one.get_attribute("href")) for one in links.all()]
    first = [section.pages[0] for section in SECTIONS]
    assert shown == [page.path for page in first if page.is_for(principal)]
    asked = [f"{page.path}?{about(world)}" for page in PAGES.values() if page.is_for(principal)]
    pages = opened.page.evaluate(_FETCH, asked)
    assert [path for path, (status, _) in zip(asked, pages, strict=True) if status != 200] == []
    offered = {name for _, text in pages for name in re.findall(r"/console/do/(\w+)", text)}
    assert {name for name in offered if not ACTIONS[name].is_for(principal)} == set()
    assert offered or right == "read" or "agents" in bounds
    assert opened.complaints == []


def test_nothing_is_shown_to_who_did_not_sign_in(window: Open, addresses: Any) -> None:
    opened = window()
    opened.url = addresses.keyed
    opened.open(f"/console/memories?user_id={USER}")
    assert opened.page.url.startswith(f"{addresses.keyed}/console/sign-in?next=")
    assert USER not in opened.text()
    assert opened.violations() == []
    opened.page.get_by_label("API key").fill("holdfast_wrong")
    opened.click("Sign in", role="button")
    assert "no API key" in opened.text()
    assert opened.violations() == []


def test_who_signed_out_is_shown_nothing_by_going_back(window: Open, world: World) -> None:
    opened = window(secret=world.key("read"))
    opened.open(f"/console/memories?user_id={USER}")
    opened.click("active")  # changes the list in place
    opened.page.wait_for_url("**state=active**")
    assert "Prefers trains" in opened.text()
    opened.click("Sign out", role="button")
    for _ in range(3):
        opened.page.get_by_role("heading", name="Sign in").wait_for()
        opened.page.go_back()
    opened.page.get_by_role("heading", name="Sign in").wait_for()
    assert "Prefers trains" not in opened.page.content()
