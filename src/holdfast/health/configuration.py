"""What Holdfast is run with: Python, settings, the folder for its files, short-term memory, cold storage, models."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.core.records import MIB
from holdfast.health.checks import Check, can_write, check, elapsed_ms, fail, nearest_existing, ok, warn
from holdfast.recall.embedders import open_embedder
from holdfast.recall.model_service import KEY_NAMES
from holdfast.recall.summaries import open_summarizer
from holdfast.settings import SETTINGS, Given, Settings, mask_setting
from holdfast.storage.objects import open_cold
from holdfast.storage.objects.urls import read_place
from holdfast.storage.valkey import open_short_term

_COLD_FIX: Final = "correct HOLDFAST_ARCHIVE_URL, the credentials in the environment, or the permissions there"
_SHARED_FIX: Final = (
    "name a bucket in HOLDFAST_ARCHIVE_URL; or go on, if all processes run on this machine "
    "or all machines mount the folder"
)
_OLDEST_PYTHON: Final = (3, 11)
_LITTLE_SPACE, _NO_SPACE = 1024 * MIB, 16 * MIB


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
    unknown = sorted(name for name in environ if name.startswith("HOLDFAST_") and name not in known)
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


@check("archive", _COLD_FIX)
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
        return fail(f"{folder}: {there} cannot be written", _COLD_FIX)
    found = f"{folder}{'' if folder.is_dir() else ' (not there yet)'}"
    return warn(f"{found}: a folder that other machines may not see", _SHARED_FIX) if shared else found


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
