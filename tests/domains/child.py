"""Processes that configure policies, in a folder that the tests look at: one that is killed, others that go on.

python child.py count HOME FIELD TIMES     sets a field to 1, 2, 3, …; a line on stdout for each that was done
python child.py together HOME TIMES FIELD…  the same for several fields at once, in a process each
python child.py die HOME                   dies again and again, each time one step later, until it lives to the end
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast.core.domains import normalize
from holdfast.engine import Holdfast
from holdfast.lifecycle.domains import DomainPolicies, DomainStates, change_policy
from holdfast.storage.objects import open_objects

#: What the disk is asked to do; the interpreter tells of each before it is done, but for syncs.
STEPS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock"})


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def count(home: Path, field: str, times: int) -> None:
    """Set one field of one domain to rising values, and look each time whether it has stayed."""
    domain, name = field.split(".")
    with Holdfast.open(home=home) as holdfast:
        say("ready")
        sys.stdin.readline()
        for number in range(1, times + 1):
            value: Any = [number] if name == "keep_context_ids" else [f"s{number}"] if "session" in name else number
            holdfast.domains.configure(domain, {name: value})
            policy: Any = holdfast.domains.get(domain)
            assert policy[name] == value, "nobody else changes this field"
            say(f"{number}")


def together(home: Path, times: int, fields: list[str]) -> None:
    """A process for each field, all of them begun before the first of them configures; how each of them ended."""
    children = []
    for field in fields:
        ours, theirs = os.pipe()
        ready, tells = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(ours, 0)
            os.dup2(tells, 1)
            os.close(theirs)
            status = 1
            try:
                count(home, field, times)
                status = 0
            finally:
                os._exit(status)
        os.close(tells)
        os.close(ours)
        children.append((child, theirs, os.fdopen(ready)))
    for _, _, said in children:
        assert said.readline() == "ready\n"
    for _, go, _ in children:
        os.write(go, b"go\n")
    for child, _, said in children:
        done = said.read().split()
        say(json.dumps([os.waitpid(child, 0)[1], done]))


def die(home: Path) -> None:
    """Change both fields of a pair again and again, killed before each step in turn; what is there afterwards."""
    step = 0
    while True:
        child = os.fork()
        if child == 0:
            _change_and_die(home, step)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        policy = _states(home).read().of["rag"]
        said = {"step": step, "killed": os.WIFSIGNALED(status), "pair": [policy.older_than_days, policy.limit]}
        say(json.dumps(said))
        if not os.WIFSIGNALED(status):
            return
        step += 1


def _states(home: Path) -> DomainStates:
    return DomainStates(open_objects(f"file://{home}"), "default")


def _change_and_die(home: Path, step: int) -> None:
    left = step
    sync = os.fsync

    def look(event: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in STEPS:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    def guarded(fd: Any) -> None:
        look("open", ())
        sync(fd)

    def edit(known: DomainPolicies) -> DomainPolicies:
        number = known.of["rag"].limit + 1
        return change_policy(known, "rag", normalize({"older_than_days": number, "limit": number}, known.of["rag"]), 0)

    os.fsync = guarded
    sys.addaudithook(look)
    _states(home).change(edit)


if __name__ == "__main__":
    verb, folder, *rest = sys.argv[1:]
    if verb == "count":
        count(Path(folder), rest[0], int(rest[1]))
    elif verb == "together":
        together(Path(folder), int(rest[0]), rest[1:])
    else:
        die(Path(folder))
