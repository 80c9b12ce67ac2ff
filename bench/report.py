"""``docs/benchmarks.md``: the figures in tables, and a picture of each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from bench import archive, corrections, deployment, footprint, lifecycle
from bench.edges import console, service, start
from bench.langgraph import store, threads
from bench.pages.benchmarks import machine, write_section
from bench.recall import large_scope, quality
from bench.speed import AT_A_TIME, PASSES, ROUNDS, USER_MEMORIES, Figure
from holdfast.recall.embedders import open_embedder

mpl.use("agg")
import matplotlib.pyplot as plt


def write_speed(docs: Path, figures: Sequence[Figure], users: int) -> None:
    """The section on speed."""
    text = (
        f"One user's {USER_MEMORIES:,} memories in a store of {users * USER_MEMORIES:,} over {users:,} users, embedded "
        "engine, one process.\nEach figure is the least disturbed of several passes of 400 calls; floors and what they "
        f"bound take turns, {AT_A_TIME} calls at a time.\n`python -m bench --only speed` on a {machine()}.\n\n"
        + _table(figures)
        + "\n![speed](img/speed.png)\n"
    )
    _plot_speed(docs / "img", figures)
    write_section(docs, "Speed", text)


def write_deployment(docs: Path, figures: Sequence[Figure], users: int) -> None:
    """The section on PostgreSQL and Valkey."""
    text = (
        f"{users * USER_MEMORIES:,} memories over {users:,} users in PostgreSQL 18, over its socket, "
        "durable commits, all on one machine.\nLangGraph's store is on the same server, with the same embedder and its "
        f"default index, and holds {deployment.THEIR_USERS * USER_MEMORIES:,} items\n(more take hours to fill); what is"
        f" beside each other took turns,\n{AT_A_TIME} calls at a time, on one core; each figure is the least disturbed "
        f"of {PASSES} passes of {ROUNDS} calls.\nIt searches by vectors alone, Holdfast by vectors and words.\n"
        f"`python -m bench --only deployment` on a {machine()}.\n\n" + _table(figures)
    )
    write_section(docs, "Deployment", text)


def write_large_scope(docs: Path, figures: Sequence[Figure], parts: Mapping[str, float]) -> None:
    """The section on a user with very many memories."""
    text = (
        f"One user's {large_scope.MEMORIES:,} memories of one kind on PostgreSQL, 20 to 60 words each, 256 dimensions, "
        f"over loopback.\nEach figure is the least disturbed of {PASSES} new processes; imports and the embedder's "
        "load are not part of the first recall.\n"
        f"`python -m bench --only large_scope` on a {machine()}.\n\n" + _table(figures)
    )
    said = "; ".join(f"{name}, {taken:.2f} ms" for name, taken in parts.items())
    text += f"\n`python -m bench.recall.large_scope parts`, in processor time, the least of many: {said}.\n"
    write_section(docs, "Large scope", text)


def write_round_trips(docs: Path, figures: Sequence[Figure]) -> None:
    """The section on a PostgreSQL that is a millisecond away."""
    text = (
        "A proxy on loopback delays every byte between Holdfast and PostgreSQL by 0.5 ms in each direction. All "
        f"take turns,\n{AT_A_TIME} calls at a time; least disturbed of {PASSES} passes of {ROUNDS} calls.\n"
        f"`python -m bench --only round_trips` on a {machine()}.\n\n" + _table(figures)
    )
    write_section(docs, "Round trips", text)


def write_langgraph_store(docs: Path, rows: Sequence[store.Row]) -> None:
    """The section on the store for LangGraph."""
    text = (
        f"{store.ITEMS:,} items of one user in {store.NAMESPACES} namespaces, one embedder "
        "for all, durable commits, PostgreSQL over a socket;\nmedian milliseconds of calls that take turns, the least "
        f"disturbed of {PASSES} passes; InMemoryStore by itself.\n"
        f"`python -m bench --only langgraph_store` on a {machine()}.\n\n"
        f"| | {' | '.join(store.NAMES)} | target for ours | met |\n|---|{'---:|' * 4}---|---|\n"
    )
    for row in rows:
        medians = " | ".join(f"{one:.2f}" for one in row.medians)
        text += f"| {row.operation} | {medians} | {row.target} | {'yes' if row.met else '**no**'} |\n"
    write_section(docs, "LangGraph store", text)


def write_langgraph_threads(docs: Path, figures: Sequence[lifecycle.Figure]) -> None:
    """The section on LangGraph's threads."""
    text = (
        "What `holdfast langgraph govern` and the daily job cost beside LangGraph's own tables: "
        f"{threads.THREADS:,} threads of {threads.CHECKPOINTS} checkpoints\nwith writes and blobs, made by SQL, "
        f"a twentieth of them due.\n`python -m bench --only langgraph_threads` on a {machine()}.\n\n"
    )
    write_section(docs, "LangGraph threads", text + _measured(figures))


