"""``holdfast metrics``: what Prometheus would collect."""

from __future__ import annotations

import typer

from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import write_json
from holdfast.edges.cli.store import open_engine


@command(app, "metrics", examples=("holdfast metrics", "holdfast metrics --json"))
def metrics(*, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """Print all metrics in Prometheus' format, as a textfile collector takes them.

    Needs prometheus-client, which comes with the extra called metrics.
    """
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        if not as_json:
            typer.echo(engine.metrics().decode(), nl=False)
            return
        families = list(engine.collector.collect())
    write_json(
        [
            {
                "name": family.name,
                "type": family.type,
                "help": family.documentation,
                "samples": [
                    {"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in family.samples
                ],
            }
            for family in families
        ]
    )
