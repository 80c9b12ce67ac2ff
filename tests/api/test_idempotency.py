"""A write that comes again under its key is carried out once, and answered alike."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette

from api.client import Client
from clocks import FakeClock
from holdfast import Holdfast, HoldfastError, InDoubtError
from holdfast.edges.rest.app import build_app
from homes import ENGINES

WHO: dict[str, Any] = {"user_id": "alice", "agent_id": "guide"}
TEA = {**WHO, "content": "Ann likes tea."}


def once(key: str, **more: str) -> dict[str, Any]:
    return {"headers": {"Idempotency-Key": key, **more}}


def count(holdfast: Holdfast, user: str = "alice") -> int:
    return holdfast.manager(user, "guide").count_memories()


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_same_request_under_the_same_key_is_carried_out_once(client: Client, holdfast: Holdfast) -> None:
    first = client.post("/v1/memories", TEA, **once("k1"))
    again = client.post("/v1/memories", TEA, **once("k1"))
    assert first.status_code == again.status_code == 201
    assert again.content == first.content
    assert again.headers["content-type"] == first.headers["content-type"]
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    assert count(holdfast) == 1
    assert client.post("/v1/memories", TEA, **once("k2")).json() != first.json()
    assert count(holdfast) == 2


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("change", ["delete", "keep_out", "correct"])
def test_a_reply_that_is_told_again_says_what_memories_say_now(client: Client, holdfast: Holdfast, change: str) -> None:
    memory = holdfast.manager("alice", "guide")
    gone = memory.add("Carl has ZEBRAWORD diabetes")["memory_id"]
    memory.add("Carl has diabetes of type two")
    new = {**WHO, "content": "Carl has diabetes", "similar": 9}
    change_it = {**WHO, "verb": "update", "arguments": {"memory_id": gone, "metadata": {"a": 2}}}
    export = {**WHO, "verb": "long_term.export_all", "arguments": {"user_id": "alice"}}
    requests: list[Any] = [
        ("POST", "/v1/memories", {"json": new, **once("k1")}),
        ("POST", "/v1/batch", {"json": {"items": [{"operation": "add_memory", "input": new}]}, **once("k2")}),
        ("POST", "/v1/calls/govern", {"json": export, **once("k3")}),
        ("PATCH", f"/v1/memories/{gone}", {"params": WHO, "json": {"metadata": {"a": 1}}, **once("k4")}),
        ("POST", "/v1/calls/write", {"json": change_it, **once("k5")}),
    ]
    first = [client.request(method, path, **options) for method, path, options in requests]
    assert [one.text for one in first if "ZEBRAWORD" not in one.text] == []
    if change == "correct":
        memory.correct(gone, "Carl has LIONWORD diabetes")
    else:
        memory.delete(gone, keep_out=change == "keep_out")
    again = [client.request(method, path, **options) for method, path, options in requests]
    assert [one.text for one in again if "ZEBRAWORD" in one.text] == []
    assert all("of type two" in one.text for one in again[:3]), "what is as it was is told"
    assert again[0].json()["memory_id"] == first[0].json()["memory_id"], "and so is what the caller has to know"
    if change == "correct":
        assert all("LIONWORD" in one.text for one in again)
        assert [one.headers.get("idempotency-replayed") for one in again] == ["true", None, "true", "true", "true"]
    else:
        assert [one.status_code for one in again] == [201, 200, 200, 404, 404]


def test_what_a_text_was_corrected_to_is_told_again_as_it_is_now(client: Client, holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "guide")
    corrected = memory.add("Ann lives in Leeds")["memory_id"]
    memory.correct(corrected, "Ann lives in Lyon")
    asked = {**WHO, "content": "Ann lives in Leeds", "dedupe": True}
    first = client.post("/v1/memories", asked, **once("k1")).json()
    assert first["corrected_to"] == "Ann lives in Lyon"
    memory.correct(corrected, "Ann lives in Paris")
    assert client.post("/v1/memories", asked, **once("k1")).json() == {**first, "corrected_to": "Ann lives in Paris"}
    memory.delete(corrected)
    del first["corrected_to"]
    assert client.post("/v1/memories", asked, **once("k1")).json() == first


@pytest.mark.parametrize("engine_name", ENGINES)
def test_of_many_at_once_one_is_carried_out(client: Client, holdfast: Holdfast) -> None:
    requests = [("POST", "/v1/memories", {"json": TEA, **once("k1")}) for _ in range(12)]
    answers = client.together(*requests)
    done = [one for one in answers if one.status_code == 201]
    assert len(done) == 12, "whoever comes meanwhile waits for the first one's reply"
    assert len({one.content for one in done}) == 1
    assert [one.headers.get("idempotency-replayed") for one in done].count("true") == 11
    assert count(holdfast) == 1


def test_a_key_is_for_one_request(client: Client, holdfast: Holdfast) -> None:
    assert client.post("/v1/memories", TEA, **once("k1")).status_code == 201
    others = [
        ("POST", "/v1/memories", {"json": {**TEA, "content": "Ann likes milk."}, **once("k1")}),
        ("POST", "/v1/memories:batch", {"json": {**WHO, "contents": ["Milk"]}, **once("k1")}),
        ("POST", "/v1/memories", {"json": TEA, **once("k1", **{"X-Holdfast-Tenant": "globex"})}),
        ("DELETE", "/v1/users/alice", {"params": {"confirm": True}, **once("k1")}),
    ]
    for method, path, options in others:
        response = client.request(method, path, **options)
        assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused"), path
    assert count(holdfast) == 1


def test_a_key_is_one_callers(holdfast: Holdfast) -> None:
    with Client(build_app(holdfast, keys_required=True)) as client:
        callers = [holdfast.access.create(name, rights=["write"], tenant="default")[1] for name in ("one", "other")]
        answers = [client.post("/v1/memories", TEA, **once("k1", Authorization=f"Bearer {key}")) for key in callers]
    assert [one.status_code for one in answers] == [201, 201]
    assert answers[0].json()["memory_id"] != answers[1].json()["memory_id"]
    assert count(holdfast) == 2


def test_what_failed_changed_nothing_and_may_be_tried_again(client: Client, holdfast: Holdfast) -> None:
    holdfast.quotas.set("long_term", max_memories=0, user_id="alice")
    assert client.post("/v1/memories", TEA, **once("k1")).status_code == 409
    assert client.post("/v1/memories", {**TEA, "content": ""}, **once("k2")).status_code == 422
    assert client.post("/v1/memories", content=b"{", **once("k3")).status_code == 422
    holdfast.quotas.set("long_term", max_memories=10, user_id="alice")
    for key in ("k1", "k2", "k3"):
        assert client.post("/v1/memories", TEA, **once(key)).status_code == 201
    assert count(holdfast) == 3


def test_after_a_day_a_key_may_be_used_again(client: Client, holdfast: Holdfast, clock: FakeClock) -> None:
    first = client.post("/v1/memories", TEA, **once("k1"))
    clock.advance(hours=23)
    assert client.post("/v1/memories", TEA, **once("k1")).content == first.content
    clock.advance(hours=2)
    assert client.post("/v1/memories", {**TEA, "content": "Milk"}, **once("k1")).status_code == 201
    assert count(holdfast) == 2


def test_every_kind_of_write_can_be_repeated(client: Client, holdfast: Holdfast, clock: FakeClock) -> None:
    one = client.post("/v1/memories", TEA).json()["memory_id"]
    writes: list[tuple[str, str, dict[str, Any]]] = [
        ("PATCH", f"/v1/memories/{one}", {"params": WHO, "json": {"content": "Milk"}}),
        ("DELETE", f"/v1/memories/{one}", {"params": WHO}),
        ("POST", f"/v1/memories/{one}/restore", {"params": WHO}),
        ("PUT", "/v1/tools/finder", {"json": {"description": "Finds"}}),
        ("POST", "/v1/sweeps", {"json": {}}),
        ("DELETE", "/v1/users/alice", {"params": {"confirm": True}}),
    ]
    for number, (method, path, options) in enumerate(writes):
        first, again = (client.request(method, path, **options, **once(f"k{number}")) for _ in range(2))
        assert first.status_code == again.status_code == 200, first.text
        assert first.content == again.content
        assert again.headers["idempotency-replayed"] == "true"
        clock.advance(minutes=1)


def test_a_key_on_a_question_means_nothing(client: Client) -> None:
    client.post("/v1/memories", TEA)
    for _ in range(2):
        response = client.get("/v1/memories", params=WHO, **once("k1"))
        assert "idempotency-replayed" not in response.headers
        assert len(response.json()["items"]) == 1


@pytest.mark.parametrize("key", ["", " ", "*", "a" * 201, "a\tb", "ключ".encode()])
def test_a_key_that_is_none_is_refused(client: Client, holdfast: Holdfast, key: Any) -> None:
    response = client.post("/v1/memories", TEA, headers={"Idempotency-Key": key})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_input")
    assert count(holdfast) == 0


# --- what nobody foresaw ----------------------------------------------------------------------------------------------


@pytest.fixture
def broken(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Starlette:
    """An engine of which one part fails in a way that is no error of ours, after it has done its work."""
    add = holdfast.tools.add

    def add_and_fail(*args: Any) -> Any:
        add(*args)
        raise ZeroDivisionError(f"inside of {holdfast.settings.home}")

    monkeypatch.setattr(holdfast.tools, "add", add_and_fail)
    return build_app(holdfast, keys_required=False)


def test_what_broke_off_has_done_nothing(broken: Starlette, holdfast: Holdfast) -> None:
    with Client(broken, lenient=True) as client:
        first = client.put("/v1/tools/finder", {"description": "Finds"}, **once("k1"))
        again = client.put("/v1/tools/finder", {"description": "Finds"}, **once("k1"))
    assert first.status_code == again.status_code == 500
    assert str(holdfast.settings.home) not in first.text
    assert first.json()["code"] == HoldfastError.code
    assert holdfast.tools.list() == [], "its effect and its reply are one transaction"


def test_long_work_that_broke_off_is_not_done_again(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_args: Any, **_options: Any) -> Any:
        raise ZeroDivisionError(f"inside of {holdfast.settings.home}")

    monkeypatch.setattr(Holdfast, "sweep", break_off)
    with Client(build_app(holdfast, keys_required=False), lenient=True) as client:
        first = client.post("/v1/sweeps", {}, **once("k1"))
        again = client.post("/v1/sweeps", {}, **once("k1"))
    assert first.status_code == again.status_code == 500
    assert first.content == again.content
    assert again.headers["idempotency-replayed"] == "true"


def test_what_is_in_doubt_can_be_sent_again(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    add = holdfast.tools.add

    def add_and_lose_the_answer(*args: Any) -> Any:
        add(*args)
        monkeypatch.setattr(holdfast.tools, "add", add)
        raise InDoubtError("the server broke off")

    monkeypatch.setattr(holdfast.tools, "add", add_and_lose_the_answer)
    with Client(build_app(holdfast, keys_required=False)) as client:
        first = client.put("/v1/tools/finder", {"description": "Finds"}, **once("k1"))
        there = holdfast.tools.list()
        again = client.put("/v1/tools/finder", {"description": "Finds"}, **once("k1"))
    assert (first.status_code, first.json()["code"], first.json()["retryable"]) == (504, "in_doubt", False)
    assert there == []
    assert again.status_code == 200
    assert len(holdfast.tools.list()) == 1


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_refusal_stays_on_the_record_and_is_not_the_keys_reply(client: Client, holdfast: Holdfast) -> None:
    one = client.post("/v1/memories", TEA).json()["memory_id"]
    hold = holdfast.holds.add(user_id="alice", reason="a suit", author="tests")
    assert client.delete(f"/v1/memories/{one}", params=WHO, **once("k1")).status_code == 423
    assert holdfast.audit.tail(1, user_id="alice")[0]["action"] == "refused"
    holdfast.holds.release(hold.id, author="tests")
    assert client.delete(f"/v1/memories/{one}", params=WHO, **once("k1")).status_code == 200


def test_what_only_looks_is_not_kept_and_nothing_kept_outlives_an_erasure(client: Client, holdfast: Holdfast) -> None:
    client.post("/v1/memories", TEA, **once("k1"))
    asked = {**WHO, "query": "tea"}
    assert "tea" in client.post("/v1/recall", asked, **once("k2")).text
    holdfast.erase_user("alice")
    assert client.post("/v1/recall", asked, **once("k2")).json()["items"] == []
    again = client.post("/v1/memories", TEA, **once("k1"))
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert "tea" not in again.text
    assert count(holdfast) == 0, "and it is not carried out again"
