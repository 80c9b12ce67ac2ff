"""The store in a PostgreSQL database: tables, what the user may do with them, and where they lie."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql

from holdfast.health.checks import Check, failed, ok, warned
from holdfast.health.server_query import Asking
from holdfast.installation import upgrade_command
from holdfast.storage.catalog import COPYING
from holdfast.storage.postgres.citus import ALL_TABLES, BY_SUBJECT, EVERYWHERE
from holdfast.storage.postgres.connect import quoted
from holdfast.storage.postgres.errors import in_our_words
from holdfast.storage.postgres.transactions import PACKAGE
from holdfast.storage.relational.database import migrations

NEWEST: Final = migrations(PACKAGE)[-1][0]
#: Any command that opens the store brings it up to date; this one does nothing else.
_OPEN: Final = "holdfast schedule list"


def version_of(asking: Asking, schema: str) -> int:
    """The version of the tables; 0 if there are none, or this user may not look."""
    tables = {str(name) for (name,) in asking.rows("tables", quoted(schema))}
    if "schema_version" not in tables:
        return 0
    statement = sql.SQL("SELECT version FROM {}").format(sql.Identifier(schema, "schema_version"))
    try:
        row: Any = asking.connection.execute(statement).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return NEWEST  # told by the check of privileges; nothing will be made here
    except psycopg.Error as problem:
        raise in_our_words(problem, asking.place) from problem
    return 0 if row is None else int(row[0])


def look_at_schema(asking: Asking, schema: str, version: int) -> Check:
    """That the tables are there, in a version that this Holdfast can use."""
    if version == 0:
        return ok("schema", f"no tables in the schema {schema} yet; the first opening makes them")
    if version > NEWEST:
        fix = f"upgrade with: {upgrade_command()}"
        return failed("schema", f"version {version}, and this Holdfast knows up to {NEWEST}", fix)
    if version < NEWEST:
        fix = f"open it once as the owner of its tables: {_OPEN}"
        return warned("schema", f"version {version} in the schema {schema}, to be brought to {NEWEST}", fix)
    there = {str(name) for (name,) in asking.rows("tables", quoted(schema))}
    if missing := sorted(ALL_TABLES - there):
        return failed("schema", f"tables are missing: {', '.join(missing)}", "restore a backup")
    return ok("schema", f"version {version} in the schema {schema} (this Holdfast knows up to {NEWEST})")


def look_at_foreign_tables(asking: Asking, schema: str, version: int) -> Check:
    """That other applications keep out of the schema, and that the schema hides none of their tables from them."""
    there = {str(name) for (name,) in asking.rows("tables", quoted(schema))}
    if version == 0 and (taken := sorted(there & ALL_TABLES)):
        found = f"another application has tables of Holdfast's names in the schema {schema}: {', '.join(taken)}"
        return failed("foreign_tables", found, "name another schema in HOLDFAST_URL: ?options=-csearch_path%3Dmemory")
    if foreign := sorted(there - ALL_TABLES - {COPYING}):  # which holdfast migrate makes, and removes
        found = f"the schema {schema} has tables that are not Holdfast's: {', '.join(foreign)}"
        fix = (
            "move them with ALTER TABLE … SET SCHEMA public: Holdfast does not back them up, export them or erase them"
        )
        return warned("foreign_tables", found, fix)
    user, *_ = asking.row("role", quoted(schema))
    namesakes = [str(name) for (name,) in asking.rows("namesakes", schema, sorted(ALL_TABLES))]
    if user == schema and namesakes:
        found = f"applications that log in as {user} find Holdfast's tables in place of {', '.join(namesakes)}"
        fix = f"let them log in as another role, or run: ALTER ROLE {quoted(user)} SET search_path = public"
        return warned("foreign_tables", found, fix)
    return ok("foreign_tables", f"the schema {schema} has no table of another application")


def look_at_privileges(asking: Asking, schema: str, version: int) -> Check:
    """That this user may do what is needed, and not everything."""
    user, is_super, may_create, owns = asking.row("role", quoted(schema))
    if version == 0 and not may_create:
        name = quoted(asking.connection.info.dbname)
        fix = f"GRANT CREATE ON DATABASE {name} TO {quoted(user)}, or let another user open it once: {_OPEN}"
        return failed("privileges", f"{user} may not make the schema {schema}", fix)
    missing = [str(what) for (what,) in asking.rows("missing", quoted(schema))]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return failed("privileges", f"{user} lacks {', '.join(missing[:3])}{more}", _grants(schema, user))
    if version < NEWEST and not owns:
        fix = f"open it once as the owner of its tables: {_OPEN}"
        return failed("privileges", f"{user} may not bring the tables up to date", fix)
    if is_super:
        fix = "let Holdfast be a user of its own that is no superuser: see docs/howto/deploy.md"
        return warned("privileges", f"{user} is a superuser, and may do everything on this server", fix)
    return ok("privileges", f"{user} may {'read, write and change' if owns else 'read and write'} the tables")


def _grants(schema: str, user: str) -> str:
    where, whom = quoted(schema), quoted(user)
    return (
        f"GRANT USAGE ON SCHEMA {where} TO {whom}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {where} TO {whom}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {where} TO {whom}"
    )


def look_at_nodes(asking: Asking, schema: str, *, wanted: bool) -> Check:
    """That the tables lie where they should: all on one server, or spread by Citus."""
    (enabled,) = asking.row("citus_version")
    if enabled is None:
        if wanted:
            fix = "run CREATE EXTENSION citus in this database, on every node; or leave HOLDFAST_DISTRIBUTE out"
            return failed("distribution", "HOLDFAST_DISTRIBUTE is set, and Citus is not enabled here", fix)
        return ok("distribution", "one server")
    spread = {str(name): bool(by_column) for name, by_column in asking.rows("distributed", quoted(schema))}
    nodes, coordinator = asking.row("nodes")
    if not coordinator:
        fix = "name the coordinator in HOLDFAST_URL: locks that all processes must share are taken there"
        return failed("distribution", f"a worker of a Citus {enabled} cluster", fix)
    return judge_nodes(enabled, nodes, spread, wanted=wanted)


def judge_nodes(enabled: str, nodes: int, spread: dict[str, bool], *, wanted: bool) -> Check:
    """What it means that these tables are spread: by a column (``True``), or whole on every node."""
    cluster = f"Citus {enabled}, {nodes} node{'s' if nodes != 1 else ''} with shards"
    if not spread:
        found = f"{cluster}; all tables are on the coordinator"
        if not wanted:
            return ok("distribution", f"{found} (HOLDFAST_DISTRIBUTE=yes would spread them)")
        return warned("distribution", found, f"spread them by opening it once as the owner of its tables: {_OPEN}")
    expected = dict.fromkeys(BY_SUBJECT, True) | dict.fromkeys(EVERYWHERE, False)
    if left := sorted(name for name, by_subject in expected.items() if spread.get(name) is not by_subject):
        fix = f"set HOLDFAST_DISTRIBUTE=yes and open it once as the owner of its tables: {_OPEN}"
        return failed("distribution", f"{cluster}; not spread as they should be: {', '.join(left)}", fix)
    return ok("distribution", f"{cluster}; {len(BY_SUBJECT)} tables by subject, {len(EVERYWHERE)} whole on every node")
