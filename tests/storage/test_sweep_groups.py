"""A sweep moves groups of users at the same time, where the store has several writers: on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import databases
import raw
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.records import Subject
from holdfast.core.values import DAY
from holdfast.lifecycle.sweeping import batches
from holdfast.lifecycle.sweeping.plan import Report
from holdfast.storage.postgres.transactions import STATEMENTS, PostgresTransaction
from lifecycle.soundness import check_sound


@pytest.fixture
def holdfast(tmp_path: Path, clock: FakeClock) -> Iterator[Holdfast]:
    with Holdfast.open(databases.postgres_server().new_database(), home=tmp_path, clock=clock) as holdfast:
        assert holdfast.services.records.writers > 1
        yield holdfast


def counts(holdfast: Holdfast, progress: Callable[[int], None] = lambda _count: None) -> Mapping[str, int]:
    report = holdfast.sweep(confirm=True, progress=progress)
    assert isinstance(report, Report)
    return report.counts


def test_many_users_are_swept_in_groups_and_every_record_moves_once(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FIRST", "_LEAST", "_MOST"):  # a user in each group that is archived, and parts of users in the bin
        monkeypatch.setattr(batches, name, 4)
    holdfast.policies.set("long_term", archive_after_days=10, delete_after_days=20, confirm=True)
    said: dict[str, str] = {}
    for n in range(6):
        memory = holdfast.manager(f"user_{n}", "guide")
        texts = [f"{n} takes the night train number {place} to Oslo" for place in range(3)]
        said |= dict(zip(memory.add_many(texts, "long_term")["memory_ids"], texts, strict=True))
    clock.advance(days=11)
    assert counts(holdfast)["archive"] == len(said)
    check_sound(holdfast)
    for memory_id, text in said.items():
        record = holdfast.services.records.find("default", memory_id)
        assert record is not None
        assert holdfast.services.archives.read(record).document["content"] == text
    clock.advance(days=10)
    assert counts(holdfast)["recycle"] == len(said)
    clock.advance(days=16)
    assert counts(holdfast)["delete"] == len(said)
    check_sound(holdfast)
    assert raw.rows(holdfast, "SELECT count(*) FROM records") == [(0,)]


def test_rules_that_change_while_groups_move_are_obeyed_and_what_was_done_is_counted(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FIRST", "_LEAST", "_MOST"):
        monkeypatch.setattr(batches, name, 2)
    holdfast.policies.set("long_term", archive_after_days=10, confirm=True)
    for n in range(8):
        holdfast.manager(f"user_{n}", "guide").add_many([f"fact {n}", f"more of {n}"], "long_term")
    clock.advance(days=11)

    changes = iter([100])

    def change(_count: int) -> None:
        for days in changes:
            holdfast.policies.set("long_term", user_id="user_7", archive_after_days=days, confirm=True)

    done = counts(holdfast, change)["archive"]

    assert raw.rows(holdfast, "SELECT count(*) FROM records WHERE state = 'archived'") == [(done,)]
    assert done in (14, 16), "all of them, and user_7's if they were under way"
    check_sound(holdfast)


def test_rows_that_are_left_for_later_are_written_together_and_none_twice_by_one_statement(holdfast: Holdfast) -> None:
    users = [Subject("default", f"user_{n}") for n in range(6)]
    with holdfast.database.write() as tx:
        assert isinstance(tx, PostgresTransaction)
        numbers = [tx.number_for(user) for user in users]
        for number in numbers:
            tx.later("records.count_moves", (number, "long_term", "archived", "rule", 1))
        together = len(tx._take_later())
        for number in [numbers[0], *numbers]:
            tx.later("records.count_moves", (number, "long_term", "archived", "rule", 2))
    assert together == 3, "four of them by one statement, and one by one the two that are left"
    counts = {row[0]: row[1] for row in raw.rows(holdfast, "SELECT subject, count FROM totals")}
    assert counts == dict.fromkeys(numbers, 2) | {numbers[0]: 4}


def test_what_is_overdue_is_found_by_one_look_into_an_index_however_much_it_is(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.policies.set("long_term", archive_after_days=10, confirm=True)
    holdfast.manager("ann", "guide").add_many([f"fact {n}" for n in range(200)], "long_term")
    clock.advance(days=12)
    ((kind, since),) = holdfast.services.dues.overdue_since("default", holdfast.services.now())
    assert (kind, holdfast.services.now() - since) == ("long_term", 2 * DAY)
    raw.run(holdfast, "ANALYZE records")
    statement = STATEMENTS["dues.earliest"].text.decode().replace("$1", "profile").replace("$2", "'active'")
    ((profile,),) = raw.rows(holdfast, "SELECT DISTINCT profile FROM records")
    asked = statement.replace("profile = profile", f"profile = {profile}")
    plan = "\n".join(line for (line,) in raw.rows(holdfast, f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {asked}"))
    (read,) = re.findall(r"records_due on records .*?rows=([\d.]+)", plan)
    assert float(read) == 1, plan
