"""The how-to pages are true: their code runs, and their files can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.test_readme import ROOT, run
from holdfast import Holdfast
from holdfast.lifecycle.policies import read_policies
from holdfast.lifecycle.schedule.schedule import JOBS

PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_how_to_runs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "python"):
        run(block, tmp_path)


def test_the_policies_of_the_page_can_be_applied(tmp_path: Path, holdfast: Holdfast) -> None:
    (text,) = blocks(ROOT / "docs" / "howto" / "govern.md", "toml")
    path = tmp_path / "policies.toml"
    path.write_text(text)
    policies, exclusive = read_policies(path)
    holdfast.policies.set_all(policies, exclusive=exclusive, confirm=True, author="me")
    assert holdfast.policies.get("episodic", agent_id="travel_agent")["delete_after_days"] == 180


def test_the_page_names_every_job() -> None:
    page = (ROOT / "docs" / "howto" / "govern.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {job.name for job in JOBS}
