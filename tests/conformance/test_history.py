"""What every ``History`` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, message
from holdfast.core.errors import ConflictError
from holdfast.core.records import BIN, Cause, Message, Move, Outcome, Scope, State, Subject
from holdfast.core.values import DAY, SECOND
from holdfast.ports.conversations import History, Session

IDLE = 30 * DAY


def append(history: History, scope: Scope, *messages: Message, now: int = NOW) -> None:
    history.append(scope, messages, now=now, summarize=joined)


def remove(history: History, scope: Scope, message_ids: Sequence[str], *, now: int = NOW) -> int:
    return history.remove(scope, message_ids, now=now, summarize=joined)


def joined(summary: str, messages: Sequence[Message]) -> str:
    return "|".join([*([summary] if summary else []), *(message.content for message in messages)])


def shift(session: Session, target: State, **fields: Any) -> Move:
    """A move of a session as it was read."""
    return Move(session.id, session.version, session.state, target, "because the test said so")._replace(**fields)


def move(history: History, session: Session, target: State, *, now: int = NOW, **fields: Any) -> Outcome:
    ((outcome,),) = history.transition_all([(session.subject, [shift(session, target, **fields)])], now=now)
    return outcome


def seen(history: History, scope: Scope, *, now: int = NOW) -> Session:
    """The session, which is known to be there."""
    session = history.find(scope, now=now)
    assert session is not None
    return session


def again(history: History, session: Session) -> Session:
    """The session as it is now, in whatever state."""
    found = history.get(session.subject, session.id)
    assert found is not None
    return found


@pytest.fixture
def history(engine: Engine) -> History:
    return engine.history


def test_a_conversation_is_kept_in_its_order(history: History, elsewhere: Engine, me: Person) -> None:
    scope = me.scope("agent", "sess_1")
    turns = [message(f"turn {n}", role="user" if n % 2 == 0 else "assistant", at=NOW + n, n=n) for n in range(10)]

    append(history, scope, *turns[:1])
    append(history, scope, *turns[1:7])
    append(history, scope, *turns[7:])

    assert history.messages(scope, now=NOW) == turns
    assert elsewhere.history.messages(scope, now=NOW) == turns


def test_messages_come_back_exactly_as_they_were(history: History, me: Person) -> None:
    turns = [
        message("Grüße 🎿\n\ttabs", metadata_of={"deep": [1, 1.5, True, None, "ß"]}),
        message("long " * 2_000, role="tool"),
        message("42")._replace(external_id="msg_42 ü"),
        message("", role="assistant"),
    ]
    append(history, me.scope(), *turns)

    assert history.messages(me.scope(), now=NOW) == turns


def test_the_order_is_that_of_appending_whatever_the_clock_said(history: History, me: Person) -> None:
    late, early = message("first", at=NOW + DAY), message("second", at=NOW)
    early = early._replace(id="0000" + early.id[4:])

    append(history, me.scope(), late)
    append(history, me.scope(), early)

    assert [turn.content for turn in history.messages(me.scope(), now=NOW)] == ["first", "second"]


@pytest.mark.parametrize(("limit", "expected"), [(0, []), (1, ["4"]), (3, ["2", "3", "4"]), (99, list("01234"))])
def test_with_a_limit_the_last_messages_come(history: History, me: Person, limit: int, expected: list[str]) -> None:
    append(history, me.scope(), *(message(str(n)) for n in range(5)))

    assert [turn.content for turn in history.messages(me.scope(), limit=limit, now=NOW)] == expected


def test_a_conversation_is_read_backwards_from_a_message_on(history: History, me: Person) -> None:
    turns = [message(str(n)) for n in range(5)]
    turns[1] = turns[1]._replace(id="ffff" + turns[1].id[4:])  # the order is not that of the ids
    append(history, me.scope(), *turns)
    append(history, me.scope(session_id="another"), message("elsewhere"))

    def before(message_id: str, limit: int | None = None) -> list[str]:
        return [turn.content for turn in history.messages(me.scope(), now=NOW, before=message_id, limit=limit)]

    assert before(turns[3].id) == ["0", "1", "2"]
    assert before(turns[3].id, limit=2) == ["1", "2"]
    assert before(turns[1].id) == ["0"]
    assert before(turns[0].id) == []
    history.remove(me.scope(), [turns[3].id], now=NOW, summarize=lambda _summary, _messages: "")
    assert before(turns[3].id, limit=2) == ["1", "2"], "one that was deleted still has its place"
    assert before(turns[4].id) == ["0", "1", "2"]
    assert before("0" * 36) == []


def test_appending_nothing_begins_no_session(history: History, me: Person) -> None:
    append(history, me.scope())

    assert history.messages(me.scope(), now=NOW) == []
    assert history.sessions(me.subject, now=NOW) == []


def test_scopes_are_compared_whole(history: History, me: Person) -> None:
    def scopes(tenant: str) -> list[Scope]:
        return [
            Scope(tenant, user, agent, session)
            for user in ("foo", "foobar", "FOO", "foo/x")
            for agent in ("a", "ab")
            for session in (None, "s", "s1", "None")
        ]

    everyone = scopes(me.tenant) + scopes(me.tenant + "x")
    for scope in everyone:
        append(history, scope, message(repr(scope)))

    for scope in everyone:
        assert [turn.content for turn in history.messages(scope, now=NOW)] == [repr(scope)]
    assert history.messages(Scope(me.tenant, "fo", "a", "s"), now=NOW) == []


def test_the_owners_of_a_session_are_the_users_of_this_tenant_who_have_it(history: History, me: Person) -> None:
    for who, agent, session in (
        (me, "agent", "sess"),
        (me.other("b/c"), "agent", "sess"),
        (me.other("other_agent"), "agent_2", "sess"),
        (me.other("other_session"), "agent", "sess_2"),
        (me.other("unnamed"), "agent", None),
        (Person(me.tenant + "x", "stranger"), "agent", "sess"),
    ):
        append(history, who.scope(agent, session), message())

    assert sorted(history.owners(me.tenant, "agent", "sess", now=NOW)) == ["b/c", "user_123"]
    assert history.owners(me.tenant, "agent", None, now=NOW) == ["unnamed"]
    assert history.owners(me.tenant, "nobody", "sess", now=NOW) == []


def test_the_sessions_of_a_user_are_listed(history: History, me: Person) -> None:
    append(history, me.scope("agent", "first"), message(at=NOW), message(at=NOW + SECOND))
    append(history, me.scope("agent", "second"), message(at=NOW + 5 * SECOND))
    append(history, me.scope("agent_2"), message(at=NOW + 3 * SECOND))
    append(history, me.scope("agent", "first"), message(at=NOW + 9 * SECOND))
    append(history, me.other("user_1234").scope(), message())

    found = history.sessions(me.subject, now=NOW)

    assert [(row.agent_id, row.session_id, row.messages) for row in found] == [
        ("agent", "first", 3),
        ("agent", "second", 1),
        ("agent_2", None, 1),
    ], "the latest active first"
    assert (found[0].created_at, found[0].updated_at) == (NOW, NOW + 9 * SECOND)
    assert [row.agent_id for row in history.sessions(me.subject, "agent_2", now=NOW)] == ["agent_2"]
    assert history.sessions(me.subject, "agent_", now=NOW) == []
    assert history.sessions(Person(me.tenant + "x", me.user_id).subject, now=NOW) == []


def test_an_older_message_does_not_make_a_session_look_less_active(history: History, me: Person) -> None:
    append(history, me.scope(), message(at=NOW + DAY))
    append(history, me.scope(), message(at=NOW))

    (session,) = history.sessions(me.subject, now=NOW)
    assert session.updated_at == NOW + DAY


def test_a_removed_message_is_gone_and_nothing_takes_its_place(history: History, elsewhere: Engine, me: Person) -> None:
    first, second, third = (message(text) for text in ("first", "second", "third"))
    append(history, me.scope(), first, second)

    assert remove(history, me.scope(), [second.id, "no such message"]) == 1
    assert remove(history, me.scope(), [second.id]) == 0
    assert remove(history, me.other("somebody").scope(), [first.id]) == 0
    append(history, me.scope(), third)

    assert elsewhere.history.messages(me.scope(), now=NOW) == [first, third]
    assert [session.messages for session in history.sessions(me.subject, now=NOW)] == [2]


# --- how long a conversation lives -------------------------------------------------------------------------------------


def test_a_conversation_is_out_of_sight_at_the_very_instant_thirty_days_after_its_last_message(
    history: History, me: Person
) -> None:
    append(history, me.scope(), message("first", at=NOW))
    append(history, me.scope(), message("last", at=NOW + DAY), now=NOW + DAY)
    over = NOW + DAY + IDLE

    assert len(history.messages(me.scope(), now=over - 1)) == 2
    assert history.owners(me.tenant, "agent", None, now=over - 1) == [me.user_id]
    assert len(history.sessions(me.subject, now=over - 1)) == 1
    for late in (over, over + 1, over + 99 * DAY):
        assert history.messages(me.scope(), now=late) == []
        assert history.find(me.scope(), now=late) is None
        assert history.owners(me.tenant, "agent", None, now=late) == []
        assert history.sessions(me.subject, now=late) == []
        assert remove(history, me.scope(), [message().id], now=late) == 0


def test_reading_a_conversation_does_not_keep_it(history: History, me: Person) -> None:
    append(history, me.scope(), message())
    history.messages(me.scope(), now=NOW + IDLE - 1)

    assert history.messages(me.scope(), now=NOW + IDLE) == []


@pytest.mark.parametrize("late", [IDLE, IDLE + DAY])
def test_a_session_in_use_again_after_its_time_begins_anew_and_the_old_one_is_in_the_bin(
    history: History, elsewhere: Engine, me: Person, late: int
) -> None:
    append(history, me.scope("agent", "chat"), message("old"))
    old = seen(history, me.scope("agent", "chat"))

    append(history, me.scope("agent", "chat"), message("new", at=NOW + late), now=NOW + late)

    found = elsewhere.history.messages(me.scope("agent", "chat"), now=NOW + late)
    assert [turn.content for turn in found] == ["new"]
    assert seen(history, me.scope("agent", "chat"), now=NOW + late).summary == "new"
    binned = again(history, old)
    assert (binned.state, binned.purge_at, binned.moved_at) == (State.RECYCLED, NOW + late + BIN, NOW + late)
    assert binned.reason == "30 days after it was last active, by the default for history"
    assert len(history.sessions(me.subject, now=NOW + late)) == 1


def test_a_session_used_the_instant_before_its_time_is_over_goes_on(history: History, me: Person) -> None:
    append(history, me.scope(), message("old"))
    later = NOW + IDLE - 1
    append(history, me.scope(), message("new", at=later), now=later)

    assert [turn.content for turn in history.messages(me.scope(), now=later)] == ["old", "new"]
    assert len(history.messages(me.scope(), now=later + IDLE - 1)) == 2


def test_an_older_message_does_not_take_time_from_a_session(history: History, me: Person) -> None:
    append(history, me.scope(), message(at=NOW))
    append(history, me.scope(), message(at=NOW - DAY))

    assert seen(history, me.scope(), now=NOW + IDLE - 1).aged_from == NOW


def test_a_session_counts_its_messages_and_their_bytes_and_carries_its_summary_on(history: History, me: Person) -> None:
    append(history, me.scope(), message("Grüße"), message("hello"))
    append(history, me.scope(), message("there"))

    session = seen(history, me.scope())
    assert (session.messages, session.size, session.summary) == (3, 7 + 5 + 5, "Grüße|hello|there")
    assert history.sessions(me.subject, now=NOW)[0].summary == "Grüße|hello|there"


def test_a_summary_that_fails_leaves_nothing_behind(history: History, me: Person) -> None:
    def broken(summary: str, messages: Sequence[Message]) -> str:
        raise ConflictError("no summary today")

    with pytest.raises(ConflictError, match="today"):
        history.append(me.scope(), [message()], now=NOW, summarize=broken)
    assert history.find(me.scope(), now=NOW) is None


def test_a_session_can_be_active_without_a_message(history: History, me: Person) -> None:
    begun = history.touch(me.scope(), now=NOW)
    later = history.touch(me.scope(), now=NOW + DAY)

    assert (later.id, later.messages, later.updated_at) == (begun.id, 0, NOW + DAY)
    assert seen(history, me.scope(), now=NOW + DAY + IDLE - 1) == later
    assert history.touch(me.scope(), now=NOW + DAY + IDLE).id != begun.id


# --- single messages ---------------------------------------------------------------------------------------------------


def test_a_message_is_found_by_its_id_in_whatever_state_it_and_its_session_are(history: History, me: Person) -> None:
    scope, first, second = me.scope("guide", "trip"), message("first"), message("second", case=7)
    append(history, scope, first, second)
    append(history, me.scope("guide", "other"), message("elsewhere"))
    found = history.find_message(me.subject, second.id)
    assert found is not None
    assert (found.message, found.session, found.purge_at) == (second, seen(history, scope), None)

    remove(history, scope, [second.id])
    found = history.find_message(me.subject, second.id)
    assert found is not None
    assert (found.message, found.purge_at) == (second, NOW + BIN)
    assert move(history, seen(history, scope), State.RECYCLED, purge_at=NOW + BIN) is Outcome.DONE
    found = history.find_message(me.subject, first.id)
    assert found is not None
    assert (found.session.state, found.purge_at) == (State.RECYCLED, None)
    assert move(history, found.session, State.DELETING) is Outcome.DONE
    found = history.find_message(me.subject, first.id)
    assert found is not None
    assert found.session.state is State.DELETING
    history.erase(me.subject, found.session.id, limit=9)
    assert history.find_message(me.subject, first.id) is None
    assert history.find_message(Subject(me.tenant, "nobody"), second.id) is None


def test_a_message_comes_back_to_its_place(history: History, me: Person) -> None:
    turns = [message(text) for text in ("first", "second", "third")]
    append(history, me.scope(), *turns)
    before = seen(history, me.scope())
    remove(history, me.scope(), [turns[1].id])
    assert seen(history, me.scope()).summary == "first|third", "what was deleted is not told any more"
    assert seen(history, me.scope()).size == before.size - len("second")

    assert history.restore_message(me.subject, turns[1].id, now=NOW + BIN - 1)

    assert history.messages(me.scope(), now=NOW) == turns
    assert (seen(history, me.scope()).messages, seen(history, me.scope()).size) == (3, before.size)
    assert not history.restore_message(me.subject, turns[1].id, now=NOW), "it is not in the bin any more"
    assert not history.restore_message(me.other("somebody").subject, turns[1].id, now=NOW)


def test_messages_in_the_bin_are_listed_until_they_leave_it(history: History, me: Person) -> None:
    turns = [message(str(n)) for n in range(5)]
    append(history, me.scope("agent", "chat"), *turns)
    remove(history, me.scope("agent", "chat"), [turns[0].id], now=NOW + 1)
    remove(history, me.scope("agent", "chat"), [turn.id for turn in turns[1:4]])
    append(history, me.other("other").scope(), theirs := message())
    remove(history, me.other("other").scope(), [theirs.id])

    first, place = history.binned_messages(me.tenant, me.subject, now=NOW, limit=3)
    rest, _ = history.binned_messages(me.tenant, me.subject, now=NOW, after=place, limit=3)
    assert [found.message for found in first + rest] == [*turns[1:4], turns[0]], "those that leave first come first"
    assert (first[0].session_id, first[0].purge_at, first[0].subject) == ("chat", NOW + BIN, me.subject)
    assert len(history.binned_messages(me.tenant, now=NOW, limit=9)[0]) == 5
    assert len(history.binned_messages(me.tenant, now=NOW + BIN, limit=9)[0]) == 1


def test_messages_are_gone_for_good_fifteen_days_later_and_not_before(history: History, me: Person) -> None:
    turns = [message(str(n)) for n in range(5)]
    append(history, me.scope(), *turns)
    remove(history, me.scope(), [turn.id for turn in turns[:4]])

    assert history.purge_messages(me.tenant, now=NOW + BIN - 1, limit=9) == (0, 0)
    with pytest.raises(ConflictError, match="no longer be restored"):
        history.restore_message(me.subject, turns[0].id, now=NOW + BIN)
    assert [history.purge_messages(me.tenant, now=NOW + BIN, limit=3)[0] for _ in range(3)] == [3, 1, 0]
    assert not history.restore_message(me.subject, turns[0].id, now=NOW)
    assert history.messages(me.scope(), now=NOW) == turns[4:]


def test_a_message_of_a_session_that_is_in_the_bin_comes_back_after_its_session(history: History, me: Person) -> None:
    append(history, me.scope(), gone := message(), message())
    remove(history, me.scope(), [gone.id])
    move(history, seen(history, me.scope()), State.RECYCLED, purge_at=NOW + BIN)

    assert history.binned_messages(me.tenant, now=NOW, limit=9)[0] == []
    with pytest.raises(ConflictError, match="restore that"):
        history.restore_message(me.subject, gone.id, now=NOW)


# --- whole conversations ------------------------------------------------------------------------------------------------


def test_a_session_goes_to_the_bin_and_comes_back_exactly_as_it_was(
    history: History, elsewhere: Engine, me: Person
) -> None:
    turns = [message(str(n)) for n in range(3)]
    append(history, me.scope("agent", "chat"), *turns)
    before = seen(history, me.scope("agent", "chat"))

    assert move(history, before, State.RECYCLED, purge_at=NOW + BIN, bundle="b") is Outcome.DONE
    assert elsewhere.history.messages(me.scope("agent", "chat"), now=NOW) == []
    binned = again(history, before)
    assert (binned.state, binned.purge_at, binned.bundle) == (State.RECYCLED, NOW + BIN, "b")

    assert move(history, binned, State.ACTIVE, cause=Cause.RESTORE) is Outcome.DONE
    assert history.messages(me.scope("agent", "chat"), now=NOW) == turns
    after = again(history, before)
    unlike: dict[str, Any] = {"version": before.version, "moved_at": None, "reason": None}
    assert after._replace(**unlike) == before
    assert (after.purge_at, after.bundle) == (None, None)


def test_a_session_does_not_come_back_over_one_of_its_name_that_is_in_use(history: History, me: Person) -> None:
    append(history, me.scope("agent", "chat"), message("old"))
    old = seen(history, me.scope("agent", "chat"))
    move(history, old, State.RECYCLED, purge_at=NOW + BIN)
    append(history, me.scope("agent", "chat"), message("new"))

    assert move(history, again(history, old), State.ACTIVE) is Outcome.TAKEN
    assert [turn.content for turn in history.messages(me.scope("agent", "chat"), now=NOW)] == ["new"]

    late = NOW + IDLE  # the one in use has come to the end of its time, and nobody has swept
    assert move(history, again(history, old), State.ACTIVE, now=late, aged_from=late) is Outcome.DONE
    assert [turn.content for turn in history.messages(me.scope("agent", "chat"), now=late)] == ["old"]


def test_a_message_that_came_meanwhile_makes_a_move_stale(history: History, me: Person) -> None:
    append(history, me.scope(), message())
    read = seen(history, me.scope())
    append(history, me.scope(), message())

    assert move(history, read, State.RECYCLED) is Outcome.STALE
    assert len(history.messages(me.scope(), now=NOW)) == 2
    assert move(history, again(history, read), State.RECYCLED, source=State.RECYCLED) is Outcome.STALE
    assert move(history, read._replace(id="no such session"), State.RECYCLED) is Outcome.STALE
    assert move(history, read._replace(subject=me.other("nobody").subject), State.RECYCLED) is Outcome.STALE


_PATHS = {State.ACTIVE: [], State.RECYCLED: [State.RECYCLED], State.DELETING: [State.RECYCLED, State.DELETING]}
_LEGAL = {
    (State.ACTIVE, State.RECYCLED),
    (State.ACTIVE, State.DELETING),
    (State.RECYCLED, State.ACTIVE),
    (State.RECYCLED, State.DELETING),
    (State.DELETING, State.DELETED),
}


@pytest.mark.parametrize("source", _PATHS)
@pytest.mark.parametrize("target", State)
def test_a_session_makes_the_moves_that_there_are_and_no_others(
    history: History, me: Person, source: State, target: State
) -> None:
    session = history.touch(me.scope(), now=NOW)
    for step in _PATHS[source]:
        assert move(history, again(history, session), step) is Outcome.DONE

    expected = Outcome.DONE if (source, target) in _LEGAL else Outcome.STALE
    assert move(history, again(history, session), target) is expected


def test_a_session_is_deleted_once_its_messages_are_gone(history: History, me: Person) -> None:
    append(history, me.scope(), *(message(str(n)) for n in range(7)), binned := message())
    remove(history, me.scope(), [binned.id])
    append(history, me.other("other").scope(), message("theirs"))
    session = seen(history, me.scope())
    with pytest.raises(ConflictError, match="claim"):
        history.erase(me.subject, session.id, limit=99)
    move(history, session, State.RECYCLED, purge_at=NOW + BIN)
    move(history, again(history, session), State.DELETING)
    claimed = again(history, session)
    assert claimed.purge_at == NOW + BIN, "a sweep finds it again where it found it before"

    assert move(history, claimed, State.DELETED) is Outcome.STALE
    assert move(history, claimed, State.ACTIVE) is Outcome.STALE, "what is being deleted cannot come back"
    assert [history.erase(me.subject, session.id, limit=5) for _ in range(3)] == [3, 0, 0]
    assert move(history, claimed, State.DELETED) is Outcome.DONE

    assert history.get(me.subject, session.id) is None
    assert history.erase(me.subject, session.id, limit=5) == 0
    assert len(history.messages(me.other("other").scope(), now=NOW)) == 1


def test_sessions_of_several_users_move_together(history: History, me: Person) -> None:
    users = [me.other(f"user_{n}") for n in range(3)]
    for user in users:
        append(history, user.scope("agent", "chat"), message(user.user_id))
    sessions = [seen(history, user.scope("agent", "chat")) for user in users]

    batches = [(session.subject, [shift(session, State.RECYCLED)]) for session in sessions[:2]]
    assert history.transition_all(batches, now=NOW) == [[Outcome.DONE], [Outcome.DONE]]

    assert history.owners(me.tenant, "agent", "chat", now=NOW) == ["user_2"]


def test_messages_that_are_taken_back_leave_nothing_behind(history: History, me: Person) -> None:
    kept, taken = message("kept"), message("taken")
    first = history.append(me.scope(), [kept], now=NOW, summarize=joined)
    second = history.append(me.scope(), [taken], now=NOW, summarize=joined)
    assert (first.begun, second.begun) == (True, False)
    assert first.session == second.session

    history.take_back(me.scope(), second, [taken.id], summarize=joined)

    session = history.find(me.scope(), now=NOW)
    assert session is not None
    assert (session.id, session.messages, session.summary) == (first.session, 1, joined("", [kept]))
    assert history.messages(me.scope(), now=NOW) == [kept]
    assert history.binned_messages(me.tenant, now=NOW, limit=9)[0] == []


def test_a_session_that_began_with_messages_that_are_taken_back_is_gone(history: History, me: Person) -> None:
    only = message("only")
    appended = history.append(me.scope(), [only], now=NOW, summarize=joined)

    history.take_back(me.scope(), appended, [only.id], summarize=joined)

    assert history.find(me.scope(), now=NOW) is None
    assert history.get(me.subject, appended.session) is None
    again = history.append(me.scope(), [only], now=NOW, summarize=joined)
    assert (again.begun, again.session != appended.session) == (True, True)


def test_sessions_that_changed_since_their_summary_was_saved_are_listed_once_they_are_idle(
    history: History, me: Person
) -> None:
    scopes = [me.scope(session_id=f"s{n}") for n in range(3)]
    for number, scope in enumerate(scopes):
        append(history, scope, message(f"m{number}"))
    tenant = scopes[0].tenant

    def listed(idle_since: int = NOW, *, now: int = NOW + 1, **page: int) -> list[str | None]:
        found, _ = history.to_summarize(tenant, idle_since=idle_since, now=now, **{"limit": 10, **page})
        return [session.session_id for session in found]

    assert listed() == ["s0", "s1", "s2"]
    assert listed(NOW - 1) == []
    assert listed(now=NOW + IDLE) == [], "their time is over"
    first, after = history.to_summarize(tenant, idle_since=NOW, now=NOW + 1, limit=2)
    assert [session.session_id for session in first] == ["s0", "s1"]
    assert listed(after=after) == ["s2"]
    assert history.to_summarize("nobody", idle_since=NOW, now=NOW + 1, limit=2)[0] == []

    assert history.save_summary(first[0], "said by a model")
    assert seen(history, scopes[0]).summary == "said by a model"
    assert listed() == ["s1", "s2"]
    assert not history.save_summary(first[0], "of what it was before")
    append(history, scopes[0], message("more"))
    assert listed() == ["s0", "s1", "s2"]
    assert not history.save_summary(first[1]._replace(version=0), "stale")
    assert move(history, seen(history, scopes[1]), State.RECYCLED, purge_at=NOW + BIN) is Outcome.DONE
    assert listed() == ["s0", "s2"]
    assert not history.save_summary(again(history, first[1]), "of one in the bin")
