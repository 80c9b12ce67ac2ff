"""``make dist``: build what is published, and try it as somebody does who has nothing else.

The sdist is built, and the wheel from it. Both hold what is tracked by Git and nothing else. The wheel is installed into an
empty environment, and the README is followed from there, outside of the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from docs.pages import ROOT, Reader, free_port

BUILD = "build==1.6.1"  # not a dependency of development: it is used here alone
FOLDER = ROOT / "dist"
#: What builders add of their own.
MADE = {"PKG-INFO", ".gitignore"}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dist-") as made:
        folder = Path(made)
        build(folder / "tools")
        (sdist,), (wheel,) = FOLDER.glob("*.tar.gz"), FOLDER.glob("*.whl")
        check_files(sdist, wheel)
        python = make_environment(folder / "empty", f"{wheel}[server]", "-c", str(ROOT / "constraints.txt"))
        follow_readme(folder / "reader", python.parent)
    say(f"dist/ has {sdist.name} and {wheel.name}; the README works with them.")


def build(tools: Path) -> None:
    """Make the sdist, and the wheel from it."""
    say("building")
    shutil.rmtree(FOLDER, ignore_errors=True)
    python = make_environment(tools, BUILD)
    run([str(python), "-m", "build", "--outdir", str(FOLDER), str(ROOT)])


def check_files(sdist: Path, wheel: Path) -> None:
    """That all of the package that Git tracks is in both, and nothing that Git does not track."""
    tracked = set(run(["git", "-C", str(ROOT), "ls-files"]).split())
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()} - MADE
    with zipfile.ZipFile(wheel) as archive:
        installed = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    if stray := (source - tracked) | (installed - package):
        sys.exit(f"these files are not tracked by Git and would be published: {', '.join(sorted(stray))}")
    if missing := ({f"src/{name}" for name in package} - source) | (package - installed):
        sys.exit(f"these files of the package would not be published: {', '.join(sorted(missing))}")


def make_environment(folder: Path, *packages: str) -> Path:
    """The interpreter of an environment that has these packages, and what they need."""
    say(f"installing {packages[0]} into an empty environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    return python


def follow_readme(folder: Path, programs: Path) -> None:
    """Do what the README says, with the programs of an environment and those of the system."""
    folder.mkdir()
    script = programs / "script"
    script.write_text(f'#!/bin/sh\nexec {programs}/python "$@"\n')
    script.chmod(0o700)
    path = os.pathsep.join([str(programs), "/usr/local/bin", "/usr/bin", "/bin"])
    reader = Reader(folder, {"8422": free_port()}, {"PATH": path, "PYTHONPATH": ""})
    reader.follow(ROOT / "README.md")
    say(f"followed the README: {len(reader.ran)} commands and scripts ran")


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program for a terminal


if __name__ == "__main__":
    main()
