"""What can be done with the API, from the first memory to the last; every route is used, and every answer is held
against the documentation."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

import notes_part
from api.client import Client
from api.contract import check_contract
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.edges.rest.description import describe
from holdfast.edges.rest.routes import route_table
from homes import ENGINES

WHO: dict[str, Any] = {"user_id": "alice", "agent_id": "guide"}


class Traveller:
    """A client that holds every answer against the documentation, and remembers what it has used."""

    def __init__(self, client: Client, api: dict[str, Any], clock: FakeClock) -> None:
        self._client = client
        self._api = api
        self.clock = clock
        self.used: set[str] = set()

    def ask(self, method: str, path: str, body: Any = None, *, status: int = 200, **query: Any) -> Any:
        options = {} if body is None else {"json": body}
        response = self._client.request(method, f"/v1{path}", params=query, **options)
        name = check_contract(self._api, response)
        assert response.status_code == status, response.text
        if status < 400:
            self.used.add(name)
        if response.headers["content-type"] == "application/x-ndjson":
            return [json.loads(line) for line in response.text.splitlines()]
        return response.content if "zip" in response.headers["content-type"] else response.json()

    def add(self, content: Any, **more: Any) -> str:
        added = self.ask("POST", "/memories", {**WHO, "content": content, **more}, status=201)
        return str(added["memory_id"])


@pytest.mark.parametrize("engine_name", ENGINES)
def test_every_route_does_what_it_says(
    app: Starlette, client: Client, clock: FakeClock, holdfast: Holdfast, tmp_path: Path
) -> None:
    holdfast.parts.add(notes_part.KIND, f"sqlite:///{tmp_path}/notes.db")
    traveller = Traveller(client, describe(keys_required=False), clock)
    for journey in (
        release_a_part,
        remember_and_recall,
        look_through,
        correct_and_revert,
        delete_and_restore,
        keep_out_and_lift,
        tell_what_differs,
        talk,
        go_through_a_task,
        change_rules,
        sweep,
        hold,
        know_agents_and_tools,
        limit,
        sort_resources,
        back_up,
        look_at_what_runs,
        forget_a_source,
        call_verbs,
        hand_out_and_erase,
        look_at_the_record,
    ):
        journey(traveller)
    assert {route.name for route in route_table()} - traveller.used == set(), "these routes are not tried"


def release_a_part(api: Traveller) -> None:
    assert [one["part_type"] for one in api.ask("GET", "/parts")["items"]] == ["notes"]
    assert api.ask("DELETE", "/parts/notes")["name"] == "notes"
    assert api.ask("GET", "/parts")["items"] == []
    api.ask("DELETE", "/parts/notes", status=404)


def remember_and_recall(api: Traveller) -> None:
    tea = api.add("Ann likes green tea.", metadata={"topic": "drinks"})
    many = api.ask("POST", "/memories:batch", {**WHO, "contents": ["Ann lives in Leeds.", "Ann rows."]}, status=201)
    made = api.add("Ann drinks tea in Leeds.", derived_from=[tea], source="import:crm")
    assert len(many["memory_ids"]) == 2

    found = api.ask("POST", "/recall", {**WHO, "query": "What does Ann drink?", "explain": True})["items"]
    assert tea in {one["memory_id"] for one in found}
    for one in found:
        *parts, evidence = one["explanation"].values()
        assert sum(parts) == pytest.approx(evidence, abs=1e-4)
    best, *_, least = (one["score"] for one in found)
    question = {**WHO, "query": "What does Ann drink?", "min_score": (best + least) / 2}
    assert 0 < len(api.ask("POST", "/recall", question)["items"]) < len(found)
    api.ask("POST", "/recall", {**question, "min_score": 1.5}, status=422)
    every = api.ask("POST", "/recall", {**WHO, "query": "What does Ann drink?", "memory_types": "all"})["items"]
    assert tea in {one["memory_id"] for one in every}
    block = api.ask("POST", "/context", {**WHO, "query": "What does Ann drink?", "max_tokens": 60})
    assert [f"[{one['memory_id'][-8:]} " in block["text"] for one in block["memories"]] == [True]
    assert 0 < block["tokens"] <= 60
    assert "does not fit" in block["left_out"][0]["reason"]
    filtered = api.ask("GET", "/memories", **WHO, filters='{"topic": "drinks"}')["items"]
    assert [one["memory_id"] for one in filtered] == [tea]
    assert [one["memory_id"] for one in api.ask("GET", "/memories", **WHO, source="import:crm")["items"]] == [made]

    changed = api.ask("PATCH", f"/memories/{tea}", {"content": "Ann likes white tea."}, **WHO)
    assert changed["metadata"] == {"topic": "drinks"}
    assert api.ask("GET", f"/memories/{tea}", **WHO)["content"] == "Ann likes white tea."
    assert [one["memory_id"] for one in api.ask("GET", f"/memories/{tea}/derived", **WHO)["items"]] == [made]
    assert api.ask("GET", f"/memories/{tea}/explain", **WHO)["next"]["action"] == "archive"
    rules = api.ask("GET", "/rules", **WHO)
    assert {one["memory_type"]: one for one in rules["kinds"]}["long_term"]["archive_after_days"] == 365
    assert api.ask("GET", "/me")["operator"] is True

    asked = [{"operation": "get_memory", "input": {**WHO, "memory_id": one}} for one in (tea, "none")]
    assert [one["status"] for one in api.ask("POST", "/batch", {"items": asked})["items"]] == [200, 404]

    assert api.ask("GET", "/sessions/threads", user_id="alice")["items"] == []
    called = {"verb": "add", "arguments": {"content": "Ann knits."}}
    assert api.ask("POST", "/calls/write", {**WHO, **called})["result"]["operation"] == "add"
    assert api.ask("POST", "/calls/read", {**WHO, "verb": "count_memories"})["result"] >= 4
    assert api.ask("POST", "/calls/govern", {**WHO, "verb": "kept_out"})["result"] == []

    for kind, content in (("structured", {"no": 7}), ("persona", "Speaks plainly."), ("entity", "Ann")):
        one = api.add(content, memory_type=kind)
        assert api.ask("GET", f"/memories/{one}", **WHO)["memory_type"] == kind


def look_through(api: Traveller) -> None:
    first, *others = api.ask("GET", "/users/alice/memories", limit=2)["items"]
    assert len(others) == 1
    assert api.ask("GET", f"/users/alice/memories/{first['memory_id']}")["memory_id"] == first["memory_id"]
    assert api.ask("GET", "/users/alice/facets")["kinds"]["long_term"] >= 2


def correct_and_revert(api: Traveller) -> None:
    home = api.add("Ann lives in York.", key="home_city")
    api.clock.advance(hours=1)
    before = api.clock().isoformat()
    api.clock.advance(hours=1)
    told = {"content": "Ann lives in Hull.", "reason": "She moved."}
    assert api.ask("POST", f"/memories/{home}/correct", told, **WHO)["version"] == 2
    assert api.ask("GET", f"/memories/{home}", **WHO)["content"] == "Ann lives in Hull."
    assert api.ask("GET", f"/memories/{home}", **WHO, as_of=before)["content"] == "Ann lives in York."
    ended, current = api.ask("GET", "/history", **WHO, key="home_city")["items"]
    assert (ended["version"], ended["content"], ended["reason"]) == (1, "Ann lives in York.", "She moved.")
    assert (current["version"], current["content"], current["ended_at"]) == (2, "Ann lives in Hull.", None)
    assert ended["ended_at"] == current["started_at"] > before

    assert api.ask("POST", f"/memories/{home}/revert", {"to": 1}, **WHO)["version"] == 3
    assert api.ask("GET", f"/memories/{home}", **WHO)["content"] == "Ann lives in York."
    versions = api.ask("GET", "/history", **WHO, memory_id=home)["items"]
    assert [one["content"] for one in versions] == [f"Ann lives in {city}." for city in ("York", "Hull", "York")]
    assert versions[1]["reason"] == "reverted to version 1"
    assert api.add("Ann lives in Bath.", key="home_city") == home, "what goes by a key says this from now on"
    assert len(api.ask("GET", "/history", **WHO, key="home_city")["items"]) == 4

    api.ask("POST", f"/memories/{home}/correct", {"content": ""}, **WHO, status=422)
    api.ask("POST", "/memories/nothing/correct", told, **WHO, status=404)
    api.ask("POST", f"/memories/{home}/revert", {"to": 99}, **WHO, status=404)
    api.ask("POST", f"/memories/{home}/revert", {"to": 0}, **WHO, status=422)
    api.ask("GET", "/history", **WHO, key="nothing", status=404)
    api.ask("GET", "/history", **WHO, status=422)
    assert len(api.ask("GET", "/history", **WHO, memory_id=home)["items"]) == 4, "what is refused changes nothing"


def delete_and_restore(api: Traveller) -> None:
    one = api.add("Ann is left-handed.")
    with_it = api.add("Ann needs other scissors.", derived_from=[one])
    gone = api.ask("DELETE", f"/memories/{one}", **WHO, with_derived=True)
    assert gone["deleted_with"] == [with_it]
    api.ask("GET", f"/memories/{one}", **WHO, status=404)
    assert api.ask("POST", f"/memories/{one}/restore", **WHO)["restored_with"] == [with_it]
    api.ask("POST", f"/memories/{one}/restore", **WHO, status=409)

    api.ask("DELETE", f"/memories/{one}", **WHO)
    assert one in {item.get("memory_id") for item in api.ask("GET", "/recycle", user_id="alice")["items"]}
    assert api.ask("POST", "/recycle/restore", {"memory_id": one}) == {"restored": 1}

    api.add("Ann likes chess.", user_id="carol")
    assert api.ask("DELETE", "/users/carol/memories", memory_type="long_term") == {"count": 1}
    api.clock.advance(days=16)
    assert api.ask("POST", "/recycle/purge")["purged"] == {"long_term": 1}


def keep_out_and_lift(api: Traveller) -> None:
    whose = {**WHO, "user_id": "dora"}
    ill = api.add("Dora was ill in May.", user_id="dora")
    same = api.add("DORA was ill in May!", user_id="dora", agent_id="other")
    gone = api.ask("DELETE", f"/memories/{ill}", **whose, keep_out=True)
    assert (gone["kept_out"], gone["deleted_with"]) == (True, [same])
    (kept,) = api.ask("GET", "/kept-out", **whose)["items"]
    assert (kept["memory_id"], kept["kept_out_at"]) == (ill, api.clock().isoformat())
    assert "May" not in str(kept), "the text itself is not kept"
    assert api.ask("GET", "/kept-out", **WHO)["items"] == [], "it is out for this user only"
    again = api.ask("POST", "/memories", {**whose, "content": "dora was ILL in May"}, status=201)
    assert (again["operation"], again["memory_id"]) == ("kept_out", ill), "nothing was added"
    assert api.ask("POST", f"/memories/{ill}/restore", **whose, status=409)["code"] == "kept_out"
    assert api.ask("GET", "/memories", **whose)["items"] == []

    lifted = api.ask("POST", f"/memories/{ill}/lift", **whose)
    assert lifted == {"memory_id": ill, "operation": "lift"}
    assert api.ask("GET", "/kept-out", **whose)["items"] == []
    assert api.ask("POST", f"/memories/{ill}/restore", **whose)["content"] == "Dora was ill in May."
    api.ask("POST", f"/memories/{ill}/lift", **whose, status=404)


def tell_what_differs(api: Traveller) -> None:
    whose = {**WHO, "user_id": "emil"}
    others = ["The car is red", "Skiing was great", "Two cats at home", "His sister plays the piano"]
    api.ask("POST", "/memories:batch", {**whose, "contents": others}, status=201)
    older = api.add("Emil lives in Paris", user_id="emil")
    again = api.ask("POST", "/memories", {**whose, "content": "emil lives in PARIS.", "dedupe": True}, status=201)
    assert (again["operation"], again["memory_id"]) == ("exists", older)
    added = api.ask("POST", "/memories", {**whose, "content": "Emil lives in Lyon", "similar": 3}, status=201)
    assert [one["memory_id"] for one in added["similar"]] == [older]

    (pair,) = api.ask("GET", "/conflicts", **whose)["items"]
    assert (pair["older"]["memory_id"], pair["newer"]["memory_id"]) == (older, added["memory_id"])
    assert "'paris' and 'lyon'" in pair["why"]
    assert api.ask("GET", "/conflicts", **whose, memory_type="persona")["items"] == []
    api.ask("GET", "/conflicts", **whose, memory_type="entity", status=422)
    api.ask("GET", "/conflicts", **whose, limit=501, status=422)
    api.ask("DELETE", f"/memories/{older}", **whose)
    assert api.ask("GET", "/conflicts", **whose)["items"] == []


def talk(api: Traveller) -> None:
    for number in range(3):
        said = {**WHO, "role": "user", "content": f"Where is parcel {number}?"}
        assert api.ask("POST", "/sessions/s%2F1/messages", said, status=201)["ttl_seconds"] == 3_600
    history = api.ask("GET", "/sessions/s%2F1/messages", **WHO)["items"]
    window = api.ask("GET", "/sessions/s%2F1/messages", **WHO, which="window")["items"]
    assert [one["content"] for one in history] == [f"Where is parcel {number}?" for number in range(3)]
    assert history == window
    when = (api.clock() - timedelta(minutes=5)).isoformat()
    found = {
        "role": "assistant",
        "content": "",
        "external_id": "msg_1",
        "metadata": {"tool": "find"},
        "timestamp": when,
    }
    batch = {**WHO, "messages": [found, {"role": "tool", "content": "In Leeds", "external_id": "msg_2"}]}
    for _ in range(2):  # what is sent again is kept once
        added = api.ask("POST", "/sessions/s%2F1/messages:batch", batch, status=201)
    listed = api.ask("GET", "/sessions/s%2F1/messages", **WHO)["items"][3:]
    assert [one["message_id"] for one in listed] == added["message_ids"]
    assert [(one["external_id"], one["content"]) for one in listed] == [("msg_1", ""), ("msg_2", "In Leeds")]
    assert listed[0]["timestamp"] == when
    old = {**WHO, "role": "user", "content": "Hello", "timestamp": "2020-01-01"}
    assert api.ask("POST", "/sessions/new/messages", old, status=409)["code"] == "expired"
    api.ask("POST", "/sessions/new/messages", {**old, "timestamp": "2099-01-01"}, status=422)
    (session,) = api.ask("GET", "/sessions", user_id="alice")["items"]
    assert (session["session_id"], session["messages"]) == ("s/1", 5)
    assert api.ask("DELETE", "/sessions/s%2F1", **WHO)["messages"] == 5
    assert api.ask("GET", "/recycle", type="session")["items"][0]["session_id"] == "s/1"
    api.ask("DELETE", "/sessions/s%2F1", **WHO, status=404)


def go_through_a_task(api: Traveller) -> None:
    task = {**WHO, "task": "Book a train to Leeds", "steps": ["looked up trains", "booked the 9:15"]}
    episode = api.ask("POST", "/episodes", task, status=201)["episode_id"]
    (found,) = api.ask("POST", "/episodes:search", {**WHO, "query": "a journey by train"})["items"]
    assert found["episode_id"] == episode
    assert [step["content"] for step in api.ask("GET", f"/memories/{episode}", **WHO)["steps"]] == task["steps"]


def change_rules(api: Traveller) -> None:
    rule = {"user_id": "alice", "delete_after_days": 30}
    preview = api.ask("POST", "/policies/episodic/preview", rule)
    assert preview["shortens"] is True
    api.ask("PUT", "/policies/episodic", rule, status=428)
    assert api.ask("PUT", "/policies/episodic", {**rule, "confirm": True})["version"] == 1
    assert api.ask("GET", "/policies/episodic", user_id="alice")["delete_after_days"] == 30
    assert api.ask("GET", "/policies/episodic", user_id="bob")["delete_after_days"] == 365
    assert api.ask("GET", "/policies")["items"][-1]["user_id"] == "alice"
    api.ask("DELETE", "/policies/episodic", user_id="alice", confirm=True)
    api.ask("DELETE", "/policies/entity", status=404)


def sweep(api: Traveller) -> None:
    api.clock.advance(days=366)
    plan = api.ask("POST", "/sweeps/plan", {"samples": 2})
    *_, forecast = api.ask("POST", "/sweeps/forecast", {"days": 2})
    assert len(forecast["result"]["days"]) == 3
    assert api.ask("GET", "/overview")["users"] >= 1
    assert plan["counts"]["archive"] > 2
    assert len(plan["samples"]) == 2
    other = api.add("Ann has a dog.")
    *progress, last = api.ask("POST", "/sweeps", {"digest": plan["digest"]})
    assert last["result"]["counts"] == plan["counts"]
    assert all(line["progress"] > 0 for line in progress)
    api.ask("POST", "/sweeps", {"digest": plan["digest"]}, status=409)

    cold = next(
        one
        for one in api.ask("GET", "/memories", **WHO, include_archived=True)["items"]
        if one["is_archived"] and one["memory_id"] != other
    )
    assert api.ask("POST", f"/memories/{cold['memory_id']}/rehydrate", **WHO)["is_archived"] is False
    api.ask("POST", f"/memories/{other}/rehydrate", **WHO, status=409)


def hold(api: Traveller) -> None:
    one = api.add("Ann's contract.", metadata={"topic": "contract"})
    made = api.ask("POST", "/holds", {"tag": "topic=contract", "reason": "Case 4711"}, status=201)
    assert made["author"] == "rest"
    api.ask("DELETE", f"/memories/{one}", **WHO, status=423)
    assert [one["hold_id"] for one in api.ask("GET", "/holds")["items"]] == [made["hold_id"]]
    assert api.ask("GET", f"/holds/{made['hold_id']}")["covers"]["memories"] == 1
    assert api.ask("POST", f"/holds/{made['hold_id']}/release")["released_by"] == "rest"
    assert api.ask("GET", "/holds")["items"] == []
    assert len(api.ask("GET", "/holds", released=True)["items"]) == 1
    api.ask("POST", f"/holds/{made['hold_id']}/release", status=404)
    assert made["covers"] is None, "what has a tag would have to be counted"
    on_one = api.ask("POST", "/holds", {"memory_id": one, "reason": "Case 4711"}, status=201)
    assert on_one["covers"] == {"memories": 1}
    assert api.ask("POST", "/holds:preview", {"memory_id": one})["counts"] == {"memories": 1}
    api.ask("POST", f"/holds/{on_one['hold_id']}/release")
    for nothing in ({"memory_id": "zzz"}, {"tag": "="}):
        api.ask("POST", "/holds", {**nothing, "reason": "Case 4711"}, status=422)


def know_agents_and_tools(api: Traveller) -> None:
    for sort in ("agent", "tool"):
        path = f"/{sort}s/one%20{sort}"
        assert api.ask("PUT", path, {"description": "Helps"})["description"] == "Helps"
        assert api.ask("GET", path)[f"{sort}_id"] == f"one {sort}"
        assert f"one {sort}" in {one[f"{sort}_id"] for one in api.ask("GET", f"/{sort}s")["items"]}
        assert "purge_at" in api.ask("DELETE", path)
        api.ask("GET", path, status=404)
        assert f"one {sort}" == api.ask("GET", "/recycle", type=sort)["items"][0][f"{sort}_id"]
        api.ask("POST", f"{path}/restore")
        api.ask("GET", path)


def limit(api: Traveller) -> None:
    before = {one["memory_type"]: one for one in api.ask("GET", "/users/alice/quotas")["items"]}
    most = before["entity"]["memories"]
    said = api.ask("PUT", "/quotas/entity", {"user_id": "alice", "max_memories": most, "max_bytes": "unlimited"})
    assert said["max_memories"] == most
    full = {**WHO, "content": "Leeds", "memory_type": "entity"}
    assert api.ask("POST", "/memories", full, status=409)["code"] == "quota_exceeded"
    after = {one["memory_type"]: one for one in api.ask("GET", "/users/alice/quotas")["items"]}
    assert (after["entity"]["max_memories"], after["entity"]["max_bytes"]) == (most, None)


def sort_resources(api: Traveller) -> None:
    old = {"id": 1, "source_type": "context", "created_at": "2024-05-01T08:00:00+00:00"}
    assert api.ask("GET", "/domains/rag")["older_than_days"] == 30
    assert api.ask("PATCH", "/domains/rag", {"config": {"older_than_days": 90}})["policy"]["older_than_days"] == 90
    assert api.ask("POST", "/domains/rag/apply", {"resources": [old]})["eligible"] == [old]
    kept = api.ask("POST", "/domains/rag/archives", {"resources": [old]}, status=201)
    assert [one["archive_id"] for one in api.ask("GET", "/domains/rag/archives")["items"]] == [kept["archive_id"]]
    assert api.ask("GET", f"/domains/rag/archives/{kept['archive_id']}")["resources"] == [old]
    api.ask("GET", f"/domains/memory/archives/{kept['archive_id']}", status=404)
    both = api.ask("GET", "/domains")
    given = api.ask("POST", "/domains/rag/gc-params", {"raw_args": {"limit": 7}, "validated_args": {"limit": 7}})
    assert (given["limit"], given["older_than_days"]) == (7, 90), "what is not given comes from the policy"
    assert both.pop("version") == 1
    assert both.pop("updated_at").endswith("+00:00")
    assert both == {name: api.ask("GET", f"/domains/{name}") for name in ("memory", "rag")}


def back_up(api: Traveller) -> None:
    *_, made = api.ask("POST", "/backups")
    backup = made["result"]["id"]
    assert api.ask("GET", f"/backups/{backup}")["memories"] == made["result"]["memories"] > 0
    *_, checked = api.ask("POST", f"/backups/{backup}/verify")
    assert checked["result"]["good"] is True
    assert [one["id"] for one in api.ask("GET", "/backups")["items"]] == [backup]
    assert api.ask("POST", "/backups:rotate")["removed"] == []
    one = api.add("Written after the backup.")
    for asked in (None, {}, {"user_id": "alice", "overwrite": True}):
        refused = api.ask("POST", f"/backups/{backup}/restore", asked, status=428)
        assert backup in refused["detail"]
        assert refused["detail"].endswith('(to confirm, send "confirm": true in the body)')
    *_, restored = api.ask("POST", f"/backups/{backup}/restore", {"user_id": "alice", "confirm": True})
    assert restored["result"]["memories"] == 0
    api.ask("GET", f"/memories/{one}", **WHO)
    api.ask("GET", "/backups/none", status=404)


def look_at_what_runs(api: Traveller) -> None:
    jobs = {one["name"] for one in api.ask("GET", "/schedule")["items"]}
    assert {"minutely", "daily"} <= jobs
    assert api.ask("PATCH", "/schedule/daily", {"cron": "30 4 * * *"})["cron"] == "30 4 * * *"
    assert "counts" in api.ask("POST", "/schedule/minutely/run")["result"]
    assert {one["name"] for one in api.ask("GET", "/schedule/runs")["items"]} <= jobs
    api.ask("POST", "/schedule/never/run", status=404)
    api.ask("PATCH", "/schedule/daily", {}, status=422)


def forget_a_source(api: Traveller) -> None:
    api.add("From elsewhere.", source="import:other")
    asked = {"source": "import:other", "user_id": "alice"}
    assert api.ask("POST", "/sources:forget", {**asked, "dry_run": True})["memories"] == 1
    assert api.ask("POST", "/sources:forget", asked)["memories"] == 1
    assert api.ask("POST", "/recycle/restore", {"bundle": "source:import:other"}) == {"restored": 1}


def call_verbs(api: Traveller) -> None:
    who = {"user_id": "bob", "agent_id": "guide"}
    added = api.ask("POST", "/calls/write", {**who, "verb": "add", "arguments": {"content": "Bob likes tea."}})[
        "result"
    ]
    got = {**who, "verb": "get", "arguments": {"memory_id": added["memory_id"]}}
    assert api.ask("POST", "/calls/read", got)["result"]["content"] == "Bob likes tea."
    assert api.ask("POST", "/calls/govern", {**who, "verb": "kept_out"}) == {"result": []}
    api.ask("POST", "/calls/read", {**who, "verb": "add", "arguments": {"content": "tea"}}, status=422)
    deleted = {**who, "verb": "delete_user_memories", "arguments": {"user_id": "bob", "memory_type": "long_term"}}
    assert api.ask("POST", "/calls/govern", deleted) == {"result": 1}


def hand_out_and_erase(api: Traveller) -> None:
    assert "alice" in [one["user_id"] for one in api.ask("GET", "/users")["items"]]
    api.ask("GET", "/users/nobody/export", status=404)
    assert any("white tea" in str(line) for line in api.ask("GET", "/users/alice/export:lines"))
    with zipfile.ZipFile(io.BytesIO(api.ask("GET", "/users/alice/export"))) as export:
        assert export.testzip() is None
        assert any(b"white tea" in export.read(name) for name in export.namelist())
    api.ask("DELETE", "/users/alice", status=428)
    assert api.ask("POST", "/holds:preview", {"user_id": "alice"})["counts"]["memories"] > 0
    assert api.ask("GET", "/sessions/threads", user_id="alice")["next_cursor"] is None
    hold = api.ask("POST", "/holds", {"user_id": "alice", "reason": "Case 4712"}, status=201)["hold_id"]
    api.ask("DELETE", "/users/alice", confirm=True, status=423)
    before = api.ask("GET", "/users/alice/erasure")
    assert (before["is_refused"], [one["hold_id"] for one in before["holds"]]) == (True, [hold])
    api.ask("POST", f"/holds/{hold}/release")
    assert api.ask("GET", "/users/alice/erasure")["is_refused"] is False
    erased = api.ask("DELETE", "/users/alice", confirm=True)
    assert erased["pending"] is False
    assert api.ask("GET", "/memories", **WHO)["items"] == []
    certificate = erased["certificate"]
    assert api.ask("GET", f"/certificates/{certificate['id']}") == certificate
    assert certificate in api.ask("GET", "/certificates")["items"]
    assert api.ask("POST", "/certificates:verify", {"certificate": certificate})["ok"] is True
    forged = {**certificate, "subject": "0" * 32}
    assert api.ask("POST", "/certificates:verify", {"certificate": forged})["signed"] is False


def look_at_the_record(api: Traveller) -> None:
    assert api.ask("GET", "/audit", limit=1)["items"][0]["action"]
    newest = api.ask("GET", "/audit/entries", limit=2)["items"]
    assert newest[0]["at"] >= newest[1]["at"]
    assert len(api.ask("GET", "/audit/export")) > 2
    assert api.ask("POST", "/audit/verify")["ok"] is True


def test_working_memory_is_seen_in_its_session(client: Client, holdfast: Holdfast) -> None:
    asked = {**WHO, "session_id": "s1"}
    added = client.post("/v1/memories", {**asked, "content": {"step": 1}, "memory_type": "working"}).json()
    path = f"/v1/memories/{added['memory_id']}"
    assert client.get(path, params=asked).json()["content"] == '{"step":1}'
    assert client.get(path, params={**asked, "session_id": "s2"}).status_code == 404
