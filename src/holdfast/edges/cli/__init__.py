"""The command line: parses, calls the engine once, and shows what it answered."""

from __future__ import annotations

import gc
import os
import sys

#: Commands whose work can wait for whoever recalls meanwhile.
_UPKEEP = frozenset({"sweep", "schedule", "backup"})
#: Commands that take less time than what they need takes to load.
_SHORT = frozenset({"add", "context", "correct", "delete", "get", "history", "list", "search", "update"})
#: The command that this process was started for. Only what it needs is loaded; where nobody has said it, everything is.
asked: str | None = None


def main() -> None:
    """Run the command that the arguments name; what the ``holdfast`` script calls."""
    global asked  # noqa: PLW0603 - a process is started for one command
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    gc.set_threshold(50_000, 20, 20)  # what a command loads stays: to look through it again and again finds nothing
    if asked in _SHORT:
        gc.disable()  # until the store is open
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    if sys.flags.optimize > 1:
        sys.exit("holdfast takes its options from docstrings, which Python left out: unset PYTHONOPTIMIZE, or use -O")
    try:
        if sys.argv[1:2] and sys.argv[1] in _UPKEEP:
            from holdfast.lifecycle.schedule.leadership import lower_priority  # noqa: PLC0415 - no other command needs it

            lower_priority()
        from holdfast.edges.cli.app import app  # noqa: PLC0415 - an interrupt while it loads ends quietly too

        app(prog_name="holdfast")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        _flush()


def _flush() -> None:
    """Write what is left; whoever has closed the pipe (``| head``) has seen enough."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
