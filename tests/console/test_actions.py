"""Before anything is changed its effect is on the screen; after it, how to undo it. What takes long is a job."""

from __future__ import annotations

import base64
import json

from api.world import AGENT, USER
from clocks import wait_until
from console.browser import Browser, Seen, Site


def whose(site: Site, name: str = "memory_id") -> dict[str, str]:
    return {"user_id": USER, "agent_id": AGENT, "memory_id": site.world.ids[name]}


def release(site: Site) -> None:
    site.world.engine.holds.release(site.world.ids["hold_id"])


def state_of(site: Site, memory_id: str) -> str:
    return str(site.world.engine.life(USER, memory_id)["state"])


def test_looking_at_the_effect_changes_nothing(own_site: Site) -> None:
    release(own_site)
    before = own_site.world.seen()
    shown = own_site.browser("write").get("/console/do/delete_memory", **whose(own_site))
    assert "goes to the recycle bin" in shown.text
    assert own_site.world.seen() == before


def test_a_deletion_says_what_happened_and_is_undone_with_two_clicks(own_site: Site) -> None:
    release(own_site)
    browser, one = own_site.browser("write"), whose(own_site)
    done = browser.do("delete_memory", **one)
    assert "It is in the recycle bin, out of recall." in done.text
    assert state_of(own_site, one["memory_id"]) == "recycled"
    asked = browser.send(done.form("/do/restore_memory"))
    browser.send(asked.form("/do/restore_memory", confirm=True))
    assert state_of(own_site, one["memory_id"]) == "active"


def test_what_happened_is_said_once(own_site: Site) -> None:
    release(own_site)
    browser = own_site.browser("write")
    browser.do("delete_memory", **whose(own_site))
    assert "out of recall" not in browser.get("/console/memories", user_id=USER).text


def test_nobody_can_make_the_console_say_something(site: Site) -> None:
    browser = site.browser("write")
    note = base64.urlsafe_b64encode(json.dumps({"said": "Call 555", "undo": None}).encode()).decode()
    browser.cookies.set("holdfast_note", f"{note}.{'0' * 64}", domain="localhost.local", path="/console")
    shown = browser.get("/console")
    assert shown.status == 200
    assert "Call 555" not in shown.text


def test_a_correction_shows_both_texts_before_and_is_reverted_after(own_site: Site) -> None:
    release(own_site)
    browser, one = own_site.browser("write"), whose(own_site)
    form = browser.get("/console/do/correct_memory", **one).form("/do/correct_memory")
    effect = browser.send(form, content="Ann moved the key.", reason="She said so.")
    assert "Ann moved the key." in effect.text
    assert "blue pot" in effect.text
    done = browser.send(effect.form("/do/correct_memory", confirm=True))
    assert "Ann moved the key." in done.text
    browser.send(browser.send(done.form("/do/revert_memory")).form("/do/revert_memory", confirm=True))
    assert "blue pot" in own_site.world.engine.life(USER, one["memory_id"])["memory"]["content"]  # type: ignore[index]


def test_a_held_memory_is_not_offered_to_be_deleted(site: Site) -> None:
    browser = site.browser("admin")
    assert "delete_memory" not in browser.get("/console/record", **whose(site)).html
    shown = browser.get("/console/do/delete_memory", **whose(site))
    assert "A hold keeps it" in shown.text
    assert "confirmed" not in shown.html


def test_a_memory_that_is_put_on_hold_is_respected(own_site: Site) -> None:
    release(own_site)
    browser, one = own_site.browser("govern"), whose(own_site)
    form = browser.get("/console/do/hold_memory", **one).form("/do/hold_memory")
    done = browser.send(browser.send(form, reason="Case 4711").form("/do/hold_memory", confirm=True))
    assert "Case 4711" in done.text
    proof = {"proof": form.fields["proof"], "confirmed": "yes"}
    refused = browser.request("POST", "/console/do/delete_memory", data={**one, **proof})
    assert (refused.status, refused.code) == (423, "held")


def test_what_is_missing_or_wrong_is_said_on_a_page(site: Site) -> None:
    browser = site.browser("write")
    assert browser.get("/console/do/delete_memory").status == 422
    assert browser.get("/console/do/delete_memory", user_id=USER, agent_id=AGENT, memory_id="nothing").status == 404


# --- jobs -------------------------------------------------------------------------------------------------------------


def start(browser: Browser) -> Seen:
    proof = browser.get("/console").form("/sign-out").fields["proof"]
    return browser.request(
        "POST", "/console/do/plan_sweep", data={"proof": proof, "days_ahead": "4000", "samples": "5"}
    )


def end(browser: Browser, path: str) -> Seen:
    wait_until(lambda: "data-refresh" not in browser.get(path).html)
    return browser.get(path)


def test_a_plan_is_a_job_with_a_page_of_its_own(site: Site) -> None:
    browser = site.browser("read")
    started = start(browser)
    assert started.path.startswith("/console/jobs/")
    ended = end(browser, started.path)
    assert "The plan up to" in ended.text
    assert "by the default for" in ended.text


def test_a_job_is_seen_by_the_browser_that_started_it_only(site: Site) -> None:
    browser = site.browser("read")
    path = start(browser).path
    end(browser, path)
    other = site.browser("read").get(path)
    assert (other.status, other.code) == (404, "not_found")
    browser.send(browser.get("/console").form("/sign-out"))
    assert browser.get(path).path == "/console/sign-in"


def test_a_sweep_carries_out_what_the_plan_showed(own_site: Site) -> None:
    own_site.holdfast.services.clock.advance(days=400)  # type: ignore[attr-defined]
    browser = own_site.browser("govern")
    shown = browser.get("/console/do/carry_out_sweep")
    assert "Due now:" in shown.text
    ended = end(browser, browser.send(shown.form("/do/carry_out_sweep", confirm=True)).path)
    assert "What the sweep did" in ended.text
    assert "by the default for" in ended.text


def test_a_forecast_shows_each_day_by_its_address(site: Site) -> None:
    browser = site.browser("read")
    proof = browser.get("/console").form("/sign-out").fields["proof"]
    started = browser.request("POST", "/console/do/forecast_sweeps", data={"proof": proof, "days": "400"})
    end(browser, started.path)
    tomorrow, later = (browser.get(started.path, day=day) for day in ("1", "399"))
    assert "Nothing becomes due until then." in tomorrow.text
    assert "365 days after it was made" in later.text
    assert browser.get(started.path, day="x" * 50).status == 200
