"""What every ``ShortTermStore`` does."""

from __future__ import annotations

import itertools

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, message
from holdfast.core.records import Message, Scope
from holdfast.core.values import SECOND
from holdfast.ports.conversations import SessionWindow, ShortTermStore

HOUR = 3_600 * SECOND
MOST = 1_000


@pytest.fixture
def store(engine: Engine) -> ShortTermStore:
    return engine.short_term


def append(store: ShortTermStore, scope: Scope, *messages: Message, now: int = NOW, most: int = MOST) -> int:
    return store.append(scope, messages, ttl=HOUR, now=now, most=most)


def contents(store: ShortTermStore, scope: Scope, *, now: int = NOW) -> list[str]:
    return [message.content for message in store.window(scope, now=now)]


def test_messages_come_back_in_their_order_and_exactly_as_they_were(
    store: ShortTermStore, elsewhere: Engine, me: Person
) -> None:
    turns = [message("Grüße 🎿", n=1, deep={"a": [True, None]}), message("long " * 2_000, role="tool"), message("42")]
    turns += [message("", role="assistant"), message("with an id")._replace(external_id="msg_1 ü")]

    assert append(store, me.scope(), turns[0]) == 1
    assert append(store, me.scope(), *turns[1:]) == 5

    assert store.window(me.scope(), now=NOW) == turns
    assert elsewhere.short_term.window(me.scope(), now=NOW) == turns


def test_the_order_is_that_of_appending_whatever_the_clock_said(store: ShortTermStore, me: Person) -> None:
    first, second = message("first", at=NOW + 9), message("second", at=NOW)
    second = second._replace(id="0000" + second.id[4:])
    append(store, me.scope(), first)
    append(store, me.scope(), second)

    assert contents(store, me.scope()) == ["first", "second"]
    assert append(store, me.scope(), message("third"), most=2) == 3, "one of them left"
    assert contents(store, me.scope()) == ["second", "third"]


def test_a_window_is_what_it_is_to_whoever_holds_an_earlier_one(store: ShortTermStore, me: Person) -> None:
    turns = [message(f"turn {number}") for number in range(5)]
    append(store, me.scope(), *turns[:3])
    held = {turn.id: turn for turn in turns[:3]}

    def window(now: int = NOW) -> list[Message]:
        return store.window(me.scope(), now=now, held=held)

    assert window() == turns[:3]
    append(store, me.scope(), turns[3])
    assert window() == turns[:4]
    append(store, me.scope(), turns[4], most=3)
    assert window() == turns[2:], "as many as it holds, and others"
    store.remove(me.scope(), [turn.id for turn in turns[3:]])
    assert window() == [turns[2]]
    store.remove(me.scope(), [turns[2].id])
    assert window() == []
    append(store, me.scope(), *turns[:3])
    assert window(NOW + HOUR) == []


def test_a_session_is_gone_at_the_very_instant(store: ShortTermStore, me: Person) -> None:
    append(store, me.scope(), message("hello"))

    assert store.expires_at(me.scope(), now=NOW) == NOW + HOUR
    assert contents(store, me.scope(), now=NOW + HOUR - 1) == ["hello"]
    assert store.expires_at(me.scope(), now=NOW + HOUR - 1) == NOW + HOUR
    for later in (NOW + HOUR, NOW + HOUR + 1, NOW + 9 * HOUR):
        assert contents(store, me.scope(), now=later) == []
        assert store.expires_at(me.scope(), now=later) is None


def test_reading_does_not_keep_a_session(store: ShortTermStore, me: Person) -> None:
    append(store, me.scope(), message("hello"))
    contents(store, me.scope(), now=NOW + HOUR - 1)

    assert contents(store, me.scope(), now=NOW + HOUR) == []


def test_each_write_keeps_the_whole_session_for_its_time(store: ShortTermStore, me: Person) -> None:
    append(store, me.scope(), message("first"))
    append(store, me.scope(), message("second"), now=NOW + HOUR - 1)

    assert contents(store, me.scope(), now=NOW + 2 * HOUR - 2) == ["first", "second"]
    assert contents(store, me.scope(), now=NOW + 2 * HOUR - 1) == []


@pytest.mark.parametrize("later", [HOUR, HOUR + 1, 100 * HOUR])
def test_a_session_that_expired_begins_anew(store: ShortTermStore, me: Person, later: int) -> None:
    append(store, me.scope(), message("old"), message("older"))

    assert append(store, me.scope(), message("new"), now=NOW + later) == 1

    assert contents(store, me.scope(), now=NOW + later) == ["new"]


def test_sessions_expire_each_at_its_own_time(store: ShortTermStore, me: Person) -> None:
    for n in range(40):
        append(store, me.scope("agent", f"sess_{n}"), message(f"hello {n}"), now=NOW + n)

    append(store, me.scope("agent", "later"), message("I clean up"), now=NOW + HOUR + 19)

    for n in range(40):
        expected = [f"hello {n}"] if n > 19 else []
        assert contents(store, me.scope("agent", f"sess_{n}"), now=NOW + HOUR + 19) == expected


def test_a_session_holds_its_last_messages_only(store: ShortTermStore, me: Person) -> None:
    counts = [append(store, me.scope(), message(str(n)), most=3) for n in range(5)]
    assert counts == [1, 2, 3, 4, 4], "how many there were before the oldest left"
    assert contents(store, me.scope()) == ["2", "3", "4"]

    assert append(store, me.scope(), *(message(letter) for letter in "abcdefg"), most=3) == 10
    assert contents(store, me.scope()) == ["e", "f", "g"]


