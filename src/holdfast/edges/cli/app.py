"""The application: its commands register themselves here, and errors of any of them end in one place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.core.audit import CLI, acting_as, check_author
from holdfast.core.errors import HoldfastError
from holdfast.edges.cli.outcomes import ExitCode, report, report_failure
from holdfast.edges.cli.store import wants_new_store

#: One module for each group of commands, in the order in which help lists them.
_GROUPS: Final = (
    "memory.memories",
    "governance.sweeps",
    "governance.policies",
    "governance.domains",
    "governance.holds",
    "governance.recycle_bin",
    "memory.forget",
    "memory.sessions",
    "memory.registry",
    "privacy.export",
    "privacy.erase",
    "operations.backups",
    "privacy.certificates",
    "privacy.keys",
    "operations.access",
    "governance.audit",
    "governance.schedule",
    "memory.quotas",
    "operations.embedding",
    "operations.migrate",
    "operations.metrics",
    "operations.serve",
    "operations.mcp",
    "operations.doctor",
    "operations.demo",
)
_EXAMPLES: Final = "Examples:\n\n"
_Command = TypeVar("_Command", bound=Callable[..., None])

#: What Typer raises for wrong arguments, whichever Click it carries; it has no public name of its own.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
    """Runs a command and turns a ``HoldfastError`` into a message and an exit code, never into a traceback."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """As Typer's own; with ``--json`` among the arguments, wrong usage is told as JSON too."""
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in (given[: given.index("--")] if "--" in given else given)
        if extra.pop("standalone_mode", True) is False:
            return super().main(given, prog_name, standalone_mode=False, **extra)
        try:
            ended = super().main(given, prog_name, standalone_mode=not as_json, **extra)
        except HoldfastError as problem:
            ended = report(problem, as_json=as_json)
        except typer.Abort:
            ended = ExitCode.INTERRUPTED
        except _UsageError as problem:
            said = getattr(problem, "format_message", problem.__str__)()
            report_failure("usage", said, retryable=False, as_json=as_json)
            ended = ExitCode.USAGE
        sys.exit(ended or 0)


app = typer.Typer(
    cls=Commands,
    name="holdfast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an unexpected error shows Python's own traceback, without anyone's data
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(asked: bool) -> None:  # noqa: FBT001 - the shape of an option's callback
    if asked:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


def with_examples(examples: Sequence[str]) -> str:
    """The end of a help text: shell scripts that run as they stand."""
    return _EXAMPLES + "\n\n".join(examples)


@app.callback(epilog=with_examples(["holdfast demo", 'holdfast add "Likes tea" --user alice']))
def holdfast(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
    new_store: Annotated[
        bool,
        typer.Option(
            "--new-store", help="Begin with an empty store where one held memories before and there is nothing now."
        ),
    ] = False,
    author: Annotated[
        str | None,
        typer.Option(
            "--author", metavar="NAME", help="Who does it, for the audit chain; never a user's id. Otherwise `cli`."
        ),
    ] = None,
) -> None:
    """Memory for AI agents that knows when to let go."""
    del version  # its callback has answered
    context.with_resource(acting_as(check_author(author) or CLI))
    wants_new_store.set(new_store)


def command(
    group: typer.Typer, name: str, *, examples: Sequence[str], about: str | None = None
) -> Callable[[_Command], _Command]:
    """Register a function as a command; its docstring (or ``about``) and the examples (shell scripts that run) become
    its help.
    """

    def register(function: _Command) -> _Command:
        group.command(name, help=about, epilog=with_examples(examples))(function)
        return function

    return register


def add_group(name: str, *, about: str, examples: Sequence[str], bare: bool = False) -> typer.Typer:
    """A group of commands below the application; a ``bare`` one does something without a command too."""
    group = typer.Typer(no_args_is_help=not bare, invoke_without_command=bare)
    app.add_typer(group, name=name, help=about, epilog=with_examples(examples))
    return group


def examples_of(epilog: str | None) -> list[str]:
    """The examples that a command's help shows."""
    return (epilog or "").removeprefix(_EXAMPLES).split("\n\n") if epilog else []


for _group in _GROUPS:
    import_module(f"holdfast.edges.cli.{_group}")
