"""Numbers, sizes, times and texts for people: as HTML, with the exact value beside what is shown."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup, escape

from holdfast.edges.console.table import PREFIX

#: So much of a text is shown in a list.
LINE_CHARS: Final = 160
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
_MOMENTS: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z))")
_WEEKDAYS: Final = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")
_AT_A_TIME: Final = re.compile(r"(\d+) (\d+) \* \* ([0-6*])")
#: The five states, each with its class and its word; other words that mean one of them.
_STATES: Final = {
    "active": ("active", "active"),
    "archived": ("archived", "archived"),
    "recycled": ("bin", "in the bin"),
    "deleted": ("gone", "gone"),
    "deleting": ("gone", "being deleted"),
    "held": ("held", "held"),
    "archive": ("archived", "archive"),
    "recycle": ("bin", "to the bin"),
    "delete": ("gone", "delete for good"),
    "good": ("active", "good"),
    "bad": ("bin", "bad"),
}


def link(path: str, **query: Any) -> str:
    """The address of a page of the console; what is ``None`` is left out."""
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return PREFIX + path + (f"?{urlencode(given, errors='replace')}" if given else "")


def number(value: float | None) -> Markup:
    """A number with its thousands parted; a large one in short, with all of it in the title."""
    if value is None:
        return Markup("–")
    short = f"{value:,}" if isinstance(value, int) and abs(value) < 10_000_000 else _shorten(value)
    return Markup('<data value="%s" title="%s">%s</data>') % (value, f"{value:,}", short)


def _shorten(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def count(value: int, what: str) -> Markup:
    """So many of something, which has a plain plural."""
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return number(value) + " " + (what if value == 1 else plural)


def size(count: int | None) -> Markup:
    """A number of bytes."""
    if count is None:
        return Markup("–")
    value, unit = float(count), 0
    while abs(value) >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1_000, unit + 1
    shown = f"{value:.0f}" if unit == 0 or abs(value) >= 10 else f"{value:.1f}"
    return Markup('<data value="%s" title="%s bytes">%s %s</data>') % (count, f"{count:,}", shown, _UNITS[unit])


def duration(seconds: float | None) -> str:
    """How long something takes, in the unit that fits."""
    if seconds is None:
        return "–"
    for least, length, unit in ((172_800, 86_400, "d"), (3_600, 3_600, "h"), (60, 60, "min"), (1, 1, "s")):
        if seconds >= least:
            return f"{seconds / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds * 1_000:.0f} ms"


def parse_time(value: str | float | datetime | None) -> datetime | None:
    """A moment, in UTC: ISO 8601, or seconds since 1970."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)


def when(value: str | float | datetime | None, *, only_day: bool = False) -> Markup:
    """A moment in UTC, which the console's script shows in the viewer's zone."""
    moment = parse_time(value)
    if moment is None:
        return Markup("–")
    shown = day(moment) if only_day else f"{day(moment)}, {moment:%H:%M} UTC"
    exact = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    mark = Markup(" data-day") if only_day else ""
    return Markup('<time datetime="%s" title="%s"%s>%s</time>') % (exact, exact, mark, shown)


def day(value: str | date) -> str:
    """A day, such as 2 Mar 2026."""
    one = date.fromisoformat(value[:10]) if isinstance(value, str) else value
    return f"{one.day} {one:%b %Y}"


def cron(fields: str) -> str:
    """When a job runs, in words, where five fields of cron say something that has plain ones."""
    found = _AT_A_TIME.fullmatch(fields)
    if found is None:
        return "every minute" if fields == "* * * * *" else "by its own rule"
    minute, hour, weekday = found.groups()
    return f"{'every day' if weekday == '*' else _WEEKDAYS[int(weekday)]} at {int(hour):02}:{int(minute):02}"


def state(name: str, word: str | None = None) -> Markup:
    """A state as a dot with its word beside it."""
    style, said = _STATES.get(name, ("", name))
    return Markup('<span class="state %s">%s</span>') % (style, word or said)


def kind(name: str) -> str:
    """A kind of memory, as people write it."""
    return name.replace("_", "-")


def text(value: Any, most: int = LINE_CHARS) -> Markup:
    """What someone wrote, kept apart from what is around it, and cut where it is long."""
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=None, default=str)
    shown = said if len(said) <= most else said[: most - 1] + "…"
    return Markup("<bdi>%s</bdi>") % _make_visible(shown)


def _make_visible(said: str) -> str:
    """A text with characters that nobody sees, and those that turn the order of others, as their codes."""
    return said if said.isprintable() else "".join(map(_visible, said))


def _visible(character: str) -> str:
    if character in "\n\t" or character.isprintable() or character in "\u200c\u200d":
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def identifier(value: str, most: int = 40) -> Markup:
    """An id, short where it is long, with all of it in the title."""
    shown = value if len(value) <= most else f"{value[: most * 3 // 5]}…{value[-(most // 5) :]}"
    return Markup('<bdi class="id" title="%s">%s</bdi>') % (_make_visible(value), _make_visible(shown))


def file(document: Any) -> str:
    """A document as an address that holds all of it as JSON, so that it can be saved without asking again."""
    content = json.dumps(document, ensure_ascii=False, indent=2).encode()
    return f"data:application/json;base64,{base64.b64encode(content).decode()}"


def sentence(said: str) -> Markup:
    """A sentence with a capital and a full stop, and moments in it as people read them."""
    whole = said[:1].upper() + said[1:]
    whole = whole if whole.endswith((".", "!", "?")) else whole + "."
    parts = _MOMENTS.split(_make_visible(whole))
    return Markup("").join(when(part) if number % 2 else escape(part) for number, part in enumerate(parts))
