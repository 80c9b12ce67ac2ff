"""API keys: made once, shown once, let in while they stand, and never to be read from anywhere."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError, NotFoundError, StoreFullError, UnauthenticatedError
from holdfast.access.keys import TRUSTED_SECONDS, Access
from holdfast.core.access import ApiKey, Principal, Right
from holdfast.core.values import moment
from homes import Homes, on_sqlite


class Ticks:
    """A monotonic clock that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def other(home: Path, holdfast: Holdfast, clock: FakeClock) -> Iterator[Holdfast]:
    """The same store, opened as another process would."""
    with Holdfast.open(home=home, clock=clock) as opened:
        yield opened


def access_of(holdfast: Holdfast, store: Any = None) -> tuple[Access, Ticks]:
    ticks = Ticks()
    keys = holdfast.services.keys if store is None else store
    return Access(keys, holdfast.services.now, holdfast.services.new_id, monotonic=ticks), ticks


# --- making them ------------------------------------------------------------------------------------------------------


def test_a_key_lets_its_caller_in_as_who_it_was_made_for(holdfast: Holdfast, other: Holdfast) -> None:
    key, secret = holdfast.access.create(
        "travel bot", rights=["read", Right.WRITE], tenant="acme", users=["alice", "bob"], agents=["travel"]
    )

    expected = Principal(
        key.id, "acme", frozenset({Right.READ, Right.WRITE}), frozenset({"alice", "bob"}), frozenset({"travel"})
    )
    assert secret.startswith(f"holdfast_{key.id.replace('-', '')}_")
    assert holdfast.access.identify(secret) == other.access.identify(secret) == expected
    assert other.access.list("acme")[0]._replace(last_used_at=None) == key
    assert holdfast.access.list("default") == []


def test_secrets_are_long_and_differ(holdfast: Holdfast) -> None:
    randoms = {holdfast.access.create("k", rights=["read"], tenant="acme")[1].split("_", 2)[2] for _ in range(5)}
    assert len(randoms) == 5
    _, secret = holdfast.access.create("k", rights=["read"], tenant="acme")
    assert len(secret.split("_", 2)[2]) == 43, "256 bits"


def test_a_secret_is_nowhere_in_the_store(homes: Homes, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        key, secret = holdfast.access.create("k", rights=["read"], tenant="default", users=["alice"])
        holdfast.access.identify(secret)
        with pytest.raises(UnauthenticatedError) as refused:
            holdfast.access.identify(secret[:-2] + "!!")
        holdfast.access.revoke(key.id)
        entries = [one for one in holdfast.audit.tail(100) if one["item"] == key.id]
    random = secret.split("_", 2)[2]

    assert [one["action"] for one in entries] == ["access_key.created", "access_key.revoked"]
    assert random not in str(entries)
    assert "alice" not in str(entries), "a chain names no user"
    assert random[:20] not in str(refused.value)
    assert random not in caplog.text
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()] + list(homes.tables(home).values())
    assert not any(random.encode() in data for data in kept)
    assert any(key.id.encode() in data for data in kept)


@on_sqlite
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": ""}, "name"),
        ({"name": "n" * 101}, "too long"),
        ({"rights": []}, "at least one right"),
        ({"rights": "read"}, "list of rights"),
        ({"rights": ["fly"]}, "unknown right 'fly'"),
        ({"tenant": "a/b"}, "slash"),
        ({"tenant": ""}, "tenant"),
        ({"users": []}, "1 to 1,000 users"),
        ({"users": "alice"}, "list of ids"),
        ({"users": ["*"]}, "'*'"),
        ({"users": [str(n) for n in range(1_001)]}, "1 to 1,000 users"),
        ({"agents": []}, "1 to 1,000 agents"),
        ({"agents": ["a", ""]}, "agent_id"),
        ({"tenant": "*", "users": ["alice"]}, "every tenant"),
        ({"tenant": "*", "agents": ["travel"]}, "every tenant"),
        ({"expires_at": "2026-01-15"}, "not in the future"),
        ({"expires_at": "soon"}, "ISO 8601"),
    ],
    ids=str,
)
def test_what_makes_no_sense_makes_no_key(holdfast: Holdfast, given: dict[str, Any], message: str) -> None:
    wanted: dict[str, Any] = {"name": "k", "rights": ["read"], "tenant": "acme", **given}

    with pytest.raises(InvalidInputError, match=message.replace("*", r"\*")):
        holdfast.access.create(**wanted)

    assert holdfast.access.list() == []
    assert not holdfast.access.any()


# --- letting in -------------------------------------------------------------------------------------------------------


@on_sqlite
def test_nobody_comes_in_with_anything_else(holdfast: Holdfast) -> None:
    key, secret = holdfast.access.create("k", rights=["read"], tenant="acme")
    _, another = holdfast.access.create("k", rights=["admin"], tenant="*")
    prefix, key_id, random = secret.split("_", 2)
    _, other_id, other_random = another.split("_", 2)
    wrong: list[Any] = [
        "",
        " ",
        secret + " ",
        secret[:-1],
        secret + "A",
        secret.upper(),
        f"{prefix}_{key_id}_{other_random}",
        f"{prefix}_{other_id}_{random}",
        f"{prefix}_{'0' * 32}_{random}",
        f"{prefix}_{key.id}_{random}",
        f"{prefix}_{key_id}_{'ü' * 43}",
        f"{prefix}_{key_id}_{'A' * 43}\n",
        "Bearer " + secret,
        secret.encode(),
        None,
        7,
    ]
    for one in wrong:
        with pytest.raises(UnauthenticatedError):
            holdfast.access.identify(one)
    assert holdfast.access.identify(secret).key_id == key.id


