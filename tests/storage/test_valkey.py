"""What is peculiar to short-term memory on a Valkey or Redis server; the suite of every engine runs over it too."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import valkey as client_library
from bench.servers import ValkeyServer, valkey
from hypothesis import given
from hypothesis import strategies as st
from valkey.crc import key_slot

from clocks import wait_until
from conformance.samples import NOW, Person, message
from conformance.test_short_term_store import *  # noqa: F403 - every promise of the port, and the fixture ``store``
from conformance.test_short_term_store import HOUR, MOST, append, contents
from holdfast.core.errors import StoreAwayError, StoreReadOnlyError
from holdfast.core.records import Scope
from holdfast.ports.conversations import SessionWindow
from holdfast.storage.valkey import open_short_term
from holdfast.storage.valkey.short_term import ValkeyShortTerm, agent_keys, named_keys, session_keys, user_key
from storage.wire import Relay, agrees, cluster_node, free_port, listening, own_client, two_nodes, uses

_people = itertools.count()


# --- servers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """One that tests share: each has a tenant of its own there."""
    with valkey() as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[ValkeyServer]:
    """One to do harm to."""
    with valkey() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with two_nodes() as url:
        yield url


@pytest.fixture(scope="module", params=["one server", "a cluster"])
def url(request: pytest.FixtureRequest, server: ValkeyServer) -> str:
    return server.url if request.param == "one server" else str(request.getfixturevalue("cluster"))


@pytest.fixture(scope="module")
def engine(url: str) -> Iterator[SimpleNamespace]:
    with closing(open_short_term(url)) as opened:
        yield SimpleNamespace(short_term=opened)


@pytest.fixture(scope="module")
def elsewhere(url: str) -> Iterator[SimpleNamespace]:
    with closing(open_short_term(url)) as opened:
        yield SimpleNamespace(short_term=opened)


@pytest.fixture
def alone(server: ValkeyServer) -> Iterator[ValkeyShortTerm]:
    """The store on the one server that tests share."""
    with closing(open_short_term(server.url)) as opened:
        yield opened


@pytest.fixture
def raw(server: ValkeyServer) -> Iterator[Any]:
    """The client itself, to look at what is on the server."""
    with closing(client_library.Valkey.from_url(server.url, decode_responses=True)) as opened:
        yield opened


@pytest.fixture
def me() -> Person:
    return Person(f"valkey-{next(_people):06}", "user_123")


# --- time ------------------------------------------------------------------------------------------------------------


def test_the_server_is_told_to_forget_a_session_and_each_write_tells_it_anew(
    alone: ValkeyShortTerm, raw: Any, me: Person
) -> None:
    key = session_keys(me.scope()).messages
    append(alone, me.scope(), message())
    assert 3_500_000 < raw.pttl(key) <= 3_600_000

    raw.pexpire(key, 60_000)
    append(alone, me.scope(), message())
    assert 3_500_000 < raw.pttl(key) <= 3_600_000

    raw.pexpire(key, 60_000)
    alone.window(me.scope(), now=NOW)
    alone.remove(me.scope(), [alone.window(me.scope(), now=NOW)[0].id])
    assert raw.pttl(key) <= 60_000, "neither a read nor a removal is a write that keeps a session"


def test_nothing_is_on_the_server_that_it_will_not_forget(own_server: ValkeyServer, me: Person) -> None:
    with closing(open_short_term(own_server.url)) as store, own_client(own_server) as raw:
        for n in range(20):
            append(store, me.scope("agent", f"sess_{n % 7}"), message(), now=NOW + n)
            append(store, Person(me.tenant, f"user_{n}").scope(f"agent_{n % 3}"), message())
        assert all(0 < raw.pttl(key) <= 7_200_000 for key in raw.scan_iter())
        assert all(raw.pttl(key) >= raw.pttl(session) - 1 for session in raw.scan_iter("*:session:*")
                   for key in named_keys(name_in(session)))  # fmt: skip


def test_a_session_goes_by_the_server_where_the_callers_clock_stands_still(
    alone: ValkeyShortTerm, raw: Any, me: Person
) -> None:
    alone.append(me.scope(), [message()], ttl=20_000, now=NOW, most=MOST)

    wait_until(lambda: not alone.window(me.scope(), now=NOW))

    assert alone.expires_at(me.scope(), now=NOW) is None
    assert append(alone, me.scope(), message()) == 1


def test_a_session_goes_by_the_callers_clock_where_it_is_ahead_of_the_servers(
    store: ValkeyShortTerm, me: Person
) -> None:
    append(store, me.scope(), message("old"))

    assert contents(store, me.scope(), now=NOW + HOUR) == []
    append(store, me.scope(), message("new"), now=NOW + HOUR)

    assert contents(store, me.scope(), now=NOW + HOUR) == ["new"]
    assert contents(store, me.scope(), now=NOW) == ["new"], "what had expired does not come back with the clock"


def test_a_shorter_time_holds_from_the_next_write_on(store: ValkeyShortTerm, me: Person) -> None:
    append(store, me.scope(), message("first"))
    store.append(me.scope(), [message("second")], ttl=60_000_000, now=NOW, most=MOST)

    assert store.expires_at(me.scope(), now=NOW) == NOW + 60_000_000
    assert contents(store, me.scope(), now=NOW + 59_999_999) == ["first", "second"]
    assert contents(store, me.scope(), now=NOW + 60_000_000) == []
    drain(store)
    store.append(me.scope(), [message()], ttl=HOUR, now=NOW, most=MOST)
    store.append(me.scope(), [message()], ttl=60_000_000, now=NOW, most=MOST)
    assert store.end_expired(NOW + 60_000_000, 9) == 1


def test_a_session_that_was_written_to_since_is_due_later(store: ValkeyShortTerm, me: Person) -> None:
    drain(store)
    append(store, me.scope(), message())
    append(store, me.scope(), message(), now=NOW + HOUR // 2)

    assert store.end_expired(NOW + HOUR, 9) == 0
    assert len(store.window(me.scope(), now=NOW + HOUR)) == 2
    assert store.end_expired(NOW + HOUR + HOUR // 2 - 1, 9) == 0
    assert store.end_expired(NOW + HOUR + HOUR // 2, 9) == 1
    assert store.end_expired(NOW + HOUR + HOUR // 2, 9) == 0


def test_as_many_as_asked_for_are_ended_while_there_are_more(store: ValkeyShortTerm, me: Person) -> None:
    drain(store)
    for n in range(30):
        append(store, Person(me.tenant, f"user_{n}").scope(), message())
        if n % 2:  # these are on the list too early
            append(store, Person(me.tenant, f"user_{n}").scope(), message(), now=NOW + 5)

    assert [store.end_expired(NOW + HOUR, 10) for _ in range(3)] == [10, 5, 0]
    assert [store.end_expired(NOW + HOUR + 5, 10) for _ in range(3)] == [10, 5, 0]


def name_in(key: str) -> bytes:
    """What a session is called in indexes, by its key."""
    return key.partition(":session:")[2].encode()


def drain(store: ValkeyShortTerm) -> None:
    """End what other tests left."""
    while store.end_expired(NOW + 99 * HOUR, 1_000):
        pass


# --- whose it is -----------------------------------------------------------------------------------------------------

ids = st.text(st.sampled_from('ab:{}/*#|\\" 0é🎿'), min_size=1, max_size=5)
scopes = st.builds(Scope, ids.map(lambda text: text.replace("/", "-")), ids, ids, st.none() | ids)


@given(scopes, scopes)
def test_no_two_sessions_share_a_key_whatever_their_ids_hold(one: Scope, other: Scope) -> None:
    assert (session_keys(one).messages == session_keys(other).messages) == (one == other)
    assert (session_keys(one).of_user == session_keys(other).of_user) == (one.subject == other.subject)
    same_agent = (one.tenant, one.agent_id) == (other.tenant, other.agent_id)
    assert bool(set(agent_keys(one.tenant, one.agent_id)) & set(agent_keys(other.tenant, other.agent_id))) == same_agent


@given(scopes)
def test_all_keys_of_a_session_are_in_one_slot_and_follow_from_its_name(scope: Scope) -> None:
    keys = session_keys(scope)

    assert len({key_slot(key) for key in keys}) == 1
    assert len(set(keys)) == 4
    assert named_keys(keys.messages.partition(b":session:")[2]) == keys
    assert keys.of_user == user_key(scope.tenant, scope.user_id)
    assert keys.of_agent in agent_keys(scope.tenant, scope.agent_id)


@given(scopes)
def test_ids_cannot_be_read_from_keys(scope: Scope) -> None:
    secret = Scope("tenant-of-mine", f"maria{scope.user_id}", "helpdesk-bot", "sess_about_divorce")
    for key in session_keys(secret):
        assert not any(word in key for word in (b"mine", b"maria", b"helpdesk", b"divorce"))


def test_users_are_spread_over_the_slots() -> None:
    slots = {key_slot(session_keys(Scope("t", f"user_{n}", "a")).messages) for n in range(5_000)}
    assert len(slots) == 256


def test_all_sessions_of_a_user_can_be_ended(store: ValkeyShortTerm, me: Person) -> None:
    mine = [me.scope("agent", "one"), me.scope("agent"), me.scope("agent:{2}", "one")]
    others = [me.other("user_1234").scope("agent", "one"), Scope(me.tenant + "x", me.user_id, "agent", "one")]
    for scope in mine + others:
        append(store, scope, message("hello"))

    assert store.end_user(me.tenant, me.user_id) == 3
    assert store.end_user(me.tenant, me.user_id) == 0

    assert [contents(store, scope) for scope in mine + others] == [[], [], [], ["hello"], ["hello"]]


def test_what_was_ended_leaves_nothing_on_the_server(own_server: ValkeyServer, me: Person) -> None:
    with closing(open_short_term(own_server.url)) as store, own_client(own_server) as raw:
        for n in range(4):
            turns = [message(), message()]
            scope = me.scope("agent", f"sess_{n}")
            append(store, scope, *turns)
            if n == 0:
                store.end([SessionWindow(scope, None)])
            elif n == 1:
                store.remove(scope, [turn.id for turn in turns])
            elif n == 2:
                store.end_agent(me.tenant, "agent")
            else:
                store.end_expired(NOW + HOUR, 9)
            assert raw.keys() == []


def test_indexes_let_go_of_sessions_that_the_server_has_forgotten(alone: ValkeyShortTerm, raw: Any, me: Person) -> None:
    append(alone, me.scope("agent", "stays"), message())
    for n in range(50):
        alone.append(me.scope("agent", f"sess_{n}"), [message()], ttl=1_000, now=NOW, most=MOST)
    keys = session_keys(me.scope("agent", "new"))
    wait_until(lambda: not any(raw.exists(session_keys(me.scope("agent", f"sess_{n}")).messages) for n in range(50)))
    time.sleep(0.01)  # an index keeps a name for twice the time

    append(alone, me.scope("agent", "new"), message(), now=NOW + 10_000)

    assert (raw.zcard(keys.of_user), raw.zcard(keys.of_agent)) == (2, 2)


WRITER = """
import sys, itertools
from holdfast.core.records import Message, Scope
from holdfast.storage.valkey import open_short_term
store = open_short_term(sys.argv[1])
print("ready", flush=True)
for n in itertools.count():
    scope = Scope(sys.argv[2], f"user_{n % 17}", "agent", f"sess_{n}")
    store.append(scope, [Message(f"id-{n}", "user", "hello", n, {})], ttl=3_600_000_000, now=1, most=9)
