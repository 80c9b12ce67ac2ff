"""A client of the API over an engine in a folder of its own, within the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette

from api.client import Client
from holdfast import Holdfast
from holdfast.edges.rest.app import build_app


@pytest.fixture
def app(holdfast: Holdfast) -> Starlette:
    """The API for the local caller, who needs no key."""
    return build_app(holdfast, keys_required=False)


@pytest.fixture
def client(app: Starlette) -> Iterator[Client]:
    with Client(app) as opened:
        yield opened
