"""The pages are true: what they say to type is typed, from top to bottom."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from databases import postgres_server
from docs.pages import ROOT, Reader, check_command, check_line, free_port, read_blocks, read_commands
from holdfast import Holdfast
from holdfast.lifecycle.policies import read_policies
from holdfast.lifecycle.schedule.schedule import JOBS

PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "forgetting.md",
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]
#: These have tests of their own that run them: on servers, or with a policy file.
LANGUAGES = {"console", "python", "json", "toml", "yaml", "ini", "sql", "nginx", "text"}
MOVED = "postgresql://holdfast@db.example.com:5432/holdfast"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    replaced = {"8422": free_port(), "8423": free_port()}
    if MOVED in page.read_text(encoding="utf-8"):
        replaced[MOVED] = _in_one_word(postgres_server().new_database())
    reader = Reader(tmp_path, replaced)
    reader.follow(page)
    assert reader.ran or not [
        block for block in read_blocks(page) if block.language in {"console", "python"} and block.is_run
    ]


def _in_one_word(url: str) -> str:
    """A URL without the characters that a shell takes for its own."""
    parts = urlsplit(url)
    where = parse_qs(parts.query)
    return f"postgresql://{parts.username}@{quote(where['host'][0], safe='')}:{where['port'][0]}{parts.path}"


def test_a_page_that_shows_what_is_not_printed_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('one')\n```\n\n```text\ntwo\n```\n")
    with pytest.raises(AssertionError, match="and not"):
        Reader(tmp_path).follow(page)
    page.write_text("```python\nprint('one')\n```\n")
    with pytest.raises(AssertionError, match="does not show what this prints"):
        Reader(tmp_path).follow(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_can_be_read(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^ *```\w+$", text, re.MULTILINE)) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE)), (
        "a block without a language cannot be run"
    )
    for block in read_blocks(page):
        assert block.language in LANGUAGES
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        elif block.language == "ini":
            parser = configparser.ConfigParser()
            parser.read_string(block.text)
            for section in parser.values():
                if "ExecStart" in section:
                    check_command(shlex.split(section["ExecStart"])[1:])
        elif block.language == "console":
            assert "$ " in block.text
            for command in read_commands(block):
                check_line(command.line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_within_a_sentence_exists(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for command in re.findall(r"`(?:[\d*/]+ [\d*/]+ \* \* \* )?holdfast ([a-z-][^`]*)`", text):
        check_command([word for word in shlex.split(command) if word != "…"])


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(AssertionError, match="there is no 'forgive'"):
        check_line("holdfast forgive alice")
    with pytest.raises(AssertionError, match="has no --softly"):
        check_line("docker compose run --rm holdfast erase alice --softly | cat")


def test_the_policies_of_the_page_can_be_applied(tmp_path: Path, holdfast: Holdfast) -> None:
    (block,) = [block for block in read_blocks(ROOT / "docs" / "howto" / "govern.md") if block.language == "toml"]
    path = tmp_path / "policies.toml"
    path.write_text(block.text)
    policies, exclusive = read_policies(path)
    holdfast.policies.set_all(policies, exclusive=exclusive, confirm=True, author="me")
    assert holdfast.policies.get("episodic", agent_id="travel_agent")["delete_after_days"] == 180


def test_the_page_names_every_job() -> None:
    page = (ROOT / "docs" / "howto" / "govern.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {job.name for job in JOBS}


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem
)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_target_of_make_that_a_page_names_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^\$ |  \$ |`)make ([a-z -]+?)(?= {2}|`|$| #)", (ROOT / page).read_text(), re.MULTILINE)
    assert {target for words in named for target in words.split()} <= targets


def test_every_decision_is_in_the_list_of_decisions() -> None:
    folder = ROOT / "docs" / "adr"
    rows = (folder / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \d+ \| \[([^\]]+)\]\(([^)]+)\)", rows, re.MULTILINE)
    titles = [(path.read_text(encoding="utf-8").split("\n")[0], path.name) for path in sorted(folder.glob("0*.md"))]
    assert [(title.partition(": ")[2], name) for title, name in titles] == listed
