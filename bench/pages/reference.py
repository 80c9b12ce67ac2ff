"""Reference pages made from the code: commands, settings, errors, metrics, audit, REST and MCP. None of it is shipped.

``python -m bench.pages.reference cli > docs/reference/cli.md``; ``make reference`` writes all of them.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from typer.main import get_command

from holdfast.core.audit import ACTORS, Action
from holdfast.core.errors import HoldfastError
from holdfast.edges.cli.app import app, examples_of
from holdfast.edges.cli.options import EVERYWHERE
from holdfast.edges.cli.output import MEANINGS, exit_code
from holdfast.edges.mcp.resources import TEMPLATES
from holdfast.edges.mcp.tools import Defaults, describe_tool
from holdfast.edges.operations.catalog import GROUPS, TOOLS
from holdfast.edges.operations.errors import STATUSES
from holdfast.edges.operations.operation import Operation
from holdfast.edges.rest.errors import FRAMEWORK_CODES
from holdfast.edges.rest.routes import PREFIX
from holdfast.lifecycle.metrics import METRICS
from holdfast.settings import SETTINGS, Settings

_ABOUT_MCP: Final = """\
What `holdfast mcp` offers over stdio, and `holdfast serve` at `/mcp`; [how to set it up](../howto/mcp.md). A tool that
reaches a *memory* takes `user_id`, `agent_id` and `session_id` too: whose memory is meant, unless the server or the key
says it. A tool that reaches the *tenant* is refused for keys that are bound to users or agents."""
_WHOSE: Final = ("user_id", "agent_id", "session_id")


def render_mcp() -> str:
    """The tools and resources of the MCP server."""
    parts = ["# MCP: tools and resources", _MADE, _ABOUT_MCP, "## Tools"]
    for tool in TOOLS.values():
        parts += _section(tool)
    parts.append("## Resources")
    rows = [f"| `{one.uri}` | {one.about} | {one.operation.right.value} |" for one in TEMPLATES]
    parts.append("\n".join(("| resource | what it is | right |", "|---|---|---|", *rows)))
    return "\n\n".join(parts) + "\n"


def _section(operation: Operation) -> Iterator[str]:
    seen = describe_tool(operation, Defaults(), keyed=True)
    hints: Any = seen.annotations
    nature = "only looks" if hints.read_only_hint else "can destroy" if hints.destructive_hint else "only adds"
    yield f"### `{seen.name}`"
    yield operation.description
    yield f"Right: `{operation.right.value}`. Reaches: {operation.reach.value}. It {nature}."
    inputs = {name: one for name, one in seen.input_schema["properties"].items() if name not in _WHOSE}
    if inputs:
        required = seen.input_schema.get("required", ())
        yield _schema_table("takes", inputs, dict.fromkeys(required, "yes"))
    gives = seen.output_schema or {}
    yield _schema_table("gives", gives["properties"], None)
    for name, inner in gives.get("$defs", {}).items():
        yield _schema_table(f"{name} has", inner["properties"], None)


def _schema_table(title: str, fields: Mapping[str, Any], required: Mapping[str, str] | None) -> str:
    extra = required is not None
    lines = [f"| {title} | type |{' needed |' if extra else ''} meaning |", f"|---|---|{'---|' if extra else ''}---|"]
    for name, one in fields.items():
        needed = f" {(required or {}).get(name, '')} |" if extra else ""
        lines.append(f"| `{name}` | {_type(one)} |{needed} {_cell(one.get('description', ''))} |")
    return "\n".join(lines)


def _type(schema: Mapping[str, Any]) -> str:
    """A type in a word or two."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_ABOUT_REST: Final = """\
What `holdfast serve` answers at ([how to set it up](../howto/serve.md)). A running service describes itself in full,
with every field and an example of each body, at `/docs` for people and `/openapi.json` for programs.

A caller gives its key as `Authorization: Bearer …`, or as `X-API-Key: …` ([keys](../howto/access.md)); an operator
names the tenant that it acts for as `X-Holdfast-Tenant`. A body is JSON, and says so: `Content-Type: application/json`.

A route needs a right (admin includes govern, govern includes write, write includes read) and says how far it reaches:
a *memory* (one user, as one agent sees it), a *user*, *whose* (a user where one is named, else the tenant), the
*tenant*, or the *store* (operators only).

