"""No route lets anyone reach what is not theirs. Every attempt is made of the route table: a new route is tried too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.client import Client
from api.world import AGENT, PRIVATE, TENANT, USER, make_world, request_for, weaker
from clocks import FakeClock
from holdfast import ForbiddenError, Holdfast
from holdfast.core.access import Principal, Right
from holdfast.edges.access.gate import BoundedMemory, Gate
from holdfast.edges.operations.models import Scoped
from holdfast.edges.operations.operation import Group, Reach
from holdfast.edges.operations.privacy import Count
from holdfast.edges.rest.app import build_app
from holdfast.edges.rest.description import describe
from holdfast.edges.rest.routes import OperationRoute, route_table

ROUTES = route_table()


class Outside:
    """The API with keys, over a world that nobody is to change or to see."""

    def __init__(self, folder: Path) -> None:
        self.holdfast = Holdfast.open(home=folder / "home", clock=FakeClock())
        self.world = make_world(self.holdfast)
        self.app = build_app(self.holdfast, keys_required=True)
        self.api: dict[str, Any] = describe(keys_required=True)
        self.client = Client(self.app)
        self.before = self.world.seen()

    def ask(self, route: OperationRoute, headers: dict[str, str], **named: str) -> Any:
        return request_for(self.world, route, self.api, **named).send(self.client, headers)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    made = Outside(tmp_path_factory.mktemp("outside"))
    with made.client, made.holdfast:
        yield made
        assert made.world.seen() == made.before, "an attempt that was refused has changed something"


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Outside]:
    """The same for one test, which may change something."""
    made = Outside(tmp_path)
    with made.client, made.holdfast:
        yield made


def check_refused(response: Any, status: int, code: str) -> None:
    request = f"{response.request.method} {response.request.url}"
    assert response.status_code == status, f"{request}: {response.text}"
    assert response.headers["content-type"] == "application/problem+json", request
    assert response.json()["code"] == code, request
    assert PRIVATE not in response.text, request


def test_nobody_gets_in_without_a_key(outside: Outside) -> None:
    for route in ROUTES:
        response = outside.ask(route, {})
        check_refused(response, 401, "unauthenticated")
        assert response.headers["www-authenticate"].startswith("Bearer")
        check_refused(outside.ask(route, {"X-API-Key": f"holdfast_{'0' * 32}_{'A' * 43}"}), 401, "unauthenticated")


def test_the_key_of_another_tenant_cannot_act_for_this_one(outside: Outside) -> None:
    theirs = {**outside.world.key("admin", tenant="globex"), "X-Holdfast-Tenant": TENANT}
    for route in ROUTES:
        check_refused(outside.ask(route, theirs), 403, "forbidden")


def test_another_tenants_key_finds_nothing_by_the_ids_of_this_one(outside: Outside) -> None:
    theirs = outside.world.key("admin", tenant="globex")
    for route in ROUTES:
        response = outside.ask(route, theirs)
        assert PRIVATE not in response.text, route.name
        if route.operation.reach is Reach.STORE:
            check_refused(response, 403, "forbidden")
        elif route.name == "list_derived":  # what was derived from another tenant's memory: of one's own, nothing
            assert response.json() == {"items": []}
        elif route.path_format.startswith(("/v1/memories/{memory_id}", "/v1/holds/{hold_id}")):
            check_refused(response, 404, "not_found")


def test_a_key_that_is_bound_to_another_user_is_refused(outside: Outside) -> None:
    bobs = outside.world.key("admin", users=["bob"])
    for route in ROUTES:
        if route.operation.reach is not Reach.CALLER:
            check_refused(outside.ask(route, bobs), 403, "forbidden")


def test_a_key_that_is_bound_to_another_agent_is_refused(outside: Outside) -> None:
    others = outside.world.key("admin", agents=["other"])
    for route in ROUTES:
        if route.operation.reach is not Reach.CALLER:
            check_refused(outside.ask(route, others), 403, "forbidden")


def test_what_concerns_more_than_one_agent_is_not_for_a_key_that_is_bound_to_it(outside: Outside) -> None:
    agents = outside.world.key("admin", agents=[AGENT])
    for route in ROUTES:
        if route.operation.reach not in (Reach.CALLER, Reach.MEMORY):
            check_refused(outside.ask(route, agents), 403, "forbidden")


def test_a_key_that_is_bound_to_an_agent_writes_in_no_other_agents_name(inside: Outside) -> None:
    headers = inside.world.key("write", agents=[AGENT])
    who = {"user_id": "zoe", "agent_id": AGENT}
    made = inside.client.post("/v1/memories", {**who, "content": "tea"}, headers=headers).json()["memory_id"]

    def write(source: str) -> list[httpx.Response]:
        said = {**who, "source": source}
        return [
            inside.client.post("/v1/memories", {**said, "content": "tea"}, headers=headers),
            inside.client.post("/v1/memories:batch", {**said, "contents": ["tea"]}, headers=headers),
            inside.client.post("/v1/episodes", {**said, "task": "plan", "steps": ["look"]}, headers=headers),
            inside.client.patch(f"/v1/memories/{made}", {"source": source}, params=who, headers=headers),
        ]

    for response in write("agent:other"):
        check_refused(response, 403, "forbidden")
    for source in (f"agent:{AGENT}", "import:crm"):
        assert [response.status_code for response in write(source)] == [201, 201, 201, 200]


def test_an_id_of_another_user_is_answered_as_nobodys(inside: Outside) -> None:
    headers = inside.world.key("write", users=["zoe"])
    who = {"user_id": "zoe", "agent_id": AGENT, "content": "tea"}
    theirs = inside.world.key("write", users=["yan"])
    made = inside.client.post("/v1/memories", {**who, "user_id": "yan"}, headers=theirs).json()["memory_id"]
    answers = [
        inside.client.post("/v1/memories", {**who, "derived_from": [one]}, headers=headers)
        for one in (made, "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77")
    ]
    assert [one.status_code for one in answers] == [201, 201]
    assert answers[0].json().keys() == answers[1].json().keys()


def test_what_concerns_everyone_is_not_for_a_key_that_is_bound_to_one_user(outside: Outside) -> None:
    users = outside.world.key("admin", users=[USER])
    for route in ROUTES:
        if route.operation.reach in (Reach.TENANT, Reach.STORE):
            check_refused(outside.ask(route, users), 403, "forbidden")


def test_a_lesser_right_is_not_enough(outside: Outside) -> None:
    for route in ROUTES:
        less = weaker(route.operation.right)
        tenant = "*" if route.operation.reach is Reach.STORE else TENANT
        if less is not None:
            asked = {**outside.world.key(less.value, tenant=tenant), "X-Holdfast-Tenant": TENANT}
            check_refused(outside.ask(route, asked), 403, "forbidden")


def test_what_concerns_the_store_is_for_operators(outside: Outside) -> None:
    for route in ROUTES:
        if route.operation.reach is Reach.STORE:
            check_refused(outside.ask(route, outside.world.key("admin")), 403, "forbidden")


def test_what_destroys_or_hands_out_everything_needs_the_right_to_govern() -> None:
    needed = {route.name: route.operation.right for route in ROUTES}
    govern = {
        "carry_out_sweep",
        "purge_recycled",
        "export_user",
        "erase_user",
        "recycle_user_memories",
        "forget_source",
        "set_policy",
        "remove_policy",
        "add_hold",
        "release_hold",
        "remove_agent",
        "remove_tool",
        "set_quota",
        "configure_domain",
    }
    assert {name for name, right in needed.items() if right is Right.GOVERN} >= govern
    removing = {route.name for route in ROUTES if route.method == "DELETE" and route.operation.right is not Right.ADMIN}
    assert removing - govern == {"delete_memory", "remove_session"}, "these go to the recycle bin, one at a time"


@pytest.mark.parametrize(
    "route",
    [r for r in ROUTES if "{memory_id}" in r.path_format and r.operation.reach is Reach.MEMORY],
    ids=lambda r: r.name,
)
def test_a_memory_of_another_user_is_not_told_from_one_that_does_not_exist(
    outside: Outside, route: OperationRoute
) -> None:
    bobs = outside.world.key("admin", users=["bob"])
    unknown = outside.world.ids["memory_id"][:-4] + "0000"
    theirs = outside.ask(route, bobs, user_id="bob")
    nobodys = outside.ask(route, bobs, user_id="bob", memory_id=unknown)
    assert theirs.status_code == nobodys.status_code
    assert theirs.text.replace(outside.world.ids["memory_id"], unknown) == nobodys.text


def test_a_revoked_key_lets_nobody_in(outside: Outside) -> None:
    key, secret = outside.holdfast.access.create("short", rights=["read"], tenant=TENANT)
    headers = {"Authorization": f"Bearer {secret}"}
    assert outside.client.get("/v1/me", headers=headers).status_code == 200
    outside.holdfast.access.revoke(key.id)
    check_refused(outside.client.get("/v1/me", headers=headers), 401, "unauthenticated")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Basic YWxpY2U6c2VjcmV0"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer " + "x" * 10_000},
        {"Authorization": "Bearer a", "X-API-Key": "b"},
        {"X-API-Key": ""},
    ],
)
def test_a_key_that_is_none_is_refused(outside: Outside, headers: dict[str, str]) -> None:
    check_refused(outside.client.get("/v1/me", headers=headers), 401, "unauthenticated")


def test_a_key_tells_who_calls(outside: Outside) -> None:
    headers = outside.world.key("write", users=[USER], agents=[AGENT])
    said = outside.client.get("/v1/me", headers=headers).json()
    assert said["tenant"] == TENANT
    assert said["rights"] == ["read", "write"]
    assert (said["users"], said["agents"], said["operator"]) == ([USER], [AGENT], False)


def test_who_holds_the_right_key_reaches_what_is_theirs(outside: Outside) -> None:
    asked = {"user_id": USER, "agent_id": AGENT}
    for headers in (
        outside.world.key("read"),
        outside.world.key("read", users=[USER], agents=[AGENT]),
        {**outside.world.key("read", tenant="*"), "X-Holdfast-Tenant": TENANT},
    ):
        assert PRIVATE in outside.client.get("/v1/memories", params=asked, headers=headers).text


def test_a_body_of_someone_unknown_is_not_read(outside: Outside) -> None:
    response = outside.client.post("/v1/memories", content=b"{", headers={"Content-Type": "application/json"})
    check_refused(response, 401, "unauthenticated")


# --- the declaration itself -------------------------------------------------------------------------------------------


def test_an_operation_that_does_not_say_what_it_needs_cannot_be_declared() -> None:
    for missing in ((), (Right.READ,)):
        with pytest.raises(TypeError, match="missing"):
            Group("test", "A test.").add("GET /loose", *missing)


def test_an_operation_that_does_not_say_what_it_gives_has_no_route() -> None:
    group = Group("test", "A test.")

    @group.add("GET /loose", Right.READ, Reach.MEMORY)
    def look(_memory: Any, _asked: Scoped) -> Any:
        return {}

    (operation,) = group.operations
    with pytest.raises(TypeError, match="does not say what it gives"):
        assert operation.output


def test_every_path_of_the_application_is_a_guarded_route_or_the_documentation(outside: Outside) -> None:
    told = {(method.upper(), path) for path, methods in outside.api["paths"].items() for method in methods}
    assert told == {(route.method, route.path_format) for route in ROUTES}
    unguarded = [route for route in outside.app.routes if not isinstance(route, OperationRoute)]
    assert {getattr(route, "path", None) for route in unguarded} == {"/", "/v1", "/docs", "/openapi.json"}


def test_a_function_works_on_what_its_operation_declares_and_on_nothing_else(outside: Outside) -> None:
    group = Group("test", "A test.")

    @group.add("GET /mine", Right.READ, Reach.MEMORY, Count)
    def count_mine(memory: Any, _asked: Scoped) -> Any:
        return memory

    (operation,) = group.operations
    bound = Principal("k", TENANT, frozenset({Right.READ}), users=frozenset({USER}))
    asked = Scoped(user_id=USER, agent_id=AGENT)
    reached = operation.bind(Gate(outside.holdfast, bound), asked)()
    assert isinstance(reached, BoundedMemory)
    assert (reached.user_id, reached.agent_id) == (USER, AGENT)
    with pytest.raises(ForbiddenError):
        operation.bind(Gate(outside.holdfast, bound), Scoped(user_id="bob", agent_id=AGENT))


def test_documentation_says_nothing_of_what_is_kept(outside: Outside) -> None:
    for path in ("/", "/v1", "/docs", "/openapi.json"):
        response = outside.client.get(path)
        assert response.status_code == 200
        assert PRIVATE not in response.text


def test_nobody_holds_or_rules_what_is_another_users(holdfast: Holdfast) -> None:
    theirs = holdfast.manager("alice", AGENT).add("theirs")["memory_id"]
    _, secret = holdfast.access.create("bob's", rights=["govern"], tenant="default", users=["bob"])
    options: Any = {"headers": {"Authorization": f"Bearer {secret}"}}
    one = {"user_id": "bob", "memory_id": theirs}
    with Client(build_app(holdfast, keys_required=True)) as client:
        held = client.post("/v1/holds", {**one, "reason": "r"}, **options)
        ruled = client.request("PUT", "/v1/policies/long_term", json={**one, "keep_days": 900}, **options)
    assert [(said.status_code, said.json()["code"]) for said in (held, ruled)] == [(404, "not_found")] * 2
