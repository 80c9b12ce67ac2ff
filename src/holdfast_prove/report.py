"""What became of the obligations, for people and for programs."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from holdfast_prove.adapter import load
from holdfast_prove.obligations import FAILS, HOLDS, NOT_CLAIMED, Result

_MARKS: Final = {HOLDS: ("✓", "32"), FAILS: ("✗", "1;31"), NOT_CLAIMED: ("–", "90")}
_INDENT: Final = " " * 30


def describe(name: str) -> dict[str, Any]:
    """The system, its version, and what its documentation claims."""
    kind = load(name)
    claims = getattr(kind, "claims", None)
    quoted = None if claims is None else {one: {"quote": quote, "at": at} for one, (quote, at) in claims.items()}
    settle = getattr(kind, "settle", None)
    return {
        "system": name,
        "version": getattr(kind, "version", None),
        "python": platform.python_version(),
        "claims": quoted,
        "settles": None if settle is None else " ".join((settle.__doc__ or "").split()),
    }


def to_dict(result: Result) -> dict[str, Any]:
    """A result for programs."""
    return {**result._asdict(), "seconds": round(result.seconds, 2), "about": result.about}


def show(about: dict[str, Any], results: Iterable[Result], *, colours: bool) -> Iterator[str]:
    """Lines for a terminal, each as soon as it is known."""
    paint = (lambda text, code: f"\033[{code}m{text}\033[0m") if colours else (lambda text, _code: text)
    version = f" {about['version']}" if about["version"] else ""
    yield paint(f"{about['system']}{version}, Python {about['python']}", "1")
    counts: Counter[str] = Counter()
    for result in results:
        counts[result.outcome] += 1
        mark, colour = _MARKS[result.outcome]
        took = f"{result.seconds:5.1f} s" if result.seconds else " " * 7
        words = f"{mark} {result.obligation:<12}{result.outcome:<13}"
        yield f"{paint(words, colour)}{took}  {result.about}"
        if result.detail:
            yield paint(f"{_INDENT}{'  ' * 3}{result.detail}", colour)
    end = f"{counts[HOLDS]} hold, {counts[FAILS]} fail, {counts[NOT_CLAIMED]} are not claimed."
    yield paint(end, _MARKS[FAILS if counts[FAILS] else HOLDS][1])
