"""Properties are judged by what they find, not by how busy the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("retain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("retain")
