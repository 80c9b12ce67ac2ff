"""Whoever sends something wrong is told where it is and what it must be, in plain words, and never what they sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.client import Client
from holdfast import Holdfast

WHO: dict[str, Any] = {"user_id": "alice", "agent_id": "guide"}
SECRET = "the key is under the blue pot"  # noqa: S105 - of a door
KINDS = "'working', 'short_term', 'long_term', 'persona', 'episodic', 'entity' or 'structured'"

WRONG: dict[str, tuple[str, str, Any, list[str]]] = {
    "what is missing": (
        "POST",
        "/v1/recall",
        {"user_id": "alice"},
        ["body.agent_id is required", "body.query is required"],
    ),
    "what is not known": (
        "POST",
        "/v1/backups",
        {"colour": SECRET},
        ["body.colour is not known; known are: kinds, full, confirm"],
    ),
    "alternatives": ("POST", "/v1/memories", {**WHO, "content": 5}, ["body.content must be a text or an object"]),
    "an alternative with a bound": (
        "PUT",
        "/v1/policies/episodic",
        {"archive_after_days": SECRET, "delete_after_days": 0},
        [
            "body.archive_after_days must be a number or 'never'",
            "body.delete_after_days must be more than 0 or 'never'",
        ],
    ),
    "what is within an alternative": (
        "POST",
        "/v1/memories:batch",
        {**WHO, "contents": ["tea", 3], "metadata": [SECRET]},
        ["body.contents.1 must be a text or an object", "body.metadata.0 must be an object"],
    ),
    "neither alternative": (
        "POST",
        "/v1/memories:batch",
        {**WHO, "contents": [], "metadata": SECRET},
        ["body.metadata must be an object or a list"],
    ),
    "bounds": (
        "POST",
        "/v1/recall",
        {"user_id": "", "agent_id": "x" * 257, "query": "tea", "top_k": 0, "explain": "yes"},
        [
            "body.user_id must not be empty",
            "body.agent_id must have at most 256 characters",
            "body.top_k must be at least 1",
            "body.explain must be true or false",
        ],
    ),
    "no object": ("POST", "/v1/recall", [SECRET], ["body must be an object"]),
    "no body": (
        "POST",
        "/v1/recall",
        None,
        ["body is required: send JSON, with the header Content-Type: application/json"],
    ),
    "a query": (
        "GET",
        "/v1/sessions?limit=many",
        None,
        ["query.user_id is required", "query.limit must be a whole number"],
    ),
}


@pytest.mark.parametrize(("method", "path", "body", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_told_in_plain_words(
    client: Client, method: str, path: str, body: Any, said: list[str]
) -> None:
    response = client.request(method, path, **({} if body is None else {"json": body}))
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "invalid_input")
    assert problem["detail"] == ". ".join(said)
    assert len(problem["errors"]) == len(said)
    assert SECRET not in response.text


@pytest.mark.parametrize(
    ("method", "path", "body", "where"),
    [
        ("POST", "/v1/memories", {**WHO, "content": "tea", "memory_type": SECRET}, "body.memory_type"),
        ("POST", "/v1/recall", {**WHO, "query": "tea", "memory_types": ["long_term", SECRET]}, "body.memory_types.1"),
        ("POST", "/v1/backups", {"kinds": [SECRET]}, "body.kinds.0"),
        ("GET", "/v1/memories?user_id=a&agent_id=b&memory_type=none", None, "query.memory_type"),
    ],
)
def test_a_kind_that_there_is_not_has_the_code_that_it_has_everywhere(
    client: Client, method: str, path: str, body: Any, where: str
) -> None:
    problem = client.request(method, path, **({} if body is None else {"json": body})).json()
    assert (problem["status"], problem["code"]) == (422, "invalid_kind")
    assert problem["detail"] == f"{where} must be {KINDS}"


def test_a_rule_for_a_kind_that_there_is_not_is_refused_as_such(client: Client) -> None:
    problem = client.get("/v1/policies/none").json()
    assert (problem["code"], problem["errors"][0]["where"]) == ("invalid_kind", "path.memory_type")


def test_a_wrong_kind_among_other_mistakes_is_one_of_them(client: Client) -> None:
    problem = client.post("/v1/memories", {"content": "tea", "memory_type": "none"}).json()
    assert problem["code"] == "invalid_input"
    assert [one["where"] for one in problem["errors"]] == ["body.user_id", "body.agent_id", "body.memory_type"]


def test_what_is_no_json_is_malformed(client: Client) -> None:
    broken = f'{{"user_id": {SECRET}'.encode()
    response = client.post("/v1/recall", content=broken, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")
    assert response.json()["detail"] == "the body is not JSON: Expecting value (character 12)"


def test_a_body_that_is_sent_as_a_form_is_not_said_again(client: Client) -> None:
    response = client.post(
        "/v1/memories",
        content=json.dumps({**WHO, "content": SECRET}).encode(),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert response.status_code == 422
    assert response.json()["detail"] == "body was not read: send JSON, with the header Content-Type: application/json"


def test_a_body_that_has_nothing_to_say_need_not_be_sent(client: Client) -> None:
    assert client.post("/v1/sweeps/plan").json()["dry_run"] is True
    assert client.post("/v1/sweeps").status_code == 200
    assert client.post("/v1/sweeps", content=b"", headers={"Content-Type": "text/plain"}).status_code == 200
    assert client.post("/v1/sweeps", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 422


def test_a_plan_takes_no_digest_and_a_sweep_is_no_dry_run(client: Client) -> None:
    for path, body, extra in (
        ("/v1/sweeps/plan", {"digest": "junk"}, "body.digest"),
        ("/v1/sweeps", {"dry_run": True}, "body.dry_run"),
    ):
        refused = client.post(path, body)
        assert refused.status_code == 422
        assert [one["where"] for one in refused.json()["errors"]] == [extra]


def test_who_has_to_confirm_is_told_how_to_do_it_there(client: Client, holdfast: Holdfast) -> None:
    asked = client.put("/v1/policies/episodic", {"delete_after_days": 1})
    assert asked.status_code == 428
    assert asked.json()["detail"].endswith('(to confirm, send "confirm": true in the body)')
    assert client.delete("/v1/users/alice").json()["detail"].endswith("(to confirm, add ?confirm=true)")
    holdfast.policies.set("episodic", delete_after_days=2_000, user_id="alice")
    removed = client.delete("/v1/policies/episodic?user_id=alice")
    assert removed.status_code == 428
    assert removed.json()["detail"].endswith("(to confirm, add &confirm=true)")
    assert client.delete("/v1/policies/episodic?user_id=alice&confirm=true").status_code == 200


def test_a_restore_is_confirmed_where_something_was_kept_already(client: Client, holdfast: Holdfast) -> None:
    made = holdfast.backups.create(["persona"])
    *_, last = client.post(f"/v1/backups/{made.id}/restore").text.splitlines()
    assert json.loads(last)["result"]["backup_id"] == made.id
    holdfast.manager("alice", "guide").add("Likes tea.")
    refused = client.post(f"/v1/backups/{made.id}/restore")
    assert refused.status_code == 428
    assert f"would be brought back from backup {made.id}" in refused.json()["detail"]
    assert "what is there stays as it is. Nothing was changed" in refused.json()["detail"]


def test_the_root_is_a_page_and_the_prefix_says_the_same_to_programs(client: Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for path in ("/console", "/docs", "/openapi.json", "/mcp", "/healthz", "/readyz", "/metrics"):
        assert f"href='{path}'" in page.text
    said = client.get("/v1").json()
    assert (said["name"], said["docs"], said["openapi"]) == ("Holdfast", "/docs", "/openapi.json")
    assert client.get(said["openapi"]).json()["info"]["version"] == said["version"]
