"""Settings, read once at the edge into a frozen value: from the environment, or from ``holdfast.toml``.

The file is the home's: one in whatever folder a program happens to run in could send memories elsewhere. The
environment wins over it. Every setting is a row of ``SETTINGS``; the reference page is made from it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import platformdirs

from holdfast.core.errors import InvalidSettingsError, quote
from holdfast.core.records import MIB
from holdfast.core.values import DAY, MAX_CONTENT_BYTES

_PASSWORD: Final = re.compile(r"(://[^/:@\s]*):[^@/\s]+@")


class Setting(NamedTuple):
    """One setting: ``HOLDFAST_<NAME>`` in the environment, ``<name>`` in ``holdfast.toml``."""

    name: str
    default: str
    meaning: str


SETTINGS: Final = (
    Setting("home", "the platform's user data folder", "Where Holdfast keeps its files."),
    Setting(
        "url",
        "sqlite:///<home>/holdfast.db",
        "The store: sqlite:///path/to/file.db, or postgresql://user:password@host:5432/database.",
    ),
    Setting(
        "short_term_url",
        "the store",
        "Short-term memory elsewhere: valkey:// or redis://host:6379/0; valkey+cluster://host:6379 is a cluster.",
    ),
    Setting(
        "embedder",
        "static",
        "static, onnx:<folder>, fastembed:<model>, or openai:<model>@<base url>.",
    ),
    Setting(
        "summarizer",
        "extractive",
        "What summarizes episodes, archived memories and, daily, idle conversations: extractive, or "
        "openai:<model>@<base url>.",
    ),
    Setting("index_mib", "512", "Memory for recall indexes, in MiB; the least recently used go first."),
    Setting("max_content_bytes", f"{MAX_CONTENT_BYTES}", "The largest content of one memory."),
    Setting(
        "archive_url", "file://<home>/archive", "Cold storage: file:///folder, s3://, az:// or gs://bucket/prefix."
    ),
    Setting(
        "backup_url", "file://<home>/backups", "Where backups go: as archive_url. Better another disk, or a bucket."
    ),
    Setting(
        "state_url",
        "file://<home>",
        "Keys and the ledger of erasures, outside of the store and its backups: as archive_url. A bucket for replicas.",
    ),
    Setting(
        "master_key",
        "file:<home>/keys/master.key, made when it is first needed",
        "What users' keys are wrapped with: file:<path>, command:<command>, or 32 bytes in base64.",
    ),
    Setting("timezone", "UTC", "The time zone of the schedule, such as Europe/Berlin."),
    Setting("sweep_load", "1.0", "The part of the time that a sweep may be busy, from 0.01 to 1."),
    Setting(
        "clock_tolerance_days",
        "3",
        "How far a clock may be ahead of the latest time that the store has seen before what cannot be undone waits.",
    ),
    Setting("pool_size", "16", "The most connections to PostgreSQL that one process holds."),
    Setting("prepare", "yes", "no prepares no statements on PostgreSQL, for a PgBouncer before 1.21."),
    Setting("distribute", "no", "yes spreads new tables over a Citus cluster."),
    Setting("busy_seconds", "60", "How long a write waits for other processes before it gives up."),
    Setting("request_mib", "32", "The largest request that the service takes, in MiB."),
    Setting("request_seconds", "30", "How long a request may take before its answer begins."),
    Setting(
        "rate_per_second",
        "200",
        "How many requests of one API key (or of one address, without a key) are answered each second; 0: any number.",
    ),
    Setting("requests_at_once", "500", "How many requests one process answers at the same time."),
    Setting(
        "connections",
        "1000",
        "How many connections one process has at the same time; fewer, where it may not have enough files open.",
    ),
    Setting("head_seconds", "10", "How long a connection may take to send the head of a request."),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine is opened with."""

    home: Path
    url: str = field(repr=False)  # it may hold a password
    embedder: str = "static"
    summarizer: str = "extractive"
    index_bytes: int = 512 * MIB
    max_content_bytes: int = MAX_CONTENT_BYTES
    busy_seconds: float = 60.0
    archive_url: str = ""
    timezone: str = "UTC"
    sweep_load: float = 1.0
    clock_tolerance_days: float = 3.0
    short_term_url: str = field(default="", repr=False)
    pool_size: int = 16
    distribute: bool = False
    prepare: bool = True
    state_url: str = ""
    backup_url: str = ""
    master_key: str = field(default="", repr=False)
    request_bytes: int = 32 * MIB
    request_seconds: float = 30.0
    rate_per_second: float = 200.0
    requests_at_once: int = 500
    connections: int = 1_000
    head_seconds: float = 10.0

    def cold_url(self) -> str:
        """Where cold storage is."""
        return self.archive_url or f"file://{self.home / 'archive'}"

    def backups_url(self) -> str:
        """Where backups go."""
        return self.backup_url or f"file://{self.home / 'backups'}"

    def keeping_url(self) -> str:
        """Where keys and the ledger of erasures are."""
        return self.state_url or f"file://{self.home}"

    def clock_tolerance(self) -> int:
        """How far a clock may be ahead of what the store has seen, in microseconds."""
        return int(self.clock_tolerance_days * DAY)

    def master_path(self) -> Path:
        """Where the master key is, if it is not said."""
        return self.home / "keys" / "master.key"


class Given(NamedTuple):
    """A setting as it was given, and where."""

    value: str
    source: str


