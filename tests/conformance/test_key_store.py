"""What every ``KeyStore`` does."""

from __future__ import annotations

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, new_id
from holdfast.core.access import ApiKey, Right
from holdfast.core.audit import Action, Event
from holdfast.core.errors import HoldfastError
from holdfast.core.records import ALL, Subject

HASHED = bytes(range(32))


def key_of(tenant: str, **fields: object) -> ApiKey:
    key = ApiKey(new_id(), tenant, "a key", frozenset({Right.READ, Right.WRITE}), None, None, NOW)
    return key._replace(**fields)  # type: ignore[arg-type]


def put(engine: Engine, key: ApiKey) -> ApiKey:
    engine.keys.add(key, HASHED, Event(key.created_at, Action.KEY_CREATED, key.id, {"name": key.name}))
    return key


def revoke(engine: Engine, key: ApiKey, now: int) -> ApiKey | None:
    return engine.keys.revoke(key.id, now=now, event=Event(now, Action.KEY_REVOKED, key.id, {}))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"users": frozenset({"alice", "Ünïcode ' -- \" \\ 🙂"}), "expires_at": NOW + 5},
        {"agents": frozenset({"travel"}), "name": "' OR 1=1 --"},
        {"rights": frozenset(Right), "users": frozenset({"u"}), "agents": frozenset({"a", "b"})},
    ],
    ids=["plain", "users", "agents", "everything"],
)
def test_a_key_comes_back_as_it_was_added(
    engine: Engine, elsewhere: Engine, me: Person, fields: dict[str, object]
) -> None:
    key = put(engine, key_of(me.tenant, **fields))

    assert engine.keys.get(key.id) == (key, HASHED)
    assert elsewhere.keys.get(key.id) == (key, HASHED)
    assert engine.keys.list(me.tenant) == [key]


def test_keys_are_listed_oldest_first_and_by_tenant(engine: Engine, me: Person) -> None:
    late = put(engine, key_of(me.tenant, created_at=NOW + 9))
    early = put(engine, key_of(me.tenant, created_at=NOW))
    operators = put(engine, key_of(ALL))
    others = put(engine, key_of(me.tenant + "x"))

    assert engine.keys.list(me.tenant) == [early, late]
    assert operators in engine.keys.list(ALL)
    assert {early, late, operators, others} <= set(engine.keys.list())
    assert engine.keys.list("no such tenant") == []
    assert engine.keys.get(new_id()) is None


def test_a_key_is_added_once(engine: Engine, me: Person) -> None:
    key = put(engine, key_of(me.tenant))

    with pytest.raises(HoldfastError):
        put(engine, key)

    assert len(engine.audit.of_item(Subject(me.tenant), key.id)) == 1


def test_a_key_is_revoked_once_and_is_not_forgotten(engine: Engine, elsewhere: Engine, me: Person) -> None:
    key = put(engine, key_of(me.tenant))
    first = revoke(elsewhere, key, NOW + 7)

    assert first == key._replace(revoked_at=NOW + 7)
    assert revoke(engine, key, NOW + 8) is None
    assert revoke(engine, key_of(me.tenant), NOW + 8) is None
    assert engine.keys.list(me.tenant) == [first]
    entries = engine.audit.of_item(Subject(me.tenant), key.id)
    assert [(one.at, one.action) for one in entries] == [(NOW, "access_key.created"), (NOW + 7, "access_key.revoked")]


def test_an_operators_key_is_on_the_chain_of_the_default_tenant(engine: Engine) -> None:
    key = put(engine, key_of(ALL))
    assert [one.action for one in engine.audit.of_item(Subject("default"), key.id)] == ["access_key.created"]
    assert ALL not in engine.dues.tenants()


def test_the_latest_use_of_a_key_is_noted(engine: Engine, elsewhere: Engine, me: Person) -> None:
    key = put(engine, key_of(me.tenant))
    for moment in (NOW + 5, NOW + 9, NOW + 7):
        elsewhere.keys.note_use(key.id, now=moment)

    assert engine.keys.get(key.id) == (key._replace(last_used_at=NOW + 9), HASHED)


def test_there_are_keys_while_one_lets_anyone_in(engine: Engine, me: Person) -> None:
    far = 3 * 10**15  # all the other tests' keys are over by then, or have no end
    for key in engine.keys.list():
        revoke(engine, key, NOW)
    assert not engine.keys.any(now=far)

    ending = put(engine, key_of(me.tenant, expires_at=far + 1))
    assert engine.keys.any(now=far)
    assert not engine.keys.any(now=far + 1)

    standing = put(engine, key_of(me.tenant))
    assert engine.keys.any(now=far + 1)
    revoke(engine, standing, NOW)
    assert not engine.keys.any(now=far + 1)
    revoke(engine, ending, NOW)


