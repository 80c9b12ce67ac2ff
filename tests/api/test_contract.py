"""The API held against its own description, by a tool that knows nothing else of it: no server error, no answer that
was not announced, nothing accepted that the description rules out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from starlette.applications import Starlette

from holdfast import Holdfast
from holdfast.edges.access.callers import TENANT_HEADER
from holdfast.edges.rest.description import describe
from holdfast.edges.rest.idempotency import HEADER
from holdfast.edges.rest.routes import OperationRoute, route_table

#: What every operation has in the same way is tried with one of them.
_COMMON = {TENANT_HEADER, HEADER}
_TRIED_WITH = "add_memory"
_LIST = re.compile(r"DELETE '?http://localhost/v1/users/[^/?']+/memories(?!/)")


class Tried:
    """What was tried in one run, and what was wrong."""

    def __init__(self) -> None:
        self.cases: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self, app: Starlette, phase: str, routes: Sequence[OperationRoute], **phase_options: Any) -> None:
        phases = {name: {"enabled": name == phase} for name in ("examples", "coverage", "fuzzing", "stateful")}
        phases[phase] |= phase_options
        config = SchemathesisConfig.from_dict(
            {
                "generation": {"deterministic": True, "no-shrink": True},
                "phases": phases,
                # Ids, cursors, digests and rules have to make sense, which no schema can say.
                "checks": {"positive_data_acceptance": {"enabled": False}},
            }
        )
        schema = schemathesis.openapi.from_dict(_described(routes), config=config)
        schema.app = app
        schema.config.update(base_url="http://localhost")
        for event in from_schema(schema).execute():
            self._take(event)

    def _take(self, event: object) -> None:
        if isinstance(event, events.NonFatalError):
            self.problems.append(f"{event.label}: {event.value}")
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.ScenarioFinished):
            for case in event.recorder.cases.values():
                self.cases[case.value.operation.label] += 1
            for checks in event.recorder.checks.values():
                wrong = (check for check in checks if check.status is not Status.SUCCESS and not _is_list(check))
                self.problems += [_told(event.recorder.label, check) for check in wrong]


def _is_list(check: Any) -> bool:
    """Whether what is still there after it was deleted is a list: who deletes all of a user's memories finds none there."""
    return check.name == "use_after_free" and _LIST.search(check.failure_info.code_sample) is not None


def _told(label: str | None, check: Any) -> str:
    wrong = check.failure_info
    return f"{label}: {check.name}: {wrong.failure.title}: {wrong.failure.message}: {wrong.code_sample[:1_000]}"


def _with_short_lists(schema: dict[str, Any]) -> dict[str, Any]:
    """Lists of thousands are tried elsewhere: making them takes longer than all the rest."""
    return {name: value for name, value in schema.items() if name != "maxItems" or value <= 100}


def _described(routes: Sequence[OperationRoute]) -> dict[str, Any]:
    api: dict[str, Any] = json.loads(json.dumps(describe(keys_required=False)), object_hook=_with_short_lists)
    tried = {route.path_format for route in routes}
    api["paths"] = {name: path for name, path in api["paths"].items() if name in tried}
    for path in api["paths"].values():
        for operation in path.values():
            if operation["operationId"] != _TRIED_WITH:
                operation["parameters"] = [one for one in operation["parameters"] if one["name"] not in _COMMON]
    return api


@pytest.fixture
def used(app: Starlette, holdfast: Holdfast) -> Starlette:
    """An application over a store in which there is something to find."""
    memory = holdfast.manager("alice", "travel_agent", "s1")
    memory.add("Ann likes green tea.")
    memory.short_term.add_message("user", "Where is my order?")
    holdfast.backups.create(["persona"])
    holdfast.domains.archive("memory", [{"id": 1, "source_type": "context", "created_at": "2024-05-01T08:00:00Z"}])
    return app


@pytest.mark.parametrize("half", [0, 1])
def test_every_bound_of_every_parameter_of_every_route_is_kept(used: Starlette, half: int) -> None:
    paths = list(dict.fromkeys(route.path_format for route in route_table()))[half::2]
    routes = [route for route in route_table() if route.path_format in paths]
    tried = Tried()
    tried.run(used, "coverage", routes, **{"unexpected-methods": ["TRACE"]})
    assert tried.problems == []
    assert set(tried.cases) == {f"{route.method} {route.path_format}" for route in routes}
    assert tried.cases.total() > 10 * len(routes)


def test_what_one_route_answers_another_understands(used: Starlette) -> None:
    tried = Tried()
    tried.run(used, "stateful", route_table(), generation={"max-examples": 12, "deterministic": True})
    assert tried.problems == []
    assert tried.cases.total() > 10
