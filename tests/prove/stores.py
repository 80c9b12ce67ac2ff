"""Holdfast's adapters, as tests use them."""

from __future__ import annotations

from typing import Any

from holdfast_prove.systems.holdfast_stores import HoldfastOnPostgres


class OnPostgres(HoldfastOnPostgres):
    """Without the files of a server that all tests share."""

    other_places: Any = None
