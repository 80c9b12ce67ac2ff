"""The application: its commands register themselves here, and errors of any of them end in one place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from importlib import import_module
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast import __version__
from holdfast.core.audit import CLI, acting_as, check_author
from holdfast.core.errors import ExpiredError, HoldfastError
from holdfast.edges.cli.call import Call
from holdfast.edges.cli.options import DEFAULT_TENANT, declare, everywhere, of_tenant, only_json, read_usage
from holdfast.edges.cli.outcomes import ExitCode, report, report_failure
from holdfast.edges.cli.output import Output, Render, write

#: The modules of each folder of commands, in the order in which help lists them.
_FOLDERS: Final = {
    "memory": ("memories", "forget", "sessions", "registry", "users"),
    "governance": ("sweeps", "policies", "domains", "holds", "recycle_bin", "audit", "schedule"),
    "privacy": ("export", "erase", "certificates", "keys"),
    "operations": ("services", "backups", "access", "stores", "doctor"),
}
_EXAMPLES: Final = "Examples:\n\n"
_Command = TypeVar("_Command", bound=Callable[..., Any])

#: What Typer raises for wrong arguments, whichever Click it carries; it has no public name of its own.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]


class _PlainFlags:
    """Shows flags as flags in the help: without a type."""

    def get_params(self, context: Any) -> list[Any]:
        params: list[Any] = super().get_params(context)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class _Leaf(_PlainFlags, TyperCommand):
    """A command."""


class _Group(_PlainFlags, TyperGroup):
    """A group of commands."""


class _Root(_Group):
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
    cls=_Root,
    name="holdfast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an unexpected error shows Python's own traceback, without anyone's data
    context_settings={"help_option_names": ["--help", "-h"]},
)


def examples_of(epilog: str | None) -> list[str]:
    """The examples that a command's help shows."""
    return epilog.removeprefix(_EXAMPLES).split("\n\n") if epilog else []


def command(
    group: typer.Typer,
    name: str,
    options: Callable[..., None] = of_tenant,
    *,
    render: Render | None = None,
    **words: str,
) -> Callable[[_Command], _Command]:
    """Register a function as a command. It takes a ``Call`` and its own options, and gives back data or an ``Output``,
    which is printed as JSON or by ``render``.

    ``options`` is the set that it takes beside its own, from ``options.py``. Its docstring becomes its help
    (``read_usage``, with these ``words``).
    """

    def register(function: _Command) -> _Command:
        usage = read_usage(function, **words)
        names = {param.name for param in usage.params}

        def run(context: typer.Context, **values: Any) -> None:
            given = _merge(context.obj, {key: value for key, value in values.items() if key not in names})
            with ExitStack() as stack:
                stack.enter_context(acting_as(check_author(given.get("author")) or CLI))
                call = Call(stack, given, (context.parent or context).info_name or "")
                try:
                    found = function(call, **{key: values[key] for key in names})
                except ExpiredError as problem:
                    raise call.explain_wait() or problem from problem
            if found is None:  # it has printed what there was to print
                return
            output = found if isinstance(found, Output) else Output(found)
            write(output, render, as_json=call.as_json)
            if output.code:
                raise typer.Exit(output.code)

        shared = [only_json] if options is only_json else [options, everywhere]
        _set_signature(run, usage.params, *shared)
        panel = _panel_of(function.__module__) if group is app else None
        epilog = _EXAMPLES + usage.examples
        group.command(name, cls=_Leaf, help=usage.about, epilog=epilog, rich_help_panel=panel)(run)
        return function

    return register


def add_group(module: str, name: str, about: str, *examples: str, bare: str | None = None) -> typer.Typer:
    """A group of commands below the application; without a command, one with ``bare`` runs that command."""
    group = typer.Typer(cls=_Group, no_args_is_help=bare is None)

    def run(context: typer.Context, **values: Any) -> None:
        context.obj = _merge(context.obj, values)
        if context.invoked_subcommand is None:
            inner: Any = context.command
            inner.commands[bare].callback(**context.obj)

    _set_signature(run, [], *([of_tenant, everywhere] if bare else [everywhere]), hidden=bare is None)
    group.callback(invoke_without_command=bare is not None)(run)
    epilog = _EXAMPLES + "\n\n".join(examples)
    app.add_typer(group, name=name, cls=_Group, help=about, epilog=epilog, rich_help_panel=_panel_of(module))
    return group


def _merge(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, Any]:
    """Options that were given before and after the name of a command; the later ones count."""
    given = {name: value for name, value in after.items() if value not in (None, False, DEFAULT_TENANT)}
    return {**after, **(before or {}), **given}


def _set_signature(function: Any, own: Sequence[Parameter], *shared: Callable[..., None], hidden: bool = False) -> None:
    """Let Typer see a function's options: its own, and those that it shares with others."""
    taken = [param for options in shared for param in read_usage(options).params]
    if hidden:
        taken = [param.replace(annotation=_hide(param.annotation)) for param in taken]
    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    function.__signature__ = Signature([context, *own, *taken])
    function.__annotations__ = {}


def _hide(annotation: Any) -> Any:
    (shown,) = annotation.__metadata__
    made = copy(shown)
    made.hidden = True
    return Annotated[annotation.__origin__, made]


def _panel_of(module: str) -> str:
    """The panel of the help in which the commands of a module are listed: the name of their folder."""
    return module.split(".")[-2].capitalize()


def _show_version(asked: bool) -> None:  # noqa: FBT001 - the shape of an option's callback
    if asked:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


_VERSION: Final = declare("--version", "Show the version and end.", callback=_show_version, is_eager=True)


def _root(context: typer.Context, **values: Any) -> None:
    """Memory for AI agents that knows when to let go."""
    context.obj = {name: value for name, value in values.items() if name != "version"}


def _version(*, version: Annotated[bool, _VERSION] = False) -> None:
    """The option that only the application has."""


_set_signature(_root, [], _version, everywhere)
app.callback(epilog=f'{_EXAMPLES}holdfast demo\n\nholdfast add "Likes tea" --user alice')(_root)

for _folder, _modules in _FOLDERS.items():
    for _module in _modules:
        import_module(f"holdfast.edges.cli.{_folder}.{_module}")
