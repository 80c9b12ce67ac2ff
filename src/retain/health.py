"""Whether all that Retain is configured with works: one list of checks, for ``retain doctor`` and for services.

Checking changes nothing: a store that is not there yet is not made. What is broken is a failed check, never an error.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import apsw

from retain import __version__
from retain.core.errors import NotAStoreError, RetainError
from retain.core.rules import spoken
from retain.core.times import DAY, iso, moment
from retain.core.types import MIB
from retain.engine import system_clock
from retain.lifecycle.audit import Audit
from retain.lifecycle.leadership import Leadership
from retain.lifecycle.safety import ClockWatch
from retain.lifecycle.schedule import JOBS, Schedule
from retain.recall.embedders import open_embedder
from retain.recall.http import KEY_NAMES
from retain.recall.summaries import open_summarizer
from retain.settings import SETTINGS, Given, Settings, given_settings, read_settings, sqlite_path, without_password
from retain.storage.objects import open_objects
from retain.storage.objects.places import read_place
from retain.storage.relational.audit import SqlAudit
from retain.storage.relational.dues import SqlDues
from retain.storage.relational.jobs import SqlJobs, SqlLeases, new_holder
from retain.storage.relational.statements import migrations
from retain.storage.sqlite.database import Database

_OLDEST_PYTHON: Final = (3, 11)
_LITTLE_SPACE, _NO_SPACE = 1024 * MIB, 16 * MIB
_SLOW_WRITE_MS: Final = 50.0
_PATIENCE_SECONDS: Final = 5.0
#: Cold storage is filled weekly: what has waited for longer was forgotten by more than one job.
_LATE: Final = 8 * DAY
_KEEP_RUNNING: Final = "run `retain schedule run --once` from cron, or keep `retain schedule run` running"


class Status(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what was found, and what to do about it (``None`` where all is well)."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


def check_health(environ: Mapping[str, str], *, url: str | None = None, home: str | Path | None = None) -> list[Check]:
    """Every check, in order. Without settings that can be read, only what needs none."""
    checks = [_python()]
    try:
        settings = read_settings(environ, url=url, home=home)
    except RetainError as problem:
        return [*checks, _failed("settings", problem, "correct the setting that is named")]
    checks.append(_settings(given_settings(environ, url=url, home=home), environ))
    checks.append(_home(settings.home))
    checks += _store(settings)
    checks.append(_cold(settings.cold_url()))
    checks += [_embedder(settings.embedder), _summarizer(settings.summarizer)]
    return checks


# --- where Retain runs --------------------------------------------------------------------------------------------


def _python() -> Check:
    found = f"Retain {__version__} on Python {sys.version.split()[0]}"
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Check("python", Status.OK, found)
    return Check("python", Status.FAILED, found, "use Python 3.11 or newer")


def _settings(given: Mapping[str, Given], environ: Mapping[str, str]) -> Check:
    """Every setting as it was given, and where."""
    lines = []
    for name, default, _meaning in SETTINGS:
        value, source = given.get(name, (default, "default"))
        lines.append(f"{name} = {without_password(value)} ({source})")
    known = {f"RETAIN_{setting.name.upper()}" for setting in SETTINGS} | set(KEY_NAMES)
    unknown = sorted(name for name in environ if name.startswith("RETAIN_") and name not in known)
    if unknown:
        lines.append(f"unknown: {', '.join(unknown)}")
        return Check("settings", Status.WARNING, "\n".join(lines), "correct or unset what is unknown: it has no effect")
    return Check("settings", Status.OK, "\n".join(lines))


def _home(home: Path) -> Check:
    """That files can be kept there: the folder, or the nearest one above it that is there."""
    there = _nearest(home)
    total, _, free = shutil.disk_usage(there)
    found = f"{home} ({'' if home.is_dir() else 'not there yet, '}{free / MIB / 1024:,.1f} GiB free)"
    if home.exists() and not home.is_dir():
        return Check("home", Status.FAILED, f"{home} is a file", "name a folder in RETAIN_HOME")
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        fix = f"make {there} writable (chmod u+wx), or name another folder in RETAIN_HOME"
        return Check("home", Status.FAILED, f"{found}: {there} cannot be written", fix)
    if total == 0:
        return Check("home", Status.FAILED, f"{home}: {there} keeps no files", "name another folder in RETAIN_HOME")
    if free < _NO_SPACE:
        return Check("home", Status.FAILED, found, "free some disk space: nothing can be stored")
    if free < _LITTLE_SPACE:
        return Check("home", Status.WARNING, found, "free some disk space before it runs out")
    return Check("home", Status.OK, found)


# --- the store -----------------------------------------------------------------------------------------------------


def _store(settings: Settings) -> Iterator[Check]:
    """The checks of the store; where it does not open, that alone."""
    try:
        path = sqlite_path(settings.url)
    except RetainError as problem:
        yield _failed("store", problem, "correct RETAIN_URL")
        return
    yield _disk(path.parent)
    if not path.exists():
        yield Check("store", Status.OK, f"{path} (not there yet; the first memory makes it)")
        return
    try:
        database = Database(path, busy_seconds=_PATIENCE_SECONDS)
    except RetainError as problem:
        yield _failed("store", problem, "name another file in RETAIN_URL or RETAIN_HOME, or restore a backup")
        return
    try:
        yield Check("store", Status.OK, f"{path} ({path.stat().st_size / MIB:,.1f} MiB)")
        yield _schema(database)
        yield _journal(database)
        integrity = _tried("integrity", lambda: _quick_check(database), "restore a backup: the file is damaged")
        yield integrity
        if integrity.status is Status.OK:  # what is damaged need not be asked further
            yield from _lifecycle(database, settings)
    finally:
        database.close()


def _schema(database: Database) -> Check:
    newest = migrations("retain.storage.sqlite")[-1][0]
    with database.read() as tx:
        version = tx.connection.pragma("user_version")
    return Check("schema", Status.OK, f"version {version} (this Retain knows up to {newest})")


def _journal(database: Database) -> Check:
    with database.read() as tx:
        mode = tx.connection.pragma("journal_mode")
    found = f"{mode} mode, SQLite {apsw.sqlite_lib_version()}"
    if mode == "wal":
        return Check("journal", Status.OK, found)
    return Check("journal", Status.WARNING, found, "keep the store on a local disk: here readers wait for writers")


def _quick_check(database: Database) -> str:
    watch = time.perf_counter()
    if problems := database.check():
        raise NotAStoreError("\n".join(problems[:5]))
    return f"quick check passed in {_since(watch):,.0f} ms"


def _disk(folder: Path) -> Check:
    """How long a durable write takes beside the store: every ``add`` waits for one."""
    there = _nearest(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".retain-doctor-") as file:
            watch = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took = _since(watch)
    except OSError as problem:
        return Check("disk", Status.FAILED, f"cannot write in {there}: {problem.strerror}", f"make {there} writable")
    found = f"a durable write takes {took:.2f} ms"
    if took > _SLOW_WRITE_MS:
        return Check("disk", Status.WARNING, found, "put the store on a faster disk: every add waits this long")
    return Check("disk", Status.OK, found)


def _cold(url: str) -> Check:
    """That archives can be kept: a bucket is tried out, of a folder it is enough that it can be written."""
    fix = "correct RETAIN_ARCHIVE_URL, the credentials in the environment, or the permissions there"
    try:
        place = read_place(url)
        if place.scheme != "file":
            watch = time.perf_counter()
            open_objects(url).check()
            return Check("archive", Status.OK, f"{place.url} (written, read and deleted in {_since(watch):,.0f} ms)")
    except RetainError as problem:
        return _failed("archive", problem, fix)
    folder = place.folder
    there = _nearest(folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check("archive", Status.FAILED, f"{folder}: {there} cannot be written", fix)
    return Check("archive", Status.OK, f"{folder}{'' if folder.is_dir() else ' (not there yet)'}")


# --- the lifecycle -------------------------------------------------------------------------------------------------


def _lifecycle(database: Database, settings: Settings) -> Iterator[Check]:
    """The checks of what governs memories. They read the store's own tables: nothing is run, enrolled or adopted."""
    dues = SqlDues(database)
    now = moment(system_clock())
    yield _checked("clock", lambda: _clock(dues, now), "set the machine's clock, then sweep with --confirm")
    yield _checked("schedule", lambda: _schedule(database, settings.timezone), "correct RETAIN_TIMEZONE")
    yield _checked("overdue", lambda: _overdue(dues, now), "look at retain sweep --dry-run")
    yield _checked("audit", lambda: _audit(database, settings.home), f"make {settings.home / 'state'} readable")


