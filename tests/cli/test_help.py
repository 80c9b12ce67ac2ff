"""Help: fast, complete, and with examples that run; and the reference pages that are made from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.pages.reference import PAGES, commands
from typer.main import get_command
from typer.testing import CliRunner

from holdfast import __version__
from holdfast.edges.cli.app import MODULES, app, examples_of
from launcher import launcher

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ALL = [(path[1:], command) for path, command in commands(["holdfast"], get_command(app))]
LEAVES = [(path, command) for path, command in ALL if not hasattr(command, "commands")]


def named(pair: tuple[list[str], Any]) -> str:
    return " ".join(["holdfast", *pair[0]])


@pytest.mark.parametrize("pair", ALL, ids=named)
def test_every_help_shows_an_example(pair: tuple[list[str], Any]) -> None:
    path, command = pair
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert shown.exit_code == 0
    assert examples_of(command.epilog)
    for example in examples_of(command.epilog):
        for line in example.splitlines():
            assert line in shown.stdout


@pytest.mark.parametrize("pair", ALL, ids=named)
def test_every_example_runs(pair: tuple[list[str], Any], home: Path, tmp_path: Path) -> None:
    env = {**os.environ, "HOLDFAST_HOME": str(home), "PATH": launcher().path()}
    for example in examples_of(pair[1].epilog):
        script = ["/bin/sh", "-e", "-c", example]
        done = subprocess.run(script, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, ""), example


@pytest.mark.parametrize("pair", LEAVES, ids=named)
def test_every_command_takes_json(pair: tuple[list[str], Any]) -> None:
    assert any("--json" in param.opts for param in pair[1].params)


def test_the_table_of_modules_has_every_command() -> None:
    found: dict[str, set[str]] = {}
    groups = [(group.name, group.typer_instance) for group in app.registered_groups]
    commands = [(name, one) for name, group in groups if group for one in group.registered_commands]
    for name, one in [*((one.name, one) for one in app.registered_commands), *commands]:
        module = str(getattr(one.callback, "__module__", "")).removeprefix("holdfast.edges.cli.")
        found.setdefault(module, set()).add(str(name))
    assert found == {module: set(names.split()) for module, names in MODULES.items()}


#: What neither adding nor recalling needs, by the beginnings of the names of modules.
UNNEEDED = (
    "pydantic", "tokenizers", "psycopg", "starlette", "cryptography", "rich", "httpx", "jinja2", "cronsim",
    "zoneinfo", "tomllib", "asyncio", "email", "concurrent", "holdfast.access", "holdfast.backups",
    "holdfast.results", "holdfast.telemetry", "holdfast.core.packs", "holdfast.lifecycle.domains",
    "holdfast.lifecycle.figures", "holdfast.lifecycle.metrics", "holdfast.lifecycle.policies",
    "holdfast.lifecycle.recycle_bin", "holdfast.lifecycle.sweeping", "holdfast.privacy.certificates",
    "holdfast.privacy.export", "holdfast.storage.catalog", "holdfast.storage.transfer",
    "holdfast.storage.relational.dues", "holdfast.storage.relational.figures",
)  # fmt: skip


@pytest.mark.parametrize("asked", [["add", "Likes tea"], ["search", "tea", "--json"]], ids=" ".join)
def test_adding_and_recalling_do_without_what_other_commands_need(tmp_path: Path, asked: list[str]) -> None:
    probe = (
        "import sys; from holdfast.edges.cli import main\n"
        f"sys.argv = ['holdfast', *{asked}, '--user', 'ann', '--home', {str(tmp_path)!r}]\n"
        "try: main()\n"
        f"finally: print([name for name in sys.modules if name.startswith({UNNEEDED!r})], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_help_starts_without_the_engine_and_its_libraries() -> None:
    probe = (
        "import sys; from holdfast.edges.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'apsw', 'tokenizers', 'holdfast.engine'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "[]\n"


def test_the_version_is_shown_in_three_ways() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"holdfast {__version__}\n"
    assert CliRunner().invoke(app, ["version"]).stdout.startswith(f"holdfast {__version__} (Python ")
    assert f'"holdfast": "{__version__}"' in CliRunner().invoke(app, ["version", "--json"]).stdout


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_says_what_the_code_says(name: str) -> None:
    page = REFERENCE / f"{name}.md"
    regenerate = f"make reference (or: python -m bench.pages.reference {name} > docs/reference/{name}.md)"
    assert page.read_text(encoding="utf-8") == PAGES[name](), f"{page.name} is out of date; renew it with: {regenerate}"
