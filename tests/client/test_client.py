"""With the client, a program is the same with the store in its process and behind a service."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from bench.pages.client_verbs import find_verb, render

from client.script import START, Seen, use_all
from clocks import FakeClock, wait_until
from holdfast import (
    ClosedError,
    ForbiddenError,
    Holdfast,
    HoldfastError,
    InDoubtError,
    InvalidInputError,
    InvalidScopeError,
    NotFoundError,
    QuotaExceededError,
    RateLimitedError,
    StaleError,
    StoreAwayError,
    UnauthenticatedError,
)
from holdfast import client as client_module
from holdfast.aio import AsyncMemory
from holdfast.client import ELSEWHERE, VERBS, Connection, RemoteMemory, connect, connect_async
from holdfast.core.records import DURABLE
from holdfast.edges.cli.app import MODULES
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.operations.errors import STATUSES
from holdfast.edges.rest.app import build_app
from holdfast.manager import Memory

#: No argument of any verb is all of these.
WRONG: tuple[Any, ...] = (5, ["x", 1], {"a": []}, "x")
#: Of the engine that is served.
CLOCK = FakeClock()


@contextmanager
def serving(holdfast: Holdfast, *, keys_required: bool = False) -> Iterator[str]:
    """A service over an open engine, in a thread of this process; its address."""
    app = build_app(holdfast, keys_required=keys_required)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with Holdfast.open(home=tmp_path_factory.mktemp("served") / "home", clock=CLOCK) as opened:
        yield opened


@pytest.fixture(scope="module")
def address(engine: Holdfast) -> Iterator[str]:
    with serving(engine) as url:
        yield url


@pytest.fixture(scope="module")
def service(address: str) -> Iterator[Connection]:
    with connect(address, trust_env=False) as opened:
        yield opened


# --- the same verbs ---------------------------------------------------------------------------------------------------


def test_the_client_has_every_verb_with_the_signature_of_the_engine() -> None:
    assert Path(client_module.__file__).with_name("client.json").read_text() == render(), "renew it: make reference"
    for name in VERBS:
        part, _, verb = name.rpartition(".")
        owner: Any = client_module._PARTS[part] if part else RemoteMemory
        parameters = inspect.signature(find_verb(name)).parameters
        twin = inspect.signature(getattr(owner, verb)).parameters
        shape = [(one.name, one.kind, one.default) for one in list(twin.values())[1:]]
        assert shape == [(one.name, one.kind, one.default) for one in list(parameters.values())[1:]], name


def test_no_verb_of_the_engine_is_missing() -> None:
    for owner in (Memory, AsyncMemory):
        members: list[tuple[str, Any]] = inspect.getmembers(owner, inspect.isroutine)
        verbs = {name for name, member in members if name[0] != "_" and not isinstance(member, cached_property)}
        assert verbs == {name for name, _ in inspect.getmembers(RemoteMemory, inspect.isroutine) if name[0] != "_"}


def test_a_program_sees_the_same_embedded_and_behind_a_service(tmp_path: Path, service: Connection) -> None:
    with Holdfast.open(home=tmp_path / "home", clock=(clock := FakeClock())) as embedded:
        here = Seen(embedded.manager("ann", "helper", "s1"), clock)
        use_all(here)
    there = Seen(service.manager("ann", "helper", "s1"), CLOCK)
    use_all(there)
    for one, other in zip(here.results, there.results, strict=True):
        assert one == other
    assert there.called == VERBS.keys(), "the program does not use every verb"


def test_an_async_program_sees_the_same(address: str, tmp_path: Path) -> None:
    with Holdfast.open(home=tmp_path / "home", clock=(clock := FakeClock())) as embedded, asyncio.Runner() as runner:
        here = Seen(embedded.manager("bea", "helper", "s1"), clock)
        use_all(here)
        connection = connect_async(address, trust_env=False)
        there = Seen(connection.manager("bea", "helper", "s1"), CLOCK, runner)
        use_all(there)
        runner.run(connection.close())
    for one, other in zip(here.results, there.results, strict=True):
        assert one == other


def test_importing_the_client_imports_nothing_of_the_engine() -> None:
    program = "import sys, holdfast.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "apsw", "httpx", "pydantic", "holdfast.engine", "holdfast.manager", "holdfast.storage"}
    assert not heavy & set(loaded)


# --- what runs in the program -----------------------------------------------------------------------------------------


def test_facts_are_extracted_in_the_program(service: Connection, address: str) -> None:
    messages = [{"role": "user", "content": "I moved to Lyon."}]
    memory = service.manager("rea", "helper", "s1")
    (fact,) = memory.remember(messages, lambda found: [f"{len(found)} message: Rea lives in Lyon."])
    assert memory.get(fact["memory_id"])["derived_from"] == fact["derived_from"]

    async def program() -> list[Any]:
        async def extract(_found: list[dict[str, Any]]) -> list[str]:
            return ["Rea lives in Lyon now."]

        async with connect_async(address, trust_env=False) as there:
            return list(await there.manager("rea", "helper", "s2").remember(messages, extract))

    (later,) = asyncio.run(program())
    assert later["operation"] == "add"


NO_JSON: tuple[Any, ...] = (
    {1: "int", "1": "str"}, {True: 1, None: 2}, {"a": b"xyz"}, {"a": START}, {"a": float("nan")}, {"a": 2**70},
    {"a": "\ud800"}, {"a": {"b": {3}}},
)  # fmt: skip
REFUSED: tuple[tuple[str, Any], ...] = (
    *(("add", {"content": "md", "metadata": one}) for one in NO_JSON),
    *(("add", {"content": one}) for one in ("\ud800 lone", "nul \x00", b"bytes", {"a": START}, 5)),
    *(("add", {"content": one, "memory_type": "working"}) for one in NO_JSON),
    ("add_many", {"contents": ["a", "b"], "metadata": [None, {"a": b"x"}]}),
    ("add_many", {"contents": ["a", "\ud800"]}),
    *(("retrieve", {"query": "tea", "filters": {"a": one}}) for one in (b"x", {4: 1}, float("nan"))),
    ("retrieve", {"query": "\ud800"}),
    *(
        ("short_term.add_messages", {"messages": [{"role": "user", "content": "a", "metadata": one}]})
        for one in NO_JSON
    ),
    ("short_term.add_messages", {"messages": [{"role": "user", "content": "\ud800"}]}),
    *(("structured.put", {"collection": "c", "document": one}) for one in NO_JSON),
    *(("structured.put_many", {"documents": [{"collection": "c", "document": one}]}) for one in NO_JSON),
    *(("entity.add", {"name": "Ann", "attributes": one}) for one in NO_JSON[2:]),
    *(("episodic.record_episode", {"task": "t", "steps": [one]}) for one in NO_JSON),
    *(("episodic.record_episode", {"task": "t", "messages": [{"content": one}]}) for one in NO_JSON),
)


@pytest.mark.parametrize(("verb", "arguments"), REFUSED)
def test_what_the_engine_refuses_is_refused_alike(
    engine: Holdfast, service: Connection, verb: str, arguments: dict[str, Any]
) -> None:
    part, _, name = verb.rpartition(".")
    seen = []
    for place in (engine, service):
        memory: Any = place.manager("eve", "helper", "s1")
        with pytest.raises(InvalidInputError) as refused:
            getattr(getattr(memory, part) if part else memory, name)(**arguments)
        seen.append(type(refused.value))
    assert seen[0] is seen[1]
    assert (engine.manager("eve", "helper", "s1").short_term.messages()) == []
    assert [engine.manager("eve", "helper").count_memories(kind) for kind in DURABLE] == [0] * len(DURABLE)


def test_what_is_json_is_not_refused(service: Connection) -> None:
    memory = service.manager("joe", "helper", "s1")
    metadata = {"metadata": 5, "content": None, "at": [1.5, True, {"a": "é"}]}
    kept = memory.add("md", metadata=metadata)["memory_id"]
    assert memory.get(kept)["metadata"] == metadata
    assert (
        memory.list_memories(filters={"metadata.metadata": {5, 6}, "created_at": {"gte": START.replace(year=2001)}})
        != []
    )
    memory.short_term.add_messages(({"role": "user", "content": "", "timestamp": CLOCK.now},))
    memory.entity.add("Joe", attributes={"metadata": 5, "content": 7}, since=CLOCK.now)
    memory.episodic.record_episode("t", messages=[{"metadata": 5, "content": {"a": 1}}])


@pytest.mark.parametrize(
    ("who", "said"), [(("", "a"), "user_id"), (("u", " "), "agent_id"), (("u", "a", ""), "session_id")]
)
def test_a_memory_of_nobody_is_refused(engine: Holdfast, service: Connection, who: Any, said: str) -> None:
    for place in (engine, service):
        with pytest.raises(InvalidScopeError, match=said):
            place.manager(*who)


def test_a_verb_that_is_no_memorys_says_where_it_is_done(engine: Holdfast, service: Connection, address: str) -> None:
    with pytest.raises(AttributeError, match=r"/v1/users/\{user_id\}/export of its REST API or `holdfast export`"):
        _ = service.export_user
    with pytest.raises(AttributeError, match="no 'nonsense'; use `holdfast --help`"):
        _ = connect_async(address).nonsense
    paths = {operation.path for operation in OPERATIONS.values()}
    commands = {name for names in MODULES.values() for name in names.split()}
    for name, (path, command) in ELSEWHERE.items():
        assert hasattr(engine, name)
        assert path in {*paths, ""}
        assert command.split()[0] in commands


def test_a_function_that_counts_tokens_is_refused(service: Connection) -> None:
    with pytest.raises(InvalidInputError, match="count must be left out"):
        service.manager("ann", "helper").context("tea", count=len)
    with pytest.raises(InvalidInputError, match="source is not JSON"):
        service.manager("ann", "helper").add("tea", source=len)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing a required argument"):
        service.manager("ann", "helper").add()  # type: ignore[call-arg]


def test_a_memory_that_prunes_does_so_behind_a_service(engine: Holdfast, service: Connection) -> None:
    engine.quotas.set("long_term", max_memories=10, user_id="pru")
    memory = service.manager("pru", "helper")
    memory.add_many([f"note {n}" for n in range(10)])
    with pytest.raises(QuotaExceededError):
        memory.add("one more")
    assert service.manager("pru", "helper", auto_prune=True).add("one more")["operation"] == "add_with_prune"


# --- who may ----------------------------------------------------------------------------------------------------------


def test_a_key_reaches_what_it_may_and_nothing_else(tmp_path: Path) -> None:
    with Holdfast.open(home=tmp_path / "home") as holdfast:
        _, secret = holdfast.access.create("reads", rights=["read"], tenant="acme", users=["ann"])
        _, operator = holdfast.access.create("all", rights=["admin"], tenant="*")
        with serving(holdfast, keys_required=True) as url:
            with connect(url, trust_env=False) as nobody, pytest.raises(UnauthenticatedError):
                nobody.manager("ann", "helper").count_memories()
            with connect(url, key=operator, tenant="acme", trust_env=False) as there:
                there.manager("ann", "helper").add("Ann likes tea.")
            with connect(url, key=secret, trust_env=False) as reader:
                assert reader.manager("ann", "helper").count_memories() == 1
                with pytest.raises(ForbiddenError):
                    reader.manager("ann", "helper").add("more")
                with pytest.raises(ForbiddenError):
                    reader.manager("bob", "helper").count_memories()
                with pytest.raises(ForbiddenError):
                    reader.manager("ann", "helper").gdpr_delete_user_data("ann")
        assert holdfast.of_tenant("acme").manager("ann", "helper").count_memories() == 1


# --- what goes wrong --------------------------------------------------------------------------------------------------


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    said = {"detail": "not now", "code": code, "retryable": True}
    return httpx.Response(status, json=said, headers={"Retry-After": "0", **headers})


class Script:
    """Answers requests one after the other as it was told, and keeps them."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def connect(self, **options: Any) -> Connection:
        return connect("http://service", transport=httpx.MockTransport(self), **options)


