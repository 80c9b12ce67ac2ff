"""Conversations are summarized by the summarizer that the settings name, when they are idle and nobody waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clocks import FakeClock
from recall.scripted_service import Reply, Request, ScriptedService, json_reply, scripted_service
from retain import MemoryManager, Retain

TALK = [f"We spoke of stop number {n}, of its museum, of its harbour and of the weather there." for n in range(40)]


def summary_of(text: str) -> Reply:
    return json_reply({"choices": [{"message": {"content": text}}]})


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with scripted_service() as opened:
        opened.answer = lambda request: summary_of(f"A model's summary, number {len(opened.requests)}.")
        yield opened


@pytest.fixture
def retain(home: Path, clock: FakeClock, service: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Retain]:
    monkeypatch.setenv("RETAIN_SUMMARIZER", f"openai:a-model@{service.url}")
    with Retain.open(home=home, clock=clock) as opened:
        yield opened


def talk(memory: MemoryManager, texts: list[str] = TALK) -> None:
    for text in texts:
        memory.short_term.add_message("user", text)


def summary(retain: Retain, user: str = "ann") -> str:
    (session,) = retain.sessions.list(user)
    said: str = session["summary"]
    return said


def sent(request: Request) -> str:
    return json.dumps(request.body, ensure_ascii=False)


def test_an_idle_conversation_is_summarized_with_the_daily_job(
    retain: Retain, clock: FakeClock, service: ScriptedService
) -> None:
    talk(retain.manager("ann", "guide", "s1"))
    before = summary(retain)
    assert before
    assert service.requests == [], "no message waits for a service"
    retain.schedule.run("daily")
    assert (service.requests, summary(retain)) == ([], before), "it may be going on"

    clock.advance(hours=2)
    retain.schedule.run("daily")

    assert summary(retain) == "A model's summary, number 1."
    assert all(text in sent(service.requests[0]) for text in TALK)
    retain.schedule.run("daily")
    assert len(service.requests) == 1, "nothing has changed since"


def test_what_is_said_afterwards_carries_the_summary_on_and_it_is_made_again(
    retain: Retain, clock: FakeClock, service: ScriptedService
) -> None:
    memory = retain.manager("ann", "guide", "s1")
    talk(memory)
    clock.advance(hours=2)
    assert retain.summarize_conversations() == 1
    talk(memory, ["And now to the mountains."])
    assert summary(retain) == "A model's summary, number 1.\nuser: And now to the mountains."
    assert retain.summarize_conversations() == 0
    clock.advance(hours=2)
    assert retain.summarize_conversations() == 1
    assert summary(retain) == "A model's summary, number 2."
    assert "to the mountains" in sent(service.requests[1])


def test_a_short_conversation_is_its_own_summary_and_is_sent_nowhere(
    retain: Retain, clock: FakeClock, service: ScriptedService
) -> None:
    talk(retain.manager("ann", "guide", "s1"), ["Hello"])
    clock.advance(hours=2)
    assert retain.summarize_conversations() == 0
    assert (summary(retain), service.requests) == ("user: Hello", [])


def test_a_message_that_was_deleted_is_in_no_summary(
    retain: Retain, clock: FakeClock, service: ScriptedService
) -> None:
    memory = retain.manager("ann", "guide", "s1")
    talk(memory)
    secret = memory.short_term.add_message("user", "The code is 4711, and that is the secret of the harbour.")
    clock.advance(minutes=30)

    def delete_meanwhile(_request: Request) -> Reply:
        memory.short_term.delete(secret)
        return summary_of("The code is 4711.")

    clock.advance(hours=2)
    service.answer = delete_meanwhile
    assert retain.summarize_conversations() == 0, "the conversation has changed since it was read"
    assert "4711" not in summary(retain)
    service.answer = lambda _request: summary_of("They spoke of stops.")
    assert retain.summarize_conversations() == 1
    assert "4711" not in sent(service.requests[-1])
    assert summary(retain) == "They spoke of stops."


def test_where_the_service_is_away_the_summary_and_the_job_go_on(
    retain: Retain, clock: FakeClock, service: ScriptedService, caplog: pytest.LogCaptureFixture
) -> None:
    talk(retain.manager("ann", "guide", "s1"))
    talk(retain.manager("bob", "guide", "s1"))
    before = summary(retain)
    clock.advance(hours=2)
    service.answer = lambda _request: json_reply({"error": "no"}, 400)
    retain.schedule.run("daily")
    assert summary(retain) == before
    assert "conversations keep the summaries they have" in caplog.text
    assert len(service.requests) == 1, "the others wait for the next night"
    service.answer = lambda _request: summary_of("They spoke of stops.")
    retain.schedule.run("daily")
    assert summary(retain) == summary(retain, "bob") == "They spoke of stops."


def test_what_is_out_of_sight_is_sent_nowhere(retain: Retain, clock: FakeClock, service: ScriptedService) -> None:
    retain.agents.add("guide")
    talk(retain.manager("ann", "guide", "s1"))
    talk(retain.of_tenant("acme").manager("ann", "guide", "s1"))
    talk(retain.manager("ann", "other", "s2"))
    retain.sessions.remove("other", "s2", user_id="ann")
    retain.agents.remove("guide")
    clock.advance(hours=2)
    assert retain.summarize_conversations() == 0
    clock.advance(days=31)
    assert retain.of_tenant("acme").summarize_conversations() == 0, "its time is over"
    assert service.requests == []


def test_the_extractive_summarizer_has_nothing_left_to_do(
    home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RETAIN_SUMMARIZER", raising=False)
    with Retain.open(home=home, clock=clock) as opened:
        talk(opened.manager("ann", "guide", "s1"))
        before = summary(opened)
        clock.advance(hours=2)
        assert opened.summarize_conversations() == 0
        assert summary(opened) == before
