"""Drawings as SVG. Each says in words what it shows, too. Colours are classes of the style sheet: nothing is inline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from markupsafe import Markup

_WIDE: Final = 1060
_MARGIN: Final = 46
_MIDDLE: Final = 96.0
#: Dots of a life line are at least so far apart: beside each other, above and below the line, stand two labels.
_GAP: Final = 92
#: So many dots fit on a life line; of what is more, the middle is one dot.
_MOST_DOTS: Final = 10
_LABEL_CHARS: Final = 26


class Moment(NamedTuple):
    """Something that happened to a record, or is due."""

    at: datetime
    label: str
    detail: str
    state: str
    """The class of the state that it is in from then on: ``active``, ``archived``, ``bin``, ``gone``."""
    is_due: bool = False
    """It has not happened yet."""


def _svg(width: float, height: float, words: str, parts: Sequence[Markup], style: str = "") -> Markup:
    head = Markup('<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">').format(
        style, width, height, words
    )
    drawn = head + Markup("").join(parts) + Markup("</svg>")
    # Labels of a drawing that is made small cannot be read: what it shows is said below it instead.
    return (
        drawn
        if style == "life-wide"
        else drawn + Markup('<p class="in-words" aria-hidden="true">{}.</p>').format(words)
    )


def _text(x: float, y: float, said: str, style: str = "", anchor: str = "start") -> Markup:
    return Markup('<text x="{:.0f}" y="{:.0f}" class="{}" text-anchor="{}">{}</text>').format(x, y, style, anchor, said)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(x1, y1, x2, y2, style)


def short_day(at: datetime) -> str:
    """A day on a drawing, such as 2 Mar 2026."""
    return f"{at.day} {at:%b %Y}"


# --- a life -----------------------------------------------------------------------------------------------------------


def life(moments: Sequence[Moment], now: datetime, words: str, *, is_held: bool = False) -> Markup:
    """A record's life from left to right: solid what happened, dashed what is due, and a line for now.

    What a hold keeps has its colour from now on.
    """
    dots = _thin(sorted(moments, key=lambda one: (one.is_due, one.at)))
    split = sum(not one.is_due for one in dots)
    places = _spread([*(one.at for one in dots[:split]), now, *(one.at for one in dots[split:])])
    here, at = places[split], [*places[:split], *places[split + 1 :]]
    parts = _lines(dots, places, split, is_held=is_held)
    for number, (one, x) in enumerate(zip(dots, at, strict=True)):
        parts += _dot(one, x, is_up=number % 2 == 0)
    parts += [_line(here, 64, here, 128, "now"), _text(here, 56, "now", "strong", "middle")]
    return _svg(_WIDE, 196, words, parts, "life-wide")


def _lines(dots: Sequence[Moment], places: Sequence[float], split: int, *, is_held: bool) -> list[Markup]:
    """The line between each place and the next, in the colour of the state between them; none after the end."""
    parts, state = [], "active"
    for number, x in enumerate(places):
        if number != split:
            state = dots[number - (number > split)].state
        following = places[number + 1] if number + 1 < len(places) else _WIDE - _MARGIN / 4
        if state != "gone" and dots:
            style = f"stroke-{state}" if number < split else f"due stroke-{'held' if is_held else state}"
            parts.append(_line(x, _MIDDLE, following, _MIDDLE, f"life-line {style}"))
    return parts


def _dot(one: Moment, x: float, *, is_up: bool) -> list[Markup]:
    y, top = _MIDDLE, 30.0 if is_up else 152.0
    is_first, is_last = x < _MARGIN + 40, x > _WIDE - _MARGIN - 60
    anchor = "start" if is_first else "end" if is_last else "middle"
    label_x = x - 8 if is_first else x + 8 if is_last else x
    style = f"dot stroke-{one.state} " + ("hollow" if one.is_due else f"fill-{one.state}")
    return [
        _line(x, y, x, top + 22 if is_up else top - 16, "stem"),
        Markup('<circle cx="{:.1f}" cy="{:.1f}" r="8" class="{}"/>').format(x, y, style),
        _text(label_x, top, _cut(one.label), "strong", anchor),
        _text(label_x, top + 16, _cut(short_day(one.at) + (f" · {one.detail}" if one.detail else "")), "soft", anchor),
    ]


def _cut(said: str) -> str:
    return said if len(said) <= _LABEL_CHARS else said[: _LABEL_CHARS - 1] + "…"


def _thin(moments: Sequence[Moment]) -> list[Moment]:
    """As many as fit: of too many, those in the middle of what happened become one."""
    extra = len(moments) - _MOST_DOTS
    happened = [one for one in moments if not one.is_due]
    if extra <= 0 or len(happened) < 4:
        return [*moments]
    keep = max(1, (len(happened) - extra - 1) // 2)
    middle = happened[keep : len(happened) - keep]
    one = middle[-1]._replace(label=f"{len(middle)} more moves", detail="listed below")
    return [*happened[:keep], one, *happened[len(happened) - keep :], *moments[len(happened) :]]


def _spread(moments: Sequence[datetime]) -> list[float]:
    """Places on the line in the order and, where there is room, the distances of the moments."""
    if len(moments) == 1:
        return [_WIDE / 2]
    first, span = moments[0], (moments[-1] - moments[0]).total_seconds() or 1.0
    room = _WIDE - 2 * _MARGIN
    gap = min(_GAP, room / (len(moments) - 1))
    free = room - gap * (len(moments) - 1)
    # Each has its least distance, and what is left is shared out by time.
    return [
        _MARGIN + gap * number + free * max(0.0, (one - first).total_seconds()) / span
        for number, one in enumerate(moments)
    ]


# --- figures over time ------------------------------------------------------------------------------------------------


def days(values: Sequence[int], first: str, last: str, words: str) -> Markup:
    """A number for each day as a line, with the days at its ends and the last value."""
    width, height, base = 680.0, 150.0, 124.0
    most = max([*values, 1])
    step = (width - 92) / max(1, len(values) - 1)
    points = [(2 + step * number, base - 96 * value / most) for number, value in enumerate(values)]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    end_x, end_y = points[-1] if points else (2.0, base)
    parts = [
        _line(0, base, width - 90, base, "axis"),
        Markup('<polyline points="{}" class="trend"/>').format(drawn),
        Markup('<circle cx="{:.1f}" cy="{:.1f}" r="4" class="trend-end"/>').format(end_x, end_y),
        _text(end_x + 10, end_y + 4, f"{values[-1]:,}" if values else "", "strong"),
        _text(0, 145, first, "soft"),
        _text(width - 90, 145, last, "soft", "end"),
    ]
    return _svg(width, height, words, parts)


def bars(rows: Sequence[tuple[str, float, str]], words: str) -> Markup:
    """Times as bars, each with its name and its value in words; the lengths are by magnitude, so that all are seen."""
    longest = max([value for _, value, _ in rows] + [1e-3])
    parts = []
    for number, (name, value, said) in enumerate(rows):
        y = 22.0 + 26 * number
        width = 12 + 258 * (value / longest) ** 0.35 if value > 0 else 4
        parts += [
            _text(0, y, name),
            Markup('<rect x="160" y="{:.0f}" width="{:.0f}" height="12" rx="6" class="bar bar-{}"/>').format(
                y - 10, width, number
            ),
            _text(170 + width, y, said, "soft"),
        ]
    return _svg(680, 12 + 26 * len(rows), words, parts, "bars")


class Area(NamedTuple):
    """One layer of a stacked area: a class of colour and a value for each day."""

    state: str
    values: Sequence[float]


def areas(layers: Sequence[Area], chosen: int, first: str, last: str, label: str, *, words: str) -> Markup:
    """Values of each day on top of each other, with a line at the chosen day."""
    count = max((len(layer.values) for layer in layers), default=0)
    left, right, base, height = 20.0, 1060.0, 190.0, 160.0
    tops = [sum(layer.values[number] for layer in layers) for number in range(count)]
    scale, step = height / max([*tops, 1]), (right - left) / max(1, count - 1)
    parts, below = [], [0.0] * count
    for layer in layers:
        above = [low + value for low, value in zip(below, layer.values, strict=True)]
        edge = [f"{left + step * at:.1f},{base - scale * value:.1f}" for at, value in enumerate(above)]
        back = [f"{left + step * at:.1f},{base - scale * value:.1f}" for at, value in reversed([*enumerate(below)])]
        parts.append(Markup('<polygon points="{}" class="area fill-{}"/>').format(" ".join(edge + back), layer.state))
        below = above
    x = left + step * chosen
    anchor = "end" if x > right - 140 else "start"
    parts += [
        _line(left, base, right, base, "axis"),
        _line(x, 10, x, base, "now"),
        _text(x - 8 if anchor == "end" else x + 8, 22, label, "strong", anchor),
        _text(left, 210, first, "soft"),
        _text(right, 210, last, "soft", "end"),
    ]
    return _svg(1080, 220, words, parts)
