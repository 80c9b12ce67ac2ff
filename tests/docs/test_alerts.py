"""The alert rules and the dashboard are true: every metric, label and command that they name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from bench.pages.dashboard import render as render_dashboard
from bench.pages.reference import list_metrics
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from docs.pages import check_command
from holdfast import Holdfast
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.run import build_service
from holdfast.edges.service.scheduler import Supervisor
from holdfast.settings import SETTINGS
from service.asking import ask

ROOT = Path(__file__).parents[2]
GROUPS: Any = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
NAMES = re.compile(r"\b(?:holdfast|memory|process)_\w+")
SAMPLES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


@pytest.fixture
def exposed(holdfast: Holdfast) -> set[str]:
    """The names of all samples that a service may have."""
    supervisor = Supervisor("schedule", ["/no/such/program"])
    app = build_service(Starlette(), holdfast, limits=Limits(), keys_required=False, schedule=supervisor).app
    families = text_string_to_metric_families(ask(app, "/metrics").body.decode())
    return {f"{family.name}{end}" for family in families for end in SAMPLES.get(family.type, ())}


def test_every_metric_of_the_rules_is_exposed(exposed: set[str]) -> None:
    named = {name for rule in RULES for name in NAMES.findall(re.sub(r"\bby \([^)]*\)", "", rule["expr"]))}
    assert len(named) >= 10
    assert named <= exposed


DASHBOARD: Any = json.loads((ROOT / "docs" / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
#: What Prometheus itself adds to every sample, and what a histogram has.
ADDED = {"instance", "job", "le"}


def labels_of(metric: str) -> set[str]:
    known = {name: set(labels) for name, _, labels, _ in list_metrics()} | {"process_resident_memory_bytes": set()}
    return known[re.sub("_(total|bucket|sum|count)$", "", metric) if metric not in known else metric]


def selectors(query: str) -> list[tuple[str, set[str]]]:
    """Each metric of a query with the labels that it is selected by."""
    found = re.findall(r"\b((?:holdfast|memory|process)_\w+)(?:\{([^}]*)\})?", re.sub(r"\bby \([^)]*\)", "", query))
    return [(name, set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", inside))) for name, inside in found]


def test_every_metric_of_the_dashboard_is_exposed(exposed: set[str]) -> None:
    named = {name for query in QUERIES for name, _ in selectors(query)}
    assert len(named) >= 25
    assert named <= exposed | {"process_resident_memory_bytes"}


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in RULES)])
def test_every_label_of_a_query_is_one_of_its_metrics(query: str) -> None:
    found = selectors(query)
    assert found
    for name, by in found:
        assert by <= labels_of(name) | ADDED, name
    grouped = {label for group in re.findall(r"\bby \(([^)]*)\)", query) for label in re.findall(r"\w+", group)}
    assert grouped <= set().union(*(labels_of(name) for name, _ in found)) | ADDED
    assert [query.count(one) for one in "([{"] == [query.count(one) for one in ")]}"]


def test_the_dashboard_is_what_the_list_says_and_its_panels_do_not_overlap() -> None:
    assert (ROOT / "docs" / "dashboard.json").read_text(encoding="utf-8") == render_dashboard(), "make reference"
    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"] for panel in PANELS if "process_" not in str(panel["targets"]))


def test_every_rule_says_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 5
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"].keys() == {"summary", "action"}


def test_every_command_and_setting_of_the_rules_exists() -> None:
    known = {f"HOLDFAST_{setting.name.upper()}" for setting in SETTINGS}
    said = " ".join(rule["annotations"]["action"] for rule in RULES)
    assert set(re.findall(r"HOLDFAST_\w+", said)) <= known
    commands = re.findall(r"holdfast ((?:[a-z]+ ?)+(?:--[a-z-]+)?)", said)
    assert commands
    for command in commands:
        words = [word for word in command.split() if word in COMMANDS or word.startswith("--")]
        check_command(words)


COMMANDS = {"doctor", "schedule", "list", "run", "sweep", "hold", "audit", "tail"}