def _clock(dues: SqlDues, now: int) -> Check:
    seen = dues.seen()
    ClockWatch(now=now).check(now, seen=seen)
    return Check("clock", Status.OK, f"{iso(now)[:19]} ({'no sweep yet' if seen is None else 'not behind any sweep'})")


def _schedule(database: Database, timezone: str) -> Check:
    leadership = Leadership(SqlLeases(database), wall=lambda: time.time_ns() // 1_000, holder=new_holder())
    nothing: Mapping[str, Callable[[], dict[str, Any]]] = {job.name: dict for job in JOBS}  # looked at, never run
    schedule = Schedule(SqlJobs(database), leadership, nothing, clock=system_clock, timezone=timezone)
    rows, problems = schedule.list(), schedule.problems()
    if not any(row["last_started"] or row["failed"] for row in rows):
        return Check("schedule", Status.WARNING, "no job has ever run: nothing is swept by itself", _KEEP_RUNNING)
    if problems:
        return Check("schedule", Status.FAILED, "\n".join(problems), f"see retain schedule; {_KEEP_RUNNING}")
    disabled = [row["name"] for row in rows if not row["enabled"]]
    coming = min((row for row in rows if row["next_run"]), key=lambda row: str(row["next_run"]), default=None)
    found = "nothing will run" if coming is None else f"{coming['name']} runs next, at {coming['next_run'][:16]}"
    if disabled:
        fix = f"if that is not meant: retain schedule set {disabled[0]} --enable"
        return Check("schedule", Status.WARNING, f"{found}; disabled: {', '.join(disabled)}", fix)
    return Check("schedule", Status.OK, found)


def _overdue(dues: SqlDues, now: int) -> Check:
    """What should have been swept long ago; what is on hold may be among it."""
    waiting: dict[str, int] = {}
    for tenant in dues.tenants():
        for kind, since in dues.overdue_since(tenant, now):
            waiting[kind] = max(waiting.get(kind, 0), now - since)
    if not waiting:
        return Check("overdue", Status.OK, "nothing is waiting to be swept")
    kind = max(waiting, key=lambda name: waiting[name])
    found = f"something of {', '.join(waiting)} is due, {kind} for {_roughly(waiting[kind])}"
    if waiting[kind] <= _LATE:
        return Check("overdue", Status.OK, found)
    fix = "see retain sweep --dry-run: sweep what is due, confirm who was set aside, release holds that have ended"
    return Check("overdue", Status.WARNING, found, fix)


def _audit(database: Database, home: Path) -> Check:
    store = SqlAudit(database)
    problem = Audit(store, "default", home / "state", system_clock).compare()  # the cheap part of verify()
    if problem is not None:
        fix = "run retain audit verify; if a backup was restored, retain audit seal --accept says so"
        return Check("audit", Status.FAILED, problem.problem, fix)
    last = next(iter(store.checkpoints(limit=1)), None)
    if last is None:
        return Check("audit", Status.OK, "not sealed yet")
    found = f"checkpoint {last.no} seals {last.entries:,} entries ({iso(last.at)[:19]})"
    return Check("audit", Status.OK, f"{found}; not verified here: retain audit verify")


def _checked(name: str, look: Callable[[], Check], fix: str) -> Check:
    try:
        return look()
    except RetainError as problem:
        return _failed(name, problem, fix)


def _roughly(duration: int) -> str:
    return spoken(duration // DAY * DAY) if duration >= DAY else "less than a day"


# --- the models ------------------------------------------------------------------------------------------------------


def _embedder(setting: str) -> Check:
    def found() -> str:
        watch = time.perf_counter()
        embedder = open_embedder(setting)
        embedder.embed(["how long does the first text take?"])
        first = _since(watch)
        watch = time.perf_counter()
        embedder.embed(["and how long does the next one take?"])
        return (
            f"{embedder.id}, {embedder.dim} dimensions (ready in {first:,.0f} ms, then {_since(watch):.2f} ms a text)"
        )

    fix = "correct what RETAIN_EMBEDDER names; static needs nothing"
    return _tried("embedder", found, fix)


def _summarizer(setting: str) -> Check:
    def found() -> str:
        open_summarizer(setting)
        return setting if setting == "extractive" else f"{setting} (not asked: that may cost money)"

    return _tried("summarizer", found, "correct RETAIN_SUMMARIZER; extractive needs nothing")


def _tried(name: str, look: Callable[[], str], fix: str) -> Check:
    try:
        return Check(name, Status.OK, look())
    except RetainError as problem:
        return _failed(name, problem, fix)


def _failed(name: str, problem: RetainError, fix: str) -> Check:
    check = Check(name, Status.FAILED, str(problem), fix)
    return replace(check, fix="try again later; " + fix) if problem.retryable else check


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1_000