"""


def test_a_process_that_dies_while_it_writes_leaves_no_session_that_cannot_be_ended(
    own_server: ValkeyServer, me: Person
) -> None:
    with closing(open_short_term(own_server.url)) as store, own_client(own_server) as raw:
        for wanted in (50, 300, 900):
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, own_server.url, me.tenant], stdout=subprocess.PIPE, text=True
            )
            wait_until(lambda wanted=wanted: raw.dbsize() > wanted)  # type: ignore[misc]
            writer.kill()
            writer.communicate()
            sessions = [name_in(key) for key in raw.scan_iter("*:session:*")]
            for name in sessions:
                keys = named_keys(name)
                assert all(raw.zscore(index, name) for index in (keys.of_user, keys.of_agent, keys.due))

            assert store.end_agent(me.tenant, "agent") == len(sessions) > 0
            assert raw.keys() == []


# --- many at once ----------------------------------------------------------------------------------------------------


def test_threads_that_write_to_one_session_lose_nothing(store: ValkeyShortTerm, me: Person) -> None:
    turns = [[message(f"{n}-{at}") for at in range(50)] for n in range(6)]

    def write(mine: list[Any]) -> None:
        for turn in mine:
            append(store, me.scope(), turn)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(write, turns))

    found = contents(store, me.scope())
    assert len(found) == 300
    for mine in turns:
        texts = [turn.content for turn in mine]
        assert [text for text in found if text in set(texts)] == texts, "each writer's in its order"


FORKER = """
import os, sys
from holdfast.core.records import Message, Scope
from holdfast.storage.valkey import open_short_term
store = open_short_term(sys.argv[1])
scope = Scope(sys.argv[2], "user", "agent", "s")
def write(name, count):
    for n in range(count):
        store.append(scope, [Message(f"{name}-{n}", "user", f"{name}-{n}", n, {})], ttl=3_600_000_000, now=1, most=999)
