"""What people come to the console for, each in at most three clicks, from its first page. Enter sends a form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from browser.browsers import Window
from browser.world import AGENT, OTHER, USER, World

MOST_CLICKS = 3


@pytest.fixture
def opened(window: Callable[..., Window]) -> Iterator[Window]:
    """The console's first page."""
    made = window()
    made.open("/console")
    yield made
    assert made.clicks <= MOST_CLICKS
    assert made.complaints == []


def fill(page: Page, label: str, value: str, *, enter: bool = False) -> None:
    field = page.locator("main").get_by_label(label).first
    field.fill(value)
    if enter:
        field.press("Enter")


def heading(page: Page, name: str) -> None:
    """Wait for a page, by its heading."""
    page.get_by_role("heading", name=name, exact=True).first.wait_for()


def test_find_what_is_known_of_a_user_about_a_topic(opened: Window) -> None:
    opened.click("Memories")
    opened.click(USER)
    heading(opened.page, f"Memories of {USER}")
    fill(opened.page, "Search", "where does the user live", enter=True)
    opened.page.get_by_text("the best first").wait_for()
    assert "User moved to Lyon in August" in opened.page.locator("main ol.list li").first.inner_text()


def test_say_why_a_memory_is_still_there(opened: Window) -> None:
    opened.click("Memories")
    opened.click(USER)
    opened.click("User moved to Lyon in August")
    heading(opened.page, "Its life")
    said = opened.text()
    assert "365 days after it was corrected, by the default for long_term" in said
    assert "corrected" in said


def test_see_what_tomorrow_removes(opened: Window) -> None:
    opened.click("Forecast")
    opened.click("Only tomorrow", role="button")
    opened.page.get_by_text("delete for good").first.wait_for()


def test_put_a_hold_and_see_it_respected(opened: Window, world: World) -> None:
    opened.click("Holds")
    fill(opened.page, "User", "user_84")
    fill(opened.page, "Why it must stay", "Case 99", enter=True)
    heading(opened.page, "What it does")
    opened.click("Put on hold", role="button")
    opened.page.get_by_text("user user_84 is held").wait_for()
    opened.page.goto(f"{opened.url}/console/do/erase_user?user_id=user_84")
    opened.click("Show what it would do", role="button")
    heading(opened.page, "What it does")
    assert "A hold keeps it: Case 99." in opened.text()
    assert opened.page.get_by_role("button", name="Erase for good").count() == 0


def test_restore_a_deleted_memory(opened: Window, world: World) -> None:
    opened.click("Recycle bin")
    row = opened.page.get_by_role("row").filter(has_text="Wants a wake-up call at six")
    opened.click("Restore", inside=row)
    heading(opened.page, "What it does")
    opened.click("Restore", role="button")
    opened.page.get_by_text("is back").first.wait_for()
    assert world.holdfast.manager(USER, AGENT).get(world.ids["binned"])["content"] == "Wants a wake-up call at six"


def test_shorten_a_rule_and_see_what_it_makes_due(opened: Window) -> None:
    opened.click("Policies")
    opened.click("Change", inside=opened.page.get_by_role("row").filter(has_text="long-term").first)
    fill(opened.page, "Archive after, in days", "100", enter=True)
    heading(opened.page, "What it does")
    due = (
        opened.page.get_by_role("row").filter(has_text="due at once: to cold storage").get_by_role("cell").inner_text()
    )
    assert int(due.replace(",", "")) > 50


def test_erase_a_user_and_download_the_certificate(opened: Window, world: World, tmp_path: Path) -> None:
    opened.click("Erasure")
    fill(opened.page, "User", "user_90", enter=True)
    heading(opened.page, "What it does")
    assert "long-term memories" in opened.text()
    opened.click("Erase for good", role="button")
    opened.page.get_by_role("heading", name="Erased").wait_for()  # where a reader is in the way, a part of it waits
    with opened.page.expect_download() as saved:
        opened.click("Download the certificate")
    file = tmp_path / "certificate.json"
    saved.value.save_as(file)
    assert world.holdfast.certificates.verify(json.loads(file.read_text())).ok
    assert "user_90" not in [one["user_id"] for one in world.holdfast.users()]


def test_verify_a_certificate(opened: Window, world: World, tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(world.certificate))
    opened.click("Erasure")
    heading(opened.page, "Verify a certificate")
    opened.page.locator("input[type=file]").set_input_files(file)
    opened.click("Verify", role="button")
    opened.page.get_by_text("The certificate is genuine").wait_for()
    file.write_text(json.dumps({**world.certificate, "subject": "0" * 32}))
    opened.page.locator("input[type=file]").set_input_files(file)
    opened.click("Verify", role="button")
    opened.page.get_by_text("Do not trust this certificate").wait_for()


def test_see_that_the_last_backup_was_tried(opened: Window) -> None:
    opened.click("Backups")
    heading(opened.page, "Backups")
    assert "tried and good" in opened.text()
    assert "restored on trial and compared" in opened.text()


def test_find_who_deleted_something(opened: Window, world: World) -> None:
    opened.click("Audit")
    fill(opened.page, "Memory, session, rule or hold", world.ids["home"], enter=True)
    opened.page.wait_for_url("**item=*")
    row = opened.page.get_by_role("row").filter(has_text="recycled").filter(has_text="deleted by the user")
    row.first.wait_for()
    assert "python" in row.first.inner_text()


def test_a_hold_keeps_what_a_rule_would_remove(opened: Window) -> None:
    """The other half of a hold that is respected: a sweep's plan counts what it keeps."""
    opened.page.goto(f"{opened.url}/console/do/set_policy?memory_type=long_term&archive_after_days=100")
    row = opened.page.get_by_role("row").filter(has_text="kept by a hold")
    assert int(row.get_by_role("cell").inner_text()) >= 24, OTHER
