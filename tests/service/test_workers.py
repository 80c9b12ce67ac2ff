"""Several processes serve one address: they are one service, whichever of them answers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from bench.edges.clients import crowd, lost
from prometheus_client import CollectorRegistry, Counter, Gauge

import databases
from clocks import wait_until
from holdfast import Holdfast
from holdfast.edges.service.limits import BURST_SECONDS
from holdfast.edges.service.scheduler import ProcessState
from holdfast.edges.service.workers import Shared
from service.served import Served, is_gone, served

WHO = {"user_id": "alice", "agent_id": "guide"}


# --- what workers share -----------------------------------------------------------------------------------------------


def test_callers_have_one_rate_whichever_worker_they_meet(tmp_path: Path) -> None:
    one, other = (Shared(tmp_path, number).buckets(0.001) for number in range(2))
    assert one.wait("ann") == other.wait("ann") == 0
    one.take("ann")
    assert other.wait("ann") > 0
    assert other.wait("bob") == 0
    other.take("ann", 5)
    assert one.wait("ann") > 900
    assert len(one) == len(other) == 1


def test_more_callers_than_there_is_room_for_push_out_those_who_are_quiet(tmp_path: Path) -> None:
    buckets = Shared(tmp_path, 0).buckets(0.001)
    for number in range(17_000):
        buckets.take(f"caller {number}")
    assert buckets.wait("caller 16999") > 0


def test_requests_at_work_are_counted_in_all_workers_and_not_of_one_that_died(tmp_path: Path) -> None:
    one, other = (Shared(tmp_path, number).tally() for number in range(2))
    one.add(3)
    other.add(2)
    other.add(-1)
    assert one.count() == other.count() == 4
    again = Shared(tmp_path, 0).tally()
    assert again.count() == other.count() == 1


def test_metrics_of_workers_are_those_of_one_service(tmp_path: Path) -> None:
    def note(pid: int, requests: int) -> CollectorRegistry:
        registry = CollectorRegistry()
        Counter("asked", "Requests.", registry=registry).inc(requests)
        Gauge("at_work", "At work.", registry=registry).set(1)
        Gauge("holdfast_info", "1.", registry=registry).set(1)
        shared.note_metrics(registry)
        if pid != os.getpid():
            (tmp_path / f"metrics-{os.getpid()}").rename(tmp_path / f"metrics-{pid}")
        return registry

    shared = Shared(tmp_path, 0)
    state = ProcessState(1, ready=True, restarts=0, trouble=None)
    shared.tell(None, [state])
    note(1, 10)  # another worker
    note(2, 100)  # one that has ended
    said = shared.write_metrics(note(os.getpid(), 1)).decode()
    assert "asked_total 111.0" in said
    assert "at_work 2.0" in said
    assert "holdfast_info 1.0" in said


# --- a service of two -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("workers")
    with Holdfast.open(home=home) as holdfast:
        _, secret = holdfast.access.create("test", rights=["admin"], tenant="*")
    (home / "key").write_text(secret)
    return home


@pytest.fixture(scope="module")
def service(home: Path) -> Iterator[Served]:
    with served(home, "--workers", "2", environ={"HOLDFAST_RATE_PER_SECOND": "40"}) as one:
        yield one


def client_of(service: Served, home: Path) -> httpx.Client:
    return service.client(headers={"Authorization": f"Bearer {(home / 'key').read_text()}"})


def children(pid: int) -> set[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for file in files for child in file.read_text().split()}


def asked(text: str, route: str) -> int:
    found = re.findall(rf'holdfast_http_requests_total{{method="\w+",route="{route}",status="\d+"}} ([\d.]+)', text)
    return sum(int(float(one)) for one in found)


def test_a_write_that_comes_again_to_another_worker_is_done_once(service: Served, home: Path) -> None:
    ids = set()
    for _ in range(8):  # a connection each, so that both workers are asked
        with client_of(service, home) as client:
            headers = {"Idempotency-Key": "k1"}
            answer = client.post("/v1/memories", json={**WHO, "content": "Ann likes tea."}, headers=headers)
            ids.add(answer.json()["memory_id"])
    assert len(ids) == 1


def test_metrics_and_readiness_are_those_of_the_whole_service(service: Served, home: Path) -> None:
    wait_until(lambda: service.ready() == {"status": "ready", "checks": dict.fromkeys(("service", "store", "schedule", "workers"), "ok")})  # fmt: skip
    with client_of(service, home) as client:
        before = asked(client.get("/metrics").text, "/v1/me")
    for _ in range(10):
        with client_of(service, home) as client:
            assert client.get("/v1/me").status_code == 200
    with client_of(service, home) as client:
        wait_until(lambda: asked(client.get("/metrics").text, "/v1/me") == before + 10)
        said = client.get("/metrics").text
    assert "holdfast_workers 2.0" in said
    assert "holdfast_schedule_up 1.0" in said


def test_a_key_has_one_rate_at_all_workers(service: Served, home: Path) -> None:
    with Holdfast.open(home=home) as holdfast:
        _, secret = holdfast.access.create("eager", rights=["read"], tenant="default")

    async def ask() -> list[int]:
        some_at_once = asyncio.Semaphore(20)  # the client looks at all that wait whenever one of them is answered
        headers = {"Authorization": f"Bearer {secret}", "Connection": "close"}

        async def get(client: httpx.AsyncClient) -> int:
            async with some_at_once:
                return (await client.get("/v1/me", headers=headers)).status_code

        async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as client:
            return await asyncio.gather(*(get(client) for _ in range(400)))

    began = time.monotonic()
    statuses = asyncio.run(ask())
    most = 40 * (BURST_SECONDS + time.monotonic() - began) + 1
    assert set(statuses) == {200, 429}
    assert 40 < statuses.count(200) <= most


def test_a_worker_that_is_killed_is_started_again_and_nothing_is_lost(service: Served, home: Path) -> None:
    with client_of(service, home) as client:
        added = client.post("/v1/memories", json={**WHO, "content": "Kept."}).json()["memory_id"]
        before = children(service.process.pid)
        assert len(before) == 3, "two workers and the schedule"
        wait_until(lambda: "holdfast_workers 2.0" in client.get("/metrics").text)
    victim = next(pid for pid in before if b"service.run" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: is_gone(victim))

    def is_back() -> bool:
        try:
            with client_of(service, home) as client:
                said = client.get("/metrics").text
        except httpx.HTTPError:
            return False
        return "holdfast_workers 2.0" in said and "holdfast_workers_restarts_total 1.0" in said

    wait_until(is_back)
    with client_of(service, home) as client:
        assert client.get(f"/v1/memories/{added}", params=WHO).status_code == 200


def test_a_stop_ends_all_of_them(service: Served) -> None:
    """The last test of this service: it ends."""
    pids = children(service.process.pid)
    assert service.end() == 0
    wait_until(lambda: all(map(is_gone, pids)))
    assert service.log[-1]["message"] == "stopped"


def test_workers_end_with_the_process_that_started_them_and_lose_nothing_on_postgresql(tmp_path: Path) -> None:
    database = databases.take()
    try:
        with served(tmp_path, "--workers", "2", environ={"HOLDFAST_URL": database.url}) as service:
            found = asyncio.run(crowd(int(service.url.rpartition(":")[2]), clients=20, seconds=1))
            assert found.errors == []
            pids = children(service.process.pid)
            assert len(pids) == 3
            service.process.kill()
            service.ended()
            wait_until(lambda: all(map(is_gone, pids)))
        with Holdfast.open(database.url, home=tmp_path) as holdfast:
            assert lost(holdfast, found.written) == []
    finally:
        databases.give_back(database)
