"""What every ``History`` does."""

from __future__ import annotations

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, message
from retain.core.records import Scope
from retain.core.times import DAY, SECOND, iso
from retain.ports import History


@pytest.fixture
def history(engine: Engine) -> History:
    return engine.history


def test_a_conversation_is_kept_in_its_order(history: History, elsewhere: Engine, me: Person) -> None:
    scope = me.scope("agent", "sess_1")
    turns = [message(f"turn {n}", role="user" if n % 2 == 0 else "assistant", at=NOW + n, n=n) for n in range(10)]

    history.append(scope, turns[:1])
    history.append(scope, turns[1:7])
    history.append(scope, turns[7:])

    assert history.messages(scope) == turns
    assert elsewhere.history.messages(scope) == turns


def test_messages_come_back_exactly_as_they_were(history: History, me: Person) -> None:
    turns = [
        message("Grüße 🎿\n\ttabs", metadata_of={"deep": [1, 1.5, True, None, "ß"]}),
        message("long " * 2_000, role="tool"),
        message("42"),
    ]
    history.append(me.scope(), turns)

    assert history.messages(me.scope()) == turns


def test_the_order_is_that_of_appending_whatever_the_clock_said(history: History, me: Person) -> None:
    late, early = message("first", at=NOW + DAY), message("second", at=NOW)
    early = early._replace(id="0000" + early.id[4:])

    history.append(me.scope(), [late])
    history.append(me.scope(), [early])

    assert [turn.content for turn in history.messages(me.scope())] == ["first", "second"]


@pytest.mark.parametrize(("limit", "expected"), [(0, []), (1, ["4"]), (3, ["2", "3", "4"]), (99, list("01234"))])
def test_with_a_limit_the_last_messages_come(history: History, me: Person, limit: int, expected: list[str]) -> None:
    history.append(me.scope(), [message(str(n)) for n in range(5)])

    assert [turn.content for turn in history.messages(me.scope(), limit=limit)] == expected


def test_appending_nothing_begins_no_session(history: History, me: Person) -> None:
    history.append(me.scope(), [])

    assert history.messages(me.scope()) == []
    assert history.sessions(me.tenant, me.user_id) == []


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
        history.append(scope, [message(repr(scope))])

    for scope in everyone:
        assert [turn.content for turn in history.messages(scope)] == [repr(scope)]
    assert history.messages(Scope(me.tenant, "fo", "a", "s")) == []


def test_the_owners_of_a_session_are_the_users_of_this_tenant_who_have_it(history: History, me: Person) -> None:
    for who, agent, session in (
        (me, "agent", "sess"),
        (me.other("b/c"), "agent", "sess"),
        (me.other("other_agent"), "agent_2", "sess"),
        (me.other("other_session"), "agent", "sess_2"),
        (me.other("unnamed"), "agent", None),
        (Person(me.tenant + "x", "stranger"), "agent", "sess"),
    ):
        history.append(who.scope(agent, session), [message()])

    assert sorted(history.owners(me.tenant, "agent", "sess")) == ["b/c", "user_123"]
    assert history.owners(me.tenant, "agent", None) == ["unnamed"]
    assert history.owners(me.tenant, "nobody", "sess") == []


def test_the_sessions_of_a_user_are_listed(history: History, me: Person) -> None:
    history.append(me.scope("agent", "first"), [message(at=NOW), message(at=NOW + SECOND)])
    history.append(me.scope("agent", "second"), [message(at=NOW + 5 * SECOND)])
    history.append(me.scope("agent_2"), [message(at=NOW + 3 * SECOND)])
    history.append(me.scope("agent", "first"), [message(at=NOW + 9 * SECOND)])
    history.append(me.other("user_1234").scope(), [message()])

    found = history.sessions(me.tenant, me.user_id)

    assert [(row["agent_id"], row["session_id"], row["messages"]) for row in found] == [
        ("agent", "first", 3),
        ("agent", "second", 1),
        ("agent_2", None, 1),
    ], "the latest active first"
    assert (found[0]["created_at"], found[0]["updated_on"]) == (iso(NOW), iso(NOW + 9 * SECOND))
    assert [row["agent_id"] for row in history.sessions(me.tenant, me.user_id, "agent_2")] == ["agent_2"]
    assert history.sessions(me.tenant, me.user_id, "agent_") == []
    assert history.sessions(me.tenant + "x", me.user_id) == []


def test_an_older_message_does_not_make_a_session_look_less_active(history: History, me: Person) -> None:
    history.append(me.scope(), [message(at=NOW + DAY)])
    history.append(me.scope(), [message(at=NOW)])

    (session,) = history.sessions(me.tenant, me.user_id)
    assert session["updated_on"] == iso(NOW + DAY)


def test_a_removed_message_is_gone_and_nothing_takes_its_place(history: History, elsewhere: Engine, me: Person) -> None:
    first, second, third = (message(text) for text in ("first", "second", "third"))
    history.append(me.scope(), [first, second])

    assert history.remove(me.scope(), [second.id, "no such message"]) == 1
    assert history.remove(me.scope(), [second.id]) == 0
    assert history.remove(me.other("somebody").scope(), [first.id]) == 0
    history.append(me.scope(), [third])

    assert elsewhere.history.messages(me.scope()) == [first, third]
    assert [session["messages"] for session in history.sessions(me.tenant, me.user_id)] == [2]
