"""A progress bar on stderr, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.edges.cli.output import error_console


def is_watched(*, silent: bool) -> bool:
    """Whether anybody would see a progress bar."""
    return not silent and error_console().is_terminal


@contextmanager
def show_progress(doing: str, total: int, *, silent: bool) -> Iterator[Callable[[int], None]]:
    """A bar that goes up to ``total`` and is gone at the end; what is yielded advances it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not is_watched(silent=silent)
    with Progress(*columns, console=error_console(), transient=True, disable=hidden) as progress:
        task = progress.add_task(doing, total=max(total, 1))
        yield lambda count: progress.advance(task, count)
