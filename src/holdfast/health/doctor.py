"""Whether all that Holdfast is configured with works: one list of checks, for ``holdfast doctor`` and for services.

Checking changes nothing: a store that is not there yet is not made, one of an older version is not brought up to date.
What is broken is a failed check, never an error.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.backups.catalog import Catalog, Damaged, describe_left_out, is_ahead
from holdfast.backups.layout import Manifest
from holdfast.backups.service import DAILY, WEEKLY
from holdfast.core.errors import HoldfastError, InvalidSettingsError, quote
from holdfast.core.records import MIB
from holdfast.core.values import DAY, describe_duration, moment
from holdfast.health.checks import ADVICE, Check, can_write, check, elapsed_ms, fail, named, nearest_existing, ok, warn
from holdfast.health.sqlite import check_sqlite
from holdfast.health.store import check_master_key, check_state_place
from holdfast.installation import install_command
from holdfast.recall.embedders import open_embedder
from holdfast.recall.model_service import KEY_NAMES
from holdfast.recall.summaries import open_summarizer
from holdfast.settings import (
    MAX_WORKERS,
    SETTINGS,
    Given,
    Settings,
    find_settings,
    mask_password,
    mask_setting,
    read_settings,
)
from holdfast.storage.objects import open_cold
from holdfast.storage.objects.urls import Place, read_place
from holdfast.storage.valkey import open_short_term
from holdfast.store import open_catalog, system_clock

_OLDEST_PYTHON: Final = (3, 11)
#: Where a container says how much memory it may use.
_MEMORY_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_LITTLE_SPACE, _NO_SPACE = 1024 * MIB, 16 * MIB


def check_health(environ: Mapping[str, str], *, url: str | None = None, home: str | Path | None = None) -> list[Check]:
    """Every check, in order. Without settings that can be read, only what needs none."""
    checks = check_python()
    try:
        settings = read_settings(environ, url=url, home=home)
    except HoldfastError as problem:
        return [*checks, named("settings", fail(problem, "correct the setting that is named"))]
    checks += check_settings(find_settings(environ, url=url, home=home), environ)
    checks += check_home(settings.home)
    checks += _check_store(settings)
    checks += check_short_term(settings) if settings.short_term_url else []
    checks += check_archive(settings, shared=_is_shared(settings))
    checks += check_state_place(settings) if _is_shared(settings) else []
    checks += check_master_key(settings)
    checks += check_backups(settings, is_used=any(one.name == "schedule" for one in checks))
    checks += check_embedder(settings.embedder) + check_summarizer(settings.summarizer)
    return [*checks, *check_workers(settings, *count_resources())]


def _check_store(settings: Settings) -> Iterator[Check]:
    """The checks of the store, as its engine has them."""
    scheme = settings.url.partition(":")[0]
    if scheme == "sqlite":
        yield from check_sqlite(settings)
    elif _is_shared(settings):
        yield from _check_postgres(settings)
    else:
        problem = InvalidSettingsError(
            f"the store URL {quote(mask_password(settings.url))} is not understood; write it as "
            "sqlite:///path/to/holdfast.db or postgresql://user:password@host:5432/database"
        )
        yield named("store", fail(problem, "correct HOLDFAST_URL"))


def _check_postgres(settings: Settings) -> Iterator[Check]:
    try:
        from holdfast.health.postgres import check_postgres  # noqa: PLC0415 - the extra may not be installed
    except ImportError as problem:
        yield named("store", fail(f"PostgreSQL needs an extra ({problem})", install_command("postgres")))
        return
    yield from check_postgres(settings)


def _is_shared(settings: Settings) -> bool:
    """Whether the store is one that processes on several machines use."""
    return settings.url.partition(":")[0] in {"postgresql", "postgres"}


@check("python")
def check_python() -> Check:
    """That Python is new enough."""
    found = f"Holdfast {__version__} on Python {sys.version.split()[0]}"
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return ok(found)
    return fail(found, "use Python 3.11 or newer")


@check("settings")
def check_settings(given: Mapping[str, Given], environ: Mapping[str, str]) -> Check:
    """Every setting as it was given, and where."""
    lines = []
    for name, default, _meaning in SETTINGS:
        value, source = given.get(name, (default, "default"))
        lines.append(f"{name} = {mask_setting(name, value)} ({source})")
    known = {f"HOLDFAST_{setting.name.upper()}" for setting in SETTINGS} | set(KEY_NAMES)
    of_holdfast = (name for name in environ if name.startswith("HOLDFAST_"))
    unknown = sorted(name for name in of_holdfast if name.removesuffix("_FILE") not in known)
    if unknown:
        lines.append(f"unknown: {', '.join(unknown)}")
        return warn("\n".join(lines), "correct or unset what is unknown: it has no effect")
    return ok("\n".join(lines))


@check("home")
def check_home(home: Path) -> Check:
    """That files can be kept there: the folder, or the nearest one above it that is there."""
    there = nearest_existing(home)
    total, _, free = shutil.disk_usage(there)
    found = f"{home} ({'' if home.is_dir() else 'not there yet, '}{free / MIB / 1024:,.1f} GiB free)"
    if home.exists() and not home.is_dir():
        return fail(f"{home} is a file", "name a folder in HOLDFAST_HOME")
    if not can_write(there):
        fix = f"make {there} writable (chmod u+wx), or name another folder in HOLDFAST_HOME"
        return fail(f"{found}: {there} cannot be written", fix)
    if total == 0:
        return fail(f"{home}: {there} keeps no files", "name another folder in HOLDFAST_HOME")
    if free < _NO_SPACE:
        return fail(found, "free some disk space: nothing can be stored")
    if free < _LITTLE_SPACE:
        return warn(found, "free some disk space before it runs out")
    return ok(found)


@check("short_term", "start the server, or correct HOLDFAST_SHORT_TERM_URL")
def check_short_term(settings: Settings) -> Check | str:
    """That the server answers, and takes and keeps what it is given."""
    with closing(open_short_term(settings.short_term_url)) as store:
        found, problems = store.check()
    if not problems:
        return f"{found}; a window was written, read and removed"
    told, remedy = "; ".join((found, *(p.text for p in problems))), "; ".join(p.remedy for p in problems)
    return (fail if any(problem.is_fatal for problem in problems) else warn)(told, remedy)


@check("archive", ADVICE["archive"])
def check_archive(settings: Settings, *, shared: bool) -> Check | str:
    """That archives can be kept: a bucket is tried out, of a folder it is enough that it can be written.

    ``shared`` says that processes on other machines may use the same store, and so must find the same archives.
    """
    place = read_place(settings.cold_url())
    if place.scheme != "file":
        return _try_out(settings)
    folder = place.folder
    there = nearest_existing(folder)
    if not can_write(there):
        return fail(f"{folder}: {there} cannot be written", ADVICE["archive"])
    found = f"{folder}{'' if folder.is_dir() else ' (not there yet)'}"
    return warn(f"{found}: a folder that other machines may not see", ADVICE["archive_shared"]) if shared else found


def _try_out(settings: Settings) -> Check:
    watch = time.perf_counter()
    store = open_cold(settings)
    warnings = store.check()
    found = f"{store.url} (written, read and deleted in {elapsed_ms(watch):,.0f} ms)"
    if not warnings:
        return ok(found)
    problems, remedies = zip(*(_split_warning(warning) for warning in warnings), strict=True)
    return warn("; ".join((found, *problems)), "; ".join(remedies))


def _split_warning(warning: str) -> tuple[str, str]:
    """A warning as what is the matter, and what to do."""
    matter, _, remedy = warning.partition("; ")
    return matter, remedy or "see docs/howto/deploy.md"


@check("embedder", "correct what HOLDFAST_EMBEDDER names; static needs nothing")
def check_embedder(setting: str) -> str:
    """That texts are embedded, and how fast."""
    watch = time.perf_counter()
    embedder = open_embedder(setting)
    embedder.embed(["how long does the first text take?"])
    first, watch = elapsed_ms(watch), time.perf_counter()
    embedder.embed(["and how long does the next one take?"])
    took = f"ready in {first:,.0f} ms, then {elapsed_ms(watch):.2f} ms a text"
    return f"{embedder.id}, {embedder.dim} dimensions ({took})"


@check("summarizer", "correct HOLDFAST_SUMMARIZER; extractive needs nothing")
def check_summarizer(setting: str) -> str:
    """That the setting can be used."""
    open_summarizer(setting)
    return setting if setting == "extractive" else f"{setting} (not asked: that may cost money)"


def count_resources() -> tuple[int, int]:
    """The processors that this process may use, and the memory of its machine or container in bytes; 0: not known."""
    try:
        cores = len(os.sched_getaffinity(0))
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Linux
        return os.cpu_count() or 1, 0
    with suppress(OSError, ValueError):  # no limit is "max"
        memory = min(memory, int(_MEMORY_LIMIT.read_text()))
    return cores, memory


@check("workers")
def check_workers(settings: Settings, cores: int, memory: int) -> Check:
    """How many workers of ``holdfast serve`` this machine has processors for, and that it has memory for them."""
    workers = min(cores, MAX_WORKERS)
    indexes = workers * settings.index_bytes
    found = (
        f"{cores} processor{'s' if cores > 1 else ''}: `holdfast serve --workers {workers}` uses all of them, with "
        f"indexes of up to {indexes // MIB:,} MiB together"
    )
    if not memory:
        return ok(found)
    found += f" of {memory // MIB:,} MiB of memory"
    return warn(found, ADVICE["workers"]) if indexes > memory // 2 else ok(found)


#: How old the newest backup may be: the schedule makes them every day, and of persona every week.
_OLDEST: Final = ((DAILY, 2 * DAY), (WEEKLY, 8 * DAY))


def check_backups(settings: Settings, *, is_used: bool) -> Iterator[Check]:
    """That backups can be made and read, are recent and good; and that keys and ledger do not share their disk.

    ``is_used`` says that there is a store to back up.
    """
    try:
        catalog, place = open_catalog(settings), read_place(settings.backups_url())
        problem = _find_problem(catalog, place)
        found = [] if problem else list(catalog.all())
    except HoldfastError as error:
        yield named("backups", fail(error, ADVICE["backups_place"]))
        return
    if problem:
        yield named("backups", fail(problem, ADVICE["backups_place"]))
        return
    yield from _judge(catalog, found, is_used=is_used)
    if found:
        yield from _check_separate(settings, place)


def _find_problem(catalog: Catalog, place: Place) -> str | None:
    """Why backups cannot be kept there; a place that is not there yet is not made."""
    if place.scheme == "file" and not place.folder.is_dir():
        there = nearest_existing(place.folder)
        return None if can_write(there) else f"{place.folder}: {there} cannot be written"
    catalog.objects.check()
    return None


@check("backups", ADVICE["backups_bad"])
def _judge(catalog: Catalog, found: Sequence[Manifest | Damaged], *, is_used: bool) -> Check:
    """The first thing that is wrong, the worst first."""
    url = catalog.objects.url
    if not found:
        if not is_used:
            return ok(f"{url} (none yet, and nothing to back up)")
        return warn(f"{url}: no backup was ever made", ADVICE["backups_make"])
    whole = [one for one in found if isinstance(one, Manifest)]
    told = f"{len(found):,} in {url}"
    if len(whole) < len(found):
        damaged = next(one for one in found if isinstance(one, Damaged))
        strange = "HOLDFAST_STATE_URL" in damaged.problem  # nothing is damaged, and another backup would not help
        return fail(f"{told}; {damaged.problem}", ADVICE["backups_keyring" if strange else "backups_bad"])
    if lacking := next((one for one in reversed(whole) if one.left_out), None):
        newer = any(one.created_at > lacking.created_at and {*lacking.kinds} <= {*one.kinds} for one in whole)
        if not newer:
            return fail(f"{told}; {lacking.id}: {describe_left_out(lacking)}", ADVICE["backups_left_out"])
    now = moment(system_clock())
    ahead = [one for one in whole if is_ahead(one, now)]
    whole = [one for one in whole if one not in ahead]
    latest = list({one.kinds: one for one in whole}.values())
    for one in latest:
        if catalog.is_known_bad(one.id):
            return fail(f"{told}; something is wrong with {one.id}, made at {one.moment[:16]}", ADVICE["backups_bad"])
    if ahead:
        return warn(f"{told}; {ahead[0].id} is dated later than now: {ahead[0].moment[:16]}", ADVICE["backups_ahead"])
    if late := [words for kinds, most in _OLDEST if (words := _describe_age(whole, {*kinds}, now, most))]:
        return warn(f"{told}; {'; '.join(late)}", ADVICE["backups_make"])
    good = {one.kinds for one in whole if catalog.is_good(one.id)}
    if untried := [one.id for one in latest if one.kinds not in good]:
        return warn(f"{told}; {' and '.join(untried)} was never restored on trial", ADVICE["backups_try"])
    return ok(f"{told}; the newest is of {whole[-1].moment[:16]}")


def _describe_age(whole: Sequence[Manifest], kinds: set[str], now: int, most: int) -> str | None:
    """What is to be said of the newest backup that has some kinds."""
    made = max((one.created_at for one in whole if kinds <= set(one.kinds)), default=None)
    what = "persona" if len(kinds) == 1 else "the other kinds"
    if made is None:
        return f"there is none of {what}"
    if now - made > most:
        return f"the newest of {what} is {describe_duration((now - made) // DAY * DAY)} old"
    return None


@check("keys", "correct HOLDFAST_STATE_URL")
def _check_separate(settings: Settings, place: Place) -> Check:
    """That who loses the backups does not lose the keys to them, and the ledger, in the same moment."""
    state = read_place(settings.keeping_url())
    found = f"keys and ledger in {state.url}, backups in {place.url}"
    if _is_same_disk(state, place):
        return warn(f"{found}: on the same {'disk' if state.scheme == 'file' else 'bucket'}", ADVICE["backups_keys"])
    return ok(found)


def _is_same_disk(one: Place, other: Place) -> bool:
    if one.scheme != other.scheme:
        return False
    if one.scheme != "file":
        return one.bucket == other.bucket
    return nearest_existing(one.folder).stat().st_dev == nearest_existing(other.folder).stat().st_dev