def _table(figures: Sequence[Figure]) -> str:
    rows = ["| | p50 ms | p95 ms | target | met |", "|---|---:|---:|---|---|"]
    for figure in figures:
        mark = "" if not figure.target else ("yes" if figure.met else "**no**")
        rows.append(f"| {figure.name} | {figure.p50:.3f} | {figure.p95:.3f} | {figure.target} | {mark} |")
    return "\n".join(rows) + "\n"


def write_lifecycle(docs: Path, figures: Sequence[lifecycle.Figure], users: int) -> None:
    """The section on sweeps."""
    text = (
        f"A store of {users * USER_MEMORIES:,} episodes over {users:,} users, embedded engine. The other process "
        f"recalls from\n{USER_MEMORIES:,} memories of one user all the while, with a pause of 2 ms between recalls.\n"
        "On PostgreSQL, 10,000 users have 100 memories each, and commits are durable.\n"
        f"`python -m bench --only lifecycle` on a {machine()}.\n\n" + _measured(figures)
    )
    write_section(docs, "Lifecycle", text)


def write_archive(docs: Path, found: Mapping[tuple[str, int], footprint.Footprint], locomo: str | None) -> None:
    """The section on what archiving frees, and on what is recalled after it."""
    rows = ["| | record | audit | in all | target | met |", "|---|---:|---:|---:|---|---|"]
    for (engine, characters), one in found.items():
        cells = [f"{one.before[name]:,.0f} → {one.after[name]:,.0f}" for name in footprint.TABLES]
        target = footprint.TARGETS[characters]
        met = "yes" if one.ratio <= target else "**no**"
        rows.append(
            f"| {engine}, {characters:,} characters | {' | '.join(cells)} | {one.ratio:.3f} × | ≤ {target} × | {met} |"
        )
    text = (
        "Bytes for each long-term memory before and after a sweep archives it, with the entries of all indexes, after "
        "a\nvacuum. What goes to cold storage lies there, compressed, beside the store.\n"
        f"`python -m bench --only archive` on a {machine()}.\n\n" + "\n".join(rows) + "\n"
    )
    if locomo is not None:
        text += "\n" + _archived(archive.measure(Path(locomo)))
    write_section(docs, "Archive", text)


def _measured(figures: Sequence[lifecycle.Figure]) -> str:
    rows = ["| | measured | target | met |", "|---|---:|---|---|"]
    for figure in figures:
        mark = "" if figure.met is None else "yes" if figure.met else "**no**"
        rows.append(f"| {figure.name} | {figure.value} | {figure.target} | {mark} |")
    return "\n".join(rows) + "\n"


def write_erasure(docs: Path, figures: Sequence[lifecycle.Figure], users: int) -> None:
    """The section on erasure, backups and the audit chain."""
    text = (
        f"A store of {users * USER_MEMORIES:,} memories over {users:,} users; another process recalls from "
        f"{USER_MEMORIES:,} memories of one\nuser while the backup is made, with a pause of 2 ms between recalls. "
        "Backups lie on the same disk.\n"
        f"`python -m bench --only erasure` on a {machine()}.\n\n" + _measured(figures)
    )
    write_section(docs, "Erasure and backups", text)


def write_start(docs: Path, taken: Mapping[str, float]) -> None:
    """The section on the start of a process."""
    figures = [
        lifecycle.Figure("import holdfast and its engine", f"{taken['import']:.0f} ms", "", None),
        lifecycle.Figure("open a store", f"{taken['open']:.0f} ms", "", None),
        lifecycle.Figure("the first add", f"{taken['add']:.0f} ms", "< 100 ms", taken["add"] < 100),
        lifecycle.Figure("the dearest of the next 500", f"{taken['later']:.0f} ms", "", None),
        lifecycle.Figure(
            "a text of 7 MB, the dearest of five shapes",
            f"{taken['largest']:.0f} ms",
            "< 1,000 ms",
            taken["largest"] < 1_000,
        ),
        lifecycle.Figure(
            "`holdfast add`, all of it", f"{taken['command']:.0f} ms", "≤ 400 ms", taken["command"] <= 400
        ),
        lifecycle.Figure("`holdfast --version`", f"{taken['version']:.0f} ms", "", None),
        lifecycle.Figure("floor: Python with numpy and apsw", f"{taken['floor']:.0f} ms", "", None),
    ]
    text = (
        f"CPU time of the steps in a new process, at the median of {start.CHILDREN} processes, embedded engine.\n"
        f"`python -m bench --only start` on a {machine()}.\n\n" + _measured(figures)
    )
    write_section(docs, "Start", text)


