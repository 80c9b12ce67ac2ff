"""How a docstring says what a command takes, and the options that commands share: each with one name, one meaning and
one place in the help.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, get_origin

import typer

from holdfast.core.errors import InvalidInputError, InvalidMetadataError, quote
from holdfast.core.records import DURABLE
from holdfast.core.values import check_count

DEFAULT_AGENT: Final = "cli"
DEFAULT_TENANT: Final = "default"
STDIO: Final = "-"
KINDS: Final = "short_term, long_term, persona, episodic, entity or structured"
EVERYWHERE: Final = "Every command"
_OFFSET: Final = re.compile(r"([+-])(\d+(?:\.\d+)?)([hdw])")
#: Options of whole numbers of which 0 is one: nothing similar, no earlier versions, any port that is free.
_FROM_0: Final = frozenset({"similar", "versions", "port"})
_MOST: Final = 1_000_000_000
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
#: What docstrings of commands mean by the words between ``<`` and ``>``.
_WORDS: Final = MappingProxyType(
    {
        "kinds": KINDS,
        "durable kinds": ", ".join(DURABLE),
        "jobs": "minutely, episodes, archive, daily, backup, backup_persona or backup_trial",
    }
)


class Usage(NamedTuple):
    """What a docstring says of a command."""

    about: str
    params: list[Parameter]
    """What it takes, as Typer reads it."""
    examples: str


@cache  # options that commands share are read once
def read_usage(function: Callable[..., Any], **words: str) -> Usage:
    """Read the docstring of a command: a text, and below it blocks of indented lines, each below its title.

    The block Examples has shell scripts that run, with an empty line between them. The others have one line for each
    option, flag and argument: its spelling, two spaces, and its meaning. Their titles are panels of the help, but for
    Options, which has what belongs to none. An option is for the parameter of its name, an argument for the next one.
    A parameter whose annotation says all this has no line. A word between ``<`` and ``>`` stands for its meaning.
    """
    about, blocks = split_text(function.__doc__ or "", **words)
    examples = blocks.pop("Examples", "")
    taken = signature(function, eval_str=True).parameters.values()
    params = {param.name: param for param in taken if param.kind is Parameter.KEYWORD_ONLY}
    plain = [name for name, param in params.items() if get_origin(param.annotation) is not Annotated]
    for title, block in blocks.items():
        for line in re.split(r"\n(?! )", block):
            spelling, _, meaning = line.partition("  ")
            option = re.match("--([a-z-]+)", spelling)
            name = next(one for one in plain if option is None or one.rstrip("_") == option[1].replace("-", "_"))
            plain.remove(name)
            made = declare(spelling, " ".join(meaning.split()), None if title == "Options" else title)
            params[name] = params[name].replace(annotation=Annotated[params[name].annotation, made])
    if plain:
        raise TypeError(f"the docstring of {function.__qualname__} does not say what {', '.join(plain)} is")
    return Usage(about, list(params.values()), examples)


def split_text(text: str, **words: str) -> tuple[str, dict[str, str]]:
    """What a help says, one line a paragraph, and its blocks of indented lines by their titles."""
    said = re.sub("<([a-z ]+)>", lambda found: {**_WORDS, **words}[found[1]], cleandoc(text))
    about, *rest = re.split(r"\n\n([A-Z].*):\n(?= )", said)
    paragraphs = [" ".join(paragraph.split()) for paragraph in about.split("\n\n")]
    return "\n\n".join(paragraphs), dict(zip(rest[::2], map(dedent, rest[1::2]), strict=True))


def declare(spelling: str, about: str, panel: str | None = None, **extra: Any) -> Any:
    """What a command takes, as it is spelled: ``--kind -k KIND``, ``--full`` (a flag), or ``TEXT`` (an argument)."""
    names = spelling.split()
    if not spelling.startswith("--"):
        return typer.Argument(metavar=spelling, help=about)
    metavar = None if names[-1].startswith("-") else names.pop()
    return typer.Option(*names, metavar=metavar, help=about, rich_help_panel=panel, **extra)


# --- options of many commands -----------------------------------------------------------------------------------------

WHOSE: Final = "Whose memory"
SCOPE: Final = "What it is for"

Json = Annotated[bool, declare("--json", "Print one JSON document, for programs.", EVERYWHERE)]
Agent = Annotated[str, declare("--agent -a AGENT", "Which agent sees it.", WHOSE)]
Session = Annotated[str | None, declare("--session -s SESSION", "In which session.", WHOSE)]
Tenant = Annotated[str, declare("--tenant TENANT", "The tenant that the user belongs to.", WHOSE)]

OfUser = Annotated[str | None, declare("--user -u USER", "What a user has.", SCOPE)]
OfAgent = Annotated[str | None, declare("--agent -a AGENT", "What an agent has.", SCOPE)]

MemoryId = Annotated[str, declare("ID", "The memory's id.")]
Metadata = Annotated[str | None, declare("--metadata JSON", "What is said of it, as a JSON object.")]
Limit = Annotated[int, declare("--limit -n N", "How many at most.")]
Quiet = Annotated[bool, declare("--quiet -q", "Print the new id and nothing else.")]
DryRun = Annotated[bool, declare("--dry-run", "Show what would be done, and change nothing.")]
Confirm = Annotated[bool, declare("--confirm", "You have looked at what it comes to.")]
Yes = Annotated[bool, declare("--yes -y", "Do not ask; you have looked at what it does.")]


# --- what kinds of commands take, beside their own --------------------------------------------------------------------


def everywhere(
    *,
    home: Path | None = None,
    url: str | None = None,
    new_store: bool = False,
    author: str | None = None,
    as_json: Json = False,
) -> None:
    """Options that are taken before a command and after it.

    Every command:
        --home FOLDER  Where Holdfast keeps its files; HOLDFAST_HOME, if not given.
        --url URL  The store, such as sqlite:///path/to/file.db; HOLDFAST_URL, if not given.
        --new-store  Begin with an empty store where one held memories before and there is nothing now.
        --author NAME  Who does it, for the audit chain; never a user's id. Otherwise it says cli.
    """


def only_json(*, as_json: Json = False) -> None:
    """For commands that open nothing."""


def of_store() -> None:
    """For commands on the whole store."""


def of_tenant(*, tenant: Tenant = DEFAULT_TENANT) -> None:
    """For commands on what a tenant has."""


def of_memory(
    *, user: str, agent: Agent = DEFAULT_AGENT, session: Session = None, tenant: Tenant = DEFAULT_TENANT
) -> None:
    """For commands on the memory of a user.

    Whose memory:
        --user -u USER  Whose memory it is.
    """


def of_scope(
    *,
    user: OfUser = None,
    agent: OfAgent = None,
    session: str | None = None,
    memory: str | None = None,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """For commands on what a rule or a hold is for.

    What it is for:
        --session -s SESSION  What a session has.
        --memory -m ID  One memory.
    """


# --- values -----------------------------------------------------------------------------------------------------------


def check_numbers(given: Mapping[str, Any]) -> None:
    """``InvalidInputError`` for a whole number of an option that counts nothing, whichever command it is."""
    for name, value in given.items():
        if type(value) is int and not (value == 0 and name in _FROM_0):
            check_count(value, name, most=_MOST)


def read_moment(text: str, *, now: datetime) -> datetime | str:
    """The moment that a text means: ``+90d``, ``-12h`` and ``+2w`` count from ``now``; anything else is given back as
    it is, for the engine to read.
    """
    if text[:1] not in ("+", "-"):
        return text
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"the moment {quote(text)} is not understood; write hours, days or weeks from now as +12h, +90d or +2w"
        )
    sign, amount, unit = found.groups()
    try:
        return now + timedelta(**{_UNITS[unit]: float(sign + amount)})
    except OverflowError:
        raise InvalidInputError(f"the moment {quote(text)} is outside the years 1 to 9999") from None


def read_object(
    text: str | None, name: str, error: type[InvalidInputError] = InvalidInputError
) -> dict[str, Any] | None:
    """The JSON object that an option gives, if it is given."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f'{name} is not JSON: {problem}; write it as \'{{"key": "value"}}\'') from None
    if not isinstance(value, dict):
        raise error(f'{name} must be a JSON object, such as \'{{"key": "value"}}\', not {quote(value)}')
    return value


def read_metadata(text: str | None, fields: Sequence[str]) -> dict[str, Any]:
    """Metadata from both of its options; a single field wins over the object."""
    said = read_object(text, "--metadata", InvalidMetadataError) or {}
    for field in fields:
        key, equals, value = field.partition("=")
        if not key or not equals:
            raise InvalidMetadataError(f"--meta {field!r} is not understood; write it as key=value")
        try:
            said[key] = json.loads(value, parse_constant=lambda name: name)
        except ValueError:
            said[key] = value
    return said


def read_bytes(file: str) -> bytes:
    """The content of a file, or of standard input for ``-``."""
    try:
        return sys.stdin.buffer.read() if file == STDIO else Path(file).read_bytes()
    except OSError as problem:
        raise InvalidInputError(f"cannot read {file}: {problem.strerror or problem}") from None
