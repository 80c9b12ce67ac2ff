"""Attacks of one tenant's key on a service that runs: the others are answered all the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from service.served import Served, served

_USERS = 9
_MEMORIES = 12
_ATTACKERS = 45
_ASKED = 1
#: A filter as large as may be, on lists as long as may be: many seconds of work for each question.
_HEAVY = {"any": [{"tags": {"none": [f"t{number}"]}} for number in range(200)]}
_MANY = {"any": [{"x": number} for number in range(20_000)]}
_HUGE = {"any": [{"x": number} for number in range(100_000)]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A store of two tenants, each with a key that may read."""
    home = tmp_path_factory.mktemp("attacked") / "home"
    with Holdfast.open(home=home) as holdfast:
        tags = [f"t{number}" for number in range(20_000)]
        for user in range(_USERS):
            memory = holdfast.of_tenant("acme").manager(f"user{user}", "agent")
            for number in range(_MEMORIES):
                memory.add(f"Fact {number}", metadata={"tags": [*tags, f"own{number}"]})
        holdfast.of_tenant("other").manager("bob", "agent").add("Likes green tea")
        keys = {
            tenant: holdfast.access.create("reader", rights=["read"], tenant=tenant)[1] for tenant in ("acme", "other")
        }
    return home, keys


@pytest.fixture
def service(home: tuple[Path, dict[str, str]]) -> Iterator[Served]:
    with served(home[0], "--no-schedule", environ={"HOLDFAST_RATE_PER_SECOND": "0"}) as one:
        yield one


def question(user_id: str, filters: dict[str, Any] | None = None) -> bytes:
    asked = {"user_id": user_id, "agent_id": "agent", "query": "green tea", "filters": filters}
    return json.dumps(asked, separators=(",", ":")).encode()


def recall(client: httpx.Client, asked: bytes) -> httpx.Response:
    return client.post("/v1/recall", content=asked, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("filters", [_HUGE, _MANY, _HEAVY], ids=["too large", "too many", "as many as may be"])
def test_a_tenant_is_answered_while_a_read_key_of_another_attacks(
    service: Served, home: tuple[Path, dict[str, str]], filters: dict[str, Any]
) -> None:
    stop = threading.Event()
    questions = [question(f"user{number}", filters) for number in range(_USERS)]

    def attack(number: int) -> set[int]:
        found, asked = set(), questions[number % _USERS]
        with (
            suppress(httpx.TransportError),  # the service ends while it is attacked
            service.client(headers={"Authorization": f"Bearer {home[1]['acme']}"}) as client,
        ):
            while not stop.is_set():
                found.add(recall(client, asked).status_code)
        return found

    with ThreadPoolExecutor(_ATTACKERS) as attackers:
        running = [attackers.submit(attack, number) for number in range(_ATTACKERS)]
        with service.client(headers={"Authorization": f"Bearer {home[1]['other']}"}) as client:
            answers = [recall(client, question("bob")) for _ in range(_ASKED)]
        stop.set()
        service.process.kill()
        refused = set().union(*(one.result() for one in running))
    assert [answer.status_code for answer in answers] == [200] * _ASKED, [answer.text for answer in answers]
    assert all("Likes green tea" in answer.text for answer in answers)
    assert refused <= {413, 422, 429, 503}
