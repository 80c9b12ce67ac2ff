"""Overview: what is kept, and what time will do to it."""

from __future__ import annotations

from typing import Any

from holdfast.edges.console.table import Section
from holdfast.edges.console.visit import Visit

overview = Section("Overview")


@overview.page("", calls=("get_me",))
def show_overview(visit: Visit) -> dict[str, Any]:
    """Who asks, and what they may do."""
    return {"me": visit.call("get_me")}
