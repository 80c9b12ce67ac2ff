"""What commands print: sentences and tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable
from rich.table import Table
from rich.text import Text

#: How wide plain text is where no terminal says it.
PIPED_WIDTH: Final = 160

Cell = str | int | Text
Part = str | ConsoleRenderable
#: Turns what a command found into what people see. Strings are one line each and cannot steer a terminal.
Render = Callable[[Any], Iterable[Part]]


class Output(NamedTuple):
    """What a command gives back where plain data is not enough."""

    value: Any
    render: Render | None = None
    """How it looks, instead of as the command usually does."""
    text: str | None = None
    """Printed as it is instead, unless JSON is asked for."""
    code: int = 0
    """The exit code."""


def console() -> Console:
    """Standard output. Rich leaves out colours for ``NO_COLOR`` and for whatever is not a terminal."""
    made = Console(highlight=False, markup=False, emoji=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = PIPED_WIDTH
    return made


def error_console() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def write(output: Output, render: Render | None, *, as_json: bool) -> None:
    """Print what a command gives back."""
    render = output.render or render
    if as_json:
        write_json(output.value)
    elif output.text is not None:
        sys.stdout.write(output.text)
    elif render is not None:
        write_parts(console(), render(output.value))


def write_json(value: Any) -> None:
    """One JSON document on standard output."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=not unicode, indent=2) + "\n")


def write_parts(target: Console, parts: Iterable[Part]) -> None:
    """Print what people see; a string by itself is one part."""
    for part in [parts] if isinstance(parts, str | Text) else parts:
        shown = Text(printable(part)) if isinstance(part, str) else part
        target.print(shown, soft_wrap=isinstance(shown, Text))


def printable(text: str, *, lines: bool = False) -> str:
    """Text that cannot steer a terminal: control characters are shown as ``�``; on one line, unless ``lines``."""
    if not lines:
        text = " ".join(text.split())
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


# --- parts ------------------------------------------------------------------------------------------------------------


def good(text: str) -> Text:
    """A line that says that all is well."""
    return Text(printable(text), style="green")


def warn(text: str) -> Text:
    """A line that deserves a look."""
    return Text(printable(text), style="yellow")


def bad(text: str) -> Text:
    """A line that says what is broken."""
    return Text(printable(text), style="bold red")


def dim(text: str) -> Text:
    """A line that matters less."""
    return Text(printable(text), style="bright_black")


def bold(text: str | int) -> Text:
    """A cell that sums up the others."""
    return Text(_to_text(text).plain, style="bold")


def indent(text: str) -> Text:
    """A line below another."""
    return Text(f"  {printable(text)}")


def cut(text: str, most: int) -> Text:
    """A cell of bounded width."""
    words = Text(printable(text))
    words.truncate(most, overflow="ellipsis")
    return words


class Rows:
    """A table: framed on a terminal, one line a row in a pipe.

    ``columns`` are names between commas. One that ends in ``>`` has numbers; one that ends in ``!`` (ids, which people
    copy, and times) is never cut or broken.
    """

    def __init__(self, columns: str, rows: Iterable[Sequence[Cell]]) -> None:
        self._columns = columns.split(", ")
        self._rows = [[_to_text(cell) for cell in row] for row in rows]

    def __rich_console__(self, target: Console, options: ConsoleOptions) -> Iterator[Table]:
        made = new_table(target)
        for number, name in enumerate(self._columns):
            whole = name.endswith("!")
            least = max((row[number].cell_len for row in self._rows), default=0) if whole else None
            justify: Any = "right" if name.endswith(">") else "left"
            made.add_column(name.rstrip(">!"), justify=justify, no_wrap=whole, min_width=least)
        for row in self._rows:
            made.add_row(*row)
        yield made


def new_table(target: Console) -> Table:
    """An empty table in the style of the place where it is printed."""
    framed = target.is_terminal
    return Table(
        box=box.ROUNDED if framed else None,
        border_style="bright_black",
        header_style="bold",
        pad_edge=framed,
        padding=(0, 1) if framed else (0, 2, 0, 0),
    )


def list_of(columns: str, row: Callable[[Any], Sequence[Cell]], *, empty: str) -> Render:
    """A way to show a list: as a table with a row for each, or a sentence that says that there is nothing."""
    return lambda found: [Rows(columns, map(row, found))] if found else [empty]


def facts(values: Mapping[str, str]) -> Iterator[Text]:
    """Names and values, one line each; what is empty is left out."""
    for name, value in values.items():
        if value:
            yield Text.assemble((f"{name + ':':<10} ", "bright_black"), printable(value))


def _to_text(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(f"{cell:,}" if isinstance(cell, int) else printable(cell))


# --- words ------------------------------------------------------------------------------------------------------------


def minute(moment: str | None, absent: str = "never") -> str:
    """An ISO moment as a table shows it: to the minute, in UTC."""
    return moment[:16].replace("T", " ") if moment else absent


def plural(count: int, noun: str) -> str:
    """How many of something there are: ``1 memory``, ``2 memories``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{count:,} {noun}s"


def to_json(value: Any) -> str:
    """Data on one line; nothing, if there is none."""
    return json.dumps(value, ensure_ascii=False) if value else ""
