"""The application: its commands register themselves here, run with a ``Call``, and end in one place, errors too.

What a command needs is imported and opened when it is first asked for, never for ``--help``.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cached_property
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast import __version__
from holdfast.core.audit import CLI, acting_as, check_author
from holdfast.core.errors import ClockError, ConfirmationNeededError, ExpiredError, HoldfastError
from holdfast.edges import cli
from holdfast.edges.cli.options import (
    DEFAULT_TENANT,
    check_numbers,
    declare,
    everywhere,
    of_tenant,
    only_json,
    read_usage,
    split_text,
)
from holdfast.edges.cli.output import ExitCode, Output, Part, Render, error_console, report, write, write_parts

if TYPE_CHECKING:
    from holdfast.engine import Holdfast, MemoryManager
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.keys.keyring import Keyring
    from holdfast.privacy.keys.signatures import SigningKeys
    from holdfast.privacy.store_state import Purpose
    from holdfast.settings import Settings

#: The modules of commands, in the order in which help lists them, each with the commands and groups that it has.
MODULES: Final = {
    "memory.memories": "add list search context get update rehydrate conflicts",
    "memory.corrections": "correct history revert",
    "memory.imports": "import batch",
    "memory.deletion": "delete forget restore explain",
    "memory.kept_out": "kept-out",
    "memory.sessions": "session",
    "memory.registry": "agent tool",
    "memory.users": "user quota",
    "governance.sweeps": "sweep",
    "governance.figures": "overview forecast life",
    "governance.policies": "policy",
    "governance.domains": "domain",
    "governance.holds": "hold",
    "governance.recycle_bin": "recycle",
    "governance.langgraph": "langgraph",
    "governance.audit": "audit",
    "governance.schedule": "schedule",
    "privacy.erasure": "erase export certificate",
    "privacy.keys": "key",
    "operations.services": "serve mcp metrics",
    "operations.backups": "backup",
    "operations.access": "access",
    "operations.stores": "init-db migrate reembed",
    "operations.doctor": "doctor demo version",
    "operations.prove": "prove",
}
#: The one that is loaded, where the process was started for a command that there is, or for the version.
_ASKED: Final = cli.asked if any(cli.asked in ["--version", *names.split()] for names in MODULES.values()) else None
_EXAMPLES: Final = "Examples:\n\n"
_Command = TypeVar("_Command", bound=Callable[..., Any])

#: What Typer raises for wrong arguments, whichever Click it carries; it has no public name of its own.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]


class Call:
    """What a command was called with, beside its own options. What it opens is closed when it ends."""

    def __init__(self, stack: ExitStack, given: Mapping[str, Any], group: str) -> None:
        self._stack = stack
        self._given = given
        self.group = group
        """The name of the group that the command belongs to."""
        self.as_json: bool = given["as_json"]
        self.tenant: str = given.get("tenant", DEFAULT_TENANT)
        self.home: Path | None = given.get("home")
        self.url: str | None = given.get("url")
        self.is_new_store = bool(given.get("new_store"))
        """Whether an empty store may take the place of one that was lost."""
        self.purpose: Purpose = "use"
        """What the store is opened for; ``--new-store`` goes before it."""
        self.quiet = self.as_json
        """Whether warnings are kept off stderr."""
        self.only_reads = False
        """Whether no file is left behind where there was no store."""

    @property
    def scope(self) -> dict[str, Any]:
        """The parts of a scope that were named, by the engine's names for them."""
        parts = ("user", "agent", "session", "memory")
        return {f"{part}_id": self._given[part] for part in parts if self._given.get(part) is not None}

    @cached_property
    def settings(self) -> Settings:
        """The settings that the options and the environment name."""
        from holdfast.settings import read_settings  # noqa: PLC0415 - see above

        return read_settings(os.environ, url=self.url, home=self.home)

    @cached_property
    def engine(self) -> Holdfast:
        """The engine of the tenant."""
        from holdfast.engine import Holdfast  # noqa: PLC0415 - see above
        from holdfast.settings import sqlite_path  # noqa: PLC0415

        self._stack.enter_context(log_on_stderr(None if self.quiet else logging.Formatter("warning: %(message)s")))
        url = self.settings.url
        if self.only_reads and url.startswith("sqlite:") and not (path := sqlite_path(url)).exists():
            for suffix in ("", "-wal", "-shm"):
                self._stack.callback(Path(f"{path}{suffix}").unlink, missing_ok=True)
        purpose: Purpose = "new" if self.is_new_store else self.purpose
        opened = self._stack.enter_context(Holdfast(self.settings, tenant=self.tenant, purpose=purpose))
        gc.freeze()  # what was loaded stays
        gc.enable()
        return opened

    @cached_property
    def memory(self) -> MemoryManager:
        """The memory of the user, agent and session that were named."""
        return self.engine.manager(self._given["user"], self._given["agent"], self._given["session"])

    @cached_property
    def state(self) -> ObjectStore:
        """Where keys and certificates lie; the memories are not opened."""
        from holdfast.storage.objects import open_keeping  # noqa: PLC0415 - see above

        return open_keeping(self.settings)

    @cached_property
    def keyring(self) -> Keyring:
        """The keys of the state store."""
        from holdfast.privacy.keys.keyring import Keyring  # noqa: PLC0415 - see above

        return Keyring(self.state, self.settings.master_key, self.settings.master_path())

    @cached_property
    def signing(self) -> SigningKeys:
        """The keys that certificates are signed with."""
        from holdfast.privacy.keys.signatures import SigningKeys  # noqa: PLC0415 - see above

        return SigningKeys(self.state, self.keyring)

    @property
    def has_keys(self) -> bool:
        """Whether the state store has any key. A folder that is missing has none, and is no error here."""
        return next(self.state.names("keys/"), None) is not None

    @property
    def is_watched(self) -> bool:
        """Whether anybody would see a progress bar."""
        return not self.as_json and error_console().is_terminal

    @property
    def can_ask(self) -> bool:
        """Whether somebody is there to answer a question."""
        return not self.as_json and sys.stdin.isatty() and sys.stderr.isatty()

    def ask(self, question: str, parts: Iterable[Part], *, otherwise: str) -> None:
        """Ask whether to go on, after showing what it comes to; refuse where nobody can be asked."""
        if not self.can_ask:
            raise ConfirmationNeededError(f"{otherwise}; nothing was changed", needs=("yes",))
        write_parts(parts, error_console())
        typer.confirm(question, err=True, abort=True)

    def tell(self, text: str) -> None:
        """Say on stderr what people should know while it runs."""
        if not self.as_json:
            error_console().print(text, soft_wrap=True)

    def explain_wait(self) -> ClockError | None:
        """Why what is past its time waits in the recycle bin; ``None`` where the store believes the clock."""
        belief = self.engine.trust.look(self.engine.services.now())
        words = "its time in the recycle bin is over by this clock alone, so that it waits there"
        return None if belief.is_whole else ClockError(f"{words}: {belief.explain()}")

    @contextmanager
    def progress(self, doing: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A bar on stderr up to ``total`` (or without an end), gone afterwards; what is yielded advances it."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not self.is_watched or total == 0
        with Progress(*columns, console=error_console(), transient=True, disable=hidden) as bar:
            task = bar.add_task(doing, total=total)
            yield lambda count: bar.advance(task, count)


@contextmanager
def log_on_stderr(form: logging.Formatter | None, level: int = logging.NOTSET) -> Iterator[None]:
    """Holdfast's log as lines on stderr, or nowhere. Missed latencies are left out: a command pays for a cold start."""
    log = logging.getLogger("holdfast")
    handler = logging.StreamHandler() if form else logging.NullHandler()
    handler.setFormatter(form)
    handler.addFilter(lambda entry: not entry.name.startswith("holdfast.latency"))
    spreads, usual = log.propagate, log.level
    log.propagate = False
    log.setLevel(level or usual)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(usual)
        log.propagate = spreads


class _PlainParams:
    """Shows flags as flags in the help, without a type; takes texts as they are."""

    def get_params(self, context: Any) -> list[Any]:
        params: list[Any] = super().get_params(context)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            if getattr(param, "_runtime_param", param) is None:
                param._runtime_param = _PlainValue(param.get_runtime_param, param.type_descriptor.annotation)
        return params


class _PlainValue:
    """Takes values that are of the wanted type, as texts and defaults are. The others are left to Typer, which loads
    pydantic for them: that takes longer than all the rest of a command. (Before 0.27 it does without.)
    """

    def __init__(self, build: Callable[[], Any], wanted: Any) -> None:
        self._build, self._wanted = build, wanted

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """A value of the wanted type."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(self._wanted, type) and isinstance(value, self._wanted):
            return value
        if self._wanted == list[str]:
            return list(value)
        if self._wanted is Path and isinstance(value, str):
            return Path(value)
        param._runtime_param = None  # so that Typer makes its own
        return self._build().coerce(value, param=param, ctx=ctx)


class _Leaf(_PlainParams, TyperCommand):
    """A command."""


class _Group(_PlainParams, TyperGroup):
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
        except (HoldfastError, _UsageError) as problem:
            ended = report(problem, as_json=as_json)
        except typer.Abort:
            ended = ExitCode.INTERRUPTED
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
        if group is app and _ASKED not in (None, name):
            return function
        usage = read_usage(function, **words)
        names = {param.name for param in usage.params}

        def run(context: typer.Context, **values: Any) -> None:
            check_numbers(values)
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

        run.__module__ = function.__module__
        shared = [only_json] if options is only_json else [options, everywhere]
        _set_signature(run, usage.params, *shared)
        panel = _panel_of(function.__module__) if group is app else None
        epilog = _EXAMPLES + usage.examples
        group.command(name, cls=_Leaf, help=usage.about, epilog=epilog, rich_help_panel=panel)(run)
        return function

    return register


def add_group(module: str, name: str, text: str, *, bare: str | None = None) -> typer.Typer:
    """A group of commands below the application; without a command, one with ``bare`` runs that command.

    ``text`` is its help: what it is for, and examples, as the docstring of a command has them.
    """
    group = typer.Typer(cls=_Group, no_args_is_help=bare is None)

    def run(context: typer.Context, **values: Any) -> None:
        context.obj = _merge(context.obj, values)
        if context.invoked_subcommand is None:
            inner: Any = context.command
            inner.commands[bare].callback(**context.obj)

    _set_signature(run, [], *([of_tenant, everywhere] if bare else [everywhere]), hidden=bare is None)
    group.callback(invoke_without_command=bare is not None)(run)
    about, blocks = split_text(text)
    epilog = _EXAMPLES + blocks["Examples"]
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


def _root(context: typer.Context, **values: Any) -> None:
    """Memory for AI agents that knows when to let go."""
    context.obj = {name: value for name, value in values.items() if name != "version"}


_VERSION: Final = declare("--version", "Show the version and end.", callback=_show_version, is_eager=True)
_version = Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, _VERSION])
_set_signature(_root, [_version], everywhere)
app.callback(epilog=f'{_EXAMPLES}holdfast demo\n\nholdfast add "Likes tea" --user alice')(_root)


for _module, _names in MODULES.items():
    if _ASKED is None or _ASKED in _names.split():
        import_module(f"holdfast.edges.cli.{_module}")
