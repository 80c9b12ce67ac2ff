"""The reference page of the REST API, made from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from fastapi.routing import APIRoute

from holdfast.api.app import route_table
from holdfast.api.guard import GuardedRoute
from holdfast.api.problems import FOUND_EARLY, STATUSES

_CONVERTER: Final = re.compile(r":\w+}")
_MADE: Final = "<!-- Made from the code by `make reference`; edit the code, not this page. -->"
_ABOUT: Final = """\
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
last line has neither, the answer was cut off. With an `Idempotency-Key` it comes whole, without `progress`."""
_ERRORS: Final = """\
An error is `application/problem+json`: `status`, `title`, `detail` (what was wrong, what to do), `code`, `retryable`.
`errors` has a `where` and a `problem` for each thing that is wrong with the form of a request. The codes are those of
every other edge ([errors](errors.md)), and two that only this one has: `malformed_request` (what came is no JSON) and
`method_not_allowed`. The statuses that they come with:"""


def render() -> str:
    """The page."""
    parts = ["# REST", _MADE, _ABOUT]
    for tag, routes in groupby(route_table(), key=_tag):
        rows = "\n".join(_rows(routes))
        parts.append(f"## {tag.capitalize()}\n\n| | | right | reaches |\n|---|---|---|---|\n{rows}")
    codes: dict[int, list[str]] = {}
    for code, status in (*STATUSES.items(), *((code, status) for status, code in FOUND_EARLY.items() if status != 404)):
        codes.setdefault(status, []).append(f"`{code}`")
    told = "\n".join(f"| {status} | {', '.join(sorted(codes[status]))} |" for status in sorted(codes))
    parts.append(f"## Answers in lines\n\n{_LINES}")
    parts.append(f"## Errors\n\n{_ERRORS}\n\n| status | codes |\n|---|---|\n{told}")
    return "\n\n".join(parts) + "\n"


def _rows(routes: Iterator[GuardedRoute]) -> Iterator[str]:
    for route in routes:
        about = (route.summary or route.description.split("\n")[0]).strip().rstrip(".")
        path, needs = _CONVERTER.sub("}", route.path), route.needs
        yield f"| `{route.method} {path}` | {about} | {needs.right.value} | {needs.reach.value} |"


def _tag(route: APIRoute) -> str:
    return str(route.tags[0]) if route.tags else "other"
