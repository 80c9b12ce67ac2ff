"""Requests that are wrong, huge, malformed or meant to harm get a clear answer, and change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from api.world import make_world
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import StorageError, StoreBusyError
from holdfast.edges.rest.app import build_app
from holdfast.edges.rest.description import describe
from holdfast.edges.rest.routes import route_table

WHO: dict[str, Any] = {"user_id": "alice", "agent_id": "guide"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Holdfast]]:
    """One engine for all of it: nothing of it may change anything."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    with Holdfast.open(home=folder / "home", clock=FakeClock()) as holdfast:
        world = make_world(holdfast)
        before = world.seen()
        with Client(build_app(holdfast, keys_required=False)) as client:
            yield client, holdfast
        assert world.seen() == before


@pytest.fixture
def client(served: tuple[Client, Holdfast]) -> Client:
    return served[0]


def check_refused(response: Any, *statuses: int) -> dict[str, Any]:
    assert response.status_code in (statuses or (400, 404, 422)), f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = response.json()
    assert said["status"] == response.status_code
    assert 0 < len(said["detail"]) <= 2_000
    assert "Traceback" not in response.text
    return said


NO_BODY = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b'{"user_id": "alice", "user_id": }',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 10_000,
    b'{"user_id": ' + b"9" * 5_000 + b"}",
]


@pytest.mark.parametrize("body", NO_BODY, ids=lambda body: repr(body[:20]))
def test_what_is_no_request_is_refused_everywhere(client: Client, body: bytes) -> None:
    for route in route_table():
        if route.body is not None and (body or route.is_body_needed):
            path = route.path_format.replace("{memory_type}", "long_term").replace("{domain}", "rag")
            response = client.request(route.method, path, content=body, headers=JSON, params=_needed(route))
            said = check_refused(response, 400, 422)
            assert said["code"] in {"invalid_input", "malformed_request"}


def _needed(route: Any) -> dict[str, str]:
    fields = route.parameters.model_fields
    return {name: "x" for name in route.in_query if fields[name].is_required()}


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_is_not_called_json_is_refused(client: Client, content_type: str) -> None:
    body = json.dumps({**WHO, "query": "tea"}).encode()
    said = check_refused(client.post("/v1/recall", content=body, headers={"Content-Type": content_type}), 422)
    assert "send JSON, with the header Content-Type: application/json" in said["detail"]
    assert "alice" not in json.dumps(said)


BAD_VALUES: list[Any] = [
    {"user_id": ""},
    {"user_id": " "},
    {"user_id": "a\x00b"},
    {"user_id": "a\nb"},
    {"user_id": "x" * 257},
    {"user_id": 7},
    {"user_id": None},
    {"user_id": ["alice"]},
    {"agent_id": {"$ne": ""}},
    {"content": ""},
    {"content": "a\x00b"},
    {"content": None},
    {"content": 1.5},
    {"content": []},
    {"memory_type": "secret"},
    {"memory_type": "structured"},
    {"metadata": []},
    {"metadata": {"big": 2**70}},
    {"metadata": {"text": "x" * 300_000}},
    {"metadata": {"nul": "\x00"}},
    {"derived_from": ["not an id"]},
    {"derived_from": ["0" * 36] * 1_001},
    {"source": ""},
    {"auto_prune": "maybe"},
    {"unknown": 1},
    {"__proto__": {}},
]


@pytest.mark.parametrize("wrong", BAD_VALUES, ids=lambda wrong: repr(wrong)[:40])
def test_a_memory_that_cannot_be_kept_is_refused(client: Client, wrong: dict[str, Any]) -> None:
    check_refused(client.post("/v1/memories", {**WHO, "content": "tea", **wrong}), 422)


RAW: dict[str, str] = {
    "NaN": '{"x": NaN}',
    "Infinity": '{"x": [1, Infinity]}',
    "beyond a float": '{"x": -1e999}',
    "a lone surrogate": '{"x": "\\ud800"}',
    "a lone surrogate as a name": '{"\\udfff": 1}',
    "depth": '{"x": ' + "[" * 500 + "]" * 500 + "}",
}


