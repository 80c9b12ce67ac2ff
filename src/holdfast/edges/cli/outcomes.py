"""How a command ends: one table from errors to exit codes, and one way to say what went wrong."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

from rich.text import Text

from holdfast.core.errors import (
    ClockError,
    ConfirmationNeededError,
    HeldError,
    HoldfastError,
    InvalidInputError,
    PlanChangedError,
)
from holdfast.edges.cli.output import error_console, printable


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


def option_of(parameter: str) -> str:
    """The option that gives a parameter of the library."""
    return f"--{parameter.removesuffix('_id').replace('_', '-')}"


def _noun_of(parameter: str) -> str:
    """What a wrong parameter is called: ids may be options or arguments of a command."""
    return f"the {parameter[:-3]}" if parameter.endswith("_id") else option_of(parameter)


def report(problem: HoldfastError, *, as_json: bool) -> ExitCode:
    """Say on stderr what went wrong, in the words of the command line; the exit code for it."""
    report_failure(
        problem.code, problem.explain(about=_noun_of, needs=option_of), retryable=problem.retryable, as_json=as_json
    )
    return exit_code(type(problem))


def report_failure(code: str, message: str, *, retryable: bool, as_json: bool) -> None:
    """Say on stderr what went wrong, as a sentence or as ``{"error": {code, message, retryable}}``."""
    if as_json:
        error: dict[str, Any] = {"code": code, "message": message, "retryable": retryable}
        sys.stderr.write(json.dumps({"error": error}) + "\n")
    else:
        error_console().print(Text.assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
