"""Who an audit entry names where a memory is reached over REST, MCP and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from cli.shell import Shell
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.access import LOCAL
from holdfast.edges.rest.app import build_app
from mcp_clients import answer, ask, local_server


@pytest.fixture
def memory_id(holdfast: Holdfast) -> str:
    given: str = holdfast.manager("ann", "guide").add("Likes tea", "long_term")["memory_id"]
    return given


def last(holdfast: Holdfast) -> tuple[str, str]:
    (entry,) = holdfast.audit.tail(1)
    return entry["action"], entry["actor"]


class Caller:
    """Sends requests with a key of its own."""

    def __init__(self, holdfast: Holdfast, client: Client) -> None:
        key, self._secret = holdfast.access.create(tenant="default", name="ops", rights=["admin"])
        self._client = client
        self.actor = f"key:{key.id}"

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        given = {"Authorization": f"Bearer {self._secret}", **headers}
        sent = {} if body is None else {"json": body}
        response = self._client.request(method, f"/v1{path}", headers=given, **sent)
        assert response.is_success, response.text
        return response


@pytest.fixture
def caller(holdfast: Holdfast) -> Iterator[Caller]:
    with Client(build_app(holdfast, keys_required=True)) as client:
        yield Caller(holdfast, client)


def test_over_rest_it_is_the_key(holdfast: Holdfast, caller: Caller, memory_id: str, clock: FakeClock) -> None:
    send, actor = caller.send, caller.actor
    send("DELETE", f"/memories/{memory_id}?user_id=ann&agent_id=guide")
    assert last(holdfast) == ("recycled", actor)
    send("POST", f"/memories/{memory_id}/restore?user_id=ann&agent_id=guide", **{"Idempotency-Key": "one"})
    assert last(holdfast) == ("restored", actor)
    hold = send("POST", "/holds", {"tag": "topic=contract", "reason": "Case 4711"}).json()
    assert hold["author"] == actor
    send("POST", f"/holds/{hold['hold_id']}/release")
    assert last(holdfast) == ("hold.released", actor)
    send("PUT", "/policies/long_term", {"delete_after_days": 1, "confirm": True})
    assert last(holdfast) == ("rule.changed", actor)
    clock.advance(days=2)
    for headers in ({}, {"Idempotency-Key": "two"}):  # answered while it is done, and whole
        send("POST", "/sweeps", {"confirm": True}, **headers)
        assert last(holdfast) == ("recycled", actor)
        memory_id = holdfast.manager("ann", "guide").add("Likes coffee", "long_term")["memory_id"]
        clock.advance(days=2)
    entries = send("GET", "/audit?user_id=ann").json()["items"]
    assert {entry["actor"] for entry in entries} == {actor}


def test_over_rest_without_a_key_it_is_rest(holdfast: Holdfast, memory_id: str) -> None:
    with Client(build_app(holdfast, keys_required=False)) as client:
        assert client.delete(f"/v1/memories/{memory_id}?user_id=ann&agent_id=guide").is_success
    assert last(holdfast) == ("recycled", "rest")
    holdfast.manager("ann", "guide").restore(memory_id)
    assert last(holdfast) == ("restored", "python"), "nothing of a request is left behind"


def test_over_mcp_it_is_the_key_or_mcp(holdfast: Holdfast, memory_id: str) -> None:
    whose = {"memory_id": memory_id, "user_id": "ann", "agent_id": "guide"}
    answer(ask(local_server(holdfast), "memory_delete", whose))
    assert last(holdfast) == ("recycled", "mcp")
    keyed = LOCAL._replace(key_id="4711")
    answer(ask(local_server(holdfast, keyed), "memory_restore", whose))
    assert last(holdfast) == ("restored", "key:4711")
    change = {"domain": "memory", "config": {"auto_gc": True}, "confirm": True}
    answer(ask(local_server(holdfast, keyed), "retention_configure", change))
    assert last(holdfast) == ("rule.changed", "key:4711")


def test_on_the_command_line_it_is_cli_or_the_author(holdfast: Holdfast, memory_id: str, home: Path) -> None:
    shell, whose = Shell(home), ("-u", "ann", "-a", "guide")
    shell.ok("delete", memory_id, *whose)
    assert last(holdfast) == ("recycled", "cli")
    shell.ok("--author", "support", "restore", memory_id, *whose)
    assert last(holdfast) == ("restored", "support")
    shell.ok("--author", "support", "policy", "set", "long_term", "--keep", "30", "--author", "dpo")
    assert last(holdfast) == ("rule.changed", "dpo")
    code, problem = shell.error("--author", "ann", "delete", memory_id, *whose)
    assert (code, problem["code"]) == (2, "invalid_input")
    entries = shell.json("audit", "tail", "--user", "ann")
    assert [entry["actor"] for entry in entries] == ["cli", "support"]
    assert "support" in shell.ok("audit", "tail")
    holdfast.manager("ann", "guide").delete(memory_id)
    assert last(holdfast) == ("recycled", "python"), "nothing of a command is left behind"
