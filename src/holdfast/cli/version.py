"""``holdfast version``."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from rich.console import Console

from holdfast import __version__
from holdfast.cli.app import app, command
from holdfast.cli.options import Json
from holdfast.cli.output import show


@command(app, "version", examples=("holdfast version --json",))
def version(*, as_json: Json = False) -> None:
    """Show the versions of Holdfast and Python."""
    show({"holdfast": __version__, "python": platform.python_version()}, _show_version, as_json=as_json)


def _show_version(console: Console, versions: Mapping[str, str]) -> None:
    console.print(f"holdfast {versions['holdfast']} (Python {versions['python']})")
