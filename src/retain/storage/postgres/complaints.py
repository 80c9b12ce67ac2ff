"""What PostgreSQL complains of, in Retain's words."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout

from retain.core.errors import (
    InvalidInputError,
    InvalidSettingsError,
    RetainError,
    StorageError,
    StoreAwayError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)

_LOGIN: Final = ("password authentication failed", "no password supplied", "no pg_hba.conf", "not permitted to log in")
#: What no further attempt changes: a setting of the connection, encryption, a right.
_SETTING: Final = (
    "invalid port number",
    "invalid integer value",
    ' value: "',
    "does not support ssl",
    "certificate",
    "permission denied for database",
)
_CROWDED: Final = ("too many clients", "too many connections", "remaining connection slots")


def place_of(conninfo: str) -> str:
    """Which database it is, as it may be shown: without the password."""
    parts = conninfo_to_dict(conninfo)
    host = parts.get("host") or "localhost"
    return (
        f"PostgreSQL database {parts.get('dbname') or parts.get('user') or '?'!r} at {host}:{parts.get('port') or 5432}"
    )


def in_our_words(problem: psycopg.Error, place: str) -> RetainError:
    """The error of our tree that says what a database's error means, and what to do."""
    said = _said(problem)
    match problem:
        case PoolTimeout():
            return StoreBusyError(f"no connection to {place} came free in time; try again, or raise RETAIN_POOL_SIZE")
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
            return StoreBusyError(f"{place} was kept busy by other writers ({said}); try again")
        case errors.QueryCanceled() | errors.TooManyConnections() | errors.InsufficientResources():
            if isinstance(problem, errors.DiskFull):
                return StoreFullError(f"no room to write in {place}: {said}; free some space and try again")
            return StoreBusyError(f"{place} is overloaded ({said}); try again")
        case errors.ReadOnlySqlTransaction():
            return StoreReadOnlyError(f"{place} cannot be written ({said}); name the primary in RETAIN_URL")
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return StoreUnavailableError(f"{place} refused the login ({said}); check user and password in RETAIN_URL")
        case errors.InsufficientPrivilege():
            return StoreUnavailableError(f"{place} does not allow it ({said}); grant the user what it needs")
        case errors.InvalidCatalogName():
            return StoreUnavailableError(f"{place} does not exist ({said}); create it, or correct RETAIN_URL")
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedFunction():
            return StorageError(f"{place} has no longer what Retain made there ({said}); restore a backup")
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.IdleInTransactionSessionTimeout():
            return _away(said, place)
        case psycopg.DataError():
            return InvalidInputError(f"{place} cannot hold this: {said}")
        case _:
            return StorageError(f"{place} failed: {said}")


def _away(said: str, place: str) -> RetainError:
    """A connection that was not made, or broke. libpq says why in words alone."""
    lower = said.lower()

    def speaks_of(several: tuple[str, ...]) -> bool:
        return any(words in lower for words in several)

    if speaks_of(_LOGIN):
        return StoreUnavailableError(f"{place} refused the login ({said}); check user and password in RETAIN_URL")
    if "does not exist" in lower and ("database" in lower or "role" in lower):
        return StoreUnavailableError(f"{place} refused ({said}); create it, or correct RETAIN_URL")
    if speaks_of(_CROWDED):
        return StoreBusyError(f"{place} has no connection left ({said}); try again, or lower RETAIN_POOL_SIZE")
    if speaks_of(_SETTING):
        return StoreUnavailableError(f"{place} cannot be connected to in this way ({said}); correct RETAIN_URL")
    if speaks_of(("could not translate host name", "failed to resolve host", "name or service")):
        return StoreAwayError(f"the host of {place} is not known ({said}); correct RETAIN_URL, or try again")
    return StoreAwayError(f"{place} does not answer ({said}); try again, and see that the server runs")


def _said(problem: BaseException) -> str:
    """What the server or the client said, on one line."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return "; ".join(lines[:3]) or type(problem).__name__


def check_url(url: str) -> dict[str, str]:
    """The parts of a ``postgresql://`` URL; ``InvalidSettingsError``, which quotes none of them, if it is none."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as problem:
        raise _not_understood(re.sub(r'".*"', '"…"', _said(problem))) from None
    found = {name: str(value) for name, value in parts.items() if value is not None}
    ports = found.get("port", "").split(",")
    if "@" in found.get("host", "") or "@" in found.get("dbname", "") or not all(p.isdecimal() or not p for p in ports):
        raise _not_understood("a password with one of @ : / ? # % in it is to be percent-encoded, as %40 for @")
    return found


def _not_understood(why: str) -> InvalidSettingsError:
    return InvalidSettingsError(
        f"the store URL is not understood ({why}); write it as postgresql://user:password@host:5432/database"
    )
