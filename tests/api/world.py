"""A small world to be looked at from outside: a tenant with people in it, and a request for every route of the API.

Requests are made of the documentation's own examples, so that a route which is added is asked too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from api.client import Client
from holdfast import Holdfast
from holdfast.core.access import Right
from holdfast.edges.operations.models import MEMORY_ID
from holdfast.edges.rest.routes import OperationRoute

TENANT = "acme"
PRIVATE = "Ann keeps the spare key under the blue pot."
USER, AGENT, SESSION, TOOL = "alice", "travel_agent", "s1", "route_finder"

Response = Any


@dataclass
class World:
    """What there is in the tenant, and keys to it."""

    holdfast: Holdfast
    ids: dict[str, str] = field(default_factory=dict)
    keys: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def engine(self) -> Holdfast:
        return self.holdfast.of_tenant(TENANT)

    def key(self, *rights: str, tenant: str = TENANT, **bounds: Any) -> dict[str, str]:
        """The headers of a key."""
        name = f"{rights}{tenant}{bounds}"
        if name not in self.keys:
            _, secret = self.holdfast.access.create("test", rights=rights, tenant=tenant, **bounds)
            self.keys[name] = {"Authorization": f"Bearer {secret}"}
        return self.keys[name]

    def seen(self) -> str:
        """Everything of the tenant that a request could have changed, as text."""
        engine = self.engine
        people = [{**engine.export_user(user), "export_date": ""} for user in (USER, "bob")]
        rest = [
            engine.policies.list(),
            engine.agents.list(include_removed=True),
            engine.tools.list(include_removed=True),
        ]
        held = [repr(hold) for hold in engine.holds.list(released=True)]
        quotas = [engine.quotas.get("long_term", USER), engine.domains.get("memory"), engine.domains.get("rag")]
        jobs = [(row["cron"], row["enabled"]) for row in engine.schedule.list()]
        return json.dumps([people, rest, held, quotas, jobs, engine.recycle.list()], default=str)


def make_world(holdfast: Holdfast) -> World:
    """Put people, memories and holds into a tenant."""
    world = World(holdfast)
    engine = world.engine
    memory = engine.manager(USER, AGENT, SESSION)
    world.ids["memory_id"] = memory.add(PRIVATE, metadata={"topic": "secret"})["memory_id"]
    world.ids["binned_id"] = memory.add(f"{PRIVATE} (deleted)")["memory_id"]
    memory.delete(world.ids["binned_id"])
    memory.add(PRIVATE, "persona")
    memory.add({"secret": PRIVATE}, "structured", {"collection": "secrets"})
    memory.add(PRIVATE, "working")
    world.ids["episode_id"] = memory.episodic.record_episode(PRIVATE, ["looked", "found"])
    memory.short_term.add_message("user", PRIVATE)
    engine.manager("bob", AGENT).add("Bob likes tea.")
    engine.agents.add(AGENT, PRIVATE)
    engine.tools.add(TOOL, PRIVATE)
    world.ids["hold_id"] = engine.holds.add(tag="topic=secret", reason=PRIVATE, author="legal").id
    return world


def path_of(route: OperationRoute, values: dict[str, str]) -> str:
    """A route's path with values in it."""
    return route.path_format.format(**{name: quote(value, safe="") for name, value in values.items()})


def values_for(world: World) -> dict[str, str]:
    """What names in paths stand for."""
    return {
        "memory_id": world.ids["memory_id"],
        "hold_id": world.ids["hold_id"],
        "user_id": USER,
        "session_id": SESSION,
        "agent_id": AGENT,
        "tool_id": TOOL,
        "memory_type": "long_term",
        "name": "daily",
        "certificate_id": MEMORY_ID,
        "backup_id": MEMORY_ID,
        "domain": "memory",
        "archive_id": MEMORY_ID,
    }


@dataclass
class Asking:
    """One request of a route."""

    method: str
    path: str
    query: dict[str, str]
    body: Any

    def send(self, client: Client, headers: dict[str, str]) -> Response:
        body = {} if self.body is None else {"json": self.body}
        return client.request(self.method, self.path, params=self.query, headers=headers, **body)


def request_for(world: World, route: OperationRoute, api: dict[str, Any], **named: str) -> Asking:
    """A request for a route that is about alice, in whatever of its parts it can name her."""
    method = route.method
    operation = api["paths"][route.path_format][method.lower()]
    values = values_for(world) | named
    query = {}
    for one in operation.get("parameters", ()):
        if one["in"] == "query" and (
            one["name"] in ("user_id", "agent_id", "session_id", "confirm") or one["required"]
        ):
            query[one["name"]] = values.get(one["name"], "true")
    if route.path_format.startswith("/v1/audit") or route.path_format == "/v1/sessions":
        query.pop("agent_id", None)
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    body = None
    if content is not None:
        model = content["schema"]["$ref"].rsplit("/", 1)[-1]
        body = json.loads(
            json.dumps(api["components"]["schemas"][model]["example"])
            .replace(MEMORY_ID, values["memory_id"])
            .replace('"alice"', json.dumps(values["user_id"]))
            .replace('"travel_agent"', json.dumps(values["agent_id"]))
        )
    return Asking(method, path_of(route, values), query, body)


def weaker(right: Right) -> Right | None:
    """The right below another."""
    order = list(Right)
    place = order.index(right)
    return None if place == 0 else order[place - 1]
