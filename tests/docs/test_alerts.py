"""The alert rules and the dashboard are true: every metric, label and command that they name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
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
    app = build_service(Starlette(), holdfast, limits=Limits(), keys_required=False, schedule=supervisor)
    families = text_string_to_metric_families(ask(app, "/metrics").body.decode())
    return {f"{family.name}{end}" for family in families for end in SAMPLES.get(family.type, ())}


def test_every_metric_of_the_rules_is_exposed(exposed: set[str]) -> None:
    named = {name for rule in RULES for name in NAMES.findall(re.sub(r"\bby \([^)]*\)", "", rule["expr"]))}
    assert len(named) >= 10
    assert named <= exposed


DASHBOARD: Any = json.loads((ROOT / "docs" / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
#: What Prometheus itself adds to every sample.
ADDED = {"instance", "job"}
ALL = [*QUERIES, *(rule["expr"] for rule in RULES)]


def parse(query: str) -> promql.Expr:
    """A query as Prometheus reads it, with an interval in place of Grafana's."""
    return promql.parse(query.replace("$__rate_interval", "5m"))


def labels_of(metric: str) -> set[str]:
    known = {name: set(labels) for name, _, labels, _ in list_metrics()} | {"process_resident_memory_bytes": set()}
    own = known[re.sub("_(total|bucket|sum|count)$", "", metric) if metric not in known else metric]
    return own | ADDED | ({"le"} if metric.endswith("_bucket") else set())


def result_labels(expr: promql.Expr) -> set[str] | None:
    """The labels that the samples of a query have; ``None``: it is a number. Labels that are not there fail."""
    match expr:
        case promql.ParenExpr():
            return result_labels(expr.expr)
        case promql.BinaryExpr():
            left, right = result_labels(expr.lhs), result_labels(expr.rhs)
            if left is not None and right is not None:
                assert left == right, f"{expr.lhs} has other labels than {expr.rhs}, so that neither is found beside it"
            return left if left is not None else right
        case promql.AggregateExpr():
            inner, by = result_labels(expr.expr) or set(), set(expr.modifier.labels if expr.modifier else ())
            assert by <= inner, f"{expr.expr} has no {by - inner}"
            return by
        case promql.Call() if expr.func.name == "absent":
            return set()
        case promql.Call():
            inner = result_labels(expr.args[-1]) or set()
            return inner - {"le"} if expr.func.name == "histogram_quantile" else inner
        case promql.MatrixSelector():
            return result_labels(expr.vector_selector)
        case promql.VectorSelector():
            there = labels_of(str(expr.name))
            assert {matcher.name for matcher in expr.matchers.matchers} <= there
            return there
        case promql.NumberLiteral():
            return None
    raise AssertionError(f"{expr} is of a kind that is not known here")


def test_every_metric_of_the_dashboard_is_exposed(exposed: set[str]) -> None:
    named = {name for query in QUERIES for name in NAMES.findall(re.sub(r"\bby \([^)]*\)", "", query))}
    assert len(named) >= 25
    assert named <= exposed | {"process_resident_memory_bytes"}


@pytest.mark.parametrize("query", ALL)
def test_a_query_names_labels_of_its_metrics_and_compares_samples_that_have_the_same(query: str) -> None:
    result_labels(parse(query))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_tells_of_labels_that_its_samples_have(rule: Any) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert named <= (result_labels(parse(rule["expr"])) or set())


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
