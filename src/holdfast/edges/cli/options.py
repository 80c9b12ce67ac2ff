"""The options that commands share, each with one name, one meaning and one place in the help."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.core.errors import InvalidInputError, quote

DEFAULT_AGENT: Final = "cli"
DEFAULT_TENANT: Final = "default"
STDIO: Final = "-"
KINDS: Final = "short_term, long_term, persona, episodic, entity or structured"
EVERYWHERE: Final = "Every command"
_OFFSET: Final = re.compile(r"([+-])(\d+(?:\.\d+)?)([hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


def option(names: str, metavar: str, about: str, *, panel: str | None = None, **extra: Any) -> Any:
    """An option with a value."""
    return typer.Option(*names.split(), metavar=metavar, help=about, rich_help_panel=panel, **extra)


def flag(names: str, about: str, *, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(*names.split(), help=about, rich_help_panel=panel)


def argument(metavar: str, about: str) -> Any:
    """A value that is given by its place."""
    return typer.Argument(metavar=metavar, help=about)


# --- options of many commands -----------------------------------------------------------------------------------------

WHOSE: Final = "Whose memory"
SCOPE: Final = "What it is for"

Json = Annotated[bool, flag("--json", "Print one JSON document, for programs.", panel=EVERYWHERE)]
User = Annotated[str, option("--user -u", "USER", "Whose memory it is.", panel=WHOSE)]
Agent = Annotated[str, option("--agent -a", "AGENT", "Which agent sees it.", panel=WHOSE)]
Session = Annotated[str | None, option("--session -s", "SESSION", "In which session.", panel=WHOSE)]
Tenant = Annotated[str, option("--tenant", "TENANT", "The tenant that the user belongs to.", panel=WHOSE)]

OfUser = Annotated[str | None, option("--user -u", "USER", "What a user has.", panel=SCOPE)]
OfAgent = Annotated[str | None, option("--agent -a", "AGENT", "What an agent has.", panel=SCOPE)]
OfSession = Annotated[str | None, option("--session -s", "SESSION", "What a session has.", panel=SCOPE)]
OfMemory = Annotated[str | None, option("--memory -m", "ID", "One memory.", panel=SCOPE)]

MemoryId = Annotated[str, argument("ID", "The memory's id.")]
Metadata = Annotated[str | None, option("--metadata", "JSON", "What is said of it, as a JSON object.")]
Limit = Annotated[int, option("--limit -n", "N", "How many at most.")]
Quiet = Annotated[bool, flag("--quiet -q", "Print the new id and nothing else.")]
DryRun = Annotated[bool, flag("--dry-run", "Show what would be done, and change nothing.")]
Confirm = Annotated[bool, flag("--confirm", "You have looked at what it comes to.")]
Yes = Annotated[bool, flag("--yes -y", "Do not ask; you have looked at what it does.")]


# --- what kinds of commands take, beside their own --------------------------------------------------------------------


def everywhere(
    *,
    home: Annotated[
        Path | None,
        option("--home", "FOLDER", "Where Holdfast keeps its files; HOLDFAST_HOME, if not given.", panel=EVERYWHERE),
    ] = None,
    url: Annotated[
        str | None,
        option(
            "--url",
            "URL",
            "The store, such as sqlite:///path/to/file.db; HOLDFAST_URL, if not given.",
            panel=EVERYWHERE,
        ),
    ] = None,
    new_store: Annotated[
        bool,
        flag(
            "--new-store",
            "Begin with an empty store where one held memories before and there is nothing now.",
            panel=EVERYWHERE,
        ),
    ] = False,
    author: Annotated[
        str | None,
        option(
            "--author",
            "NAME",
            "Who does it, for the audit chain; never a user's id. Otherwise it says cli.",
            panel=EVERYWHERE,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Options that are taken before a command and after it."""


def only_json(*, as_json: Json = False) -> None:
    """For commands that open nothing."""


def of_store() -> None:
    """For commands on the whole store."""


def of_tenant(*, tenant: Tenant = DEFAULT_TENANT) -> None:
    """For commands on what a tenant has."""


def of_memory(
    *, user: User, agent: Agent = DEFAULT_AGENT, session: Session = None, tenant: Tenant = DEFAULT_TENANT
) -> None:
    """For commands on the memory of a user."""


def of_scope(
    *,
    user: OfUser = None,
    agent: OfAgent = None,
    session: OfSession = None,
    memory: OfMemory = None,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """For commands on what a rule or a hold is for."""


# --- values -----------------------------------------------------------------------------------------------------------


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


def read_object(text: str, name: str, error: type[InvalidInputError] = InvalidInputError) -> dict[str, Any]:
    """The JSON object that an option gives."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f'{name} is not JSON: {problem}; write it as \'{{"key": "value"}}\'') from None
    if not isinstance(value, dict):
        raise error(f'{name} must be a JSON object, such as \'{{"key": "value"}}\', not {quote(value)}')
    return value


def read_bytes(file: str) -> bytes:
    """The content of a file, or of standard input for ``-``."""
    try:
        return sys.stdin.buffer.read() if file == STDIO else Path(file).read_bytes()
    except OSError as problem:
        raise InvalidInputError(f"cannot read {file}: {problem.strerror or problem}") from None