@pytest.mark.parametrize("metadata", RAW.values(), ids=RAW.keys())
def test_what_json_cannot_hold_is_refused_wherever_it_is(client: Client, metadata: str) -> None:
    who = json.dumps(WHO)[:-1]
    attempts = {
        "/v1/memories": f'{who}, "content": "tea", "metadata": {metadata}}}',
        "/v1/memories:batch": f'{who}, "contents": [{metadata}], "memory_type": "structured"}}',
        "/v1/recall": f'{who}, "query": "tea", "filters": {metadata}}}',
        "/v1/episodes": f'{who}, "task": "tea", "steps": [{metadata}]}}',
        "/v1/domains/rag/apply": f'{{"resources": [{metadata}]}}',
        "/v1/domains/rag/archives": f'{{"resources": [{metadata}]}}',
        "/v1/certificates:verify": f'{{"certificate": {metadata}}}',
    }
    for path, body in attempts.items():
        check_refused(client.post(path, content=body.encode(), headers=JSON), 422)


def test_texts_that_are_no_texts_are_refused(client: Client) -> None:
    for body in (
        b'{"user_id": "\\ud800", "agent_id": "g", "query": "x"}',
        b'{"user_id": "a", "agent_id": "g", "query": "\\udc00"}',
    ):
        check_refused(client.post("/v1/recall", content=body, headers=JSON), 422)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/memories/%00",
        "/v1/memories/%FF%FE",
        "/v1/memories/..%2F..%2Fetc%2Fpasswd",
        "/v1/memories/" + "x" * 10_000,
        "/v1/memories/%F0%9F%8D%B5",
        "/v1/memories/'%20OR%201=1",
    ],
)
def test_an_id_that_is_none_leads_nowhere(client: Client, path: str) -> None:
    check_refused(client.get(path, params=WHO), 404, 422)


@pytest.mark.parametrize("user", ["%00", "%FF", "a%0Ab", "%2A", "%20", "x" * 257, "%ED%A0%80"])
def test_a_user_that_cannot_be_is_neither_exported_nor_erased(client: Client, user: str) -> None:
    check_refused(client.get(f"/v1/users/{user}/export"), 422)
    check_refused(client.delete(f"/v1/users/{user}", params={"confirm": "true"}), 422)
    check_refused(client.get(f"/v1/users/{user}/quotas"), 422)


def test_names_in_headers_are_checked(client: Client) -> None:
    for tenant in ("", "a/b", "*", "x" * 300, "a\tb", b"\xfc"):
        response = client.get("/v1/memories", params=WHO, headers={"X-Holdfast-Tenant": tenant})
        assert check_refused(response, 422)["code"] == "invalid_scope", tenant


FILTERS = ['{"a"', "[]", "7", '{"a": {"$where": "1"}}', "{" * 9_000, '{"a": ' * 3_000, '{"a": 1e999}']


@pytest.mark.parametrize("filters", FILTERS, ids=lambda text: text[:20])
def test_a_filter_that_is_none_is_refused(client: Client, filters: str) -> None:
    response = client.get("/v1/memories", params={**WHO, "filters": filters})
    assert check_refused(response, 422)["code"] in {"invalid_filter", "invalid_input"}


def test_a_filter_that_is_too_large_is_refused(client: Client) -> None:
    many = {"any": [{"x": number} for number in range(201)]}
    said = check_refused(client.post("/v1/recall", json={**WHO, "query": "tea", "filters": many}), 422)
    assert (said["code"], "more than 200 conditions" in said["detail"]) == ("invalid_filter", True)
    values = {"x": list(range(1_001))}
    said = check_refused(client.get("/v1/memories", params={**WHO, "filters": json.dumps(values)}), 422)
    assert (said["code"], "more than 1,000 values" in said["detail"]) == ("invalid_filter", True)


