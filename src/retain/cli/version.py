"""``retain version``."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from rich.console import Console

from retain import __version__
from retain.cli.app import app, command
from retain.cli.options import Json
from retain.cli.output import show


@command(app, "version", examples=("retain version --json",))
def version(*, as_json: Json = False) -> None:
    """Show the versions of Retain and Python."""
    show({"retain": __version__, "python": platform.python_version()}, _show_version, as_json=as_json)


def _show_version(console: Console, versions: Mapping[str, str]) -> None:
    console.print(f"retain {versions['retain']} (Python {versions['python']})")
