"""The browser of the tests: one that is here, or Debian's ``chromium``, which ``python tests/chromium.py`` installs.

It uses the standard library alone, so that it can run before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

SETTING = "HOLDFAST_BROWSER"
#: What the setting says where somebody wants to do without these tests.
NONE = "none"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MACS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
ADVICE = (
    f"no browser was found, so that the console cannot be tried: install chromium (Debian: apt-get install chromium), "
    f"or name a Chromium or Chrome in {SETTING}. {SETTING}={NONE} leaves these tests out"
)


def find_browser() -> str | None:
    """The path of a browser, or ``none`` where that was asked for; ``None`` if there is none."""
    named = os.environ.get(SETTING)
    if named == NONE:
        return NONE
    return next(filter(None, map(shutil.which, [named] if named else [*_NAMES, _MACS])), None)


def install_browser() -> None:
    """Install Debian's chromium, where that is a Debian and this its root. What goes wrong is printed by apt-get."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}

    def run(*arguments: str) -> bool:
        command = ["apt-get", "-q", "-y", *arguments]
        return subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=False).returncode == 0

    install = ("install", "--no-install-recommends", "chromium")
    if not run(*install):  # the lists of what there is may be old, or missing
        run("update")
        run(*install)


if __name__ == "__main__":
    if find_browser() is None:
        install_browser()
    found = find_browser()
    print(f"The browser of the tests: {found}" if found else f"Note: {ADVICE}")  # noqa: T201
    sys.exit(0)  # the tests themselves fail without one; what does not need it, runs
