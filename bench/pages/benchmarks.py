"""The page docs/benchmarks.md: its top, which says in short what was found, and its sections in their order."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

_TITLE: Final = "# Benchmarks"
_SECTION: Final = re.compile(r"^## (.+)\n", re.MULTILINE)
#: What stands first is for people who choose; below it is what each part of Holdfast costs.
_ORDER: Final = (
    "Side by side",
    "Recall beside others",
    "Recall quality",
    "Recall quality with minilm",
    "Speed",
    "Start",
    "Being right",
    "Lifecycle",
    "Archive",
    "Erasure and backups",
    "Deployment",
    "Round trips",
    "Large scope",
    "Service",
    "The console",
    "LangGraph store",
    "LangGraph threads",
)
_MISSED: Final = re.compile(r"^\| ([^|]+) \|.*\| \*\*no\*\* \|$", re.MULTILINE)
_MET: Final = re.compile(r"\| (?:yes|\*\*no\*\*) \|$", re.MULTILINE)


def machine() -> str:
    """The class of machine that a figure is from."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = f"Python {platform.python_version()}, numpy {version('numpy')}, apsw {version('apsw')}"
    return f"{os.cpu_count()}-core {platform.machine()} virtual machine, {memory:.0f} GiB, {parts}"


def write_section(docs: Path, title: str, text: str) -> None:
    """Put a section in the place of the one with its title, and write the top of the page anew."""
    page = docs / "benchmarks.md"
    sections = _read(page.read_text(encoding="utf-8")) if page.exists() else {}
    _write(page, {**sections, title: text})


def _write(page: Path, sections: Mapping[str, str]) -> None:
    ordered = sorted(sections, key=lambda title: _ORDER.index(title) if title in _ORDER else len(_ORDER))
    parts = [f"## {title}\n\n{sections[title].strip()}\n" for title in ordered]
    page.write_text("\n".join(["\n".join(_describe(sections, ordered)), *parts]), encoding="utf-8")


def _read(text: str) -> dict[str, str]:
    """The sections of a page, by their titles."""
    parts = _SECTION.split(text)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _describe(sections: Mapping[str, str], ordered: list[str]) -> Iterator[str]:
    """The top of the page."""
    from bench.recall.page import shorten as shorten_recall  # both write sections
    from bench.side_by_side.page import shorten as shorten_comparison

    yield _TITLE
    yield ""
    short = [*shorten_comparison(), *shorten_recall(), *_count_targets(sections, ordered)]
    yield "What Holdfast costs and how well it recalls, beside others and alone. In short:"
    yield ""
    yield from (f"- {line}" for line in short)
    yield ""
    yield "Every figure is written by the command that its section names. Figures of one table are of one run. Ratios"
    yield "matter more than milliseconds: machines differ, and the one of these figures is shared with others."
    yield ""
    links = (f"[{title}](#{title.lower().replace(' ', '-')})" for title in ordered)
    yield "Sections: " + " · ".join(links) + "."
    yield ""


def _count_targets(sections: Mapping[str, str], ordered: list[str]) -> Iterator[str]:
    """How many of the targets on the page are met, and which are not."""
    missed = [f"{name.strip()} ({title})" for title in ordered for name in _MISSED.findall(sections[title])]
    total = sum(len(_MET.findall(text)) for text in sections.values())
    if total:
        names = f"; missed: {', '.join(missed)}" if missed else ""
        yield f"**Targets** (`make bench-check` and the tables below): {total - len(missed)} of {total} are met{names}."


def main() -> None:
    """Write the page again as it is: its top, and its sections in their order."""
    from bench import DOCS

    page = DOCS / "benchmarks.md"
    _write(page, _read(page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