DONE = httpx.Response(200, json={"result": 1})


def test_every_error_comes_back_as_the_class_that_the_engine_raises() -> None:
    for code in STATUSES:
        family = client_module.ERRORS[code]
        assert family.code == code
        with Script(problem(400, code)).connect(retries=0) as service, pytest.raises(family, match="not now"):
            service.manager("ann", "helper").count_memories()


def test_a_write_that_is_sent_again_has_the_same_idempotency_key() -> None:
    script = Script(httpx.ReadError("broken"), problem(503, "store_busy"), problem(429, "rate_limited"), DONE)
    with script.connect() as service:
        service.manager("ann", "helper").end_task()
        service.manager("ann", "helper").end_task() if script.answers else None
    assert len({request.headers["idempotency-key"] for request in script.requests}) == 1
    assert len({request.content for request in script.requests}) == 1
    assert len(script.requests) == 4


def test_a_write_is_done_once_though_its_answer_was_lost(engine: Holdfast, address: str) -> None:
    class Losing(httpx.HTTPTransport):
        """Loses the first answer."""

        lost = False

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = super().handle_request(request)
            if not self.lost:
                self.lost = True
                response.close()
                raise httpx.ReadError("the answer was lost")
            return response

    with connect(address, transport=Losing()) as service:
        service.manager("lou", "helper").add("Lou likes tea.")
    assert engine.manager("lou", "helper").count_memories() == 1


