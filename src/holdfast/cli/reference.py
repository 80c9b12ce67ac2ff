"""Reference pages made from the code: the commands, the settings, the errors, the metrics.

python -m holdfast.cli.reference [cli|settings|errors|metrics] > docs/reference/….md      (all of them: make reference)
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from typer.main import get_command

from holdfast.cli.app import app, examples_of
from holdfast.cli.outcomes import MEANINGS, exit_code
from holdfast.core.errors import HoldfastError
from holdfast.settings import SETTINGS, Settings

_MADE: Final = "<!-- Made from the code by `make reference`; edit the code, not this page. -->"
_EXIT_CODES: Final = """\
With `--json`, an error is on standard error as `{"error": {"code": …, "message": …, "retryable": …}}`; the codes are on
[another page](errors.md), wrong usage has the code `usage`."""
_SETTINGS: Final = """\
Each is read from an argument (where there is one), else from the environment, else from `holdfast.toml` in the home.
The file of whatever folder a program happens to run in is not read. `holdfast doctor` shows what is in force, and where
it came from."""
_ERRORS: Final = """\
Whatever Holdfast raises on purpose is a `HoldfastError`. The `code` is the same at every edge and does not change; a
retryable call may succeed later as it is. Nothing was changed by a call that raised."""

_METRICS: Final = """\
Printed by `holdfast metrics` (for a textfile collector, say), collected by `registry.register(holdfast.collector)`;
needs `pip install 'holdfast[metrics]'`. All but the latencies, which are those of the process that is asked, are read
from the store: the work of every process is in them."""

_SERVICE_METRICS: Final = """\
`holdfast serve` tells these of itself at `/metrics`, beside those above and those that Prometheus' client has of every
process (`process_resident_memory_bytes` and the like). Each process tells its own: let Prometheus ask all of them.
Rules for alerts are in [alerts.yml](../alerts.yml)."""


def render() -> str:
    """The page of the commands."""
    root = get_command(app)
    parts = [
        "# Commands",
        _MADE,
        f"{root.help} Every command takes `--json` and prints one JSON document then; `--help` shows what it takes.",
        *_sections(["holdfast"], root),
        "## Exit codes",
        _EXIT_CODES,
        _table(("Code", "Meaning"), [(f"{code.value}", meaning) for code, meaning in MEANINGS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def render_settings() -> str:
    """The page of the settings."""
    rows = [
        (
            f"`HOLDFAST_{setting.name.upper()}`",
            f"`{setting.name}`",
            _escaped(setting.default),
            _escaped(setting.meaning),
        )
        for setting in SETTINGS
    ]
    parts = [
        "# Settings",
        _MADE,
        _SETTINGS,
        _table(("Environment", "In holdfast.toml", "Default", "Meaning"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def render_errors() -> str:
    """The page of the errors."""
    rows = [
        (
            f"`{error.code}`",
            "&nbsp;&nbsp;" * depth + f"`{error.__name__}`",
            "yes" if error.retryable else "no",
            f"{exit_code(error).value}",
            _escaped(_first_sentence(error)),
        )
        for depth, error in _family(HoldfastError, 0)
    ]
    parts = [
        "# Errors",
        _MADE,
        _ERRORS,
        _table(("Code", "Class", "Retryable", "Exit code", "Meaning"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def render_metrics() -> str:
    """The page of the metrics: those that a new store has, which are all there are."""
    from holdfast.engine import Holdfast  # noqa: PLC0415 - the other pages need no engine

    with tempfile.TemporaryDirectory(prefix="holdfast-reference-") as home:
        settings = Settings(home=Path(home), url=f"sqlite:///{home}/holdfast.db")
        with Holdfast(settings) as engine:
            families = list(engine.collector.collect())
    parts = [
        "# Metrics",
        _MADE,
        _METRICS,
        _metric_table((family.name, family.type, family._labelnames, family.documentation) for family in families),
        "## Of the service",
        _SERVICE_METRICS,
        _metric_table(_service_metrics()),
    ]
    return "\n\n".join(parts) + "\n"


def _service_metrics() -> Iterator[tuple[str, str, Sequence[str], str]]:
    from holdfast.service.keeper import Keeper  # noqa: PLC0415 - the other pages need no service
    from holdfast.service.traffic import Traffic  # noqa: PLC0415

    for metric in Traffic().metrics():
        yield metric._name, metric._type, metric._labelnames, metric._documentation
    for family in Keeper("schedule", ()).collect():
        yield family.name, family.type, family._labelnames, family.documentation


def _metric_table(metrics: Iterable[tuple[str, str, Sequence[str], str]]) -> str:
    rows = [
        (
            f"`{name}{'_total' if kind == 'counter' else ''}`",
            kind,
            ", ".join(f"`{label}`" for label in labels),
            _escaped(meaning),
        )
        for name, kind, labels, meaning in metrics
    ]
    return _table(("Metric", "Type", "Labels", "Meaning"), rows)


def render_rest() -> str:
    """The routes of the REST API."""
    from holdfast.api.reference import render as render_routes  # noqa: PLC0415 - the extra may not be installed

    return render_routes()


def render_mcp() -> str:
    """The tools and resources of the MCP server."""
    from holdfast.mcp.reference import render as render_tools  # noqa: PLC0415 - the extra may not be installed

    return render_tools()


PAGES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "cli": render,
        "settings": render_settings,
        "errors": render_errors,
        "metrics": render_metrics,
        "rest": render_rest,
        "mcp": render_mcp,
    }
)


def commands(path: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
    """A command and all below it, each with the words that lead to it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands([*path, name], inner)


def _sections(path: list[str], root: Any) -> Iterator[str]:
    for words, command in commands(path, root):
        if words == path or hasattr(command, "commands"):
            continue  # a group is told by its commands
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
        taken = (param.metavar if param.required else f"[{param.metavar}]" for param in arguments)
        usage = " ".join([*words, *taken, "[OPTIONS]"])
        yield f"## {' '.join(words)}"
        yield inspect.cleandoc(command.help)
        yield f"    {usage}"
        rows = [(f"`{param.metavar}`", _escaped(param.help)) for param in arguments]
        rows += [(_spelled(param), _described(param)) for param in options]
        yield _table(("", "Meaning"), rows)
        yield "```sh\n" + "\n\n".join(examples_of(command.epilog)) + "\n```"


def _spelled(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    return names if option.is_flag else f"{names} `{option.metavar}`"


def _described(option: Any) -> str:
    default = option.default.value if isinstance(option.default, Enum) else option.default
    if option.required:
        return f"{_escaped(option.help)} Required."
    if option.is_flag or default in (None, [], ()):
        return _escaped(option.help)
    return f"{_escaped(option.help)} Default: `{default}`."


def _family(error: type[HoldfastError], depth: int) -> Iterator[tuple[int, type[HoldfastError]]]:
    """An error and those below it, as Holdfast itself defines them."""
    yield depth, error
    for child in error.__subclasses__():
        if child.__module__ == HoldfastError.__module__:
            yield from _family(child, depth + 1)


def _first_sentence(error: type[HoldfastError]) -> str:
    return inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1] if len(sys.argv) > 1 else "cli"]())
