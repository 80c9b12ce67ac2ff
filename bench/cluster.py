"""A Citus cluster beside one PostgreSQL, by the same client: ``python -m bench.cluster CLUSTER_URL URL [users]``.

Both databases are new. That of the cluster has the extension and its nodes, as ``docs/howto/scale-out.md`` says. Only
the ratios say something where the nodes share a machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from bench import sweeps
from bench.lifecycle import Clock
from holdfast import Holdfast

#: What a sweep does after so many days more.
STEPS: Final = (("archive", 31), ("recycle", 70), ("delete", 16))


def measure(url: str, users: int, *, spread: bool) -> dict[str, float]:
    """How many seconds things take that concern all users."""
    os.environ["HOLDFAST_DISTRIBUTE"] = "yes" if spread else "no"
    clock = Clock()
    with tempfile.TemporaryDirectory() as home, Holdfast.open(url, home=home, clock=clock) as holdfast:
        holdfast.policies.set("long_term", archive_after_days=30, delete_after_days=90, confirm=True)
        for user in range(3):
            holdfast.policies.set("long_term", user_id=f"user {user}", archive_after_days=25 + user, confirm=True)
        sweeps.fill(holdfast, users)
        holdfast.metrics()
        took = {"metrics": _time(holdfast.metrics, 5), "plan": _time(lambda: holdfast.sweep(dry_run=True), 3)}
        for action, days in STEPS:
            clock.ahead += timedelta(days=days)
            took[action] = _time(lambda: holdfast.sweep(confirm=True), 1)
    return took


def _time(act: Callable[[], object], times: int) -> float:
    """The seconds of the fastest of some calls."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return min(taken)


if __name__ == "__main__":
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    cluster, one = measure(sys.argv[1], count, spread=True), measure(sys.argv[2], count, spread=False)
    for name, seconds in one.items():
        ratio = cluster[name] / seconds
        print(f"{name:10} one {seconds * 1e3:9.1f} ms   cluster {cluster[name] * 1e3:9.1f} ms   ratio {ratio:5.1f}")
