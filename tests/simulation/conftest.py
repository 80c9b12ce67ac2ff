"""Every test of this folder that opens a store runs over every engine."""

from __future__ import annotations

from typing import cast

import pytest

from homes import ENGINES


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)
