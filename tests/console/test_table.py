"""What holds of every page and every action, tried from the table: a page that is added is tried too."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from api.world import AGENT, PRIVATE, USER
from console.browser import Browser, Site
from holdfast import ForbiddenError
from holdfast.core.access import LOCAL, Principal, Right, check_rights
from holdfast.edges.access.gate import Gate
from holdfast.edges.console.catalog import ACTIONS, PAGES, SECTIONS
from holdfast.edges.console.table import Action, Page
from holdfast.edges.console.visit import Visit
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.run import build_api, build_service

NAVIGATION = (
    "Overview,Memories,Forecast,Recycle bin,Policies,Holds,Sessions,Agents,Erasure,Backups,Audit,Schedule,Playground"
)
CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
RIGHTS = [right.value for right in Right]
pages = pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.path)
actions = pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda action: action.name)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_changed(site: Site) -> Iterator[None]:
    """What is refused changes nothing, and neither does looking."""
    before = site.world.seen()
    yield
    assert site.world.seen() == before


def named(site: Site, **more: str) -> dict[str, str]:
    """What a page may be asked about: a user of the world, and what is theirs."""
    return {"user_id": USER, "agent_id": AGENT, "session_id": "s1", **site.world.ids, **more}


def test_the_navigation_has_the_entries_in_their_order() -> None:
    names = [section.name for section in SECTIONS]
    assert names == [name for name in NAVIGATION.split(",") if name in names]


@pytest.mark.parametrize(
    "row", [*PAGES.values(), *ACTIONS.values()], ids=lambda row: getattr(row, "name", "") or row.path
)
def test_every_operation_that_is_declared_exists(row: Page | Action) -> None:
    calls = row.calls if isinstance(row, Page) else (row.operation_name,)
    assert {*calls, *row.may_call} <= OPERATIONS.keys()


@pages
@pytest.mark.parametrize("right", RIGHTS)
def test_a_page_is_for_those_whose_key_may_use_it(site: Site, page: Page, right: str) -> None:
    browser = site.known(right)
    shown = browser.get(page.path, **named(site))
    principal = site.holdfast.access.identify(site.secret(right))
    may = page.is_for(principal)
    assert (shown.status, shown.code) == ((200, None) if may else (403, "forbidden"))
    entries = re.findall(r'<li><a href="([^"]+)"', browser.get("/console").html)
    first = next(section.pages[0] for section in SECTIONS if page in section.pages)
    assert (first.path in entries) == first.is_for(principal)


@actions
@pytest.mark.parametrize("right", RIGHTS)
def test_a_key_that_is_bound_to_a_user_can_open_the_page_of_what_it_may_do(
    site: Site, action: Action, right: str
) -> None:
    page = next(section.pages[0] for section in SECTIONS if action in section.actions)
    if not action.is_for(Principal(None, "acme", check_rights([right]), frozenset({USER}))):
        return
    shown = site.known(right, users=[USER]).get(page.path)
    assert (shown.status, f'<li><a href="{page.path}"' in shown.html) == (200, True)


@actions
@pytest.mark.parametrize("right", RIGHTS)
def test_an_action_is_for_those_whose_key_may_use_it(site: Site, action: Action, right: str) -> None:
    browser = site.known(right)
    fields = named(site)
    is_allowed = action.is_for(site.holdfast.access.identify(site.secret(right)))
    shown = browser.get(f"/console/do/{action.name}", **fields)
    if is_allowed:
        assert shown.status != 403 or "proof" in shown.html
        return
    assert (shown.status, shown.code) == (403, "forbidden")
    posted = browser.request(
        "POST", f"/console/do/{action.name}", data={**fields, "confirmed": "yes", "proof": proof(browser)}
    )
    assert (posted.status, posted.code) == (403, "forbidden")


def proof(browser: Browser) -> str:
    return browser.get("/console").form("/sign-out").fields["proof"]


@actions
def test_no_action_runs_without_the_proof_of_its_browser(site: Site, action: Action) -> None:
    browser, other = site.known("admin", tenant="*"), site.known("govern", tenant="*")
    for wrong in (None, "", "0" * 64, proof(other)):
        data = {**named(site), "confirmed": "yes", **({} if wrong is None else {"proof": wrong})}
        refused = browser.request("POST", f"/console/do/{action.name}", data=data)
        assert (refused.status, refused.code) == (403, "forbidden")
    foreign = {"Sec-Fetch-Site": "cross-site"}
    data = {**named(site), "confirmed": "yes", "proof": proof(browser)}
    assert browser.request("POST", f"/console/do/{action.name}", data=data, headers=foreign).status == 403


@pages
def test_nobody_sees_what_is_another_tenants(site: Site, page: Page) -> None:
    browser = site.known("admin", tenant="other")
    browser.cookies.set("holdfast_tenant", "acme", domain="localhost.local", path="/console")
    shown = browser.get(page.path, **named(site))
    assert PRIVATE not in shown.html
    assert PRIVATE.replace("'", "&#39;") not in shown.html


@pages
def test_a_key_that_is_bound_to_a_user_sees_nothing_of_others(site: Site, page: Page) -> None:
    browser = site.known("admin", users=["bob"])
    shown = browser.get(page.path, **named(site))
    assert PRIVATE not in shown.html
    assert shown.status in (200, 403, 404)


@actions
def test_a_key_that_is_bound_to_a_user_does_nothing_to_others(site: Site, action: Action) -> None:
    browser = site.known("admin", users=["bob"])
    data = {**named(site, content="x", reason="x", to="1"), "confirmed": "yes", "proof": proof(browser)}
    refused = browser.request("POST", f"/console/do/{action.name}", data=data)
    assert PRIVATE not in refused.html


@pages
def test_a_page_is_small_strict_and_in_no_frame(site: Site, page: Page) -> None:
    shown = site.known("admin", tenant="*").get(page.path, **named(site))
    headers = shown.response.headers
    assert headers["content-security-policy"].startswith(CSP)
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert len(shown.response.content) < 100_000
    assert not re.search(r"<style|<script(?! type=\"module\" src=\"/console/static/)| style=| on\w+=", shown.html)


def test_what_a_page_loads_is_small_and_kept_by_the_browser(site: Site) -> None:
    browser = site.browser()
    page = browser.get("/console/sign-in")
    loaded = [browser.get(path).response for path in re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page.html)]
    assert sum(len(one.content) for one in loaded) + len(page.response.content) < 100_000
    for one in loaded:
        assert "immutable" in one.headers["cache-control"]
        again = browser.request("GET", str(one.url), headers={"If-None-Match": one.headers["etag"]})
        assert again.status == 304
    assert "class Console" not in browser.get("/console/static/..%2Fapp.py").html


def test_what_is_no_page_is_told_so_by_a_page(site: Site) -> None:
    browser = site.known("read")
    for path in ("/console/nothing", "/console/do/nothing", "/console/jobs/nothing"):
        shown = browser.get(path)
        assert (shown.status, shown.code) == (404, "not_found")


def test_a_page_calls_no_operation_that_its_row_does_not_name(site: Site) -> None:
    gate = Gate(site.holdfast, LOCAL, "acme")
    visit = Visit(gate, {}, ["get_me"], site.holdfast.services.clock())
    assert visit.call("get_me")["tenant"] == "acme"
    with pytest.raises(ForbiddenError, match="'list_users' is not declared"):
        visit.call("list_users")


@pytest.mark.parametrize("path", sorted({page.path for page in PAGES.values()}))
def test_a_page_of_somebody_of_whom_nothing_is_kept_says_so(site: Site, path: str) -> None:
    shown = site.known("admin", tenant="*").get(path, user_id="nobody", agent_id="none", query="anything")
    assert shown.status in (200, 404, 422), shown.text


def test_a_refusal_of_any_layer_is_a_page_below_the_console_and_data_elsewhere(site: Site) -> None:
    browser = site.browser("read")
    for path, status, headers in (
        ("/console", 413, {"content-length": "999999999999"}),
        ("/console/audit", 422, {"content-length": "many"}),
    ):
        shown = browser.request("GET", path, headers=headers)
        assert (shown.status, shown.response.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert "This was refused" in shown.text
        assert "default-src 'none'" in shown.response.headers["content-security-policy"]
        elsewhere = browser.request("GET", "/v1/me", headers=headers)
        assert elsewhere.response.headers["content-type"] == "application/problem+json"
    assert browser.request("DELETE", "/console").response.headers["content-type"].startswith("text/html")


def test_who_asks_too_often_is_told_so_by_a_page(own_site: Site) -> None:
    api = build_api(own_site.holdfast, keys_required=True)
    limits = Limits(rate_per_second=0.001)
    own_site.app = build_service(api, own_site.holdfast, limits=limits, keys_required=True)
    browser = own_site.browser()
    browser.get("/console/sign-in")
    refused = browser.get("/console/sign-in")
    assert (refused.status, refused.code) == (429, "rate_limited")
    assert int(refused.response.headers["retry-after"]) > 100
    assert "HOLDFAST_RATE_PER_SECOND" in refused.text