def test_attempts_are_bounded_and_a_long_wait_is_left_to_the_caller() -> None:
    busy = [problem(503, "store_busy") for _ in range(5)]
    script = Script(*busy)
    with script.connect(retries=2) as service, pytest.raises(HoldfastError, match="not now"):
        service.manager("ann", "helper").count_memories()
    assert len(script.requests) == 3
    script = Script(problem(429, "rate_limited", **{"Retry-After": "120"}), DONE)
    with script.connect() as service, pytest.raises(RateLimitedError):
        service.manager("ann", "helper").count_memories()
    assert len(script.requests) == 1


def test_what_will_not_succeed_is_not_sent_again() -> None:
    for code, family in (("stale", StaleError), ("not_found", NotFoundError)):
        answer = httpx.Response(409, json={"detail": "no", "code": code, "retryable": code == "stale"})
        script = Script(answer, DONE)
        with script.connect() as service, pytest.raises(family):
            service.manager("ann", "helper").get("x")
        assert len(script.requests) == 1


def test_nobody_is_told_that_a_write_failed_that_may_have_been_done() -> None:
    lost, away = httpx.ReadTimeout("late"), httpx.ConnectError("refused")
    with Script(away, away).connect(retries=1) as service, pytest.raises(StoreAwayError) as never_sent:
        service.manager("ann", "helper").end_task()
    assert never_sent.type is StoreAwayError
    with Script(lost, away).connect(retries=1) as service, pytest.raises(InDoubtError):
        service.manager("ann", "helper").end_task()
    with Script(lost, lost).connect(retries=1) as service, pytest.raises(StoreAwayError) as looked:
        service.manager("ann", "helper").count_memories()
    assert looked.type is StoreAwayError


