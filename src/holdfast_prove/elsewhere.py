"""An adapter in another process, which is told what to do by lines of JSON.

``python -m holdfast_prove.elsewhere module:Class [FOLDER]`` opens the store in the folder. Without one it opens none,
as for those who only verify a proof.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from holdfast_prove.adapter import load


class Elsewhere:
    """The adapter of a folder in a process of its own. Call its methods as if they were here."""

    def __init__(self, name: str, folder: Path | None = None, *, inside: Path, clean: bool = False) -> None:
        command = [sys.executable, "-m", "holdfast_prove.elsewhere", name, *([str(folder)] if folder else [])]
        environment: Mapping[str, str] = {} if clean else os.environ
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(  # noqa: S603 - Python itself, with a module of ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=inside,
            env={**environment, "PYTHONPATH": paths, "HOME": str(inside), "PATH": os.environ.get("PATH", "")},
        )
        self.call()  # when it answers, it is open

    def call(self, method: str = "", *arguments: str | bytes) -> Any:
        """What a method gives there."""
        stream, answers = self._process.stdin, self._process.stdout
        if stream is None or answers is None:
            raise RuntimeError("the other process has no pipes")
        stream.write(json.dumps([method, [_to_text(one) for one in arguments]]).encode() + b"\n")
        stream.flush()
        line = answers.readline()
        if not line:
            self._process.communicate()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()[-400:]
            raise RuntimeError(f"the other process ended: {said}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"in the other process: {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()


def _to_text(argument: str | bytes) -> str | dict[str, str]:
    return argument if isinstance(argument, str) else {"bytes": base64.b64encode(argument).decode()}


def _from_text(argument: Any) -> str | bytes:
    return argument if isinstance(argument, str) else base64.b64decode(argument["bytes"])


def serve(target: Any, asked: IO[bytes], answers: IO[bytes]) -> None:
    """Do as told, line by line, until nobody says anything more."""
    for line in asked:
        method, arguments = json.loads(line)
        try:
            value: Any = getattr(target, method)(*map(_from_text, arguments)) if method else None
            answer = {"value": list(value) if method == "search" else value}
        except Exception as problem:  # noqa: BLE001 - whatever it is, the other side is told
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Serve an adapter on standard input and output. What the system prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    kind = load(sys.argv[1])
    target = kind(Path(sys.argv[2])) if len(sys.argv) > 2 else kind
    serve(target, sys.stdin.buffer, answers)
    if len(sys.argv) > 2 and hasattr(target, "close"):
        target.close()


if __name__ == "__main__":
    main()
