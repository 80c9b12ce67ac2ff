"""The small HTTP client: patient within bounds, clear about what went wrong, and discreet about the key."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator

import pytest

from holdfast.core.errors import EmbedderError, EmbedderUnavailableError, InvalidSettingsError
from holdfast.recall.model_service import ATTEMPTS, MAX_WAIT, ModelService, Target, find_api_key, parse_target
from recall.scripted_service import Reply, ScriptedService, json_reply, scripted_service

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedService]:
    monkeypatch.setenv("no_proxy", "*")
    with scripted_service() as running:
        yield running


class Pauses(list[float]):
    """A sleep that only notes for how long."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


def client_of(url: str, pauses: Pauses, *, timeout: float = 10.0, key: str | None = KEY) -> ModelService:
    return ModelService(
        target=Target("m", url),
        api_key=key,
        failed=EmbedderError,
        unavailable=EmbedderUnavailableError,
        timeout=timeout,
        sleep=pauses,
    )


def test_a_request_is_posted_as_json_with_the_key_in_its_header(service: ScriptedService, pauses: Pauses) -> None:
    service.answer = lambda request: json_reply({"echo": request.body})
    assert client_of(service.url, pauses).post("/things", {"name": "Zoë"}) == {"echo": {"name": "Zoë"}}
    (request,) = service.requests
    assert request.path == "/v1/things"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.headers["Content-Type"] == "application/json"


def test_without_a_key_no_authorization_is_sent(service: ScriptedService, pauses: Pauses) -> None:
    client_of(service.url, pauses, key=None).post("/things", {})
    assert "Authorization" not in service.requests[0].headers


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_status_that_may_pass_is_tried_again(service: ScriptedService, pauses: Pauses, status: int) -> None:
    service.replies = [json_reply({}, status), json_reply({}, status)]
    service.answer = lambda _: json_reply("at last")
    assert client_of(service.url, pauses).post("/things", {}) == "at last"
    assert len(service.requests) == 3
    assert 0 < pauses[0] <= 0.5
    assert pauses[0] < 2 * pauses[1]


def test_trying_again_ends_and_says_what_the_service_said(service: ScriptedService, pauses: Pauses) -> None:
    service.answer = lambda _: json_reply({"error": {"message": "out of memory"}}, 500)
    with pytest.raises(EmbedderUnavailableError, match="answered 500: out of memory"):
        client_of(service.url, pauses).post("/things", {})
    assert len(service.requests) == ATTEMPTS
    assert len(pauses) == ATTEMPTS - 1


def test_retry_after_is_honoured_up_to_a_limit(service: ScriptedService, pauses: Pauses) -> None:
    service.replies = [json_reply({}, 429, Retry_After="2"), json_reply({}, 503, Retry_After="86400")]
    client_of(service.url, pauses).post("/things", {})
    assert pauses == [2.0, MAX_WAIT]


def test_a_retry_after_that_is_no_number_leaves_the_usual_pause(service: ScriptedService, pauses: Pauses) -> None:
    service.replies = [json_reply({}, 429, Retry_After=text) for text in ("Fri, 31 Dec 2066 23:59:59 GMT", "soon")]
    client_of(service.url, pauses).post("/things", {})
    assert len(pauses) == 2
    assert all(0 < pause <= MAX_WAIT for pause in pauses)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_final(service: ScriptedService, pauses: Pauses, status: int) -> None:
    service.answer = lambda _: json_reply({"error": {"message": "no such model"}}, status)
    with pytest.raises(EmbedderError, match=f"answered {status}: no such model") as caught:
        client_of(service.url, pauses).post("/things", {})
    assert not caught.value.retryable
    assert len(service.requests) == 1


