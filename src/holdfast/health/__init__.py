"""Whether all that Holdfast is configured with works: one list of checks, for ``holdfast doctor`` and for services.

Checking changes nothing: a store that is not there yet is not made, one of an older version is not brought up to date.
What is broken is a failed check, never an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.core.errors import HoldfastError, InvalidSettingsError, quote
from holdfast.health.backups import check_backups
from holdfast.health.checks import Check, Status, fail, named
from holdfast.health.configuration import (
    check_archive,
    check_embedder,
    check_home,
    check_python,
    check_settings,
    check_short_term,
    check_summarizer,
)
from holdfast.health.keys import check_master_key, check_state_place
from holdfast.health.sqlite import check_sqlite
from holdfast.installation import install_command
from holdfast.settings import Settings, find_settings, mask_password, read_settings


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
    return [*checks, *check_embedder(settings.embedder), *check_summarizer(settings.summarizer)]


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


__all__ = ["Check", "Status", "check_health"]
