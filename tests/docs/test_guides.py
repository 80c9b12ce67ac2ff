"""CONTRIBUTING.md and ARCHITECTURE.md lead to what is there: every path and every test that they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from bench.pages import house

ROOT = Path(__file__).parents[2]
#: Where a path that is named may begin.
BASES = (ROOT, ROOT / "src" / "holdfast")
PATH = re.compile(r"`((?:[\w.*-]+/)+(?:[\w*-]+\.\w+)?|[\w*-]+\.(?:py|sql|md|toml|txt|yml|yaml))(?:::(\w+))?`")
RECIPES = (
    "A kind of memory",
    "A filter operator",
    "An object store",
    "A default",
    "A route, a tool and a command",
    "A metric",
    "An audit action",
    "An embedder",
    "An engine",
    "The scoring",
    "A column of records",
    "A system in the forgetting kit",
    "An integration",
)


def find(path: str) -> list[Path]:
    """The files that are meant: from the root, from the package, or by a name that only one folder has."""
    found = [one for base in BASES for one in base.glob(path.rstrip("/"))]
    return found if found or "/" in path else list((ROOT / "src").rglob(path))


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_every_path_that_a_guide_names_exists(page: str) -> None:
    named = PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [path for path, _ in named if not find(path)] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_every_test_that_a_guide_names_exists(page: str) -> None:
    for path, test in PATH.findall((ROOT / page).read_text(encoding="utf-8")):
        if test:
            (file,) = find(path)
            functions = {
                node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)
            }
            assert test in functions, f"{page} names {path}::{test}"


def test_there_is_a_recipe_for_each_change_that_people_make() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert [title for title, _ in recipes] == list(RECIPES)
    for title, recipe in recipes:
        assert re.search(r"^1\. ", recipe, re.MULTILINE), f"{title}: the files to touch, in their order"
        assert "Fails until it is done: " in recipe, f"{title}: the test that says so"
        assert "::test_" in recipe


def test_the_architecture_has_the_figures_that_are_counted() -> None:
    """All of them, whatever they are: they change with every commit, and ``make reference`` writes them anew."""
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## How large it is")[2]
    aims = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", table, re.MULTILINE)
    assert tuple(aims[1:]) == house.AIMS
