"""A store in PostgreSQL: whether it can be connected to, its tables, what the user may do with them, where they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_address
from typing import Any, Final

import psycopg
from psycopg import RawCursor, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row

from holdfast.core.errors import HoldfastError, StorageError
from holdfast.core.records import MIB
from holdfast.core.values import SECOND
from holdfast.health.checks import ADVICE, Check, Status, advice_of, check, elapsed_ms, fail, named, ok, warn
from holdfast.health.store import check_lifecycle, find_loss
from holdfast.installation import upgrade_command
from holdfast.lifecycle.schedule.leadership import LEASE_TTL
from holdfast.settings import Settings
from holdfast.storage.catalog import COPYING
from holdfast.storage.postgres.connect import ALL_TABLES, BY_SUBJECT, EVERYWHERE, quoted
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.errors import check_url, place_of, schema_of, translate_error
from holdfast.storage.postgres.transactions import PACKAGE, piece, run_together
from holdfast.storage.relational.database import migrations, statements

_SQL: Final = statements("holdfast.health")
_OLDEST: Final = 15
#: What a recall asks, with values that are nobody's.
_RECALL: Final = (("records.cursor", (0, "", 0, "", "")), ("records.fetch", (0, "", "[]", 0, "")))
#: From here on a clock's difference eats into the lease of whoever sweeps.
_APART: Final = 1 * SECOND
_IDLE_SECONDS: Final = 60.0
#: Half of the numbers that transactions have before the server stops to protect them.
_OLD_NUMBERS: Final = 1_000_000_000


class ServerQuery:
    """A connection that can only look: statements by their names, problems in Holdfast's words."""

    def __init__(self, connection: psycopg.Connection[Any], place: str, schema: str, settings: Settings) -> None:
        self.connection = connection
        self.place = place
        self.schema = schema
        self.settings = settings
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; SET lock_timeout = 2000")

    def rows(self, name: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """All rows of a statement of ``postgres.sql``."""
        try:
            cursor = RawCursor(self.connection, row_factory=tuple_row)
            return cursor.execute(_SQL[f"postgres.{name}"].encode(), bindings).fetchall()
        except psycopg.Error as problem:
            raise translate_error(problem, self.place) from problem

    def row(self, name: str, *bindings: Any) -> tuple[Any, ...]:
        """The one row of such a statement."""
        (row,) = self.rows(name, *bindings)
        return row

    def try_recall(self) -> None:
        """Ask what a recall asks, about nobody: a ``StorageError`` says how a cluster refuses it."""
        try:
            with self.connection.transaction():
                self.connection.execute(f"SET LOCAL search_path = {quoted(self.schema)}".encode())
                for name, bindings in _RECALL:
                    run_together(self.connection, [piece(name, bindings)])
        except psycopg.Error as problem:
            raise translate_error(problem, self.place) from problem

    def tables(self) -> set[str]:
        """The names of the tables in the store's schema."""
        return {str(name) for (name,) in self.rows("tables", quoted(self.schema))}


@check("store", advice_of)
def check_server(query: ServerQuery) -> Check:
    """Who answers, how fast, and whether anyone can listen."""
    version, number, encoding, size = query.row("server")
    watch = time.perf_counter()
    query.row("now")
    took = elapsed_ms(watch)
    secret, exposed = _transport(query)
    found = f"{query.place}: PostgreSQL {version}, {size / MIB:,.1f} MiB, answers in {took:.1f} ms, {secret}"
    if number // 10_000 < _OLDEST:
        return fail(found, f"upgrade the server: Holdfast needs PostgreSQL {_OLDEST} or newer")
    if encoding != "UTF8":
        return fail(f"{found}, encoding {encoding}", ADVICE["server_encoding"])
    if exposed:
        return warn(found, "add ?sslmode=verify-full (and sslrootcert=…) to HOLDFAST_URL: anyone can listen")
    return ok(found)


def _transport(query: ServerQuery) -> tuple[str, bool]:
    """How what is sent travels, and whether it does so in clear through a network that is not private."""
    if query.connection.pgconn.ssl_in_use:
        return "encrypted", False
    address = query.connection.info.hostaddr
    if not address or ip_address(address).is_loopback:
        return "on this machine", False
    return "not encrypted", ip_address(address).is_global


@check("writable", advice_of)
def check_writing(query: ServerQuery) -> Check:
    """That it is the primary, and takes writes."""
    standby, read_only, standbys = query.row("writable")
    if standby:
        return fail("a standby, which can only be read", ADVICE["server_standby"])
    if read_only:
        return fail("transactions are read-only here", ADVICE["server_read_only"])
    return ok(f"the primary; {standbys or 'no'} standby{'s' if standbys > 1 else ''} connected to it")


@check("server_clock", advice_of)
def check_clock(query: ServerQuery) -> Check:
    """How far the server's clock is from this machine's. The best of some attempts: the network is part of each."""
    attempts = []
    for _ in range(3):
        before = time.time_ns() // 1_000
        (there,) = query.row("now")
        after = time.time_ns() // 1_000
        attempts.append((after - before, there - (before + after) // 2))
    doubt, apart = min(attempts)
    return judge_clock(apart, doubt // 2 + 1)


def judge_clock(apart: int, doubt: int) -> Check:
    """What a difference means, known to within ``doubt`` (both in microseconds)."""
    found = (
        f"{abs(apart) / 1_000:,.0f} ms {'ahead of' if apart > 0 else 'behind'} this machine's, ± {doubt / 1_000:.1f} ms"
    )
    if abs(apart) - doubt >= LEASE_TTL:
        return fail(found, ADVICE["server_clock"])
    if abs(apart) - doubt > _APART:
        return warn(found, ADVICE["server_clock"])
    return ok(found)


@check("durability", advice_of)
def check_durability(query: ServerQuery) -> Check:
    """That what was committed is on the disk."""
    off = [str(name) for (name,) in query.rows("durability")]
    if off:
        fix = f"turn {' and '.join(off)} on: a crash of the server can lose what was said to be stored"
        return warn(f"off: {', '.join(off)}", fix)
    return ok("a commit waits for the server's disk")


@check("connections", advice_of)
def check_connections(query: ServerQuery) -> Check:
    """That a full pool of this process fits beside what is connected now."""
    total, *limits, used = query.row("connections")
    return judge_connections([total, *(limit for limit in limits if limit >= 0)], used - 1, query.settings.pool_size)


def judge_connections(limits: list[int], used: int, pool_size: int) -> Check:
    """What limits mean that are the server's, the role's and the database's."""
    most = min(limits)
    room = max(0, most - used) // pool_size
    found = f"{most} are allowed, {used} in use; each process and worker takes up to {pool_size}: room for {room} more"
    if pool_size > most:
        return fail(found, f"set HOLDFAST_POOL_SIZE to less than {most}, or raise max_connections")
    if used + pool_size > most:
        return warn(found, ADVICE["connections"])
    return ok(found)


@check("transactions", advice_of)
def check_transactions(query: ServerQuery, longer_than: float = _IDLE_SECONDS) -> Check:
    """That nobody keeps a transaction open: what is deleted cannot be cleared away meanwhile."""
    idle = query.rows("idle", longer_than)
    (sees_all,) = query.row("sees_all")
    if idle:
        who, seconds = idle[0]
        more = f", and {len(idle) - 1} more" if len(idle) > 1 else ""
        return warn(f"{who} has stood still for {seconds:,.0f} s in a transaction{more}", ADVICE["transactions"])
    others = "" if sees_all else " (only this user's can be seen; GRANT pg_read_all_stats shows all)"
    return ok(f"none stands still for over {longer_than:.0f} s{others}")


@check("autovacuum", advice_of)
def check_vacuum(query: ServerQuery) -> Check:
    """That the server clears away what was deleted."""
    on, age, without = query.row("autovacuum", quoted(query.schema))
    if not on:
        return warn("off", ADVICE["autovacuum"])
    if without:
        fix = f"ALTER TABLE … RESET (autovacuum_enabled); {ADVICE['autovacuum']}"
        return warn(f"off for {', '.join(without)}", fix)
    if age > _OLD_NUMBERS:
        return warn(f"on, but {age:,} transactions behind", ADVICE["autovacuum_freeze"])
    return ok(f"on, {age:,} transactions since everything was last looked at")


NEWEST: Final = migrations(PACKAGE)[-1].number
#: Any command that opens the store brings it up to date; this one does nothing else.
_OPEN: Final = "holdfast init-db"
_WAIT: Final = "5"


def check_postgres(settings: Settings) -> Iterator[Check]:
    """The checks of the server and of the store in it; where it cannot be connected to, that alone."""
    try:
        parts = check_url(settings.url)
    except HoldfastError as problem:
        yield named("store", fail(problem, ADVICE["server_url"]))
        return
    conninfo = make_conninfo("", **{"connect_timeout": _WAIT, **parts, "application_name": "holdfast doctor"})
    place = place_of(conninfo)
    try:
        connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as problem:
        found = translate_error(problem, place)
        yield named("store", fail(found, ADVICE.get(type(found).__name__) or advice_of(found)))
        return
    with connection:
        yield from _check_connected(ServerQuery(connection, place, schema_of(parts), settings))


def _check_connected(query: ServerQuery) -> Iterator[Check]:
    (store,) = check_server(query)
    yield store
    if store.status is Status.FAILED:
        return
    for look in (check_writing, check_clock, check_durability, check_connections, check_transactions, check_vacuum):
        yield from look(query)
    try:
        version = version_of(query)
    except HoldfastError as problem:
        yield named("schema", fail(problem, advice_of(problem)))
        return
    (made,) = check_schema(query, version)
    yield made
    yield from check_foreign_tables(query, version)
    if version == 0 and (lost := find_loss(query.settings)) is not None:
        yield named("identity", lost)
    (allowed,) = check_privileges(query, version)
    yield allowed
    yield from check_nodes(query)
    if Status.FAILED not in (made.status, allowed.status) and version == NEWEST:
        yield from _check_inside(query.settings)


def _check_inside(settings: Settings) -> Iterator[Check]:
    """The checks of what is in a store that is up to date, so that opening it changes nothing."""
    try:
        database = PostgresDatabase(settings.url, busy_seconds=5, pool_size=2, prepare=settings.prepare)
    except HoldfastError as problem:
        yield named("opening", fail(problem, advice_of(problem)))
        return
    with closing(database):
        yield from check_lifecycle(database, settings)


def version_of(query: ServerQuery) -> int:
    """The version of the tables; 0 if there are none, or this user may not look."""
    if "schema_version" not in query.tables():
        return 0
    statement = sql.SQL("SELECT version FROM {}").format(sql.Identifier(query.schema, "schema_version"))
    try:
        row: Any = query.connection.execute(statement).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return NEWEST  # the check of privileges reports it; nothing will be made here
    except psycopg.Error as problem:
        raise translate_error(problem, query.place) from problem
    return 0 if row is None else int(row[0])


@check("schema", advice_of)
def check_schema(query: ServerQuery, version: int) -> Check:
    """That the tables are there, in a version that this Holdfast can use."""
    if version == 0:
        return ok(f"no tables in the schema {query.schema} yet; the first opening makes them")
    if version > NEWEST:
        fix = f"upgrade with: {upgrade_command()}"
        return fail(f"version {version}, and this Holdfast knows up to {NEWEST}", fix)
    if version < NEWEST:
        return warn(f"version {version} in the schema {query.schema}, to be brought to {NEWEST}", ADVICE["open_once"])
    there = query.tables()
    if missing := sorted(ALL_TABLES - there):
        return fail(f"tables are missing: {', '.join(missing)}", "restore a backup")
    return ok(f"version {version} in the schema {query.schema} (this Holdfast knows up to {NEWEST})")


@check("foreign_tables", advice_of)
def check_foreign_tables(query: ServerQuery, version: int) -> Check:
    """That other applications keep out of the schema, and that the schema hides none of their tables from them."""
    there = query.tables()
    if version == 0 and (taken := sorted(there & ALL_TABLES)):
        found = f"another application has tables of Holdfast's names in the schema {query.schema}: {', '.join(taken)}"
        return fail(found, "name another schema in HOLDFAST_URL: ?options=-csearch_path%3Dmemory")
    if foreign := sorted(there - ALL_TABLES - {COPYING}):  # which holdfast migrate makes, and removes
        found = f"the schema {query.schema} has tables that are not Holdfast's: {', '.join(foreign)}"
        return warn(found, ADVICE["foreign_tables"])
    user, *_ = query.row("role", quoted(query.schema))
    namesakes = [str(name) for (name,) in query.rows("namesakes", query.schema, sorted(ALL_TABLES))]
    if user == query.schema and namesakes:
        found = f"applications that log in as {user} find Holdfast's tables in place of {', '.join(namesakes)}"
        fix = f"let them log in as another role, or run: ALTER ROLE {quoted(user)} SET search_path = public"
        return warn(found, fix)
    return ok(f"the schema {query.schema} has no table of another application")


@check("privileges", advice_of)
def check_privileges(query: ServerQuery, version: int) -> Check:
    """That this user may do what is needed, and not everything."""
    user, is_super, may_create, owns = query.row("role", quoted(query.schema))
    if version == 0 and not may_create:
        name = quoted(query.connection.info.dbname)
        fix = f"GRANT CREATE ON DATABASE {name} TO {quoted(user)}, or let another user open it once: {_OPEN}"
        return fail(f"{user} may not make the schema {query.schema}", fix)
    missing = [str(what) for (what,) in query.rows("missing", quoted(query.schema))]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return fail(f"{user} lacks {', '.join(missing[:3])}{more}", _grants(query.schema, user))
    if version < NEWEST and not owns:
        return fail(f"{user} may not bring the tables up to date", ADVICE["open_once"])
    if is_super:
        return warn(f"{user} is a superuser, and may do everything on this server", ADVICE["superuser"])
    return ok(f"{user} may {'read, write and change' if owns else 'read and write'} the tables")


def _grants(schema: str, user: str) -> str:
    where, whom = quoted(schema), quoted(user)
    return (
        f"GRANT USAGE ON SCHEMA {where} TO {whom}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {where} TO {whom}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {where} TO {whom}"
    )


@check("distribution", advice_of)
def check_nodes(query: ServerQuery) -> Check:
    """That the tables lie where they should: all on one server, or spread by Citus."""
    (enabled,) = query.row("citus_version")
    wanted = query.settings.distribute
    if enabled is None:
        if wanted:
            return fail("HOLDFAST_DISTRIBUTE is set, and Citus is not enabled here", ADVICE["citus_missing"])
        return ok("one server")
    spread = {str(name): bool(by_column) for name, by_column in query.rows("distributed", quoted(query.schema))}
    nodes, coordinator = query.row("nodes")
    if not coordinator:
        return fail(f"a worker of a Citus {enabled} cluster", ADVICE["citus_worker"])
    found = judge_nodes(enabled, nodes, spread, wanted=wanted)
    if found.status == "ok" and spread:
        try:
            query.try_recall()
        except StorageError as problem:
            return fail(f"Citus {enabled} refuses what a recall asks: {problem}", ADVICE["citus_recall"])
    return found


def judge_nodes(enabled: str, nodes: int, spread: dict[str, bool], *, wanted: bool) -> Check:
    """What it means that these tables are spread: by a column (``True``), or whole on every node."""
    cluster = f"Citus {enabled}, {nodes} node{'s' if nodes != 1 else ''} with shards"
    if not spread:
        found = f"{cluster}; all tables are on the coordinator"
        if not wanted:
            return ok(f"{found} (HOLDFAST_DISTRIBUTE=yes would spread them)")
        return warn(found, f"spread them by opening it once as the owner of its tables: {_OPEN}")
    expected = dict.fromkeys(BY_SUBJECT, True) | dict.fromkeys(EVERYWHERE, False)
    if left := sorted(name for name, by_subject in expected.items() if spread.get(name) is not by_subject):
        fix = f"set HOLDFAST_DISTRIBUTE=yes and open it once as the owner of its tables: {_OPEN}"
        return fail(f"{cluster}; not spread as they should be: {', '.join(left)}", fix)
    return ok(f"{cluster}; {len(BY_SUBJECT)} tables by subject, {len(EVERYWHERE)} whole on every node")
