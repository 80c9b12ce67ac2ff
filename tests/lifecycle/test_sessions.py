"""Conversations: how long they are kept, what holds them, and what goes with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raw
from holdfast.core.audit import Action, Event
from holdfast.core.clock import IdSource
from holdfast.core.decisions import Hold
from holdfast.core.errors import HeldError, InvalidInputError, InvalidScopeError, LeaseLostError, NotFoundError
from holdfast.core.records import BIN, HISTORY, Cause, Message, Move, Outcome, Scope, State, Terms
from holdfast.core.rules import Rule
from holdfast.core.values import DAY, SECOND
from holdfast.lifecycle.sessions import Sessions, roll
from holdfast.ports.conversations import Session
from holdfast.storage.relational.audit import SqlAudit
from holdfast.storage.relational.coordination import SqlLeases
from holdfast.storage.relational.database import Database
from holdfast.storage.relational.history import SqlHistory
from holdfast.storage.relational.rules import SqlHolds, SqlRules
from holdfast.storage.relational.sessions import SqlShortTerm
from homes import tenant_of

TENANT = "acme"
NOW = 1_768_478_400_000_000
IDLE = 30 * DAY


@dataclass
class World:
    """A store, and the time by its clock."""

    database: Database
    now: int = NOW
    ids: IdSource = field(default_factory=lambda: IdSource(lambda bits: 1))

    def __post_init__(self) -> None:
        self.history = SqlHistory(self.database)
        self.short_term = SqlShortTerm(self.database)
        self.holds = SqlHolds(self.database)
        self.audit = SqlAudit(self.database)
        self.sessions = Sessions(tenant_of(self.database, TENANT, lambda: self.now, history=self.history))

    def say(self, scope: Scope, *contents: str, **metadata: str) -> list[str]:
        """Add messages to a conversation and to its short-term window; their ids."""
        messages = [Message(self.ids.next(self.now), "user", text, self.now, dict(metadata)) for text in contents]
        session = self.history.append(scope, messages, now=self.now, summarize=roll).session
        self.short_term.append(scope, messages, ttl=3_600 * SECOND, now=self.now, most=1_000, session=session)
        return [message.id for message in messages]

    def said(self, scope: Scope) -> list[str]:
        return [message.content for message in self.history.messages(scope, now=self.now)]

    def session(self, scope: Scope) -> Session:
        found = self.history.find(scope, now=self.now)
        assert found is not None
        return found

    def again(self, session: Session) -> Session:
        found = self.history.get(session.subject, session.id)
        assert found is not None
        return found

    def move(self, session: Session, target: State, cause: Cause = Cause.USER) -> Outcome:
        purge_at = self.now + BIN if target is State.RECYCLED else None
        move = Move(session.id, session.version, session.state, target, "a test", cause, purge_at=purge_at)
        ((outcome,),) = self.history.transition_all([(session.subject, [move])], now=self.now)
        return outcome

    def hold(self, **what: Any) -> Hold:
        hold = Hold(f"hold-{self.ids.next(self.now)}", TENANT, "litigation", "counsel", self.now, **what)
        self.holds.add(hold, Event(self.now, Action.HOLD_ADDED, hold.id, {}))
        return hold

    def release(self, hold: Hold) -> None:
        event = Event(self.now, Action.HOLD_RELEASED, hold.id, {})
        self.holds.release(TENANT, hold.id, now=self.now, event=event)

    def actions(self, scope: Scope, item: str) -> list[str]:
        """What the audit chain has about something, in order."""
        return [entry.action for entry in self.audit.of_item(scope.subject, item)]


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def who(user_id: str = "ann", agent_id: str = "guide", session_id: str | None = "trip") -> Scope:
    return Scope(TENANT, user_id, agent_id, session_id)


# --- holdfast.sessions -----------------------------------------------------------------------------------------------------


def test_two_users_with_a_session_of_one_name_keep_their_own(world: World) -> None:
    world.say(who("ann"), "mine")
    world.say(who("bob"), "his")

    with pytest.raises(InvalidInputError, match=r"2 users have a session 'trip'.*user_id="):
        world.sessions.history("guide", "trip")
    with pytest.raises(InvalidInputError, match="2 users"):
        world.sessions.remove("guide", "trip")
    assert world.sessions.remove("guide", "trip", user_id="bob") == 1

    assert [message["content"] for message in world.sessions.history("guide", "trip")] == ["mine"]
    assert world.said(who("bob")) == []


def test_a_removed_session_is_out_of_sight_at_once_with_its_short_term_window(world: World) -> None:
    ids = world.say(who(), "one", "two")
    old = world.session(who())

    assert world.sessions.remove("guide", "trip") == 2

    assert world.sessions.history("guide", "trip") == []
    assert world.sessions.list("ann") == []
    assert world.short_term.window(who(), now=world.now) == []
    binned = world.again(old)
    assert (binned.state, binned.purge_at, binned.reason) == (State.RECYCLED, world.now + BIN, "removed by the user")
    assert world.actions(who(), old.id) == ["recycled"]
    with pytest.raises(NotFoundError, match="has no session 'trip'"):
        world.sessions.remove("guide", "trip")
    assert len(ids) == binned.messages == 2


def test_a_session_is_removed_though_a_message_comes_while_it_goes(world: World) -> None:
    world.say(who(), "one")
    find = world.history.find

    def slow(scope: Scope, *, now: int) -> Session | None:
        found = find(scope, now=now)
        if found is not None and found.messages == 1:
            world.say(scope, "two")
        return found

    world.history.find = slow  # type: ignore[method-assign]  # the writer who is faster, once
    assert world.sessions.remove("guide", "trip") == 2


def test_what_names_no_session_is_refused_in_words(world: World) -> None:
    for agent, session, user in (("", "trip", "ann"), ("guide", "\n", "ann"), ("guide", "trip", "*")):
        with pytest.raises(InvalidScopeError):
            world.sessions.remove(agent, session, user_id=user)
    with pytest.raises(InvalidInputError, match="limit"):
        world.sessions.history("guide", "trip", limit=0)
    with pytest.raises(InvalidScopeError):
        world.sessions.list("ann", "")


# --- rules --------------------------------------------------------------------------------------------------------------


def settle(world: World, terms: Terms, **scope: Any) -> None:
    rules = SqlRules(world.database)
    rule = Rule(f"rule-{world.ids.next(world.now)}", TENANT, HISTORY, Terms(), pending=terms, **scope)
    (rule,) = rules.propose([rule], now=world.now)
    assert sum(rules.assign(rule)) >= 0
    rules.settle([(rule, Event(world.now, Action.RULE_CHANGED, None, {}))], now=world.now)


def test_a_rule_for_an_agent_keeps_its_conversations_for_longer_old_and_new(world: World) -> None:
    world.say(who(), "old")
    world.say(who(agent_id="other"), "old")
    settle(world, Terms(delete_after=90 * DAY), agent_id="guide")
    world.say(who(session_id="later"), "new")

    world.now = NOW + 90 * DAY - 1
    assert (world.said(who()), world.said(who(session_id="later"))) == (["old"], ["new"])
    assert world.said(who(agent_id="other")) == []
    world.now += 1
    assert (world.said(who()), world.said(who(session_id="later"))) == ([], [])


def test_the_rule_that_ended_a_session_is_named_in_the_bin_and_in_the_audit_chain(world: World) -> None:
    settle(world, Terms(delete_after=7 * DAY), session_id="trip")
    world.say(who(), "old")
    old = world.session(who())
    world.now += 7 * DAY
    world.say(who(), "new")

    assert world.again(old).reason == "7 days after it was last active, by the session's rule for history, version 1"
    (entry,) = world.audit.of_item(who().subject, old.id)
    assert (entry.action, entry.detail["cause"]) == ("recycled", "rule")
    assert entry.detail["rule"] == "the session's rule for history, version 1"
    assert "ann" not in str(entry.detail)


def test_moves_of_conversations_are_counted_as_history(world: World) -> None:
    world.say(who(), "old")
    old = world.session(who())
    world.now += IDLE + DAY
    world.say(who(), "new")
    world.move(world.again(old), State.DELETING, Cause.BIN)
    world.sessions.remove("guide", "trip")

    counted = raw.rows(world.database, "SELECT kind, state, cause, count FROM totals ORDER BY state, cause")
    assert counted == [
        ("history", "deleting", "bin", 1),
        ("history", "recycled", "rule", 1),
        ("history", "recycled", "user", 1),
    ]


def test_a_batch_of_a_sweeper_that_lost_its_lease_changes_nothing(world: World) -> None:
    world.say(who(), "hello")
    session = world.session(who())
    leases = SqlLeases(world.database)
    lease = leases.acquire("sweep", "elsewhere:1:a", now=NOW, ttl=SECOND)
    assert lease is not None
    leases.acquire("sweep", "elsewhere:2:b", now=lease.expires_at, ttl=SECOND)
    move = Move(session.id, session.version, State.ACTIVE, State.RECYCLED, "a test")

    with pytest.raises(LeaseLostError):
        world.history.transition_all([(session.subject, [move])], now=NOW, lease=lease)
    with pytest.raises(LeaseLostError):
        world.history.purge_messages(TENANT, now=NOW, limit=9, lease=lease)
    assert world.said(who()) == ["hello"]


# --- holds ----------------------------------------------------------------------------------------------------------------

HOLDS = [{"user_id": "ann"}, {"agent_id": "guide"}, {"session_id": "trip"}, {"tag": "case=7"}, {"memory_id": "?"}]


@pytest.mark.parametrize("what", HOLDS)
def test_a_held_message_is_not_deleted_and_the_refusal_is_written_down(world: World, what: dict[str, str]) -> None:
    first, second = world.say(who(), "first", "second", case="7")
    hold = world.hold(**({"memory_id": first} if "memory_id" in what else what))

    with pytest.raises(HeldError, match=f"message {first} is kept by hold {hold.id} .litigation.*release") as refused:
        world.history.remove(who(), [first, second], now=world.now, summarize=roll)

    assert "nothing was deleted" in str(refused.value)
    assert world.said(who()) == ["first", "second"], "all or none"
    assert world.actions(who(), first) == ["refused"]
    assert world.actions(who(), second) == ([] if "memory_id" in what else ["refused"])
    world.release(hold)
    assert world.history.remove(who(), [first, second], now=world.now, summarize=roll) == 2
    assert world.actions(who(), first) == ["refused", "recycled"]


@pytest.mark.parametrize("what", HOLDS)
def test_a_held_message_in_the_bin_stays_there_and_does_not_stop_the_others(world: World, what: dict[str, str]) -> None:
    ids = world.say(who(), "a", "b", case="7")
    free = world.say(who("bob", "other", "else"), *(str(n) for n in range(5)))
    world.history.remove(who(), ids, now=world.now, summarize=roll)
    world.history.remove(who("bob", "other", "else"), free, now=world.now, summarize=roll)
    hold = world.hold(**({"memory_id": ids[0]} if "memory_id" in what else what))
    world.now += BIN

    kept = 1 if "memory_id" in what else 2
    purged = [world.history.purge_messages(TENANT, now=world.now, limit=2)[0] for _ in range(5)]
    assert sum(purged) == 7 - kept
    assert purged == sorted(purged, reverse=True), "full batches first: fewer means that none is left"
    assert max(purged) == 2
    assert world.actions(who(), ids[0]) == ["recycled"], "nothing was tried, nothing refused"
    world.release(hold)
    assert world.history.purge_messages(TENANT, now=world.now, limit=9)[0] == kept
    assert world.actions(who(), ids[0]) == ["recycled", "deleted"]


@pytest.mark.parametrize("what", HOLDS)
def test_a_held_session_is_not_removed(world: World, what: dict[str, str]) -> None:
    ids = world.say(who(), "first", case="7")
    session = world.session(who())
    hold = world.hold(**({"memory_id": ids[0]} if "memory_id" in what else what))

    with pytest.raises(HeldError, match="session 'trip' with agent 'guide' is on hold"):
        world.sessions.remove("guide", "trip")
    assert world.said(who()) == ["first"]
    assert len(world.short_term.window(who(), now=world.now)) == 1
    (entry,) = world.audit.of_item(who().subject, session.id)
    assert (entry.action, entry.detail["hold"]) == ("refused", hold.id)

    world.release(hold)
    world.sessions.remove("guide", "trip")
    world.hold(session_id="trip")
    assert world.move(world.again(session), State.DELETING, Cause.BIN) is Outcome.HELD
    assert world.move(world.again(session), State.ACTIVE, Cause.RESTORE) is Outcome.DONE, "no hold forbids a restore"


def test_holds_on_others_hold_nothing(world: World) -> None:
    ids = world.say(who(), "first", case="7")
    for what in (
        {"user_id": "an"},
        {"agent_id": "guid"},
        {"session_id": "tri"},
        {"tag": "case=77"},
        {"memory_id": ids[0][:-1]},
    ):
        world.hold(**what)
    world.hold(user_id="bob", memory_id=ids[0])

    assert world.history.remove(who(), ids, now=world.now, summarize=roll) == 1
    assert world.sessions.remove("guide", "trip") == 0


def test_what_was_claimed_before_a_hold_stood_is_finished(world: World) -> None:
    world.say(who(), "first")
    session = world.session(who())
    world.sessions.remove("guide", "trip")
    world.move(world.again(session), State.DELETING, Cause.BIN)
    world.hold(user_id="ann")

    assert world.sessions.erase(session.subject, session.id, limit=9) == 0
    assert world.move(world.again(session), State.DELETED, Cause.BIN) is Outcome.DONE


def test_a_held_session_past_its_time_is_kept_whole_out_of_sight_and_not_revived(world: World) -> None:
    world.say(who(), "first")
    session = world.session(who())
    hold = world.hold(user_id="ann")
    world.now += IDLE

    assert world.said(who()) == []
    world.say(who(), "second")
    assert world.said(who()) == ["second"], "another of its name begins"
    assert world.again(session) == session, "and the held one is kept whole beside it"

    world.now += IDLE
    world.say(who(), "third")
    assert world.said(who()) == ["third"], "as often as it takes"
    assert world.again(session) == session

    world.release(hold)
    assert world.move(world.again(session), State.RECYCLED, Cause.RULE) is Outcome.DONE
    assert world.move(world.again(session), State.ACTIVE, Cause.RESTORE) is Outcome.TAKEN


# --- the summary ------------------------------------------------------------------------------------------------------------


def turn(content: str, role: str = "user") -> Message:
    return Message("id", role, content, NOW, {})


def told(contents: Sequence[str], summary: str = "") -> str:
    for content in contents:
        summary = roll(summary, [turn(content)])
    return summary


def test_a_short_conversation_is_its_own_summary() -> None:
    assert roll("", [turn("Hello"), turn("Good morning", "assistant")]) == "user: Hello\nassistant: Good morning"
    assert roll("user: Hello", [turn("Bye")]) == "user: Hello\nuser: Bye"
    assert roll("user: Hello", []) == "user: Hello"


def test_a_long_conversation_is_told_by_what_tells_most() -> None:
    small_talk = ["Well, that is all fine with me, thank you, and so on and so on."] * 60
    summary = told(["Maria Lopez flies to Reykjavik on 14 March 2026.", *small_talk])

    assert "Reykjavik" in summary
    assert len(summary) <= 1_200


def test_words_without_their_sentences_do_not_crowd_out_what_is_said_later() -> None:
    names = [f"Traveller {n} booked Hotel Number{n} in City{n} for {n} nights from {n} May." for n in range(200)]
    summary = told([*names, "In the end Maria Lopez flew to Reykjavik on 14 March 2026 with her brother."])

    assert "Maria Lopez flew to Reykjavik" in summary
    assert sum(line.startswith("Also: ") for line in summary.splitlines()) <= 1


def test_of_a_huge_message_the_summary_looks_at_the_beginning() -> None:
    summary = roll("", [turn("Reykjavik is the capital of Iceland. " + "na " * 2_000_000)])

    assert "Reykjavik" in summary
    assert len(summary) <= 600


def test_of_many_messages_at_once_the_summary_looks_at_the_last() -> None:
    many = [turn("Well, that is all fine with me, thank you.") for _ in range(5_000)]

    summary = roll("", [*many, turn("Maria Lopez flies to Reykjavik on 14 March 2026.")])

    assert "Reykjavik" in summary
    assert len(summary) <= 600


@given(st.lists(st.text(min_size=1, max_size=3_000), max_size=6))
def test_a_summary_stays_short_whatever_is_said(contents: list[str]) -> None:
    assert len(told(contents)) <= 1_200
