"""Conversations are summarized by the summarizer that the settings name, when they are idle and nobody waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from recall.scripted_service import Reply, Request, ScriptedService, json_reply, scripted_service

TALK = [f"We spoke of stop number {n}, of its museum, of its harbour and of the weather there." for n in range(40)]


def summary_of(text: str) -> Reply:
    return json_reply({"choices": [{"message": {"content": text}}]})


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with scripted_service() as opened:
        opened.answer = lambda request: summary_of(f"A model's summary, number {len(opened.requests)}.")
        yield opened


@pytest.fixture
def holdfast(
    home: Path, clock: FakeClock, service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Holdfast]:
    monkeypatch.setenv("HOLDFAST_SUMMARIZER", f"openai:a-model@{service.url}")
    with Holdfast.open(home=home, clock=clock) as opened:
        yield opened


def talk(memory: MemoryManager, texts: list[str] = TALK) -> None:
    for text in texts:
        memory.short_term.add_message("user", text)


def summary(holdfast: Holdfast, user: str = "ann") -> str:
    (session,) = holdfast.sessions.list(user)
    said: str = session["summary"]
    return said


def sent(request: Request) -> str:
    return json.dumps(request.body, ensure_ascii=False)


def test_an_idle_conversation_is_summarized_with_the_daily_job(
    holdfast: Holdfast, clock: FakeClock, service: ScriptedService
) -> None:
    talk(holdfast.manager("ann", "guide", "s1"))
    before = summary(holdfast)
    assert before
    assert service.requests == [], "no message waits for a service"
    holdfast.schedule.run("daily")
    assert (service.requests, summary(holdfast)) == ([], before), "it may be going on"

    clock.advance(hours=2)
    holdfast.schedule.run("daily")

    assert summary(holdfast) == "A model's summary, number 1."
    assert all(text in sent(service.requests[0]) for text in TALK)
    holdfast.schedule.run("daily")
    assert len(service.requests) == 1, "nothing has changed since"


def test_what_is_said_afterwards_carries_the_summary_on_and_it_is_made_again(
    holdfast: Holdfast, clock: FakeClock, service: ScriptedService
) -> None:
    memory = holdfast.manager("ann", "guide", "s1")
    talk(memory)
    clock.advance(hours=2)
    assert holdfast.summarize_conversations() == 1
    talk(memory, ["And now to the mountains."])
    assert summary(holdfast) == "A model's summary, number 1.\nuser: And now to the mountains."
    assert holdfast.summarize_conversations() == 0
    clock.advance(hours=2)
    assert holdfast.summarize_conversations() == 1
    assert summary(holdfast) == "A model's summary, number 2."
    assert "to the mountains" in sent(service.requests[1])


def test_a_short_conversation_is_its_own_summary_and_is_sent_nowhere(
    holdfast: Holdfast, clock: FakeClock, service: ScriptedService
) -> None:
    talk(holdfast.manager("ann", "guide", "s1"), ["Hello"])
    clock.advance(hours=2)
    assert holdfast.summarize_conversations() == 0
    assert (summary(holdfast), service.requests) == ("user: Hello", [])


def test_a_message_that_was_deleted_is_in_no_summary(
    holdfast: Holdfast, clock: FakeClock, service: ScriptedService
) -> None:
    memory = holdfast.manager("ann", "guide", "s1")
    talk(memory)
    secret = memory.short_term.add_message("user", "The code is 4711, and that is the secret of the harbour.")
    clock.advance(minutes=30)

    def delete_meanwhile(_request: Request) -> Reply:
        memory.short_term.delete(secret)
        return summary_of("The code is 4711.")

    clock.advance(hours=2)
    service.answer = delete_meanwhile
    assert holdfast.summarize_conversations() == 0, "the conversation has changed since it was read"
    assert "4711" not in summary(holdfast)
    service.answer = lambda _request: summary_of("They spoke of stops.")
    assert holdfast.summarize_conversations() == 1
    assert "4711" not in sent(service.requests[-1])
    assert summary(holdfast) == "They spoke of stops."


def test_where_the_service_is_away_the_summary_and_the_job_go_on(
    holdfast: Holdfast, clock: FakeClock, service: ScriptedService, caplog: pytest.LogCaptureFixture
) -> None:
    talk(holdfast.manager("ann", "guide", "s1"))
    talk(holdfast.manager("bob", "guide", "s1"))
    before = summary(holdfast)
    clock.advance(hours=2)
    service.answer = lambda _request: json_reply({"error": "no"}, 400)
    holdfast.schedule.run("daily")
    assert summary(holdfast) == before
    assert "conversations keep the summaries they have" in caplog.text
    assert len(service.requests) == 1, "the others wait for the next night"
    service.answer = lambda _request: summary_of("They spoke of stops.")
    holdfast.schedule.run("daily")
    assert summary(holdfast) == summary(holdfast, "bob") == "They spoke of stops."


def test_what_is_out_of_sight_is_sent_nowhere(holdfast: Holdfast, clock: FakeClock, service: ScriptedService) -> None:
    holdfast.agents.add("guide")
    talk(holdfast.manager("ann", "guide", "s1"))
    talk(holdfast.of_tenant("acme").manager("ann", "guide", "s1"))
    talk(holdfast.manager("ann", "other", "s2"))
    holdfast.sessions.remove("other", "s2", user_id="ann")
    holdfast.agents.remove("guide")
    clock.advance(hours=2)
    assert holdfast.summarize_conversations() == 0
    clock.advance(days=31)
    assert holdfast.of_tenant("acme").summarize_conversations() == 0, "its time is over"
    assert service.requests == []


def test_the_extractive_summarizer_has_nothing_left_to_do(
    home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_SUMMARIZER", raising=False)
    with Holdfast.open(home=home, clock=clock) as opened:
        talk(opened.manager("ann", "guide", "s1"))
        before = summary(opened)
        clock.advance(hours=2)
        assert opened.summarize_conversations() == 0
        assert summary(opened) == before
