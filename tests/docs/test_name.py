"""The product has one name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OLD = "ret" + "ain"  # its working name, which on the package index is another project
_TRACES = re.compile(
    rf"\bimport {_OLD}\b|\bfrom {_OLD}\b|\b{_OLD.title()}\b|{_OLD.upper()}_|\b{_OLD}\.(?:db|toml)\b|[Xx]-{_OLD.title()}"
    rf"|\b{_OLD}\[|\b{_OLD} (?:add|serve|sweep|doctor|mcp|demo|backup|search|schedule|erase|export|policy|hold|migrate)\b"
)


def test_no_trace_of_the_working_name_is_left() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = [name for name in listed.split("\0") if name and name != "LICENSE"]
    assert len(names) > 100
    assert [name for name in names if _OLD in Path(name).parts or f"{_OLD}." in name] == []
    found = []
    for name in names:
        path = ROOT / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if _TRACES.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []
