"""The command line: parses, calls the engine once, and shows what it answered."""

from __future__ import annotations

import atexit
import gc
import os
import sys

#: Commands whose work can wait for whoever recalls meanwhile.
_UPKEEP = frozenset({"sweep", "schedule", "backup"})
#: Commands that take less time than what they need takes to load.
_SHORT = frozenset({"add", "context", "correct", "delete", "get", "history", "list", "search", "update"})
#: The command that this process was started for. Only what it needs is loaded; where nobody has said it, everything is.
asked: str | None = None
#: What the process ends with, once that is known.
_status: list[int] = []


def main() -> None:
    """Run the command that the arguments name; what the ``holdfast`` script calls."""
    global asked  # noqa: PLW0603 - a process is started for one command
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    gc.set_threshold(50_000, 20, 20)  # what a command loads stays: to look through it again and again finds nothing
    if asked in _SHORT:
        gc.disable()  # until the store is open
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here is worth the start of threads
        atexit.register(_leave)  # the first to be registered is the last to be called
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
    except SystemExit as ended:
        _status.extend([ended.code or 0] if isinstance(ended.code, int | None) else ())
        raise
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


def _leave() -> None:
    """End now that all is closed and written: to take apart what was loaded takes longer than many a command."""
    if _status:
        sys.stderr.flush()
        os._exit(_status[0])
