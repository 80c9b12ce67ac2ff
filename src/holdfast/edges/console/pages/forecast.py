"""Forecast: what the rules will do, day by day; worked out exactly for any day, and carried out as it was shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.edges.console.drawings import Area
from holdfast.edges.console.formats import day, link
from holdfast.edges.console.table import Effect, Entry, Fields, Section
from holdfast.edges.console.visit import Visit

forecast = Section("Forecast")
#: How many days ahead the page looks, if nobody says otherwise.
_DAYS: Final = 120
#: Actions from the bottom of the drawing to its top, each with the class of its colour.
_LAYERS: Final = {"delete": "gone", "recycle": "bin", "archive": "archived"}
_WORDS: Final = {"archive": "archived", "recycle": "sent to the recycle bin", "delete": "deleted for good"}


def _back(_fields: Fields) -> str:
    return link("/forecast")


def _describe_counts(counts: dict[str, int]) -> str:
    done = [f"{count:,} {_WORDS.get(action, action)}" for action, count in counts.items() if count]
    return ", ".join(done) or "nothing"


@forecast.page("/forecast", calls=("plan_sweep",), may_call=("get_overview",))
def show_forecast(visit: Visit) -> dict[str, Any]:
    """What the next sweep finds due, and the way to the days after it."""
    return {"seen": visit.call("get_overview") if visit.may("get_overview") else None, "days": _DAYS}


def _arrange(result: Any, query: Mapping[str, str]) -> dict[str, Any]:
    """The days as layers of a drawing, and the one that is chosen."""
    days = result["days"]
    given = query.get("day", "")
    chosen = min(int(given), len(days) - 1) if given.isdecimal() and len(given) < 6 else min(1, len(days) - 1)
    labels = [day(one["at"]) for one in days]
    layers = [Area(state, [one["new"].get(action, 0) for one in days]) for action, state in _LAYERS.items()]
    totals = [sum(one["new"].values()) for one in days]
    peak = max(range(1, len(days)), key=totals.__getitem__, default=0)
    words = (
        f"What becomes due each day from {labels[0]} to {labels[-1]}: {totals[0]:,} are due now; "
        f"the most on one day after that is {totals[peak]:,}, on {labels[peak]}"
    )
    return {"days": days, "chosen": chosen, "labels": labels, "layers": layers, "words": words}


@forecast.action(
    "forecast_sweeps",
    "Forecast",
    "Forecast the days to come",
    back=_back,
    describe=lambda _fields, result: f"{len(result['days']) - 1} days were worked out; nothing is changed by looking",
    result="forecast_days.html",
    arrange=_arrange,
    is_question=True,
)
def preview_forecast(_visit: Visit, _fields: Fields) -> Effect:
    """It only looks."""
    return Effect(["nothing is changed by looking"])


@forecast.action(
    "plan_sweep",
    "The plan of a sweep",
    "Work it out",
    back=_back,
    describe=lambda _fields, result: f"up to {result['at']}: {_describe_counts(result['counts'])}",
    result="plan.html",
    is_question=True,
)
def preview_plan(_visit: Visit, _fields: Fields) -> Effect:
    """It only looks."""
    return Effect(["nothing is changed by looking"])


@forecast.action(
    "carry_out_sweep",
    "Carry out a sweep",
    "Carry it out",
    back=_back,
    describe=lambda _fields, result: f"done: {_describe_counts(result['counts'])}",
    entries=(Entry("confirm", "Those too who would lose much at once", "check", needed=False),),
    result="plan.html",
    asks="plan_sweep",
    is_danger=True,
)
def preview_sweep(_visit: Visit, _fields: Fields) -> None:
    """The plan shows it, which is a job of its own."""
