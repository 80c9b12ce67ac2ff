"""The README is true: its code runs, and needs nothing but the package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)

NO_NETWORK = """
import socket

def refuse(*arguments, **options):
    raise AssertionError(f"a connection was attempted: {arguments}")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""


def run(code: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=home,
        env={"HOLDFAST_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_code_on_the_page_runs(tmp_path: Path) -> None:
    assert len(BLOCKS) >= 4
    printed = [run(block, tmp_path) for block in BLOCKS]
    assert "quota_exceeded" in printed[2]
    assert "add_with_prune" in printed[2]
    assert "night trains" in printed[3]


def test_memory_works_without_any_network(tmp_path: Path) -> None:
    run(NO_NETWORK + BLOCKS[0] + BLOCKS[1], tmp_path)


def test_importing_loads_neither_the_model_nor_the_engine(tmp_path: Path) -> None:
    run("import sys, holdfast\nassert not {'numpy', 'apsw', 'tokenizers', 'typer'} & set(sys.modules)", tmp_path)
    run(
        "import sys\nfrom holdfast import MemoryManager\nMemoryManager('u', 'a')\nassert 'tokenizers' not in sys.modules",
        tmp_path,
    )
