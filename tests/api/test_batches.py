"""Several operations in one request: each is carried out by itself, once, within its own right; and lists in lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.applications import Starlette

from api.client import Client
from holdfast import Holdfast
from holdfast.edges.operations.batches import MAX_ITEMS
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.operations.operation import Form, Reach
from holdfast.edges.rest import streams
from holdfast.edges.rest.app import build_app
from holdfast.edges.rest.description import describe
from homes import ENGINES

WHO = {"user_id": "alice", "agent_id": "guide"}
LINES = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}
IN_LINES = {"Accept": "application/x-ndjson"}


def item(operation: str, **fields: Any) -> dict[str, Any]:
    return {"operation": operation, "input": {**WHO, **fields}}


def add(content: str, **fields: Any) -> dict[str, Any]:
    return item("add_memory", content=content, **fields)


def as_lines(items: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in items)


def read_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def contents(holdfast: Holdfast, user: str = "alice") -> list[str]:
    return sorted(one["content"] for one in holdfast.manager(user, "guide").list_memories(limit=1_000))


@pytest.mark.parametrize("engine_name", ENGINES)
def test_each_item_has_a_result_of_its_own_and_what_fails_keeps_no_other_from_being_done(
    client: Client, holdfast: Holdfast
) -> None:
    gone = holdfast.manager("alice", "guide").add("Ann likes milk.")["memory_id"]
    items = [
        add("Ann likes tea."),
        add(""),
        item("delete_memory", memory_id="0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"),
        item("delete_memory", memory_id=gone),
        item("recall", query="What does Ann like?", top_k=3),
        item("recall", query="tea", top="3"),
    ]
    answer = client.post("/v1/batch", {"items": items})
    assert answer.status_code == 200
    found = answer.json()["items"]
    assert [one["status"] for one in found] == [201, 422, 404, 200, 200, 422]
    assert [one.get("problem", {}).get("code") for one in found][1:3] == ["invalid_content", "not_found"]
    assert found[5]["problem"]["errors"] == [
        {"where": "body.top", "problem": found[5]["problem"]["errors"][0]["problem"]}
    ]
    assert [one["content"] for one in found[4]["result"]["items"]] == ["Ann likes tea."]
    assert contents(holdfast) == ["Ann likes tea."]


def test_a_batch_is_bounded_and_a_list(client: Client, holdfast: Holdfast) -> None:
    for wrong in ([], [add("tea")] * (MAX_ITEMS + 1), "tea", {"a": add("tea")}, None):
        assert client.post("/v1/batch", {"items": wrong}).status_code == 422
    assert client.post("/v1/batch", [add("tea")]).status_code == 422
    assert client.post("/v1/batch", {"items": [add("tea")], "more": 10**40}).status_code == 422
    assert contents(holdfast) == []


@pytest.mark.parametrize("lines", [False, True])
def test_an_item_that_cannot_be_read_keeps_no_other_from_being_done(
    client: Client, holdfast: Holdfast, lines: bool
) -> None:
    items: list[Any] = [
        {"operation": "erase_user", "input": {}},
        add("half \ud800"),
        add("coffee", metadata={"n": 10**40}),
        {"operation": "add_memory"},
        "tea",
        None,
        add("milk", metadata=json.loads('{"a":' * 90 + "1" + "}" * 90)),
        add("tea"),
    ]
    body, headers = (as_lines(items), LINES) if lines else (json.dumps({"items": items}), JSON)
    answer = client.request("POST", "/v1/batch", content=body, headers=headers)
    found = read_lines(answer.text) if lines else answer.json()["items"]
    assert [one["status"] for one in found] == [422] * 7 + [201]
    assert "add_memory" in found[0]["problem"]["detail"], "it says which operations there are"
    assert contents(holdfast) == ["tea"]


def test_what_a_batch_may_have_is_about_one_memory_and_ends_soon() -> None:
    names = describe(keys_required=True)["components"]["schemas"]["BatchItem"]["properties"]["operation"]["enum"]
    assert {"add_memory", "recall", "delete_memory"} <= set(names)
    for name in names:
        assert OPERATIONS[name].reach is Reach.MEMORY
        assert OPERATIONS[name].form is Form.DOCUMENT
        assert not OPERATIONS[name].is_long


@pytest.mark.parametrize("lines", [False, True])
def test_each_item_needs_its_own_right_and_stays_within_the_bounds_of_the_key(holdfast: Holdfast, lines: bool) -> None:
    def ask(items: list[dict[str, Any]], **bounds: Any) -> list[int]:
        _, secret = holdfast.access.create("test", tenant="default", **bounds)
        headers = {"Authorization": f"Bearer {secret}"}
        with Client(build_app(holdfast, keys_required=True)) as client:
            if lines:
                answer = client.request("POST", "/v1/batch", content=as_lines(items), headers={**headers, **LINES})
                return [one["status"] for one in read_lines(answer.text)]
            return [
                one["status"] for one in client.post("/v1/batch", {"items": items}, headers=headers).json()["items"]
            ]

    items = [
        add("tea"),
        item("recall", query="tea"),
        {**add("tea"), "input": {**WHO, "user_id": "bob", "content": "x"}},
    ]
    assert ask(items, rights=["read"]) == [403, 200, 403]
    assert ask(items, rights=["write"], users=["alice"]) == [201, 200, 403]
    assert ask(items, rights=["write"], agents=["other"]) == [403, 403, 403]
    assert contents(holdfast, "bob") == []


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("lines", [False, True])
def test_under_a_key_each_item_is_carried_out_once(client: Client, holdfast: Holdfast, lines: bool) -> None:
    def ask(items: list[dict[str, Any]]) -> list[Any]:
        headers = {"Idempotency-Key": "k1"}
        if lines:
            found = client.request("POST", "/v1/batch", content=as_lines(items), headers={**headers, **LINES})
            return read_lines(found.text)
        answered: list[Any] = client.post("/v1/batch", {"items": items}, headers=headers).json()["items"]
        return answered

    first = ask([add("one"), add("")])
    again = ask([add("one"), add("two"), add("three")])
    assert [one["status"] for one in first] == [201, 422]
    assert [one["status"] for one in again] == [201, 201, 201], "what failed may be sent again"
    assert again[0] == first[0]
    assert contents(holdfast) == ["one", "three", "two"]
    other = ask([add("something else")])
    assert (other[0]["status"], other[0]["problem"]["code"]) == (422, "idempotency_key_reused")


def test_lines_are_answered_in_order_and_one_that_is_wrong_is_told(client: Client, holdfast: Holdfast) -> None:
    body = (
        as_lines([add("one")]) + b"{no JSON\n\n" + json.dumps({"operation": "add_memory"}).encode() + b"\n" + b'"a"\n'
    )
    body += as_lines([add("two")])[:-1]  # the last line may be without an end
    answer = client.request("POST", "/v1/batch", content=body, headers=LINES)
    assert answer.headers["content-type"] == "application/x-ndjson"
    found = read_lines(answer.text)
    assert [one["status"] for one in found] == [201, 422, 422, 422, 201]
    assert contents(holdfast) == ["one", "two"]


class Upload:
    """A request whose lines come one at a time: the next when the one before was answered."""

    def __init__(self, lines: list[bytes], *, ends: bool = True) -> None:
        self.heard: list[bytes] = []
        self._lines = lines
        self._ends = ends
        self._answered = asyncio.Event()
        self._answered.set()

    async def receive(self) -> MutableMapping[str, Any]:
        await self._answered.wait()
        self._answered.clear()
        if self._lines:
            line = self._lines.pop(0)
            return {"type": "http.request", "body": line, "more_body": bool(self._lines) or not self._ends}
        await asyncio.Event().wait() if self._ends else None
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message.get("body"):
            self.heard.append(message["body"])
            self._answered.set()

    def run(self, app: Starlette) -> None:
        headers = [(b"content-type", b"application/x-ndjson")]
        scope = {"type": "http", "method": "POST", "path": "/v1/batch", "raw_path": b"/v1/batch", "query_string": b"",
                 "headers": headers, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}  # fmt: skip
        asyncio.run(asyncio.wait_for(app(scope, self.receive, self.send), 30))


def test_lines_are_carried_out_while_they_arrive(app: Starlette, holdfast: Holdfast) -> None:
    half = len(as_lines([add("three")])) // 2
    third = as_lines([add("three")])
    upload = Upload([as_lines([add("one")]), as_lines([add("two")]) + third[:half], third[half:]])
    upload.run(app)
    assert [json.loads(line)["status"] for line in upload.heard] == [201, 201, 201]
    assert contents(holdfast) == ["one", "three", "two"]


def test_what_came_before_the_caller_went_away_is_done(app: Starlette, holdfast: Holdfast) -> None:
    upload = Upload([as_lines([add("one")]), as_lines([add("two")])], ends=False)
    upload.run(app)
    assert contents(holdfast) == ["one", "two"]


def test_a_caller_who_sends_nothing_more_is_told_so(
    app: Starlette, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_SEND_TIMEOUT_SECONDS", 0.05)
    upload = Upload([as_lines([add("one")])], ends=False)
    receive = upload.receive

    async def stall() -> MutableMapping[str, Any]:
        if not upload._lines:
            await asyncio.Event().wait()
        return await receive()

    upload.receive = stall  # type: ignore[method-assign]
    upload.run(app)
    assert json.loads(upload.heard[-1])["problem"]["code"] == "request_timeout"
    assert contents(holdfast) == ["one"]


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_in_lines_has_all_of_it_whatever_its_pages(client: Client, holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide")
    for part in range(3):
        memory.add_many([f"note {part * 500 + number}" for number in range(500)])
    answer = client.get("/v1/memories", params=WHO, headers=IN_LINES)
    assert answer.headers["content-type"] == "application/x-ndjson"
    found = read_lines(answer.text)
    assert [one["memory_id"] for one in found] == [one["memory_id"] for one in memory.list_memories(limit=2_000)]
    some = client.get("/v1/memories", params={**WHO, "limit": 7}, headers=IN_LINES)
    assert read_lines(some.text) == found[:7]
    assert client.get("/v1/memories", params={**WHO, "limit": 0}, headers=IN_LINES).status_code == 422


def test_what_is_recalled_can_be_had_in_lines(client: Client, holdfast: Holdfast) -> None:
    holdfast.manager("alice", "guide").add("Ann likes tea.")
    asked = {**WHO, "query": "tea"}
    answer = client.post("/v1/recall", asked, headers=IN_LINES)
    assert read_lines(answer.text) == client.post("/v1/recall", asked).json()["items"]


def test_an_export_in_lines_has_what_an_export_has(client: Client, holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide", "s1")
    memory.add("Ann likes tea.")
    memory.short_term.add_message("user", "Where is my order?")
    found = read_lines(client.get("/v1/users/alice/export:lines").text)
    whole: dict[str, Any] = dict(holdfast.export_user("alice"))
    expected = [
        line for lines in (*whole["memories"].values(), *whole.values()) if isinstance(lines, list) for line in lines
    ]
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, expected))
    assert {"memory", "conversation"} <= {line["type"] for line in found}
    assert client.get("/v1/users/nobody/export:lines").status_code == 404
