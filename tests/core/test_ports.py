"""Ports are small: a service takes the few methods that it needs."""

from __future__ import annotations

import ast
from pathlib import Path

import holdfast

PORTS = Path(holdfast.__file__).parent / "ports"
MOST = 8


def test_no_port_has_many_methods_of_its_own() -> None:
    large = {
        node.name: count
        for path in PORTS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and (count := sum(isinstance(part, ast.FunctionDef) for part in node.body)) > MOST
    }
    assert large == {}
