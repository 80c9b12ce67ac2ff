"""``holdfast reembed``: vectors of the embedder in use for every memory, now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import error_console, show
from holdfast.edges.cli.store import open_engine


@command(app, "reembed", examples=("holdfast reembed",))
def reembed(*, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """Give every memory vectors of the embedder in use, after HOLDFAST_EMBEDDER has changed.

    Recall does this by itself, a little with each query; this does all of it now.
    """
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        engine.embedder.embed(["is it there?"])  # the engine writes on without its embedder; here that is the point
        with _progress(silent=as_json) as advance:
            count = engine.reembed(advance)
        done = {"reembedded": count, "model": engine.embedder.id}
    show(done, _show_done, as_json=as_json)


def _show_done(console: Console, done: dict[str, Any]) -> None:
    count, model = done["reembedded"], done["model"]
    text = f"Embedded {count:,} memories with {model}." if count else f"Every memory has vectors of {model} already."
    console.print(text, soft_wrap=True)


@contextmanager
def _progress(*, silent: bool) -> Iterator[Callable[[int], None]]:
    """A moving line on stderr, where that is a terminal; what is yielded advances it."""
    console = error_console()
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} memories embedded"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=silent or not console.is_terminal) as progress:
        task = progress.add_task("embedding", total=None)
        yield lambda count: progress.advance(task, count)
