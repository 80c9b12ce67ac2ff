"""The reference page of the REST API, made from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from fastapi.routing import APIRoute

from retain.api.app import route_table
from retain.api.guard import GuardedRoute
from retain.api.problems import STATUSES

_CONVERTER: Final = re.compile(r":\w+}")
_MADE: Final = "<!-- Made from the code by `make reference`; edit the code, not this page. -->"
_ABOUT: Final = """\
What `retain serve` answers at ([how to set it up](../howto/serve.md)). A running service describes itself in full, with
every field and an example of each body, at `/docs` for people and `/openapi.json` for programs.

A caller gives its key as `Authorization: Bearer …` ([keys](../howto/access.md)); an operator names the tenant that it
acts for as `X-Retain-Tenant`. A route needs a right (admin includes govern, govern includes write, write includes read)
and says how far it reaches: a *memory* (one user, as one agent sees it), a *user*, *whose* (a user where one is named,
else the tenant), the *tenant*, or the *store* (operators only). A write with an `Idempotency-Key` is done once, however
often it is sent. Lists come in pages: `cursor` of the next one is in the answer."""
_ERRORS: Final = """\
An error is `application/problem+json`: `status`, `title`, `detail` (what was wrong, what to do), `code`, `retryable`.
The codes are those of every other edge ([errors](errors.md)); the statuses that they come with:"""


def render() -> str:
    """The page."""
    parts = ["# REST", _MADE, _ABOUT]
    for tag, routes in groupby(route_table(), key=_tag):
        rows = "\n".join(_rows(routes))
        parts.append(f"## {tag.capitalize()}\n\n| | | right | reaches |\n|---|---|---|---|\n{rows}")
    codes: dict[int, list[str]] = {}
    for code, status in STATUSES.items():
        codes.setdefault(status, []).append(f"`{code}`")
    told = "\n".join(f"| {status} | {', '.join(sorted(codes[status]))} |" for status in sorted(codes))
    parts.append(f"## Errors\n\n{_ERRORS}\n\n| status | codes |\n|---|---|\n{told}")
    return "\n\n".join(parts) + "\n"


def _rows(routes: Iterator[GuardedRoute]) -> Iterator[str]:
    for route in routes:
        about = (route.summary or route.description.split("\n")[0]).strip().rstrip(".")
        path, needs = _CONVERTER.sub("}", route.path), route.needs
        yield f"| `{route.method} {path}` | {about} | {needs.right.value} | {needs.reach.value} |"


def _tag(route: APIRoute) -> str:
    return str(route.tags[0]) if route.tags else "other"
