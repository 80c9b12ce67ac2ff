"""Whatever is asked about one user is asked of one shard.

A cluster keeps the rows of a user on one of its nodes, and a statement that does not say whose rows it wants goes to all
of them. That needs no cluster to be seen: here the same tables lie in partitions, by the same column. PostgreSQL tells
which of them the plan of a statement has, before any row is read, and counts which of them were scanned or written, also
by statements within functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg
import pytest

import databases
from clocks import FakeClock, wait_until
from holdfast import Holdfast, MemoryManager
from holdfast.storage.postgres import connect
from holdfast.storage.postgres.connect import BY_SUBJECT
from holdfast.storage.postgres.transactions import STATEMENTS
from holdfast.storage.relational.database import Migration, migrations

PARTITIONS = 8
#: Which partitions were touched, and how often: what an index or a whole table was read, and rows written.
TOUCHED = (
    "SELECT relname, seq_scan + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd + n_tup_del "
    r"FROM pg_stat_user_tables WHERE relname ~ '_part_\d$'"
)
_PLANNED = re.compile(rb"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
#: What a sweep asks about all users, and what it changes of all of them: windows of conversations that are over.
ACROSS = {
    "dues.binned",
    "dues.census",
    "dues.due",
    "dues.session_census",
    "dues.sessions_binned",
    "dues.sessions_due",
    "figures.holdings",
    "figures.totals",
    "packs.unsettled",
    "sessions.behind",
    "sessions.end_expired",
    "sessions.messages_to_purge",
    "versions.too_many",
    "versions.too_old",
}
#: Every statement that asks about all users, or about several: all shards of a cluster are asked. By the file that has it.
ALL_USERS = {
    "audit": "all_chains last_no overdue page_of_tenant seal_heads sealed sizes tail_of_tenant time_at",
    "dues": (
        "ages bin_by_day bin_census bin_of_sessions binned by_day census census_of_agents counts due "
        "earliest earliest_binned earliest_session live_of_agent session_census session_shares "
        "sessions_binned sessions_by_day sessions_due shares"
    ),
    "figures": (
        "bin_ends due_in_bin due_sessions due_to_archive due_to_recycle held_rows held_sessions holdings "
        "sessions totals users"
    ),
    "packs": "oldest unsettled",
    "records": "bin_of_tenant bundled find of_agent of_source",
    "registry": (
        "bundle_left bundled_records bundled_sessions own_records own_sessions staying_records staying_sessions"
    ),
    "restore": "message_anywhere session_anywhere",
    "sessions": (
        "behind binned_messages count_behind end_expired end_windows_of_agent follow_anew known "
        "known_to_parts messages_to_purge owners sessions_to_summarize some unnoted"
    ),
    "subjects": "sessions_of_others users",
    "versions": "newly_due too_many too_old",
}
ME, BOT, TALK = "ann", "travel_agent", "sess_1"


def partitioned(package: str) -> list[Migration]:
    """The schema, with every table of users in partitions by the user."""
    return [one._replace(script=_partition(one.script)) for one in migrations(package)]


def _partition(schema: str) -> str:
    for table in BY_SUBJECT:
        parts = "\n".join(
            f"CREATE TABLE {table}_part_{n} PARTITION OF {table} FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {n});"
            for n in range(PARTITIONS)
        )
        whole = re.compile(rf"(CREATE TABLE {table} \(.*?\n\))[^;]*;", re.DOTALL)
        schema, found = whole.subn(rf"\1 PARTITION BY HASH (subject);\n{parts}", schema)
        assert found == 1, table
    return schema


class Store(NamedTuple):
    """A store whose tables are partitioned, with something of a few users in it."""

    home: Path
    clock: FakeClock
    connection: psycopg.Connection[Any]

    def open(self) -> Holdfast:
        return Holdfast.open(home=self.home, clock=self.clock)

    def touched(self) -> dict[str, int]:
        """How often each partition was touched, once every connection has ended and told."""
        wait_until(
            lambda: (
                not self.read(
                    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            )
        )
        return dict(self.read(TOUCHED))

    def partitions(self, *subjects: str) -> set[str]:
        """The partitions that the rows of some subjects lie in."""
        found = self.read("SELECT no FROM holdfast.subjects WHERE subject = ANY(%s)", list(subjects))
        where = "SELECT right(tableoid::regclass::text, 1) FROM holdfast.subject_locks WHERE subject = %s"
        return {self.read(where, number)[0][0] for (number,) in found}

    def partitions_of(self, text: bytes, values: Any) -> set[str]:
        """The partitions that the plan of a statement has, of whichever tables."""
        cursor = psycopg.RawCursor(self.connection)
        ((plan,),) = cursor.execute(b"EXPLAIN (FORMAT JSON) " + text, values, prepare=False).fetchall()
        return set(re.findall(r"_part_(\d)\b", str(plan)))

    def read(self, statement: LiteralString, *about: object) -> list[Any]:
        return self.connection.execute(statement, about).fetchall()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    url = databases.postgres_server().new_database()
    home = tmp_path_factory.mktemp("routing")
    (home / "holdfast.toml").write_text(f'url = "{url}"\n')
    with pytest.MonkeyPatch.context() as patch, closing(psycopg.connect(url, autocommit=True)) as connection:
        patch.setattr(connect, "migrations", partitioned)
        store = Store(home, FakeClock(), connection)
        with store.open() as holdfast:
            for user in (ME, "ben", "cleo", "dan", "eve"):
                memory = holdfast.manager(user, BOT, TALK)
                memory.add_many(["likes the window seat", "takes the train to Lyon"], "long_term")
                memory.add("lives in Paris", "long_term", key="home_city")
                memory.short_term.add_message("user", "hello")
        yield store


def change(memory: MemoryManager, _holdfast: Holdfast) -> None:
    made = memory.add("lives in Lyon", "long_term", key="home_city")["memory_id"]
    memory.correct(made, "lives in Turin", reason="moved again")
    memory.update(made, metadata={"topic": "home"})
    memory.revert(made, to=1)
    assert [one["content"] for one in memory.history(made)][-1] == "lives in Paris"
    assert memory.get(made)["content"] == "lives in Paris"
    assert memory.explain(made)["state"] == "active"


def change_often(memory: MemoryManager, _holdfast: Holdfast) -> None:
    for number in range(8):  # often enough for plans that are kept, and for writes that do not ask
        memory.add(f"lives at number {number}", "long_term", key="home_address")
        memory.add("likes the window seat", "long_term", dedupe=True)
    assert memory.history(key="home_address")[-1]["version"] == 8


def remove(memory: MemoryManager, _holdfast: Holdfast) -> None:
    made = memory.add("drinks tea", "persona")["memory_id"]
    memory.delete(made)
    memory.restore(made)
    memory.delete(made, keep_out=True)
    assert memory.add("drinks tea", "persona")["operation"] == "kept_out"


def add_each_kind(memory: MemoryManager, _holdfast: Holdfast) -> None:
    memory.add("speaks slowly", "persona", dedupe=True, similar=3)
    memory.add("Ann is a friend of Ben", "entity", {"name": "Ann"})
    memory.structured.put("settings", {"theme": "dark"})
    episode = memory.episodic.record_episode("book a train", ["search", "pay"])
    assert memory.episodic.query_similar_episodes("train")[0]["episode_id"] == episode
    memory.short_term.add_message("assistant", "good morning")
    assert len(memory.short_term.get_conversation_history()) >= 1


def recall(memory: MemoryManager, _holdfast: Holdfast) -> None:
    for _ in range(8):  # often enough for plans that are kept
        assert memory.retrieve("which seat?")[0]["content"] == "likes the window seat"
    memory.add("rides a bicycle", "long_term")  # an index that is open follows
    memory.retrieve("bicycle", "all")
    memory.retrieve("bicycle", include_archived=True)
    memory.retrieve("seat", as_of="2030-01-01T00:00:00Z")
    assert memory.context("which seat?").memories
    assert memory.conflicts() == []


def look(memory: MemoryManager, holdfast: Holdfast) -> None:
    assert memory.count_memories("long_term")
    assert holdfast.quotas.get("long_term", ME)
    assert holdfast.export_user(ME)["memories"]["long_term"]


def erase(memory: MemoryManager, holdfast: Holdfast) -> None:
    memory.add("to be forgotten", "long_term")
    assert holdfast.erase_user(ME).certificate


VERBS: list[Callable[[MemoryManager, Holdfast], None]] = [
    *(add_each_kind, change, change_often, recall, remove, look, erase)
]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, Any]:
    """The statements that are sent, each with the values that it was first sent with."""
    statements: dict[bytes, Any] = {}
    execute = psycopg.RawCursor.execute

    def note(cursor: Any, text: Any, values: Any = None, **options: Any) -> Any:
        statements.setdefault(text.partition(b" CURSOR FOR ")[2] or text, values)
        return execute(cursor, text, values, **options)

    monkeypatch.setattr(psycopg.RawCursor, "execute", note)
    return statements


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_what_concerns_one_user_is_asked_of_one_partition(
    store: Store, sent: dict[bytes, Any], verb: Callable[[MemoryManager, Holdfast], None]
) -> None:
    mine = store.partitions(f"default/{ME}")
    before = store.touched()
    with store.open() as holdfast:
        sent.clear()
        verb(holdfast.manager(ME, BOT, TALK), holdfast)
        plans = {text: store.partitions_of(text, values) for text, values in list(sent.items()) if _PLANNED.match(text)}
    after = store.touched()
    mine |= store.partitions("default/")  # the tenant's own chain tells of an erasure, too

    assert {text: found for text, found in plans.items() if len(found) > 1} == {}
    assert any(plans.values()), "no statement was looked at"
    touched = {name for name in after if after[name] > before[name]}
    assert touched, "nothing was counted"
    assert {name for name in touched if name[-1] not in mine} == set()


def test_a_sweep_of_many_users_changes_and_locks_each_by_statements_of_its_own(
    store: Store, sent: dict[bytes, Any]
) -> None:
    with store.open() as holdfast:
        holdfast.policies.set("long_term", archive_after_days=10, delete_after_days=20, confirm=True)
        sent.clear()
        done = []
        for _ in range(3):  # archived, sent to the bin, deleted for good
            store.clock.advance(days=16)
            done.append(holdfast.sweep(confirm=True).counts)
        plans = {text: store.partitions_of(text, values) for text, values in list(sent.items()) if _PLANNED.match(text)}

    assert all(any(counts[action] >= 4 for counts in done) for action in ("archive", "recycle", "delete")), done
    names = {statement.text: name for name, statement in STATEMENTS.items()}
    assert {names[text] for text, found in plans.items() if len(found) > 1} == ACROSS
    locking = [name for name in ACROSS if b" FOR " in STATEMENTS[name].text.upper()]
    assert locking == []


def test_metrics_ask_all_users_once_and_for_ages_twice_a_minute(store: Store, sent: dict[bytes, Any]) -> None:
    names = {statement.text: name for name, statement in STATEMENTS.items()}
    asked = []
    with store.open() as holdfast:
        for _ in range(2):
            sent.clear()
            assert b"memory_count" in holdfast.metrics()
            looked = [(text, values) for text, values in sent.items() if _PLANNED.match(text)]
            plans = {text: store.partitions_of(text, values) for text, values in looked}
            asked.append({names[text] for text, found in plans.items() if len(found) > 1})
    assert asked == [{"dues.counts", "dues.ages"}, {"dues.counts"}]


#: A value of each type that a parameter may have; of numbers it is 1.
SAMPLES = {"boolean": "true", "text": "'[]'", "bytea": r"'\x00'", "jsonb": "'[]'"}


def plan_with_samples(store: Store, text: str) -> set[str]:
    """The partitions that the plan of a statement has, whatever it is asked with."""
    try:
        store.connection.execute(f"PREPARE looked AS {text}".encode())
        ((types,),) = store.read("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'looked'")
        values = ", ".join("'{}'" if one.endswith("[]") else SAMPLES.get(one, "1") for one in types)
        call = f"EXECUTE looked({values})" if values else "EXECUTE looked"
        ((plan,),) = store.connection.execute(f"EXPLAIN (FORMAT JSON) {call}".encode()).fetchall()
    finally:
        store.connection.execute("DEALLOCATE looked")
    return set(re.findall(r"_part_(\d)\b", str(plan)))


def test_a_statement_asks_about_one_user_or_is_listed(store: Store) -> None:
    store.connection.execute("SET plan_cache_mode = force_generic_plan")
    texts = {name: one.text.decode() for name, one in STATEMENTS.items() if name.partition(".")[2].islower()}
    found = {name for name, text in texts.items() if len(plan_with_samples(store, text)) > 1}
    assert found == {f"{area}.{name}" for area, listed in ALL_USERS.items() for name in listed.split()}
