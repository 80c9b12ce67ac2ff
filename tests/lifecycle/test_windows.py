"""The short-term window of a session ends with the session, whoever removes it, and wherever windows are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.servers import ValkeyServer, valkey

from clocks import FakeClock
from effort import sampled
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import HeldError, StoreAwayError
from holdfast.ports.conversations import ShortWindow

KNOWN = [("guide", "trip"), ("guide", "other")]


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey() as started:
        yield started


@pytest.fixture(params=["in the database", "on Valkey"])
def kept(request: pytest.FixtureRequest, server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where short-term windows are kept."""
    if request.param == "on Valkey":
        server.flush()
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", server.url)
    return str(request.param)


@pytest.fixture
def on_valkey(server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> ValkeyServer:
    server.flush()
    monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", server.url)
    return server


@pytest.fixture
def opened(home: Path, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    for name in ("kept", "on_valkey"):  # before the store is opened
        if name in request.fixturenames:
            request.getfixturevalue(name)
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.policies.set("short_term", delete_after_days=400)
        yield holdfast


def talk(holdfast: Holdfast, *contents: str, session: str = "trip", user: str = "ann") -> MemoryManager:
    memory = holdfast.manager(user, "guide", session)
    for content in contents or ("I like tea", "and mountains"):
        memory.short_term.add_message("user", content)
    return memory


def seen(memory: MemoryManager) -> list[str]:
    """What anybody can see of a window, by any verb."""
    said = [one["content"] for one in memory.short_term.get_conversation_history()]
    found = {one["content"] for one in memory.retrieve("tea and mountains", memory_type="short_term", top_k=9)}
    assert found == set(said)
    assert memory.count_memories("short_term") == len(said)
    assert (memory.short_term.get_ttl() is None) == (not said)
    return said


def left(holdfast: Holdfast, user: str = "ann") -> list[ShortWindow]:
    """What a store still has of a user's windows, seen by anybody or not."""
    return list(holdfast.services.short_term.windows("default", user, known=KNOWN))


def sweep_twice(holdfast: Holdfast, clock: FakeClock) -> None:
    clock.advance(days=31)
    holdfast.sweep()
    clock.advance(days=16)
    holdfast.sweep()


def idle(holdfast: Holdfast, clock: FakeClock) -> None:
    clock.advance(days=31)
    holdfast.sweep()


def rule(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.policies.set("history", delete_after_days=1, confirm=True)
    clock.advance(days=2)
    holdfast.sweep()


def purge(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.sessions.remove("guide", "trip", user_id="ann")
    clock.advance(days=16)
    holdfast.recycle.purge()


PATHS: dict[str, Callable[[Holdfast, FakeClock], object]] = {
    "the idle sweep": idle,
    "the idle sweep, and the end of the bin": sweep_twice,
    "a shorter rule": rule,
    "a user": lambda holdfast, _: holdfast.sessions.remove("guide", "trip", user_id="ann"),
    "a user, and the end of the bin": purge,
    "the removal of the agent": lambda holdfast, _: holdfast.agents.remove("guide"),
    "the removal of all memories": lambda holdfast, _: holdfast.manager("x", "y").delete_user_memories("ann"),
    "the removal of conversations": lambda holdfast, _: holdfast.manager("x", "y").delete_user_memories(
        "ann", "short_term"
    ),
    "an erasure": lambda holdfast, _: holdfast.erase_user("ann"),
}


@sampled
@pytest.mark.parametrize("path", PATHS)
def test_whoever_removes_a_session_ends_its_short_term_window(
    opened: Holdfast, clock: FakeClock, kept: str, path: str
) -> None:
    memory = talk(opened)
    assert len(seen(memory)) == 2

    PATHS[path](opened, clock)

    assert seen(memory) == []
    assert left(opened) == [], f"nothing is left of it {kept}"


def test_a_window_is_out_of_sight_when_the_time_of_its_session_is_over_swept_or_not(
    opened: Holdfast, clock: FakeClock, kept: str
) -> None:
    memory = talk(opened)
    clock.advance(days=29, hours=23)
    assert len(seen(memory)) == 2
    assert memory.short_term.get_ttl() == 3_600, "the session ends before the 400 days of the window do"

    clock.advance(hours=1)

    assert seen(memory) == []
    assert memory.short_term.get_full_history() == []


def test_what_was_said_before_the_session_ended_does_not_come_back_with_the_next_one(
    opened: Holdfast, clock: FakeClock, kept: str
) -> None:
    memory = talk(opened)
    clock.advance(days=31)
    talk(opened, "hello again")
    assert seen(memory) == ["hello again"]

    opened.sessions.remove("guide", "trip", user_id="ann")
    talk(opened, "and again")
    assert seen(memory) == ["and again"]


def test_short_term_memory_is_a_window_of_the_last_thousand_messages(opened: Holdfast, kept: str) -> None:
    memory = opened.manager("ann", "guide", "trip")
    first = memory.add_many([f"message {n}" for n in range(999)], "short_term")
    assert (first["quota_remaining"], "dropped" in first) == (1, False)

    full = memory.add("message 999", "short_term")
    over = memory.add("message 1000", "short_term")
    more = memory.add_many(["message 1001", "message 1002"], "short_term")

    assert (full["quota_remaining"], "dropped" in full) == (0, False)
    assert (over["operation"], over["quota_remaining"], over["dropped"]) == ("add", 0, 1)
    assert (more["operation"], more["quota_remaining"], more["dropped"]) == ("add_many", 0, 2)
    said = [one["content"] for one in memory.short_term.get_conversation_history()]
    assert said == [f"message {n}" for n in range(3, 1_003)]
    assert memory.count_memories("short_term") == 1_000
    assert opened.recycle.list() == [], "what leaves the window is not removed: the history has it"
    assert [one["content"] for one in memory.short_term.get_full_history()] == [f"message {n}" for n in range(1_003)]


def test_other_sessions_keep_their_windows(opened: Holdfast, kept: str) -> None:
    talk(opened)
    other, bob = talk(opened, session="other"), talk(opened, user="bob")

    opened.sessions.remove("guide", "trip", user_id="ann")

    assert len(seen(other)) == len(seen(bob)) == 2


def test_a_restored_session_has_its_history_and_an_empty_window(opened: Holdfast, kept: str) -> None:
    memory = talk(opened)
    opened.sessions.remove("guide", "trip", user_id="ann")

    opened.recycle.restore(session_id="trip", user_id="ann")

    assert [one["content"] for one in memory.short_term.get_full_history()] == ["I like tea", "and mountains"]
    assert seen(memory) == []
    talk(opened, "I am back")
    assert seen(memory) == ["I am back"]
    assert len(memory.short_term.get_full_history()) == 3


def test_a_hold_that_keeps_a_session_keeps_its_window(opened: Holdfast, kept: str) -> None:
    memory, other = talk(opened), talk(opened, session="other")
    opened.holds.add(reason="case 7", author="legal", user_id="ann", session_id="trip")

    with pytest.raises(HeldError):
        opened.sessions.remove("guide", "trip", user_id="ann")
    memory.delete_user_memories("ann", "short_term")
    opened.agents.remove("guide")
    opened.agents.restore("guide")

    assert len(seen(memory)) == 2
    assert seen(other) == []


def test_a_held_session_whose_time_is_over_is_out_of_sight_and_whole(
    opened: Holdfast, clock: FakeClock, kept: str
) -> None:
    memory = talk(opened)
    hold = opened.holds.add(reason="case 7", author="legal", user_id="ann", session_id="trip")
    idle(opened, clock)

    assert seen(memory) == []
    assert [len(window.messages) for window in left(opened)] == [2], f"it is kept {kept}"

    opened.holds.release(hold.id)
    opened.sweep()
    assert left(opened) == []


# --- on a server of its own ---------------------------------------------------------------------------------------------


class DeathError(BaseException):
    """The process is no more."""


def test_a_crash_between_the_removal_and_the_end_of_the_window_shows_nothing_and_leaves_nothing(
    opened: Holdfast, clock: FakeClock, home: Path, on_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(opened)

    def die(*_: Any) -> int:
        raise DeathError

    with monkeypatch.context() as patch:
        patch.setattr(opened.services.short_term, "end", die)
        with pytest.raises(DeathError):
            opened.sessions.remove("guide", "trip", user_id="ann")
    assert len(left(opened)) == 1, "this is the crash"

    with Holdfast.open(home=home, clock=clock) as again:
        memory = again.manager("ann", "guide", "trip")
        assert seen(memory) == []
        clock.advance(days=16)
        again.sweep()
        assert left(again) == []
        talk(again, "hello")
        assert seen(memory) == ["hello"]


def test_a_server_that_is_away_does_not_keep_a_session_from_being_removed(
    opened: Holdfast, clock: FakeClock, on_valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    memory = talk(opened)
    on_valkey.stop()
    try:
        opened.sessions.remove("guide", "trip", user_id="ann")
        assert "1 short-term windows are not removed yet" in caplog.text
        clock.advance(days=16)
        opened.sweep()
        assert "a session is not wholly deleted yet" in caplog.text
    finally:
        on_valkey.start()

    assert seen(memory) == []
    opened.sweep()
    assert opened.recycle.list() == []
    assert left(opened) == []


def test_a_message_that_the_server_does_not_take_is_not_in_the_history_either(
    opened: Holdfast, on_valkey: ValkeyServer
) -> None:
    memory = talk(opened, "first")
    on_valkey.stop()
    try:
        for session in ("trip", "other"):
            with pytest.raises(StoreAwayError):
                talk(opened, "second", session=session)
    finally:
        on_valkey.start()

    (listed,) = opened.sessions.list("ann")
    assert (listed["session_id"], listed["messages"], listed["summary"]) == ("trip", 1, "user: first")
    assert [one["content"] for one in memory.short_term.get_full_history()] == ["first"]


def test_a_repeated_message_is_in_the_window_once_and_is_taken_back_with_no_other(
    opened: Holdfast, on_valkey: ValkeyServer
) -> None:
    memory = opened.manager("ann", "guide", "trip")
    first = {"role": "user", "content": "", "external_id": "msg_1"}
    ids = [memory.short_term.add_messages([first]) for _ in range(2)]
    assert ids[0] == ids[1]
    (kept,) = memory.short_term.get_conversation_history()
    assert (kept["content"], kept["external_id"]) == ("", "msg_1")

    on_valkey.stop()
    try:
        with pytest.raises(StoreAwayError):
            memory.short_term.add_messages([first, {"role": "user", "content": "new", "external_id": "msg_2"}])
        assert memory.short_term.get_full_history() == [kept]
        assert memory.short_term.add_messages([first]) == ids[0], "what is there needs no window"
    finally:
        on_valkey.start()
