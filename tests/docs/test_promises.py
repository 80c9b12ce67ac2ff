"""The pages that list what is proven name tests that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from bench import check

ROOT = Path(__file__).parents[2]
MEASURED = "`make bench-check`"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


@cache
def functions(path: Path) -> set[str]:
    return set(re.findall(r"^ *def (\w+)\(", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", ["promises.md", "requirements.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = NAMED.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert named, f"docs/{page} names no tests"
    for file, test in named:
        assert (ROOT / file).is_file(), f"docs/{page} names {file}, which does not exist"
        assert not test or test in functions(ROOT / file), f"docs/{page} names {file}::{test}, which does not exist"


def proofs() -> dict[str, str]:
    """What proves each requirement, by the requirement's id."""
    text = (ROOT / "docs/requirements.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:RF|RT|EP|RET|INV|TTL)-\S+) \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert len(rows) == len(dict(rows)) > 100
    return dict(rows)


def test_every_requirement_has_a_test_or_is_open() -> None:
    unproven = {row: proof for row, proof in proofs().items() if proof != "open" and not NAMED.search(proof)}
    assert {row: proof for row, proof in unproven.items() if proof != MEASURED} == {}


def test_what_a_row_names_the_bench_for_is_what_the_bench_checks() -> None:
    assert {row for row, proof in proofs().items() if MEASURED in proof} == check.ROWS
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^bench-check:.*\n\t.*python -m bench --check$", makefile, re.MULTILINE)


def test_the_bench_fails_where_a_single_target_is_missed_or_was_not_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = {
        (target.name, deployment): 0.9 * target.most for target in check.TARGETS for deployment in target.deployments
    }
    assert check.run(lambda: good) == 0
    assert "MISSED" not in capsys.readouterr().out
    for key, value in good.items():
        assert check.run(lambda key=key, value=value: {**good, key: value / 0.9}) == 1  # type: ignore[misc]
        assert f"MISSED: {key[0]} ({key[1]})" in capsys.readouterr().out
        with pytest.raises(LookupError):
            check.judge({other: kept for other, kept in good.items() if other != key})


def test_a_decision_names_requirements_that_there_are() -> None:
    page = (ROOT / "docs/requirements.md").read_text(encoding="utf-8")
    rows, _, decisions = page.partition("## Where the sources disagree")
    named = [one for listed in re.findall(r"^\*\*.*?\(([^)]*)\)\.\*\*", decisions, re.M) for one in listed.split(", ")]
    assert len(named) > 40
    assert [one for one in named if f"| {one} |" not in rows] == []


def test_every_requirement_test_is_listed() -> None:
    listed = {test for _, test in NAMED.findall((ROOT / "docs/requirements.md").read_text(encoding="utf-8"))}
    for path in (ROOT / "tests/requirements").glob("test_*.py"):
        missing = {name for name in functions(path) if name.startswith("test_")} - listed
        assert not missing, f"{path.name} proves {sorted(missing)}, which docs/requirements.md does not list"
