"""Where else memories are kept: on the server of short-term memory, and in cold storage."""

from __future__ import annotations

import time
from typing import Final

from holdfast.core.errors import HoldfastError
from holdfast.health.checks import Check, can_write, elapsed_ms, fail, nearest_existing, ok, run_check, warn
from holdfast.settings import Settings
from holdfast.storage.objects import open_cold
from holdfast.storage.objects.urls import read_place
from holdfast.storage.valkey import open_short_term

_COLD_FIX: Final = "correct HOLDFAST_ARCHIVE_URL, the credentials in the environment, or the permissions there"
_SHARED_FIX: Final = (
    "name a bucket in HOLDFAST_ARCHIVE_URL; or go on, if all processes run on this machine "
    "or all machines mount the folder"
)


def check_short_term(settings: Settings) -> Check:
    """That the server answers, and takes and keeps what it is given."""
    fix = "start the server, or correct HOLDFAST_SHORT_TERM_URL"

    def look() -> Check:
        store = open_short_term(settings.short_term_url)
        try:
            found, problems = store.check()
        finally:
            store.close()
        if not problems:
            return ok("short_term", f"{found}; a window was written, read and removed")
        told, remedy = "; ".join((found, *(p.text for p in problems))), "; ".join(p.remedy for p in problems)
        if any(problem.is_fatal for problem in problems):
            return fail("short_term", told, remedy)
        return warn("short_term", told, remedy)

    return run_check("short_term", look, fix)


def check_archive(settings: Settings, *, shared: bool) -> Check:
    """That archives can be kept: a bucket is tried out, of a folder it is enough that it can be written.

    ``shared`` says that processes on other machines may use the same store, and so must find the same archives.
    """
    try:
        place = read_place(settings.cold_url())
        if place.scheme != "file":
            return _try_out(settings)
    except HoldfastError as problem:
        return fail("archive", problem, _COLD_FIX)
    folder = place.folder
    there = nearest_existing(folder)
    if not can_write(there):
        return fail("archive", f"{folder}: {there} cannot be written", _COLD_FIX)
    found = f"{folder}{'' if folder.is_dir() else ' (not there yet)'}"
    if shared:
        return warn("archive", f"{found}: a folder that other machines may not see", _SHARED_FIX)
    return ok("archive", found)


def _try_out(settings: Settings) -> Check:
    watch = time.perf_counter()
    store = open_cold(settings)
    warnings = store.check()
    found = f"{store.url} (written, read and deleted in {elapsed_ms(watch):,.0f} ms)"
    if not warnings:
        return ok("archive", found)
    problems, remedies = zip(*(_split_warning(warning) for warning in warnings), strict=True)
    return warn("archive", "; ".join((found, *problems)), "; ".join(remedies))


def _split_warning(warning: str) -> tuple[str, str]:
    """A warning as what is the matter, and what to do."""
    matter, _, remedy = warning.partition("; ")
    return matter, remedy or "see docs/howto/deploy.md"
