"""Overview: everything that is kept, what time will do to it, and how long deletions take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from holdfast.edges.console.formats import day, duration
from holdfast.edges.console.table import Section
from holdfast.edges.console.visit import Visit

overview = Section("Overview")
_LIVE: Final = ("active", "archived")
_STEPS: Final = (("out of recall", "out_of_recall"), ("gone from every place", "gone"), ("certified", "certified"))


@overview.page("", calls=("get_me",), may_call=("get_overview",))
def show_overview(visit: Visit) -> dict[str, Any]:
    """The tenant at a glance; for a key that is bound to someone, what it is for."""
    if not visit.may("get_overview"):
        return {"me": visit.call("get_me"), "seen": None}
    seen = visit.call("get_overview")
    removed = [one["recycled"] + one["deleted"] for one in seen["days"]]
    first, last = (day(seen["days"][0]["day"]), day(seen["days"][-1]["day"])) if seen["days"] else ("", "")
    times, in_words = _read_times(seen["erasures"])
    return {
        "seen": seen,
        "kept": _by_kind(seen["kept"]),
        "total": sum(one["memories"] for one in seen["kept"] if one["state"] in _LIVE),
        "is_empty": not seen["kept"] and not seen["users"] and not seen["sessions"],
        "removed": removed,
        "span": (first, last),
        "removed_words": f"Removed each day from {first} to {last}: between {min(removed, default=0):,} and "
        f"{max(removed, default=0):,}, on the last day {removed[-1] if removed else 0:,}",
        "times": times,
        "times_words": in_words,
    }


def _by_kind(kept: list[Mapping[str, Any]]) -> list[tuple[str, dict[str, int], int]]:
    """For each kind how many there are in each state, and their bytes."""
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    sizes: dict[str, int] = defaultdict(int)
    for one in kept:
        counts[one["memory_type"]][one["state"]] = one["memories"]
        sizes[one["memory_type"]] += one["bytes"]
    return [(kind, states, sizes[kind]) for kind, states in counts.items()]


def _read_times(erasures: Mapping[str, Any]) -> tuple[list[tuple[str, float, str]], str]:
    """How long each step of deletions took: as rows of a drawing, and in words."""
    rows = []
    for name, key in _STEPS:
        seconds = erasures[key]["p99_seconds"]
        if seconds is not None:
            rows.append((name, seconds, f"p99 {duration(seconds)}"))
    objective = f"objective {duration(erasures['objective_hours'] * 3_600)}"
    if rows:
        name, seconds, said = rows[-1]
        rows[-1] = (name, seconds, f"{said}, {objective}")
    return rows, "Deletion times: " + ", ".join(f"{name} {said}" for name, _, said in rows)
