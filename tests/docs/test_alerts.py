"""The alert rules are true: every metric, label and command that they name exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
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
    app = build_service(Starlette(), holdfast, limits=Limits(), keys_required=False, supervisor=supervisor).app
    families = text_string_to_metric_families(ask(app, "/metrics").body.decode())
    return {f"{family.name}{end}" for family in families for end in SAMPLES.get(family.type, ())}


def test_every_metric_of_the_rules_is_exposed(exposed: set[str]) -> None:
    named = {name for rule in RULES for name in NAMES.findall(re.sub(r"\bby \([^)]*\)", "", rule["expr"]))}
    assert len(named) >= 10
    assert named <= exposed


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
