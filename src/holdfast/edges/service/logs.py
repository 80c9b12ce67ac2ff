"""Logs of the service: one line for each entry, as JSON for programs or as text for people, without secrets.

No entry has a request's body, query string, headers or path (it has the route's template); what an unexpected error
said is left out, since it may quote a memory: its type, and where it was raised, are there. What looks like a secret
is taken out of whatever is left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from holdfast.core.errors import HoldfastError
from holdfast.edges.operations.outputs import encode
from holdfast.settings import mask_password

_SECRETS: Final = re.compile(
    r"holdfast_[0-9A-Za-z]{8,}_[0-9A-Za-z_\-]+|(?:(?<=bearer )|(?<=x-api-key: ))\S+", re.IGNORECASE
)
#: What is shorter is neither a key nor named as one.
_SHORTEST: Final = len("bearer x")
#: How many frames of an unexpected error are logged, from where it was raised outwards.
_FRAMES: Final = 8
_SOURCES: Final = Path(__file__).parents[1]
#: What callers can bring about as often as they like is logged once in so many seconds, with how often it was.
_REPEAT_SECONDS: Final = 60.0
_OFTEN: Final = "holdfast.connections"
_MOST_KEPT: Final = 256
#: How long the line of a request may wait for others.
LATE_SECONDS: Final = 0.05


class LogFormat(StrEnum):
    """How entries are written."""

    JSON = "json"
    TEXT = "text"


def install_logs(form: LogFormat, stream: IO[str] | None = None) -> None:
    """Send the process's log to ``stream`` (stderr): Holdfast's from INFO on, that of libraries from WARNING on."""
    handler = _Handler(stream or sys.stderr, _Json() if form is LogFormat.JSON else _Text())
    handler.addFilter(lambda entry: not entry.name.startswith("holdfast.latency"))  # that is in the metrics
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("holdfast").setLevel(logging.INFO)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # no entry says them
    logging.captureWarnings(capture=True)


class RepeatFilter(logging.Filter):
    """Lets the same entry of a library, or about connections, pass once a minute; the next says how many it left out.

    Nobody is to fill the disk of a log by opening connections, or by sending what is no HTTP.
    """

    def __init__(self, seconds: float = _REPEAT_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._now = now
        self._seen: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("holdfast.") and record.name != _OFTEN:
            return True
        entry, now = (record.name, str(record.msg)), self._now()
        last, left_out = self._seen.get(entry, (-self._seconds, 0))
        if now - last < self._seconds:
            self._seen[entry] = (last, left_out + 1)
            return False
        self._seen[entry] = (now, 0)
        self._seen.move_to_end(entry)
        if len(self._seen) > _MOST_KEPT:
            self._seen.popitem(last=False)
        if left_out:
            fields = dict(getattr(record, "fields", {}))
            record.__dict__["fields"] = {**fields, "left_out": left_out}
        return True


def redact(text: str) -> str:
    """Text in which nothing looks like a secret: API keys, bearer tokens, passwords of URLs."""
    if len(text) < _SHORTEST and "@" not in text:
        return text
    text = _SECRETS.sub("…", text)
    return mask_password(text) if "@" in text else text


def _redact_within(value: Any) -> Any:
    """The same for what is within a value; each text by itself, so that what is written stays JSON."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(name)): _redact_within(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_within(inner) for inner in value]
    return value if isinstance(value, int | float | None) else redact(str(value))


def describe_error(problem: BaseException) -> dict[str, Any]:
    """An error for the log: Holdfast's own with its message, any other by its type and place."""
    found: dict[str, Any] = {"error": type(problem).__name__, "at": _frames(problem.__traceback__)}
    if isinstance(problem, HoldfastError):
        found |= {"code": problem.code, "said": str(problem)}
    return found


def _frames(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-_FRAMES:][::-1]
    return [f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames]


def _short(file: str) -> str:
    path = Path(file)
    inside = path.is_relative_to(_SOURCES)
    return str(path.relative_to(_SOURCES.parent)) if inside else "/".join(path.parts[-2:])


def _fields(entry: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(entry, "fields", {}))
    if entry.exc_info and entry.exc_info[1] is not None:
        fields |= describe_error(entry.exc_info[1])
    return fields


def _when(created: float) -> str:
    second, rest = divmod(created, 1)
    return f"{_name_second(int(second))}.{int(rest * 1_000):03}Z"


@lru_cache(4)
def _name_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:-6]


class _Lines(logging.Formatter):
    """Makes a line of an entry."""

    def write(self, when: str, level: str, logger: str, message: str, fields: dict[str, Any]) -> str:
        """The line of an entry without secrets."""
        raise NotImplementedError


class _Json(_Lines):
    """One JSON object on one line."""

    def write(self, when: str, level: str, logger: str, message: str, fields: dict[str, Any]) -> str:
        return encode({"time": when, "level": level, "logger": logger, "message": message, **fields}).decode()

    def format(self, record: logging.LogRecord) -> str:
        fields = {redact(str(name)): _redact_within(value) for name, value in _fields(record).items()}
        said = (record.levelname.lower(), record.name, redact(record.getMessage()))
        return self.write(_when(record.created), *said, fields)


class _Text(_Lines):
    """One line: when, how bad, what, and the rest as ``name=value``."""

    def write(self, when: str, level: str, logger: str, message: str, fields: dict[str, Any]) -> str:
        del logger
        rest = " ".join(f"{name}={_quote_value(value)}" for name, value in fields.items() if value is not None)
        line = f"{when} {level:7} {message}  {rest}".rstrip()
        return line if line.isprintable() else "".join(char if char.isprintable() else " " for char in line)

    def format(self, record: logging.LogRecord) -> str:
        said = (record.levelname.lower(), record.name, record.getMessage())
        return redact(self.write(_when(record.created), *said, _fields(record)))


class _Handler(logging.StreamHandler[IO[str]]):
    """Where the log goes, line by line."""

    def __init__(self, stream: IO[str], lines: _Lines) -> None:
        super().__init__(stream)
        self.setFormatter(lines)
        self.lines = lines
        self._waiting: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def put(self, line: str) -> None:
        """Write a line soon, together with others: to write each by itself takes longer than to make it."""
        loop = asyncio.get_running_loop()
        with self.lock or nullcontext():
            self._waiting.append(line)
            if len(self._waiting) > 1 and self._loop is loop:
                return
            self._loop = loop
        loop.call_later(LATE_SECONDS, self.flush)

    def emit(self, record: logging.LogRecord) -> None:
        """Write an entry at once, after what came before it."""
        self.flush()
        super().emit(record)

    def flush(self) -> None:
        """Write all that waits. Where nobody can read it, nothing is to fail."""
        with suppress(OSError, ValueError):
            self._write_waiting()
            super().flush()

    def _write_waiting(self) -> None:
        with self.lock or nullcontext():
            lines, self._waiting = self._waiting, []
            if lines:
                self.stream.write("\n".join(lines) + "\n")


def log_request(logger: logging.Logger, level: int, fields: dict[str, Any]) -> None:
    """Log a request, in the loop that answered it; there must be no secret in what is said of it.

    Nearly all of the log is such lines: where nobody listens but the handler of ``install_logs``, a line is written
    without the steps between a logger and its handlers.
    """
    match logging.root.handlers:
        case [_Handler() as handler]:
            name = logging.getLevelName(level).lower()
            handler.put(handler.lines.write(_when(time.time()), name, logger.name, "request", fields))
        case _:
            logger.log(level, "request", extra={"fields": fields})


def _quote_value(value: Any) -> str:
    text = " < ".join(map(str, value)) if isinstance(value, list) else str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text
