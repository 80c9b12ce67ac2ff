"""``holdfast serve``: one command, which answers, keeps its schedule running, keeps secrets, and stops in peace."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from bench.edges.clients import crowd, lost

from cli.shell import SCRIPT, Shell
from clocks import wait_until
from holdfast import Holdfast
from service.served import PATIENCE, Served, child_of, is_gone, served

WHOSE = {"user_id": "alice", "agent_id": "tests"}


@pytest.fixture(scope="module")
def home_of_service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "home"


@pytest.fixture(scope="module")
def service(home_of_service: Path) -> Iterator[Served]:
    """A service without keys, for all tests that leave it as it is."""
    with served(home_of_service) as one:
        yield one


def port_of(service: Served) -> int:
    return int(service.url.rpartition(":")[2])


def add(client: httpx.Client, content: str, **more: str) -> httpx.Response:
    return client.post("/v1/memories", json={**WHOSE, "content": content, **more})


# --- what is there ----------------------------------------------------------------------------------------------------


def test_everything_is_where_it_says(service: Served) -> None:
    service.wait_ready()
    assert service.where["keys_required"] is False
    with service.client() as client:
        assert client.get(service.where["health"]).json() == {"status": "ok"}
        assert client.get(service.where["docs"]).status_code == 200
        assert client.get("/openapi.json").json()["info"]["title"] == "Holdfast"
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        tools = client.post(service.where["mcp"], json=asked, headers={"Accept": "application/json, text/event-stream"})
        assert "memory_add" in {tool["name"] for tool in tools.json()["result"]["tools"]}
        assert add(client, "Likes green tea").status_code == 201
        found = client.post("/v1/recall", json={**WHOSE, "query": "tea"})
        assert "Likes green tea" in found.text
        metrics = client.get(service.where["metrics"]).text
    assert 'holdfast_http_requests_total{method="POST",route="/v1/memories",status="201"}' in metrics
    assert 'route="/mcp",status="200"' in metrics
    assert "holdfast_schedule_up 1.0" in metrics
    assert "_created" not in metrics


def test_a_page_of_another_site_gets_nowhere(service: Served) -> None:
    with service.client() as client:
        assert client.get("/v1/memories", headers={"Host": "evil.example"}).json()["code"] == "forbidden"
        refused = client.post(
            "/v1/memories", json={**WHOSE, "content": "x"}, headers={"Origin": "https://evil.example"}
        )
        assert refused.json()["code"] == "forbidden"
        assert add(client, "x").headers.get("access-control-allow-origin") is None


def test_what_is_no_http_is_refused_and_harms_nobody(service: Served) -> None:
    port = port_of(service)
    for nonsense in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /v1/memories HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw:
            raw.sendall(nonsense)
            assert raw.recv(100).startswith(b"HTTP/1.1 400")
    with service.client() as client:
        assert client.get("/healthz").status_code == 200


_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
_TRAILER = _HEAD.replace(b"GET /", b"POST /v1/recall") + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@pytest.mark.parametrize("before", [_HEAD, _TRAILER], ids=["head", "trailer"])
def test_headers_without_end_are_cut_off(service: Served, before: bytes) -> None:
    address = ("127.0.0.1", port_of(service))
    with socket.create_connection(address, timeout=PATIENCE) as raw, suppress(ConnectionError):
        raw.sendall(before + b"X-Long: ")
        for _ in range(4_096):
            raw.sendall(b"x" * 65_536)
        pytest.fail("a header of 256 MiB was taken")


def test_fifty_clients_at_once_lose_nothing(service: Served, home_of_service: Path) -> None:
    found = asyncio.run(crowd(port_of(service), clients=50, seconds=2))
    assert found.errors == []
    assert len({memory_id for _, memory_id in found.written}) == len(found.written) >= 50
    with Holdfast.open(home=home_of_service) as holdfast:
        assert lost(holdfast, found.written) == []


# --- the process beside it --------------------------------------------------------------------------------------------


def test_a_schedule_that_is_killed_is_seen_and_started_again(service: Served) -> None:
    service.wait_ready()
    first = child_of(service.process.pid)
    os.kill(first, signal.SIGKILL)
    with service.client() as client:
        wait_until(lambda: "holdfast_schedule_restarts_total 1.0" in client.get("/metrics").text)
        wait_until(lambda: "holdfast_schedule_up 1.0" in client.get("/metrics").text)
    service.wait_ready()
    assert child_of(service.process.pid) != first
    assert any("ended by signal 9" in line["message"] for line in service.log)


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_stop_finishes_what_is_in_flight_and_the_schedule(service: Served) -> None:
    """The last test of this service: it ends."""
    service.wait_ready()
    child = child_of(service.process.pid)
    port = port_of(service)
    bodies = [json.dumps({**WHOSE, "content": f"Arrived {'at last ' * times}"}).encode() for times in (1, 1_000)]
    with ExitStack() as open_ones:
        halves = []
        for body in bodies:  # what is small begins when all of it is here, what is large at once
            half = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            halves.append(open_ones.enter_context(half))
            head = f"POST /v1/memories HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            half.sendall(head.encode() + body[:10])
        with service.client() as client:
            wait_until(lambda: "holdfast_http_requests_in_flight 2.0" in client.get("/metrics").text)
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(port))
        for half, body in zip(halves, bodies, strict=True):
            half.sendall(body[10:])
            answer = half.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 201"), answer
    assert service.ended() == 0
    assert is_gone(child)
    assert service.log[-1]["message"] == "stopped"
    assert service.log[-1]["by"] == "SIGTERM"
    assert not [
        line for line in service.log if line["level"] in {"error", "critical"} and "signal 9" not in line["message"]
    ]


def refuses(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return False
    except OSError:
        return True


# --- keys and secrets -------------------------------------------------------------------------------------------------


def test_with_keys_everyone_is_asked_and_no_secret_is_logged(home: Path) -> None:
    with Holdfast.open(home=home) as holdfast:
        _, secret = holdfast.access.create("tests", rights=["write"], tenant="acme")
    with served(home, "--no-schedule", "--host", "0.0.0.0", environ={"HOLDFAST_RATE_PER_SECOND": "3"}) as service:  # noqa: S104
        assert service.where["keys_required"] is True
        with service.client() as client, service.client(headers={"Authorization": f"Bearer {secret}"}) as keyed:
            assert add(client, "x").json()["code"] == "unauthenticated"
            assert add(keyed, f"planted {secret}").status_code == 201
            assert keyed.get("/v1/memories", params={**WHOSE, "key": secret}).status_code == 422
            assert client.get(f"/v1/{secret}", headers={"X-API-Key": secret}).status_code == 404
            statuses = [keyed.get("/v1/memories", params=WHOSE) for _ in range(12)]
            refused = next(one for one in statuses if one.status_code == 429)
            assert refused.json()["code"] == "rate_limited"
            assert int(refused.headers["retry-after"]) >= 1
        assert service.end(signal.SIGINT) == 0
    assert secret not in "".join(service.lines)
    assert secret.split("_", 2)[2] not in "".join(service.lines)
    assert "planted" not in "".join(service.lines)
    requests = [line for line in service.log if line["message"] == "request"]
    assert {line["key_id"] for line in requests if line["status"] == 201} == {key_id_of(secret)}


def key_id_of(secret: str) -> str:
    text = secret.split("_")[1]
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# --- what is refused beforehand ---------------------------------------------------------------------------------------


@pytest.fixture
def shell(home: Path) -> Shell:
    return Shell(home)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_without_keys_other_machines_are_not_served(shell: Shell, host: str) -> None:
    code, error = shell.error("serve", "--host", host, "--check", "--port", "0")
    assert (code, error["code"]) == (1, "forbidden")
    assert "holdfast access create" in error["message"]


def test_once_there_was_a_key_nobody_comes_in_without_one(shell: Shell, home: Path) -> None:
    with Holdfast.open(home=home) as holdfast:
        key, _ = holdfast.access.create("tests", rights=["read"], tenant="default")
        holdfast.access.revoke(key.id)
    check = ("serve", "--check", "--port", "0")
    assert shell.json(*check)["keys_required"] is True
    assert shell.json(*check, "--keyless")["keys_required"] is False
    assert "Make a key" not in shell.ok(*check, "--keyless")
    code, error = shell.error(*check, "--keyless", "--host", "0.0.0.0")  # noqa: S104
    assert (code, error["code"]) == (1, "forbidden")


def test_a_port_that_is_taken_is_told(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, error = shell.error("serve", "--check", "--port", str(taken.getsockname()[1]))
    assert (code, error["code"]) == (2, "invalid_settings")
    assert "--port" in error["message"]


@pytest.mark.parametrize(
    "options", [("--port", "65536"), ("--port", "-1"), ("--host", "no such host"), ("--log-format", "xml")]
)
def test_what_makes_no_sense_is_refused(shell: Shell, options: tuple[str, ...]) -> None:
    assert shell("serve", "--check", *options).exit_code == 2


def test_a_check_opens_everything_and_serves_nothing(shell: Shell) -> None:
    said = shell.json("serve", "--check", "--port", "0")
    assert said["url"].startswith("http://127.0.0.1:")
    assert "No API keys are asked for" in shell.ok("serve", "--check", "--port", "0")
    assert "is not run here" in shell.ok("serve", "--check", "--port", "0", "--no-schedule")


def test_without_its_extra_it_says_what_to_install(home: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from holdfast.edges.cli import main\n"
        f"sys.argv = ['holdfast', 'serve', '--check', '--home', {str(home)!r}]\n"
        "main()"
    )
    done = subprocess.run(
        [SCRIPT.with_name("python"), "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "install it with: pip install" in done.stderr
    assert "[server]" in done.stderr
