"""A tenant at a glance: counted as it is, whoever did what to it and however."""

from __future__ import annotations

from collections import Counter
from typing import Any

import raw
from clocks import FakeClock
from holdfast import Holdfast
from lifecycle.soundness import check_counts


def kept(overview: Any) -> dict[tuple[str, str], tuple[int, int]]:
    rows = {(row["memory_type"], row["state"]): (row["memories"], row["bytes"]) for row in overview["kept"]}
    return {key: counts for key, counts in rows.items() if counts != (0, 0)}


def there(holdfast: Holdfast) -> dict[tuple[str, str], tuple[int, int]]:
    """The same, by looking at every memory of everyone."""
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for user in holdfast.users():
        page, _ = holdfast.memories.page(user["user_id"], limit=1_000)
        for one in page:
            counts[one["memory_type"], one["state"]] += 1
            sizes[one["memory_type"], one["state"]] += one["bytes"]
    return {key: (counts[key], sizes[key]) for key in counts}


def test_what_is_kept_is_counted_by_kind_and_state_through_everything_that_moves_it(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    ann, ben = holdfast.manager("ann", "guide"), holdfast.manager("ben", "guide")
    ids = [ann.add(f"Ann note {number}")["memory_id"] for number in range(12)]
    episode = ann.episodic.record_episode("Book a train", ["looked", "booked"] * 20)
    ben.add("I am Ben's guide.", "persona")
    ben.add("Ben note")
    ann.delete(ids[0])
    ann.correct(ids[1], "Ann note, longer than it was before")
    assert kept(holdfast.overview()) == there(holdfast)
    assert holdfast.overview()["users"] == 2
    clock.advance(days=91)
    holdfast.sweep(confirm=True)
    assert kept(holdfast.overview())["episodic", "archived"][0] == 1
    clock.advance(days=300)
    holdfast.sweep(confirm=True)  # ten or more alike go in one statement, and to cold storage
    assert kept(holdfast.overview())["long_term", "archived"][0] == 12
    ann.rehydrate(ids[2])
    ann.correct(ids[3], "Ann note, changed from cold storage")
    ann.delete(ids[4])
    ann.restore(ids[4])
    ann.delete_user_memories("ann")
    assert kept(holdfast.overview()) == there(holdfast)
    check_counts(holdfast)
    clock.advance(days=16)
    holdfast.sweep(confirm=True)
    overview = holdfast.overview()
    assert kept(overview) == there(holdfast)
    assert overview["bin"]["memories"] == 0
    assert episode not in str(overview)
    check_counts(holdfast)
    holdfast.erase_user("ben")
    assert kept(holdfast.overview()) == {}
    assert holdfast.overview()["users"] == 0


def test_what_is_overdue_and_what_the_next_sweep_finds_is_counted(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide", "s1")
    for number in range(3):
        memory.episodic.record_episode(f"Task {number}", ["looked"])
        memory.add(f"Note {number}")
    memory.short_term.add_message("user", "Hello")
    memory.delete(memory.add("Wrong")["memory_id"])
    overview = holdfast.overview()
    assert overview["overdue"] == {
        "counts": {"archive": 0, "recycle": 0, "delete": 0},
        "kinds": {},
        "is_whole": True,
        "since": None,
    }
    assert overview["bin"]["memories"] == 1
    assert overview["bin"]["first_leaves_at"] == overview["bin"]["last_leaves_at"]
    assert overview["sessions"] == {"active": 1}
    holdfast.schedule.enrol()
    assert holdfast.overview()["next_sweep_at"] is not None
    for days, counts in ((16, (0, 0, 1)), (15, (0, 1, 1)), (60, (3, 1, 1)), (280, (3, 4, 1))):
        clock.advance(days=days)
        overdue = holdfast.overview()["overdue"]
        plan: Any = holdfast.sweep(dry_run=True)
        assert overdue["counts"] == dict(zip(("archive", "recycle", "delete"), counts, strict=True)) == plan.counts
        assert overdue["since"] is not None
        assert overdue["since"] <= holdfast.overview()["at"]
    holdfast.sweep(confirm=True)
    assert holdfast.overview()["overdue"]["counts"]["archive"] == 0


def test_the_last_days_say_what_happened_on_each(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide")
    first = [memory.add(f"Note {number}")["memory_id"] for number in range(5)]
    holdfast.overview()
    clock.advance(days=1)
    holdfast.sweep()  # notes what was counted by the beginning of the day
    memory.delete(first[0])
    memory.add("Another")
    holdfast.manager("ben", "guide").add("Ben note")
    clock.advance(days=1)
    holdfast.overview()
    memory.restore(first[0])
    holdfast.erase_user("ben")
    clock.advance(days=2)  # nobody looks on the day between
    memory.add("One more")
    days = [
        {name: count for name, count in day.items() if count and name != "day"} for day in holdfast.overview()["days"]
    ]
    assert len(days) == 30
    assert days[-5:] == [
        {"added": 5},
        {"added": 2, "recycled": 1},
        {"added": 1, "restored": 1, "recycled": 1, "deleted": 1, "erased": 1},
        {},
        {},
    ]


def test_erasures_are_measured_against_the_objective(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.manager("ann", "guide").add("Note")
    assert holdfast.overview()["erasures"]["count"] == 0
    holdfast.erase_user("ann")
    erasures = holdfast.overview()["erasures"]
    assert (erasures["count"], erasures["pending"], erasures["late"]) == (1, 0, 0)
    assert erasures["certified"] == {"count": 1, "p50_seconds": 0.0, "p99_seconds": 0.0}
    rows = raw.rows(holdfast, "SELECT * FROM erasure_times")
    assert len(rows) == 1
    assert "ann" not in str(rows)
    clock.advance(days=31)
    assert holdfast.overview()["erasures"]["count"] == 0


def test_holds_and_the_last_backup_are_told(holdfast: Holdfast) -> None:
    holdfast.manager("ann", "guide").add_many([f"Note {number}" for number in range(4)])
    holdfast.holds.add(user_id="ann", reason="Case 1", author="legal")
    holdfast.holds.add(tag="case=2", reason="Case 2", author="legal")
    assert holdfast.overview()["holds"] == {"count": 2, "users": 1, "memories": 4, "others": 1}
    assert holdfast.overview()["backup"] is None
    made = holdfast.backups.create()
    backup: Any = holdfast.overview()["backup"]
    assert (backup["good"], backup["last_good_at"]) == (None, None)
    assert holdfast.backups.verify(made.id, restore=True)
    backup = holdfast.overview()["backup"]
    assert (backup["good"], backup["last_good_at"]) == (True, made.created_at)
    assert backup["tried_at"] is not None


def test_runs_of_jobs_that_did_something_are_kept_and_idle_ones_are_not(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.manager("ann", "guide").episodic.record_episode("Book a train", ["looked"])
    holdfast.schedule.run("episodes")
    assert holdfast.schedule.runs("episodes") == []
    for _ in range(2):
        clock.advance(days=400)
        holdfast.schedule.run("episodes")
        holdfast.manager("ann", "guide").episodic.record_episode("Book another", ["looked"])
    last, first = holdfast.schedule.runs("episodes")
    assert first["started_at"] < last["started_at"]
    assert (first["slot"], first["error"]) == (None, None)
    assert first["result"] is not None
    assert first["result"]["counts"]["recycle"] == 1
    assert holdfast.schedule.runs() == [last, first]


def test_what_a_hold_covers_is_counted_whatever_it_is_on(holdfast: Holdfast) -> None:
    for user in ("ann", "ben"):
        for agent in ("guide", "cook"):
            memory = holdfast.manager(user, agent, f"{agent}-1")
            memory.add_many(["One", "Two", "Three"], metadata={"case": "7"} if agent == "cook" else None)
            memory.short_term.add_message("user", "Hello")
    binned = holdfast.manager("ann", "guide")
    binned.delete(binned.add("Four")["memory_id"])
    expected: list[tuple[dict[str, Any], dict[str, int]]] = [
        ({"user_id": "ann"}, {"memories": 6, "sessions": 2}),
        ({"agent_id": "guide"}, {"memories": 6, "sessions": 2}),
        ({"agent_id": "cook", "user_id": "ben"}, {"memories": 3, "sessions": 1}),
        ({"session_id": "cook-1"}, {"memories": 6, "sessions": 2}),
        ({"tag": "case=7"}, {"memories": 6}),
        ({"tag": "case=7", "user_id": "ann"}, {"memories": 3}),
        ({"tag": "case=8"}, {"memories": 0}),
    ]
    for whom, covers in expected:
        hold = holdfast.holds.add(**whom, reason="Case", author="legal")
        assert holdfast.holds.count(hold.id) == covers, whom
        holdfast.holds.release(hold.id)
        assert holdfast.holds.count(hold.id) == {"memories": 0}
