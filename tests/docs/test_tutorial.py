"""The tutorial is true: run from top to bottom, it does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from docs.test_readme import ROOT, run

_EXIT = re.compile(r"# .*exit code (\d+)")


def test_the_tutorial_runs_from_the_first_memory_to_the_proof(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    commands = 0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "tutorial"), "PATH": path}
    for language, block in re.findall(r"```(console|python)\n(.*?)```", page, re.DOTALL):
        if language == "python":
            run(block, tmp_path)
            continue
        for line in block.splitlines():
            command = line.removeprefix("$ ")
            wanted = _EXIT.search(command)
            done = subprocess.run(
                ["/bin/sh", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
            )
            assert done.returncode == int(wanted[1] if wanted else 0), f"{command}\n{done.stdout}{done.stderr}"
            commands += 1
    assert commands == 18