def given_settings(
    environ: Mapping[str, str], *, url: str | None = None, home: str | Path | None = None
) -> dict[str, Given]:
    """The settings that were given: arguments win over the environment, the environment over ``holdfast.toml``."""
    arguments = {"url": url, "home": None if home is None else str(home)}
    start = arguments["home"] or environ.get("HOLDFAST_HOME") or platformdirs.user_data_dir("holdfast", appauthor=False)
    path, file = _read_file(_path(start, "home"))
    given = {}
    for setting in SETTINGS:
        name = setting.name
        variable = f"HOLDFAST_{name.upper()}"
        sources = ((arguments.get(name), "argument"), (environ.get(variable), variable), (file.get(name), str(path)))
        found = next((Given(str(value), source) for value, source in sources if value not in (None, "")), None)
        if found is not None:
            given[name] = found
    return given


def read_settings(environ: Mapping[str, str], *, url: str | None = None, home: str | Path | None = None) -> Settings:
    """The settings in force."""
    given = {name: found.value for name, found in given_settings(environ, url=url, home=home).items()}
    folder = _path(given.get("home") or platformdirs.user_data_dir("holdfast", appauthor=False), "home")
    return Settings(
        home=folder,
        url=given.get("url") or f"sqlite:///{folder / 'holdfast.db'}",
        embedder=given.get("embedder", "static"),
        summarizer=given.get("summarizer", "extractive"),
        index_bytes=int(_number("index_mib", given, 512, least=1) * MIB),
        max_content_bytes=int(_number("max_content_bytes", given, MAX_CONTENT_BYTES, least=1)),
        busy_seconds=_number("busy_seconds", given, 60, least=0),
        archive_url=given.get("archive_url", ""),
        timezone=given.get("timezone", "UTC"),
        sweep_load=_number("sweep_load", given, 1, least=0.01, most=1),
        clock_tolerance_days=_number("clock_tolerance_days", given, 3, least=1, most=36_500),
        short_term_url=given.get("short_term_url", ""),
        pool_size=int(_number("pool_size", given, 16, least=1, most=1_000)),
        distribute=_yes("distribute", given, "no"),
        prepare=_yes("prepare", given, "yes"),
        state_url=given.get("state_url", ""),
        backup_url=given.get("backup_url", ""),
        master_key=given.get("master_key", ""),
        request_bytes=int(_number("request_mib", given, 32, least=0.001) * MIB),
        request_seconds=_number("request_seconds", given, 30, least=0.001),
        rate_per_second=_number("rate_per_second", given, 200, least=0),
        requests_at_once=int(_number("requests_at_once", given, 500, least=1)),
        connections=int(_number("connections", given, 1_000, least=1)),
        head_seconds=_number("head_seconds", given, 10, least=0.001),
    )


def without_password(text: str) -> str:
    """A setting as it may be shown."""
    return _PASSWORD.sub(r"\1:…@", text)


def shown_setting(name: str, value: str) -> str:
    """What a setting was given as, without what is secret in it."""
    is_key = name == "master_key" and not value.startswith(("file:", "command:"))
    return "…" if is_key else without_password(value)


def sqlite_path(url: str) -> Path:
    """The file that a ``sqlite:///`` URL names."""
    scheme, _, rest = url.partition(":///")
    if scheme != "sqlite" or not rest:
        raise InvalidSettingsError(
            f"the store URL {quote(without_password(url))} is not understood; write it as sqlite:///path/to/holdfast.db"
        )
    if rest.startswith(":memory:"):
        raise InvalidSettingsError(
            "Holdfast keeps memories in a file; for a throw-away store name one in a temporary folder"
        )
    return _path(rest, "url")


def _path(text: str, name: str) -> Path:
    """The place that a setting names."""
    if "\x00" in text:
        raise InvalidSettingsError(f"the {name} {quote(text)} has a NUL character; no file has one")
    try:
        text.encode()
        return Path(text).expanduser().absolute()
    except (UnicodeError, RuntimeError, OSError) as problem:
        raise InvalidSettingsError(f"the {name} {quote(text)} names no place: {problem}") from problem


def _read_file(home: Path) -> tuple[Path, dict[str, Any]]:
    """The settings file of a home, and what it says."""
    path = home / "holdfast.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return path, {}
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidSettingsError(f"cannot read {path}: {problem}") from problem
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidSettingsError(f"{path} is not valid TOML: {problem}") from problem
    known = {setting.name for setting in SETTINGS}
    if unknown := sorted(set(values) - known):
        raise InvalidSettingsError(f"{path} has unknown settings {unknown}; known are: {', '.join(sorted(known))}")
    return path, values


def _yes(name: str, given: Mapping[str, str], default: str) -> bool:
    text = given.get(name, default).lower()
    if text not in {"yes", "true", "1", "no", "false", "0"}:
        raise InvalidSettingsError(f"HOLDFAST_{name.upper()} must be yes or no, not {text!r}")
    return text in {"yes", "true", "1"}


def _number(name: str, given: Mapping[str, str], default: float, *, least: float, most: float = float("inf")) -> float:
    text = given.get(name, "")
    try:
        number = float(text) if text else float(default)
    except ValueError:
        number = float("nan")
    if not least <= number <= most or number == float("inf"):
        bounds = f"of at least {least:g}" if most == float("inf") else f"from {least:g} to {most:g}"
        raise InvalidSettingsError(f"HOLDFAST_{name.upper()} must be a number {bounds}, not {text!r}")
    return number
