"""Requests that are answered directly: as any other is, without a task or a thread, and not at all where others wait."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast, MemoryManager
from holdfast.core.access import Right
from holdfast.core.clock import check_deadline
from holdfast.edges.access import quick_calls
from holdfast.edges.service.connections import Connections
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.run import Service, build_api, build_service
from service.served import PATIENCE
from service.test_connections import connect, read_all, running

WHOSE = {"user_id": "ann", "agent_id": "tests"}
JSON = {"Content-Type": "application/json"}
#: What two answers to the same request need not have in common.
OF_EACH = frozenset({"date", "x-request-id", "content-length", "idempotency-replayed"})
CHANGING = frozenset({"memory_id", "latency_ms", "request_id", "created_at", "score", "quota_remaining"})


class Said(NamedTuple):
    """An answer, as far as two to the same request are alike."""

    status: int
    headers: dict[str, str]
    document: Any


class Caller:
    """Who asks a service, over a connection that is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.kept = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def close(self) -> None:
        self.kept.close()

    def ask(self, path: str, body: Any, headers: Mapping[str, str] = JSON, method: str = "POST") -> Said:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.kept.request(method, path, content, {"Host": "localhost", **headers})
        answer = self.kept.getresponse()
        read = answer.read()
        document = [json.loads(line) for line in read.splitlines()] if read else None
        return Said(answer.status, {name.lower(): value for name, value in answer.getheaders()}, document)

    def add(self, content: str, headers: Mapping[str, str] = JSON) -> Said:
        return self.ask("/v1/memories", {**WHOSE, "content": content}, headers)

    def recall(self, query: str, headers: Mapping[str, str] = JSON) -> Said:
        return self.ask("/v1/recall", {**WHOSE, "query": query}, headers)


