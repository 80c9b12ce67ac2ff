"""What of a PostgreSQL server a store depends on: its version, clock, disk, connections, transactions, vacuum."""

from __future__ import annotations

import time
from ipaddress import ip_address
from typing import Final

from holdfast.core.times import SECOND
from holdfast.core.types import MIB
from holdfast.health.checks import Check, failed, ok, since, warned
from holdfast.health.server_query import Asking
from holdfast.lifecycle.schedule.leadership import LEASE_TTL
from holdfast.storage.postgres.connect import quoted

_OLDEST: Final = 15
#: From here on a clock's difference eats into the lease of whoever sweeps.
_APART: Final = 1 * SECOND
_STANDING_SECONDS: Final = 60.0
#: Half of the numbers that transactions have before the server stops to protect them.
_OLD_NUMBERS: Final = 1_000_000_000


def look_at_server(asking: Asking) -> Check:
    """Who answers, how fast, and whether anyone can listen."""
    version, number, encoding, size = asking.row("server")
    watch = time.perf_counter()
    asking.row("now")
    took = since(watch)
    secret, exposed = _transport(asking)
    found = f"{asking.place}: PostgreSQL {version}, {size / MIB:,.1f} MiB, answers in {took:.1f} ms, {secret}"
    if number // 10_000 < _OLDEST:
        return failed("store", found, f"upgrade the server: Holdfast needs PostgreSQL {_OLDEST} or newer")
    if encoding != "UTF8":
        fix = "create the database with ENCODING 'UTF8' TEMPLATE template0: no other keeps every text"
        return failed("store", f"{found}, encoding {encoding}", fix)
    if exposed:
        return warned("store", found, "add ?sslmode=verify-full (and sslrootcert=…) to HOLDFAST_URL: anyone can listen")
    return ok("store", found)


def _transport(asking: Asking) -> tuple[str, bool]:
    """How what is sent travels, and whether it does so in clear through a network that is not private."""
    if asking.connection.pgconn.ssl_in_use:
        return "encrypted", False
    address = asking.connection.info.hostaddr
    if not address or ip_address(address).is_loopback:
        return "on this machine", False
    return "not encrypted", ip_address(address).is_global


def look_at_writing(asking: Asking) -> Check:
    """That it is the primary, and takes writes."""
    standby, read_only, standbys = asking.row("writable")
    if standby:
        fix = "name the primary in HOLDFAST_URL (of several hosts, ?target_session_attrs=read-write finds it)"
        return failed("writable", "a standby, which can only be read", fix)
    if read_only:
        fix = "turn default_transaction_read_only off for this user and database"
        return failed("writable", "transactions are read-only here", fix)
    return ok("writable", f"the primary; {standbys or 'no'} standby{'s' if standbys > 1 else ''} connected to it")


def look_at_clock(asking: Asking) -> Check:
    """How far the server's clock is from this machine's. The best of some attempts: the network is part of each."""
    attempts = []
    for _ in range(3):
        before = time.time_ns() // 1_000
        (there,) = asking.row("now")
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
        return failed("server_clock", found, fix)
    if abs(apart) - doubt > _APART:
        return warned("server_clock", found, fix)
    return ok("server_clock", found)


def look_at_durability(asking: Asking) -> Check:
    """That what was committed is on the disk."""
    off = [str(name) for (name,) in asking.rows("durability")]
    if off:
        fix = f"turn {' and '.join(off)} on: a crash of the server can lose what was said to be stored"
        return warned("durability", f"off: {', '.join(off)}", fix)
    return ok("durability", "a commit waits for the server's disk")


def look_at_connections(asking: Asking, pool_size: int) -> Check:
    """That a full pool of this process fits beside what is connected now."""
    total, *limits, used = asking.row("connections")
    return judge_connections([total, *(limit for limit in limits if limit >= 0)], used - 1, pool_size)


def judge_connections(limits: list[int], used: int, pool_size: int) -> Check:
    """What limits mean that are the server's, the role's and the database's."""
    most = min(limits)
    found = f"{most} are allowed, {used} in use; each process takes up to {pool_size}"
    if pool_size > most:
        return failed("connections", found, f"set HOLDFAST_POOL_SIZE to less than {most}, or raise max_connections")
    if used + pool_size > most:
        fix = "lower HOLDFAST_POOL_SIZE, raise max_connections, or put PgBouncer between them"
        return warned("connections", found, fix)
    return ok("connections", found)


def look_at_transactions(asking: Asking, longer_than: float = _STANDING_SECONDS) -> Check:
    """That nobody keeps a transaction open: what is deleted cannot be cleared away meanwhile."""
    standing = asking.rows("standing", longer_than)
    (sees_all,) = asking.row("sees_all")
    if standing:
        who, seconds = standing[0]
        more = f", and {len(standing) - 1} more" if len(standing) > 1 else ""
        fix = "end it (pg_terminate_backend, ROLLBACK PREPARED): until then nothing that is deleted can be cleared away"
        return warned("transactions", f"{who} has stood still for {seconds:,.0f} s in a transaction{more}", fix)
    others = "" if sees_all else " (only this user's can be seen; GRANT pg_read_all_stats shows all)"
    return ok("transactions", f"none stands still for over {longer_than:.0f} s{others}")


def look_at_vacuum(asking: Asking, schema: str) -> Check:
    """That the server clears away what was deleted."""
    on, age, without = asking.row("autovacuum", quoted(schema))
    fix = "turn autovacuum and track_counts on: without them what is deleted stays in the tables' files"
    if not on:
        return warned("autovacuum", "off", fix)
    if without:
        return warned("autovacuum", f"off for {', '.join(without)}", f"ALTER TABLE … RESET (autovacuum_enabled); {fix}")
    if age > _OLD_NUMBERS:
        fix = "VACUUM (FREEZE) the database, and find what holds vacuum back: see transactions"
        return warned("autovacuum", f"on, but {age:,} transactions behind", fix)
    return ok("autovacuum", f"on, {age:,} transactions since everything was last looked at")
