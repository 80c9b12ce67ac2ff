"""What commands print (sentences and tables for people, one JSON document for programs), and how they end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from holdfast.core.errors import (
    ClockError,
    ConfirmationNeededError,
    HeldError,
    HoldfastError,
    InvalidInputError,
    PlanChangedError,
)

if TYPE_CHECKING:  # loaded where something has a colour or a frame, which most commands do without
    from rich.console import Console, ConsoleOptions, ConsoleRenderable
    from rich.table import Table
    from rich.text import Text

#: How wide plain text is where no terminal says it.
PIPED_WIDTH: Final = 160

Cell: TypeAlias = "str | int | Text"
Part: TypeAlias = "str | ConsoleRenderable"
#: Turns what a command found into what people see. Strings are one line each and cannot steer a terminal.
Render = Callable[[Any], "Iterable[Part]"]


class Output(NamedTuple):
    """What a command gives back where plain data is not enough."""

    value: Any
    render: Render | None = None
    """How it looks, instead of as the command usually does."""
    text: str | None = None
    """Printed as it is instead, unless JSON is asked for."""
    code: int = 0
    """The exit code."""


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error. Rich leaves out colours for ``NO_COLOR`` and what is not a terminal."""
    from rich.console import Console  # noqa: PLC0415

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not (stderr or made.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        made.width = PIPED_WIDTH
    return made


error_console: Final = partial(console, stderr=True)


def write(output: Output, render: Render | None = None, *, as_json: bool) -> None:
    """Print what a command gives back: one JSON document, or what people read."""
    render = output.render or render
    if as_json:
        unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        sys.stdout.write(json.dumps(output.value, ensure_ascii=not unicode, indent=2) + "\n")
    elif output.text is not None:
        sys.stdout.write(output.text)
    elif render is not None:
        write_parts(render(output.value))


def write_parts(parts: Iterable[Part], target: Console | None = None) -> None:
    """Print what people see, on standard output if nothing else is said; a string or a text by itself is one part."""
    for part in [parts] if isinstance(parts, str) or hasattr(parts, "plain") else parts:
        if isinstance(part, str) and target is None:
            sys.stdout.write(printable(part) + "\n")
        else:
            shown = assemble(printable(part)) if isinstance(part, str) else part
            (target or console()).print(shown, soft_wrap=hasattr(shown, "plain"))


def assemble(*parts: str | Text | tuple[str, str]) -> Text:
    """A text of parts, which may have styles."""
    from rich.text import Text  # noqa: PLC0415

    return Text.assemble(*parts)


def printable(text: str, *, lines: bool = False) -> str:
    """Text that cannot steer a terminal: control characters are shown as ``�``; on one line, unless ``lines``."""
    if not lines:
        text = " ".join(text.split())
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


# --- parts ------------------------------------------------------------------------------------------------------------


def _to_line(style: str, text: str) -> Text:
    return assemble((printable(text), style))


good = partial(_to_line, "green")
warn = partial(_to_line, "yellow")
bad = partial(_to_line, "bold red")
dim = partial(_to_line, "bright_black")


def bold(text: str | int) -> Text:
    """A cell that sums up the others."""
    return assemble((_to_text(text).plain, "bold"))


def indent(text: str) -> Text:
    """A line below another."""
    return assemble(f"  {printable(text)}")


def cut(text: str, most: int) -> Text:
    """A cell of bounded width."""
    words = assemble(printable(text))
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
        from rich import box  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        framed = target.is_terminal
        made = Table(
            box=box.ROUNDED if framed else None,
            border_style="bright_black",
            header_style="bold",
            pad_edge=framed,
            padding=(0, 1) if framed else (0, 2, 0, 0),
        )
        for number, name in enumerate(self._columns):
            whole = name.endswith("!")
            least = max((row[number].cell_len for row in self._rows), default=0) if whole else None
            justify: Any = "right" if name.endswith(">") else "left"
            made.add_column(name.rstrip(">!"), justify=justify, no_wrap=whole, min_width=least)
        for row in self._rows:
            made.add_row(*row)
        yield made


def table(columns: str, *, empty: str) -> Callable[[Callable[[Any], Sequence[Cell]]], Render]:
    """Show a list by a function that makes a row of one: as a table, or as a sentence where there is nothing."""
    return lambda row: lambda found: [Rows(columns, map(row, found))] if found else [empty]


def facts(**values: str | None) -> Iterator[Text]:
    """Names and values, one line each; what is empty is left out."""
    for name, value in values.items():
        if value:
            yield assemble((f"{name.replace('_', ' ') + ':':<10} ", "bright_black"), printable(value))


def _to_text(cell: Cell) -> Text:
    if isinstance(cell, str | int):
        return assemble(f"{cell:,}" if isinstance(cell, int) else printable(cell))
    return cell


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


# --- how a command ends -----------------------------------------------------------------------------------------------


class ExitCode(IntEnum):
    """What a command tells the shell."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    UNHEALTHY = 3
    LOOK_FIRST = 4
    HELD = 5
    TRY_AGAIN = 75
    INTERRUPTED = 130


MEANINGS: Final = MappingProxyType(
    {
        ExitCode.FINE: "All went well (a search that finds nothing included).",
        ExitCode.FAILED: "Not found, or the operation failed and had no effect.",
        ExitCode.USAGE: "Wrong input: an argument, an option, a value or a setting.",
        ExitCode.UNHEALTHY: "`doctor`, a command that verifies, or a `key` command found something wrong.",
        ExitCode.LOOK_FIRST: "Nothing was changed: look first (at what would go, a new plan, the clock), then confirm.",
        ExitCode.HELD: "A hold stands; nothing was removed.",
        ExitCode.TRY_AGAIN: "Failed for now; the same command may succeed later (`EX_TEMPFAIL`).",
        ExitCode.INTERRUPTED: "Interrupted with Ctrl-C.",
    }
)

#: The first family that an error belongs to decides; one that merely failed, and is retryable, is to be tried again.
EXIT_CODES: Final = MappingProxyType(
    {
        ConfirmationNeededError: ExitCode.LOOK_FIRST,
        PlanChangedError: ExitCode.LOOK_FIRST,  # retryable in that another plan will do; the same command will not
        ClockError: ExitCode.LOOK_FIRST,
        HeldError: ExitCode.HELD,
        InvalidInputError: ExitCode.USAGE,
        HoldfastError: ExitCode.FAILED,
    }
)


def exit_code(error: type[HoldfastError]) -> ExitCode:
    """The exit code of a command that ends with such an error."""
    code = next(code for family, code in EXIT_CODES.items() if issubclass(error, family))
    return ExitCode.TRY_AGAIN if code is ExitCode.FAILED and error.retryable else code


#: The options that are not called like the parameters of the library.
_OPTIONS: Final = {
    "archive_after_days": "--archive-after",
    "delete_after_days": "--delete-after",
    "keep_days": "--keep",
    "versions_days": "--versions-for",
    "auto_prune": "--prune",
    "expires_at": "--expires",
}


def option_of(parameter: str) -> str:
    """The option that gives a parameter of the library."""
    return _OPTIONS.get(parameter) or f"--{parameter.removesuffix('_id').replace('_', '-')}"


def _noun_of(parameter: str) -> str:
    """What a wrong parameter is called: ids may be options or arguments of a command."""
    return f"the {parameter[:-3]}" if parameter.endswith("_id") else option_of(parameter)


def report(problem: Exception, *, as_json: bool) -> ExitCode:
    """Say on stderr what went wrong, in the words of the command line: as a sentence, or as ``{"error": {code, message,
    retryable}}``. What is no error of Holdfast's is wrong usage. The exit code for it.
    """
    if isinstance(problem, HoldfastError):
        code, retryable, ended = problem.code, problem.retryable, exit_code(type(problem))
        message = problem.explain(about=_noun_of, needs=option_of)
    else:
        code, retryable, ended = "usage", False, ExitCode.USAGE
        message = getattr(problem, "format_message", problem.__str__)()
    if as_json:
        error = {"code": code, "message": message, "retryable": retryable}
        sys.stderr.write(json.dumps({"error": error}) + "\n")
    else:
        error_console().print(assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
    return ended
