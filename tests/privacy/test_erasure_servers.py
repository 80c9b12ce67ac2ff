"""Erasing a user where everything is on servers: PostgreSQL, Valkey, and buckets for cold objects, keys and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import valkey as client
from bench.servers import S3Server, ValkeyServer, s3, valkey

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.storage.catalog import Where
from holdfast.storage.objects import open_objects
from homes import Homes
from privacy.sentinels import Sentinel, unlisted


@pytest.fixture(scope="module")
def engine_name() -> str:
    return "postgres"


@pytest.fixture(scope="module")
def short_term() -> Iterator[ValkeyServer]:
    with valkey() as server:
        yield server


@pytest.fixture(scope="module")
def buckets() -> Iterator[S3Server]:
    with s3() as server:
        yield server


@pytest.fixture
def places(short_term: ValkeyServer, buckets: S3Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    short_term.flush()
    places = {"archive": f"{buckets.new_bucket()}/cold", "state": f"{buckets.new_bucket()}/state"}
    for name, value in buckets.environment.items():
        monkeypatch.setenv(name, value)
    for name, value in places.items():
        monkeypatch.setenv(f"HOLDFAST_{name.upper()}_URL", value)
    monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", short_term.url)
    return places


def on_servers(server: ValkeyServer, places: dict[str, str]) -> dict[str, bytes]:
    """Every key of Valkey and every object, with what it holds."""
    held: dict[str, bytes] = {}
    connection: Any = client.Valkey.from_url(server.socket_url)
    for key in connection.scan_iter():
        held[f"valkey {key!r}"] = key + (connection.dump(key) or b"")
    connection.close()
    for url in places.values():
        store = open_objects(url)
        held |= {f"{url}/{name}": store.get(name) for name in store.names()}
    return held


def keys_of(server: ValkeyServer) -> list[str]:
    connection: Any = client.Valkey.from_url(server.socket_url)
    with closing(connection):
        return [key.decode() for key in connection.scan_iter()]


def hits(sentinel: Sentinel, held: dict[str, bytes]) -> list[str]:
    return [name for name, data in held.items() if sentinel.mark.encode() in data or sentinel.mark in name]


def test_nothing_of_a_user_is_left_on_any_server(
    homes: Homes, clock: FakeClock, short_term: ValkeyServer, places: dict[str, str]
) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("bob", "guide", "trip").short_term.add_message("user", "hello from bob")
        sentinel.plant(holdfast, clock)
        holdfast.manager("bob", "guide", "trip").short_term.add_message("user", "hello from bob")
        assert sentinel.hits(homes, home)
        assert any(name.startswith("valkey") for name in on_servers(short_term, places))
        assert unlisted(keys_of(short_term), Where.SHORT_TERM) == []
        assert unlisted(open_objects(places["archive"]).names(), Where.COLD) == []
        assert unlisted(open_objects(places["state"]).names(), Where.STATE) == []

        erasure = holdfast.erase_user(sentinel.user_id)

        assert not erasure.pending
        assert erasure.kinds["short_term"] == 1, "one session"
        assert [one for one in erasure.places if one.left] == []
        assert sentinel.hits(homes, home) == []
        held = on_servers(short_term, places)
        assert hits(sentinel, held) == []
        assert [name for name in held if name.startswith(places["archive"])] == []
        assert [name for name in held if "/keys/" in name and str(erasure.alias) in name] == []
        assert holdfast.manager("bob", "guide", "trip").short_term.get_conversation_history()
        assert holdfast.audit.verify()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.ledger.last() == 1


def test_where_short_term_memory_is_away_the_erasure_is_pending_until_it_answers(
    homes: Homes, clock: FakeClock, short_term: ValkeyServer, places: dict[str, str]
) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("ann", "guide", "trip")
        memory.add("likes tea", "long_term")
        memory.short_term.add_message("user", "hello")
        short_term.stop()
        try:
            erasure = holdfast.erase_user("ann")
            assert erasure.pending
            assert memory.retrieve("tea") == []
        finally:
            short_term.start()
        again = holdfast.erase_user("ann")
        assert (again.pending, again.alias) == (False, erasure.alias)
        assert again.kinds["long_term"] == 1
        assert [name for name in on_servers(short_term, places) if name.startswith("valkey")] == []
