"""Where the tour is shown: panels and pauses on a terminal, plain headings and no waiting elsewhere."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from holdfast.edges.cli.render import show_rows

Cell = str | Text


class Stage:
    """What the tour says and shows, in order."""

    def __init__(self, console: Console, *, pause_seconds: float = 0.0) -> None:
        self.console = console
        self._pause_seconds = pause_seconds if console.is_terminal else 0.0

    def open(self, title: str, words: str) -> None:
        """How it begins."""
        if self.console.is_terminal:
            body = Text.assemble((title, "bold cyan"), "\n", words)
            self.console.print(Panel(body, box=box.DOUBLE, border_style="cyan", padding=(0, 2)))
        else:
            self.console.print(f"{title}\n{words}")

    def heading(self, number: int, title: str) -> None:
        """The next stop."""
        self.console.print()
        if self.console.is_terminal:
            self.console.rule(Text(f"{number}  {title}", style="bold cyan"), align="left", style="bright_black")
        else:
            line = f"{number}. {title}"
            self.console.print(f"{line}\n{'-' * len(line)}")

    def say(self, words: str) -> None:
        """A sentence."""
        self.console.print(words)

    def code(self, line: str) -> None:
        """A call as one would write it."""
        self.console.print(Text.assemble((">>> ", "bright_black"), (line, "cyan")), soft_wrap=True)

    def rows(self, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """A table."""
        show_rows(self.console, columns, rows)

    def refusal(self, error: Exception) -> None:
        """An error as a caller would see it."""
        words = f"{type(error).__name__}: {error}"
        if self.console.is_terminal:
            self.console.print(Panel(Text(words), border_style="red", padding=(0, 1)))
        else:
            self.console.print(f"    {words}", soft_wrap=True)

    def listing(self, code: str) -> None:
        """Some lines of Python to copy."""
        if self.console.is_terminal:
            self.console.print(Padding(Syntax(code, "python", background_color="default"), (0, 0, 0, 4)))
        else:
            self.console.print(textwrap.indent(code, "    "))

    def rest(self) -> None:
        """Time to read, for those who watch."""
        if self._pause_seconds:
            time.sleep(self._pause_seconds)
