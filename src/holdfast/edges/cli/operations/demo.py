"""``holdfast demo``: a short tour in a store of its own that is gone afterwards."""

from __future__ import annotations

import io
import logging
import tempfile
from typing import Annotated, Final

import typer
from rich.console import Console

from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import Json
from holdfast.edges.cli.output import console, write_json

_PIPED_WIDTH: Final = 100
_PAUSE_SECONDS: Final = 1.2


@command(app, "demo", examples=("holdfast demo --fast",))
def demo(
    *,
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause between the stops.")] = False,
    as_json: Json = False,
) -> None:
    """Take a short tour in 19 stops, from seven kinds of memory to an erasure that can be proven.

    Runs in a temporary folder; nothing of yours is read or changed.
    """
    from holdfast.edges.cli.stage import Stage  # noqa: PLC0415 - only the tour needs it
    from holdfast.edges.cli.tour import take  # noqa: PLC0415 - imports the engine

    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # missed targets stand in the tour's own table
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as home:
        if as_json:
            write_json(take(Stage(Console(file=io.StringIO(), markup=False)), home))
            return
        out = console()
        if not out.is_terminal:
            out.width = min(out.width, _PIPED_WIDTH)
        take(Stage(out, pause_seconds=0.0 if fast else _PAUSE_SECONDS), home)
