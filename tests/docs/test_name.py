"""The product has one name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OLD = "ret" + "ain"  # its working name, which on the package index is another project
_TRACES = re.compile(
    rf"\bimport {_OLD}\b|\bfrom {_OLD}\b|\b{_OLD.title()}\b|{_OLD.upper()}_|\b{_OLD}\.(?:db|toml)\b|[Xx]-{_OLD.title()}"
    rf"|\b{_OLD}\[|\b{_OLD} (?:add|serve|sweep|doctor|mcp|demo|backup|search|schedule|erase|export|policy|hold|migrate)\b"
)


def test_no_trace_of_the_working_name_is_left() -> None:
    folders = [ROOT / name for name in ("src", "tests", "bench", "docs", ".ci")]
    paths = [path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts]
    files = [path for path in [*ROOT.iterdir(), *paths] if path.is_file() and path.name not in ("LICENSE", ".git")]
    assert len(files) > 100
    assert [path for path in files if _OLD in path.relative_to(ROOT).as_posix()] == []
    found = []
    for path in files:
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if _TRACES.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