def test_a_refused_connection_is_tried_again_and_then_unavailable(
    monkeypatch: pytest.MonkeyPatch, pauses: Pauses
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as vacated:
        port = vacated.getsockname()[1]
    with pytest.raises(EmbedderUnavailableError, match="cannot be reached"):
        client_of(f"http://127.0.0.1:{port}", pauses).post("/things", {})
    assert len(pauses) == ATTEMPTS - 1


@pytest.mark.parametrize("then", ["drop", "cut"])
def test_a_broken_connection_is_tried_again(service: ScriptedService, pauses: Pauses, then: str) -> None:
    service.replies = [Reply(b'"half of this is lost"', then=then)]
    service.answer = lambda _: json_reply("whole")
    assert client_of(service.url, pauses).post("/things", {}) == "whole"


@pytest.mark.parametrize("then", ["hang", "drip"])
def test_a_service_that_takes_too_long_is_unavailable_and_not_asked_again(
    service: ScriptedService, pauses: Pauses, then: str
) -> None:
    service.answer = lambda _: Reply(then=then)
    with pytest.raises(EmbedderUnavailableError, match=r"did not answer within 0\.1 s"):
        client_of(service.url, pauses, timeout=0.1).post("/things", {})
    assert len(service.requests) == 1
    assert pauses == []


def test_an_answer_that_is_no_json_is_an_error(service: ScriptedService, pauses: Pauses) -> None:
    service.answer = lambda _: Reply(b"<html>It works!</html>")
    with pytest.raises(EmbedderError, match="did not answer with JSON, but with '<html>It works!"):
        client_of(service.url, pauses).post("/things", {})


def test_an_answer_without_end_is_cut_off(
    service: ScriptedService, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.recall.model_service.MAX_ANSWER_BYTES", 100)
    service.answer = lambda _: json_reply("x" * 1_000)
    with pytest.raises(EmbedderError, match="more than 100 bytes"):
        client_of(service.url, pauses).post("/things", {})


def test_a_redirect_is_refused_so_that_the_key_stays_where_it_was_sent(
    service: ScriptedService, pauses: Pauses
) -> None:
    service.replies = [json_reply({}, 302, Location=f"{service.url}/elsewhere")]
    with pytest.raises(EmbedderError, match="answered 302"):
        client_of(service.url, pauses).post("/things", {})
    assert [request.path for request in service.requests] == ["/v1/things"]


@pytest.mark.parametrize("status", [200, 401, 500])
def test_the_key_is_in_no_message_and_no_repr(service: ScriptedService, pauses: Pauses, status: int) -> None:
    service.answer = lambda _: Reply(f"Incorrect API key provided: {KEY}".encode(), status)
    client = client_of(service.url, pauses)
    with pytest.raises(EmbedderError) as caught:
        client.post("/things", {})
    assert "***" in str(caught.value)
    told = "".join(traceback.format_exception(caught.value)) + repr(client) + str(vars(caught.value))
    assert KEY not in told


OPENAI = "https://api.openai.com/v1"


def test_the_api_key_of_holdfast_comes_before_the_general_one() -> None:
    both = {"HOLDFAST_OPENAI_API_KEY": " mine ", "OPENAI_API_KEY": "general"}
    assert find_api_key(both, OPENAI) == "mine"
    assert find_api_key({"OPENAI_API_KEY": "general", "HOLDFAST_OPENAI_API_KEY": ""}, OPENAI) == "general"
    assert find_api_key({}, OPENAI) is None


def test_a_key_that_was_meant_for_openai_is_sent_nowhere_else() -> None:
    for elsewhere in ("http://127.0.0.1:8080/v1", "https://api.openai.com.evil.example/v1", "https://openai.com/v1"):
        assert find_api_key({"OPENAI_API_KEY": "general"}, elsewhere) is None
        assert find_api_key({"HOLDFAST_OPENAI_API_KEY": "mine"}, elsewhere) == "mine"


@pytest.mark.parametrize("key", ["sk-two\nlines", "sk-ключ"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(InvalidSettingsError, match="HOLDFAST_OPENAI_API_KEY") as caught:
        find_api_key({"HOLDFAST_OPENAI_API_KEY": key}, OPENAI)
    assert key not in str(caught.value)


def test_a_target_is_a_model_and_an_address() -> None:
    assert parse_target("m@http://127.0.0.1:8080/v1/") == Target("m", "http://127.0.0.1:8080/v1")
    assert parse_target("org/m:v2@https://host/v1") == Target("org/m:v2", "https://host/v1")
    assert parse_target("@cf/baai/bge@https://host/v1") == Target("@cf/baai/bge", "https://host/v1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "m@",
        "@http://host",
        "m@host/v1",
        "m@ftp://host/v1",
        "m@http://",
        "m@http://host:port/v1",
        "m@http://host:99999/v1",
        "m@http://user:password@host/v1",
        "m@http://host/v1?key=1",
        "m@http://host/v1#part",
        "m@http://ho st/v1",
        "m@http://[::1/v1",
    ],
)
def test_what_is_not_a_model_and_an_address_is_no_target(text: str) -> None:
    assert parse_target(text) is None