def test_a_question_of_half_a_mebibyte_is_refused_and_a_memory_is_not(client: Client) -> None:
    asked = {**WHO, "query": "tea", "filters": {"x": "y" * 2**19}}
    said = check_refused(client.post("/v1/recall", json=asked), 413)
    assert (said["code"], "a question has at most 524,288 bytes" in said["detail"]) == ("request_too_large", True)
    assert client.post("/v1/memories", json={**WHO, "content": "tea " * 2**18}).status_code == 201


def test_a_question_that_nobody_reads_is_refused(client: Client) -> None:
    said = check_refused(client.get("/v1/memories", params={**WHO, "user": "bob"}), 422)
    assert "'user'" in said["detail"]
    twice = check_refused(client.get("/v1/memories?user_id=alice&user_id=bob&agent_id=guide"), 422)
    assert "more than once" in twice["detail"]


def test_what_is_not_there_and_what_cannot_be_done_is_said_so(client: Client) -> None:
    for path in ("/v1/", "/v1/memories/", "/v1/nothing", "/v2/memories", "/v1/users//export"):
        assert check_refused(client.get(path), 404)["code"] == "not_found"
    response = client.request("TRACE", "/v1/memories")
    assert check_refused(response, 405)["code"] == "method_not_allowed"
    assert client.request("PUT", "/v1/memories").headers["allow"] == "GET, POST"
    assert client.request("POST", "/v1/users/a%2Fb").headers["allow"] == "DELETE"


def test_a_host_that_is_none_harms_nobody(client: Client) -> None:
    for host in ("[::1", "", "a b", "x" * 5_000):
        check_refused(client.get("/v1/nothing", headers={"Host": host}), 404)
        check_refused(client.get("/v1/memories/none", params=WHO, headers={"Host": host}), 404)


def test_many_at_once_have_a_limit(client: Client) -> None:
    check_refused(client.post("/v1/memories:batch", {**WHO, "contents": ["tea"] * 1_001}), 422)
    check_refused(client.post("/v1/episodes", {**WHO, "task": "tea", "steps": ["sip"] * 10_001}), 422)
    check_refused(client.post("/v1/domains/rag/apply", {"resources": [{}] * 20_001}), 422)
    said = check_refused(client.post("/v1/memories:batch", {**WHO, "contents": [1] * 900}), 422)
    assert "more)" in said["detail"]
    assert len(said["errors"]) == 10


def test_what_went_wrong_within_is_told_without_what_is_inside(
    served: tuple[Client, Holdfast], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, holdfast = served
    raised: list[Exception] = [
        StorageError(f"cannot read {holdfast.settings.home}/holdfast.db"),
        StoreBusyError(f"{holdfast.settings.home}/holdfast.db is locked"),
        ZeroDivisionError(f"in {holdfast.settings.home}"),
    ]

    def fail(**_options: Any) -> Any:
        raise raised[0]

    monkeypatch.setattr(holdfast, "sweep", fail)
    with Client(build_app(holdfast, keys_required=False), lenient=True) as client:
        for status, code, retryable in ((500, "storage", False), (503, "store_busy", True), (500, "error", False)):
            for path in ("/v1/sweeps/plan", "/v1/sweeps"):
                said = check_refused(client.post(path, {}), status)
                assert (said["code"], said["retryable"]) == (code, retryable)
                assert str(holdfast.settings.home) not in json.dumps(said)
            raised.pop(0)
    assert "holdfast.db is locked" in caplog.text


def test_a_request_made_of_an_example_of_another_route_is_refused_or_understood(client: Client, served: Any) -> None:
    """Bodies of one route sent to another: never a server error."""
    api = describe(keys_required=False)
    operations = [api["paths"][route.path_format][route.method.lower()] for route in route_table()]
    asked = {_model(one) for one in operations if "requestBody" in one}
    examples = [api["components"]["schemas"][name]["example"] for name in sorted(asked)]
    for route in route_table():
        if route.body is None or route.method != "POST" or route.operation.right != "read":
            continue
        path = route.path_format.replace("{memory_type}", "long_term").replace("{domain}", "rag")
        for example in examples:
            assert client.post(path, example).status_code in {200, 422, *route.operation.errors}


def _model(operation: dict[str, Any]) -> str:
    reference: str = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return reference.rsplit("/", 1)[-1]
