"""The Grafana dashboard of ``docs/dashboard.json``, made from the list below. None of this is shipped.

``python -m bench.pages.dashboard > docs/dashboard.json``; ``make reference`` does it too. A panel is described by the
meaning of its first metric, as ``docs/reference/metrics.md`` has it.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final, NamedTuple

from bench.pages.reference import list_metrics

_WHERE: Final = 'job="$job"'


class Panel(NamedTuple):
    """A panel: its title, what is drawn (a query, its legend), and in which unit."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"


def _by(name: str, label: str, how: str = "max") -> tuple[str, str]:
    return f"{how} by ({label}) ({name}{{{_WHERE}}})", f"{{{{{label}}}}}"


def _rate(name: str, label: str, how: str = "sum") -> tuple[str, str]:
    """What is read from the store is the same for every process that is asked: ``max``."""
    return f"{how} by ({label}) (rate({name}{{{_WHERE}}}[$__rate_interval]))", f"{{{{{label}}}}}"


def _quantile(name: str, label: str, share: float) -> tuple[str, str]:
    rate = f"rate({name}_bucket{{{_WHERE}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (le, {label}) ({rate}))", f"{{{{{label}}}}} p{share * 100:g}"


def _one(name: str, legend: str, how: str = "max") -> tuple[str, str]:
    return f"{how}({name}{{{_WHERE}}})", legend


_ALL: Final = f"sum(holdfast_erasures_total{{{_WHERE}}})"
_IN_TIME: Final = f'sum(holdfast_erasures_total{{{_WHERE}, result="in_time"}}) / {_ALL}'
_TOOK: Final = f"histogram_quantile(0.95, max by (le, stage) (holdfast_erasure_seconds_bucket{{{_WHERE}}}))"
_STUCK: Final = _one("holdfast_erasure_pending_seconds", "oldest pending")
#: The rows of the dashboard, each with its panels.
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "The service": (
        Panel(
            "Store",
            (_one("holdfast_store_up", "store", "min"), _one("holdfast_schedule_up", "schedule", "min")),
            kind="stat",
        ),
        Panel("Requests", (_rate("holdfast_http_requests_total", "status"),), "reqps"),
        Panel(
            "Duration", tuple(_quantile("holdfast_http_request_seconds", "route", share) for share in (0.5, 0.95)), "s"
        ),
        Panel("In flight", (_by("holdfast_http_requests_in_flight", "instance", "sum"),)),
        Panel("Operations (p95)", (_by("holdfast_operation_p95_ms", "operation, memory_type"),), "ms"),
        Panel("Callers with a rate", (_by("holdfast_rate_callers", "instance", "sum"),)),
        Panel("Replies", (_rate("holdfast_replies_total", "result"),), "reqps"),
    ),
    "Memories": (
        Panel("Memories", (_by("memory_count", "memory_type"),)),
        Panel("Content", (_by("memory_storage_bytes", "memory_type"),), "bytes"),
        Panel("Archived", (_rate("memory_archived_total", "memory_type", "max"),), "ops"),
        Panel("Into the recycle bin", (_rate("memory_deleted_total", "reason", "max"),), "ops"),
        Panel("Deleted for good", (_rate("memory_purged_total", "memory_type", "max"),), "ops"),
        Panel("Overdue", (_by("holdfast_overdue_seconds", "memory_type"),), "s"),
    ),
    "Erasure": (
        Panel("Within the objective", ((_IN_TIME, "in time"),), "percentunit", "stat"),
        Panel(
            "Oldest pending, and the objective", (_STUCK, _one("holdfast_erasure_objective_seconds", "objective")), "s"
        ),
        Panel("How long erasures took (p95)", ((_TOOK, "{{stage}}"),), "s"),
    ),
    "The schedule": (
        Panel("Failed and overdue", (_by("holdfast_job_failed", "job_name"), _by("holdfast_job_overdue", "job_name"))),
        Panel("Last run", (_by("holdfast_job_seconds", "job_name"),), "s"),
        Panel("What the last run moved", (_by("holdfast_job_records", "job_name, action"),)),
        Panel("Clock not believed for", (_one("holdfast_clock_waiting_seconds", "waiting"),), "s"),
    ),
    "The process": (
        Panel(
            "Recall indexes",
            (_by("holdfast_index_bytes", "instance", "sum"), _by("holdfast_index_limit_bytes", "instance")),
            "bytes",
        ),
        Panel("Index evictions", (_rate("holdfast_index_evictions_total", "instance"),), "ops"),
        Panel("Connections to the store", (_by("holdfast_pool_connections", "state", "sum"),)),
        Panel("Waiting for a connection", (_by("holdfast_pool_waiting", "instance", "sum"),)),
        Panel("Resident memory", (_by("process_resident_memory_bytes", "instance", "sum"),), "bytes"),
    ),
}


def _render_panel(panel: Panel, number: int, place: tuple[int, int], meanings: dict[str, str]) -> dict[str, Any]:
    named = re.findall(r"\b[a-z]+_\w+", panel.queries[0][0])
    known = (name.removesuffix("_bucket") for name in named)
    return {
        "id": number,
        "title": panel.title,
        "description": next((meanings[name] for name in known if name in meanings), ""),
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "gridPos": {"x": place[0], "y": place[1], "w": 8, "h": 8},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def render() -> str:
    """The dashboard, as Grafana imports it."""
    meanings = {f"{name}{'_total' if kind == 'counter' else ''}": about for name, kind, _, about in list_metrics()}
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}}
        )
        for at, panel in enumerate(row):
            corner = (at % 3 * 8, y + 1 + at // 3 * 8)
            panels.append(_render_panel(panel, len(panels) + 1, corner, meanings))
        y += 1 + (len(row) + 2) // 3 * 8
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    job = {
        "name": "job",
        "type": "query",
        "label": "Job",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(holdfast_info, job)", "refId": "job"},
        "refresh": 1,
    }
    made = {
        "title": "Holdfast",
        "uid": "holdfast",
        "schemaVersion": 39,
        "tags": ["holdfast"],
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [source, job]},
        "panels": panels,
    }
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
