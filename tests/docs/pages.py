"""Pages of the documentation as programs: their blocks, read and run from top to bottom.

- ``console``: a line after ``$`` is a command; lines below it are what it prints, with ``…`` for what differs.
  ``# exit code 5`` at its end says how it ends. A service (``holdfast serve``) goes on until the page ends.
- ``python``: a script. What it prints is the ``text`` block right below it.
- ``json``, ``toml``, ``yaml``, ``ini``, ``sql``: can be read; tests of their own use some of them.
- A block that begins with ``# needs …`` is not run, because what it needs is not on every machine: Docker, a proxy, an
  account. Of such a block, and of commands within sentences, it is checked that the commands and their options exist.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
import typer.main

from holdfast.edges.cli.app import app
from launcher import launcher

ROOT = Path(__file__).parents[2]
SECONDS = 120
#: Programs that a page uses beside ours. Where one is not installed, the rest of the page is not tried.
GUESTS = ("curl", "jq", "openssl", "base64", "grep")
#: What a test does not run: it installs, or is a target of the Makefile.
LEFT_OUT = ("pip", "make")
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```(?:(?<=```)\n\n *```text\n(.*?)^ *```)?", re.DOTALL | re.MULTILINE)
_EXIT = re.compile(r"# .*?exit code (\d+)")
_STAYS = re.compile(r"holdfast (serve(?!.*--(check|help|json\b))|schedule run$)")


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    text: str
    output: str = ""
    """What a script is said to print."""

    @property
    def is_run(self) -> bool:
        return not self.text.startswith("# needs ")


class Command(NamedTuple):
    """A command, and what it is said to print: nothing, if nothing is said."""

    line: str
    output: str


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page, in their order, without their indentation."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [
        Block(language, re.sub(rf"(?m)^{indent}", "", text), re.sub(rf"(?m)^{indent}", "", output))
        for indent, language, text, output in found
    ]  # an indented block is part of a list


def read_commands(block: Block) -> Iterator[Command]:
    """The commands of a console, with what each prints."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    for part in parts[1:]:
        line, *rest = re.split(r"(?<!\\)\n", part, maxsplit=1)
        yield Command(line, "".join(rest).strip())


def check_command(words: list[str]) -> None:
    """That ``holdfast`` has the command, and the command its options."""
    found: Any = typer.main.get_command(app)
    rest = list(words)
    options = {"--help"}
    while True:
        options |= {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        while rest and rest[0] in options:
            rest.pop(0)
        if not rest or not hasattr(found, "commands"):
            break
        name = rest.pop(0)
        assert name in found.commands, f"there is no {name!r} in: holdfast {' '.join(words)}"
        found = found.commands[name]
    given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert given <= options, f"holdfast {' '.join(words)} has no {', '.join(given - options)}"


def check_line(line: str) -> None:
    """That each command of ours in a line of a shell exists."""
    words = shlex.split(line.replace("\\\n", " "), comments=True)
    for at, word in enumerate(words):
        begins = at == 0 or words[at - 1] in {"|", "&&", "!", ";", "--", "--rm"} or "=" in words[at - 1]
        if word == "holdfast" and begins and words[max(0, at - 2) : at] != ["port"]:
            ours = words[at + 1 :]
            ends = [ours.index(end) for end in ("|", "&&", ";", ">", "<", "&") if end in ours]
            check_command(ours[: min(ends)] if ends else ours)


@dataclass
class Reader:
    """Somebody who goes through a page and does all that it says, in a folder and a home of their own."""

    folder: Path
    replaced: dict[str, str] = field(default_factory=dict)
    """What stands for another thing here, such as a server."""
    environment: dict[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    _services: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.environment = {
            **kept,
            "PATH": self.environment.get("PATH") or launcher().path(),
            "HOLDFAST_HOME": str(self.folder / "home"),
            "COLUMNS": "160",
            **self.environment,
        }

    def follow(self, page: Path) -> None:
        """Do all that a page says."""
        with self._services:
            for block in read_blocks(page):
                if block.language == "console" and not block.is_run:
                    for command in read_commands(block):
                        check_line(command.line)
                elif block.language == "console":
                    for command in read_commands(block):
                        self._do(command)
                elif block.language == "python" and block.is_run:
                    script = f"import warnings\nwarnings.simplefilter('error')\n{block.text}"
                    printed = self._finish(["script", "-c", self._fit(script)])
                    assert block.output or not printed, f"the page does not show what this prints:\n{printed}"
                    check_output(block.text, self._fit(block.output), printed)
                    self.ran.append(block.text)

    def _do(self, command: Command) -> None:
        check_line(command.line)
        words = [word for word in shlex.split(command.line.replace("\\\n", " "), comments=True) if "=" not in word]
        if words[:1] and words[0] in LEFT_OUT:
            return
        if missing := [word for word in words if word in GUESTS and shutil.which(word) is None]:
            pytest.skip(f"this machine has no {missing[0]}")
        line = self._fit(command.line)
        if _STAYS.match(command.line):
            self._serve(line, self._fit(command.output))
        else:
            wanted = _EXIT.search(command.line)
            kept = self.folder / ".environment"
            script = f'set -a\n{line}\nended=$?\nenv -0 > "{kept}"\nexit $ended'
            printed = self._finish(["/bin/sh", "-c", script], code=int(wanted[1]) if wanted else 0)
            if kept.exists():
                pairs = (one.partition("=") for one in kept.read_text().split("\0") if one)
                self.environment = {name: value for name, _, value in pairs}
            check_output(command.line, self._fit(command.output), printed)
        self.ran.append(command.line)

    def _finish(self, command: list[str], code: int = 0) -> str:
        """What a command prints that ends, in the way that is expected."""
        program = shutil.which(command[0], path=self.environment["PATH"])
        assert program is not None, command
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, f"{command[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def _serve(self, line: str, output: str) -> None:
        """Start what goes on until the page ends; the next one takes its place."""
        self._services.close()
        if " serve" in line and "--port" not in line:
            line = line.replace(" serve", f" serve --port {self.replaced['8422']}", 1)
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._services.callback(_end, process)
        assert process.stdout is not None
        printed = ""
        while output and output.splitlines()[-1] not in printed:
            printed += _read_line(process.stdout, line)
        check_output(line, output, printed)
        assert process.poll() is None, f"{line} ended"

    def _fit(self, text: str) -> str:
        for there, here in self.replaced.items():
            text = text.replace(there, here)
        return text


def free_port() -> str:
    """A port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def check_output(line: str, wanted: str, printed: str) -> None:
    """That a command printed what the page says, whatever its white space and what stands at ``…``."""
    if not wanted:
        return
    pattern = r"\s*".join(re.escape(word) for word in wanted.split()).replace("…", ".*?")
    assert re.search(pattern, printed, re.DOTALL), f"{line} printed\n{printed}\nand not\n{wanted}"


def _read_line(stream: IO[str], what: str) -> str:
    watch = threading.Timer(SECONDS, stream.close)
    watch.start()
    line = stream.readline()
    watch.cancel()
    assert line, f"{what} ended, or said nothing for {SECONDS} s"
    return line


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=SECONDS)
