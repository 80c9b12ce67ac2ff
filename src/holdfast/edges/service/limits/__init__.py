"""What one caller may ask of the service: how much, how often, for how long, and how many at once."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.types import MIB
from holdfast.settings import Settings


class Limits(NamedTuple):
    """The limits in force; a rate of 0 is no limit."""

    request_bytes: int = 32 * MIB
    request_seconds: float = 30.0
    rate_per_second: float = 200.0
    requests_at_once: int = 500

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """As the settings have them."""
        return cls(
            settings.request_bytes, settings.request_seconds, settings.rate_per_second, settings.requests_at_once
        )