A write with an `Idempotency-Key` is done once, however often it is sent within a day; an answer that was given before
has the header `Idempotency-Replayed: true`. Lists come in pages: `next_cursor` of an answer, sent as `cursor`, gives
the next one, and is `null` on the last. What would shorten retention, remove more than is usual, or change a store in
use is refused with 428 until it is confirmed: with `"confirm": true` in the body, or `?confirm=true` where there is no
body; `detail` says what it would do, and which of them."""
_LINES: Final = """\
What may take long (carrying out a sweep; making, verifying and restoring a backup) is answered with
`application/x-ndjson`, one JSON object a line, sent while it is done:

```text
{"progress": 500}
{"progress": 1000}
{"result": {…}}
```

Lines with `progress` (how many are done) come now and then, or not at all; the last line has the `result`. What goes
wrong before the first line is answered as any other error, with its status. After it the status was 200 already, and
the last line says what is wrong: `{"problem": {"code": "store_busy", "detail": "…", "retryable": true}}`. Where the
last line has neither, the answer was cut off. With an `Idempotency-Key` it comes whole, without `progress`.

Every list comes in lines where it is asked for with `Accept: application/x-ndjson`: one line for each entry,
and, without `limit`, all of them, read a page at a time.

`POST /v1/batch` carries out up to 1,000 operations, each by itself, with a `status` and a `result` or a `problem` for
each. As `application/x-ndjson` it takes an item on each line, without end (up to the size of a request), carries it out
while it arrives, and answers with a line for each, in order. Read the answer while you send: what is not read waits.

```text
{"operation": "add_memory", "input": {"user_id": "alice", "agent_id": "guide", "content": "Ann likes tea."}}
{"operation": "delete_memory", "input": {"user_id": "alice", "agent_id": "guide", "memory_id": "0198c2d4-…"}}
```

An `Idempotency-Key` is for each item by its number: sent again, what was carried out is answered as before, and the
rest is carried out."""
_ERRORS_REST: Final = """\
An error is `application/problem+json`: `status`, `title`, `detail` (what was wrong, what to do), `code`, `retryable`.
`errors` has a `where` and a `problem` for each thing that is wrong with the form of a request. The codes are those of
every other edge ([errors](errors.md)), and two that only this one has: `malformed_request` (what came is no JSON) and
`method_not_allowed`. The statuses that they come with:"""


def render_rest() -> str:
    """The routes of the REST API."""
    parts = ["# REST", _MADE, _ABOUT_REST]
    for group in GROUPS:
        rows = "\n".join(map(_row, group.operations))
        parts.append(f"## {group.name.capitalize()}\n\n| | | right | reaches |\n|---|---|---|---|\n{rows}")
    codes: dict[int, list[str]] = {}
    for code, status in (
        *STATUSES.items(),
        *((code, status) for status, code in FRAMEWORK_CODES.items() if status != 404),
    ):
        codes.setdefault(status, []).append(f"`{code}`")
    told = "\n".join(f"| {status} | {', '.join(sorted(codes[status]))} |" for status in sorted(codes))
    parts.append(f"## Answers in lines\n\n{_LINES}")
    parts.append(f"## Errors\n\n{_ERRORS_REST}\n\n| status | codes |\n|---|---|\n{told}")
    return "\n\n".join(parts) + "\n"


def _row(one: Operation) -> str:
    return f"| `{one.method} {PREFIX}{one.path}` | {one.summary} | {one.right.value} | {one.reach.value} |"


_MADE: Final = "<!-- Made from the code by `make reference`; edit the code, not this page. -->"
_EVERYWHERE: Final = """\
These are given before the name of a command or after it. A command that opens no store (`demo`, `version`, `key new`)
takes `--json` alone."""
_EXIT_CODES: Final = """\
With `--json`, an error is on standard error as `{"error": {"code": …, "message": …, "retryable": …}}`; the codes are on
[another page](errors.md), wrong usage has the code `usage`."""
_SETTINGS: Final = """\
Each is read from an argument (where there is one), else from the environment, else from `holdfast.toml` in the home.
The file of whatever folder a program happens to run in is not read. In place of a variable, the same name with `_FILE`
names a file that has the value, as secrets are mounted in containers: `HOLDFAST_URL_FILE=/run/secrets/holdfast-url`.
`holdfast doctor` shows what is in force, and where it came from."""
_ERRORS: Final = """\
Whatever Holdfast raises on purpose is a `HoldfastError`. The `code` is the same at every edge and does not change; a
retryable call may succeed later as it is. Nothing was changed by a call that raised."""

_METRICS: Final = """\
Printed by `holdfast metrics` (for a textfile collector, say), collected by `registry.register(holdfast.collector)`;
needs `pip install 'holdfast[metrics]'`. All but the latencies, which are those of the process that is asked, are read
from the store: the work of every process is in them."""

_AUDIT: Final = """\
What happens to memories, and what decides over them, is in the audit chain: `holdfast audit tail`, `GET /v1/audit`,
`holdfast.audit.tail()`, and `audit.jsonl` of an export. An entry has `at`, `action`, `actor` (who did it), `item` (the
id of what it is about), `detail`, `chain` (the pseudonym of the user, or of the tenant) and `seq`, its place in that
chain. All of it is covered by the entry's hash."""
_ACTORS: Final = """\
Instead of `python` and `cli` an entry names the author that the caller gives: `Holdfast.open(author="billing")`,
`with holdfast.acting_as("billing"):`, `holdfast --author billing …`, or the `author` of a rule or a hold. A caller with
a key cannot choose another name. An author is a role, a department or a program, never a user: what names a user of the
tenant is refused, since the chain is kept when the user is erased."""

