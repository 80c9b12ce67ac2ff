"""The section about recall beside others: two tables and a picture. All figures are kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from bench import DATA, DOCS
from bench.pages.benchmarks import machine, write_section
from bench.recall.comparison import CHIEF, Compared, Group, Interval, tabulate

mpl.use("svg")
import matplotlib.pyplot as plt

TITLE: Final = "Recall beside others"
_KEPT: Final = "recall.json"
_PICTURE: Final = "recall_beside.svg"


def keep(docs: Path, head: str, groups: Sequence[Group], reasons: Sequence[str]) -> None:
    """Keep all figures, and write the section."""
    figures = [one._asdict() | {"systems": {name: _round(row) for name, row in one.systems.items()}} for one in groups]
    kept = {"head": head, "machine": machine(), "groups": figures, "reasons": list(reasons)}
    _place(docs).write_text(json.dumps(kept, ensure_ascii=False) + "\n", encoding="utf-8")
    write(docs)


def write(docs: Path) -> None:
    """Write the section of the figures that are kept."""
    kept = json.loads(_place(docs).read_text(encoding="utf-8"))
    groups = [_show(one) for one in kept["groups"]]
    _plot(docs / "img" / _PICTURE, groups[0])
    lines = [
        f"{kept['head']}. Means over questions with their 95 % bootstrap intervals; *ahead* is by how much the first",
        "system is above this one, question by question. The peers have the vectors of the default embedder;",
        "inspeximus ranks by words, as it does by itself. One that took five minutes of a processor was stopped.",
        f"`python -m bench.recall.quality SET.json --docs docs` on a {kept['machine']}.",
        "Intervals of each category, and Holdfast with two of its parts switched off: `bench/data/recall.json`.",
        "",
        f"![{CHIEF} of each system, with its interval](img/{_PICTURE})",
        "",
        *tabulate(groups),
        *(line for reason in kept["reasons"] for line in ("", reason)),
    ]
    write_section(docs, TITLE, "\n".join(lines) + "\n")


def shorten() -> Iterator[str]:
    """What the top of the page says of it: how Holdfast and the best of the others recall."""
    if not (DATA / _KEPT).exists():
        return
    kept = json.loads((DATA / _KEPT).read_text(encoding="utf-8"))
    whole = _show(kept["groups"][0])
    means = {name: row[CHIEF].own.mean for name, row in whole.systems.items() if " without " not in name}
    others = {name: mean for name, mean in means.items() if not name.startswith("Holdfast")}
    if others:
        first, best = next(iter(means)), max(others, key=others.__getitem__)
        yield (
            f"**Finds what is asked for**: {means[first]:.0%} of the right answers are among the first ten on "
            f"{kept['head'].partition(':')[0]}. Of the others {best} finds most, {others[best]:.0%}."
        )


def _place(docs: Path) -> Path:
    """Beside the other figures; those of a page elsewhere are beside that page."""
    return (DATA if docs.resolve() == DOCS else docs) / _KEPT


def _round(row: dict[str, Compared]) -> dict[str, Any]:
    return {title: [one and [round(value, 4) for value in one] for one in pair] for title, pair in row.items()}


def _show(kept: dict[str, Any]) -> Group:
    """A group as it is shown: without systems of which two parts are switched off."""
    systems = {
        name: {title: Compared(Interval(*own), ahead and Interval(*ahead)) for title, (own, ahead) in row.items()}
        for name, row in kept["systems"].items()
        if " and " not in name
    }
    return Group(kept["name"], kept["questions"], systems)


def _plot(path: Path, group: Group) -> None:
    rows = sorted(((row[CHIEF].own, name) for name, row in group.systems.items()), key=lambda one: one[0].mean)
    figure, axis = plt.subplots(figsize=(9, 0.3 * len(rows) + 0.9), layout="constrained")
    for place, (own, name) in enumerate(rows):
        colour = "#9aa5b1" if not name.startswith("Holdfast") else "#7da7cf" if " without " in name else "#2f6fb0"
        axis.plot([own.low, own.high], [place, place], color=colour, lw=2)
        axis.plot([own.mean], [place], "o", color=colour, ms=7)
        axis.annotate(f"{own.mean:.3f}", (own.high, place), (6, 0), textcoords="offset points", va="center", fontsize=9)
    axis.set_yticks(range(len(rows)), [name for _, name in rows])
    axis.set_xlim(0, 1)
    axis.grid(axis="x", lw=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(f"{CHIEF}, {group.name}, with 95 % intervals", fontsize=10)
    mpl.rcParams |= {"svg.hashsalt": "recall", "svg.fonttype": "none"}
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
