"""The page about the comparison: tables, and a picture of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from bench.report import machine, write_section

mpl.use("svg")
import matplotlib.pyplot as plt

#: Columns: a scenario, the figure of it, what it is called, and how it is shown.
_COLUMNS: Final = (
    ("fill", "per_second", "added in bulk, a second", "{:,.0f}"),
    ("add", "p50", "add, ms", "{:.2f}"),
    ("recall", "p50", "recall, ms", "{:.2f}"),
    ("filtered", "p50", "filtered, ms", "{:.2f}"),
    ("sweep", "p99", "recall in a sweep (p99), ms", "{:.1f}"),
    ("correct", "p50", "correct, ms", "{:.2f}"),
    ("delete", "p50", "delete, ms", "{:.2f}"),
    ("context", "p50", "context, ms", "{:.2f}"),
    ("cold_start", "p50", "cold start, ms", "{:.0f}"),
    ("two_processes", "per_second", "two processes add, a second", "{:,.0f}"),
    ("delete_all", "p50", "delete all, ms", "{:,.0f}"),
)
_PLOTTED: Final = ("add", "recall", "filtered", "correct", "delete", "cold_start")
_GROWING: Final = ("add", "recall", "filtered", "correct", "delete", "context", "cold_start", "delete_all")


def summarize(found: Mapping[str, Any]) -> str:
    """A line for the terminal."""
    shown = (f"{title}: {_cell(found.get(name), figure, form)}" for name, figure, title, form in _COLUMNS)
    return "  " + "; ".join(shown)


def _cell(one: Mapping[str, Any] | None, figure: str, form: str) -> str:
    if one is None or "none" in one:
        return "–"
    if "stopped" in one:
        return "stopped"
    if "failed" in one or one.get(figure) is None:
        return "failed"
    return form.format(one[figure])


def write(docs: Path, kept: Mapping[str, Any]) -> None:
    """The section, with what is kept."""
    sizes = [size for size in kept if len(kept[size]) > 2]  # at other sizes Holdfast is alone
    lines = [*_describe(kept[sizes[-1]])]
    for size in sizes:
        lines += ["", f"### {int(size):,} facts of one user", "", *_table(kept[size])]
        lines += ["", f"![{size} facts](img/side_by_side_{size}.svg)"]
        _plot(docs / "img" / f"side_by_side_{size}.svg", kept[size])
    lines += ["", "### What is left, what is late, what is lost", "", *_rest(kept[sizes[-1]])]
    lines += ["", "### How cost grows", "", *_growth(kept)]
    write_section(docs, "Side by side", "\n".join(lines) + "\n")


def _describe(systems: Mapping[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} ({one['versions']})" for name, one in systems.items() if one.get("versions"))
    yield (
        "Each system in a process of its own, the same facts and questions, and the same vectors, which were made "
        "beforehand and cost nobody anything (inspeximus ranks by words of its own). A cell that takes over 60 s is "
        "stopped. “–”: there is no such verb. Delete and correct are each system's own verb; Holdfast's delete can be "
        "undone for 15 days, its delete all is an erasure with a certificate. LangGraph's SqliteStore has no vectors "
        "here, because Python's sqlite3 loads no extensions. The floor is one synced append, and one product with all "
        "vectors."
    )
    yield ""
    yield f"{versions}."
    yield f"`make bench` on a {machine()}."


def _table(systems: Mapping[str, Any]) -> Iterator[str]:
    yield "| | " + " | ".join(title for _, _, title, _ in _COLUMNS) + " | memory, MB | disk, MB |"
    yield "|---|" + "---:|" * (len(_COLUMNS) + 2)
    for name, found in systems.items():
        cells = [_cell(found.get(scenario), figure, form) for scenario, figure, _, form in _COLUMNS]
        memory, disk = found.get("recall", {}).get("memory"), found.get("fill", {}).get("disk")
        cells += ["–" if value is None else f"{value / 1e6:,.0f}" for value in (memory, disk)]
        yield f"| {name} | " + " | ".join(cells) + " |"
    failed = {
        (name, one.get("failed"))
        for name, found in systems.items()
        for one in found.values()
        if isinstance(one, dict) and one.get("failed")
    }
    for name, why in sorted(failed):
        yield ""
        yield f"{name} failed: {why}"


def _rest(systems: Mapping[str, Any]) -> Iterator[str]:
    yield "| | of 200 texts, in files after delete all | ms after its moment an expired fact is gone | writes lost |"
    yield "|---|---:|---:|---:|"
    for name, found in systems.items():
        left, expiry, two = (found.get(scenario, {}) for scenario in ("delete_all", "expiry", "two_processes"))
        late = "never" if expiry.get("readable") else expiry.get("late", "–")
        on_server = "PostgreSQL" in name or "Postgres" in name
        yield f"| {name} | {'–' if on_server else left.get('left', '–')} | {late} | {two.get('lost', '–')} |"


def _growth(kept: Mapping[str, Any]) -> Iterator[str]:
    """Each verb at each size, and the exponent that fits: 0 is the same at every size, 1 grows with it."""
    sizes = [size for size in kept if "Holdfast" in kept[size]]
    yield "| | " + " | ".join(f"{int(size):,}" for size in sizes) + " | exponent |"
    yield "|---|" + "---:|" * (len(sizes) + 1)
    for name in ("Holdfast", "Holdfast (PostgreSQL)"):
        for scenario in _GROWING:
            found = [kept[size].get(name, {}).get(scenario, {}).get("p50") for size in sizes]
            measured = [(int(size), value) for size, value in zip(sizes, found, strict=True) if value]
            if len(measured) > 2:
                shown = ["–" if value is None else f"{value:.2f}" for value in found]
                yield f"| {name}: {scenario.replace('_', ' ')}, ms | {' | '.join(shown)} | {_exponent(measured):.2f} |"


def _exponent(points: list[tuple[int, float]]) -> float:
    """The slope of the line through the logarithms."""
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(value) for _, value in points]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return over / sum((x - middle_x) ** 2 for x in xs)


def _plot(path: Path, systems: Mapping[str, Any]) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.5), layout="constrained")
    titles = {scenario: title for scenario, _, title, _ in _COLUMNS}
    for axis, scenario in zip(axes.flat, _PLOTTED, strict=True):
        found = {name: one[scenario] for name, one in systems.items() if one.get(scenario, {}).get("p50")}
        names = list(reversed(found))
        middle = [found[name]["p50"] for name in names]
        beyond = [max(0.0, found[name]["p99"] - found[name]["p50"]) for name in names]
        colours = ["#1f6f5c" if name.startswith("Holdfast") else "#b9c4c0" for name in names]
        axis.barh(names, middle, xerr=[[0] * len(names), beyond], color=colours, error_kw={"lw": 0.8})
        axis.set_xscale("log")
        axis.set_title(f"{titles[scenario]} (bar: median, line: p99)", fontsize=9)
        axis.tick_params(labelsize=8)
    mpl.rcParams |= {"svg.hashsalt": "side by side", "svg.fonttype": "none"}
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