def test_scopes_are_compared_whole(store: ShortTermStore, me: Person) -> None:
    users, agents, sessions = ("foo", "foobar", "FOO", "foo/x"), ("a", "ab"), (None, "s", "s1", "None")
    everyone = [Scope(*parts) for parts in itertools.product((me.tenant, me.tenant + "x"), users, agents, sessions)]
    kept = {scope: message(repr(scope)) for scope in everyone}
    for scope, turn in kept.items():
        append(store, scope, turn)

    for scope in everyone:
        assert contents(store, scope) == [repr(scope)]
    assert contents(store, Scope(me.tenant, "fo", "a", "s")) == []

    gone = everyone[1]
    assert store.remove(gone, [turn.id for turn in kept.values()]) == 1, "only what is in the session"
    assert contents(store, gone) == []
    assert all(contents(store, scope) for scope in everyone if scope != gone)


def test_messages_are_removed_for_good(store: ShortTermStore, me: Person) -> None:
    one, two, three = (message(text) for text in ("one", "two", "three"))
    append(store, me.scope(), one, two, three)

    assert store.remove(me.scope(), [one.id, three.id, message().id]) == 2
    assert store.remove(me.scope(), [one.id]) == 0

    assert contents(store, me.scope()) == ["two"]
    assert store.expires_at(me.scope(), now=NOW) == NOW + HOUR, "a removal is no write that keeps the session"


def test_a_session_that_holds_nothing_does_not_expire(store: ShortTermStore, me: Person) -> None:
    assert store.expires_at(me.scope(), now=NOW) is None
    assert store.remove(me.scope(), [message().id]) == 0
    only = message()
    append(store, me.scope(), only)
    store.remove(me.scope(), [only.id])

    assert store.expires_at(me.scope(), now=NOW) is None
    assert append(store, me.scope(), message("again")) == 1


def test_a_session_can_be_ended(store: ShortTermStore, me: Person) -> None:
    append(store, me.scope("agent", "one"), message("one"))
    append(store, me.scope("agent", "two"), message("two"))

    assert store.end([SessionWindow(me.scope("agent", "one"), None)])
    assert not store.end([SessionWindow(me.scope("agent", "one"), None)])

    assert contents(store, me.scope("agent", "one")) == []
    assert contents(store, me.scope("agent", "two")) == ["two"]


def test_the_sessions_of_an_agent_can_be_ended(store: ShortTermStore, me: Person) -> None:
    mine = [me.scope("agent", "one"), me.scope("agent"), me.other("other").scope("agent", "one")]
    others = [me.scope("agent_2", "one"), Scope(me.tenant + "x", me.user_id, "agent", "one")]
    for scope in mine + others:
        append(store, scope, message("hello"))

    assert store.end_agent(me.tenant, "agent") == 3

    assert [contents(store, scope) for scope in mine + others] == [[], [], [], ["hello"], ["hello"]]


def test_expired_sessions_are_ended_some_at_a_time_and_no_others(store: ShortTermStore, me: Person) -> None:
    while store.end_expired(NOW + 9 * HOUR, 1_000):
        pass  # those of other tests
    for n in range(5):
        append(store, me.scope("agent", f"sess_{n}"), message("hello"), now=NOW + n)

    assert store.end_expired(NOW + HOUR - 1, 9) == 0
    assert [store.end_expired(NOW + HOUR + 3, 3) for _ in range(3)] == [3, 1, 0]
    assert contents(store, me.scope("agent", "sess_4"), now=NOW + HOUR + 3) == ["hello"]


def test_all_of_a_users_sessions_end_together_and_nobody_elses(
    store: ShortTermStore, elsewhere: Engine, me: Person
) -> None:
    other = me.other("user_12")
    for scope in (me.scope("agent", "one"), me.scope("agent", None), me.scope("another", "one"), other.scope()):
        append(store, scope, message("hello"))

    assert elsewhere.short_term.end_user(me.tenant, me.user_id) == 3
    assert contents(store, me.scope("agent", "one")) == contents(store, me.scope("another", "one")) == []
    assert contents(store, other.scope()) == ["hello"]
    assert store.end_user(me.tenant, me.user_id) == store.end_user(me.tenant, "nobody") == 0


def test_what_was_written_under_another_session_is_not_shown_and_goes_with_the_next_write(
    store: ShortTermStore, elsewhere: Engine, me: Person
) -> None:
    scope = me.scope("agent", "one")
    store.append(scope, [message("old")], ttl=HOUR, now=NOW, most=MOST, session="first")

    assert [one.content for one in store.window(scope, now=NOW, session="first")] == ["old"]
    assert store.window(scope, now=NOW, session="second") == []
    assert store.expires_at(scope, now=NOW, session="first") == NOW + HOUR
    assert store.expires_at(scope, now=NOW, session="second") is None

    assert store.append(scope, [message("new")], ttl=HOUR, now=NOW, most=MOST, session="second") == 1

    assert elsewhere.short_term.window(scope, now=NOW, session="first") == []
    assert [one.content for one in elsewhere.short_term.window(scope, now=NOW)] == ["new"]


def test_a_window_is_ended_for_the_session_that_is_named(store: ShortTermStore, me: Person) -> None:
    one, other = me.scope("agent", "one"), me.scope("agent", "other")
    for scope in (one, other):
        store.append(scope, [message("hello")], ttl=HOUR, now=NOW, most=MOST, session="now")

    assert store.end([SessionWindow(one, "before"), SessionWindow(other, "before")]) == 0
    assert contents(store, one) == contents(store, other) == ["hello"]

    assert store.end([SessionWindow(one, "now"), SessionWindow(me.scope("agent", "none"), "now")]) == 1
    assert (contents(store, one), contents(store, other)) == ([], ["hello"])
