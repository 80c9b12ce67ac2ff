"""``holdfast export``: everything that is held on a person, as a ZIP or as one JSON document."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.call import Call
from holdfast.edges.cli.options import STDIO
from holdfast.edges.cli.output import Output, Part, Rows, minute, plural, warn

_ADD: Final = 'holdfast add "Likes tea" --user alice'
#: What a file's name is left with of a user's id.
_UNSAFE: Final = re.compile(r"[^\w.@+-]+")
_COUNTED: Final = ("conversations", "facts", "collections", "quotas", "rules", "holds", "audit")


def _show_done(done: Mapping[str, Any]) -> Iterator[Part]:
    counts = {**done["memories"], **{name: done[name] for name in _COUNTED if name in done}}
    yield Rows("held!, how many>", [(name.replace("_", " "), count) for name, count in counts.items() if count])
    if done["incomplete"]:
        memories = plural(done["incomplete"], "memory")
        yield warn(f"Only a part of {memories} could be read; each has a note that says why.")
    yield f"Written to {done['file']}, as of {minute(done['export_date'])}."


@command(app, "export", render=_show_done)
def export(call: Call, *, user: str, to: str | None = None) -> Any:
    """Export everything that is held on a user: in every state, of every kind, from every place.

    The ZIP has a page to read (index.html) and files for programs, with a schema. With --json and without --to, all of
    it is one JSON document on stdout, which is put together in memory.

    Options:
        USER  Whose data.
        --to FILE  The ZIP to write, or - for stdout; export-USER.zip here, if not given.

    Examples:
        holdfast add "Likes tea" --user alice
        holdfast export alice --to alice.zip

        holdfast add "Likes tea" --user alice
        holdfast export alice --json

        holdfast add "Likes tea" --user alice
        holdfast export alice --to - > alice.zip
    """
    if to == STDIO and call.as_json:
        raise InvalidInputError("--to - writes the ZIP to stdout, where --json would write too; leave one of them out")
    if to == STDIO and sys.stdout.isatty():
        raise InvalidInputError("a ZIP is nothing for a terminal; write it to a file, or into a pipe: --to - > FILE")
    total = call.engine.services.exports.size(call.tenant, user) if call.is_watched else 0
    target: Any = sys.stdout.buffer if to == STDIO else to or f"export-{_UNSAFE.sub('_', user)}.zip"
    with call.progress("exporting", total) as advance:
        if call.as_json and to is None:
            return call.engine.export_user(user, progress=advance)
        done = call.engine.export_user(user, target, progress=advance)
    return Output(done, text="" if to == STDIO else None)
