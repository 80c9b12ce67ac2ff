"""The page about the comparison: tables, and a picture of each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib as mpl

from bench import DATA
from bench.pages.benchmarks import machine, write_section
from bench.side_by_side.systems import SYSTEMS

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter


class Column(NamedTuple):
    """A figure of a scenario, and how it is shown."""

    scenario: str
    figure: str
    title: str
    form: str
    is_rate: bool = False
    """Whether more is better."""


#: What callers wait for, with the 99th percentile behind the median; and all the rest.
_VERBS: Final = (
    Column("add", "p50", "add, ms", "{:.2f}"),
    Column("recall", "p50", "recall, ms", "{:.2f}"),
    Column("filtered", "p50", "filtered recall, ms", "{:.2f}"),
    Column("correct", "p50", "correct, ms", "{:.2f}"),
    Column("delete", "p50", "delete, ms", "{:.2f}"),
    Column("context", "p50", "context, ms", "{:.2f}"),
    Column("cold_start", "p50", "cold start, ms", "{:,.0f}"),
)
_WHOLE: Final = (
    Column("fill", "per_second", "added in bulk, a second", "{:,.0f}", is_rate=True),
    Column("sweep", "p99", "recall in a sweep (p99), ms", "{:.1f}"),
    Column("two_processes", "per_second", "two processes add, a second", "{:,.0f}", is_rate=True),
    Column("delete_all", "p50", "delete all, ms", "{:,.0f}"),
)
_COLUMNS: Final = _VERBS + _WHOLE
#: Where the figures are kept.
KEPT: Final = "side_by_side.json"
_NOT_ON_DISK: Final = ("LangGraph InMemoryStore",)
_BY_HAND: Final = "sqlite-vec by hand"
_PLOTTED: Final = _VERBS[:5] + _VERBS[6:]
_GROWING: Final = ("add", "recall", "filtered", "correct", "delete", "context", "cold_start", "delete_all")
#: What is done in each scenario.
_SCENARIOS: Final = (
    ("added in bulk", "all facts, 500 at a time where the system takes several"),
    ("add", "200 facts, one at a time; done when the call returns"),
    ("recall", "300 questions, the ten best facts of each; 20 before that are not counted"),
    ("filtered recall", "100 questions, among facts of one of ten topics"),
    ("correct", "100 facts get another text, by their ids"),
    ("delete", "100 facts, by their ids"),
    ("context", "50 questions, the best of every kind of memory within 1,000 tokens"),
    ("recall in a sweep", "recalls, while another thread of the process removes 2,000 facts that have expired"),
    ("cold start", "three new processes: import, open, first recall"),
    ("two processes add", "two processes add 200 facts each at once"),
    ("delete all", "all that the user has, once"),
    ("memory", "the most that the process had in memory, after its recalls; a server's memory is not part of it"),
    ("disk", "files, or the database, after all facts were added in bulk"),
)
#: What was found where Holdfast was not first, and what was done about it.
_FOUND: Final = """\
- A delete on PostgreSQL was 21 round trips: the record was read three times, each time in a transaction of its own, and
  under the lock one thing was asked after another. It is two now: all questions travel with the lock, and all that is
  written with the commit. A correction was 14 round trips and is three; reading by an id was three and is one.
  LangGraph's PostgresStore deletes with one statement: nothing can be undone, no hold is looked for, and nobody can see
  later who deleted what.
- Recall beside a sweep in the same process waited for Python's interpreter lock, not for the store: a recall lets go of
  it some ten times, and each time waited up to 5 ms for the sweep's turn. During a sweep turns are 0.1 ms now. The
  schedule of `holdfast serve`, and `holdfast sweep`, are processes of their own. LangGraph's stores delete expired rows
  with one statement; Holdfast moves each record to the recycle bin, with holds checked and an entry in the audit chain.
- An add waits for the disk once, and writes five pages of 4 kB. What is beside that is Python: it was 134 calls and is
  109. When another process has written in between, an add reads those pages again, and asks again what it relied on.
- Two processes that add at once slept up to 5 ms for a lock that is held for half a millisecond. They look for it more
  often now.
- The first erasure of a process (delete all) spent more time on imports than on erasing: it loaded what reads rows for
  backups, and what writes public keys in every form.
- Three quarters of a cold start are imports, and a third of it is Python making some 180 small classes. It loads no
  kind of memory that is not asked for, and translates no statement that it does not use.