def test_no_key_names_an_erased_user(engine: Engine, me: Person) -> None:
    alone = put(engine, key_of(me.tenant, users=frozenset({"alice"})))
    shared = put(engine, key_of(me.tenant, users=frozenset({"alice", "bob"})))
    others = put(engine, key_of(me.tenant, users=frozenset({"bob", "alice2", "Alice"})))
    unbound = put(engine, key_of(me.tenant))
    elsewhere = put(engine, key_of(me.tenant + "x", users=frozenset({"alice"})))

    _, found = engine.subjects.detach(Subject(me.tenant, "alice"), now=NOW, begin=lambda _alias: None)

    assert found.rows["api keys"] == 2
    assert engine.keys.get(alone.id) is None, "it would be for everybody now, or for a name that may come again"
    assert engine.keys.list(me.tenant) == [shared._replace(users=frozenset({"bob"})), others, unbound]
    assert engine.keys.list(me.tenant + "x") == [elsewhere]


# --- sign-ins ---------------------------------------------------------------------------------------------------------


def test_a_token_stands_for_its_key_until_its_time_is_over(engine: Engine, elsewhere: Engine, me: Person) -> None:
    key, token = put(engine, key_of(me.tenant)), new_id().encode()
    engine.sign_ins.add(token, key.id, now=NOW, until=NOW + 5)

    assert engine.sign_ins.find(token, now=NOW + 4) == key
    assert elsewhere.sign_ins.find(token, now=NOW + 4) == key
    assert engine.sign_ins.find(token, now=NOW + 5) is None
    assert engine.sign_ins.find(token + b"x", now=NOW) is None


def test_a_token_shows_at_once_that_its_key_was_revoked(engine: Engine, elsewhere: Engine, me: Person) -> None:
    key, token = put(engine, key_of(me.tenant)), new_id().encode()
    engine.sign_ins.add(token, key.id, now=NOW, until=NOW + 5)
    revoke(elsewhere, key, NOW + 1)

    found = engine.sign_ins.find(token, now=NOW + 2)
    assert found is not None
    assert found.revoked_at == NOW + 1


def test_a_token_that_ended_stands_for_nothing_and_what_is_over_is_forgotten(engine: Engine, me: Person) -> None:
    key = put(engine, key_of(me.tenant))
    ended, over, other = (new_id().encode() for _ in range(3))
    for token, until in ((ended, NOW + 9), (over, NOW + 1), (other, NOW + 9)):
        engine.sign_ins.add(token, key.id, now=NOW, until=until)
    engine.sign_ins.end(ended, now=NOW + 2)

    assert engine.sign_ins.find(ended, now=NOW) is None
    assert engine.sign_ins.find(over, now=NOW) is None
    assert engine.sign_ins.find(other, now=NOW) == key

    engine.sign_ins.add(ended, key.id, now=NOW + 9, until=NOW + 20)
    assert engine.sign_ins.find(other, now=NOW) is None, "each new one clears away what is over"
    assert engine.sign_ins.find(ended, now=NOW + 10) == key


# --- jobs of the console ----------------------------------------------------------------------------------------------


def test_a_job_of_the_console_is_seen_by_every_process_and_goes_with_who_is_named_in_it(
    engine: Engine, elsewhere: Engine, me: Person
) -> None:
    jobs, owner = engine.console_jobs, new_id().encode()
    running, named, nameless, other = (new_id() for _ in range(4))
    for job_id, content in ((running, None), (named, f'{{"user_id": "{me.user_id}"}}'), (other, '{"days": 9}')):
        jobs.save(job_id, owner, "{}", content, now=NOW, is_nameless=False)
    jobs.save(nameless, owner, "{}", None, now=NOW, is_nameless=True)
    assert elsewhere.console_jobs.find(named, owner) == (("{}", f'{{"user_id": "{me.user_id}"}}', False, NOW))
    assert jobs.find(named, owner + b"x") is None

    engine.subjects.detach(me.subject, now=NOW, begin=lambda _alias: None, defer=lambda _alias: None)
    for job_id in (running, nameless):
        jobs.save(job_id, owner, '{"is_over": true}', '{"result": 1}', now=NOW + 1, is_nameless=job_id == nameless)
    contents = [jobs.find(one, owner) for one in (running, named, nameless, other)]
    assert [one and one.content for one in contents] == [None, None, '{"result": 1}', '{"days": 9}']
    assert [one and one.is_cleared for one in contents] == [True, True, True, False]
    jobs.forget(NOW + 1)
    assert [jobs.find(one, owner) is None for one in (running, named, nameless, other)] == [False, True, False, True]
