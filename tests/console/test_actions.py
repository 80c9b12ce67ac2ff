"""Before anything is changed its effect is on the screen; after it, how to undo it. What takes long is a job."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

import notes_part
from api.world import AGENT, USER
from clocks import wait_until
from console.browser import Browser, Seen, Site
from holdfast.core.errors import StoreAwayError
from holdfast.core.values import moment
from holdfast.edges.console.jobs import hash_token
from holdfast.edges.console.sign_in import write_note


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


def test_an_action_that_is_sent_twice_from_one_page_is_done_once_and_said_again(own_site: Site) -> None:
    browser, holds = own_site.browser("govern"), own_site.world.engine.holds
    before = len(holds.list())
    form = browser.get("/console/do/add_hold", user_id=USER, reason="Case 9").form("/do/add_hold", confirm=True)
    for _ in range(2):
        assert f"user {USER} is held".lower() in browser.send(form).text.lower()
    assert len(holds.list()) == before + 1
    browser.do("add_hold", user_id=USER, reason="Case 9")  # another page, and so another wish
    assert len(holds.list()) == before + 2


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
    asked = browser.get("/console/do/carry_out_sweep")
    shown = end(browser, browser.send(asked.form("/do/plan_sweep")).path)
    assert "Carry out exactly this" in shown.text
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


def test_every_process_shows_the_page_of_a_job(own_site: Site) -> None:
    browser = own_site.browser("read")
    path = start(browser).path
    own_site.restart()
    elsewhere = Browser(own_site)
    elsewhere.cookies.update(browser.cookies)
    assert "The plan up to" in end(elsewhere, path).text


def test_a_job_whose_process_has_ended_says_so_and_is_forgotten_in_an_hour(own_site: Site) -> None:
    browser, clock, jobs = own_site.browser("read"), own_site.holdfast.services.clock, own_site.holdfast.services
    path = start(browser).path
    end(browser, path)
    job_id, owner = path.rpartition("/")[2], hash_token(browser.cookies["holdfast_console"])
    found = jobs.console_jobs.find(job_id, owner)
    assert found is not None
    said = json.dumps({**json.loads(found.said), "is_over": False})
    jobs.console_jobs.save(job_id, owner, said, None, now=jobs.now(), is_nameless=False)
    assert "data-refresh" in browser.get(path).html
    clock.advance(seconds=90)  # type: ignore[attr-defined]
    assert "The process that ran it has ended" in browser.get(path).text
    clock.advance(hours=1)  # type: ignore[attr-defined]
    assert browser.get(path).code == "not_found"
    own_site.holdfast.sweep()
    assert jobs.console_jobs.find(job_id, owner) is None


def erase(site: Site, browser: Browser) -> Seen:
    release(site)
    shown = preview(browser)
    return end(browser, browser.send(shown.form("/do/erase_user", confirm=True)).path)


def preview(browser: Browser) -> Seen:
    """What erasing the user would remove, by the page where that begins."""
    asked = browser.get("/console/erasure", user_id=USER).form("/do/preview_erasure")
    return end(browser, browser.send(asked).path)


def test_what_an_erasure_would_remove_is_a_job_with_steps_and_changes_nothing(own_site: Site) -> None:
    browser = own_site.browser("govern")
    refused = preview(browser)
    assert "A hold keeps it:" in refused.text
    assert "Erase for good" not in refused.text
    release(own_site)
    before = own_site.world.seen()
    shown = preview(browser)
    assert shown.path.startswith("/console/jobs/")
    assert "Its steps, as they were reached step found" in shown.text
    assert re.search(r"rows of the store \d+ ", shown.text)
    assert shown.form("/do/erase_user", confirm=True).fields["user_id"] == USER
    asked = browser.get("/console/do/erase_user", user_id=USER).form("/do/preview_erasure")
    assert "Erase for good" in end(browser, browser.send(asked).path).text
    assert own_site.world.seen() == before


def test_an_erasure_that_is_sent_twice_from_one_page_is_one_job_with_its_certificate(own_site: Site) -> None:
    release(own_site)
    browser = own_site.browser("govern")
    form = preview(browser).form("/do/erase_user", confirm=True)
    first, second = browser.send(form), browser.send(form)
    assert first.path == second.path
    assert "Download the certificate" in end(browser, second.path).text


@pytest.mark.parametrize(("action", "fields"), [("export_user", {"user_id": USER}), ("export_audit", {})])
def test_an_export_is_a_job_that_sends_its_file_and_says_how_much(
    own_site: Site, action: str, fields: dict[str, str]
) -> None:
    browser = own_site.browser("govern")
    proof = browser.get("/console").form("/sign-out").fields["proof"]
    job = browser.request("POST", f"/console/do/{action}", data={"proof": proof, **fields})
    assert f'content="0; url={job.path}/file"' in job.html, "a browser begins by itself, without scripts too"
    own_site.holdfast.services.clock.advance(minutes=5)  # type: ignore[attr-defined]
    assert "about to save the file" in browser.get(job.path).text, "it waits"
    assert "data-refresh" in browser.get(job.path).html
    for _ in range(2):
        sent = browser.get(f"{job.path}/file").response
        assert sent.headers["content-disposition"].startswith(f'attachment; filename="{action}.')
        shown = browser.get(job.path).text
        assert f"sent {len(sent.content)} bytes" in shown or re.search(r"sent [\d.]+ kB", shown), shown
    assert own_site.browser("govern").get(f"{job.path}/file").code == "not_found"


def test_an_export_that_waits_is_nothing_once_the_user_is_erased(own_site: Site) -> None:
    browser = own_site.browser("admin")
    proof = browser.get("/console").form("/sign-out").fields["proof"]
    job = browser.request("POST", "/console/do/export_user", data={"proof": proof, "user_id": USER})
    erase(own_site, browser)
    assert USER not in browser.get(job.path).html
    assert browser.get(f"{job.path}/file").code == "not_found"


def test_an_erasure_shows_each_step_with_its_count_and_its_time_and_names_nobody(own_site: Site) -> None:
    browser = own_site.browser("admin")
    ended = erase(own_site, browser)
    rows = re.findall(r'<tr><td data-label="step">(.*?)</td><td class="n" data-label="removed">(.*?)</td>', ended.html)
    steps = [name for name, _ in rows]
    assert steps[0] == "the ledger, and out of recall"
    assert steps[-3:] == ["bytes in files", "a last look in every place", "the certificate"]
    assert int(re.sub(r"<.*?>|,", "", dict(rows)["rows of the store"])) > 5
    assert len(re.findall(r'data-label="took">[\d.]+ m?s<', ended.html)) == len(rows)
    assert USER not in re.sub(r"base64,[^\"]*", "", ended.html)
    found = own_site.holdfast.services.console_jobs.find(
        ended.path.rpartition("/")[2], hash_token(browser.cookies["holdfast_console"])
    )
    assert found is not None
    assert USER not in f"{found.said}{found.content}"


def test_an_erasure_clears_what_jobs_said_of_the_user(own_site: Site) -> None:
    browser, other = own_site.browser("admin"), own_site.browser("read")
    own_site.world.engine.manager(USER, AGENT).add("The cat is called Tom.")
    path = start(other).path
    assert USER in end(other, path).html
    erase(own_site, browser)
    shown = other.get(path)
    assert USER not in shown.html
    assert "Somebody was erased who may be in what came of it" in shown.text


# --- undo -------------------------------------------------------------------------------------------------------------


def undo(browser: Browser, done: Seen, action: str) -> Seen:
    shown = browser.send(done.form(f"/do/{action}"))
    return browser.send(shown.form(f"/do/{action}", confirm=True))


def test_a_changed_rule_becomes_what_it_was_and_a_removed_one_comes_back(own_site: Site) -> None:
    browser, policies = own_site.browser("govern"), own_site.world.engine.policies
    policies.set("structured", archive_after_days=500, keep_days=100, confirm=True)

    def terms() -> list[dict[str, object]]:
        names = ("archive_after_days", "delete_after_days", "keep_days")
        found: list[Any] = [one for one in policies.list() if one["memory_type"] == "structured" and one["version"]]
        return [{name: one.get(name) for name in names} for one in found]

    before = terms()
    done = browser.do("set_policy", memory_type="structured", delete_after_days="200")
    assert terms() != before
    undo(browser, done, "set_policy")
    assert terms() == before
    asked_again = browser.do("remove_policy", memory_type="structured")
    removed = browser.send(asked_again.form("/do/remove_policy", confirm=True))
    assert terms() == []
    undo(browser, removed, "set_policy")
    assert terms() == before


def test_a_changed_quota_becomes_what_it_was(own_site: Site) -> None:
    browser, quotas = own_site.browser("govern"), own_site.world.engine.quotas
    first = quotas.get("long_term", USER)
    changed = browser.do("set_quota", memory_type="long_term", user_id=USER, max_memories="70")
    assert quotas.get("long_term", USER).max_memories == 70
    undo(browser, changed, "set_quota")
    assert quotas.get("long_term", USER) == first
    quotas.set("long_term", max_memories=80, user_id=USER)
    taken = browser.do("set_quota", memory_type="long_term", user_id=USER, max_memories="unlimited")
    assert quotas.get("long_term", USER).max_memories is None
    undo(browser, taken, "set_quota")
    assert quotas.get("long_term", USER).max_memories == 80


def test_a_hold_says_how_much_it_covers_before_it_is_put_and_in_the_list(own_site: Site) -> None:
    release(own_site)
    browser = own_site.browser("govern")
    own_site.world.engine.manager(USER, "scout").add_many(["one", "two", "three"], metadata={"case": "7"})
    for what, count in (({"agent_id": "scout"}, 3), ({"tag": "case=7"}, 3), ({"agent_id": "nobody"}, 0)):
        shown = browser.get("/console/do/add_hold", **what, reason="Case 7")
        assert f"memories that it covers now {count} " in shown.text
    browser.do("add_hold", agent_id="scout", reason="Case 7")
    assert re.search(r"held agent scout 3 memories 0 sessions Case 7", browser.get("/console/holds").text)


def test_the_sessions_page_shows_what_belongs_to_sessions_elsewhere_and_what_is_away(
    own_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, browser, file = own_site.world.engine, own_site.browser("read"), tmp_path / "notes.db"
    engine.parts.add(notes_part.KIND, f"sqlite:///{file}")
    now = moment(own_site.holdfast.services.clock())
    notes_part.Notes(file).write("trip", USER, AGENT, now, "Take the early train.")
    shown = browser.get("/console/sessions", user_id=USER)
    assert re.search(rf"trip in notes {AGENT} active .* 1 21 bytes .* to the recycle bin", shown.text)
    assert "Threads" not in browser.get("/console/sessions", user_id="bob").text

    def fail(_effect: str) -> None:
        raise StoreAwayError("the notes do not answer; try again")

    monkeypatch.setattr(notes_part, "effects", [fail])
    assert (
        "cannot be used now: the notes do not answer; try again." in browser.get("/console/sessions", user_id=USER).text
    )


def test_a_key_for_one_agent_is_shown_the_versions_and_the_life_that_the_agent_sees(own_site: Site) -> None:
    release(own_site)
    memory, one = own_site.world.engine.manager(USER, AGENT), whose(own_site)
    memory.delete(one["memory_id"])
    memory.restore(one["memory_id"])
    memory.correct(one["memory_id"], "Ann moved the key.", reason="She said so.")
    memory.add("The key is elsewhere.", derived_from=[one["memory_id"]])
    other = own_site.world.engine.manager(USER, "scout").add("The scout's own.", "persona")["memory_id"]
    browser = own_site.browser("read", agents=[AGENT])
    shown = browser.get("/console/record", **one)
    assert "Ann moved the key." in shown.text
    assert "blue pot" in shown.text, "what it said before"
    assert "corrected" in shown.text
    assert "restored" in shown.text
    assert "version 2 of 2" in shown.text
    assert browser.get("/console/record", user_id=USER, agent_id=AGENT, memory_id=other).status == 404
    assert browser.get("/console/record", user_id=USER, agent_id="scout", memory_id=other).code == "forbidden"


def test_a_change_of_an_agent_begins_with_what_is_known_and_undoing_it_takes_nothing_away(own_site: Site) -> None:
    browser, agents = own_site.browser("govern"), own_site.world.engine.agents
    agents.add("guide", "Shows the way", {"team": "travel"})
    own_site.holdfast.services.clock.advance(seconds=5)  # type: ignore[attr-defined]
    listed = browser.get("/console/agents").html
    assert "/do/put_agent?agent_id=guide" in listed
    assert "description=" not in listed, "a description may be longer than an address"
    form = browser.get("/console/do/put_agent", agent_id="guide").form("/do/put_agent")
    assert form.fields["description"] == "Shows the way"
    shown = browser.send(form, description="Shows all ways", metadata='{"team": "travel"}')
    assert "Shows the way" in shown.text, "what it said so far"
    done = browser.send(shown.form("/do/put_agent", confirm=True))
    assert agents.get("guide")["metadata"] == {"team": "travel"}
    assert agents.get("guide")["description"] == "Shows all ways"
    assert "agent guide is known" in done.text.lower()
    assert "Undo" not in done.text
    new = browser.do("put_agent", agent_id="scout", description="Looks ahead")
    assert "Undo" in new.text


def test_what_is_said_after_an_action_fits_into_a_cookie(own_site: Site) -> None:
    browser = own_site.browser("govern")
    hold = own_site.world.engine.holds.add(user_id="bob", reason="日" * 660, author="legal")
    form = browser.get("/console/do/release_hold", hold_id=hold.id).form("/do/release_hold", confirm=True)
    done = browser.request("POST", form.action, data=form.fields, follow_redirects=False)
    assert len(done.response.headers["set-cookie"]) < 4_096, "a browser keeps no longer one"
    assert "日日" in browser.get("/console/holds").form("/do/add_hold").fields["reason"]
    assert len(write_note("t" * 43, {"said": "x" * 9_000, "undo": {"fields": {"reason": "y" * 9_000}}})) < 4_000