def test_an_answer_that_is_not_the_services_is_no_surprise() -> None:
    gateway = httpx.Response(502, text="<html>Bad Gateway</html>", headers={"Retry-After": "0"})
    script = Script(gateway, DONE)
    with script.connect() as service:
        assert service.manager("ann", "helper").count_memories() == 1
    with Script(httpx.Response(418, text="tea")).connect() as service, pytest.raises(HoldfastError, match="418"):
        service.manager("ann", "helper").count_memories()


def test_a_connection_that_was_closed_says_so() -> None:
    service = Script().connect()
    service.close()
    with pytest.raises(ClosedError):
        service.manager("ann", "helper").count_memories()


def test_a_call_of_what_is_no_verb_is_refused(address: str) -> None:
    who = {"user_id": "ann", "agent_id": "helper"}
    with httpx.Client(base_url=address, trust_env=False) as http:
        for body in ({"verb": "__class__"}, {"verb": "remove_session"}, {"verb": "add"}):
            assert http.post("/v1/calls/read", json={**who, **body}).status_code == 422
        wrong = http.post("/v1/calls/read", json={**who, "verb": "get", "arguments": {"nonsense": 1}})
        assert wrong.status_code == 422
        assert json.loads(wrong.content)["code"] == "invalid_input"


def test_arguments_of_a_wrong_kind_are_no_servers_fault(address: str) -> None:
    who = {"user_id": "eve", "agent_id": "helper", "session_id": "s"}
    with httpx.Client(base_url=address, trust_env=False) as http:
        for verb in VERBS.values():
            for wrong in WRONG:
                body = {**who, "verb": verb.name, "arguments": dict.fromkeys(verb.signature.parameters, wrong)}
                answer = http.post(f"/v1/calls/{verb.right}", json=body)
                assert answer.status_code < 500, f"{verb.name}, {wrong!r}: {answer.text}"