_SERVICE_METRICS: Final = """\
`holdfast serve` tells these of itself at `/metrics`, beside those above and those that Prometheus' client has of every
process (`process_resident_memory_bytes` and the like). Each process tells its own: let Prometheus ask all of them.
Rules for alerts are in [alerts.yml](../alerts.yml), a dashboard for Grafana in [dashboard.json](../dashboard.json);
[how to watch a service](../howto/watch.md)."""


def render() -> str:
    """The page of the commands."""
    root = get_command(app)
    parts = [
        "# Commands",
        _MADE,
        f"{root.help} `holdfast --help` lists the commands, and `--help` after a command shows what it takes.",
        "## Options of every command",
        _EVERYWHERE,
        _table(("", "Meaning"), [(_spelled(one), _described(one)) for one in root.params if _is_shared(one)]),
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
    parts = ["# Settings", _MADE, _SETTINGS, _table(("Environment", "In holdfast.toml", "Default", "Meaning"), rows)]
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
    parts = ["# Errors", _MADE, _ERRORS, _table(("Code", "Class", "Retryable", "Exit code", "Meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def render_metrics() -> str:
    """The page of the metrics: those that a new store has, which are all there are."""
    from holdfast.engine import Holdfast

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


def render_audit() -> str:
    """The page of the audit chain: actions and actors."""
    rows = [(f"`{action.value}`", _escaped(action.meaning)) for action in Action]
    actors = [(f"`{actor}`", _escaped(meaning)) for actor, meaning in ACTORS.items()]
    parts = ["# Audit", _MADE, _AUDIT, "## Actions", _table(("Action", "Meaning"), rows)]
    return "\n\n".join([*parts, "## Actors", _table(("Actor", "Meaning"), actors), _ACTORS]) + "\n"


def list_metrics() -> list[tuple[str, str, Sequence[str], str]]:
    """Every metric there is: name, type, labels, meaning."""
    stored = [(one.name, str(one.type), one.labels, one.meaning) for one in METRICS.values()]
    return [*stored, *_service_metrics()]


def _service_metrics() -> Iterator[tuple[str, str, Sequence[str], str]]:
    from holdfast.edges.service.request_log import Traffic
    from holdfast.edges.service.scheduler import Supervisor
    from holdfast.edges.service.workers import describe_workers

    for family in (*Traffic().collect(), *Supervisor("schedule", ()).collect(), *describe_workers(())):
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


PAGES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "cli": render,
        "settings": render_settings,
        "errors": render_errors,
        "metrics": render_metrics,
        "audit": render_audit,
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
        options = [param for param in command.params if param.param_type_name == "option" and not _is_shared(param)]
        taken = (param.metavar if param.required else f"[{param.metavar}]" for param in arguments)
        usage = " ".join([*words, *taken, "[OPTIONS]"])
        yield f"## {' '.join(words)}"
        yield "\n\n".join(textwrap.fill(paragraph, 120) for paragraph in command.help.split("\n\n"))
        yield f"    {usage}"
        rows = [(f"`{param.metavar}`", _escaped(param.help)) for param in arguments]
        rows += [(_spelled(param), _described(param)) for param in options]
        if rows:
            yield _table(("", "Meaning"), rows)
        yield "```sh\n" + "\n\n".join(examples_of(command.epilog)) + "\n```"


def _is_shared(param: Any) -> bool:
    """Whether every command has it, so that it is told of once."""
    return param.name == "help" or getattr(param, "rich_help_panel", None) == EVERYWHERE


def _spelled(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    return names if option.is_flag else f"{names} `{option.metavar}`"


def _described(option: Any) -> str:
    default = option.default.value if isinstance(option.default, Enum) else option.default
    if option.required:
        return f"{_escaped(option.help)} Required."
    if option.is_flag or callable(default) or default in (None, [], ()):
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
