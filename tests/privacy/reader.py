"""Reads a home as a user whom its permissions bind: ``python reader.py HOME``; what came of it, as JSON."""

from __future__ import annotations

import codecs
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from holdfast import Holdfast
from holdfast.core.errors import HoldfastError

NOBODY = 65_534


def attempt(what: Callable[[], Any]) -> Any:
    """What something gives, or the code of the error that it raises."""
    try:
        return what()
    except HoldfastError as problem:
        return {"code": problem.code, "message": str(problem)}


def read(home: str) -> dict[str, Any]:
    """What can be read, and what comes of writing."""
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("ann", "guide", "trip")
        return {
            "found": [item["content"] for item in memory.retrieve("tea")],
            "got": memory.get(memory.retrieve("tea")[0]["memory_id"])["content"],
            "history": [message["content"] for message in memory.short_term.get_conversation_history()],
            "exported": len(holdfast.export_user("ann")["memories"]["long_term"]),
            "added": attempt(lambda: memory.add("likes coffee", "long_term")),
            "erased": attempt(lambda: holdfast.erase_user("ann").pending),
            "swept": attempt(lambda: holdfast.sweep() and None),
        }


def rehearse() -> None:
    """Do all of it once with a home of its own: what Python loads for it is loaded while everything may be read."""
    with tempfile.TemporaryDirectory() as home:
        with Holdfast.open(home=home) as holdfast:
            holdfast.manager("ann", "guide", "trip").add("likes tea", "long_term")
            holdfast.backups.create()
        read(home)
    codecs.lookup("ascii")


if __name__ == "__main__":
    if os.geteuid() == 0:
        rehearse()
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    sys.stdout.write(json.dumps(attempt(lambda: read(sys.argv[1]))))