def write_corrections(docs: Path, ratios: Sequence[corrections.Ratio]) -> None:
    """The section on what corrections and their like cost."""
    figures = [
        lifecycle.Figure(f"{ratio.name} ({ratio.engine})", f"{ratio.value:.2f} ×", f"≤ {ratio.most:g} ×", ratio.is_met)
        for ratio in ratios
    ]
    text = (
        f"Calls that take turns, of a user with {corrections.MEMORIES:,} memories, as multiples of the plain ones at "
        f"p50; of {corrections.PASSES} passes\nthe least disturbed. `python -m bench --only corrections` on a "
        f"{machine()}.\n\n"
    )
    write_section(docs, "Being right", text + _measured(figures))


def write_service(docs: Path, figures: Sequence[lifecycle.Figure]) -> None:
    """The section on the service."""
    text = (
        "`holdfast serve` over loopback, embedded engine, on the same cores as what asks it. What a request costs is\n"
        f"the server's CPU: of a user with {service.MEMORIES:,} memories, in turns with a route that does nothing,\n"
        "and with bare Starlette as uvicorn serves it by its fastest means, asked by a program with one plain socket.\n"
        "In process is the same call, made for the same program by a process that reads its socket without HTTP: only\n"
        "the call is timed. In a row nobody asks, and the other core rests.\n"
        f"The {service.CLIENTS} clients have a user each, and add and recall for {service.SECONDS:.0f} seconds.\n"
        f"`python -m bench --only service` on a {machine()}.\n\n" + _measured(figures)
    )
    write_section(docs, "Service", text)


def write_console(docs: Path, found: Sequence[console.Measured], users: int) -> None:
    """The section on the console."""
    text = (
        "Pages of `holdfast serve` over loopback, to the first byte, in a store of "
        f"{users * console.MEMORIES:,} memories of {users:,} users\nand one who has {console.LARGE:,}; "
        f"{console.ROUNDS} views of each page, after one. The weight is all that a browser\nloads; at most "
        f"{console.MOST_KILOBYTES:.0f} kB.\n"
        f"`python -m bench --only console` on a {machine()}.\n\n"
    )
    for one in found:
        name = "PostgreSQL" if one.engine == "postgres" else "SQLite"
        text += f"| {name} | p50 ms | p95 ms | limits | weight | met |\n|---|---:|---:|---|---:|---|\n"
        for page in one.pages:
            text += (
                f"| {page.name} | {page.p50:.1f} | {page.p95:.1f} | {page.limits[0]:.0f}, {page.limits[1]:.0f} ms "
                f"| {page.kilobytes:.0f} kB | {'yes' if page.met else '**no**'} |\n"
            )
        idle, watched = one.recall
        text += (
            f"| recall in the same process, p99: idle {idle:.1f} ms, at two page views a second | | {watched:.1f} "
            f"| + {console.MOST_ADDED_MS:.0f} ms | | {'yes' if one.is_recall_met else '**no**'} |\n"
        )
        text += (
            "".join(f"| {job}, a job | {seconds * 1_000:.0f} | | | | |\n" for job, seconds in one.jobs.items()) + "\n"
        )
    write_section(docs, "The console", text)


def _archived(found: archive.Figures) -> str:
    return (
        "What is recalled once only summaries are left: LoCoMo recorded as episodes, one for each session, with its\n"
        "messages; R@5 of the right session, averaged over questions.\n\n"
        "| sessions | questions | by messages | by episodes | archived | archived / before | part of the text |\n"
        "|---:|---:|---:|---:|---:|---:|---:|\n"
        f"| {found.sessions:,} | {found.questions:,} | {found.messages:.3f} | {found.episodes:.3f} "
        f"| {found.archived:.3f} | {found.ratio:.1%} | {found.summary_part:.3f} |\n"
    )


