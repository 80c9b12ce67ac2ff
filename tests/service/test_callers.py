"""Who is answered without a key, and what browsers are told: a web page cannot use the service of whoever visits it."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from holdfast.core.errors import InvalidSettingsError
from holdfast.edges.service.loopback import LocalOnly, is_local, is_loopback, resolves_to_loopback
from holdfast.edges.service.request_log import RequestLog, Traffic
from service.asking import REMOTE, ask, scope_of


async def fine(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("fine")(scope, receive, send)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8422", "localhost:1", "[::1]:8422", "LOCALHOST", "a.localhost"]
)
def test_programs_on_this_machine_are_answered(host: str) -> None:
    assert ask(LocalOnly(fine), headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8422"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example"},
        {"host": ""},
        {"host": "[::1"},
        {"host": "127.0.0.1@evil.example"},
        {"host": "10.0.0.1"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "null"},
        {"origin": "http://["},
        {"x-forwarded-for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_what_a_web_page_or_a_proxy_sends_is_refused(headers: dict[str, str]) -> None:
    answer = ask(LocalOnly(fine), method="POST", headers=headers)
    assert (answer.status, answer.code) == (403, "forbidden")
    assert "holdfast access create" in answer.json["detail"]


@pytest.mark.parametrize("hosts", [[], [b"localhost", b"evil.example"]])
def test_a_request_without_a_host_or_with_two_is_refused(hosts: list[bytes]) -> None:
    async def with_hosts(scope: Scope, receive: Receive, send: Send) -> None:
        await LocalOnly(fine)({**scope, "headers": [(b"host", host) for host in hosts]}, receive, send)

    assert ask(with_hosts).status == 403


def test_a_link_to_here_can_be_followed() -> None:
    assert ask(LocalOnly(fine), headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status == 200


def test_a_page_of_the_service_itself_is_answered() -> None:
    headers = {"origin": "http://127.0.0.1:8422", "sec-fetch-site": "same-origin"}
    assert ask(LocalOnly(fine), method="POST", headers=headers).status == 200


def test_a_caller_is_local_only_if_nobody_passed_it_on() -> None:
    assert is_local(scope_of())
    assert is_local(scope_of(client="::1"))
    assert not is_local(scope_of(client=REMOTE))
    assert not is_local(scope_of(headers={"X-Forwarded-For": "127.0.0.1"}))
    assert not is_local({**scope_of(), "client": None})


def test_names_to_listen_at_are_looked_up() -> None:
    assert resolves_to_loopback("127.0.0.1")
    assert resolves_to_loopback("localhost")
    assert not resolves_to_loopback("0.0.0.0")  # noqa: S104 - that is the question
    assert not is_loopback("0.0.0.0")  # noqa: S104
    with pytest.raises(InvalidSettingsError, match="not known here"):
        resolves_to_loopback("no such host")


def test_every_answer_tells_browsers_to_be_careful() -> None:
    headers = ask(RequestLog(fine, Traffic()), "/v1/memories").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'; frame-ancestors 'none'")


@pytest.mark.parametrize("path", ["/", "/docs", "/docs/other", "/console", "/console/users"])
def test_pages_may_run_their_own_scripts_and_no_others(path: str) -> None:
    policy = ask(RequestLog(fine, Traffic()), path).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy


@pytest.mark.parametrize("path", ["/docsx", "/v1/docs", "//docs", ""])
def test_what_merely_looks_like_a_page_is_none(path: str) -> None:
    assert "script-src" not in ask(RequestLog(fine, Traffic()), path).headers["content-security-policy"]


def test_what_the_app_says_about_caching_stays() -> None:
    async def cached(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("", headers={"Cache-Control": "max-age=60"})(scope, receive, send)

    assert ask(RequestLog(cached, Traffic())).headers["cache-control"] == "max-age=60"
