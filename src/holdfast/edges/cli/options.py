"""The options that commands share, each with one name, one meaning and one place in the help."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.core.errors import InvalidInputError, quote

_OFFSET: Final = re.compile(r"([+-])(\d+(?:\.\d+)?)([hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


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


DEFAULT_AGENT: Final = "cli"
DEFAULT_TENANT: Final = "default"
_WHOSE: Final = "Whose memory"
_STORE: Final = "Store"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

User = Annotated[str, typer.Option("--user", "-u", metavar="USER", help="Whose memory it is.", rich_help_panel=_WHOSE)]
Agent = Annotated[
    str, typer.Option("--agent", "-a", metavar="AGENT", help="Which agent sees it.", rich_help_panel=_WHOSE)
]
Session = Annotated[
    str | None,
    typer.Option("--session", "-s", metavar="SESSION", help="In which session.", rich_help_panel=_WHOSE),
]
Tenant = Annotated[
    str, typer.Option("--tenant", metavar="TENANT", help="The tenant that the user belongs to.", rich_help_panel=_WHOSE)
]

Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="FOLDER",
        help="Where Holdfast keeps its files; HOLDFAST_HOME, if not given.",
        rich_help_panel=_STORE,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The store, such as sqlite:///path/to/file.db; HOLDFAST_URL, if not given.",
        rich_help_panel=_STORE,
    ),
]

MemoryId = Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")]
