"""A request with an idempotency key is done once, whenever the process that is at it is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from bench.servers import ValkeyServer, valkey

import raw
from access.crashes import Crasher
from api.client import Client
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.edges.rest.app import build_app
from homes import Homes

#: No request here has as many commits.
MOST = 16
#: How long a client waits between asking again, and how often it does: for longer than a lease runs.
PAUSE, TRIES = 0.25, 32
TEA = "Ann likes tea."


@pytest.fixture(scope="module")
def crasher() -> Iterator[Crasher]:
    started = Crasher()
    yield started
    started.close()


@dataclass(frozen=True)
class Asked:
    """A request, and what is to be so once it was carried out: of its answer, and of the store."""

    method: str
    path: str
    options: dict[str, Any]
    check: Callable[[dict[str, Any]], None]


def add(holdfast: Holdfast, user: str) -> Asked:
    def check(said: dict[str, Any]) -> None:
        stored = holdfast.manager(user, "guide").list_memories()
        assert [one["memory_id"] for one in stored] == [said["memory_id"]]

    body = {"user_id": user, "agent_id": "guide", "content": TEA}
    return Asked("POST", "/v1/memories", {"json": body}, check)


def add_entity(holdfast: Holdfast, user: str) -> Asked:
    def check(said: dict[str, Any]) -> None:
        stored = holdfast.manager(user, "guide").list_memories("entity")
        assert [one["memory_id"] for one in stored] == [said["memory_id"]]

    metadata = {"name": "Ann", "type": "person"}
    body = {"user_id": user, "agent_id": "guide", "content": "Ann", "memory_type": "entity", "metadata": metadata}
    return Asked("POST", "/v1/memories", {"json": body}, check)


def add_message(holdfast: Holdfast, user: str) -> Asked:
    def check(said: dict[str, Any]) -> None:
        session = holdfast.manager(user, "guide", "s1").short_term
        for messages in (session.get_conversation_history(), session.get_full_history()):
            assert [one["message_id"] for one in messages] == [said["message_id"]]

    body = {"user_id": user, "agent_id": "guide", "role": "user", "content": TEA}
    return Asked("POST", "/v1/sessions/s1/messages", {"json": body}, check)


def delete(holdfast: Holdfast, user: str) -> Asked:
    memory = holdfast.manager(user, "guide")
    first = memory.add(TEA)["memory_id"]
    made = memory.add("Ann likes hot drinks.", derived_from=[first])["memory_id"]

    def check(said: dict[str, Any]) -> None:
        assert (said["memory_id"], said["deleted_with"]) == (first, [made])
        assert memory.count_memories() == 0
        assert len(holdfast.recycle.list(user_id=user)) == 2

    params = {"user_id": user, "agent_id": "guide", "with_derived": True}
    return Asked("DELETE", f"/v1/memories/{first}", {"params": params}, check)


def hold(holdfast: Holdfast, user: str) -> Asked:
    def check(said: dict[str, Any]) -> None:
        assert [one.id for one in holdfast.holds.list() if one.user_id == user] == [said["hold_id"]]

    return Asked("POST", "/v1/holds", {"json": {"user_id": user, "reason": "a suit"}}, check)


def set_policy(holdfast: Holdfast, user: str) -> Asked:
    def check(said: dict[str, Any]) -> None:
        (rule,) = (one for one in holdfast.policies.list() if one.get("user_id") == user)
        assert (rule["version"], rule["rule_id"]) == (1, said["rule_id"])

    body = {"user_id": user, "delete_after_days": 400}
    return Asked("PUT", "/v1/policies/episodic", {"json": body}, check)


def remove_agent(holdfast: Holdfast, user: str) -> Asked:
    agent = f"agent-of-{user}"
    holdfast.agents.add(agent)
    for place in range(2):
        holdfast.manager(f"{user}-{place}", agent).persona.add("Speaks plainly.")

    def check(said: dict[str, Any]) -> None:
        assert said["agent_id"] == agent
        assert [one["agent_id"] for one in holdfast.agents.list()].count(agent) == 0
        assert sum(holdfast.manager(f"{user}-{place}", agent).persona.count() for place in range(2)) == 0
        assert holdfast.agents.restore(agent)["persona"] == 2

    return Asked("DELETE", f"/v1/agents/{agent}", {}, check)


def restore_agent(holdfast: Holdfast, user: str) -> Asked:
    agent = f"agent-of-{user}"
    holdfast.manager(user, agent).persona.add("Speaks plainly.")
    holdfast.agents.remove(agent)

    def check(said: dict[str, Any]) -> None:
        assert said["agent_id"] == agent
        assert holdfast.manager(user, agent).persona.count() == 1

    return Asked("POST", f"/v1/agents/{agent}/restore", {}, check)


def archive_resources(holdfast: Holdfast, user: str) -> Asked:
    before = {one["archive_id"] for one in holdfast.domains.archives("rag")}

    def check(said: dict[str, Any]) -> None:
        assert {one["archive_id"] for one in holdfast.domains.archives("rag")} - before == {said["archive_id"]}
        assert len(holdfast.domains.read_archive("rag", said["archive_id"])["resources"]) == 1

    body = {"resources": [{"id": user, "created_at": "2026-01-01T00:00:00+00:00"}]}
    return Asked("POST", "/v1/domains/rag/archives", {"json": body}, check)


def back_up(holdfast: Holdfast, _user: str) -> Asked:
    before = {one.id for one in holdfast.backups.list()}

    def check(said: dict[str, Any]) -> None:
        assert {one.id for one in holdfast.backups.list()} - before == {said["result"]["id"]}
        assert holdfast.backups.verify(said["result"]["id"])

    return Asked("POST", "/v1/backups", {"json": {}}, check)


VERBS = (
    add,
    add_entity,
    add_message,
    delete,
    hold,
    set_policy,
    remove_agent,
    restore_agent,
    archive_resources,
    back_up,
)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_request_that_was_cut_short_anywhere_is_done_once(
    home: Path, holdfast: Holdfast, crasher: Crasher, verb: Callable[[Holdfast, str], Asked]
) -> None:
    with Client(build_app(holdfast, keys_required=False)) as client:
        _cut_short_everywhere(home, holdfast, crasher, client, verb)


def _cut_short_everywhere(
    home: Path, holdfast: Holdfast, crasher: Crasher, client: Client, verb: Callable[[Holdfast, str], Asked]
) -> None:
    """Let requests be cut short before each of their commits, and repeat them here."""
    for at in range(1, MOST):
        asked = verb(holdfast, f"user-{at}")
        options = {**asked.options, "headers": {"Idempotency-Key": f"key-{at}"}}
        was_killed = crasher.send(home, [asked.method, asked.path, options], when="before", at=at)
        raw.run(holdfast, "UPDATE replies SET leased_until = 0")  # as it is some seconds later
        answer = client.request(asked.method, asked.path, **options)
        assert answer.status_code < 300, answer.text
        asked.check(answer.json())
        again = client.request(asked.method, asked.path, **options)
        assert (again.content, again.headers["idempotency-replayed"]) == (answer.content, "true")
        if not was_killed:
            assert answer.headers["idempotency-replayed"] == "true"
            return
    pytest.fail("it came to no end")


def test_what_was_committed_is_answered_by_another_process_at_once(
    home: Path, holdfast: Holdfast, crasher: Crasher
) -> None:
    with Client(build_app(holdfast, keys_required=False)) as client:
        for at in range(1, MOST):
            asked = add(holdfast, f"user-{at}")
            options = {**asked.options, "headers": {"Idempotency-Key": f"key-{at}"}}
            assert crasher.send(home, [asked.method, asked.path, options], when="after", at=at)
            there = holdfast.manager(f"user-{at}", "guide").list_memories()
            answer = client.request(asked.method, asked.path, **options)
            assert answer.status_code == 201, "nobody waits for whoever was killed"
            if there:
                assert answer.headers["idempotency-replayed"] == "true"
                assert answer.json()["memory_id"] == there[0]["memory_id"]
                return
    pytest.fail("it was never there")


def test_whoever_is_told_to_wait_waits_no_longer_than_the_lease(
    home: Path, holdfast: Holdfast, crasher: Crasher
) -> None:
    asked = set_policy(holdfast, "ann")
    options = {**asked.options, "headers": {"Idempotency-Key": "key"}}
    assert crasher.send(home, [asked.method, asked.path, options], when="after", at=3)
    with Client(build_app(holdfast, keys_required=False)) as client:
        answers = _ask_until_answered(client, asked, options)
    assert answers[0].json()["code"] == "request_in_progress"
    assert answers[-1].status_code == 200
    asked.check(answers[-1].json())


def _ask_until_answered(client: Client, asked: Asked, options: dict[str, Any]) -> list[httpx.Response]:
    answers = []
    for _ in range(TRIES):
        answers.append(client.request(asked.method, asked.path, **options))
        if answers[-1].status_code != 409:
            break
        time.sleep(PAUSE)
    return answers


# --- short-term memory on a server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey() as started:
        yield started


def test_a_message_to_a_short_term_server_is_there_once(
    homes: Homes, clock: FakeClock, crasher: Crasher, server: ValkeyServer
) -> None:
    home = homes.new("with-valkey")
    home.mkdir(mode=0o700, exist_ok=True)
    settings = home / "holdfast.toml"
    before = settings.read_text() if settings.exists() else ""
    settings.write_text(f'{before}short_term_url = "{server.url}"\n')
    settings.chmod(0o600)
    with Holdfast.open(home=home, clock=clock) as holdfast, Client(build_app(holdfast, keys_required=False)) as client:
        _cut_short_everywhere(home, holdfast, crasher, client, add_message)
