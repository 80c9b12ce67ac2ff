"""What PostgreSQL complains of, in Holdfast's words."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout

from holdfast.core import errors as ours

#: libpq says in words alone why a connection was not made. What these speak of no further attempt changes.
_LOGIN: Final = re.compile("password authentication failed|no password supplied|no pg_hba.conf|not permitted to log in")
_SETTING: Final = re.compile(
    'invalid port number|invalid integer value| value: "|invalid value for parameter|invalid command-line argument|'
    "unrecognized configuration parameter|cannot be changed|does not support ssl|certificate|private key|"
    "channel binding|permission denied for database|permission denied to set parameter"
)
_CROWDED: Final = re.compile("too many clients|too many connections|remaining connection slots")
_UNKNOWN_HOST: Final = re.compile("could not translate host name|failed to resolve host|name or service")
#: Options of a connection that are whole numbers.
_NUMBERS: Final = (
    "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
)  # fmt: skip
#: A search_path among the options for the server, as that reads them: spaces part them, unless after a backslash.
_SEARCH_PATH: Final = re.compile(r"(?:-c\s*|--)search[_-]path=((?:\\.|\S)*)", re.IGNORECASE)
#: Its first schema: in double quotes, or as it is. What PostgreSQL takes for another name is none.
_SCHEMA: Final = re.compile(r'(?:"((?:[^"]|"")+)"|([^\s,"A-Z]+))\s*(?:,.*)?')
_MOST_NAME_BYTES: Final = 63


def place_of(conninfo: str) -> str:
    """Which database it is, as it may be shown: without the password."""
    parts = conninfo_to_dict(conninfo)
    host = parts.get("host") or "localhost"
    return (
        f"PostgreSQL database {parts.get('dbname') or parts.get('user') or '?'!r} at {host}:{parts.get('port') or 5432}"
    )


def url_of(url: str) -> str:
    """A store's URL without a user, a password or an option but the schema."""
    parts = check_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
    database = parts.get("dbname") or parts.get("user") or ""
    schema = schema_of(parts)
    place = f"postgresql://{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}/{database}"
    return place if schema == "holdfast" else f"{place}?schema={schema}"


def translate_error(problem: psycopg.Error, place: str, called: str = "HOLDFAST_URL") -> ours.HoldfastError:
    """The error of our tree that says what a database's error means, and what to do.

    ``called`` is what the setting or option goes by that names the database.
    """
    said = _said(problem)
    match problem:
        case PoolTimeout():
            return ours.StoreBusyError(
                f"no connection to {place} came free in time; try again, or raise HOLDFAST_POOL_SIZE"
            )
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
            return ours.StoreBusyError(f"{place} was kept busy by other writers ({said}); try again")
        case errors.QueryCanceled() | errors.TooManyConnections() | errors.InsufficientResources():
            if isinstance(problem, errors.DiskFull):
                return ours.StoreFullError(f"no room to write in {place}: {said}; free some space and try again")
            return ours.StoreBusyError(f"{place} is overloaded ({said}); try again")
        case errors.ReadOnlySqlTransaction():
            return ours.StoreReadOnlyError(f"{place} cannot be written ({said}); name the primary in {called}")
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return ours.StoreUnavailableError(
                f"{place} refused the login ({said}); check user and password in {called}"
            )
        case errors.InsufficientPrivilege():
            return ours.StoreUnavailableError(f"{place} does not allow it ({said}); grant the user what it needs")
        case errors.InvalidCatalogName():
            return ours.StoreUnavailableError(f"{place} does not exist ({said}); create it, or correct {called}")
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedFunction():
            return ours.StorageError(
                f"{place} lacks what this version of Holdfast keeps there ({said}): another version made it, or "
                f"something was dropped; restore a backup, or name another store in {called}"
            )
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.IdleInTransactionSessionTimeout():
            return _away(said, place, called)
        case psycopg.DataError():
            return ours.InvalidInputError(f"{place} cannot hold this: {said}")
        case _:
            return _other(problem, said, place)


def _other(problem: psycopg.Error, said: str, place: str) -> ours.HoldfastError:
    """A prepared statement that another connection made, because a pooler changed them; or what nobody foresaw."""
    if isinstance(problem, errors.DuplicatePreparedStatement | errors.InvalidSqlStatementName):
        return ours.StoreUnavailableError(
            f"{place} is reached through a pooler that mixes up prepared statements ({said}), as PgBouncer before 1.21 "
            "does with pool_mode = transaction; set HOLDFAST_PREPARE=no, or upgrade PgBouncer and set its "
            "max_prepared_statements to 200"
        )
    return ours.StorageError(f"{place} failed: {said}")


def _away(said: str, place: str, called: str) -> ours.HoldfastError:
    """A connection that was not made, or broke. libpq says why in words alone."""
    lower = said.lower()
    if _LOGIN.search(lower):
        return ours.StoreUnavailableError(f"{place} refused the login ({said}); check user and password in {called}")
    if "does not exist" in lower and ("database" in lower or "role" in lower):
        return ours.StoreUnavailableError(f"{place} refused ({said}); create it, or correct {called}")
    if _CROWDED.search(lower):
        return ours.StoreBusyError(f"{place} has no connection left ({said}); try again, or lower HOLDFAST_POOL_SIZE")
    if _SETTING.search(lower):
        return ours.StoreUnavailableError(f"{place} cannot be connected to in this way ({said}); correct {called}")
    if _UNKNOWN_HOST.search(lower):
        return ours.StoreAwayError(f"the host of {place} is not known ({said}); correct {called}, or try again")
    return ours.StoreAwayError(f"{place} does not answer ({said}); try again, and see that the server runs")


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
    for name in _NUMBERS:
        if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", found.get(name, "0")):
            raise _not_understood(f"its {name} is no whole number")
    schema_of(found)
    return found


def schema_of(parts: dict[str, str]) -> str:
    """The schema that a URL names, by ``options=-csearch_path=``: the first of those, if there are several."""
    given = _SEARCH_PATH.findall(parts.get("options", ""))
    if not given:
        return "holdfast"
    found = _SCHEMA.fullmatch(re.sub(r"\\(.)", r"\1", given[-1]))
    name = "" if found is None else found[2] or found[1].replace('""', '"')
    if not name or name == "$user" or len(name.encode()) > _MOST_NAME_BYTES:
        raise _not_understood(
            "the search_path in its options begins with no name of a schema: one in lower case, or in double quotes, "
            f"of at most {_MOST_NAME_BYTES} bytes"
        )
    return name


def _not_understood(why: str) -> ours.InvalidSettingsError:
    return ours.InvalidSettingsError(
        f"the store URL is not understood ({why}); write it as postgresql://user:password@host:5432/database"
    )
