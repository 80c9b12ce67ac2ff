"""The users of a tenant can be listed, page by page."""

from __future__ import annotations

import re

import pytest
from psycopg import RawCursor

from holdfast import Holdfast, InvalidInputError, InvalidScopeError
from holdfast.storage.postgres.transactions import PostgresTransaction
from holdfast.storage.relational.database import statements
from holdfast.storage.sqlite.transactions import SqliteTransaction


def test_users_are_listed_with_how_much_is_kept_of_each_and_when_they_were_last_active(holdfast: Holdfast) -> None:
    ann = holdfast.manager("ann", "helper", "s1")
    ann.add("Ann likes tea", "long_term")
    ann.add("Speak plainly", "persona")
    ann.short_term.add_message("user", "Hello")
    ann.add("only in the process", "working")
    bob = holdfast.manager("bob", "helper")
    binned = bob.add("Bob likes coffee", "long_term")["memory_id"]
    bob.delete(binned)
    holdfast.manager("cem", "helper").add("not kept", "working")
    holdfast.of_tenant("acme").manager("eve", "helper").add("of another tenant", "long_term")

    first, second = holdfast.users()

    assert first == {
        "user_id": "ann",
        "memories": 2,
        "kinds": {"long_term": 1, "persona": 1},
        "sessions": 1,
        "last_active_at": first["last_active_at"],
    }
    assert (second["user_id"], second["memories"], second["sessions"]) == ("bob", 0, 0)
    holdfast.erase_user("bob")
    assert [user["user_id"] for user in holdfast.users()] == ["ann"]


def test_the_next_page_of_users_begins_after_the_last_one(holdfast: Holdfast) -> None:
    for name in ("a", "b", "c"):
        holdfast.manager(name, "helper").add("something", "long_term")
    assert [user["user_id"] for user in holdfast.users(limit=2)] == ["a", "b"]
    assert [user["user_id"] for user in holdfast.users(after="b", limit=2)] == ["c"]
    with pytest.raises(InvalidInputError):
        holdfast.users(limit=0)
    with pytest.raises(InvalidScopeError):
        holdfast.users(after="")


def test_a_page_of_users_is_read_through_indexes_alone(holdfast: Holdfast) -> None:
    page = ("default/", "default0", 10)
    with holdfast.database.read() as tx:
        if isinstance(tx, SqliteTransaction):
            query = statements("holdfast.storage.sqlite")["subjects.users"]
            plan = [str(row[3]) for row in tx.connection.execute(f"EXPLAIN QUERY PLAN {query}", page)]
        else:
            assert isinstance(tx, PostgresTransaction)
            cursor = RawCursor(tx.connection)
            cursor.execute("SET LOCAL enable_seqscan = off")  # small tables are read whole otherwise
            query = statements("holdfast.storage.postgres")["subjects.users"]
            plan = [str(row[0]) for row in cursor.execute(f"EXPLAIN {query}".encode(), page)]
    assert len(plan) > 5
    whole = [step for step in plan if re.search(r"Seq Scan|^SCAN (?!page|counts)", step)]
    assert whole == [], plan
