"""A client of the API over an engine in a folder of its own, within the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI

from api.client import Client
from retain import Retain
from retain.api import build_app


@pytest.fixture
def app(retain: Retain) -> FastAPI:
    """The API for the local caller, who needs no key."""
    return build_app(retain, keys_required=False)


@pytest.fixture
def client(app: FastAPI) -> Iterator[Client]:
    with Client(app) as opened:
        yield opened
