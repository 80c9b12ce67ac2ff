"""REST: the engine behind HTTP, under ``/v1``. It translates; it never decides."""

from __future__ import annotations

from holdfast.api.app import build_app, route_table

__all__ = ["build_app", "route_table"]
