"""Settings, read once at the edge into a frozen value: from the environment, or from ``holdfast.toml``.

The file is the home's: one in whatever folder a program happens to run in could send memories elsewhere. The
environment wins over it. Every setting is a field of ``Settings``; the reference page
is made from those.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.core.errors import InvalidSettingsError, quote
from holdfast.core.records import MIB
from holdfast.core.values import DAY, MAX_CONTENT_BYTES

#: So many processes may serve one address.
MAX_WORKERS: Final = 64
_PASSWORD: Final = re.compile(r"(://[^/:@\s]*):[^@/\s]+@")
_QUERY_PASSWORD: Final = re.compile(r"(?<=[?&])password=[^&]*&?")


Reader = Callable[[str], object]


class Setting(NamedTuple):
    """One setting: ``HOLDFAST_<NAME>`` in the environment, ``<name>`` in ``holdfast.toml``."""

    name: str
    default: str
    meaning: str


def _setting(
    meaning: str, value: object = "", default: str = "", *, name: str = "", read: Reader = str, secret: bool = False
) -> Any:
    """A field of ``Settings``: what it is for, its default value (and that in words), how its text is read, and its
    name where the field has another.
    """
    return field(default=value, repr=not secret, metadata=_about(meaning, default or str(value), name, read))


def _about(meaning: str, default: str, name: str = "", read: Reader = str) -> dict[str, Any]:
    return {"name": name, "default": default, "meaning": meaning, "read": read}


def _number(meaning: str, value: float, least: float, most: float = math.inf, *, unit: int = 1, name: str = "") -> Any:
    """A number within bounds, whole if its default is; ``unit`` is what it is multiplied with."""
    bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most or number == math.inf:
            raise ValueError(f"must be a number {bounds}, not {text!r}")
        return type(value)(number * unit)

    return _setting(meaning, type(value)(value * unit), f"{value}".removesuffix(".0"), name=name, read=read)


def _switch(meaning: str, *, on: bool) -> Any:
    """Something that is on or off."""

    def read(text: str) -> bool:
        if text.lower() not in {"yes", "true", "1", "no", "false", "0"}:
            raise ValueError(f"must be yes or no, not {text!r}")
        return text.lower() in {"yes", "true", "1"}

    return _setting(meaning, on, "yes" if on else "no", read=read)


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine is opened with."""

    home: Path = field(metadata=_about("Where Holdfast keeps its files.", "the platform's user data folder"))
    url: str = field(  # it may hold a password
        repr=False,
        metadata=_about(
            "The store: sqlite:///path/to/file.db, or postgresql://user:password@host:5432/database.",
            "sqlite:///<home>/holdfast.db",
        ),
    )
    short_term_url: str = _setting(
        "Short-term memory elsewhere: valkey:// or redis://host:6379/0; valkey+cluster://host:6379 is a cluster.",
        default="the store",
        secret=True,
    )
    embedder: str = _setting(
        "static, minilm, onnx:<folder>, fastembed:<model>, or openai:<model>@<base url>.", "static"
    )
    summarizer: str = _setting(
        "What summarizes episodes, archived memories and, daily, idle conversations: extractive, or "
        "openai:<model>@<base url>.",
        "extractive",
    )
    index_bytes: int = _number(
        "Memory for recall indexes, in MiB; the least recently used go first.", 512, 1, unit=MIB, name="index_mib"
    )
    max_content_bytes: int = _number("The largest content of one memory.", MAX_CONTENT_BYTES, 1)
    dedupe: bool = _switch(
        "yes: adding a text that is there already gives the memory that is there, unless the call says otherwise. MCP "
        "does so in any case.",
        on=False,
    )
    refuse_kept_out: bool = _switch(
        "yes: adding a text that is kept out is an error (kept_out); no: it is the answer of the operation.", on=False
    )
    archive_url: str = _setting(
        "Cold storage: file:///folder, s3://, az:// or gs://bucket/prefix.", default="file://<home>/archive"
    )
    backup_url: str = _setting(
        "Where backups go: as archive_url. Better another disk, or a bucket.", default="file://<home>/backups"
    )
    state_url: str = _setting(
        "Keys and the ledger of erasures, outside of the store and its backups: as archive_url. A bucket for replicas.",
        default="file://<home>",
    )
    master_key: str = _setting(
        "What users' keys are wrapped with: file:<path>, command:<command>, or 32 bytes in base64.",
        default="file:<home>/keys/master.key, made when it is first needed",
        secret=True,
    )
    timezone: str = _setting("The time zone of the schedule, such as Europe/Berlin.", "UTC")
    sweep_load: float = _number("The part of the time that a sweep may be busy, from 0.01 to 1.", 1.0, 0.01, 1)
    clock_tolerance_days: float = _number(
        "How far a clock may be ahead of what the store has seen before what cannot be undone waits.", 3.0, 1, 36_500
    )
    erasure_hours: float = _number("Within how many hours an erasure is to be done and certified.", 24.0, 0.01, 36_500)
    otel: bool = _switch("yes tells OpenTelemetry of operations, requests and metrics.", on=False)
    otel_content: bool = _switch(
        "yes lets traces have queries, contents, and the ids of users and sessions. They are personal data.", on=False
    )
    pool_size: int = _number("The most connections to PostgreSQL that one process holds.", 16, 1, 1_000)
    prepare: bool = _switch("no prepares no statements on PostgreSQL, for a PgBouncer before 1.21.", on=True)
    distribute: bool = _switch("yes spreads new tables over a Citus cluster.", on=False)
    busy_seconds: float = _number("How long a write waits for other processes before it gives up.", 60.0, 0)
    request_bytes: int = _number(
        "The largest request that the service takes, in MiB.", 32, 0.001, unit=MIB, name="request_mib"
    )
    request_seconds: float = _number("How long a request may take before its answer begins.", 30.0, 0.001)
    rate_per_second: float = _number(
        "How many requests of one API key (or address, without a key) are answered each second; 0: any.", 200.0, 0
    )
    requests_at_once: int = _number(
        "How many requests are at work or wait at the same time, in all workers of a service.", 2_000, 1
    )
    connections: int = _number(
        "The most connections that one process has; fewer, where it may not open so many files.", 1_000, 1
    )
    head_seconds: float = _number(
        "How long a connection may take to send the head of a request, and a small body with it.", 10.0, 0.001
    )

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


