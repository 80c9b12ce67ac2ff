"""The page of benchmarks: sections stand in one order, and its top counts what is met and names what is missed."""

from __future__ import annotations

from pathlib import Path

from bench import DOCS
from bench.pages.benchmarks import write_section

SPEED = "| | p50 ms | met |\n|---|---|---|\n| add | 0.5 | yes |\n| cold scope | 27 | **no** |\n"


def test_sections_are_replaced_where_they_stand_and_the_top_says_what_is_missed(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    for title, text in (("Something new", "a"), ("Speed", "what it was"), ("Side by side", "b"), ("Speed", SPEED)):
        write_section(tmp_path, title, text)
    text = page.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Benchmarks",
        "## Side by side",
        "## Speed",
        "## Something new",
    ]
    assert "what it was" not in text
    assert "1 of 2 are met; missed: cold scope (Speed)." in text
    assert "[Side by side](#side-by-side) · [Speed](#speed) · [Something new](#something-new)." in text
    before = text
    write_section(tmp_path, "Speed", SPEED)
    assert page.read_text(encoding="utf-8") == before


def test_the_page_is_as_its_sections_make_it(tmp_path: Path) -> None:
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    (tmp_path / "benchmarks.md").write_text(text, encoding="utf-8")
    title, _, rest = text.partition("\n## ")[2].partition("\n")
    write_section(tmp_path, title, rest.partition("\n## ")[0])
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8") == text, "python -m bench.pages.benchmarks"