def find_way() -> str:
    try:
        return "direct" if asyncio.current_task() is None else "task"
    except RuntimeError:  # no loop runs here
        return "thread"


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each add was carried out: directly, by the task of its request, or by a thread. No machine is too slow."""
    found: list[str] = []
    add = MemoryManager.add

    def note(self: MemoryManager, *arguments: Any, **named: Any) -> Any:
        found.append(find_way())
        return add(self, *arguments, **named)

    monkeypatch.setattr(MemoryManager, "add", note)
    monkeypatch.setattr(quick_calls, "MAX_SECONDS", PATIENCE)
    return found


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast.open(home=tmp_path) as opened:
        yield opened


def build(holdfast: Holdfast, *, keys: bool = False, limits: Limits | None = None, is_direct: bool = True) -> Service:
    api = build_api(holdfast, keys_required=keys)
    service = build_service(api, holdfast, limits=limits or Limits(), keys_required=keys)
    if not is_direct:
        service.direct_paths = ()
    return service


@contextmanager
def calling(service: Service) -> Iterator[Caller]:
    with running(Connections(8, head_seconds=PATIENCE), service) as port, closing(Caller(port)) as caller:
        yield caller


def without(document: Any) -> Any:
    """A document without what is different each time."""
    if isinstance(document, dict):
        return {name: without(value) for name, value in document.items() if name not in CHANGING}
    return [without(one) for one in document] if isinstance(document, list) else document


def alike(said: Said) -> Said:
    headers = {name: value for name, value in said.headers.items() if name not in OF_EACH}
    return Said(said.status, headers, without(said.document))


def test_what_is_quick_is_answered_without_a_task_or_a_thread(holdfast: Holdfast, ways: list[str]) -> None:
    with calling(build(holdfast)) as caller:
        assert [caller.add(f"Ann has {count} cats").status for count in range(3)] == [201, 201, 201]
        assert caller.recall("cats").document[0]["items"]
    assert ways == ["direct", "direct", "direct"]


FINE = {**WHOSE, "content": "Ann likes tea"}
DEEP = b'{"user_id": "ann", "agent_id": "tests", "content": "x", "metadata": {"a": ' + b"[" * 70 + b"]" * 70 + b"}}"
DEEP_FILTER = (
    b'{"user_id": "ann", "agent_id": "tests", "query": "x", "filters": ' + b'{"all":[' * 400 + b"]}" * 400 + b"}"
)
NOT_THERE = {"X-Holdfast-Tenant": "no/tenant"}
REQUESTS: dict[str, tuple[Any, ...]] = {
    "an add": ("/v1/memories", {**FINE, "metadata": {"topic": "drinks"}}),
    "a recall": ("/v1/recall", {**WHOSE, "query": "tea", "top_k": 3}),
    "a recall with a filter": ("/v1/recall", {**WHOSE, "query": "tea", "filters": {"topic": "drinks"}}),
    "a recall that explains": ("/v1/recall", {**WHOSE, "query": "tea", "explain": True}),
    "a recall in lines": ("/v1/recall", {**WHOSE, "query": "tea"}, {**JSON, "Accept": "application/x-ndjson"}),
    "a recall in lines, in capitals": (
        "/v1/recall",
        {**WHOSE, "query": "tea"},
        {**JSON, "Accept": "application/X-NDJSON"},
    ),
    "a recall in lines of another name": (
        "/v1/recall",
        {**WHOSE, "query": "tea"},
        {**JSON, "Accept": "application/jsonl"},
    ),
    "another tenant": ("/v1/memories", FINE, {**JSON, "X-Holdfast-Tenant": "acme"}),
    "no tenant": ("/v1/memories", FINE, {**JSON, **NOT_THERE}),
    "a kind that is none": ("/v1/memories", {**FINE, "memory_type": "nothing"}),
    "a field that is none": ("/v1/memories", {**FINE, "contents": "x"}),
    "a field of another type": ("/v1/memories", {**FINE, "dedupe": "no"}),
    "no user": ("/v1/memories", {"agent_id": "tests", "content": "x"}),
    "an empty user": ("/v1/memories", {**FINE, "user_id": ""}),
    "a filter that is none": ("/v1/recall", {**WHOSE, "query": "tea", "filters": {"a": {"near": 1}}}),
    "no body": ("/v1/memories", b""),
    "no JSON": ("/v1/memories", b"{"),
    "no object": ("/v1/memories", b"[]"),
    "JSON that is not declared": ("/v1/memories", FINE, {"Content-Type": "text/plain"}),
    "JSON of another kind": ("/v1/memories", FINE, {"Content-Type": "application/ld+json; charset=utf-8"}),
    "not a number": ("/v1/recall", b'{"user_id": "ann", "agent_id": "tests", "query": "x", "min_score": NaN}'),
    "a long number": ("/v1/memories", {**FINE, "metadata": {"a": 2**64}}),
    "half a character": ("/v1/memories", b'{"user_id": "ann", "agent_id": "tests", "content": "\\ud800"}'),
    "a byte that is no UTF-8": ("/v1/memories", b'{"user_id": "ann", "agent_id": "tests", "content": "\xff"}'),
    "what is nested deep": ("/v1/memories", DEEP),
    "a filter that is nested deep": ("/v1/recall", DEEP_FILTER),
    "a large body": ("/v1/memories", {**FINE, "content": "tea " * 2_000}),
    "a query": ("/v1/memories?dry_run=1", FINE),
    "another host": ("/v1/memories", FINE, {**JSON, "Host": "example.org"}),
    "another page": ("/v1/memories", FINE, {**JSON, "Origin": "https://example.org"}),
    "a blank after a number": ("/v1/memories", FINE, {**JSON, "Content-Length": f"{len(json.dumps(FINE))} "}),
    "a proxy": ("/v1/memories", FINE, {**JSON, "X-Forwarded-For": "203.0.113.7"}),
    "another method": ("/v1/recall", b"", JSON, "GET"),
    "another spelling": ("/v1/memor%69es", FINE),
    "a request that may come again": ("/v1/memories", {**FINE, "content": "once"}, {**JSON, "Idempotency-Key": "k"}),
    "a key that is none": ("/v1/memories", FINE, {**JSON, "Idempotency-Key": " "}),
    "a secret that is none": ("/v1/memories", FINE, {**JSON, "Authorization": "Bearer x"}),
    "two secrets": ("/v1/memories", FINE, {**JSON, "Authorization": "Bearer x", "X-API-Key": "y"}),
}


ACCEPTED = {
    "an add",
    "a recall",
    "a recall with a filter",
    "a recall that explains",
    "a recall in lines",
    "a recall in lines, in capitals",
    "a recall in lines of another name",
    "another tenant",
    "JSON of another kind",
    "a large body",
    "a blank after a number",
    "a request that may come again",
}


def test_an_answer_is_the_same_either_way(holdfast: Holdfast, ways: list[str]) -> None:
    memory = holdfast.manager("ann", "tests")
    memory.add_many(["Ann drinks tea", "Ann drinks coffee"])
    with ExitStack() as open_ones:
        direct, usual = (open_ones.enter_context(calling(build(holdfast, is_direct=one))) for one in (True, False))
        for name, request in REQUESTS.items():
            said = alike(direct.ask(*request))
            assert said == alike(usual.ask(*request)), name
            assert said.headers["x-content-type-options"] == "nosniff", name
            assert (said.status < 300) is (name in ACCEPTED), name
    assert ways.count("direct") >= 2
    assert {"direct", "task", "thread"} == set(ways)


def test_what_is_nested_deep_is_refused_before_anything_looks_at_it(holdfast: Holdfast, ways: list[str]) -> None:
    with calling(build(holdfast)) as caller:
        said = caller.ask("/v1/memories", DEEP)
    assert (said.status, said.document[0]["code"]) == (422, "invalid_input")
    assert "more than 64 deep" in said.document[0]["detail"]
    assert ways == []


def test_a_refusal_is_answered_directly_and_done_once(holdfast: Holdfast, ways: list[str]) -> None:
    holdfast.quotas.set("long_term", max_memories=1)
    with calling(build(holdfast)) as caller:
        assert caller.add("one").status == 201
        refused = caller.add("two")
    assert (refused.status, refused.document[0]["code"]) == (409, "quota_exceeded")
    assert refused.document[0]["request_id"] == refused.headers["x-request-id"]
    assert ways == ["direct", "direct"]


def test_what_nobody_foresaw_is_answered_and_done_once(
    holdfast: Holdfast, ways: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Any] = []

    def fail(*arguments: Any, **_named: Any) -> Any:
        asked.append(arguments)
        raise ZeroDivisionError("of a secret")

    monkeypatch.setattr(MemoryManager, "retrieve", fail)
    with ExitStack() as open_ones, caplog.at_level(logging.ERROR, "holdfast.requests"):
        direct, usual = (open_ones.enter_context(calling(build(holdfast, is_direct=one))) for one in (True, False))
        failed = direct.recall("tea")
        assert len(asked) == 1
        assert direct.add("it goes on").status == 201
        assert alike(usual.recall("tea")) == alike(failed)
    assert (failed.status, failed.document[0]["code"]) == (500, "error")
    assert "secret" not in json.dumps(failed.document)
    assert [one.exc_info[0] for one in caplog.records if one.exc_info] == [ZeroDivisionError] * 2


def test_it_is_counted_and_logged_as_any_request(
    holdfast: Holdfast, ways: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    _, secret = holdfast.access.create("tests", rights=["write"], tenant="default")
    given = {**JSON, "Authorization": f"Bearer {secret}", "X-Request-ID": "mine"}
    with calling(build(holdfast, keys=True)) as caller, caplog.at_level(logging.INFO, "holdfast.requests"):
        for count in range(9):
            said = caller.add(f"Ann has {count} cats", given)
            assert (said.status, said.headers["x-request-id"]) == (201, "mine")
        with closing(HTTPConnection("127.0.0.1", caller.port, timeout=PATIENCE)) as metrics:
            metrics.request("GET", "/metrics")
            text = metrics.getresponse().read().decode()
    assert ways[0] != "direct", "the first one asks the store who calls"
    assert "direct" in ways
    counted = 'holdfast_http_requests_total{method="POST",route="/v1/memories",status="201"} 9.0'
    assert counted in text
    assert "holdfast_http_requests_in_flight 1.0" in text, "the one that reads the metrics"
    lines = [one.fields for one in caplog.records if one.getMessage() == "request"]  # type: ignore[attr-defined]
    assert [line["key_id"] for line in lines[:9]] == [holdfast.access.list()[0].id] * 9
    assert {(line["request_id"], line["route"], line["status"]) for line in lines[:9]} == {
        ("mine", "/v1/memories", 201)
    }


def test_a_key_counts_as_it_does_otherwise(holdfast: Holdfast, ways: list[str]) -> None:
    key, secret = holdfast.access.create("tests", rights=["write"], tenant="default", agents=["tests"])
    reader, reading = holdfast.access.create("reader", rights=["read"], tenant="default")
    own, other = ({**JSON, "Authorization": f"Bearer {one}"} for one in (secret, reading))
    with calling(build(holdfast, keys=True)) as caller:
        assert {caller.add("x", own).status for _ in range(9)} == {201}
        assert "direct" in ways
        assert {caller.add("x", other).status for _ in range(9)} == {403}
        assert caller.recall("x", other).status == 200
        foreign = {**WHOSE, "agent_id": "doctor", "content": "x"}
        assert caller.ask("/v1/memories", foreign, own).status == 403
        assert caller.ask("/v1/memories", FINE, {**own, "X-Holdfast-Tenant": "acme"}).status == 403
        assert caller.add("x").status == 401
        assert reader.principal.allows(Right.READ)
        holdfast.access.revoke(key.id)
        assert caller.add("x", own).status == 401
    assert len(ways) == 9


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_key_that_may_not_do_it_is_named_in_the_log_and_pays_itself(
    holdfast: Holdfast, ways: list[str], caplog: pytest.LogCaptureFixture, is_direct: bool
) -> None:
    reader, reading = holdfast.access.create("reader", rights=["read"], tenant="default")
    _, secret = holdfast.access.create("writer", rights=["write"], tenant="default")
    refused, allowed = ({**JSON, "Authorization": f"Bearer {one}"} for one in (reading, secret))
    service = build(holdfast, keys=True, limits=Limits(rate_per_second=5.0), is_direct=is_direct)
    with calling(service) as caller, caplog.at_level(logging.INFO, "holdfast.requests"):
        statuses = {caller.add("x", refused).status for _ in range(20)}
        assert caller.add("x", allowed).status == 201
    assert statuses == {403, 429}
    lines = [one.fields for one in caplog.records if one.getMessage() == "request"]  # type: ignore[attr-defined]
    assert {line["key_id"] for line in lines if line["status"] == 403} == {reader.id}


def test_it_takes_from_the_rate_of_its_caller_once(holdfast: Holdfast, ways: list[str]) -> None:
    _, secret = holdfast.access.create("tests", rights=["write"], tenant="default")
    given = {**JSON, "Authorization": f"Bearer {secret}"}
    with calling(build(holdfast, keys=True, limits=Limits(rate_per_second=4.0))) as caller:
        statuses = [caller.add("x", given).status for _ in range(20)]
    taken = statuses.count(201)
    assert statuses == [201] * taken + [429] * (20 - taken)
    assert 8 <= taken <= 12, "a burst is what comes in two seconds"
    assert "direct" in ways


def test_where_there_is_no_room_nothing_is_let_in(holdfast: Holdfast, ways: list[str]) -> None:
    with calling(build(holdfast, limits=Limits(requests_at_once=0))) as caller:
        assert caller.add("x").status == 429
    with calling(build(holdfast, limits=Limits(request_bytes=20))) as caller:
        assert caller.add("x").status == 413
    assert ways == []


def test_while_a_thread_is_at_work_requests_go_the_usual_way(
    holdfast: Holdfast, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()

    def wait(*_arguments: Any, **_named: Any) -> Any:
        begun.set()
        release.wait(PATIENCE)
        return []

    monkeypatch.setattr(MemoryManager, "list_memories", wait)
    with calling(build(holdfast)) as slow, closing(Caller(slow.port)) as other:
        slow.kept.request("GET", "/v1/memories?user_id=ann&agent_id=tests", headers={"Host": "localhost"})
        assert begun.wait(PATIENCE)
        assert other.add("Ann has a cat").status == 201
        release.set()
        assert slow.kept.getresponse().status == 200
    assert ways == ["thread"]


def test_what_takes_too_long_is_begun_anew_by_a_thread_and_not_in_the_loop_again(
    holdfast: Holdfast, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieve = MemoryManager.retrieve

    def look(self: MemoryManager, *arguments: Any, **named: Any) -> Any:
        ways.append(find_way())
        check_deadline()
        return retrieve(self, *arguments, **named)

    monkeypatch.setattr(MemoryManager, "retrieve", look)
    monkeypatch.setattr(quick_calls, "MAX_SECONDS", -1.0)
    with calling(build(holdfast)) as caller:
        assert caller.recall("tea").status == 200
    assert ways == ["direct", "thread"]


def test_a_request_that_may_come_again_is_done_once(holdfast: Holdfast, ways: list[str]) -> None:
    given = {**JSON, "Idempotency-Key": "once"}
    with calling(build(holdfast)) as caller:
        first, again = (caller.add("Ann has a cat", given) for _ in range(2))
    assert first.document == again.document
    assert ways == ["thread"]


# --- connections ------------------------------------------------------------------------------------------------------


def post(body: bytes, more: str = "") -> bytes:
    head = f"POST /v1/memories HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def add(content: str, more: str = "") -> bytes:
    return post(json.dumps({**WHOSE, "content": content}).encode(), more)


Sent = Callable[[bytes], list[bytes]]


@pytest.mark.parametrize(
    "cut",
    [
        lambda said: [said],
        lambda said: [said.partition(b"{")[0], b"{" + said.partition(b"{")[2]],
        lambda said: [said[:30], said[30:-10], said[-10:-3], said[-3:]],
    ],
    ids=["whole", "body by itself", "pieces"],
)
def test_a_small_request_is_answered_directly_however_it_comes(holdfast: Holdfast, ways: list[str], cut: Sent) -> None:
    with running(Connections(8, head_seconds=PATIENCE), build(holdfast)) as port, connect(port) as one:
        for said in (add("Ann has a cat"), add("Ann has a dog", "Connection: close\r\n")):
            for piece in cut(said):
                one.sendall(piece)
                threading.Event().wait(0.02)
        answers = read_all(one)
    assert answers.count(b"HTTP/1.1 201 Created\r\n") == 2
    assert answers.count(b"connection: close") == 1
    assert ways == ["direct", "direct"]


def test_requests_that_are_sent_together_are_answered_in_their_order(holdfast: Holdfast, ways: list[str]) -> None:
    texts = [f"Ann has {count} cats" for count in range(6)]
    with running(Connections(8, head_seconds=PATIENCE), build(holdfast)) as port:
        last = add("Ann has a dog", "Connection: close\r\n")
        with connect(port, b"".join(map(add, texts)) + last) as one:
            answers = read_all(one)
        listed = holdfast.manager("ann", "tests").list_memories(limit=10)
    assert answers.count(b"HTTP/1.1 201 Created\r\n") == 7
    assert [memory["content"] for memory in reversed(listed)] == [*texts, "Ann has a dog"]
    assert ways[0] == "direct"
    assert "direct" not in ways[1:], "one is carried out here at each turn of the loop"


def test_the_last_request_of_a_connection_ends_it(holdfast: Holdfast, ways: list[str]) -> None:
    with (
        running(Connections(8, head_seconds=PATIENCE), build(holdfast)) as port,
        connect(port, add("Ann has a cat", "Connection: close\r\n") + add("not read")) as one,
    ):
        answers = read_all(one)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert ways == ["direct"]


def test_nothing_is_begun_after_the_last_answer(
    holdfast: Holdfast, ways: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    last = add("Ann has a cat", "Connection: keep-alive\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")
    more = add("not read").replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX-Was: ")
    with (
        caplog.at_level(logging.INFO, "holdfast.requests"),
        running(Connections(8, head_seconds=PATIENCE), build(holdfast)) as port,
        connect(port, last + more) as one,
    ):
        answers = read_all(one)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert ways == ["direct"]
    assert [one.getMessage() for one in caplog.records].count("request") == 1


@pytest.mark.parametrize("length", ["5000", "0" * 20 + "5000", "0" * 30 + str(2**31)])
def test_a_large_request_is_none_of_the_small_ones_however_its_length_is_written(
    holdfast: Holdfast, ways: list[str], length: str
) -> None:
    head = post(b"").replace(b"Content-Length: 0", f"Content-Length: {length}".encode())
    with running(Connections(8, head_seconds=PATIENCE), build(holdfast, keys=True)) as port, connect(port, head) as one:
        assert one.recv(65_536).startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 413 ")), "it is not waited for"


def test_half_a_small_request_is_told_that_it_came_too_late(holdfast: Holdfast, ways: list[str]) -> None:
    with (
        running(Connections(8, head_seconds=0.2), build(holdfast)) as port,
        connect(port, add("Ann has a cat")[:-3]) as one,
    ):
        assert read_all(one).startswith(b"HTTP/1.1 408 ")
    assert ways == []
