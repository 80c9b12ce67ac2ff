"""The pages that list what is proven name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", ["promises.md", "requirements.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = NAMED.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert named, f"docs/{page} names no tests"
    for file, test in named:
        assert (ROOT / file).is_file(), f"docs/{page} names {file}, which does not exist"
        assert not test or test in functions(ROOT / file), f"docs/{page} names {file}::{test}, which does not exist"


def test_every_requirement_has_a_test_or_is_open() -> None:
    rows = [
        line
        for line in (ROOT / "docs/requirements.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    proofs = [
        line.rstrip(" |").split("|")[-1].strip() for line in rows if re.match(r"\| (RF|RT|EP|RET|INV|TTL)-\S+ \|", line)
    ]
    assert len(proofs) > 100
    assert [proof for proof in proofs if proof != "open" and not NAMED.search(proof)] == []


def test_every_requirement_test_is_listed() -> None:
    listed = {test for _, test in NAMED.findall((ROOT / "docs/requirements.md").read_text(encoding="utf-8"))}
    for path in (ROOT / "tests/requirements").glob("test_*.py"):
        missing = {name for name in functions(path) if name.startswith("test_")} - listed
        assert not missing, f"{path.name} proves {sorted(missing)}, which docs/requirements.md does not list"