- sqlite-vec by hand adds, corrects and deletes in less time, because it does less: no words to search by, no quotas, no
  versions, no audit chain, no recycle bin; and what was deleted is still in its files.
- InMemoryStore writes nothing to a disk; what it has is gone with its process.
- SqliteStore without vectors finds nothing by meaning: it lists items that pass the filter."""


def summarize(found: Mapping[str, Any]) -> str:
    """A line for the terminal."""
    shown = (f"{column.title}: {_cell(found.get(column.scenario), column)}" for column in _COLUMNS)
    return "  " + "; ".join(shown)


def _cell(one: Mapping[str, Any] | None, column: Column) -> str:
    if one is None or "none" in one:
        return "–"
    if "stopped" in one:
        return "stopped"
    if "failed" in one or one.get(column.figure) is None:
        return "failed"
    shown = column.form.format(one[column.figure])
    return f"{shown} ({column.form.format(one['p99'])})" if column in _VERBS else shown


def write(docs: Path, kept: Mapping[str, Any]) -> None:
    """The section, with what is kept."""
    sizes = _sizes_with_peers(kept)
    if not sizes:
        return
    lines = [*_describe(kept[sizes[-1]])]
    for size in reversed(sizes):
        lines += ["", f"### {int(size):,} facts of one user", "", "Median milliseconds, and the 99th percentile.", ""]
        lines += [*_table(kept[size], _VERBS), "", *_table(kept[size], _WHOLE, with_sizes=True), *_failures(kept[size])]
        lines += ["", f"![{int(size):,} facts: each system's median and 99th percentile](img/side_by_side_{size}.svg)"]
        _plot(docs / "img" / f"side_by_side_{size}.svg", kept[size])
    lines += ["", "### What is left, what is late, what is lost", "", *_rest(kept[sizes[-1]])]
    lines += ["", "### Where Holdfast is not first", "", *_losses({size: kept[size] for size in sizes})]
    lines += ["", "What was found there, and done about it:", "", _FOUND]
    lines += ["", "### How cost grows", "", *_growth(kept)]
    lines += ["", "### What is done, and by whom", "", *_list_scenarios(), "", *_list_systems(kept[sizes[-1]])]
    write_section(docs, "Side by side", "\n".join(lines) + "\n")


def _sizes_with_peers(kept: Mapping[str, Any]) -> list[str]:
    return sorted((size for size in kept if size.isdecimal()), key=int)  # at others Holdfast is alone: how cost grows


def shorten() -> Iterator[str]:
    """What the top of the page says of it: where Holdfast is first, where it is not, and what it leaves."""
    kept = json.loads((DATA / KEPT).read_text(encoding="utf-8")) if (DATA / KEPT).exists() else {}
    if not (sizes := _sizes_with_peers(kept)):
        return
    systems = kept[sizes[-1]]
    libraries = [name for name in systems if _is_beside("Holdfast", name) and name not in (*_NOT_ON_DISK, _BY_HAND)]
    first, behind = _compare_with(systems, "Holdfast", libraries)
    _, by_hand = _compare_with(systems, "Holdfast", [_BY_HAND])
    _, on_server = _compare_with(systems, "Holdfast (PostgreSQL)", ["LangGraph PostgresStore"])
    yield (
        f"**First**, or within a tenth of it, of the libraries that write to a disk, with {int(sizes[-1]):,} facts of "
        f"a user in one's own process (in brackets: the next; `make bench`, ten minutes): {', '.join(first)}."
    )
    yield (
        f"**Behind** one of them: {', '.join(behind) or 'nowhere'}. Behind two tables of SQLite by hand, which do "
        f"less: {', '.join(by_hand) or 'nowhere'}. Behind PostgresStore, on PostgreSQL: "
        f"{', '.join(on_server) or 'nowhere'}. "
        "[Why](#where-holdfast-is-not-first)."
    )
    left = {name: found.get("delete_all", {}).get("left") for name, found in systems.items()}
    told = ", ".join(f"{name} {count}" for name, count in left.items() if count)
    yield f"**Gone is gone**: of 200 texts that were deleted {left['Holdfast']} are left in its files ({told})."


def _compare_with(systems: Mapping[str, Any], own: str, others: Sequence[str]) -> tuple[list[str], list[str]]:
    """The figures of ours that no other is ahead of by a tenth, and those that one is, each with the best of others."""
    first: list[str] = []
    behind: list[str] = []
    for column in _COLUMNS:
        figures = {name: systems.get(name, {}).get(column.scenario, {}).get(column.figure) for name in (own, *others)}
        measured = {name: value for name, value in figures.items() if value}
        value = measured.pop(own, None)
        if value and measured:
            best = (max if column.is_rate else min)(measured, key=measured.__getitem__)
            title, _, unit = column.title.partition(", ")
            shown, theirs = (column.form.format(one) for one in (value, measured[best]))
            name = f"{best} " if len(others) > 1 else ""
            is_behind = _is_ahead({column.figure: measured[best]}, column, value)
            (behind if is_behind else first).append(f"{title} {shown} {unit} ({name}{theirs})")
    return first, behind


def _describe(systems: Mapping[str, Any]) -> Iterator[str]:
    is_durable = all(found.get("is_durable") for found in systems.values())
    yield (
        "Each system runs in a process of its own, with the same facts and questions. The vectors are the same, too, "
        "were made beforehand, and cost nobody anything. PostgreSQL is on the same machine, over its socket; it "
        f"{'waits' if is_durable else '**does not wait**'} for the disk with each commit. Calls are timed until all "
        "are made, or ten seconds have passed. What takes over 60 s in all is stopped. “–” means that a system has no "
        "such verb, or that the figure makes no sense for it."
    )
    yield ""
    yield (
        f"`make bench` on a {machine()}. All percentiles and rates: `bench/data/side_by_side.json`; what is done, and "
        "by which versions: [below](#what-is-done-and-by-whom)."
    )


def _list_scenarios() -> Iterator[str]:
    yield "| scenario | what is done |"
    yield "|---|---|"
    yield from (f"| {name} | {what} |" for name, what in _SCENARIOS)


def _list_systems(systems: Mapping[str, Any]) -> Iterator[str]:
    yield "| system | version | what it does here |"
    yield "|---|---|---|"
    for name, found in systems.items():
        yield f"| {name} | {found.get('versions') or '–'} | {SYSTEMS[name].does} |"


def _table(systems: Mapping[str, Any], columns: Sequence[Column], *, with_sizes: bool = False) -> Iterator[str]:
    titles = [*(column.title for column in columns), *(["memory, MB", "disk, MB"] if with_sizes else [])]
    yield "| | " + " | ".join(titles) + " |"
    yield "|---|" + "---:|" * len(titles)
    for name, found in systems.items():
        fill = found.get("fill", {})
        instead = None if "per_second" in fill else fill  # without its facts it was asked nothing else
        cells = [_cell(found.get(column.scenario, instead), column) for column in columns]
        if with_sizes:
            memory, disk = found.get("recall", {}).get("memory"), fill.get("disk")
            cells += ["–" if not value else f"{value / 1e6:,.0f}" for value in (memory, disk)]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _failures(systems: Mapping[str, Any]) -> Iterator[str]:
    """Why some of it has no figures."""
    failed = {
        (name, one.get("failed"))
        for name, found in systems.items()
        for one in found.values()
        if isinstance(one, dict) and one.get("failed")
    }
    for name, why in sorted(failed):
        yield ""
        yield f"{name} failed: {why}"


def _losses(sizes: Mapping[str, Any]) -> Iterator[str]:
    """The figures in which another system is ahead by a tenth or more, of those that run where Holdfast does: beside
    its process, or on PostgreSQL.
    """
    yield "Another system is ahead by a tenth or more; on PostgreSQL, of LangGraph's PostgresStore alone."
    yield ""
    yield f"| | {' | '.join(f'{int(size):,} facts' for size in sizes)} |"
    yield f"|---|{'---|' * len(sizes)}"
    for own, column in product(("Holdfast", "Holdfast (PostgreSQL)"), _COLUMNS):
        cells = [_name_faster(systems, own, column) for systems in sizes.values()]
        if any(cells):
            yield f"| {own}: {column.title} | {' | '.join(cells)} |"


def _name_faster(systems: Mapping[str, Any], own: str, column: Column) -> str:
    """A figure of ours, and the systems that are ahead of it; nothing, if none is."""
    value = systems.get(own, {}).get(column.scenario, {}).get(column.figure)
    ahead = [
        f"{name} {_cell(found[column.scenario], column).split(' ')[0]}"
        for name, found in systems.items()
        if value and _is_beside(own, name) and _is_ahead(found.get(column.scenario, {}), column, value)
    ]
    return f"{column.form.format(value)}; {', '.join(ahead)}" if ahead else ""


def _is_beside(own: str, other: str) -> bool:
    """Whether two systems run in the same place."""
    return (
        other != own
        and not other.startswith("floor")
        and ("PostgreSQL" in own) == ("Postgres" in other)
        and "Holdfast" not in other
    )


def _is_ahead(one: Mapping[str, Any], column: Column, ours: float) -> bool:
    theirs = one.get(column.figure)
    if theirs is None:
        return False
    return bool(theirs > 1.1 * ours if column.is_rate else 1.1 * theirs < ours)


def _rest(systems: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Of 200 texts, how many are in the files once all that the user has was deleted and the store closed (a "
        "server's are not read); how long after its moment a fact that expires can still be read by its id, by a look "
        "every 5 ms; and how many of 400 writes by two processes at once are missing after."
    )
    yield ""
    yield "| | texts left in files | ms an expired fact outlives its moment | writes lost |"
    yield "|---|---:|---:|---:|"
    for name, found in systems.items():
        left, expiry, two = (found.get(scenario, {}) for scenario in ("delete_all", "expiry", "two_processes"))
        late = "never" if expiry.get("readable") else expiry.get("late", "–")
        on_server = "PostgreSQL" in name or "Postgres" in name
        yield f"| {name} | {'–' if on_server else left.get('left', '–')} | {late} | {two.get('lost', '–')} |"


def _growth(kept: Mapping[str, Any]) -> Iterator[str]:
    """Each verb at each size, and the exponent that fits."""
    yield (
        "Median milliseconds. The exponent is that of the curve that fits: 0 is the same at every size, 1 grows with "
        "it. `make bench-full`."
    )
    grown = {
        (int(own), int(store)): one for key, one in kept.items() for own, of, store in [key.partition(" of ")] if of
    }
    users = {own: one for (own, store), one in grown.items() if own == store}
    stores = {store: one for (own, store), one in grown.items() if own != store}
    for title, sizes in (("facts of the user", users), ("facts in the store, 1,000 of them the user's", stores)):
        rows = [*_growth_rows(sizes)]
        if rows:
            yield ""
            yield f"| {title} | " + " | ".join(f"{size:,}" for size in sorted(sizes)) + " | exponent |"
            yield "|---|" + "---:|" * (len(sizes) + 1)
            yield from rows


def _growth_rows(sizes: Mapping[int, Any]) -> Iterator[str]:
    for name, scenario in product(("Holdfast", "Holdfast (PostgreSQL)"), _GROWING):
        found = [(size, sizes[size].get(name, {}).get(scenario, {}).get("p50")) for size in sorted(sizes)]
        measured = [(size, value) for size, value in found if value]
        if len(measured) > 2:
            shown = ["–" if value is None else f"{value:.2f}" for _, value in found]
            yield f"| {name}: {scenario.replace('_', ' ')} | {' | '.join(shown)} | {_exponent(measured):.2f} |"


def _exponent(points: list[tuple[int, float]]) -> float:
    """The slope of the line through the logarithms."""
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(value) for _, value in points]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return over / sum((x - middle_x) ** 2 for x in xs)


def _plot(path: Path, systems: Mapping[str, Any]) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    for axis, column in zip(axes.flat, _PLOTTED, strict=True):
        found = {name: one[column.scenario] for name, one in systems.items() if one.get(column.scenario, {}).get("p50")}
        for place, (name, one) in enumerate(reversed(found.items())):
            colour = "#1f6f5c" if name.startswith("Holdfast") else "#6b7a75"
            axis.plot([one["p50"], max(one["p50"], one["p99"])], [place, place], color=colour, lw=1.2)
            axis.plot([one["p50"]], [place], "o", color=colour, ms=6)
            label = column.form.format(one["p50"])
            axis.annotate(label, (one["p50"], place), (-6, 0), textcoords="offset points", ha="right", va="center")
        axis.set_yticks(range(len(found)), reversed(found))
        axis.set_xscale("log")
        axis.margins(x=0.4, y=0.08)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(axis="x", lw=0.3)
        axis.set_title(column.title, fontsize=10)
    figure.suptitle("dot: median, line: up to the 99th percentile", fontsize=10)
    mpl.rcParams |= {"svg.hashsalt": "side by side", "svg.fonttype": "none"}
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
