"""A store in PostgreSQL: whether it can be connected to, and what every other check of it asks on that connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from holdfast.core.errors import HoldfastError, StoreAwayError, StoreBusyError
from holdfast.health import postgres_server, postgres_store
from holdfast.health.checks import Check, Status, advice_of, failed
from holdfast.health.lifecycle import check_lifecycle
from holdfast.health.server_query import Asking
from holdfast.health.store_state import check_lost
from holdfast.settings import Settings
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.errors import check_url, in_our_words, place_of, schema_of

_WAIT: Final = "5"


def check_postgres(settings: Settings) -> Iterator[Check]:
    """The checks of the server and of the store in it; where it cannot be connected to, that alone."""
    try:
        parts = check_url(settings.url)
    except HoldfastError as problem:
        yield failed("store", problem, "correct HOLDFAST_URL; special characters of a password are percent-encoded")
        return
    conninfo = make_conninfo("", **{"connect_timeout": _WAIT, **parts, "application_name": "holdfast doctor"})
    place = place_of(conninfo)
    try:
        connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as problem:
        yield _unconnected(in_our_words(problem, place))
        return
    with connection:
        yield from _check_connected(connection, place, schema_of(parts), settings)


def _check_connected(
    connection: psycopg.Connection[Any], place: str, schema: str, settings: Settings
) -> Iterator[Check]:
    asking = Asking(connection, place)
    store = _looked("store", lambda: postgres_server.look_at_server(asking))
    yield store
    if store.status is Status.FAILED:
        return
    yield _looked("writable", lambda: postgres_server.look_at_writing(asking))
    yield _looked("server_clock", lambda: postgres_server.look_at_clock(asking))
    yield _looked("durability", lambda: postgres_server.look_at_durability(asking))
    yield _looked("connections", lambda: postgres_server.look_at_connections(asking, settings.pool_size))
    yield _looked("transactions", lambda: postgres_server.look_at_transactions(asking))
    yield _looked("autovacuum", lambda: postgres_server.look_at_vacuum(asking, schema))
    try:
        version = postgres_store.version_of(asking, schema)
    except HoldfastError as problem:
        yield failed("schema", problem, advice_of(problem))
        return
    made = _looked("schema", lambda: postgres_store.look_at_schema(asking, schema, version))
    yield made
    yield _looked("foreign_tables", lambda: postgres_store.look_at_foreign_tables(asking, schema, version))
    if version == 0 and (lost := check_lost(settings, "identity")) is not None:
        yield lost
    allowed = _looked("privileges", lambda: postgres_store.look_at_privileges(asking, schema, version))
    yield allowed
    yield _looked("distribution", lambda: postgres_store.look_at_nodes(asking, schema, wanted=settings.distribute))
    if Status.FAILED not in (made.status, allowed.status) and version == postgres_store.NEWEST:
        yield from _check_inside(settings)


def _check_inside(settings: Settings) -> Iterator[Check]:
    """The checks of what is in a store that is up to date, so that opening it changes nothing."""
    try:
        database = PostgresDatabase(settings.url, busy_seconds=5, pool_size=2, prepare=settings.prepare)
    except HoldfastError as problem:
        yield failed("opening", problem, advice_of(problem))
        return
    try:
        yield from check_lifecycle(database, settings)
    finally:
        database.close()


def _looked(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except HoldfastError as problem:
        return failed(name, problem, advice_of(problem))


def _unconnected(problem: HoldfastError) -> Check:
    if isinstance(problem, StoreAwayError):
        fix = "start the server, let this machine through to it, or correct host and port in HOLDFAST_URL"
    elif isinstance(problem, StoreBusyError):
        fix = "raise max_connections on the server, or lower HOLDFAST_POOL_SIZE in each process"
    else:
        fix = advice_of(problem)
    return failed("store", problem, fix)
