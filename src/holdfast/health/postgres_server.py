"""What of a PostgreSQL server a store depends on: its version, clock, disk, connections, transactions, vacuum."""

from __future__ import annotations

import time
from ipaddress import ip_address
from typing import Any, Final

import psycopg
from psycopg import RawCursor
from psycopg.rows import tuple_row

from holdfast.core.records import MIB
from holdfast.core.times import SECOND
from holdfast.health.checks import Check, elapsed_ms, fail, ok, warn
from holdfast.lifecycle.schedule.leadership import LEASE_TTL
from holdfast.settings import Settings
from holdfast.storage.postgres.connect import quoted
from holdfast.storage.postgres.errors import in_our_words
from holdfast.storage.relational.database import statements

_SQL: Final = statements("holdfast.health")
_OLDEST: Final = 15
#: From here on a clock's difference eats into the lease of whoever sweeps.
_APART: Final = 1 * SECOND
_STANDING_SECONDS: Final = 60.0
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
            raise in_our_words(problem, self.place) from problem

    def row(self, name: str, *bindings: Any) -> tuple[Any, ...]:
        """The one row of such a statement."""
        (row,) = self.rows(name, *bindings)
        return row

    def tables(self) -> set[str]:
        """The names of the tables in the store's schema."""
        return {str(name) for (name,) in self.rows("tables", quoted(self.schema))}


def check_server(query: ServerQuery) -> Check:
    """Who answers, how fast, and whether anyone can listen."""
    version, number, encoding, size = query.row("server")
    watch = time.perf_counter()
    query.row("now")
    took = elapsed_ms(watch)
    secret, exposed = _transport(query)
    found = f"{query.place}: PostgreSQL {version}, {size / MIB:,.1f} MiB, answers in {took:.1f} ms, {secret}"
    if number // 10_000 < _OLDEST:
        return fail("store", found, f"upgrade the server: Holdfast needs PostgreSQL {_OLDEST} or newer")
    if encoding != "UTF8":
        fix = "create the database with ENCODING 'UTF8' TEMPLATE template0: no other keeps every text"
        return fail("store", f"{found}, encoding {encoding}", fix)
    if exposed:
        return warn("store", found, "add ?sslmode=verify-full (and sslrootcert=…) to HOLDFAST_URL: anyone can listen")
    return ok("store", found)


def _transport(query: ServerQuery) -> tuple[str, bool]:
    """How what is sent travels, and whether it does so in clear through a network that is not private."""
    if query.connection.pgconn.ssl_in_use:
        return "encrypted", False
    address = query.connection.info.hostaddr
    if not address or ip_address(address).is_loopback:
        return "on this machine", False
    return "not encrypted", ip_address(address).is_global


def check_writing(query: ServerQuery) -> Check:
    """That it is the primary, and takes writes."""
    standby, read_only, standbys = query.row("writable")
    if standby:
        fix = "name the primary in HOLDFAST_URL (of several hosts, ?target_session_attrs=read-write finds it)"
        return fail("writable", "a standby, which can only be read", fix)
    if read_only:
        fix = "turn default_transaction_read_only off for this user and database"
        return fail("writable", "transactions are read-only here", fix)
    return ok("writable", f"the primary; {standbys or 'no'} standby{'s' if standbys > 1 else ''} connected to it")


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
    fix = "set both clocks by NTP: when a lease ends, what is due and what has expired depend on them"
    if abs(apart) - doubt >= LEASE_TTL:
        return fail("server_clock", found, fix)
    if abs(apart) - doubt > _APART:
        return warn("server_clock", found, fix)
    return ok("server_clock", found)


def check_durability(query: ServerQuery) -> Check:
    """That what was committed is on the disk."""
    off = [str(name) for (name,) in query.rows("durability")]
    if off:
        fix = f"turn {' and '.join(off)} on: a crash of the server can lose what was said to be stored"
        return warn("durability", f"off: {', '.join(off)}", fix)
    return ok("durability", "a commit waits for the server's disk")


def check_connections(query: ServerQuery) -> Check:
    """That a full pool of this process fits beside what is connected now."""
    total, *limits, used = query.row("connections")
    return judge_connections([total, *(limit for limit in limits if limit >= 0)], used - 1, query.settings.pool_size)


def judge_connections(limits: list[int], used: int, pool_size: int) -> Check:
    """What limits mean that are the server's, the role's and the database's."""
    most = min(limits)
    found = f"{most} are allowed, {used} in use; each process takes up to {pool_size}"
    if pool_size > most:
        return fail("connections", found, f"set HOLDFAST_POOL_SIZE to less than {most}, or raise max_connections")
    if used + pool_size > most:
        fix = "lower HOLDFAST_POOL_SIZE, raise max_connections, or put PgBouncer between them"
        return warn("connections", found, fix)
    return ok("connections", found)


def check_transactions(query: ServerQuery, longer_than: float = _STANDING_SECONDS) -> Check:
    """That nobody keeps a transaction open: what is deleted cannot be cleared away meanwhile."""
    standing = query.rows("standing", longer_than)
    (sees_all,) = query.row("sees_all")
    if standing:
        who, seconds = standing[0]
        more = f", and {len(standing) - 1} more" if len(standing) > 1 else ""
        fix = "end it (pg_terminate_backend, ROLLBACK PREPARED): until then nothing that is deleted can be cleared away"
        return warn("transactions", f"{who} has stood still for {seconds:,.0f} s in a transaction{more}", fix)
    others = "" if sees_all else " (only this user's can be seen; GRANT pg_read_all_stats shows all)"
    return ok("transactions", f"none stands still for over {longer_than:.0f} s{others}")


def check_vacuum(query: ServerQuery) -> Check:
    """That the server clears away what was deleted."""
    on, age, without = query.row("autovacuum", quoted(query.schema))
    fix = "turn autovacuum and track_counts on: without them what is deleted stays in the tables' files"
    if not on:
        return warn("autovacuum", "off", fix)
    if without:
        return warn("autovacuum", f"off for {', '.join(without)}", f"ALTER TABLE … RESET (autovacuum_enabled); {fix}")
    if age > _OLD_NUMBERS:
        fix = "VACUUM (FREEZE) the database, and find what holds vacuum back: see transactions"
        return warn("autovacuum", f"on, but {age:,} transactions behind", fix)
    return ok("autovacuum", f"on, {age:,} transactions since everything was last looked at")


#: What is looked at once the server has answered, by the name of the check.
SERVER_CHECKS: Final = {
    "writable": check_writing,
    "server_clock": check_clock,
    "durability": check_durability,
    "connections": check_connections,
    "transactions": check_transactions,
    "autovacuum": check_vacuum,
}
