"""RT-005, backups: what is in them, how often they are made, how long they are kept."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.backups.layout import Frame
from holdfast.core.values import moment

DAILY = ("entity", "episodic", "long_term", "structured")


def moment_of_id(backup_id: str) -> int:
    """The moment that a backup's name carries, as people read it there."""
    day, time, millis, *_ = backup_id.split("-")
    read = datetime.strptime(f"{day}{time}{millis}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    return moment(read)


def pass_days(holdfast: Holdfast, clock: FakeClock, days: int, *, step: int = 1) -> None:
    """Let days pass with nothing but backups being made and tried."""
    for job in ("minutely", "episodes", "archive", "daily"):
        holdfast.schedule.set(job, enabled=False)
    for _ in range(0, days, step):
        clock.advance(days=step)
        assert [run["error"] for run in holdfast.schedule.run_due() if run["error"]] == []


def made(holdfast: Holdfast, kinds: tuple[str, ...]) -> list[int]:
    """The ages in days of the backups of these kinds, the oldest first."""
    now = holdfast.services.now()
    return [(now - moment_of_id(one.id)) // 86_400_000_000 for one in holdfast.backups.list() if one.kinds == kinds]


def held(holdfast: Holdfast, backup_id: str) -> list[Frame]:
    """All that a backup says."""
    catalog = holdfast.backups._catalog
    manifest = catalog.get(backup_id)
    return [frame for _, frames in catalog.contents(manifest, catalog.docs(manifest)) for frame in frames or ()]


def test_rt_005_working_and_short_term_memory_are_never_in_a_backup(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add("a working note, 4711", "working")
    memory.add("a short-term note, 4712", "short_term")
    memory.add("a long-term note, 4713", "long_term")
    frames = held(holdfast, holdfast.backups.create().id)
    where = {mark: {frame.table for frame in frames if mark in str(frame.rows)} for mark in ("4711", "4712", "4713")}
    assert where == {"4711": set(), "4712": {"history", "sessions"}, "4713": {"records"}}, "a conversation outlives it"
    for kind in ("working", "short_term"):
        with pytest.raises(ValueError, match=f"{kind} memory is never backed up"):
            holdfast.backups.create([kind])


def test_rt_005_four_kinds_are_backed_up_daily_and_kept_for_30_days(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    for kind in DAILY:
        memory.add({"city": "Rome"} if kind == "structured" else "Rome in May", kind)
    pass_days(holdfast, clock, 38)
    assert made(holdfast, DAILY) == sorted(range(30), reverse=True), "one for each day, none older than 30 days"
    latest = [one for one in holdfast.backups.list() if one.kinds == DAILY][-1]
    assert latest.memories == len(DAILY)
    kinds = {
        row[frame.columns.index("kind")]
        for frame in held(holdfast, latest.id)
        if frame.table == "records"
        for row in frame.rows
    }
    assert len(kinds) == len(DAILY)


def test_rt_005_persona_is_backed_up_weekly_and_kept_for_90_days(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.add("Answers briefly", "persona")
    pass_days(holdfast, clock, 112, step=7)
    ages = made(holdfast, ("persona",))
    assert ages == [age for age in range(max(ages), -1, -7) if age >= 0]
    assert 84 <= max(ages) < 90
    assert {one.memories for one in holdfast.backups.list() if one.kinds == ("persona",)} == {1}


def test_rt_005_a_backup_holds_every_memory_carries_its_time_and_logs_how_many_there_are(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {f"note {n}" for n in range(50)}
    memory.add_many(sorted(texts), "long_term")
    with caplog.at_level(logging.INFO, logger="holdfast.backups"):
        backup = holdfast.backups.create(["long_term"])
    assert f"backup {backup.id} holds 50 memories" in caplog.text
    assert abs(moment_of_id(backup.id) - holdfast.services.now()) < 1_000, "to the millisecond"
    made = clock()
    (folder,) = (holdfast.settings.home / "backups" / "backups").iterdir()
    assert folder.name == backup.id
    assert folder.name.startswith(f"{made:%Y%m%d-%H%M%S}-"), "whoever lists the folder sees when it was made"
    later = [holdfast.backups.create(["long_term"]).id for _ in range(3)]
    clock.advance(seconds=1)
    later.append(holdfast.backups.create(["long_term"]).id)
    assert [one.id for one in holdfast.backups.list()] == [backup.id, *later], (
        "also those of one moment keep their order"
    )
    records = [
        dict(zip(f.columns, row, strict=True))
        for f in held(holdfast, backup.id)
        if f.table == "records"
        for row in f.rows
    ]
    assert {row["content"].removeprefix(b"\0").decode() for row in records} == texts
    assert any(path.is_file() for path in (holdfast.settings.home / "backups").rglob("*"))


def test_rt_005_gdpr_delete_takes_the_user_out_of_the_backups(
    holdfast: Holdfast, memory: MemoryManager, home: Path
) -> None:
    memory.add("Is allergic to peanuts", "long_term")
    holdfast.manager("bob", "guide").add("Likes tea", "long_term")
    backup = holdfast.backups.create()
    size = sum(path.stat().st_size for path in (home / "backups").rglob("*") if path.is_file())

    holdfast.gdpr_delete_user_data(memory.user_id)

    check = holdfast.backups.verify(backup.id)
    assert (check.users, check.erased) == (1, 1), "nobody can read that part any more"
    holdfast.backups.rotate()
    check = holdfast.backups.verify(backup.id, restore=True)
    assert (bool(check), check.users, check.erased) == (True, 1, 0), "and now it is gone"
    assert sum(path.stat().st_size for path in (home / "backups").rglob("*") if path.is_file()) < size