def test_a_revoked_an_expired_and_an_unknown_key_are_refused_in_the_same_words(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    revoked, gone = holdfast.access.create("k", rights=["read"], tenant="acme")
    ends = clock.now + timedelta(hours=1)
    _, ending = holdfast.access.create("k", rights=["read"], tenant="acme", expires_at=ends)
    holdfast.access.identify(gone)
    holdfast.access.identify(ending)
    holdfast.access.revoke(revoked.id)
    clock.now = ends

    said = set()
    for secret in (gone, ending, f"holdfast_{'0' * 32}_{'A' * 43}"):
        with pytest.raises(UnauthenticatedError) as refused:
            holdfast.access.identify(secret)
        said.add(str(refused.value))
    assert len(said) == 1
    assert not holdfast.access.any()


def test_a_key_revoked_elsewhere_lets_nobody_in_after_some_seconds(holdfast: Holdfast, other: Holdfast) -> None:
    access, ticks = access_of(holdfast)
    key, secret = access.create("k", rights=["read"], tenant="acme")
    access.identify(secret)

    assert other.access.revoke(key.id).revoked_at is not None
    ticks.seconds += TRUSTED_SECONDS
    with pytest.raises(UnauthenticatedError):
        access.identify(secret)


def test_a_key_made_elsewhere_lets_in_at_once(holdfast: Holdfast, other: Holdfast) -> None:
    secret = f"holdfast_{'0' * 32}_{'A' * 43}"
    with pytest.raises(UnauthenticatedError):
        holdfast.access.identify(secret)
    _, secret = other.access.create("k", rights=["read"], tenant="acme")
    assert holdfast.access.identify(secret).tenant == "acme"


def test_a_key_is_revoked_once(holdfast: Holdfast) -> None:
    key, _ = holdfast.access.create("k", rights=["read"], tenant="acme")
    holdfast.access.revoke(key.id)

    for unknown in (key.id, "nonsense", "", None, key.id.upper()):
        with pytest.raises(NotFoundError):
            holdfast.access.revoke(unknown)  # type: ignore[arg-type]
    assert len([one for one in holdfast.of_tenant("acme").audit.tail(10) if one["item"] == key.id]) == 2


class Counting:
    """A ``KeyStore`` that counts what it is asked for, and may be too full to write to."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reads = 0
        self.notes: list[int] = []
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        self.reads += 1
        found: tuple[ApiKey, bytes] | None = self._store.get(key_id)
        return found

    def note_use(self, key_id: str, *, now: int) -> None:
        if self.full:
            raise StoreFullError("the disk is full")
        self.notes.append(now)
        self._store.note_use(key_id, now=now)


@on_sqlite
def test_a_key_in_use_is_read_every_few_seconds_and_noted_once_a_minute(holdfast: Holdfast, clock: FakeClock) -> None:
    store = Counting(holdfast.services.keys)
    access, ticks = access_of(holdfast, store)
    key, secret = access.create("k", rights=["read"], tenant="acme")
    for _ in range(130):
        access.identify(secret)
        ticks.seconds += 1.0
        clock.advance(seconds=1)

    assert store.reads == 44, "every three seconds"
    starts = [moment(clock.now) - seconds * 1_000_000 for seconds in (130, 70, 10)]
    assert store.notes == starts
    assert access.get(key.id).last_used_at == starts[-1]


@on_sqlite
def test_a_store_that_cannot_be_written_lets_callers_in_all_the_same(
    holdfast: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    store = Counting(holdfast.services.keys)
    access, _ = access_of(holdfast, store)
    key, secret = access.create("k", rights=["read"], tenant="acme")
    store.full = True

    assert access.identify(secret).key_id == key.id
    assert "was not noted" in caplog.text
    assert secret not in caplog.text


@on_sqlite
def test_what_is_remembered_of_keys_is_bounded(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.access.keys._MAX_TRUSTED", 4)
    access, _ = access_of(holdfast)
    secrets = [access.create("k", rights=["read"], tenant="acme")[1] for _ in range(9)]
    for secret in itertools.chain(secrets, secrets):
        access.identify(secret)
        assert len(access._trusted) <= 4
        assert len(access._noted) <= 4


def test_there_are_keys_as_soon_as_one_stands(holdfast: Holdfast, other: Holdfast) -> None:
    assert not holdfast.access.any()
    key, _ = other.access.create("k", rights=["read"], tenant="acme")
    assert holdfast.access.any()
    other.access.revoke(key.id)
    assert not holdfast.access.any()


def test_whoever_is_erased_is_in_no_key_and_nobody_gains_by_it(holdfast: Holdfast) -> None:
    _, alone = holdfast.access.create("k", rights=["read"], tenant="default", users=["alice"])
    _, shared = holdfast.access.create("k", rights=["read"], tenant="default", users=["alice", "bob"])
    holdfast.manager("alice", "travel").add("likes tea")

    holdfast.erase_user("alice")

    assert holdfast.access.identify(shared).users == frozenset({"bob"})
    with pytest.raises(UnauthenticatedError):
        holdfast.access.identify(alone)