def write_quality(docs: Path, locomo: str | None) -> None:
    """The section on recall quality, with the embedder that ``HOLDFAST_EMBEDDER`` names."""
    name = os.environ.get("HOLDFAST_EMBEDDER", "static")
    tables = list(quality.tables(None if locomo is None else Path(locomo), open_embedder(name)))
    rows = [
        "| set | memories | queries | " + " | ".join(quality.WAYS) + " | gain | R@1 | P@5 | AUC |",
        "|---|---:|---:|" + "---:|" * (len(quality.WAYS) + 4),
    ]
    for table in tables:
        cells = " | ".join(f"{table.figures[way].recall10:.3f}" for way in quality.WAYS)
        product = table.figures[quality.PRODUCT]
        gain = f"{table.gain.mean:+.3f} [{table.gain.low:+.3f}, {table.gain.high:+.3f}]"
        auc = "" if table.scores is None else f"{table.scores.auc:.3f}"
        rows.append(
            f"| {table.name} | {table.memories:,} | {table.questions:,} | {cells} "
            f"| {gain} | {product.any1:.3f} | {product.precision5:.3f} | {auc} |"
        )
    text = (
        "Recall@10: the share of a query's right answers among the first ten, averaged over queries; ranked by\n"
        "vectors alone, by words alone, by both, and by both with neighbouring turns, which is what `retrieve` does.\n"
        "Of that: the gain over the better of vectors and words, with the 95 % interval of a paired bootstrap; how\n"
        "often the first result is right (R@1); P@5; and where a set has several users, how often their own questions\n"
        "score higher than those about somebody else (AUC). `bench/recall/quality.py` says what each set is;\n"
        "[how to measure recall](howto/measure-recall.md) on a set of your own.\n"
        f"`HOLDFAST_EMBEDDER={name} python -m bench --only quality --locomo locomo10.json` on a {machine()}.\n\n"
        + "\n".join(rows)
        + f"\n\n{_describe_threshold(tables)}\n"
    )
    if name == "static":
        _plot_quality(docs / "img", tables)
        text += "\n![recall](img/recall.png)\n"
    write_section(docs, "Recall quality" if name == "static" else f"Recall quality with {name}", text)


def _describe_threshold(tables: Sequence[quality.Table]) -> str:
    """What one threshold keeps of each set of several users."""
    threshold = quality.common_threshold(tables)
    kept = [(table.name, *table.scores.kept(threshold)) for table in tables if table.scores is not None]
    told = "; ".join(f"{name}: {own:.0%} and {foreign:.0%}" for name, own, foreign in kept)
    return f"One threshold for all of them, {threshold:.2f}, keeps of the own and of the foreign questions: {told}."


def _plot_speed(folder: Path, figures: Sequence[Figure]) -> None:
    shown = [figure for figure in figures if "multiple" not in figure.name][::-1]
    canvas, axes = plt.subplots(figsize=(8, 0.36 * len(shown) + 1.2))
    names = [figure.name for figure in shown]
    colours = ["#9aa5b1" if figure.name.startswith("floor") else "#2f6fb0" for figure in shown]
    axes.barh(names, [figure.p95 for figure in shown], color="#d6e0ea", label="p95")
    axes.barh(names, [figure.p50 for figure in shown], color=colours, height=0.5, label="p50")
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds (log scale); dark: p50, light: p95; grey: physical floor")
    axes.spines[["top", "right"]].set_visible(False)
    _save(canvas, folder / "speed.png")


def _plot_quality(folder: Path, tables: Sequence[quality.Table]) -> None:
    canvas, axes = plt.subplots(figsize=(9, 4))
    width = 0.8 / len(quality.WAYS)
    colours = ("#c7d3df", "#9fb7cf", "#5f93c4", "#1f5c99")
    for number, way in enumerate(quality.WAYS):
        places = [place + number * width for place in range(len(tables))]
        heights = [table.figures[way].recall10 for table in tables]
        axes.bar(places, heights, width, label=way, color=colours[number])
    axes.set_xticks(
        [place + 1.5 * width for place in range(len(tables))], [t.name for t in tables], rotation=20, ha="right"
    )
    axes.set_ylabel("recall@10")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.12))
    axes.spines[["top", "right"]].set_visible(False)
    _save(canvas, folder / "recall.png")


def _save(canvas: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(canvas)
