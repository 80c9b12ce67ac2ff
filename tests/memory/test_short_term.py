"""Short-term memory: what the session is about right now."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import (
    AgentRemovedError,
    ExpiredError,
    HeldError,
    InvalidContentError,
    InvalidInputError,
    StorageError,
)
from homes import on_sqlite


def test_messages_come_back_in_their_order(memory: MemoryManager, clock: FakeClock) -> None:
    for number in range(5):
        memory.short_term.add_message("user" if number % 2 == 0 else "assistant", f"message {number}", {"n": number})
    history = memory.short_term.get_conversation_history()
    assert [m["content"] for m in history] == [f"message {n}" for n in range(5)]
    assert history[0]["role"] == "user"
    assert history[0]["timestamp"] == clock().isoformat()
    assert history[3]["metadata"] == {"n": 3}


def test_a_session_holds_its_last_thousand_messages(memory: MemoryManager, holdfast: Holdfast) -> None:
    memory.add_many([f"message {n}" for n in range(1_005)], "short_term")
    kept = [m["content"] for m in memory.short_term.get_conversation_history()]
    assert (len(kept), kept[0], kept[-1]) == (1_000, "message 5", "message 1004")
    assert len(holdfast.sessions.history("travel_agent", "sess_abc123")) == 1_005
    assert [m["content"] for m in holdfast.sessions.history("travel_agent", "sess_abc123", limit=2)] == [
        "message 1003",
        "message 1004",
    ]


def test_short_term_memory_is_recalled_by_meaning(memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "We would like to travel by train")
    memory.short_term.add_message("user", "My sister plays the cello")
    assert memory.retrieve("music instruments", memory_type="short_term", top_k=1)[0]["content"].startswith("My sister")


def test_sessions_are_listed_with_the_latest_first(holdfast: Holdfast, clock: FakeClock) -> None:
    for session in ("first", "second"):
        holdfast.manager("user", "agent", session).short_term.add_message("user", "hello")
        clock.advance(hours=1)
    holdfast.manager("user", "other", "third").short_term.add_message("user", "hello")
    assert [s["session_id"] for s in holdfast.sessions.list("user")] == ["third", "second", "first"]
    assert [s["session_id"] for s in holdfast.sessions.list("user", "agent")] == ["second", "first"]
    assert holdfast.sessions.list("user")[0]["messages"] == 1


def test_another_process_sees_the_same_session(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "hello")
    with Holdfast.open(home=holdfast.settings.home, clock=holdfast.services.clock) as other:
        twin = other.manager("user_123", "travel_agent", "sess_abc123")
        assert [m["content"] for m in twin.short_term.get_conversation_history()] == ["hello"]


def test_the_time_of_short_term_memory_comes_from_the_rules(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.policies.set("short_term", delete_after_days=0.5, agent_id="patient")
    patient = holdfast.manager("user", "patient", "session").short_term
    hasty = holdfast.manager("user", "hasty", "session").short_term
    for short_term in (patient, hasty):
        short_term.add_message("user", "hello")

    assert (patient.get_ttl(), hasty.get_ttl()) == (43_200, 3_600)
    clock.advance(hours=12, microseconds=-1)
    assert len(patient.get_conversation_history()) == 1
    assert hasty.get_conversation_history() == []
    clock.advance(microseconds=1)
    assert patient.get_conversation_history() == []


def test_a_rule_that_keeps_everything_for_ever_does_not_keep_short_term_memory(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    holdfast.policies.set("*", delete_after_days="never")
    memory.short_term.add_message("user", "hello")
    assert memory.short_term.get_ttl() == 3_600


def test_a_deleted_message_leaves_the_conversation_and_its_summary(holdfast: Holdfast, memory: MemoryManager) -> None:
    kept = memory.short_term.add_message("user", "We fly to Oslo")
    gone = memory.short_term.add_message("user", "My passport number is 123")

    assert memory.short_term.delete(gone)
    assert not memory.short_term.delete(gone)

    assert [m["message_id"] for m in memory.short_term.get_full_history()] == [kept]
    assert [m["message_id"] for m in memory.short_term.get_conversation_history()] == [kept]
    assert holdfast.sessions.list("user_123")[0]["summary"] == "user: We fly to Oslo"


def test_a_held_message_is_deleted_nowhere(holdfast: Holdfast, memory: MemoryManager) -> None:
    message_id = memory.short_term.add_message("user", "hello")
    holdfast.holds.add(user_id="user_123", reason="litigation", author="counsel")

    with pytest.raises(HeldError, match="kept by hold"):
        memory.short_term.delete(message_id)
    assert len(memory.short_term.get_conversation_history()) == len(memory.short_term.get_full_history()) == 1


def test_a_session_in_use_again_after_31_days_begins_anew(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "in January")
    clock.advance(days=31)
    assert memory.short_term.get_full_history() == []
    memory.short_term.add_message("user", "in February")

    assert [m["content"] for m in memory.short_term.get_full_history()] == ["in February"]
    (session,) = holdfast.sessions.list("user_123")
    assert (session["messages"], session["created_at"]) == (1, clock().isoformat())


def test_what_a_removed_agent_was_told_is_refused_and_kept_nowhere(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "hello")
    holdfast.agents.remove("travel_agent")

    with pytest.raises(AgentRemovedError, match="restore"):
        memory.short_term.add_message("user", "still there?")
    assert memory.short_term.get_conversation_history() == []
    assert memory.short_term.get_full_history() == []

    holdfast.agents.restore("travel_agent")
    assert [m["content"] for m in memory.short_term.get_full_history()] == ["hello"]


def test_messages_of_any_role_are_added_together_or_not_at_all(memory: MemoryManager) -> None:
    turns = [("user", "What is 6 × 7?"), ("assistant", ""), ("tool", "42"), ("assistant", "It is 42.")]
    ids = memory.short_term.add_messages([{"role": role, "content": content} for role, content in turns])

    for read in (memory.short_term.get_full_history, memory.short_term.get_conversation_history):
        assert [(m["message_id"], m["role"], m["content"]) for m in read()] == [
            (one, *turn) for one, turn in zip(ids, turns, strict=True)
        ]

    with pytest.raises(InvalidContentError, match="must be text"):
        memory.short_term.add_messages([{"role": "user", "content": "fine"}, {"role": "user", "content": None}])
    assert len(memory.short_term.get_full_history()) == 4
    assert memory.short_term.add_messages([]) == []


def test_a_message_with_an_id_of_the_caller_is_stored_once(memory: MemoryManager, holdfast: Holdfast) -> None:
    first = memory.short_term.add_message("user", "hello", external_id="msg_1")
    summary = holdfast.sessions.list("user_123")

    assert memory.short_term.add_message("user", "hello", external_id="msg_1") == first
    assert holdfast.sessions.list("user_123") == summary, "nothing was touched"
    twice = [{"role": "assistant", "content": "Hi!", "external_id": "msg_2"}] * 2
    assert memory.short_term.add_messages([{"role": "user", "content": "hello", "external_id": "msg_1"}, *twice]) == [
        first,
        *[m["message_id"] for m in memory.short_term.get_full_history()[1:]] * 2,
    ]
    for read in (memory.short_term.get_full_history, memory.short_term.get_conversation_history):
        assert [(m["content"], m["external_id"]) for m in read()] == [("hello", "msg_1"), ("Hi!", "msg_2")]

    elsewhere = holdfast.manager("user_123", "travel_agent", "another session")
    assert elsewhere.short_term.add_message("user", "hello", external_id="msg_1") != first


def test_a_message_that_was_deleted_can_be_added_again(memory: MemoryManager, holdfast: Holdfast) -> None:
    first = memory.short_term.add_message("user", "hello", external_id="msg_1")
    assert memory.short_term.delete(first)
    second = memory.short_term.add_message("user", "hello", external_id="msg_1")
    assert [m["message_id"] for m in memory.short_term.get_full_history()] == [second]

    assert holdfast.recycle.restore(memory_id=first) == 1
    assert [m["message_id"] for m in memory.short_term.get_full_history()] == [first, second]
    assert memory.short_term.add_message("user", "hello", external_id="msg_1") == first


def test_an_imported_message_is_of_the_time_when_it_was_said(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    began, ended = clock() - timedelta(days=20), clock() - timedelta(days=10)
    turns = [("user", "in spring", began), ("assistant", "in summer", ended.isoformat()), ("user", "now", None)]
    said = [{"role": role, "content": content, "timestamp": when} for role, content, when in turns]
    memory.short_term.add_messages(said[:2])

    (session,) = holdfast.sessions.list("user_123")
    assert (session["created_at"], session["updated_on"]) == (began.isoformat(), ended.isoformat())
    assert memory.short_term.get_conversation_history() == [], "the window has what was said within the hour"
    clock.advance(days=20, microseconds=-1)
    assert [m["timestamp"] for m in memory.short_term.get_full_history()] == [began.isoformat(), ended.isoformat()]
    clock.advance(microseconds=1)
    assert memory.short_term.get_full_history() == [], "30 days after the last message"

    memory.short_term.add_message("user", "hello")
    memory.short_term.add_messages(said[:1])
    assert [m["content"] for m in memory.short_term.get_full_history()] == ["hello", "in spring"]
    assert holdfast.sessions.list("user_123")[0]["updated_on"] == clock().isoformat()
    assert [m["content"] for m in memory.short_term.get_conversation_history()] == ["hello"]


def test_nothing_is_said_in_the_future_or_imported_past_its_time(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    with pytest.raises(InvalidInputError, match=r"timestamp .* is in the future; give the time when it was said"):
        memory.short_term.add_message("user", "hello", timestamp=clock() + timedelta(minutes=6))
    with pytest.raises(ExpiredError, match=r"would begin past its time .* 30 days .* holdfast policy set history"):
        memory.short_term.add_message("user", "hello", timestamp=clock() - timedelta(days=30))
    assert holdfast.sessions.list("user_123") == []

    memory.short_term.add_message("user", "by a clock that is ahead", timestamp=clock() + timedelta(minutes=4))
    memory.short_term.add_message("user", "long ago", timestamp=clock() - timedelta(days=400))
    assert [m["timestamp"] for m in memory.short_term.get_full_history()] == [
        clock().isoformat(),
        (clock() - timedelta(days=400)).isoformat(),
    ]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("hello", "must be an object"),
        ({"content": "hello"}, "role must be a text"),
        ({"role": "user"}, "content must be text"),
        ({"role": "user", "content": "hello", "id": "m1"}, "no field 'id'; it has content, external_id"),
        ({"role": "user", "content": "hello", "external_id": ""}, "external_id must be a text"),
        ({"role": "user", "content": "hello", "external_id": "a\nb"}, "external_id .* control"),
        ({"role": "user", "content": "hello", "timestamp": "soon"}, "not an ISO 8601"),
        ({"role": "user", "content": "a\x00b"}, "NUL"),
    ],
)
@on_sqlite
def test_a_message_that_cannot_be_kept_is_refused_by_name(memory: MemoryManager, message: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        memory.short_term.add_messages([message])
    with pytest.raises(InvalidContentError, match="must be a list of objects"):
        memory.short_term.add_messages(message)


def test_the_last_message_is_popped_into_the_recycle_bin(memory: MemoryManager, holdfast: Holdfast) -> None:
    for content in ("one", "two"):
        memory.short_term.add_message("user", content)
    popped = memory.short_term.pop_message()
    assert popped is not None
    assert popped["content"] == "two"
    assert [m["content"] for m in memory.short_term.get_conversation_history()] == ["one"]
    assert holdfast.recycle.restore(memory_id=popped["message_id"]) == 1

    whose = {"user_id": memory.user_id, "memory_id": popped["message_id"]}
    holdfast.holds.add(**whose, reason="litigation", author="counsel")
    with pytest.raises(HeldError):
        memory.short_term.pop_message()
    assert holdfast.manager("user_123", "travel_agent", "never begun").short_term.pop_message() is None


def test_several_messages_are_deleted_together_or_not_at_all(memory: MemoryManager, holdfast: Holdfast) -> None:
    ids = memory.short_term.add_messages([{"role": "user", "content": str(n)} for n in range(4)])
    hold = holdfast.holds.add(user_id=memory.user_id, memory_id=ids[1], reason="litigation", author="counsel")
    with pytest.raises(HeldError):
        memory.short_term.delete(ids[:2])
    assert len(memory.short_term.get_full_history()) == 4
    holdfast.holds.release(hold.id)
    assert memory.short_term.delete(ids[:2])
    assert [m["message_id"] for m in memory.short_term.get_full_history()] == ids[2:]
    assert not memory.short_term.delete([])


def test_appends_and_pops_at_once_lose_and_repeat_nothing(memory: MemoryManager) -> None:
    batches = [[{"role": "user", "content": str(n), "external_id": str(n)} for n in range(8)]] * 6
    with ThreadPoolExecutor(6) as pool:
        ids = {tuple(found) for found in pool.map(memory.short_term.add_messages, batches)}
        assert len(ids) == 1
        assert [m["content"] for m in memory.short_term.get_full_history()] == [str(n) for n in range(8)]
        popped = list(pool.map(lambda _: memory.short_term.pop_message(), range(9)))
    assert sorted(one["content"] for one in popped if one) == [str(n) for n in range(8)]
    assert memory.short_term.get_full_history() == memory.short_term.get_conversation_history() == []


_messages = st.builds(
    lambda number, content: {"role": "user", "content": content, "external_id": number and f"msg {number}"},
    st.none() | st.integers(1, 5),
    st.sampled_from(["", "hello", "Grüße\n🎿", "long " * 400]),
)
_steps = st.lists(st.lists(_messages, max_size=4) | st.sampled_from(["pop", "restart"]), max_size=12)
_sessions = itertools.count()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
def test_a_session_is_what_a_plain_list_would_be(holdfast: Holdfast, clock: FakeClock, steps: list[Any]) -> None:
    """Appends with and without ids of the caller, pops, and sessions that begin anew, held against a list."""
    short_term = holdfast.manager("user", "agent", f"session {next(_sessions)}").short_term
    model: list[tuple[str, str, str | None]] = []
    for step in steps:
        if step == "pop":
            popped = short_term.pop_message()
            assert (popped and popped["message_id"]) == (model.pop()[0] if model else None)
        elif step == "restart":
            if model:
                holdfast.sessions.remove("agent", short_term._scope.session_id, user_id="user")
            model.clear()
        else:
            ids = short_term.add_messages(step)
            for message_id, message in zip(ids, step, strict=True):
                known = {external_id: one for one, _, external_id in model if external_id is not None}
                if message["external_id"] not in known:
                    model.append((message_id, message["content"], message["external_id"]))
                else:
                    assert message_id == known[message["external_id"]]
        for read in (short_term.get_full_history, short_term.get_conversation_history):
            assert [(m["message_id"], m["content"], m.get("external_id")) for m in read()] == model


def test_a_message_is_in_the_history_and_in_the_window_or_in_neither(
    holdfast: Holdfast, memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.short_term.add_message("user", "hello")
    commits: list[None] = []
    monkeypatch.setattr(holdfast.database, "on_commit", lambda: commits.append(None))
    memory.short_term.add_message("user", "I like tea")
    assert len(commits) == 1

    def fail(*_args: object, **_options: object) -> NoReturn:
        raise StorageError("the window cannot be written")

    monkeypatch.setattr("holdfast.storage.relational.sessions.SqlShortTerm.append", fail)
    with pytest.raises(StorageError):
        memory.short_term.add_message("user", "I like coffee")
    monkeypatch.undo()
    said = ["hello", "I like tea"]
    assert [one["content"] for one in memory.short_term.get_conversation_history()] == said
    assert [one["content"] for one in holdfast.sessions.history("travel_agent", "sess_abc123")] == said
