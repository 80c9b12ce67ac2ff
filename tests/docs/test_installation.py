"""What we advise to install can be installed: the extras exist, and the command is right for where Holdfast came from."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from holdfast.installation import install_command, missing_extra, upgrade_command

ROOT = Path(__file__).parents[2]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
#: An extra as pages, messages and build files name it: ``holdfast[a,b]``, ``'.[a]'``, ``missing_extra("…", "a")``.
NAMED = re.compile(
    r"""(?:\bholdfast|'\.)\[([a-z][\w,-]*)\]|missing_extra\([^\n]*?, "(\w+)"\)|install_command\("(\w+)"\)"""
)


def install_from(monkeypatch: pytest.MonkeyPatch, noted: dict[str, Any] | None) -> None:
    """Let it look as if pip had noted this about the installation."""

    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if noted is None else json.dumps(noted)

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())


def test_every_extra_that_is_named_anywhere_exists() -> None:
    paths = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Dockerfile", "Makefile", "compose.yaml")]
    paths += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named: dict[str, set[str]] = {}
    for path in paths:
        for found in NAMED.findall(path.read_text(encoding="utf-8")):
            for extra in "".join(found).split(","):
                named.setdefault(extra, set()).add(path.name)
    assert {"postgres", "valkey", "objects", "server", "mcp", "metrics", "schema", "onnx"} <= named.keys()
    assert {extra: files for extra, files in named.items() if extra not in EXTRAS} == {}


def test_no_message_advises_an_installation_by_itself() -> None:
    """All ask ``holdfast.installation``, which knows where this one came from."""
    for path in (ROOT / "src").rglob("*.py"):
        if path.name not in ("installation.py", "reference.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"pip install [^\n]*holdfast", re.sub(r'""".*?"""', "", text, flags=re.DOTALL)), path


def test_an_installation_from_the_index_gets_its_extras_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install_from(monkeypatch, None)
    assert install_command("postgres") == "pip install 'holdfast[postgres]'"
    assert upgrade_command() == "pip install --upgrade holdfast"


def test_a_checkout_gets_its_extras_from_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    install_from(monkeypatch, {"url": "file:///home/me/my%20holdfast", "dir_info": {"editable": True}})
    assert install_command("postgres") == "pip install -e '/home/me/my holdfast[postgres]'"
    assert upgrade_command() == "git -C '/home/me/my holdfast' pull"


@pytest.mark.parametrize(
    ("noted", "url"),
    [
        ({"url": "file:///home/me/holdfast", "dir_info": {}}, "file:///home/me/holdfast"),
        ({"url": "file:///tmp/holdfast-0.1.0.whl", "archive_info": {}}, "file:///tmp/holdfast-0.1.0.whl"),
        ({"url": "https://host/me/holdfast", "vcs_info": {"vcs": "git"}}, "git+https://host/me/holdfast"),
    ],
)
def test_what_was_installed_from_a_url_gets_its_extras_there(
    monkeypatch: pytest.MonkeyPatch, noted: dict[str, Any], url: str
) -> None:
    install_from(monkeypatch, noted)
    assert install_command("postgres") == f"pip install 'holdfast[postgres] @ {url}'"
    assert upgrade_command() == f"pip install --upgrade 'holdfast @ {url}'"


def test_source_that_nobody_installed_names_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", fail)
    assert str(missing_extra("PostgreSQL", "postgres")) == (
        "PostgreSQL needs the extra 'postgres'; install it with: pip install 'holdfast[postgres]'"
    )
