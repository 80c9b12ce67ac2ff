"""Where output goes: colours on a terminal, plain text into a pipe, one JSON document for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from rich.console import Console

#: How wide plain text is where no terminal says it.
PIPED_WIDTH: Final = 160
_T = TypeVar("_T")


def console() -> Console:
    """Standard output. Rich leaves out colours for ``NO_COLOR`` and for whatever is not a terminal."""
    made = Console(highlight=False, markup=False, emoji=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = PIPED_WIDTH
    return made


def error_console() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def show(answer: _T, render: Callable[[Console, _T], None], *, as_json: bool) -> None:
    """Show an answer: to a program as JSON, to a person by ``render``."""
    if as_json:
        write_json(answer)
    else:
        render(console(), answer)


def write_json(value: Any) -> None:
    """One JSON document on standard output."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=not unicode, indent=2) + "\n")


def printable(text: str, *, lines: bool = False) -> str:
    """Text that cannot steer a terminal: control characters are shown as ``�``; on one line, unless ``lines``."""
    if not lines:
        text = " ".join(text.split())
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)
