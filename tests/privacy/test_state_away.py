"""While the bucket with the keys and the ledger is away, a store opens that is known to agree with the ledger, and no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from buckets import Proxy, proxy_before, s3_server
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import KeyringError, ObjectStoreUnavailableError
from holdfast.privacy.keys.master import new_master_text
from homes import ENGINES, Homes, database_of

on_postgres = pytest.mark.parametrize("engine_name", ["postgres"])


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """The way to a bucket with the state of the store, which can be blocked."""
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    with proxy_before(server) as opened:
        monkeypatch.setenv("AWS_ENDPOINT_URL", opened.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        monkeypatch.setenv("HOLDFAST_STATE_URL", f"s3://archive/{abs(hash(request.node.nodeid)):x}")
        monkeypatch.setenv("HOLDFAST_MASTER_KEY", new_master_text())
        yield opened


def go_away(bucket: Proxy) -> None:
    """Nobody reaches the bucket any more."""
    bucket.fault = lambda _request: "reset"


def remember(home: Path, clock: FakeClock) -> None:
    """A store with ann and bob in it, which has sealed something and agrees with the ledger."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        for user in ("ann", "bob"):
            holdfast.manager(user, "guide").add(f"{user} likes tea", "long_term")
        holdfast.backups.create()


@on_postgres
def test_a_new_process_reads_and_writes_while_the_state_is_away(home: Path, clock: FakeClock, bucket: Proxy) -> None:
    remember(home, clock)
    go_away(bucket)
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        assert [item["content"] for item in memory.retrieve("tea")] == ["ann likes tea"]
        memory.add("likes biscuits", "long_term")

        for use in (lambda: holdfast.erase_user("ann"), holdfast.backups.create, holdfast.backups.rotate):
            with pytest.raises(ObjectStoreUnavailableError):
                use()
        assert memory.retrieve("biscuits"), "nobody was erased"
        holdfast.sweep()

        bucket.heal()
        assert holdfast.backups.create().memories == 3
        assert not holdfast.erase_user("ann").pending
    Holdfast.open(home=home, clock=clock).close()


@on_postgres
def test_an_old_copy_is_not_opened_while_the_state_is_away(
    homes: Homes, home: Path, clock: FakeClock, bucket: Proxy
) -> None:
    remember(home, clock)
    old = homes.copy(home, "old")
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.erase_user("ann")
    go_away(bucket)

    with pytest.raises(ObjectStoreUnavailableError, match=r"not opened: without the ledger of erasures"):
        Holdfast.open(home=old, clock=clock)

    bucket.heal()
    with Holdfast.open(home=old, clock=clock) as holdfast:
        assert holdfast.manager("ann", "guide").retrieve("tea") == []
        assert holdfast.manager("bob", "guide").retrieve("tea")


@on_postgres
def test_a_server_that_was_started_since_may_have_been_brought_back(
    home: Path, clock: FakeClock, bucket: Proxy
) -> None:
    remember(home, clock)
    database = database_of(home)
    with database.alone("witness") as tx:  # as a base backup has it that a server is started from
        tx.run("witness.confirm")
        tx.connection.execute("UPDATE holdfast.witness SET started_at = started_at - interval '1 hour'")  # type: ignore[attr-defined]
    database.close()
    go_away(bucket)
    with pytest.raises(ObjectStoreUnavailableError, match="not opened"):
        Holdfast.open(home=home, clock=clock)


@on_postgres
def test_a_new_store_is_not_made_while_the_state_is_away(home: Path, clock: FakeClock, bucket: Proxy) -> None:
    go_away(bucket)
    with pytest.raises(ObjectStoreUnavailableError):
        Holdfast.open(home=home, clock=clock)


@on_postgres
def test_a_state_that_turns_out_to_be_anothers_is_refused_when_it_is_back(
    home: Path, clock: FakeClock, bucket: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(home, clock)
    go_away(bucket)
    monkeypatch.setenv("HOLDFAST_STATE_URL", "s3://archive/anothers")
    with Holdfast.open(home=home, clock=clock) as holdfast:
        bucket.heal()
        with pytest.raises(KeyringError):
            holdfast.erase_user("ann")
        assert holdfast.manager("ann", "guide").retrieve("tea")


@pytest.mark.parametrize("engine_name", ["sqlite"])
def test_a_file_that_may_have_been_exchanged_is_not_opened_while_the_state_is_away(
    home: Path, clock: FakeClock, bucket: Proxy
) -> None:
    remember(home, clock)
    go_away(bucket)
    with pytest.raises(ObjectStoreUnavailableError, match=r"Open it again when the state store is back") as caught:
        Holdfast.open(home=home, clock=clock)
    assert caught.value.retryable
    bucket.heal()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.manager("ann", "guide").retrieve("tea")
