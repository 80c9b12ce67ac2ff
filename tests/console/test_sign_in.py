"""Who signs in with a key acts for it, and for nobody else, until they sign out, the time is over or the key is revoked."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import httpx
import pytest

from api.world import AGENT, TENANT, USER
from clocks import FakeClock
from console.browser import Browser, Site
from holdfast import Holdfast
from holdfast.core.audit import Action, Event
from holdfast.edges.console.sign_in import COOKIE


def is_in(browser: Browser) -> bool:
    return browser.get("/console").path == "/console"


def test_a_page_asks_to_sign_in_and_is_shown_after_that(site: Site) -> None:
    browser = site.browser()
    asked = browser.get("/console/memories", user_id=USER)
    assert asked.path == "/console/sign-in"
    shown = browser.send(asked.form("/sign-in"), key=site.secret("read"))
    assert shown.path == "/console/memories"
    assert USER in shown.html


def test_signing_in_leads_to_no_other_site(site: Site) -> None:
    for wanted in ("https://example.org/", "//example.org", "/consoles", "/console/\\example.org", "/console\r\nA: b"):
        browser = site.browser()
        form = browser.get("/console/sign-in", next=wanted).form("/sign-in")
        answer = browser.request(
            "POST", form.action, data={**form.fields, "key": site.secret("read")}, follow_redirects=False
        )
        assert answer.response.headers["location"].startswith("/console")
        assert "example.org" not in answer.response.headers["location"] or wanted.startswith("/console/")


@pytest.mark.parametrize("secret", ["", "nonsense", f"holdfast_{'0' * 32}_{'x' * 43}"])
def test_a_wrong_key_lets_nobody_in(site: Site, secret: str) -> None:
    browser = site.browser()
    refused = browser.sign_in(secret)
    assert refused.status == 401
    assert not is_in(browser)


def test_the_cookie_is_for_the_console_and_for_no_script(site: Site) -> None:
    def cookie(headers: dict[str, str]) -> str:
        browser = site.browser()
        form = browser.get("/console/sign-in").form("/sign-in")
        entered = {**form.fields, "key": site.secret("read")}
        answer = browser.request("POST", form.action, data=entered, headers=headers, follow_redirects=False)
        return answer.response.headers["set-cookie"]

    for part in ("HttpOnly", "SameSite=strict", "Path=/console"):
        assert part in cookie({})
    assert "Secure" not in cookie({})  # it came by http
    assert "Secure" in cookie({"X-Forwarded-Proto": "https"})


def test_signing_in_gives_the_browser_another_token(site: Site) -> None:
    browser = site.browser()
    browser.get("/console/sign-in")
    before = browser.cookies[COOKIE]
    browser.sign_in(site.secret("read"))
    assert browser.cookies[COOKIE] != before


def test_neither_the_key_nor_the_token_is_stored(own_site: Site, tmp_path: Path) -> None:
    browser = own_site.browser("read")
    own_site.holdfast.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert browser.cookies[COOKIE].encode() not in stored
    assert own_site.secret("read").split("_", 2)[2].encode() not in stored


def test_a_sign_in_survives_a_restart(own_site: Site) -> None:
    browser = own_site.browser("read")
    own_site.restart()
    browser._http._transport = httpx.ASGITransport(app=own_site.app)
    assert is_in(browser)


def test_after_signing_out_the_token_is_worth_nothing(site: Site) -> None:
    browser = site.browser("read")
    token = browser.cookies[COOKIE]
    browser.send(browser.get("/console").form("/sign-out"))
    browser.cookies.set(COOKIE, token, domain="localhost.local", path="/console")
    assert not is_in(browser)


def test_a_sign_in_is_over_after_its_time(own_site: Site) -> None:
    browser = own_site.browser("read")
    clock = cast("FakeClock", own_site.holdfast.services.clock)
    assert is_in(browser)
    clock.advance(hours=11, minutes=59)
    assert is_in(browser)
    clock.advance(minutes=2)
    assert not is_in(browser)


def test_a_key_that_is_revoked_ends_its_sign_ins_at_once(own_site: Site) -> None:
    browser = own_site.browser("read")
    (key,) = own_site.holdfast.access.list(TENANT)
    # Another process revokes it: nothing here is told.
    now = own_site.holdfast.services.now()
    own_site.holdfast.access.store.revoke(key.id, now=now, event=Event(now, Action.KEY_REVOKED, key.id, {}))
    assert not is_in(browser)


def test_without_keys_this_machine_needs_no_key_and_pages_of_others_get_nothing(tmp_path: Path) -> None:
    with (
        Holdfast.open(home=tmp_path / "home", clock=FakeClock()) as holdfast,
        Site(holdfast, keys_required=False) as site,
    ):
        browser = site.browser()
        assert is_in(browser)
        foreign = browser.request("GET", "/console", headers={"Host": "example.org"})
        assert foreign.status == 403


def test_what_is_done_names_the_key_or_the_console_on_the_audit_chain(own_site: Site) -> None:
    browser = own_site.browser("write")
    whose = {"user_id": USER, "agent_id": AGENT, "memory_id": own_site.world.ids["memory_id"]}
    own_site.world.engine.holds.release(own_site.world.ids["hold_id"])
    assert "recycle bin" in browser.do("delete_memory", **whose).text
    (key,) = own_site.holdfast.access.list(TENANT)
    assert own_site.world.engine.audit.tail(user_id=USER)[-1]["actor"] == f"key:{key.id}"


def test_an_operator_chooses_the_tenant_that_is_looked_at(own_site: Site) -> None:
    browser = own_site.browser("admin", tenant="*")
    assert USER not in browser.get("/console/memories").text
    browser.send(browser.get("/console").form("/tenant"), tenant=TENANT)
    assert USER in browser.get("/console/memories").text