write("before", 1)
child = os.fork()
write("child" if child == 0 else "parent", 200)
if child == 0:
    store.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
write("after", 1)
print(len(store.window(scope, now=1)))
store.close()
"""


def test_a_forked_process_speaks_on_connections_of_its_own(server: ValkeyServer, me: Person) -> None:
    said = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", FORKER, server.url, me.tenant],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (said.stdout.strip(), said.stderr) == ("402", "")


def test_a_session_holds_its_last_messages_only_however_many_are_given(store: ValkeyShortTerm, me: Person) -> None:
    turns = [message(str(n)) for n in range(5_000)]
    assert append(store, me.scope(), *turns, most=1_000) == 5_000
    assert store.window(me.scope(), now=NOW) == turns[-1_000:]


# --- when the server is away -----------------------------------------------------------------------------------------


def test_a_store_recovers_by_itself_when_the_server_is_back(own_server: ValkeyServer, me: Person) -> None:
    with closing(open_short_term(own_server.url)) as store:
        append(store, me.scope(), message())
        own_server.kill()
        for use in uses(store, me):
            with pytest.raises(StoreAwayError, match="refused the connection") as away:
                use()
            assert away.value.retryable
            assert f"127.0.0.1:{own_server.port}" in str(away.value)
            assert "HOLDFAST_SHORT_TERM_URL" in str(away.value)

        own_server.start()
        assert append(store, me.scope(), message("back")) == 1
        assert contents(store, me.scope()) == ["back"]


def test_a_server_that_was_started_again_between_two_calls_is_not_noticed(own_server: ValkeyServer, me: Person) -> None:
    with closing(open_short_term(own_server.url)) as store:
        for use in uses(store, me):
            append(store, me.scope(), message())
            own_server.restart()
            use()


@pytest.mark.parametrize("trouble", ["it is killed", "it becomes a replica"])
def test_whatever_happens_to_the_server_threads_hear_of_it_in_our_words(
    own_server: ValkeyServer, me: Person, trouble: str
) -> None:
    kept: list[str] = []
    problems: list[Exception] = []
    over = threading.Event()

    def write(store: ValkeyShortTerm, number: int) -> None:
        for n in itertools.count():
            if over.is_set():
                return
            turn = message(f"{number}-{n}")
            try:
                append(store, me.scope(), turn, most=10**6)
                kept.append(turn.content)
            except Exception as problem:  # noqa: BLE001 - whatever it is, it is looked at
                problems.append(problem)

    with closing(open_short_term(own_server.url)) as store, own_client(own_server) as raw:
        with ThreadPoolExecutor(4) as threads:
            writing = [threads.submit(write, store, number) for number in range(4)]
            try:
                for _ in range(5):
                    before = len(kept)
                    wait_until(lambda before=before: len(kept) > before + 20)  # type: ignore[misc]
                    known = len(problems)
                    if trouble == "it is killed":
                        own_server.kill()
                        wait_until(lambda known=known: len(problems) > known)  # type: ignore[misc]
                        kept.clear()  # with the server
                        own_server.start()
                    else:
                        raw.execute_command("REPLICAOF", "127.0.0.1", "1")
                        wait_until(lambda known=known: len(problems) > known)  # type: ignore[misc]
                        raw.execute_command("REPLICAOF", "NO", "ONE")
            finally:
                over.set()
            for future in writing:
                future.result()
        expected = StoreAwayError if trouble == "it is killed" else StoreReadOnlyError
        assert {type(problem) for problem in problems} == {expected}
        found = contents(store, me.scope())
        assert len(found) == len(set(found)), "nothing was added twice"
        if trouble == "it becomes a replica":
            assert sorted(found) == sorted(kept), "what was refused was not written, and nothing was lost"


def test_an_append_whose_answer_was_lost_is_repeated_and_not_applied_twice(server: ValkeyServer, me: Person) -> None:
    relay = Relay(server.port)
    with listening(relay.answer) as port, closing(open_short_term(f"valkey://127.0.0.1:{port}")) as store:
        append(store, me.scope(), message("one"))
        relay.losing = 1
        assert append(store, me.scope(), message("two"), message("three")) == 3
        assert relay.losing == 0
        assert contents(store, me.scope()) == ["one", "two", "three"]
        assert append(store, me.scope(), message("four"), most=3) == 4
        assert contents(store, me.scope()) == ["two", "three", "four"]


def test_what_would_answer_otherwise_the_second_time_is_not_repeated(server: ValkeyServer, me: Person) -> None:
    relay = Relay(server.port)
    with listening(relay.answer) as port, closing(open_short_term(f"valkey://127.0.0.1:{port}")) as store:
        append(store, me.scope(), message("one"))
        relay.losing = 1
        with pytest.raises(StoreAwayError, match=r"cut the connection|cannot be reached") as cut:
            store.end([SessionWindow(me.scope(), None)])
        assert cut.value.retryable
        assert contents(store, me.scope()) == []


def test_a_cluster_is_found_again_after_all_of_it_was_away(me: Person) -> None:
    port = free_port()
    node = cluster_node(port)
    with closing(open_short_term(f"valkey+cluster://127.0.0.1:{port}")) as store:
        for text in ("before", "after"):
            node.start()
            with closing(node.client(decode_responses=True)) as raw:
                if text == "before":
                    raw.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
                wait_until(lambda raw=raw: agrees(raw))  # type: ignore[misc]
            assert append(store, me.scope(), message(text)) == 1
            assert contents(store, me.scope()) == [text]
            node.stop()
            with pytest.raises(StoreAwayError) as away:
                append(store, me.scope(), message())
            assert away.value.retryable