#: Every setting, by its name.
SETTINGS: Final = tuple(
    Setting(one.metadata["name"] or one.name, one.metadata["default"], one.metadata["meaning"])
    for one in fields(Settings)
)


class Given(NamedTuple):
    """A setting as it was given, and where."""

    value: str
    source: str


def find_settings(
    environ: Mapping[str, str], *, url: str | None = None, home: str | Path | None = None
) -> dict[str, Given]:
    """The settings that were given: arguments win over the environment, the environment over ``holdfast.toml``."""
    arguments = {"url": url, "home": None if home is None else str(home)}
    start = arguments["home"] or environ.get("HOLDFAST_HOME") or default_home()
    path, file = _read_file(_path(start, "home"))
    given = {}
    for setting in SETTINGS:
        name = setting.name
        sources = (
            Given(str(arguments.get(name) or ""), "argument"),
            _read_variable(environ, f"HOLDFAST_{name.upper()}"),
            Given(str(file.get(name, "")), str(path)),
        )
        found = next((one for one in sources if one.value != ""), None)
        if found is not None:
            given[name] = found
    return given


def _read_variable(environ: Mapping[str, str], variable: str) -> Given:
    """What a variable of the environment says, or the file that ``<variable>_FILE`` names: so secrets are mounted."""
    value, file = environ.get(variable, ""), environ.get(f"{variable}_FILE", "")
    if not file:
        return Given(value, variable)
    if value:
        raise InvalidSettingsError(f"{variable} and {variable}_FILE are both set; leave one of them out")
    try:
        text = _path(file, f"{variable}_FILE").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidSettingsError(f"cannot read the file {quote(file)} of {variable}_FILE: {problem}") from problem
    if not text:
        raise InvalidSettingsError(f"the file {quote(file)} of {variable}_FILE is empty; write the setting into it")
    return Given(text, f"{variable}_FILE ({file})")


def default_home() -> str:
    """Where files are kept by default."""
    from platformdirs import user_data_dir  # noqa: PLC0415 - few leave it there

    return user_data_dir("holdfast", appauthor=False)


def read_settings(environ: Mapping[str, str], *, url: str | None = None, home: str | Path | None = None) -> Settings:
    """The settings in force."""
    given = {name: found.value for name, found in find_settings(environ, url=url, home=home).items()}
    folder = _path(given.get("home") or default_home(), "home")
    values: dict[str, Any] = {}
    for setting, one in zip(SETTINGS, fields(Settings), strict=True):
        try:
            if setting.name in given:
                values[one.name] = one.metadata["read"](given[setting.name])
        except ValueError as problem:
            raise InvalidSettingsError(f"HOLDFAST_{setting.name.upper()} {problem}") from None
    return Settings(**{"url": f"sqlite:///{folder / 'holdfast.db'}", **values, "home": folder})


def drop_password(url: str) -> str:
    """A URL without its password."""
    return _QUERY_PASSWORD.sub("", _PASSWORD.sub(r"\1@", url)).rstrip("?&")


def mask_password(text: str) -> str:
    """A setting as it may be shown."""
    return _PASSWORD.sub(r"\1:…@", text)


def mask_setting(name: str, value: str) -> str:
    """What a setting was given as, without what is secret in it."""
    is_key = name == "master_key" and not value.startswith(("file:", "command:"))
    return "…" if is_key else mask_password(value)


def sqlite_path(url: str) -> Path:
    """The file that a ``sqlite:///`` URL names."""
    scheme, _, rest = url.partition(":///")
    if scheme != "sqlite" or not rest:
        raise InvalidSettingsError(
            f"the store URL {quote(mask_password(url))} is not understood; write it as sqlite:///path/to/holdfast.db"
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
    import tomllib  # noqa: PLC0415 - few have such a file

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidSettingsError(f"{path} is not valid TOML: {problem}") from problem
    known = {setting.name for setting in SETTINGS}
    if unknown := sorted(set(values) - known):
        raise InvalidSettingsError(f"{path} has unknown settings {unknown}; known are: {', '.join(sorted(known))}")
    return path, values
